//! `history`: the conversation as the model sees it. What the person said, what was *heard* of the answers, and the calls between.
//!
//! * Everything of one turn stands together, in the order of its requests to the model: input, words, calls, each call with its
//!   result. So a call is followed by exactly one result wherever a turn is cut.
//! * A message may be corrected later (a late report of what was heard, a late result), in its place.

use std::collections::VecDeque;

use crate::event::{CallEnding, Pii};
use crate::id::{CallId, TurnId};
use crate::turn::Message;

/// Messages that are kept; the oldest is forgotten first.
pub(super) const MESSAGES: usize = 64;

/// The last [`MESSAGES`] messages.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    entries: VecDeque<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    turn: Option<TurnId>,
    place: Place,
    message: Message,
}

/// Where a message stands inside its turn: by the request it belongs to, then by its kind, then in the order it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    request: u32,
    kind: Kind,
    order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Input,
    Words,
    Call,
}

impl History {
    /// The person said something; `turn` answers it, if any does.
    pub(super) fn user(&mut self, turn: Option<TurnId>, text: &str) {
        let place = Place { request: 1, kind: Kind::Input, order: 0 };
        self.append(Entry { turn, place, message: Message::User { text: text.trim().into() } });
    }

    /// The `request`-th question to the model of `turn` shows it this further input.
    pub(super) fn further(&mut self, turn: TurnId, request: u32, text: &str) {
        let place = Place { request, kind: Kind::Input, order: 0 };
        self.insert(turn, place, Message::User { text: text.trim().into() });
    }

    /// `turn` speaks without having been asked.
    pub(super) fn announcement(&mut self, turn: TurnId) {
        let place = Place { request: 1, kind: Kind::Words, order: 0 };
        let message = Message::Assistant { text: "".into(), interrupted: false };
        self.append(Entry { turn: Some(turn), place, message });
    }

