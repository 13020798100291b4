//! What others hold of a session: the [`Session`] handle and the [`Records`] reader.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::counters::{Tally, count};
use super::intake::Ask;
use crate::event::{CancelCause, Event, Initiator, Pii, Record, Terminal};
use crate::id::{RequestId, Seq, SessionId, TurnId};
use crate::store::{AnyStore, StoreError};
use crate::time::RuntimeClock;
use crate::turn::{CancelAnswer, Refusal, SayAnswer, Snapshot};

/// Ends remembered per session; older ones are read from the store.
const ENDS: usize = 256;
/// Records read from the store at a time.
const PAGE: usize = 256;

/// A conversation, as its application holds it. Small and cloneable; dropping it ends nothing: a session ends by
/// [`Session::close`], by a drain, or when its link is gone and its policy has run.
#[derive(Clone)]
pub struct Session {
    pub(super) inner: Arc<Inner>,
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) news: broadcast::WeakSender<Arc<Record>>,
}

/// What the driver and the handles share.
pub(super) struct Inner {
    pub(super) id: SessionId,
    pub(super) clock: RuntimeClock,
    pub(super) store: AnyStore,
    pub(super) stored: watch::Receiver<Seq>,
    pub(super) tally: Arc<Tally>,
    pub(super) closed: CancellationToken,
    pub(super) acked: AtomicU64,
    delivered: AtomicU64,
    ends: Mutex<BTreeMap<TurnId, Terminal>>,
    ended: watch::Sender<u64>,
}

impl Inner {
    pub(super) fn new(
        id: SessionId,
        clock: RuntimeClock,
        store: AnyStore,
        stored: watch::Receiver<Seq>,
        tally: Arc<Tally>,
    ) -> Self {
        Inner {
            id,
            clock,
            store,
            stored,
            tally,
            closed: CancellationToken::new(),
            acked: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            ends: Mutex::default(),
            ended: watch::Sender::new(0),
        }
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<TurnId, Terminal>> {
        self.ends.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The driver delivers a record: ends are remembered for those who ask for them.
    pub(super) fn delivered(&self, record: &Record) {
        self.delivered.store(record.seq.0, Ordering::Release);
        if let (Event::TurnEnded { terminal, .. }, Some(turn)) = (&record.event, record.turn) {
            {
                let mut ends = self.ends();
                ends.insert(turn, terminal.clone());
                if ends.len() > ENDS {
                    ends.pop_first();
                }
            }
            self.ended.send_modify(|n| *n += 1);
        }
    }
}

impl Session {
    /// Its id.
    pub fn id(&self) -> SessionId {
        self.inner.id
    }

    /// Typed text: starts a turn, superseding a running one. After the session's end it is refused as draining.
    pub async fn say(&self, text: impl Into<Pii<String>>) -> SayAnswer {
        self.say_as(RequestId::new(), text).await
    }

    /// [`Session::say`] under a request id of the caller's: asked twice, it has one effect and gives the same answer.
    pub async fn say_as(&self, request: RequestId, text: impl Into<Pii<String>>) -> SayAnswer {
        let text = text.into();
        let (reply, answer) = oneshot::channel();
        // A refused request comes back with its reply channel, and is dropped here: then the answer fails too.
        let _ended = self.asks.send(Ask::Say { request, text: text.clone(), reply }).await.is_err();
        answer.await.unwrap_or(SayAnswer::NotAccepted { refusal: Refusal::Draining, text })
    }

    /// Asks a turn to stop, as the application. Idempotent by `request`. *Accepted* means that stopping has begun;
    /// [`Session::ended`] tells when it has stopped. After the session's end the answer is what became of the turn.
    pub async fn cancel(&self, turn: TurnId, request: RequestId, cause: CancelCause) -> CancelAnswer {
        let (reply, answer) = oneshot::channel();
        let initiator = Initiator::Application;
        let _ended = self.asks.send(Ask::Cancel { request, turn, cause, initiator, reply }).await.is_err();
        match answer.await {
            Ok(answer) => answer,
            // The session is over, or ended with the request unread.
            Err(_) => match self.ended(turn).await {
                Some(terminal) => CancelAnswer::AlreadyTerminal(terminal),
                None => CancelAnswer::NoSuchTurn,
            },
        }
    }

    /// Presses or releases the push-to-talk key. Without effect after the session's end.
    pub async fn push_to_talk(&self, down: bool) {
        let (reply, known) = oneshot::channel();
        if self.asks.send(Ask::PushToTalk { down, reply }).await.is_ok() {
            // An error means that the session ended meanwhile.
            let _ended = known.await.is_err();
        }
    }

    /// The records from now on. A slow reader never slows the session: one that falls behind reads on from the store.
    pub fn records(&self) -> Records {
        let news = self.news.upgrade().map(|news| news.subscribe());
        let last = Seq(self.inner.delivered.load(Ordering::Acquire));
        Records { inner: self.inner.clone(), news, last, until: last.next(), backlog: VecDeque::new(), live: None }
    }

    /// The records after `after` (all that are kept for `Seq(0)`), then those to come, without a gap between.
    pub fn records_after(&self, after: Seq) -> Records {
        Records { last: after, ..self.records() }
    }

    /// The authoritative state, or `None` after the session's end.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        let (reply, snapshot) = oneshot::channel();
        self.asks.send(Ask::Snapshot { reply }).await.ok()?;
        snapshot.await.ok()
    }

    /// Resolves with the one end of a turn. `None` when the session ended and no such turn ever did.
    pub async fn ended(&self, turn: TurnId) -> Option<Terminal> {
        let mut changes = self.inner.ended.subscribe();
        loop {
            changes.mark_unchanged();
            let oldest = {
                let ends = self.inner.ends();
                if let Some(terminal) = ends.get(&turn) {
                    return Some(terminal.clone());
                }
                ends.keys().next().copied()
            };
            if oldest.is_some_and(|oldest| turn < oldest)
                && let Some(terminal) = self.end_in_store(turn).await
            {
                return Some(terminal);
            }
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = self.inner.closed.cancelled() => return self.inner.ends().get(&turn).cloned(),
            }
        }
    }

