//! The store of the world: it writes in batches, stalls, is full, and dies in the middle of a write.

use std::collections::VecDeque;
use std::sync::Arc;

use super::World;
use crate::event::Record;
use crate::lab::check::Fact;
use crate::lab::sim::marks::Mark;
use crate::lab::sim::queue::Happening;
use crate::turn::Input;

/// The store: what it has, what it is writing, what waits.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) log: Vec<Arc<Record>>,
    pub(super) waiting: VecDeque<Arc<Record>>,
    pub(super) writing: usize,
}

impl World {
    /// Begins a write if there is something to write and nothing is being written.
    pub(super) fn write(&mut self) {
        if self.keeper.writing > 0 || self.keeper.waiting.is_empty() {
            return;
        }
        self.keeper.writing = self.keeper.waiting.len().min(self.shape.batch);
        let at = if self.rng.chance(self.shape.faults.store_stalls) {
            self.marks.hit(Mark::store_stalled);
            self.in_a((200, 6_000))
        } else {
            self.in_a(self.shape.store)
        };
        self.queue.put(at, Happening::Stored);
    }

    /// The store has one record more.
    pub(super) fn keep(&mut self) {
        let Some(record) = self.keeper.waiting.pop_front() else { return };
        // Writing into a number never fails.
        let _never = serde_json::to_writer(&mut self.trace, &*record);
        self.checks.see(Fact::Record(&record));
        self.keeper.log.push(record);
    }

    pub(super) fn stored(&mut self) {
        for _ in 0..std::mem::take(&mut self.keeper.writing) {
            self.keep();
        }
        let seq = self.keeper.log.last().map(|record| record.seq);
        if let Some(seq) = seq {
            if self.now < self.stands_until {
                self.queue.put(self.stands_until, Happening::Fact(Input::Appended { seq }));
            } else {
                self.step(Input::Appended { seq });
            }
        }
        self.write();
    }
}
