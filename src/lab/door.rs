//! `lab::door`: a door before a store, which can be shut; behind it records wait, as before a disk that does not answer.
//!
//! Layer 4.

use std::sync::Arc;

use tokio::sync::watch;

use crate::event::Record;
use crate::id::{Seq, SessionId};
use crate::store::{EventStore, Memory, StoreError, Writer};

/// A memory store behind a door.
#[derive(Clone, Debug)]
pub(super) struct StoreDoor {
    behind: Memory,
    open: watch::Receiver<bool>,
    queue: usize,
}

impl StoreDoor {
    /// A store whose queue holds `queue` records, open while `open` says so.
    pub(super) fn new(behind: Memory, open: watch::Receiver<bool>, queue: usize) -> Self {
        StoreDoor { behind, open, queue: queue.max(1) }
    }
}

impl EventStore for StoreDoor {
    fn open(&self, session: SessionId) -> Result<Writer, StoreError> {
        let (writer, mut end) = Writer::new(self.queue);
        let behind = self.behind.open(session)?;
        let mut open = self.open.clone();
        tokio::spawn(async move {
            let mut stored = behind.stored();
            while let Some(record) = end.records.recv().await {
                // Looked at with the record in hand: one that comes while the door is shut does not slip through.
                if open.wait_for(|open| *open).await.is_err() {
                    return;
                }
                let seq = record.seq;
                // One at a time: the queue behind the door is never full.
                if behind.append(record).is_err() || stored.wait_for(|s| *s >= seq).await.is_err() {
                    return;
                }
                end.stored.send_replace(seq);
            }
        });
        Ok(writer)
    }

    async fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<Vec<Arc<Record>>, StoreError> {
        self.behind.read(session, after, limit).await
    }
}