    async fn end_in_store(&self, turn: TurnId) -> Option<Terminal> {
        let mut after = Seq(0);
        loop {
            let page = self.inner.store.read(self.inner.id, after, PAGE).await.ok()?;
            after = page.last()?.seq;
            let end = page.iter().filter(|record| record.turn == Some(turn)).find_map(|record| match &record.event {
                Event::TurnEnded { terminal, .. } => Some(terminal.clone()),
                _ => None,
            });
            if end.is_some() {
                return end;
            }
        }
    }

    /// The last seq the client has acknowledged.
    pub fn acked(&self) -> Seq {
        Seq(self.inner.acked.load(Ordering::Acquire))
    }

    /// Ends the session: what runs is cancelled for `cause`. Returns when everything has stopped.
    pub async fn close(&self, cause: CancelCause) {
        // An error means that it is ending already.
        let _ending = self.asks.send(Ask::Close { cause }).await.is_err();
        self.closed().await;
    }

    /// Resolves when the session is over and nothing of it is left running.
    pub async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.inner.id).field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Reads a session's records in order, each once. Ends with the session.
pub struct Records {
    inner: Arc<Inner>,
    news: Option<broadcast::Receiver<Arc<Record>>>,
    /// Read so far.
    last: Seq,
    /// Everything after `last` and before this was missed, and is in the store.
    until: Seq,
    backlog: VecDeque<Arc<Record>>,
    /// The newest one, while what was missed before it is being read.
    live: Option<Arc<Record>>,
}

impl Records {
    /// The next record, or `None` when the session is over and all have been read.
    pub async fn next(&mut self) -> Option<Arc<Record>> {
        loop {
            if let Some(record) = self.backlog.pop_front() {
                self.last = record.seq;
                return Some(record);
            }
            if self.last.next() < self.until {
                self.fill().await;
                continue;
            }
            if let Some(record) = self.live.take() {
                self.last = record.seq;
                return Some(record);
            }
            match self.news.as_mut()?.recv().await {
                Ok(record) if record.seq <= self.last => {}
                Ok(record) => {
                    self.until = record.seq;
                    self.live = Some(record);
                }
                Err(broadcast::error::RecvError::Lagged(_)) => count(&self.inner.tally.reader_lagged),
                Err(broadcast::error::RecvError::Closed) => self.news = None,
            }
        }
    }

    /// Reads a page of what was missed. Records that were delivered and are not yet written are waited for; what the store will
    /// never have is passed over.
    async fn fill(&mut self) {
        let mut stored = self.inner.stored.clone();
        let have = *stored.borrow_and_update();
        let never = Seq(self.until.0 - 1);
        match self.inner.store.read(self.inner.id, self.last, PAGE).await {
            Ok(page) if page.is_empty() => {
                if have > self.last || stored.changed().await.is_err() {
                    self.last = never;
                }
            }
            Ok(page) => {
                self.backlog.extend(page.into_iter().take_while(|record| record.seq < self.until));
                if self.backlog.is_empty() {
                    self.last = never;
                }
            }
            Err(StoreError::Expired { first }) => {
                tracing::warn!(%first, "a reader fell behind what the store keeps");
                self.last = Seq(first.0.saturating_sub(1)).min(never);
            }
            Err(error) => {
                tracing::warn!(%error, "a reader that fell behind cannot read on");
                self.last = never;
            }
        }
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("session", &self.inner.id).field("last", &self.last).finish_non_exhaustive()
    }
}
