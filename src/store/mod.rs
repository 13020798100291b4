//! `store`: remembers. Append, replay.
//!
//! * Layer 2. Imports layer 0 and tokio. Never `turn`: it keeps words, it does not judge them.
//! * A session has one [`Writer`]. Writing never waits: a full queue hands the record back, and the engine parks it.
//! * Laws: records come back in the order of their seq, without holes and without doubles; what [`Writer::stored`] names is kept.
//! * Proved by the tests of [`memory`] and of this file.
//!
//! The shape is that of a store thread: each session has a bounded queue to whoever writes, and learns by a watch how far the
//! writing has come. A store that syncs to disk in groups has the same two halves as the one in memory.

pub mod memory;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::event::{Record, Retry};
use crate::id::{Seq, SessionId};

pub use memory::{Memory, Retention};

/// Records that wait for the store, per session, at most.
pub const QUEUE: usize = 1_024;

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It has no log of this session (any more).
    #[error("no log of session {0}")]
    NoSuchSession(SessionId),
    /// The records asked for are past their retention; `first` is the oldest still there.
    #[error("records before {first} are no longer kept")]
    Expired {
        /// The oldest record still there.
        first: Seq,
    },
    /// The session has a writer, and there is one at a time.
    #[error("session {0} already has its writer")]
    AlreadyOpen(SessionId),
    /// The store itself failed.
    #[error("the store failed: {why}")]
    Broken {
        /// What happened.
        why: String,
        /// What may be done about it.
        retry: Retry,
    },
}

impl StoreError {
    /// Whether the same request may be made again.
    pub const fn retry(&self) -> Retry {
        match self {
            StoreError::NoSuchSession(_) | StoreError::Expired { .. } => Retry::Never,
            StoreError::AlreadyOpen(_) => Retry::Later,
            StoreError::Broken { retry, .. } => *retry,
        }
    }
}

/// A keeper of logs, one log a session. Open for implementers.
///
/// 1. `open` is called once a session and gives the writer; dropping the writer closes the log.
/// 2. Records arrive in the order of their seq, are kept in it, and each progress is told through [`WriterEnd::stored`].
/// 3. `read` may be called at any time, also for a closed log, until the store's own retention ends it.
pub trait EventStore: Send + Sync + 'static {
    /// Opens the log of a session for its one writer. Called inside the runtime; must not wait.
    fn open(&self, session: SessionId) -> Result<Writer, StoreError>;

    /// The kept records of a session after `after` (all for `Seq(0)`), in order, `limit` at most. Fewer, or none, when there are no
    /// more yet.
    fn read(
        &self,
        session: SessionId,
        after: Seq,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Record>>, StoreError>> + Send;
}

/// Why a record was not taken; it is handed back.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The queue is full: wait for [`Writer::room`].
    #[error("the store's queue is full")]
    Full(Arc<Record>),
    /// The store is gone and will not come back.
    #[error("the store is gone")]
    Gone(Arc<Record>),
}

/// The writing end of one session's log.
#[derive(Debug)]
pub struct Writer {
    to: mpsc::Sender<Arc<Record>>,
    stored: watch::Receiver<Seq>,
}

/// The store's end of one session's log.
#[derive(Debug)]
pub struct WriterEnd {
    /// What to write, in order. Ends when the session has closed its log.
    pub records: mpsc::Receiver<Arc<Record>>,
    /// To tell how far the writing has come: this record and all before it are kept.
    pub stored: watch::Sender<Seq>,
}

impl Writer {
    /// A writer and its other end, with room for `bound` records between them.
    pub fn new(bound: usize) -> (Writer, WriterEnd) {
        let (to, records) = mpsc::channel(bound);
        let (tell, stored) = watch::channel(Seq(0));
        (Writer { to, stored }, WriterEnd { records, stored: tell })
    }

    /// Hands a record over, without waiting.
    pub fn append(&self, record: Arc<Record>) -> Result<(), AppendError> {
        self.to.try_send(record).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(record) => AppendError::Full(record),
            mpsc::error::TrySendError::Closed(record) => AppendError::Gone(record),
        })
    }

    /// Resolves when there may be room again, or when the store is gone.
    pub async fn room(&self) {
        // A permit given back at once; the writer is the only sender, so the room stays.
        drop(self.to.reserve().await);
    }

    /// The queue itself, for one who waits for room without borrowing the writer. Keeping it keeps the log open.
    pub(crate) fn queue(&self) -> mpsc::Sender<Arc<Record>> {
        self.to.clone()
    }

    /// How far the writing has come. The watch closes when the store is gone.
    pub fn stored(&self) -> watch::Receiver<Seq> {
        self.stored.clone()
    }
}

type Read<'a> = Pin<Box<dyn Future<Output = Result<Vec<Arc<Record>>, StoreError>> + Send + 'a>>;

trait DynStore: Send + Sync + 'static {
    fn open(&self, session: SessionId) -> Result<Writer, StoreError>;
    fn read(&self, session: SessionId, after: Seq, limit: usize) -> Read<'_>;
}

impl<S: EventStore> DynStore for S {
    fn open(&self, session: SessionId) -> Result<Writer, StoreError> {
        EventStore::open(self, session)
    }
    fn read(&self, session: SessionId, after: Seq, limit: usize) -> Read<'_> {
        Box::pin(EventStore::read(self, session, after, limit))
    }
}

/// Any [`EventStore`], as the engine keeps it.
#[derive(Clone)]
pub struct AnyStore(Arc<dyn DynStore>);

impl AnyStore {
    /// Wraps a store.
    pub fn new(store: impl EventStore) -> Self {
        AnyStore(Arc::new(store))
    }

    /// Opens a log; see [`EventStore::open`].
    pub fn open(&self, session: SessionId) -> Result<Writer, StoreError> {
        self.0.open(session)
    }

    /// Reads a log; see [`EventStore::read`].
    pub async fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<Vec<Arc<Record>>, StoreError> {
        self.0.read(session, after, limit).await
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

    #[tokio::test]
    async fn a_full_queue_hands_the_record_back() {
        let (writer, mut end) = Writer::new(1);
        writer.append(record(1)).expect("room for one");
        let Err(AppendError::Full(back)) = writer.append(record(2)) else { panic!("the second must come back") };
        assert_eq!(back.seq, Seq(2));
        let taken = end.records.recv().await.expect("the first");
        assert_eq!(taken.seq, Seq(1));
        writer.room().await;
        writer.append(back).expect("room again");
    }

    #[tokio::test]
    async fn a_store_that_is_gone_says_so() {
        let (writer, end) = Writer::new(4);
        drop(end);
        assert!(matches!(writer.append(record(1)), Err(AppendError::Gone(_))));
        writer.room().await;
        assert!(writer.stored().changed().await.is_err(), "the watch is closed");
    }
}
