//! What the machine wants done. The driver carries effects out in the order given and decides nothing.

use std::sync::Arc;

use crate::event::{CallEnding, CancelCause, FailReason, IdempotencyKey, Pii, Record, Terminal};
use crate::id::{CallId, Generation, RequestId, TaskId, TurnId, UtteranceId};
use crate::time::Stamp;
use crate::turn::RequestKind;

/// One effect of [`super::Machine::step`].
///
/// Within one step the order is part of the contract: *fence, hold or clear, stop, append, deliver, start.* Silence comes before
/// bookkeeping, truth before news, news before new work.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Publish the new generation: whatever is older is never heard again.
    RaiseFence {
        /// The new current generation.
        generation: Generation,
    },
    /// Pause the answer at an exact sample.
    Hold {
        /// The generation to pause; a fence raised meanwhile makes this void.
        generation: Generation,
    },
    /// Go on from the held sample.
    Resume {
        /// The generation to resume.
        generation: Generation,
    },
    /// Tell the far end to drop and mute what it has of the stale generation.
    Clear {
        /// The stale generation.
        stale: Generation,
    },
    /// Signal a task to stop, and wait for it until `grace_until` (a timer of the machine's; the driver does not time it).
    StopTask {
        /// Which.
        task: TaskId,
        /// Why.
        why: StopReason,
        /// When it will be aborted.
        grace_until: Stamp,
    },
    /// The grace is over: abort it.
    AbortTask {
        /// Which.
        task: TaskId,
    },
    /// Put this record into the store. Records come in the order of their seq.
    Append {
        /// The record.
        record: Arc<Record>,
    },
    /// Show this record to the client and to observers.
    Deliver {
        /// The record.
        record: Arc<Record>,
    },
    /// Answer a command.
    Answer {
        /// Which.
        request: RequestId,
        /// Of which kind: one id on two kinds of request is two requests.
        kind: RequestKind,
        /// The answer.
        answer: Answer,
    },
    /// Start a task. What it makes carries `generation`.
    StartTask {
        /// Its name.
        task: TaskId,
        /// The generation of what it makes.
        generation: Generation,
        /// When it must be done.
        deadline: Stamp,
        /// What it shall do.
        spec: TaskSpec,
    },
    /// Give a synthesizing task more text.
    Feed {
        /// Which.
        task: TaskId,
        /// The text.
        text: Pii<String>,
    },
    /// Tell a synthesizing task that the text is complete, or a listening task that the utterance is over.
    EndFeed {
        /// Which.
        task: TaskId,
    },
    /// The audio just reported by this task may be queued for playing.
    Play {
        /// Which.
        task: TaskId,
    },
    /// The intent is kept: this tool may commit, under the key of its call.
    LetCommit {
        /// Which.
        task: TaskId,
        /// For which call.
        call: CallId,
    },
    /// This tool may not commit: it never may, or it is too late.
    RefuseCommit {
        /// Which.
        task: TaskId,
    },
    /// The session is over; the driver ends.
    Finish,
}

impl Effect {
    /// Place in the order of a step: fence 0, hold/clear 1, stop 2, append 3, deliver 4, start 5.
    pub const fn rank(&self) -> u8 {
        match self {
            Effect::RaiseFence { .. } => 0,
            Effect::Hold { .. } | Effect::Resume { .. } | Effect::Clear { .. } => 1,
            Effect::StopTask { .. } | Effect::AbortTask { .. } => 2,
            Effect::Append { .. } => 3,
            Effect::Deliver { .. } | Effect::Answer { .. } => 4,
            Effect::StartTask { .. }
            | Effect::Feed { .. }
            | Effect::EndFeed { .. }
            | Effect::Play { .. }
            | Effect::LetCommit { .. }
            | Effect::RefuseCommit { .. }
            | Effect::Finish => 5,
        }
    }
}

/// Why a task is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its turn was cancelled.
    Cancelled(CancelCause),
    /// Its turn failed.
    Failed(FailReason),
    /// What it listened to turned out not to be speech.
    NotSpeech,
    /// It has had its time, and its turn goes on without it.
    OutOfTime,
    /// What it was to find out is known.
    NotNeeded,
}

