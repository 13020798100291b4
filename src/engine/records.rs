//! Reading a session's records: those to come, those that were missed, and a whole log page by page.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::broadcast;

use super::counters::count;
use super::handle::{Inner, Session};
use crate::event::{Event, Record, Terminal};
use crate::id::{Seq, TurnId};
use crate::store::StoreError;

/// Records read from the store at a time.
const PAGE: usize = 256;

impl Session {
    /// The records from now on. A slow reader never slows the session: one that falls behind reads on from the store.
    pub fn records(&self) -> Records {
        let news = self.news.upgrade().map(|news| news.subscribe());
        let last = self.inner.last_delivered();
        Records { inner: self.inner.clone(), news, last, until: last.next(), backlog: VecDeque::new(), live: None }
    }

    /// The records after `after` (all that are kept for `Seq(0)`), then those to come, without a gap between.
    pub fn records_after(&self, after: Seq) -> Records {
        Records { last: after, ..self.records() }
    }

    /// How a turn ended, as far as the store still tells it.
    pub(super) async fn end_in_store(&self, turn: TurnId) -> Option<Terminal> {
        let mut end = None;
        let read = self.visit(|record| match &record.event {
            Event::TurnEnded { terminal, .. } if record.turn == Some(turn) => {
                end = Some(terminal.clone());
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        // What cannot be read tells of no end.
        let _whole = read.await.ok()?;
        end
    }

    /// Shows every record that is kept to `each`, in order, until it breaks. `true` when the log was whole from its beginning on.
    pub(super) async fn visit(&self, mut each: impl FnMut(&Record) -> ControlFlow<()>) -> Result<bool, StoreError> {
        let (mut after, mut whole) = (Seq(0), true);
        loop {
            let page = match self.inner.store.read(self.inner.id, after, PAGE).await {
                Ok(page) => page,
                Err(StoreError::Expired { first }) => {
                    whole = false;
                    // A store that keeps expiring what it just offered is read no further back than where we are.
                    after = Seq(first.0.saturating_sub(1)).max(after.next());
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(last) = page.last() else { return Ok(whole) };
            after = last.seq;
            if page.iter().any(|record| each(record).is_break()) {
                return Ok(whole);
            }
        }
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
