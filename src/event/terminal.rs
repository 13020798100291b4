//! How a turn may end, and why it was stopped.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::CallId;

/// The one way a turn ended. Exhaustive on purpose: whoever reads a terminal must have an answer for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Terminal {
    /// The answer was produced and, when it is spoken, played to its end.
    Completed,
    /// Somebody or something asked it to stop, and everything that can be stopped has stopped.
    Cancelled {
        /// Why.
        cause: CancelCause,
    },
    /// It could not be carried out.
    Failed {
        /// Why.
        reason: FailReason,
    },
    /// A side effect may have happened and nobody knows yet. Never dressed up as cancelled.
    ReconcileRequired {
        /// The calls whose outcome is unknown.
        calls: Vec<CallId>,
    },
}

impl fmt::Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Terminal::Completed => f.write_str("COMPLETED"),
            Terminal::Cancelled { cause } => write!(f, "CANCELLED({cause})"),
            Terminal::Failed { reason } => write!(f, "FAILED({reason})"),
            Terminal::ReconcileRequired { calls } => write!(f, "RECONCILE_REQUIRED({} calls)", calls.len()),
        }
    }
}

/// Whether the same intent may be tried again, and how. Each cause and reason has its own rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// No: a person decided, or trying again would repeat the failure.
    Never,
    /// A person may ask again; nothing does so by itself.
    AskAgain,
    /// The same request may be sent again at once.
    Now,
    /// The same request may be sent again after a pause.
    Later,
}

/// Why a turn was asked to stop. Exhaustive on purpose (mission T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// A person pressed or said stop.
    User,
    /// A person took the floor while the agent spoke.
    BargeIn,
    /// A newer input replaced the turn before its answer sounded.
    Superseded,
    /// The link was lost and the policy says that this cancels.
    Transport,
    /// The engine is draining.
    Shutdown,
}

impl CancelCause {
    /// Whether the stopped intent may be tried again.
    pub const fn retry(self) -> Retry {
        match self {
            CancelCause::User | CancelCause::BargeIn | CancelCause::Superseded => Retry::Never,
            CancelCause::Transport => Retry::AskAgain,
            CancelCause::Shutdown => Retry::Later,
        }
    }
}

impl fmt::Display for CancelCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CancelCause::User => "user",
            CancelCause::BargeIn => "barge_in",
            CancelCause::Superseded => "superseded",
            CancelCause::Transport => "transport",
            CancelCause::Shutdown => "shutdown",
        })
    }
}

/// Who asked for a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initiator {
    /// The person, by voice.
    Voice,
    /// The person, by a button or a message of the client.
    Client,
    /// The application that embeds the engine.
    Application,
    /// The engine itself (policy, drain).
    Engine,
}

/// A piece of a turn's work, as it appears in budgets, failures and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Hearing what was said (speech to text).
    Listen,
    /// Looking things up for the model.
    Retrieve,
    /// The model.
    Generate,
    /// Text to speech.
    Synthesize,
    /// A tool.
    Tool,
    /// Playing to the person.
    Play,
    /// Finding out, after its turn, what became of a call, or undoing it.
    Reconcile,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Listen => "listen",
            Stage::Retrieve => "retrieve",
            Stage::Generate => "generate",
            Stage::Synthesize => "synthesize",
            Stage::Tool => "tool",
            Stage::Play => "play",
            Stage::Reconcile => "reconcile",
        })
    }
}

/// Why a turn could not be carried out. Exhaustive on purpose (mission T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FailReason {
    /// The absolute end of the turn came while `stage` was at work.
    DeadlineExceeded {
        /// The stage that was at work.
        stage: Stage,
    },
    /// The model gave no first token within its cap.
    FirstTokenTimeout,
    /// A stream fell silent for longer than its cap.
    IdleTimeout {
        /// The stage whose stream fell silent.
        stage: Stage,
    },
    /// A tool exceeded its cap.
    ToolTimeout,
    /// The model asked for tools again and again, more often than a turn may ask it.
    TooManyRequests,
    /// A provider said that it cannot.
    Provider {
        /// The stage whose provider failed.
        stage: Stage,
        /// What the provider says about trying again.
        retry: Retry,
    },
    /// Audio was handed over and never played: the sink does not move.
    PlayoutStalled,
    /// The user took the floor, and no words could be made out.
    NothingHeard,
    /// The process died while the turn ran.
    Restarted,
}

impl FailReason {
    /// Whether the failed intent may be tried again.
    pub const fn retry(self) -> Retry {
        match self {
            FailReason::DeadlineExceeded { .. } | FailReason::ToolTimeout | FailReason::NothingHeard => Retry::AskAgain,
            FailReason::FirstTokenTimeout | FailReason::IdleTimeout { .. } | FailReason::Restarted => Retry::Now,
            FailReason::PlayoutStalled => Retry::Later,
            FailReason::TooManyRequests => Retry::Never,
            FailReason::Provider { retry, .. } => retry,
        }
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailReason::DeadlineExceeded { stage } => write!(f, "deadline_exceeded in {stage}"),
            FailReason::FirstTokenTimeout => f.write_str("first_token_timeout"),
            FailReason::IdleTimeout { stage } => write!(f, "idle_timeout in {stage}"),
            FailReason::ToolTimeout => f.write_str("tool_timeout"),
            FailReason::TooManyRequests => f.write_str("too_many_requests"),
            FailReason::Provider { stage, .. } => write!(f, "provider failed in {stage}"),
            FailReason::PlayoutStalled => f.write_str("playout_stalled"),
            FailReason::NothingHeard => f.write_str("nothing_heard"),
            FailReason::Restarted => f.write_str("restarted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_read_as_the_mission_names_them() {
        assert_eq!(Terminal::Cancelled { cause: CancelCause::BargeIn }.to_string(), "CANCELLED(barge_in)");
        let json = serde_json::to_value(Terminal::Cancelled { cause: CancelCause::User }).expect("serialises");
        assert_eq!(json, serde_json::json!({"state": "CANCELLED", "cause": "user"}));
        let json = serde_json::to_value(Terminal::Failed { reason: FailReason::DeadlineExceeded { stage: Stage::Tool } });
        assert_eq!(
            json.expect("serialises"),
            serde_json::json!({"state": "FAILED", "reason": {"kind": "deadline_exceeded", "stage": "tool"}})
        );
    }

    #[test]
    fn what_a_person_stopped_is_not_retried() {
        for cause in [CancelCause::User, CancelCause::BargeIn, CancelCause::Superseded] {
            assert_eq!(cause.retry(), Retry::Never);
        }
        let failed = FailReason::Provider { stage: Stage::Generate, retry: Retry::Later };
        assert_eq!(failed.retry(), Retry::Later, "the provider's own word is passed on");
    }
}
