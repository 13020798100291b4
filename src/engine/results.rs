//! What comes out of a task: a bounded queue per kind of work, read one output at a time.
//!
//! A tool's queue is read in the order in which the tool spoke: its phases, then its result, then its end. Its question for leave to
//! commit stays here until the machine answers; it is asked at most once a call, and a second time is refused at this door.

use std::task::{Context, Poll};

use tokio::sync::{mpsc, oneshot};

use super::counters::{Tally, count};
use crate::event::{Checkpoint, Outside, Pii};
use crate::provider::tool::Phase;
use crate::provider::{Chunk, Piece, Transcript};
use crate::turn::Ended;

/// Results that wait for the session, per task, at most.
pub(super) const RESULTS: usize = 32;
/// Phases of a tool that wait for the session, at most; the tool waits at its next one.
pub(super) const PHASES: usize = 8;

/// What came out of a task.
#[derive(Debug)]
pub(super) enum Output {
    Transcript(Transcript),
    Piece(Piece),
    Audio(Chunk),
    Found(Pii<String>),
    Checkpoint(Checkpoint),
    CommitAsked,
    Result(Pii<String>),
    Probed(Outside),
    Ended(Ended),
}

/// What kind of work a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Listen,
    Retrieve,
    Generate,
    Synthesize,
    Tool,
    Reconcile,
    Compensate,
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

/// The queue of one task.
pub(super) enum Results {
    Listen(mpsc::Receiver<Transcript>),
    Retrieve(mpsc::Receiver<Pii<String>>),
    Generate(mpsc::Receiver<Piece>),
    Synthesize(mpsc::Receiver<Chunk>),
    Tool(Box<ToolResults>),
    Reconcile(mpsc::Receiver<Outside>),
    /// Undoing brings nothing but its end.
    Compensate,
}

/// What a tool says, and the leave it asks for.
pub(super) struct ToolResults {
    phases: mpsc::Receiver<Phase>,
    result: mpsc::Receiver<Pii<String>>,
    /// The result, while phases that came before it are still read.
    brought: Option<Pii<String>>,
    leave: Leave,
}

/// How far a tool is with its leave to commit.
enum Leave {
    NotAsked,
    Asked(oneshot::Sender<bool>),
    Granted,
    Refused,
}

impl Results {
    pub(super) fn tool(phases: mpsc::Receiver<Phase>, result: mpsc::Receiver<Pii<String>>) -> Self {
        Results::Tool(Box::new(ToolResults { phases, result, brought: None, leave: Leave::NotAsked }))
    }

    /// The next output. `None` when nothing more will come.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, tally: &Tally) -> Poll<Option<Output>> {
        match self {
            Results::Listen(from) => from.poll_recv(cx).map(|item| item.map(Output::Transcript)),
            Results::Retrieve(from) => from.poll_recv(cx).map(|item| item.map(Output::Found)),
            Results::Generate(from) => from.poll_recv(cx).map(|item| item.map(Output::Piece)),
            Results::Synthesize(from) => from.poll_recv(cx).map(|item| item.map(Output::Audio)),
            Results::Tool(tool) => tool.poll(cx, tally),
            Results::Reconcile(from) => from.poll_recv(cx).map(|item| item.map(Output::Probed)),
            Results::Compensate => Poll::Ready(None),
        }
    }

    /// Takes nothing more in. What is in the queue can still be read.
    pub(super) fn close(&mut self) {
        match self {
            Results::Listen(from) => from.close(),
            Results::Retrieve(from) => from.close(),
            Results::Generate(from) => from.close(),
            Results::Synthesize(from) => from.close(),
            Results::Tool(tool) => {
                tool.phases.close();
                tool.result.close();
            }
            Results::Reconcile(from) => from.close(),
            Results::Compensate => {}
        }
    }

    /// The result of a tool that had finished before it was aborted.
    pub(super) fn last_word(&mut self) -> Option<Output> {
        let Results::Tool(tool) = self else { return None };
        tool.brought.take().or_else(|| tool.result.try_recv().ok()).map(Output::Result)
    }

    /// Answers a tool that asks for leave to commit.
    pub(super) fn leave(&mut self, granted: bool) {
        if let Results::Tool(tool) = self
            && let Leave::Asked(asked) = std::mem::replace(&mut tool.leave, if granted { Leave::Granted } else { Leave::Refused })
        {
            // One who was dropped meanwhile does not commit: leave that nobody took is none.
            if asked.send(granted).is_err() {
                tool.leave = Leave::Refused;
            }
        }
    }

    /// Whether it is a tool that was given leave to commit.
    pub(super) fn has_leave(&self) -> bool {
        matches!(self, Results::Tool(tool) if matches!(tool.leave, Leave::Granted))
    }
}

