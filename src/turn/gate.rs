//! `gate`: the generation, the seq, and what may go out.
//!
//! * The generation only rises; it begins at 1.
//! * Records get their seq here, without holes. Each is appended at once; it is *delivered* only when every record before it that
//!   must be kept surely ([`Durability::Synced`]), itself included, is in the store. So nobody sees a fact that a crash could undo.
//! * Answers that rest on such a record wait for it, too.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::{Durability, Event, Record, VERSION};
use crate::id::{Generation, RequestId, Seq, TurnId};
use crate::time::Stamp;
use crate::turn::{Answer, Effect, RequestKind};

/// Generation, seq, and the records and answers that wait for the store.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    generation: Generation,
    /// Whether a reply was made under the present generation.
    used: bool,
    last: Seq,
    stored: Seq,
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Debug)]
enum Waiting {
    Record(Arc<Record>),
    Answer { after: Seq, request: RequestId, kind: RequestKind, answer: Answer },
}

/// The store speaks of a record that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NeverWritten;

impl Gate {
    /// A gate that goes on after `last`, at `generation`.
    pub(super) fn new(generation: Generation, last: Seq) -> Self {
        Gate { generation, used: false, last, stored: last, waiting: VecDeque::new() }
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    /// The seq of the last record written.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    /// Records and answers that wait for the store.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Raises the generation and returns the one that ended.
    pub(super) fn raise(&mut self) -> Generation {
        let from = self.generation;
        self.generation = from.next();
        self.used = false;
        from
    }

    /// Takes the present generation for a reply. Returns `false` when it has had one already and must be raised first.
    pub(super) fn claim(&mut self) -> bool {
        !std::mem::replace(&mut self.used, true)
    }

    /// Writes a record.
    pub(super) fn write(&mut self, at: Stamp, turn: Option<TurnId>, event: Event, out: &mut Vec<Effect>) -> Seq {
        self.last = self.last.next();
        let record = Arc::new(Record { v: VERSION, seq: self.last, at, turn, generation: self.generation, event });
        out.push(Effect::Append { record: record.clone() });
        self.waiting.push_back(Waiting::Record(record));
        self.release(out);
        self.last
    }

    /// Answers a command at once.
    pub(super) fn answer(request: RequestId, kind: RequestKind, answer: Answer, out: &mut Vec<Effect>) {
        out.push(Effect::Answer { request, kind, answer });
    }

    /// Answers a command as soon as the record `after` is in the store.
    pub(super) fn answer_after(
        &mut self,
        after: Seq,
        request: RequestId,
        kind: RequestKind,
        answer: Answer,
        out: &mut Vec<Effect>,
    ) {
        let behind = |w: &Waiting| match w {
            Waiting::Record(r) => r.seq > after,
            Waiting::Answer { after: other, .. } => *other > after,
        };
        let place = self.waiting.iter().position(behind).unwrap_or(self.waiting.len());
        self.waiting.insert(place, Waiting::Answer { after, request, kind, answer });
        self.release(out);
    }

    /// Whether the store has this record and all before it.
    pub(super) fn has(&self, seq: Seq) -> bool {
        seq <= self.stored
    }

    /// The store has everything up to `seq`.
    pub(super) fn stored(&mut self, seq: Seq, out: &mut Vec<Effect>) -> Result<(), NeverWritten> {
        if seq > self.last {
            return Err(NeverWritten);
        }
        self.stored = self.stored.max(seq);
        self.release(out);
        Ok(())
    }

    fn release(&mut self, out: &mut Vec<Effect>) {
        while let Some(front) = self.waiting.front() {
            let free = match front {
                Waiting::Record(record) => match record.event.durability() {
                    Durability::Buffered => true,
                    Durability::Synced => record.seq <= self.stored,
                },
                Waiting::Answer { after, .. } => *after <= self.stored,
            };
            if !free {
                return;
            }
            match self.waiting.pop_front() {
                Some(Waiting::Record(record)) => out.push(Effect::Deliver { record }),
                Some(Waiting::Answer { request, kind, answer, .. }) => out.push(Effect::Answer { request, kind, answer }),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CancelCause, Initiator};

    fn synced() -> Event {
        let request = RequestId::from_bits(1);
        Event::CancelRequested { cause: CancelCause::User, initiator: Initiator::Client, request }
    }

    fn delivered(out: &mut Vec<Effect>) -> Vec<String> {
        out.drain(..)
            .filter_map(|e| {
                if let Effect::Deliver { record } = &e {
                    Some(record.seq.0.to_string())
                } else if let Effect::Answer { request, .. } = &e {
                    Some(format!("answer {:x}", u128::from_str_radix(&request.to_string(), 16).expect("hex")))
                } else {
                    None
                }
            })
            .collect()
    }

    #[test]
    fn what_follows_a_synced_record_waits_for_it_and_comes_in_order() {
        let (mut gate, mut out) = (Gate::new(Generation(1), Seq(0)), Vec::new());
        gate.write(Stamp::ZERO, None, Event::ReplyDone, &mut out);
        assert_eq!(delivered(&mut out), ["1"]);
        gate.write(Stamp::ZERO, None, synced(), &mut out);
        gate.write(Stamp::ZERO, None, Event::ReplyDone, &mut out);
        gate.write(Stamp::ZERO, None, synced(), &mut out);
        gate.answer_after(Seq(4), RequestId::from_bits(0xb), RequestKind::Drain, Answer::Done, &mut out);
        gate.answer_after(Seq(2), RequestId::from_bits(0xa), RequestKind::Drain, Answer::Done, &mut out);
        assert_eq!(out.iter().filter(|e| matches!(e, Effect::Append { .. })).count(), 3, "appending does not wait");
        assert_eq!(delivered(&mut out), [""; 0]);
        assert_eq!(gate.waiting(), 5);
        assert_eq!(gate.stored(Seq(1), &mut out), Ok(()));
        assert_eq!(delivered(&mut out), [""; 0]);
        assert_eq!(gate.stored(Seq(3), &mut out), Ok(()));
        assert_eq!(delivered(&mut out), ["2", "answer a", "3"]);
        assert_eq!(gate.stored(Seq(4), &mut out), Ok(()));
        assert_eq!(delivered(&mut out), ["4", "answer b"]);
        assert_eq!(gate.stored(Seq(5), &mut out), Err(NeverWritten));
    }

    #[test]
    fn an_answer_to_something_already_stored_goes_out_at_once() {
        let (mut gate, mut out) = (Gate::new(Generation(1), Seq(7)), Vec::new());
        gate.answer_after(Seq(7), RequestId::from_bits(0xc), RequestKind::Drain, Answer::Done, &mut out);
        assert_eq!(delivered(&mut out), ["answer c"]);
        gate.write(Stamp::ZERO, None, Event::ReplyDone, &mut out);
        gate.answer_after(Seq(8), RequestId::from_bits(0xd), RequestKind::Drain, Answer::Done, &mut out);
        assert_eq!(delivered(&mut out), ["8"], "the record needs no store, the answer that rests on it does");
        assert_eq!(gate.stored(Seq(8), &mut out), Ok(()));
        assert_eq!(delivered(&mut out), ["answer d"]);
    }

    #[test]
    fn each_reply_has_its_own_generation() {
        let mut gate = Gate::new(Generation(1), Seq(0));
        assert!(gate.claim());
        assert!(!gate.claim(), "a second reply must raise first");
        assert_eq!(gate.raise(), Generation(1));
        assert_eq!(gate.generation(), Generation(2));
        assert!(gate.claim());
    }
}
