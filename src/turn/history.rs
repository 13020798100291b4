//! `history`: the conversation as the model sees it. What the person said, and of the answers what was *heard*.

use std::collections::VecDeque;

use crate::id::TurnId;
use crate::turn::{Message, Role};

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
    message: Message,
}

impl History {
    /// The person said something; `turn` answers it, if any does.
    pub(super) fn user(&mut self, turn: Option<TurnId>, text: &str) {
        self.insert(self.entries.len(), turn, Role::User, text, false);
    }

    /// Of the answer of `turn` this was heard. Said again, it replaces what was said before.
    pub(super) fn assistant(&mut self, turn: TurnId, heard: &str, interrupted: bool) {
        let heard = heard.trim();
        let mine = |e: &Entry| e.turn == Some(turn);
        if let Some(place) = self.entries.iter().position(|e| mine(e) && e.message.role == Role::Assistant) {
            if heard.is_empty() {
                self.entries.remove(place);
            } else if let Some(entry) = self.entries.get_mut(place) {
                entry.message = Message { role: Role::Assistant, text: heard.into(), interrupted };
            }
            return;
        }
        // Behind the input it answers, even if something newer was said meanwhile; forgotten when its input is.
        if let Some(place) = self.entries.iter().rposition(mine)
            && !heard.is_empty()
        {
            self.insert(place + 1, Some(turn), Role::Assistant, heard, interrupted);
        }
    }

    fn insert(&mut self, place: usize, turn: Option<TurnId>, role: Role, text: &str, interrupted: bool) {
        self.entries.insert(place, Entry { turn, message: Message { role, text: text.trim().into(), interrupted } });
        while self.entries.len() > MESSAGES {
            self.entries.pop_front();
        }
    }

    /// The conversation so far.
    pub(super) fn context(&self) -> Vec<Message> {
        self.entries.iter().map(|e| e.message.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(history: &History) -> Vec<String> {
        let line = |m: Message| {
            let who = match m.role {
                Role::User => "u",
                Role::Assistant => "a",
            };
            format!("{who}:{}{}", m.text.reveal(), if m.interrupted { "/" } else { "" })
        };
        history.context().into_iter().map(line).collect()
    }

    #[test]
    fn a_late_correction_stands_where_the_answer_stood() {
        let mut h = History::default();
        h.user(Some(TurnId(1)), "tell me");
        h.assistant(TurnId(1), "once upon ", true);
        h.user(Some(TurnId(2)), "stop");
        h.assistant(TurnId(1), "once upon a ", true);
        assert_eq!(told(&h), ["u:tell me", "a:once upon a/", "u:stop"]);
    }

    #[test]
    fn an_unheard_answer_leaves_no_message_and_one_that_came_late_its_place() {
        let mut h = History::default();
        h.user(Some(TurnId(1)), "one");
        h.assistant(TurnId(1), "", true);
        h.user(Some(TurnId(2)), "two");
        assert_eq!(told(&h), ["u:one", "u:two"]);
        h.assistant(TurnId(1), "uno", true);
        assert_eq!(told(&h), ["u:one", "a:uno/", "u:two"]);
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut h = History::default();
        for i in 0..MESSAGES as u64 + 1 {
            h.user(Some(TurnId(i)), &i.to_string());
        }
        h.assistant(TurnId(0), "too late", false);
        assert_eq!(h.context().len(), MESSAGES);
        assert_eq!(told(&h)[0], "u:1");
    }
}
