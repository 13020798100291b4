//! What became of side effects that nobody can be sure of: a projection of the records, over all sessions, those that are over too.
//!
//! A call is open from its unknown ending, or from a terminal that names it, until a record settles it. Bounded; what falls out is
//! counted. The authority is the log; this is where a person looks first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::counters::{Tally, count};
use crate::event::{CallEnding, Event, IdempotencyKey, Outcome, Record, Terminal};
use crate::id::{CallId, SessionId, TurnId};
use crate::time::Stamp;

/// Open calls kept, at most, over all sessions; the longest open ones go first.
const OPEN: usize = 4_096;
/// Calls of one session remembered until their turn is over, at most.
const CALLS: usize = 1_024;

/// A call whose side effect may have happened, and nobody knows, or a person has to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreconciled {
    /// In which session; it may be over.
    pub session: SessionId,
    /// In which turn; it is over, with a terminal that stays.
    pub turn: TurnId,
    /// Which call.
    pub call: CallId,
    /// Of which tool.
    pub tool: String,
    /// Under which key it changes something outside: what to ask the outside with.
    pub key: IdempotencyKey,
    /// Since when it is open (session time).
    pub since: Stamp,
    /// Since when it is open, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// What is known so far: [`Outcome::NeedsPerson`] when nobody asks any more, `None` while it is being asked after.
    pub outcome: Option<Outcome>,
}

/// The open calls of an engine.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    by_call: BTreeMap<(SessionId, CallId), (u64, Unreconciled)>,
    opened: u64,
}

impl OpenCalls {
    /// A picture, the longest open first.
    pub(super) fn picture(&self) -> Vec<Unreconciled> {
        let mut all: Vec<_> = self.by_call.values().collect();
        all.sort_by_key(|(opened, _)| *opened);
        all.into_iter().map(|(_, call)| call.clone()).collect()
    }

    fn open(&mut self, call: Unreconciled, tally: &Tally) {
        let place = (call.session, call.call);
        if self.by_call.contains_key(&place) {
            return;
        }
        self.opened += 1;
        self.by_call.insert(place, (self.opened, call));
        if self.by_call.len() > OPEN
            && let Some(longest) = self.by_call.iter().min_by_key(|(_, (opened, _))| *opened).map(|(place, _)| *place)
        {
            self.by_call.remove(&longest);
            count(&tally.unreconciled_dropped);
        }
    }

    fn settle(&mut self, session: SessionId, call: CallId, outcome: Outcome) {
        if outcome.is_settled() {
            self.by_call.remove(&(session, call));
        } else if let Some((_, open)) = self.by_call.get_mut(&(session, call)) {
            open.outcome = Some(outcome);
        }
    }
}

/// What must be remembered of one session's calls to tell which of them are open.
#[derive(Debug, Default)]
pub(super) struct CallFold {
    wall_unix_ms: u64,
    began: Stamp,
    calls: BTreeMap<CallId, Known>,
    /// Open calls about which nothing was said yet: they are being asked after.
    asking: BTreeSet<CallId>,
}

#[derive(Debug)]
struct Known {
    turn: TurnId,
    tool: String,
    key: IdempotencyKey,
    ended: bool,
}

