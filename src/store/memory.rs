//! The store in memory: for engines whose conversations need not outlive the process, and for tests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{EventStore, QUEUE, StoreError, Writer};
use crate::event::Record;
use crate::id::{Seq, SessionId};

/// How much a [`Memory`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Records of one session, at most; the oldest go first. Default 16,384: an hour of lively talk.
    pub records: usize,
    /// Logs of sessions that have ended, at most; the longest ended go first. Default 64.
    pub ended_sessions: usize,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { records: 16_384, ended_sessions: 64 }
    }
}

/// A store in memory. Clones share the same logs.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    retention: Retention,
    logs: Arc<Mutex<Logs>>,
}

#[derive(Debug, Default)]
struct Logs {
    by_session: HashMap<SessionId, Log>,
    ended: VecDeque<SessionId>,
}

#[derive(Debug, Default)]
struct Log {
    records: VecDeque<Arc<Record>>,
    open: bool,
}

impl Memory {
    /// An empty store that keeps this much.
    pub fn new(retention: Retention) -> Self {
        Memory { retention, logs: Arc::default() }
    }

    /// The sessions it has a log of, in no particular order.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.lock().by_session.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps a batch of records and returns the last seq.
    fn keep(&self, session: SessionId, batch: &mut Vec<Arc<Record>>) -> Option<Seq> {
        let mut logs = self.lock();
        let log = logs.by_session.get_mut(&session)?;
        let last = batch.last().map(|record| record.seq);
        log.records.extend(batch.drain(..));
        let over = log.records.len().saturating_sub(self.retention.records);
        log.records.drain(..over);
        last
    }

    fn close(&self, session: SessionId) {
        let mut logs = self.lock();
        if let Some(log) = logs.by_session.get_mut(&session) {
            log.open = false;
            logs.ended.push_back(session);
        }
        while logs.ended.len() > self.retention.ended_sessions {
            let Some(oldest) = logs.ended.pop_front() else { break };
            // A session may have been opened again since it ended.
            if logs.by_session.get(&oldest).is_some_and(|log| !log.open) {
                logs.by_session.remove(&oldest);
            }
        }
    }
}

impl EventStore for Memory {
    fn open(&self, session: SessionId) -> Result<Writer, StoreError> {
        {
            let mut logs = self.lock();
            let log = logs.by_session.entry(session).or_default();
            if log.open {
                return Err(StoreError::AlreadyOpen(session));
            }
            log.open = true;
            logs.ended.retain(|ended| *ended != session);
        }
        let (writer, mut end) = Writer::new(QUEUE);
        let memory = self.clone();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while end.records.recv_many(&mut batch, 64).await > 0 {
                if let Some(last) = memory.keep(session, &mut batch) {
                    end.stored.send_replace(last);
                }
            }
            memory.close(session);
        });
        Ok(writer)
    }

    async fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<Vec<Arc<Record>>, StoreError> {
        let logs = self.lock();
        let log = logs.by_session.get(&session).ok_or(StoreError::NoSuchSession(session))?;
        if let Some(first) = log.records.front().map(|record| record.seq)
            && first > after.next()
        {
            return Err(StoreError::Expired { first });
        }
        let from = log.records.partition_point(|record| record.seq <= after);
        Ok(log.records.iter().skip(from).take(limit).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, VERSION};
    use crate::id::Generation;
    use crate::time::Stamp;

    fn record(seq: u64) -> Arc<Record> {
        let event = Event::SessionEnded;
        Arc::new(Record { v: VERSION, seq: Seq(seq), at: Stamp::ZERO, turn: None, generation: Generation(1), event })
    }

    async fn written(memory: &Memory, session: SessionId, records: u64) -> Writer {
        let writer = memory.open(session).expect("a log");
        let mut stored = writer.stored();
        for seq in 1..=records {
            writer.append(record(seq)).expect("room");
        }
        stored.wait_for(|seq| seq.0 == records).await.expect("the store lives");
        writer
    }

    fn seqs(records: &[Arc<Record>]) -> Vec<u64> {
        records.iter().map(|record| record.seq.0).collect()
    }

    #[tokio::test]
    async fn records_come_back_in_order_after_a_cursor() {
        let (memory, session) = (Memory::default(), SessionId::from_bits(1));
        let _writer = written(&memory, session, 10).await;
        assert_eq!(seqs(&memory.read(session, Seq(0), 100).await.expect("all")), (1..=10).collect::<Vec<_>>());
        assert_eq!(seqs(&memory.read(session, Seq(7), 2).await.expect("two")), [8, 9]);
        assert!(memory.read(session, Seq(10), 9).await.expect("nothing yet").is_empty());
        let nobody = SessionId::from_bits(2);
        assert_eq!(memory.read(nobody, Seq(0), 1).await, Err(StoreError::NoSuchSession(nobody)));
    }

    #[tokio::test]
    async fn a_session_has_one_writer_at_a_time() {
        let (memory, session) = (Memory::default(), SessionId::from_bits(1));
        let writer = written(&memory, session, 1).await;
        assert_eq!(memory.open(session).err(), Some(StoreError::AlreadyOpen(session)));
        drop(writer);
        while memory.open(session).is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_past_its_retention_is_refused_and_not_skipped() {
        let memory = Memory::new(Retention { records: 4, ended_sessions: 1 });
        let session = SessionId::from_bits(1);
        let writer = written(&memory, session, 10).await;
        assert_eq!(memory.read(session, Seq(0), 100).await, Err(StoreError::Expired { first: Seq(7) }));
        assert_eq!(seqs(&memory.read(session, Seq(6), 100).await.expect("the last four")), [7, 8, 9, 10]);
        drop(writer);
        for other in 2..4 {
            drop(written(&memory, SessionId::from_bits(other), 1).await);
        }
        while memory.sessions().len() > 1 {
            tokio::task::yield_now().await;
        }
    }
}