impl ToolResults {
    fn poll(&mut self, cx: &mut Context<'_>, tally: &Tally) -> Poll<Option<Output>> {
        // Looked at first and told last: whatever the tool said before its result is in the other queue by now.
        if self.brought.is_none()
            && let Poll::Ready(Some(result)) = self.result.poll_recv(cx)
        {
            self.brought = Some(result);
        }
        loop {
            if self.phases.len() >= PHASES {
                count(&tally.tool_phases_full);
            }
            match self.phases.poll_recv(cx) {
                Poll::Ready(Some(Phase::Checkpoint(checkpoint))) => return Poll::Ready(Some(Output::Checkpoint(checkpoint))),
                Poll::Ready(Some(Phase::Commit(asked))) => match self.leave {
                    Leave::NotAsked => {
                        self.leave = Leave::Asked(asked);
                        return Poll::Ready(Some(Output::CommitAsked));
                    }
                    // Leave is given once a call. Dropping the question refuses it.
                    Leave::Asked(_) | Leave::Granted | Leave::Refused => drop(asked),
                },
                Poll::Ready(None) => return Poll::Ready(self.brought.take().map(Output::Result)),
                Poll::Pending if self.brought.is_some() => return Poll::Ready(self.brought.take().map(Output::Result)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::event::IdempotencyKey;
    use crate::provider::{TaskCx, ToolCx};
    use crate::time::{RuntimeClock, Stamp};

    fn tool() -> (ToolCx, mpsc::Sender<Pii<String>>, Results) {
        let cx = TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, CancellationToken::new());
        let (cx, phases) = ToolCx::new(cx, IdempotencyKey("k".into()), PHASES);
        let (to, result) = mpsc::channel(1);
        (cx, to, Results::tool(phases, result))
    }

    async fn next(results: &mut Results) -> Option<Output> {
        let tally = Tally::default();
        std::future::poll_fn(|cx| results.poll(cx, &tally)).await
    }

    #[tokio::test]
    async fn a_tool_is_heard_in_the_order_in_which_it_spoke() {
        let (cx, to, mut results) = tool();
        cx.checkpoint(Checkpoint::AfterRead).await.expect("room");
        cx.checkpoint(Checkpoint::AfterStaging).await.expect("room");
        to.try_send("four".into()).expect("room");
        assert!(matches!(next(&mut results).await, Some(Output::Checkpoint(Checkpoint::AfterRead))));
        assert!(matches!(next(&mut results).await, Some(Output::Checkpoint(Checkpoint::AfterStaging))));
        assert!(matches!(next(&mut results).await, Some(Output::Result(text)) if text.reveal() == "four"));
        drop((cx, to));
        assert!(next(&mut results).await.is_none());
    }

    #[tokio::test]
    async fn leave_to_commit_is_given_once_a_call() {
        let (cx, _to, mut results) = tool();
        let other = cx.clone();
        let first = tokio::spawn(async move { cx.commit().await });
        assert!(matches!(next(&mut results).await, Some(Output::CommitAsked)));
        assert!(!results.has_leave(), "asked is not granted");
        let second = tokio::spawn(async move {
            let refused = other.commit().await.is_err();
            other.checkpoint(Checkpoint::AfterRead).await.expect("room");
            refused
        });
        assert!(matches!(next(&mut results).await, Some(Output::Checkpoint(_))), "the second question is not passed on");
        assert!(second.await.expect("no panic"), "and is refused");
        results.leave(true);
        assert_eq!(first.await.expect("no panic").expect("leave").key().0, "k");
        assert!(results.has_leave());
    }

    #[tokio::test]
    async fn a_finished_tool_keeps_its_result_when_it_is_aborted() {
        let (cx, to, mut results) = tool();
        cx.checkpoint(Checkpoint::AfterRead).await.expect("room");
        to.try_send("four".into()).expect("room");
        results.close();
        assert!(matches!(results.last_word(), Some(Output::Result(text)) if text.reveal() == "four"));
        assert!(results.last_word().is_none());
    }
}
