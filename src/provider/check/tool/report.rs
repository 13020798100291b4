//! What the suite asks of a tool, and what it found. Layer 2.

use std::fmt;
use std::time::Duration;

use crate::event::{Checkpoint, Outside};

/// A run of a tool in the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolPart {
    /// With leave, to its end.
    Plain,
    /// It asks for leave and does not get it.
    Refused,
    /// It is told to stop before it does anything.
    StoppedAtOnce,
    /// It is told to stop at its n-th checkpoint (from 0).
    StoppedAt(usize),
    /// It is told to stop while it waits for leave.
    StoppedBeforeLeave,
    /// Its arguments are nothing it can work with, and it does not get leave.
    OddArguments,
    /// It has leave and is told to stop: only for a tool that says it can take back what it sent.
    StoppedAfterLeave,
    /// Its probe is asked about a key under which nothing was sent.
    ProbeOfNothing,
    /// Its probe is asked about the key of the plain run.
    Probe,
    /// It is told to undo the plain run.
    Compensate,
}

/// A rule that was broken, and in which part.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolFailure {
    /// It did not return in time.
    #[error("{0:?}: it has not returned within {1:?}")]
    NeverEnded(ToolPart, Duration),
    /// It panicked.
    #[error("{0:?}: it panicked")]
    Panicked(ToolPart),
    /// It returned an error where it should have done its work.
    #[error("{0:?}: it failed: {1}")]
    Failed(ToolPart, String),
    /// It was stopped or refused leave, and returned something else than [`Stopped`](crate::provider::ProviderError::Stopped).
    #[error("{0:?}: it was stopped and returned {1}")]
    NotPolite(ToolPart, String),
    /// It changed something outside that it may not have changed.
    #[error("{0:?}: it made {1} changes outside without leave")]
    Changed(ToolPart, u64),
    /// It had leave, said that it is done, and changed nothing.
    #[error("{0:?}: it had leave to commit, and nothing was changed")]
    NothingChanged(ToolPart),
    /// It passed a checkpoint that it does not declare.
    #[error("{0:?}: it passes the checkpoint {1:?}, which it does not declare")]
    Undeclared(ToolPart, Checkpoint),
    /// It declares a checkpoint and does not pass it.
    #[error("{0:?}: it declares the checkpoint {1:?} and does not pass it")]
    NotPassed(ToolPart, Checkpoint),
    /// It only reads, and asks for leave to commit.
    #[error("{0:?}: it declares that it only reads, and asks for leave to commit")]
    ReaderCommits(ToolPart),
    /// It changes things and never asks for leave.
    #[error("{0:?}: it declares that it changes things, and never asks for leave to commit")]
    NeverAsks(ToolPart),
    /// It asked for leave twice in one call.
    #[error("{0:?}: it asks for leave to commit more than once")]
    AsksAgain(ToolPart),
    /// It passed a checkpoint when it was too late.
    #[error("{0:?}: it passes the checkpoint {1:?} after it has asked for leave to commit")]
    LateCheckpoint(ToolPart, Checkpoint),
    /// It said that it was stopped, and what it had changed is still there.
    #[error("{0:?}: it says that it was stopped, and {1} changes are still there")]
    NotTakenBack(ToolPart, u64),
    /// Equal arguments have different keys.
    #[error("the same arguments have different keys")]
    KeyChanges,
    /// It panicked over the key of arguments.
    #[error("it panics when it is asked for the key of arguments")]
    KeyPanics,
    /// Its parameters are no JSON schema of an object.
    #[error("its parameters are not a JSON object")]
    Parameters,
    /// Its probe says something else than what is so.
    #[error("{part:?}: its probe says {said:?}")]
    ProbeWrong {
        /// In which part.
        part: ToolPart,
        /// What it says.
        said: Outside,
    },
}

/// What the suite found about a tool.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a report that nobody reads proves nothing"]
pub struct ToolReport {
    /// The tool's name.
    pub name: String,
    /// What was broken, in the order of the parts; empty is a pass.
    pub failures: Vec<ToolFailure>,
}

impl ToolReport {
    /// Whether nothing was broken.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// # Panics
    /// With all failures, when there are any.
    pub fn assert(&self) {
        assert!(self.passed(), "{self}");
    }
}

impl fmt::Display for ToolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.passed() {
            return write!(f, "{} keeps the contract", self.name);
        }
        write!(f, "{} breaks the contract:", self.name)?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}
