//! The running work of one session: from a task's name to its handle, its stop signal and its results. Nothing is orphaned unseen.
//!
//! * A task is one call of a provider. Its results wait in a queue of its own, which holds the provider back ([`super::results`]); what
//!   each kind of work runs stands in [`super::jobs`].
//! * A stop is a signal; an abort ends the task at its next await. A provider that blocks its thread cannot be ended: it is cut off,
//!   counted, and waited for, bounded, at the end of the session.
//! * Laws: a task's last output is [`Output::Ended`], once, after all its others; a panic is an end like another, and one of a tool
//!   with leave to commit is an end in doubt; a tool gets leave at most once; after [`Tasks::shutdown`] none is alive.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::counters::{Tally, count};
use super::results::{Appetite, Output, Results, What};
use crate::event::Retry;
use crate::id::TaskId;
use crate::provider::{ProviderError, TaskCx};
use crate::time::{Clock as _, RuntimeClock, Stamp};
use crate::turn::Ended;

/// An aborted task that is still there after this blocks its thread.
const LEAVES_WITHIN: Duration = Duration::from_millis(100);

/// The tasks of one session.
pub(super) struct Tasks {
    live: BTreeMap<TaskId, Live>,
    /// Aborted, told as ended, and not yet gone.
    leaving: Vec<Leaving>,
    /// Whose output was read last, so that no task can starve another.
    last: TaskId,
    clock: RuntimeClock,
    tally: Arc<Tally>,
}

struct Leaving {
    handle: JoinHandle<Result<(), ProviderError>>,
    since: Stamp,
    counted: bool,
}

struct Live {
    stop: CancellationToken,
    handle: JoinHandle<Result<(), ProviderError>>,
    results: Results,
    /// Set when the provider has returned; what waits in the queue is still passed on first.
    ended: Option<Ended>,
    aborted: bool,
    what: What,
}

impl Tasks {
    pub(super) fn new(clock: RuntimeClock, tally: Arc<Tally>) -> Self {
        Tasks { live: BTreeMap::new(), leaving: Vec::new(), last: TaskId(0), clock, tally }
    }

    /// A context that ends at `deadline`, and the signal that stops it.
    pub(super) fn context(&self, deadline: Stamp) -> (CancellationToken, TaskCx) {
        let stop = CancellationToken::new();
        let cx = TaskCx::new(Arc::new(self.clock), deadline, stop.clone());
        (stop, cx)
    }

    /// Starts one piece of work, which is stopped by `stop` and speaks through `results`.
    pub(super) fn start(
        &mut self,
        task: TaskId,
        what: What,
        stop: CancellationToken,
        results: Results,
        work: impl Future<Output = Result<(), ProviderError>> + Send + 'static,
    ) {
        let alive = Alive::new(self.tally.clone());
        let span = tracing::info_span!("provider", %task, kind = ?what);
        let handle = tokio::spawn(
            async move {
                let _alive = alive;
                work.await
            }
            .instrument(span),
        );
        let live = Live { stop, handle, results, ended: None, aborted: false, what };
        let before = self.live.insert(task, live);
        debug_assert!(before.is_none(), "the machine names each task once");
    }

    /// Signals a task to stop. Unknown and ended ones are left alone.
    pub(super) fn stop(&mut self, task: TaskId) {
        if let Some(live) = self.live.get(&task) {
            live.stop.cancel();
        }
    }

    /// Ends a task at its next await, and takes nothing more from it.
    pub(super) fn abort(&mut self, task: TaskId) {
        if let Some(live) = self.live.get_mut(&task) {
            live.stop.cancel();
            live.handle.abort();
            live.results.close();
            live.aborted = true;
        }
    }

    /// Answers a tool that asks for leave to commit. A tool that does not wait, or no longer, is not told.
    pub(super) fn leave(&mut self, task: TaskId, granted: bool) {
        if let Some(live) = self.live.get_mut(&task) {
            live.results.leave(granted);
        }
    }

