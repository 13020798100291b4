//! What a test says to a `ScriptedTool`: the steps of a call, what disturbs them, and what a probe answers. Layer 2.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::event::{Checkpoint, Outside};
use crate::provider::script::{End, Obedience, held};

/// One call of a [`ScriptedTool`](super::ScriptedTool), step by step. Each method appends a step or says how the call misbehaves.
///
/// Told to stop, it takes away what it has laid aside and returns `Stopped`. A wait *after* something was sent is not ended by a stop,
/// unless it [takes back](ToolScript::takes_back) what it sent.
#[derive(Clone, Debug)]
pub struct ToolScript {
    pub(super) steps: Vec<Step>,
    pub(super) brings: String,
    pub(super) obedience: Obedience,
    pub(super) end: End,
    pub(super) jitter: Option<(Duration, u64)>,
    pub(super) takes_back: bool,
    pub(super) untidy: bool,
    pub(super) rogue: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Rest(Duration),
    Checkpoint(Checkpoint),
    Stage,
    Commit,
    Send,
    Lose,
    Block(Gate),
}

impl ToolScript {
    /// No steps yet; brings `text` and completes.
    pub fn brings(text: &str) -> Self {
        ToolScript {
            steps: Vec::new(),
            brings: text.to_owned(),
            obedience: Obedience::Prompt,
            end: End::Complete,
            jitter: None,
            takes_back: false,
            untidy: false,
            rogue: false,
        }
    }

    /// Reads for `time`, passes [`Checkpoint::AfterRead`], and brings `text`: a good tool that only reads.
    pub fn reads(time: Duration, text: &str) -> Self {
        Self::brings(text).rest(time).checkpoint(Checkpoint::AfterRead)
    }

    /// Passes all three checkpoints around reading and staging, commits and sends, `every` apart, and brings `text`: a good tool that
    /// changes something.
    pub fn changes(every: Duration, text: &str) -> Self {
        let staged = Self::reads(every, text).stage().rest(every).checkpoint(Checkpoint::AfterStaging);
        staged.rest(every).checkpoint(Checkpoint::BeforePublish).commit().send().rest(every)
    }

    /// Waits for `time`.
    #[must_use]
    pub fn rest(self, time: Duration) -> Self {
        self.step(Step::Rest(time))
    }

    /// Passes a checkpoint.
    #[must_use]
    pub fn checkpoint(self, checkpoint: Checkpoint) -> Self {
        self.step(Step::Checkpoint(checkpoint))
    }

    /// Lays something aside, seen by nobody.
    #[must_use]
    pub fn stage(self) -> Self {
        self.step(Step::Stage)
    }

    /// Asks for leave to commit.
    #[must_use]
    pub fn commit(self) -> Self {
        self.step(Step::Commit)
    }

    /// Sends what it has laid aside, or anything, under the key: it is there from now on. Without a [`commit`](Self::commit) before
    /// it, this is a tool that breaks the contract.
    #[must_use]
    pub fn send(self) -> Self {
        self.step(Step::Send)
    }

    /// Sends, and it never arrives. What lay aside stays aside.
    #[must_use]
    pub fn send_lost(self) -> Self {
        self.step(Step::Lose)
    }

    /// Blocks its thread until `gate` is opened, as no tool may. Only for a runtime with several threads.
    #[must_use]
    pub fn block(self, gate: &Gate) -> Self {
        self.step(Step::Block(gate.clone()))
    }

    /// Waits up to `most` more at each rest, drawn from `seed`.
    #[must_use]
    pub fn jitter(mut self, most: Duration, seed: u64) -> Self {
        self.jitter = Some((most, seed));
        self
    }

    /// Told to stop after it has sent, it takes back what it sent and returns `Stopped`, as a remote cancel that works.
    #[must_use]
    pub fn takes_back(mut self) -> Self {
        self.takes_back = true;
        self
    }

    /// Ignores the stop: its waits are not ended and its checkpoints hold nothing up. What needs leave still needs it.
    #[must_use]
    pub fn deaf(mut self) -> Self {
        self.obedience = Obedience::Deaf { more: usize::MAX };
        self
    }

    /// Leaves what it has laid aside when it ends early.
    #[must_use]
    pub fn untidy(mut self) -> Self {
        self.untidy = true;
        self
    }

    /// Goes on without leave when it does not get it.
    #[must_use]
    pub fn rogue(mut self) -> Self {
        self.rogue = true;
        self
    }

    /// Ends like this after the last step: with [`End::Hang`] it never answers, with [`End::Unknown`] it does not know.
    #[must_use]
    pub fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// What a probe of a [`ScriptedTool`](super::ScriptedTool) answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// What its backend shows.
    Truth,
    /// This, whatever is so.
    Says(Outside),
    /// No answer, and this end of the probe; [`End::Complete`] is [`Outside::Unknown`].
    Ends(End),
}

/// Holds up whoever blocks on it until it is opened. Clones are one gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it for good.
    pub fn open(&self) {
        *held(&self.0.0) = true;
        self.0.1.notify_all();
    }

    /// Blocks this thread until it is open.
    pub(super) fn pass(&self) {
        let open = held(&self.0.0);
        // What it holds up may panic elsewhere; the flag is whole all the same.
        drop(self.0.1.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }
}
