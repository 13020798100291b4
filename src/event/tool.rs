//! Tools in the language of the house: what a tool declares, how far a call is, how it ended, and what the outside says later.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Retry;
use crate::time::millis;

/// What a stop can do to a tool (mission W1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancellability {
    /// It changes nothing: it may be stopped anywhere.
    ReadOnly,
    /// It prepares aside and publishes at its commit: stopped before, it leaves nothing.
    Staged,
    /// Once sent, the other side can be asked to take it back, and says whether it did.
    RemoteCancel,
    /// Once sent, it cannot be taken back, and it is not disturbed.
    Irreversible,
    /// Once sent, people work on it for long: nobody waits for its answer.
    HumanProcess,
}

/// Where a cooperative tool looks whether it was told to stop (mission W2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoint {
    /// It has read what it needs.
    AfterRead,
    /// What it makes lies aside, seen by nobody.
    AfterStaging,
    /// The next thing it does is seen outside.
    BeforePublish,
}

/// What a person who takes the floor does to a running call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBargeIn {
    /// It is stopped if it has not committed.
    #[default]
    Cancel,
    /// It goes on, for the turn that follows.
    Keep,
}

/// What a call that exceeds its cap does to its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The model is told that it failed, and goes on.
    #[default]
    TellModel,
    /// The turn fails.
    FailTurn,
}

/// What a tool declares about itself. Durations in milliseconds in files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Its name, as the model calls it.
    pub name: String,
    /// What a stop can do to it. [`Cancellability::ReadOnly`] never gets leave to commit.
    pub class: Cancellability,
    /// The checkpoints it has. Default none.
    #[serde(default)]
    pub checkpoints: Vec<Checkpoint>,
    /// With less time left than this a call is not started. Default 0.
    #[serde(default, with = "millis")]
    pub minimum_budget: Duration,
    /// Longest a call may take. Default the policy's cap for tools.
    #[serde(default, with = "millis::option")]
    pub cap: Option<Duration>,
    /// How long a stopped call is waited for. Default the policy's grace.
    #[serde(default, with = "millis::option")]
    pub grace: Option<Duration>,
    /// Default [`OnBargeIn::Cancel`].
    #[serde(default)]
    pub on_barge_in: OnBargeIn,
    /// Default [`OnTimeout::TellModel`].
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Whether a person must allow each call. Default no.
    #[serde(default)]
    pub approval: bool,
    /// Whether it can be asked later what became of a key. Default no.
    #[serde(default)]
    pub probes: bool,
    /// Whether it can undo what a key did; it is asked to when a stopped turn's call turns out to have happened. Default no.
    #[serde(default)]
    pub compensates: bool,
}

impl Declaration {
    /// A tool of this class with the defaults.
    pub fn new(name: impl Into<String>, class: Cancellability) -> Self {
        Declaration {
            name: name.into(),
            class,
            checkpoints: Vec::new(),
            minimum_budget: Duration::ZERO,
            cap: None,
            grace: None,
            on_barge_in: OnBargeIn::default(),
            on_timeout: OnTimeout::default(),
            approval: false,
            probes: false,
            compensates: false,
        }
    }
}

/// Names one intent to change something outside, so that sending it twice changes it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(pub String);

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a call was never started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotStarted {
    /// Too little time was left for it.
    NoBudget,
    /// There is no such tool.
    UnknownTool,
    /// A person said no.
    Refused,
    /// Its turn was stopped before. An approval that nobody gave is this, never a refusal.
    Cancelled,
    /// The turn had made as many calls as it may.
    TooMany,
    /// An earlier call under the same key may have happened: it is asked after, and nothing is sent twice.
    EarlierUnknown,
}

/// Why a call failed. What it was to change is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum CallFailure {
    /// It exceeded its cap.
    Timeout,
    /// It said so.
    Tool {
        /// What it says about trying again.
        retry: Retry,
    },
}

/// How a call ended, once (mission W4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ending")]
pub enum CallEnding {
    /// It gave its result. What it changes is changed.
    Done,
    /// It failed. Nothing was changed.
    Failed {
        /// Why.
        failure: CallFailure,
    },
    /// It was stopped before anything was changed.
    Cancelled,
    /// It was told to commit and nobody knows whether it did.
    Unknown,
    /// It was never started.
    NotStarted {
        /// Why.
        why: NotStarted,
    },
}

impl fmt::Display for CallEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallEnding::Done => f.write_str("done"),
            CallEnding::Failed { failure: CallFailure::Timeout } => f.write_str("failed(timeout)"),
            CallEnding::Failed { failure: CallFailure::Tool { .. } } => f.write_str("failed"),
            CallEnding::Cancelled => f.write_str("cancelled"),
            CallEnding::Unknown => f.write_str("unknown"),
            CallEnding::NotStarted { why } => f.write_str(match why {
                NotStarted::NoBudget => "not_started(no_budget)",
                NotStarted::UnknownTool => "not_started(unknown_tool)",
                NotStarted::Refused => "not_started(refused)",
                NotStarted::Cancelled => "not_started(cancelled)",
                NotStarted::TooMany => "not_started(too_many)",
                NotStarted::EarlierUnknown => "not_started(earlier_unknown)",
            }),
        }
    }
}

/// What the outside says about a key, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// It happened.
    Happened,
    /// It did not happen, and will not.
    DidNotHappen,
    /// The outside does not know, or does not say.
    Unknown,
}

/// What became of a call whose turn ended in RECONCILE_REQUIRED. The terminal stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It happened, and stays.
    Happened,
    /// It did not happen.
    DidNotHappen,
    /// It happened and was undone.
    Compensated,
    /// No probe could tell, or undoing failed: a person has to look. The call stays open.
    NeedsPerson,
}

impl Outcome {
    /// Whether nothing is left to be done about it.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Outcome::NeedsPerson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_read_as_the_mission_names_them() {
        let why = NotStarted::NoBudget;
        assert_eq!(CallEnding::NotStarted { why }.to_string(), "not_started(no_budget)");
        let json = serde_json::to_value(CallEnding::NotStarted { why }).expect("serialises");
        assert_eq!(json, serde_json::json!({"ending": "not_started", "why": "no_budget"}));
        let failed = CallEnding::Failed { failure: CallFailure::Tool { retry: Retry::Later } };
        let json = serde_json::to_string(&failed).expect("serialises");
        assert_eq!(serde_json::from_str::<CallEnding>(&json).expect("and comes back"), failed);
    }

    #[test]
    fn a_declaration_of_two_words_has_the_defaults() {
        let read: Declaration = serde_json::from_str(r#"{"name":"look","class":"read_only"}"#).expect("reads");
        assert_eq!(read, Declaration::new("look", Cancellability::ReadOnly));
        let slow = Declaration { cap: Some(Duration::from_secs(2)), ..read };
        let json = serde_json::to_string(&slow).expect("serialises");
        assert!(json.contains(r#""cap":2000"#), "{json}");
        assert_eq!(serde_json::from_str::<Declaration>(&json).expect("and comes back"), slow);
    }

    #[test]
    fn a_call_for_a_person_stays_open() {
        assert!(!Outcome::NeedsPerson.is_settled());
        assert!(Outcome::Compensated.is_settled() && Outcome::Happened.is_settled() && Outcome::DidNotHappen.is_settled());
    }
}
