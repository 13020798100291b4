//! The virtual event queue: what will happen, by time; of what happens at once, in an order drawn from the seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::rng::Rng;
use crate::id::TaskId;
use crate::time::Stamp;
use crate::turn::{Command, Input, Playout};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// A task goes on; void when its token is no longer that one.
    Wake { task: TaskId, token: u64 },
    /// The store has written what it was writing.
    Stored,
    /// What was sent under leave arrives outside.
    Arrives { entry: usize },
    /// A person does something.
    Person,
    /// One more block of a person's voice.
    Voice { voice: u64 },
    /// A report about what was heard reaches the session.
    Playout(Playout),
    /// A command reaches the session.
    Command(Command),
    /// Another fact reaches the session.
    Fact(Input),
    /// The driver stands still for a while.
    Stall,
    /// The process dies.
    Dies,
    /// The process begins anew.
    Begins,
    /// No new turns.
    Drains,
    /// The session is closed.
    Closes,
}

impl Happening {
    /// Whether it is an input of the session's driver, which waits while the driver stands still or is dead.
    pub(super) fn is_for_the_driver(&self) -> bool {
        match self {
            Happening::Wake { .. }
            | Happening::Playout(_)
            | Happening::Command(_)
            | Happening::Fact(_)
            | Happening::Voice { .. }
            | Happening::Person
            | Happening::Drains
            | Happening::Closes => true,
            Happening::Stored | Happening::Arrives { .. } | Happening::Stall | Happening::Dies | Happening::Begins => false,
        }
    }

    /// Whether a process takes it with it when it dies.
    pub(super) fn dies_with_the_process(&self) -> bool {
        matches!(self, Happening::Wake { .. } | Happening::Stored | Happening::Playout(_) | Happening::Fact(_))
    }
}

#[derive(Debug)]
struct Entry {
    at: Stamp,
    tie: u64,
    nth: u64,
    epoch: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Entry {
    fn key(&self) -> (Stamp, u64, u64) {
        (self.at, self.tie, self.nth)
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    nth: u64,
    ties: Rng,
    /// Rises when the process dies: what it had planned is void.
    epoch: u64,
}

impl Queue {
    pub(super) fn new(ties: Rng) -> Self {
        Queue { heap: BinaryHeap::new(), nth: 0, ties, epoch: 0 }
    }

    pub(super) fn put(&mut self, at: Stamp, what: Happening) {
        self.nth += 1;
        let tie = self.ties.next();
        self.heap.push(Reverse(Entry { at, tie, nth: self.nth, epoch: self.epoch, what }));
    }

    /// The process died.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
    }

    pub(super) fn next_at(&mut self) -> Option<Stamp> {
        while let Some(Reverse(first)) = self.heap.peek() {
            if first.epoch == self.epoch || !first.what.dies_with_the_process() {
                return Some(first.at);
            }
            self.heap.pop();
        }
        None
    }

    pub(super) fn pop(&mut self) -> Option<Happening> {
        self.next_at()?;
        self.heap.pop().map(|Reverse(entry)| entry.what)
    }

    /// Whether one of two things that happen at once comes first.
    pub(super) fn heads(&mut self) -> bool {
        self.ties.next() & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_decides_and_then_the_seed() {
        let order = |seed| {
            let mut queue = Queue::new(Rng::new(seed));
            for n in 0..8 {
                queue.put(Stamp::from_millis(5), Happening::Voice { voice: n });
            }
            queue.put(Stamp::from_millis(1), Happening::Stall);
            let mut out = Vec::new();
            while let Some(what) = queue.pop() {
                if let Happening::Voice { voice } = what {
                    out.push(voice);
                } else {
                    assert!(out.is_empty(), "the earlier comes first");
                }
            }
            out
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2), "another seed, another order");
    }

    #[test]
    fn what_a_dead_process_planned_is_void() {
        let mut queue = Queue::new(Rng::new(1));
        queue.put(Stamp::ZERO, Happening::Stored);
        queue.put(Stamp::ZERO, Happening::Person);
        queue.forget();
        assert!(matches!(queue.pop(), Some(Happening::Person)));
        assert!(queue.pop().is_none());
    }
}
