//! One run of a provider under watch: what it sent and when, how it ended, and what came after. Layer 2, private to the suite.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Failure, Part, Terms};
use crate::provider::{ProviderError, Sink, TaskCx};
use crate::time::{Clock, RuntimeClock, Stamp};

/// More items than this are no answer but a flood; the run counts as one that does not end.
const MOST: usize = 200_000;

/// When a run is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    Never,
    /// The stop comes before the first output.
    AtOnce,
    /// The stop comes with the first output; what follows is still taken.
    AfterFirst,
    /// The stop comes when nothing more is taken and the sink is full.
    WhenFull,
    /// The receiver goes after the first output.
    HangUp,
    /// The receiver is gone from the start.
    HangUpAtOnce,
}

/// How it ended.
enum Ended {
    Returned(Result<(), ProviderError>),
    Panicked,
    /// It had to be aborted.
    Not,
}

/// A run that is over.
pub(super) struct Run<T> {
    /// What it sent, and how long after the start.
    pub(super) items: Vec<(Duration, T)>,
    ended: Ended,
    late: bool,
    held: bool,
}

/// Runs `start` and disturbs it as `interrupt` says.
pub(super) async fn run<T, F>(terms: &Terms, interrupt: Interrupt, start: impl FnOnce(Sink<T>, TaskCx) -> F) -> Run<T>
where
    F: Future<Output = Result<(), ProviderError>> + Send + 'static,
{
    let clock = RuntimeClock::start();
    let stop = CancellationToken::new();
    let (out, mut from) = Sink::new(if interrupt == Interrupt::WhenFull { 1 } else { 32 });
    let deadline = Stamp::ZERO + terms.whole;
    let mut task = tokio::spawn(start(out, TaskCx::new(Arc::new(clock), deadline, stop.clone())));
    let mut run = Run { items: Vec::new(), ended: Ended::Not, late: false, held: false };
    // A moment in which it comes to where it waits.
    const SETTLE: Duration = Duration::from_millis(30);
    let mut limit = terms.whole;
    match interrupt {
        Interrupt::Never => {}
        Interrupt::AtOnce => {
            within(SETTLE, &mut task, &mut run).await;
            stop.cancel();
            limit = terms.grace;
        }
        Interrupt::HangUpAtOnce => {
            from.close();
            // It notices when it has something to say, which may be after some work.
            limit = terms.first;
        }
        Interrupt::AfterFirst | Interrupt::WhenFull | Interrupt::HangUp => {
            if let Ok(Some(item)) = timeout(terms.first, from.recv()).await {
                run.items.push((clock.now().since(Stamp::ZERO), item));
            }
            if interrupt == Interrupt::WhenFull {
                within(SETTLE, &mut task, &mut run).await;
            }
            if interrupt == Interrupt::HangUp {
                from.close();
            } else {
                stop.cancel();
            }
            limit = terms.grace;
        }
    }
    let taking = !matches!(interrupt, Interrupt::WhenFull);
    if matches!(run.ended, Ended::Not) {
        let watched = timeout(limit, async {
            loop {
                tokio::select! {
                    biased;
                    item = from.recv(), if taking && !from.is_closed() => {
                        if let Some(item) = item {
                            run.items.push((clock.now().since(Stamp::ZERO), item));
                            if run.items.len() == MOST {
                                return None;
                            }
                        }
                    }
                    end = &mut task => return Some(end),
                }
            }
        })
        .await;
        run.ended = match watched {
            Ok(Some(Ok(result))) => Ended::Returned(result),
            Ok(Some(Err(_))) => Ended::Panicked,
            Ok(None) | Err(_) => {
                task.abort();
                return run;
            }
        };
    }
    run.look_back(terms, &clock, from).await;
    run
}

/// Lets the task run for `time`, and notes if it ends in it.
async fn within<T>(time: Duration, task: &mut tokio::task::JoinHandle<Result<(), ProviderError>>, run: &mut Run<T>) {
    match timeout(time, task).await {
        Ok(Ok(result)) => run.ended = Ended::Returned(result),
        Ok(Err(_)) => run.ended = Ended::Panicked,
        Err(_) => {}
    }
}

#[allow(clippy::disallowed_methods, reason = "the suite finds providers that hang; it is no part of a running engine")]
async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::time::timeout(limit, work).await
}

impl<T> Run<T> {
    /// After the end: what is in the channel was sent before it; what comes now was not.
    async fn look_back(&mut self, terms: &Terms, clock: &RuntimeClock, mut from: mpsc::Receiver<T>) {
        if from.is_closed() && from.is_empty() {
            return;
        }
        while let Ok(item) = from.try_recv() {
            self.items.push((clock.now().since(Stamp::ZERO), item));
        }
        match timeout(terms.grace, from.recv()).await {
            Ok(None) => {}
            Ok(Some(_)) => self.late = true,
            Err(_) => self.held = true,
        }
    }

    /// How long the first output took.
    pub(super) fn first(&self) -> Option<Duration> {
        self.items.first().map(|i| i.0)
    }

    /// Judges a run that nobody disturbed; whether it is worth to look at what came.
    pub(super) fn completed(&self, part: Part, terms: &Terms, output: bool, failures: &mut Vec<Failure>) -> bool {
        let before = failures.len();
        match &self.ended {
            Ended::Returned(Ok(())) => {}
            Ended::Returned(Err(e)) => failures.push(Failure::Failed(part, e.to_string())),
            Ended::Panicked => failures.push(Failure::Panicked(part)),
            Ended::Not => failures.push(Failure::NeverEnded(part, terms.whole)),
        }
        let whole = failures.len() == before;
        if output && whole && self.first().is_none_or(|first| first > terms.first) {
            failures.push(Failure::FirstLate(part, terms.first));
        }
        self.afterwards(part, failures);
        whole
    }

    /// Judges a run that was disturbed. `unfinished`: it cannot have been complete.
    pub(super) fn stopped(&self, part: Part, terms: &Terms, interrupt: Interrupt, unfinished: bool, failures: &mut Vec<Failure>) {
        let needs_output = matches!(interrupt, Interrupt::AfterFirst | Interrupt::WhenFull | Interrupt::HangUp);
        match &self.ended {
            Ended::Returned(Err(ProviderError::Stopped)) => {}
            Ended::Returned(Ok(())) if !unfinished => {}
            Ended::Returned(Ok(())) => failures.push(Failure::NotPolite(part, "as if it had finished".into())),
            Ended::Returned(Err(e)) => failures.push(Failure::NotPolite(part, e.to_string())),
            Ended::Panicked => failures.push(Failure::Panicked(part)),
            Ended::Not => failures.push(Failure::NotStopped(part, terms.grace)),
        }
        if needs_output && self.items.is_empty() {
            failures.push(Failure::FirstLate(part, terms.first));
        }
        self.afterwards(part, failures);
    }

    fn afterwards(&self, part: Part, failures: &mut Vec<Failure>) {
        if self.late {
            failures.push(Failure::AfterReturn(part));
        }
        if self.held {
            failures.push(Failure::StillHolds(part));
        }
    }
}
