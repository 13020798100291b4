//! The running work of one session: from a task's name to its handle, its stop signal and its results. Nothing is orphaned unseen.
//!
//! * A task is one call of a provider. Its results wait in a queue of its own (32), which holds the provider back.
//! * A stop is a signal; an abort ends the task at its next await. A provider that blocks its thread cannot be ended: it is cut off,
//!   counted, and waited for, bounded, at the end of the session.
//! * Laws: a task's last output is [`Output::Ended`], once, after all its others; a panic is an end like another; after
//!   [`Tasks::shutdown`] none is alive.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::counters::{Tally, count};
use super::ear::EarFeed;
use crate::event::{Pii, Retry};
use crate::id::TaskId;
use crate::provider::{AnyLlm, AnyStt, AnyTts, AudioStream, Chunk, ProviderError, Sink, TaskCx, Transcript, Turn, Words};
use crate::time::{Clock as _, RuntimeClock, Stamp};
use crate::turn::Ended;

/// Results that wait for the session, per task, at most.
const RESULTS: usize = 32;
/// An aborted task that is still there after this blocks its thread.
const LEAVES_WITHIN: Duration = Duration::from_millis(100);

/// What came out of a task.
#[derive(Debug)]
pub(super) enum Output {
    Transcript(Transcript),
    Text(Pii<String>),
    Audio(Chunk),
    Ended(Ended),
}

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
    /// A listening task's microphone; the providers of the others are fed elsewhere.
    what: What,
}

enum Results {
    Listen(mpsc::Receiver<Transcript>),
    Generate(mpsc::Receiver<Pii<String>>),
    Synthesize(mpsc::Receiver<Chunk>),
}

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Listen,
    Generate,
    Synthesize,
}

/// Whose results may be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appetite {
    /// False while the store has no room: then nothing is read.
    pub(super) any: bool,
    /// False while text waits for a synthesizer.
    pub(super) text: bool,
    /// False while audio waits for the playback ring.
    pub(super) audio: bool,
}

impl Tasks {
    pub(super) fn new(clock: RuntimeClock, tally: Arc<Tally>) -> Self {
        Tasks { live: BTreeMap::new(), leaving: Vec::new(), last: TaskId(0), clock, tally }
    }

    pub(super) fn listen(&mut self, task: TaskId, deadline: Stamp, stt: AnyStt, feed: EarFeed) {
        let (out, results) = Sink::new(RESULTS);
        self.start(task, deadline, What::Listen, Results::Listen(results), |cx| async move {
            let (mic, audio) = AudioStream::new(1);
            let listening = stt.listen(audio, out, cx);
            tokio::pin!(listening);
            tokio::select! {
                biased;
                done = &mut listening => return done,
                () = feed.run(mic) => {}
            }
            listening.await
        });
    }

    pub(super) fn generate(&mut self, task: TaskId, deadline: Stamp, llm: AnyLlm, conversation: Vec<Turn>) {
        let (out, results) = Sink::new(RESULTS);
        let work = |cx| async move { llm.reply(conversation, out, cx).await };
        self.start(task, deadline, What::Generate, Results::Generate(results), work);
    }

    pub(super) fn synthesize(&mut self, task: TaskId, deadline: Stamp, tts: AnyTts, words: Words) {
        let (out, results) = Sink::new(RESULTS);
        let work = |cx| async move { tts.speak(words, out, cx).await };
        self.start(task, deadline, What::Synthesize, Results::Synthesize(results), work);
    }

    fn start<F, W>(&mut self, task: TaskId, deadline: Stamp, what: What, results: Results, work: F)
    where
        F: FnOnce(TaskCx) -> W,
        W: Future<Output = Result<(), ProviderError>> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let work = work(TaskCx::new(Arc::new(self.clock), deadline, stop.clone()));
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
                What::Listen => true,
                What::Generate => appetite.text,
                What::Synthesize => appetite.audio,
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
            // Gone, or cut off: in both cases this is its end for the session.
            let ended = match Pin::new(&mut self.handle).poll(cx) {
                Poll::Ready(Err(failed)) if failed.is_panic() => self.outcome(Err(failed), tally),
                Poll::Ready(_) | Poll::Pending => Ended::Aborted,
            };
            return Poll::Ready(Output::Ended(ended));
        }
        loop {
            if let Poll::Ready(Some(output)) = self.results.poll(cx) {
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
            Ok(Err(error)) => {
                tracing::warn!(kind = ?self.what, %error, "a provider failed");
                Ended::Failed(error.retry())
            }
            Err(failed) if failed.is_panic() => {
                count(&tally.task_panics);
                tracing::error!(kind = ?self.what, "a provider panicked");
                Ended::Failed(Retry::Never)
            }
            Err(_) => Ended::Aborted,
        }
    }
}

impl Results {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Output>> {
        match self {
            Results::Listen(from) => from.poll_recv(cx).map(|item| item.map(Output::Transcript)),
            Results::Generate(from) => from.poll_recv(cx).map(|item| item.map(Output::Text)),
            Results::Synthesize(from) => from.poll_recv(cx).map(|item| item.map(Output::Audio)),
        }
    }

    fn close(&mut self) {
        match self {
            Results::Listen(from) => from.close(),
            Results::Generate(from) => from.close(),
            Results::Synthesize(from) => from.close(),
        }
    }
}

/// Counts a task as alive until its future is dropped: by return, abort or panic.
struct Alive(Arc<Tally>);

impl Alive {
    fn new(tally: Arc<Tally>) -> Self {
        count(&tally.tasks_alive);
        Alive(tally)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.tasks_alive.fetch_sub(1, Ordering::Relaxed);
    }
}