impl CallFold {
    /// Whether a call is being asked after.
    pub(super) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Takes one record into account.
    pub(super) fn absorb(&mut self, session: SessionId, record: &Record, open: &Arc<Mutex<OpenCalls>>, tally: &Tally) {
        let lock = || open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match (&record.event, record.turn) {
            (Event::SessionStarted { wall_unix_ms }, _) => (self.wall_unix_ms, self.began) = (*wall_unix_ms, record.at),
            (Event::CallRequested { call, tool, key, .. }, Some(turn)) => {
                let known = Known { turn, tool: tool.clone(), key: key.clone(), ended: false };
                self.calls.insert(*call, known);
                if self.calls.len() > CALLS {
                    self.calls.pop_first();
                    count(&tally.calls_forgotten);
                }
            }
            (Event::CallKept { call, .. }, Some(turn)) => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.turn = turn;
                }
            }
            (Event::CallEnded { call, ending, .. }, _) => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.ended = true;
                }
                if *ending == CallEnding::Unknown
                    && let Some(unknown) = self.unreconciled(session, *call, record.at)
                {
                    lock().open(unknown, tally);
                    self.asking.insert(*call);
                }
            }
            (Event::TurnEnded { terminal, .. }, Some(turn)) => {
                if let Terminal::ReconcileRequired { calls } = terminal {
                    for unknown in calls.iter().filter_map(|call| self.unreconciled(session, *call, record.at)) {
                        lock().open(unknown, tally);
                    }
                    self.asking.extend(calls);
                }
                self.calls.retain(|_, known| known.turn != turn || !known.ended);
            }
            (Event::Reconciled { call, outcome }, _) => {
                lock().settle(session, *call, *outcome);
                self.asking.remove(call);
            }
            _ => {}
        }
    }

    fn unreconciled(&self, session: SessionId, call: CallId, at: Stamp) -> Option<Unreconciled> {
        let Known { turn, tool, key, .. } = self.calls.get(&call)?;
        Some(Unreconciled {
            session,
            turn: *turn,
            call,
            tool: tool.clone(),
            key: key.clone(),
            since: at,
            since_unix_ms: self.wall_unix_ms.saturating_add(at.since(self.began).as_millis() as u64),
            outcome: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CancelCause, Timing, VERSION};
    use crate::id::{Generation, Seq};

    const HERE: SessionId = SessionId::from_bits(1);

    #[derive(Default)]
    struct Story {
        fold: CallFold,
        open: Arc<Mutex<OpenCalls>>,
        tally: Tally,
        seq: u64,
    }

    impl Story {
        fn tell(&mut self, at_ms: u64, turn: u64, event: Event) -> &mut Self {
            self.seq += 1;
            let (seq, at, turn) = (Seq(self.seq), Stamp::from_millis(at_ms), Some(TurnId(turn)));
            let record = Record { v: VERSION, seq, at, turn, generation: Generation(1), event };
            self.fold.absorb(HERE, &record, &self.open, &self.tally);
            self
        }

        fn asked(&mut self, turn: u64, call: u64) -> &mut Self {
            let key = IdempotencyKey(format!("k{call}"));
            let (call, arguments) = (CallId(call), "{}".into());
            self.tell(10, turn, Event::CallRequested { call, tool: "book".into(), arguments, key })
        }

        fn over(&mut self, turn: u64, call: u64, ending: CallEnding, terminal: Terminal) -> &mut Self {
            let (heard, unheard) = Default::default();
            self.tell(20, turn, Event::CallEnded { call: CallId(call), ending, result: None });
            self.tell(30, turn, Event::TurnEnded { terminal, heard, unheard, timing: Timing::Exact })
        }

        fn open(&self) -> Vec<(u64, u64, Option<Outcome>)> {
            let open = self.open.lock().expect("no panic").picture();
            open.into_iter().map(|call| (call.call.0, call.since_unix_ms, call.outcome)).collect()
        }
    }

    fn reconciled(call: u64, outcome: Outcome) -> Event {
        Event::Reconciled { call: CallId(call), outcome }
    }

    #[test]
    fn a_call_is_open_until_it_is_settled() {
        let mut story = Story::default();
        story.tell(0, 0, Event::SessionStarted { wall_unix_ms: 1_000 });
        story.asked(1, 1).asked(1, 2).asked(1, 3);
        story.tell(15, 1, Event::CallEnded { call: CallId(1), ending: CallEnding::Done, result: None });
        assert_eq!(story.open(), []);
        let required = Terminal::ReconcileRequired { calls: vec![CallId(2), CallId(3)] };
        story.tell(18, 1, Event::CallEnded { call: CallId(3), ending: CallEnding::Done, result: None });
        story.over(1, 2, CallEnding::Unknown, required);
        assert_eq!(story.open(), [(2, 1_020, None), (3, 1_030, None)], "and one that was done after the stop");
        assert!(story.fold.is_asking());
        story.tell(40, 1, reconciled(3, Outcome::Happened)).tell(50, 1, reconciled(2, Outcome::NeedsPerson));
        assert_eq!(story.open(), [(2, 1_020, Some(Outcome::NeedsPerson))], "a person has to look");
        assert!(!story.fold.is_asking(), "nobody asks any more");
        story.tell(60, 1, reconciled(2, Outcome::DidNotHappen));
        assert_eq!(story.open(), []);
        assert!(story.fold.calls.is_empty(), "nothing is remembered of a turn that is over");
    }

    #[test]
    fn a_kept_call_belongs_to_the_turn_that_keeps_it() {
        let mut story = Story::default();
        let cancelled = Terminal::Cancelled { cause: CancelCause::BargeIn };
        story.asked(1, 1).asked(1, 2);
        story.tell(15, 2, Event::CallKept { call: CallId(1), from: TurnId(1) });
        story.over(1, 2, CallEnding::Cancelled, cancelled);
        assert_eq!(story.fold.calls.len(), 1);
        story.over(2, 1, CallEnding::Unknown, Terminal::ReconcileRequired { calls: vec![CallId(1)] });
        let open = story.open.lock().expect("no panic").picture();
        assert_eq!((open.len(), open[0].turn), (1, TurnId(2)));
    }

    #[test]
    fn memory_is_bounded_and_what_falls_out_is_counted() {
        let mut story = Story::default();
        for call in 0..OPEN as u64 + 3 {
            story.asked(call, call);
            story.over(call, call, CallEnding::Unknown, Terminal::ReconcileRequired { calls: vec![CallId(call)] });
        }
        assert_eq!(story.open().len(), OPEN);
        assert_eq!(story.open()[0].0, 3, "the longest open went first");
        for call in 0..CALLS as u64 + 2 {
            story.asked(9_999, 10_000 + call);
        }
        let counters = story.tally.picture(0);
        assert_eq!((counters.unreconciled_dropped_total, counters.calls_forgotten_total), (3, 2));
    }
}
