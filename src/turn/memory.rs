//! `memory`: what was answered and how turns ended, bounded, so that asking twice has one effect.

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Pii, Terminal};
use crate::id::{RequestId, Seq, TurnId};
use crate::turn::{Answer, RequestKind};

/// Requests whose answers are remembered.
pub(super) const ANSWERS: usize = 256;
/// Turns whose ends are remembered.
pub(super) const ENDINGS: usize = 1024;
/// Ended turns that are remembered with their texts.
pub(super) const RECENT: usize = 16;

/// An answer that was given, and the record it waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) after: Option<Seq>,
}

/// The last [`ANSWERS`] requests with their answers. The oldest is forgotten first.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    known: BTreeMap<(RequestId, RequestKind), Answered>,
    order: VecDeque<(RequestId, RequestKind)>,
}

impl Answers {
    pub(super) fn get(&self, request: RequestId, kind: RequestKind) -> Option<&Answered> {
        self.known.get(&(request, kind))
    }

    pub(super) fn put(&mut self, request: RequestId, kind: RequestKind, answered: Answered) {
        if self.known.insert((request, kind), answered).is_some() {
            return;
        }
        self.order.push_back((request, kind));
        if self.order.len() > ANSWERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ending {
    pub(super) terminal: Terminal,
    /// The record that says so.
    pub(super) seq: Seq,
}

/// An ended turn with its texts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recent {
    pub(super) turn: TurnId,
    pub(super) parent: Option<TurnId>,
    pub(super) terminal: Terminal,
    pub(super) input: Option<Pii<String>>,
    pub(super) heard: Pii<String>,
    pub(super) unheard: Pii<String>,
}

/// The ends of the last [`ENDINGS`] turns, and the texts of the last [`RECENT`].
#[derive(Clone, Debug, Default)]
pub(super) struct Endings {
    known: BTreeMap<TurnId, Ending>,
    recent: VecDeque<Recent>,
}

impl Endings {
    pub(super) fn get(&self, turn: TurnId) -> Option<&Ending> {
        self.known.get(&turn)
    }

    pub(super) fn put(&mut self, recent: Recent, seq: Seq) {
        self.known.insert(recent.turn, Ending { terminal: recent.terminal.clone(), seq });
        if self.known.len() > ENDINGS {
            self.known.pop_first();
        }
        self.recent.push_back(recent);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    pub(super) fn recent(&self) -> impl Iterator<Item = &Recent> {
        self.recent.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_answer_is_forgotten_first() {
        let mut answers = Answers::default();
        let done = Answered { answer: Answer::Done, after: None };
        for i in 0..=ANSWERS as u128 {
            answers.put(RequestId::from_bits(i), RequestKind::Drain, done.clone());
        }
        assert_eq!(answers.get(RequestId::from_bits(0), RequestKind::Drain), None);
        assert_eq!(answers.get(RequestId::from_bits(1), RequestKind::Drain), Some(&done));
        assert_eq!(answers.get(RequestId::from_bits(1), RequestKind::Cancel), None, "another kind is another request");
        assert_eq!(answers.order.len(), ANSWERS);
        assert_eq!(answers.known.len(), ANSWERS);
    }

    #[test]
    fn ends_outlive_texts_and_both_are_bounded() {
        let mut endings = Endings::default();
        for i in 1..=ENDINGS as u64 + 1 {
            let turn = TurnId(i);
            let recent =
                Recent { turn, parent: None, terminal: Terminal::Completed, input: None, heard: "".into(), unheard: "".into() };
            endings.put(recent, Seq(i));
        }
        assert_eq!(endings.get(TurnId(1)), None);
        assert_eq!(endings.get(TurnId(2)).map(|e| e.seq), Some(Seq(2)));
        assert_eq!(endings.recent().count(), RECENT);
    }
}