/// What a task shall do.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskSpec {
    /// Recognise an utterance.
    Listen {
        /// Which.
        utterance: UtteranceId,
        /// First moment (capture time) to hear, the pre-roll included.
        from: Stamp,
    },
    /// Look up what the model should know.
    Retrieve {
        /// For which turn.
        turn: TurnId,
        /// The conversation so far, the user's input last.
        context: Vec<Message>,
    },
    /// Ask the model.
    Generate {
        /// For which turn.
        turn: TurnId,
        /// For which time in this turn, from 1.
        request: u32,
        /// The conversation so far, cut at what was heard; every call in it is followed by its one result.
        context: Vec<Message>,
        /// What was looked up for this turn, if anything was.
        found: Option<Pii<String>>,
        /// What this answer must heed, if the application said so.
        constraints: Option<Pii<String>>,
    },
    /// Speak the text that will be fed.
    Synthesize {
        /// For which turn.
        turn: TurnId,
    },
    /// Carry out a tool call.
    Tool {
        /// For which turn.
        turn: TurnId,
        /// Which call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it is asked.
        arguments: Pii<String>,
        /// Under which key it changes something outside.
        key: IdempotencyKey,
    },
    /// Ask the outside what became of a key.
    Reconcile {
        /// Which call.
        call: CallId,
        /// The tool.
        tool: String,
        /// The key.
        key: IdempotencyKey,
    },
    /// Undo what was done under a key.
    Compensate {
        /// Which call.
        call: CallId,
        /// The tool.
        tool: String,
        /// The key.
        key: IdempotencyKey,
    },
}

/// One entry of the conversation as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The person said or typed this.
    User {
        /// What.
        text: Pii<String>,
    },
    /// The model said this, and it was *heard*.
    Assistant {
        /// What.
        text: Pii<String>,
        /// Whether it was cut off here.
        interrupted: bool,
    },
    /// The model asked for a tool.
    Call {
        /// Names the call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it was asked.
        arguments: Pii<String>,
    },
    /// What became of that call. Follows it, once.
    Result {
        /// Which call.
        call: CallId,
        /// How it ended; `None` while it still runs.
        ending: Option<CallEnding>,
        /// What it brought; empty unless it is done.
        text: Pii<String>,
    },
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`super::Command::Say`].
    Say(SayAnswer),
    /// To [`super::Command::Submit`], [`super::Command::Announce`] and [`super::Command::Handover`].
    Submit(SubmitAnswer),
    /// To [`super::Command::Approve`].
    Approve(ApproveAnswer),
    /// To [`super::Command::Resolve`].
    Resolve(ResolveAnswer),
    /// To [`super::Command::Cancel`].
    Cancel(CancelAnswer),
    /// To everything else: it is known.
    Done,
}

/// What became of a typed input.
#[derive(Clone, Debug, PartialEq)]
pub enum SayAnswer {
    /// It began this turn.
    Started(TurnId),
    /// It was not taken, and here it is back.
    NotAccepted {
        /// Why.
        refusal: Refusal,
        /// The input.
        text: Pii<String>,
    },
}

/// What became of a submitted input. Exhaustive on purpose (mission S1).
#[derive(Clone, Debug, PartialEq)]
pub enum SubmitAnswer {
    /// It began this turn.
    Started(TurnId),
    /// It waits in the inbox of this turn. Not: the model has seen it.
    Steered(TurnId),
    /// It was not taken, and here it is back.
    NotSubmitted {
        /// Why.
        refusal: Refusal,
        /// The input.
        text: Pii<String>,
    },
}

/// Why an input was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There was nothing in it.
    Empty,
    /// No new turns are taken.
    Draining,
    /// No turn is being answered that could be steered.
    NoActiveTurn,
    /// Another turn is being answered than its author looked at (or one at all, where none was expected).
    ExpectedTurnMismatch {
        /// The one that is.
        actual: TurnId,
    },
    /// This turn speaks a fixed text.
    NotSteerable {
        /// Which.
        turn: TurnId,
    },
    /// As many inputs wait for the model as may.
    InboxFull {
        /// In this turn.
        turn: TurnId,
    },
    /// There was no such turn in this session.
    NoSuchTurn,
}

/// What became of a person's answer about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApproveAnswer {
    /// It was heard, and counts.
    Taken,
    /// Nobody waits for it: the call was answered before, or its turn is stopping.
    NotAsked,
    /// No such call in this session, as far as is remembered.
    NoSuchCall,
}

/// What became of a person's word about an open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveAnswer {
    /// It is settled now.
    Settled,
    /// It was settled before, like this.
    AlreadySettled(crate::event::Outcome),
    /// No such call is open.
    NotOpen,
}

/// What became of a cancel. Exhaustive on purpose (mission T5).
#[derive(Clone, Debug, PartialEq)]
pub enum CancelAnswer {
    /// Stopping has begun. Not: it has stopped.
    Accepted,
    /// It had already ended, this way.
    AlreadyTerminal(Terminal),
    /// A side effect may have happened; it is being asked after.
    ReconcileRequired(Vec<CallId>),
    /// No such turn in this session.
    NoSuchTurn,
}
