//! Thresholds as data, each with its unit and default. The parts of the machine read them; nothing else decides by a number.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::millis;

/// Everything the machine decides by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// When sound is speech, and when speech takes the floor.
    pub floor: FloorPolicy,
    /// How long things may take.
    pub budget: BudgetPolicy,
    /// What a lost link means.
    pub on_disconnect: OnDisconnect,
}

/// When sound is speech, and when speech takes the floor. Durations in milliseconds in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FloorPolicy {
    /// Whether every sound well above the noise is taken for a voice, speech-like or not. Default false; for places where nothing but
    /// people sounds.
    pub every_sound: bool,
    /// A block counts as voiced from this weight on ([`crate::turn::Voice::weight`]). Default 0.1.
    pub voice_weight: f32,
    /// Weighted voiced time that holds the answer while the agent speaks or thinks. Default 40 ms. Shorter holds sooner and more often in vain.
    #[serde(with = "millis")]
    pub hold_after: Duration,
    /// Weighted voiced time that takes the floor from the agent (commit). Default 160 ms.
    #[serde(with = "millis")]
    pub commit_after: Duration,
    /// Weighted voiced time that opens an utterance while nobody speaks. Default 100 ms.
    #[serde(with = "millis")]
    pub begin_after: Duration,
    /// A gap inside one stretch of speech, at most. Default 200 ms.
    #[serde(with = "millis")]
    pub gap: Duration,
    /// Silence after a hold that shows it was a false alarm, and resumes. Default 250 ms.
    #[serde(with = "millis")]
    pub resume_after: Duration,
    /// Silence that ends the user's utterance (endpointing). Default 600 ms.
    #[serde(with = "millis")]
    pub endpoint_after: Duration,
    /// Sound kept from before the onset, for the recogniser. Default 300 ms.
    #[serde(with = "millis")]
    pub preroll: Duration,
    /// Longest wait for the recogniser's last word after the endpoint. Default 4 s.
    #[serde(with = "millis")]
    pub final_transcript: Duration,
    /// Whether the agent's answer may be interrupted by voice at all. Default true.
    pub interruptible: bool,
}

impl Default for FloorPolicy {
    fn default() -> Self {
        FloorPolicy {
            every_sound: false,
            voice_weight: 0.1,
            hold_after: Duration::from_millis(40),
            commit_after: Duration::from_millis(160),
            begin_after: Duration::from_millis(100),
            gap: Duration::from_millis(200),
            resume_after: Duration::from_millis(250),
            endpoint_after: Duration::from_millis(600),
            preroll: Duration::from_millis(300),
            final_transcript: Duration::from_secs(4),
            interruptible: true,
        }
    }
}

/// How long things may take. Durations in milliseconds in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetPolicy {
    /// The absolute end of a turn, from its acceptance; the speaking of the answer is inside it. Default 300 s.
    #[serde(with = "millis")]
    pub turn: Duration,
    /// Kept back from every stage for closing the turn. Default 200 ms.
    #[serde(with = "millis")]
    pub closing_reserve: Duration,
    /// Longest wait for the model's first token. Default 10 s.
    #[serde(with = "millis")]
    pub first_token: Duration,
    /// Longest silence of a stream that has begun. Default 10 s.
    #[serde(with = "millis")]
    pub idle: Duration,
    /// Longest a lookup for the model may take; what was not found in time is not waited for. Default 2 s.
    #[serde(with = "millis")]
    pub retrieve: Duration,
    /// Longest one answer of the model may take, from the question to its last piece. Default 120 s.
    #[serde(with = "millis")]
    pub generate: Duration,
    /// Longest a tool call may take, unless its tool declares its own cap. Default 30 s.
    #[serde(with = "millis")]
    pub tool: Duration,
    /// Questions to the model in one turn, at most. Default 16.
    pub requests: u32,
    /// Tool calls in one turn, at most. Default 32.
    pub calls: u32,
    /// Inputs that wait for the model in one turn, at most. Default 16.
    pub inbox: u32,
    /// Pause before the outside is asked again about a call of which it could not tell; doubled each time. Default 1 s.
    #[serde(with = "millis")]
    pub reconcile_after: Duration,
    /// How often the outside is asked about one call before a person has to look. Default 5.
    pub reconcile_attempts: u32,
    /// How long a stopping task is waited for before it is aborted. Default 100 ms.
    #[serde(with = "millis")]
    pub grace: Duration,
    /// Audio is queued and the sink does not move for this long: the turn fails. Default 3 s.
    #[serde(with = "millis")]
    pub playout_stall: Duration,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        BudgetPolicy {
            turn: Duration::from_secs(300),
            closing_reserve: Duration::from_millis(200),
            first_token: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            retrieve: Duration::from_secs(2),
            generate: Duration::from_secs(120),
            tool: Duration::from_secs(30),
            requests: 16,
            calls: 32,
            inbox: 16,
            reconcile_after: Duration::from_secs(1),
            reconcile_attempts: 5,
            grace: Duration::from_millis(100),
            playout_stall: Duration::from_secs(3),
        }
    }
}

/// What a lost link means for the running turn. The loss itself changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", content = "for_ms")]
pub enum OnDisconnect {
    /// Nothing: the turn runs to its end.
    GoOn,
    /// Hold the answer; cancel when no link is back in time.
    #[serde(with = "millis")]
    Hold(Duration),
    /// Cancel now.
    CancelNow,
}

impl Default for OnDisconnect {
    /// Cancel now: a client cannot come back to its session yet, and an answer that nobody can hear only keeps a place.
    fn default() -> Self {
        OnDisconnect::CancelNow
    }
}