    /// The next output that may be read. Pends for ever while there is none.
    pub(super) async fn next(&mut self, appetite: Appetite) -> (TaskId, Output) {
        std::future::poll_fn(|cx| self.poll_next(cx, appetite)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, appetite: Appetite) -> Poll<(TaskId, Output)> {
        self.see_off(cx);
        if !appetite.any {
            return Poll::Pending;
        }
        let mut next = None;
        let order = || self.live.range(self.last.next()..).chain(self.live.range(..=self.last)).map(|(&task, _)| task);
        for task in order().collect::<Vec<_>>() {
            let Some(live) = self.live.get_mut(&task) else { continue };
            let wanted = match live.what {
                What::Generate => appetite.text,
                What::Synthesize => appetite.audio,
                What::Listen | What::Retrieve | What::Tool | What::Reconcile | What::Compensate => true,
            };
            // An aborted task has nothing more to say; that it is over is always heard.
            if !wanted && !live.aborted {
                continue;
            }
            if let Poll::Ready(output) = live.poll(cx, &self.tally) {
                next = Some((task, output));
                break;
            }
        }
        let Some((task, output)) = next else { return Poll::Pending };
        self.last = task;
        if matches!(output, Output::Ended(_))
            && let Some(live) = self.live.remove(&task)
            && live.ended.is_none()
            && !live.handle.is_finished()
        {
            self.leaving.push(Leaving { handle: live.handle, since: self.clock.now(), counted: false });
        }
        Poll::Ready((task, output))
    }

    /// Forgets the aborted tasks that are gone, and counts those that will not go.
    fn see_off(&mut self, cx: &mut Context<'_>) {
        if self.leaving.is_empty() {
            return;
        }
        let now = self.clock.now();
        self.leaving.retain_mut(|leaving| {
            if Pin::new(&mut leaving.handle).poll(cx).is_ready() {
                return false;
            }
            if !leaving.counted && now.since(leaving.since) >= LEAVES_WITHIN {
                leaving.counted = true;
                count(&self.tally.tasks_orphaned);
            }
            true
        });
    }

    /// Aborts everything and waits until it is gone. A provider that blocks its thread is not waited for here: the caller bounds
    /// this wait.
    pub(super) async fn shutdown(&mut self) {
        for live in self.live.values_mut() {
            live.stop.cancel();
            live.results.close();
            live.handle.abort();
        }
        let since = self.clock.now();
        let live = std::mem::take(&mut self.live);
        // One whose end was already seen must not be polled again.
        let handles = live.into_values().filter(|live| live.ended.is_none()).map(|live| live.handle);
        self.leaving.extend(handles.map(|handle| Leaving { handle, since, counted: false }));
        while let Some(leaving) = self.leaving.last_mut() {
            // How it ended no longer matters to anybody.
            let _ended = (&mut leaving.handle).await;
            self.leaving.pop();
        }
    }

    /// Counts what is left after a bounded [`Tasks::shutdown`] as orphaned.
    pub(super) fn give_up(&mut self) {
        for leaving in self.leaving.drain(..).filter(|leaving| !leaving.counted) {
            tracing::error!("a provider blocks its thread and outlives its session");
            leaving.handle.abort();
            count(&self.tally.tasks_orphaned);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for live in self.live.values() {
            live.stop.cancel();
            live.handle.abort();
        }
    }
}

impl Live {
    fn poll(&mut self, cx: &mut Context<'_>, tally: &Tally) -> Poll<Output> {
        if let Some(ended) = self.ended.filter(|_| self.aborted) {
            return Poll::Ready(Output::Ended(ended));
        }
        if self.aborted {
            // A tool that had really finished keeps its result, abort or not.
            if let Some(result) = self.results.last_word() {
                return Poll::Ready(result);
            }
            // Gone, or cut off: in both cases this is its end for the session.
            let ended = match Pin::new(&mut self.handle).poll(cx) {
                Poll::Ready(Err(failed)) if failed.is_panic() => self.outcome(Err(failed), tally),
                Poll::Ready(_) | Poll::Pending => Ended::Aborted,
            };
            return Poll::Ready(Output::Ended(ended));
        }
        loop {
            if let Poll::Ready(Some(output)) = self.results.poll(cx, tally) {
                return Poll::Ready(output);
            }
            if let Some(ended) = self.ended {
                return Poll::Ready(Output::Ended(ended));
            }
            // The queue may stay open in other hands; that the provider returned is what ends the task.
            match Pin::new(&mut self.handle).poll(cx) {
                Poll::Ready(result) => {
                    self.results.close();
                    self.ended = Some(self.outcome(result, tally));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn outcome(&self, result: Result<Result<(), ProviderError>, JoinError>, tally: &Tally) -> Ended {
        match result {
            Ok(Ok(())) => Ended::Finished,
            Ok(Err(ProviderError::Stopped)) => Ended::Stopped,
            Ok(Err(ProviderError::Unknown { why })) if self.what == What::Tool => {
                tracing::warn!(why, "a tool does not know whether it happened");
                Ended::Unknown
            }
            Ok(Err(error)) => {
                tracing::warn!(kind = ?self.what, %error, "a provider failed");
                Ended::Failed(error.retry())
            }
            Err(failed) if failed.is_panic() => {
                count(&tally.task_panics);
                tracing::error!(kind = ?self.what, "a provider panicked");
                // Whoever had leave to commit and panicked may have committed: nobody may claim that nothing was changed.
                if self.results.has_leave() { Ended::Unknown } else { Ended::Failed(Retry::Never) }
            }
            Err(_) => Ended::Aborted,
        }
    }
}

/// Counts a task as alive until its future is dropped: by return, abort or panic.
pub(super) struct Alive(Arc<Tally>);

impl Alive {
    pub(super) fn new(tally: Arc<Tally>) -> Self {
        count(&tally.tasks_alive);
        Alive(tally)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.tasks_alive.fetch_sub(1, Ordering::Relaxed);
    }
}
