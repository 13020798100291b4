//! What others hold of a session: the [`Session`] handle. What it reads is in [`super::records`] and [`super::evidence`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::counters::Tally;
use super::intake::Ask;
use super::toolbox::Toolbox;
use crate::event::{CancelCause, Event, Initiator, Outcome, Pii, Record, Terminal};
use crate::id::{CallId, RequestId, Seq, SessionId, TurnId};
use crate::store::AnyStore;
use crate::time::{RuntimeClock, Stamp};
use crate::turn::{
    Answer, ApproveAnswer, CancelAnswer, Command, Handover, Refusal, ResolveAnswer, SayAnswer, Snapshot, SubmitAnswer, SubmitMode,
};

/// Ends remembered per session; older ones are read from the store.
const ENDS: usize = 256;

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
    pub(super) tools: Toolbox,
    pub(super) closed: CancellationToken,
    pub(super) acked: AtomicU64,
    requests: AtomicU64,
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
        tools: Toolbox,
    ) -> Self {
        Inner {
            id,
            clock,
            store,
            stored,
            tally,
            tools,
            closed: CancellationToken::new(),
            acked: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            ends: Mutex::default(),
            ended: watch::Sender::new(0),
        }
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<TurnId, Terminal>> {
        self.ends.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A name for a request that its asker did not name: of the session and a counter, so that the same run has the same names.
    pub(super) fn next_request(&self) -> RequestId {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        RequestId::from_bits(self.id.bits().rotate_left(64) ^ u128::from(n))
    }

    /// The last record that was delivered.
    pub(super) fn last_delivered(&self) -> Seq {
        Seq(self.delivered.load(Ordering::Acquire))
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

    /// Gives the machine a command, and `wanted` of its answer; `None` when the session is over, or ended with the request unread.
    async fn command<T>(&self, command: Command, wanted: impl FnOnce(Answer) -> Option<T>) -> Option<T> {
        self.ask(|reply| Ask::Command { command, reply }).await.and_then(wanted)
    }

    /// Asks, and gives the answer; `None` when the session is over, or ended with the request unread.
    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        // A refused request comes back with its reply channel, and is dropped here.
        self.asks.send(ask(reply)).await.ok()?;
        answer.await.ok()
    }

    /// Typed text: starts a turn, superseding a running one. After the session's end it is refused as draining.
    pub async fn say(&self, text: impl Into<Pii<String>>) -> SayAnswer {
        self.say_as(self.inner.next_request(), text).await
    }

    /// [`Session::say`] under a request id of the caller's: asked twice, it has one effect and gives the same answer.
    pub async fn say_as(&self, request: RequestId, text: impl Into<Pii<String>>) -> SayAnswer {
        let text = text.into();
        let answer = self.command(Command::Say { request, text: text.clone() }, |answer| match answer {
            Answer::Say(answer) => Some(answer),
            _ => None,
        });
        answer.await.unwrap_or(SayAnswer::NotAccepted { refusal: Refusal::Draining, text })
    }

    /// Typed text that may steer the turn being answered instead of replacing it. *Steered* means that it waits for the model, not that
    /// the model has seen it: [`Event::InputConsumed`] tells that, and [`Event::InputReturned`] that it never will. After the
    /// session's end it is refused as draining.
    pub async fn submit(&self, text: impl Into<Pii<String>>, mode: SubmitMode) -> SubmitAnswer {
        self.submit_as(self.inner.next_request(), text, mode).await
    }

    /// [`Session::submit`] under a request id of the caller's, which names the input: sent again, it takes effect once.
    pub async fn submit_as(&self, request: RequestId, text: impl Into<Pii<String>>, mode: SubmitMode) -> SubmitAnswer {
        let text = text.into();
        self.input(text.clone(), Command::Submit { request, text, mode }).await
    }

    /// Speaks this text as it stands, superseding a running turn: a turn that cannot be steered. With `interruptible` false no voice
    /// stops it once it sounds.
    pub async fn announce(&self, text: impl Into<Pii<String>>, interruptible: bool) -> SubmitAnswer {
        let (request, text) = (self.inner.next_request(), text.into());
        self.input(text.clone(), Command::Announce { request, text, interruptible }).await
    }

    /// Hands over: one turn stops, the calls that are named go on, and the next turn starts with that one as its parent.
    /// [`Session::evidence`] shows before what the parent left.
    pub async fn handover(&self, handover: Handover) -> SubmitAnswer {
        let request = self.inner.next_request();
        self.input(handover.next.clone(), Command::Handover { request, handover }).await
    }

    async fn input(&self, text: Pii<String>, command: Command) -> SubmitAnswer {
        let answer = self.command(command, |answer| match answer {
            Answer::Submit(answer) => Some(answer),
            _ => None,
        });
        answer.await.unwrap_or(SubmitAnswer::NotSubmitted { refusal: Refusal::Draining, text })
    }

    /// A person allows a call that waits for it ([`Event::ApprovalAsked`]), or does not. After the session's end nobody waits.
    pub async fn approve(&self, call: CallId, granted: bool) -> ApproveAnswer {
        let request = self.inner.next_request();
        let answer = self.command(Command::Approve { request, call, granted }, |answer| match answer {
            Answer::Approve(answer) => Some(answer),
            _ => None,
        });
        answer.await.unwrap_or(ApproveAnswer::NotAsked)
    }

    /// A person found out what became of a call that is open. After the session's end no record can tell it any more: `NotOpen`, and
    /// [`super::Engine::unreconciled`] goes on listing it.
    pub async fn resolve(&self, call: CallId, outcome: Outcome) -> ResolveAnswer {
        let request = self.inner.next_request();
        let answer = self.command(Command::Resolve { request, call, outcome }, |answer| match answer {
            Answer::Resolve(answer) => Some(answer),
            _ => None,
        });
        answer.await.unwrap_or(ResolveAnswer::NotOpen)
    }

    /// Asks a turn to stop, as the application. Idempotent by `request`. *Accepted* means that stopping has begun;
    /// [`Session::ended`] tells when it has stopped. After the session's end the answer is what became of the turn.
    pub async fn cancel(&self, turn: TurnId, request: RequestId, cause: CancelCause) -> CancelAnswer {
        self.stop(turn, request, cause, None).await
    }

    /// [`Session::cancel`] that must be over at `deadline` (session time), if that is sooner than the grace.
    pub async fn cancel_by(&self, turn: TurnId, request: RequestId, cause: CancelCause, deadline: Stamp) -> CancelAnswer {
        self.stop(turn, request, cause, Some(deadline)).await
    }

    async fn stop(&self, turn: TurnId, request: RequestId, cause: CancelCause, deadline: Option<Stamp>) -> CancelAnswer {
        let initiator = Initiator::Application;
        let cancel = Command::Cancel { request, turn, cause, initiator, deadline };
        let answer = self.command(cancel, |answer| match answer {
            Answer::Cancel(answer) => Some(answer),
            _ => None,
        });
        match answer.await {
            Some(answer) => answer,
            None => match self.ended(turn).await {
                Some(terminal) => CancelAnswer::AlreadyTerminal(terminal),
                None => CancelAnswer::NoSuchTurn,
            },
        }
    }

    /// Presses or releases the push-to-talk key. Without effect after the session's end.
    pub async fn push_to_talk(&self, down: bool) {
        let request = self.inner.next_request();
        // Nothing comes back when the session ended meanwhile.
        let _ended = self.command(Command::PushToTalk { request, down }, Some).await.is_none();
    }

    /// The authoritative state, or `None` after the session's end.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        self.ask(|reply| Ask::Snapshot { reply }).await
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
