//! The world outside: what was sent to it under leave, and what became of that. The one truth that every report is held against.

use std::collections::BTreeMap;

use crate::event::Outside;
use crate::id::CallId;

/// What became of something that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is on its way.
    Underway,
    /// It happened.
    Happened,
    /// It was lost, or taken back in time, and never happens.
    Never,
    /// It happened and was undone.
    Undone,
}

/// Something that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) call: CallId,
    pub(super) key: String,
    pub(super) state: State,
}

/// Everything that was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Outer {
    pub(super) sent: Vec<Sent>,
    of: BTreeMap<CallId, usize>,
}

impl Outer {
    pub(super) fn send(&mut self, call: CallId, key: String) -> usize {
        let entry = self.sent.len();
        self.sent.push(Sent { call, key, state: State::Underway });
        self.of.insert(call, entry);
        entry
    }

    pub(super) fn state(&self, call: CallId) -> Option<State> {
        self.of.get(&call).and_then(|entry| self.sent.get(*entry)).map(|sent| sent.state)
    }

    fn set(&mut self, call: CallId, state: State) {
        if let Some(sent) = self.of.get(&call).and_then(|entry| self.sent.get_mut(*entry)) {
            sent.state = state;
        }
    }

    /// It arrives, unless it was taken back.
    pub(super) fn arrives(&mut self, entry: usize) -> Option<&Sent> {
        let sent = self.sent.get_mut(entry).filter(|sent| sent.state == State::Underway)?;
        sent.state = State::Happened;
        Some(sent)
    }

    /// It is lost on its way.
    pub(super) fn lose(&mut self, call: CallId) {
        self.set(call, State::Never);
    }

    /// Asks to take it back, which works as long as it is under way.
    pub(super) fn take_back(&mut self, call: CallId) -> bool {
        if self.state(call) == Some(State::Underway) {
            self.set(call, State::Never);
        }
        self.state(call) == Some(State::Never)
    }

    /// Undoes it. Returns whether it had happened.
    pub(super) fn undo(&mut self, call: CallId) -> bool {
        let happened = self.state(call) == Some(State::Happened);
        if happened {
            self.set(call, State::Undone);
        }
        happened
    }

    /// What the outside says when asked.
    pub(super) fn says(&self, call: CallId) -> Outside {
        match self.state(call) {
            Some(State::Happened) => Outside::Happened,
            Some(State::Never | State::Undone) | None => Outside::DidNotHappen,
            Some(State::Underway) => Outside::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_never_arrives() {
        let mut outer = Outer::default();
        let entry = outer.send(CallId(1), "k".into());
        assert_eq!(outer.says(CallId(1)), Outside::Unknown);
        assert!(outer.take_back(CallId(1)));
        assert!(outer.arrives(entry).is_none());
        assert_eq!(outer.says(CallId(1)), Outside::DidNotHappen);
    }

    #[test]
    fn what_arrived_can_only_be_undone() {
        let mut outer = Outer::default();
        let entry = outer.send(CallId(1), "k".into());
        assert!(outer.arrives(entry).is_some_and(|sent| sent.key == "k"));
        assert!(outer.arrives(entry).is_none(), "it arrives once");
        assert!(!outer.take_back(CallId(1)));
        assert!(outer.undo(CallId(1)) && !outer.undo(CallId(1)));
        assert_eq!(outer.says(CallId(1)), Outside::DidNotHappen);
    }
}