    /// Of the answer of `turn` these are the words, by request. Said again, they replace what was said before.
    pub(super) fn words<'a>(&mut self, turn: TurnId, words: impl IntoIterator<Item = (u32, &'a str)>, interrupted: bool) {
        let words: Vec<(u32, &str)> = words.into_iter().map(|(request, text)| (request, text.trim())).collect();
        let last = words.iter().rposition(|(_, text)| !text.is_empty());
        for (i, (request, text)) in words.into_iter().enumerate() {
            let message = Message::Assistant { text: text.into(), interrupted: interrupted && Some(i) == last };
            let place = Place { request, kind: Kind::Words, order: 0 };
            match self.entries.iter_mut().find(|e| e.turn == Some(turn) && e.place == place) {
                Some(entry) => entry.message = message,
                None => self.insert(turn, place, message),
            }
        }
    }

    /// The model asked for a tool, and its result is not there yet.
    pub(super) fn call(&mut self, turn: TurnId, request: u32, call: CallId, tool: &str, arguments: &Pii<String>) {
        let place = |order| Place { request, kind: Kind::Call, order };
        let asked = Message::Call { call, tool: tool.to_owned(), arguments: arguments.clone() };
        self.insert(turn, place(2 * call.0), asked);
        self.insert(turn, place(2 * call.0 + 1), Message::Result { call, ending: None, text: "".into() });
    }

    /// What became of a call, as far as is known now.
    pub(super) fn result(&mut self, call: CallId, ending: CallEnding, text: &Pii<String>) {
        let of = |e: &&mut Entry| matches!(e.message, Message::Result { call: c, .. } if c == call);
        if let Some(entry) = self.entries.iter_mut().find(of) {
            entry.message = Message::Result { call, ending: Some(ending), text: text.clone() };
        }
    }

    fn append(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        self.forget();
    }

    /// Puts a message among those of its turn, even if something newer was said meanwhile; forgotten when its turn is.
    fn insert(&mut self, turn: TurnId, place: Place, message: Message) {
        let mine = |e: &Entry| e.turn == Some(turn);
        let Some(first) = self.entries.iter().position(mine) else { return };
        let before = self.entries.iter().rposition(|e| mine(e) && e.place <= place).map_or(first, |at| at + 1);
        self.entries.insert(before, Entry { turn: Some(turn), place, message });
        self.forget();
    }

    fn forget(&mut self) {
        while self.entries.len() > MESSAGES {
            self.entries.pop_front();
        }
        // A result without its call is nonsense to a model.
        while let Some(Message::Result { .. }) = self.entries.front().map(|e| &e.message) {
            self.entries.pop_front();
        }
    }

    /// The conversation so far.
    pub(super) fn context(&self) -> Vec<Message> {
        let said = |message: &&Message| match message {
            Message::Assistant { text, .. } => !text.reveal().is_empty(),
            Message::User { .. } | Message::Call { .. } | Message::Result { .. } => true,
        };
        self.entries.iter().map(|e| &e.message).filter(said).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(history: &History) -> Vec<String> {
        let line = |m: Message| match m {
            Message::User { text } => format!("u:{}", text.reveal()),
            Message::Assistant { text, interrupted } => format!("a:{}{}", text.reveal(), if interrupted { "/" } else { "" }),
            Message::Call { call, tool, .. } => format!("c{}:{tool}", call.0),
            Message::Result { call, ending, text } => {
                format!("r{}:{}{}", call.0, ending.map_or("running".into(), |e| e.to_string()), text.reveal())
            }
        };
        history.context().into_iter().map(line).collect()
    }

    #[test]
    fn a_late_correction_stands_where_the_answer_stood() {
        let mut h = History::default();
        h.user(Some(TurnId(1)), "tell me");
        h.words(TurnId(1), [(1, "once upon ")], true);
        h.user(Some(TurnId(2)), "stop");
        h.words(TurnId(1), [(1, "once upon a ")], true);
        assert_eq!(told(&h), ["u:tell me", "a:once upon a/", "u:stop"]);
    }

    #[test]
    fn an_unheard_answer_leaves_no_message_and_one_that_came_late_its_place() {
        let mut h = History::default();
        h.user(Some(TurnId(1)), "one");
        h.words(TurnId(1), [(1, "")], true);
        h.user(Some(TurnId(2)), "two");
        assert_eq!(told(&h), ["u:one", "u:two"]);
        h.words(TurnId(1), [(1, "uno")], true);
        assert_eq!(told(&h), ["u:one", "a:uno/", "u:two"]);
    }

    #[test]
    fn a_turn_of_several_requests_stands_in_their_order_whatever_comes_when() {
        let mut h = History::default();
        h.user(Some(TurnId(1)), "book it");
        h.call(TurnId(1), 1, CallId(5), "look", &"{}".into());
        h.call(TurnId(1), 1, CallId(6), "book", &"{}".into());
        h.words(TurnId(1), [(1, "One moment.")], false);
        assert_eq!(told(&h), ["u:book it", "a:One moment.", "c5:look", "r5:running", "c6:book", "r6:running"]);
        h.further(TurnId(1), 2, "for two");
        h.further(TurnId(1), 2, "at eight");
        h.user(Some(TurnId(2)), "stop");
        h.result(CallId(6), CallEnding::Done, &" ok".into());
        h.result(CallId(5), CallEnding::Cancelled, &"".into());
        h.words(TurnId(1), [(1, "One moment."), (2, "Booked for")], true);
        let want = ["u:book it", "a:One moment.", "c5:look", "r5:cancelled", "c6:book", "r6:done ok", "u:for two", "u:at eight"];
        assert_eq!(told(&h)[..8], want);
        assert_eq!(told(&h)[8..], ["a:Booked for/", "u:stop"]);
        h.words(TurnId(1), [(1, "One"), (2, "")], true);
        assert_eq!((told(&h)[1].as_str(), told(&h).len()), ("a:One/", 9), "cut inside the first words, the second were not heard");
    }

    #[test]
    fn further_inputs_keep_their_order_when_the_oldest_is_forgotten_between_them() {
        let mut h = History::default();
        h.user(Some(TurnId(0)), "old");
        h.call(TurnId(0), 1, CallId(1), "look", &"{}".into());
        for i in 0..MESSAGES - 3 {
            h.user(None, &i.to_string());
        }
        h.user(Some(TurnId(1)), "book it");
        assert_eq!(told(&h)[0], "c1:look", "it is forgotten next, and its result with it");
        h.further(TurnId(1), 2, "for two");
        h.further(TurnId(1), 2, "at eight");
        let told = told(&h);
        assert_eq!(told[told.len() - 2..], ["u:for two", "u:at eight"]);
    }

    #[test]
    fn an_announcement_was_asked_by_nobody() {
        let mut h = History::default();
        h.announcement(TurnId(1));
        h.user(Some(TurnId(2)), "who is there");
        h.words(TurnId(1), [(1, "Hello.")], false);
        assert_eq!(told(&h), ["a:Hello.", "u:who is there"]);
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_a_call_with_its_result() {
        let mut h = History::default();
        h.user(Some(TurnId(0)), "old");
        h.call(TurnId(0), 1, CallId(1), "look", &"{}".into());
        for i in 1..MESSAGES as u64 - 1 {
            h.user(Some(TurnId(i)), &i.to_string());
        }
        assert_eq!(told(&h)[..2], ["c1:look", "r1:running"]);
        h.user(None, "one more");
        assert_eq!(told(&h)[0], "u:1", "a result does not stay without its call");
        h.words(TurnId(0), [(1, "too late")], false);
        h.result(CallId(1), CallEnding::Done, &"too late".into());
        assert!(!told(&h).join(" ").contains("too late"));
    }
}
