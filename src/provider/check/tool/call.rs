//! One call of a tool under watch: what it passed, when it asked for leave, how it ended. Layer 2, private to the suite.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{ToolFailure, ToolPart};
use crate::event::{Checkpoint, IdempotencyKey, Pii};
use crate::provider::tool::Phase;
use crate::provider::{AnyTool, ProviderError, TaskCx, ToolCall, ToolCx};
use crate::time::{RuntimeClock, Stamp};

/// When a call is disturbed. Leave is given only where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturb {
    /// It gets leave.
    Never,
    RefuseLeave,
    StopAtOnce,
    StopAt(usize),
    StopBeforeLeave,
    /// It gets leave.
    StopAfterLeave,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) whole: Duration,
    /// From a stop on.
    pub(super) grace: Duration,
}

/// What one call did.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Before it asked for leave.
    pub(super) passed: Vec<Checkpoint>,
    /// After it had asked.
    pub(super) late: Vec<Checkpoint>,
    pub(super) commits: usize,
    /// How it ended, unless it had to be aborted or panicked.
    pub(super) result: Option<Result<Pii<String>, ProviderError>>,
    panicked: bool,
}

pub(super) fn context(limits: Limits, stop: CancellationToken) -> TaskCx {
    TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::ZERO + limits.whole, stop)
}

/// Runs one call and disturbs it.
pub(super) async fn call(tool: &AnyTool, arguments: &str, key: IdempotencyKey, disturb: Disturb, limits: Limits) -> Seen {
    let stop = CancellationToken::new();
    let mut limit = limits.whole;
    if disturb == Disturb::StopAtOnce {
        stop.cancel();
        limit = limits.grace;
    }
    let (cx, mut phases) = ToolCx::new(context(limits, stop.clone()), key.clone(), 1);
    let asked = ToolCall { arguments: arguments.into(), key };
    let mut task = tokio::spawn({
        let tool = tool.clone();
        async move { tool.call(asked, cx).await }
    });
    let mut seen = Seen::default();
    loop {
        match within(limit, next(&mut phases, &mut task)).await {
            None => {
                task.abort();
                return seen;
            }
            Some(Next::Phase(Phase::Checkpoint(checkpoint))) if seen.commits > 0 => seen.late.push(checkpoint),
            Some(Next::Phase(Phase::Checkpoint(checkpoint))) => {
                if disturb == Disturb::StopAt(seen.passed.len()) {
                    stop.cancel();
                    limit = limits.grace;
                }
                seen.passed.push(checkpoint);
            }
            Some(Next::Phase(Phase::Commit(grant))) => {
                seen.commits += 1;
                if disturb == Disturb::StopBeforeLeave {
                    stop.cancel();
                    limit = limits.grace;
                }
                // Nobody takes the answer when the tool gave up waiting.
                let _gone = grant.send(matches!(disturb, Disturb::Never | Disturb::StopAfterLeave)).is_err();
                if disturb == Disturb::StopAfterLeave {
                    stop.cancel();
                }
            }
            Some(Next::Over(Ok(result))) => {
                seen.result = Some(result);
                return seen;
            }
            Some(Next::Over(Err(_))) => {
                seen.panicked = true;
                return seen;
            }
        }
    }
}

enum Next {
    Phase(Phase),
    Over(Result<Result<Pii<String>, ProviderError>, JoinError>),
}

async fn next(phases: &mut mpsc::Receiver<Phase>, task: &mut JoinHandle<Result<Pii<String>, ProviderError>>) -> Next {
    tokio::select! {
        biased;
        Some(phase) = phases.recv() => Next::Phase(phase),
        over = task => Next::Over(over),
    }
}

#[allow(clippy::disallowed_methods, reason = "the suite finds tools that hang; it is no part of a running engine")]
async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}

impl Seen {
    /// Notes if it did not end as a call may.
    pub(super) fn ended(&self, part: ToolPart, limit: Duration, failures: &mut Vec<ToolFailure>) {
        if self.panicked {
            failures.push(ToolFailure::Panicked(part));
        } else if self.result.is_none() {
            failures.push(ToolFailure::NeverEnded(part, limit));
        }
    }
}

/// Something that a tool does after a call, in a task of its own: it may hang or panic.
pub(super) async fn afterwards<T: Send + 'static>(
    part: ToolPart,
    limit: Duration,
    work: impl Future<Output = Result<T, ProviderError>> + Send + 'static,
    failures: &mut Vec<ToolFailure>,
) -> Option<T> {
    let mut task = tokio::spawn(work);
    match within(limit, &mut task).await {
        Some(Ok(Ok(done))) => return Some(done),
        Some(Ok(Err(error))) => failures.push(ToolFailure::Failed(part, error.to_string())),
        Some(Err(_)) => failures.push(ToolFailure::Panicked(part)),
        None => {
            task.abort();
            failures.push(ToolFailure::NeverEnded(part, limit));
        }
    }
    None
}
