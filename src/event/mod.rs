//! `event`: the language of the house. What is stored, sent and shown.
//!
//! * Layer 0. Imports `time` and `id` only.
//! * A [`Record`] is one fact with its place in its session's order; an [`Event`] says what kind of fact.
//! * Versioned: [`VERSION`] rises when an old reader would misread a new record. Readers ignore fields they do not know.
//! * Personal content is [`Pii`]; everything else may be logged.
//! * Proved by the round-trip tests below.

pub mod pii;
pub mod terminal;
pub mod tool;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, Generation, RequestId, Seq, TaskId, TurnId, UtteranceId};
use crate::time::{SamplePos, Stamp};

pub use pii::Pii;
pub use terminal::{CancelCause, FailReason, Initiator, Retry, Stage, Terminal};
pub use tool::{
    CallEnding, CallFailure, Cancellability, Checkpoint, Declaration, IdempotencyKey, NotStarted, OnBargeIn, OnTimeout, Outcome,
    Outside,
};

/// Version of the record format. 1 is the first.
pub const VERSION: u16 = 1;

/// One fact of a session, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Format version, [`VERSION`].
    pub v: u16,
    /// Place in the session's log, without holes.
    pub seq: Seq,
    /// When the deciding core said so (session time).
    pub at: Stamp,
    /// The turn it belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The generation it was made under.
    pub generation: Generation,
    /// What happened.
    pub event: Event,
}

/// How surely a record must be kept before it has consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Goes out at once; a crash may lose it (text deltas).
    Buffered,
    /// Goes out, or sets something in motion, only when the store has it (terminals, accepted cancels, intents to commit).
    Synced,
}

/// Why sound was taken for speech, or not: what the decision rested on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Voiced time seen since the onset, microseconds.
    pub voiced_us: u64,
    /// Of it, the time that the fast, credulous detector called voice too. Recorded for tuning; no decision rests on it yet.
    #[serde(default)]
    pub quick_us: u64,
    /// Highest speech probability seen, 0..=1.
    pub speech: f32,
    /// Loudest level seen, dB relative to full scale.
    pub level_dbfs: f32,
    /// Learned noise floor, dB relative to full scale.
    pub noise_dbfs: f32,
    /// How far the sound is explained by what we play ourselves, 0..=1.
    pub explained: f32,
    /// Words recognised so far.
    pub words: u32,
    /// Whether push-to-talk was down.
    pub push_to_talk: bool,
}

/// How a piece of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOutcome {
    /// It reached its own end.
    Finished,
    /// It was told to stop and did.
    Stopped,
    /// It did not stop within the grace and was aborted. What it began elsewhere may go on.
    Aborted,
    /// It had leave to commit and was not disturbed; its turn went on without it, and it goes on.
    Left,
    /// It failed.
    Failed,
}

/// How the heard boundary inside a text was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// The synthesizer said when each word sounds.
    Exact,
    /// In proportion to the length of the audio.
    Estimated,
}

/// What kind of late output was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateKind {
    /// Text of a model.
    Text,
    /// Audio of a synthesizer.
    Audio,
    /// A transcript of an utterance that no longer counts.
    Transcript,
    /// What a tool, a lookup or a probe brought.
    Result,
    /// A report of a task that had already ended.
    Report,
}

/// The audible tail of one barge-in and its split (mission M1), all in microseconds.
///
/// `detect + decide + flush + downstream = to_silence`. The tail ends with the last stale sample at the loudspeaker, whether a
/// hold or the cut silenced it; a hold can be taken back, a cut cannot, so both moments are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Onset to the deciding core's word (hold when there was one, otherwise bump): gathering evidence.
    pub detect_us: u64,
    /// From there to the audio reader obeying it.
    pub decide_us: u64,
    /// From there to the last stale sample handed to the link.
    pub flush_us: u64,
    /// From there to the end of that sample at the loudspeaker: network, jitter buffer, device.
    pub downstream_us: u64,
    /// Onset to the last stale sample at the loudspeaker: the audible tail.
    pub to_silence_us: u64,
    /// Onset to the hold's silence; absent when nothing was held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_hold_us: Option<u64>,
    /// Onset to the cut being in force at the audio reader: from here nothing stale can come back.
    pub to_cut_us: u64,
    /// Whether the downstream part was reported by the far end (`true`) or is its declared bound (`false`).
    pub downstream_measured: bool,
}

/// What happened. One flat enum; a new variant is a new version only when old readers cannot ignore it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The session began. The one place of wall time.
    SessionStarted {
        /// Milliseconds since 1970.
        wall_unix_ms: u64,
    },
    /// The session ended.
    SessionEnded,
    /// The user began to speak and has (or wants) the floor.
    SpeechStarted {
        /// Names the stretch of speech.
        utterance: UtteranceId,
        /// Estimated first sound, on the capture clock.
        onset: Stamp,
    },
    /// The user stopped speaking (endpoint reached).
    SpeechEnded {
        /// The stretch of speech.
        utterance: UtteranceId,
        /// Estimated last sound, on the capture clock.
        end: Stamp,
    },
    /// Weak evidence: the answer is paused at an exact sample and can go on from there.
    Held {
        /// The stretch of speech that caused it.
        utterance: UtteranceId,
        /// Estimated first sound.
        onset: Stamp,
        /// What the decision rested on.
        evidence: Evidence,
    },
    /// A hold that turned out not to be a barge-in: the answer goes on from the held sample.
    FalseInterruption {
        /// The stretch of sound.
        utterance: UtteranceId,
        /// How long the answer was paused, microseconds.
        held_us: u64,
        /// What the decision rested on.
        evidence: Evidence,
    },
    /// The user took the floor. The record's turn is the interrupted one.
    BargeIn {
        /// The stretch of speech.
        utterance: UtteranceId,
        /// Estimated first sound.
        onset: Stamp,
        /// How much of the answer had been played, samples at the house rate.
        heard_until: SamplePos,
        /// What the decision rested on.
        evidence: Evidence,
    },
    /// The generation rose: everything older is stale from here.
    GenerationRaised {
        /// The generation that ended.
        from: Generation,
    },
    /// Unplayed audio was cleared at every place that can be told to.
    Cleared {
        /// The generation whose audio was cleared.
        stale: Generation,
    },
    /// What was recognised.
    Transcript {
        /// The stretch of speech.
        utterance: UtteranceId,
        /// The words.
        text: Pii<String>,
        /// Whether this is the recogniser's last word on it.
        is_final: bool,
    },
    /// A turn was accepted. Accepted is not answered.
    TurnAccepted {
        /// The turn that this one interrupted or corrects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<TurnId>,
        /// Absolute end.
        deadline: Stamp,
    },
    /// The user's input of this turn is complete and goes to the model.
    TurnStarted {
        /// What the user said or typed.
        input: Pii<String>,
    },
    /// A piece of work began.
    TaskStarted {
        /// Its name.
        task: TaskId,
        /// Which kind.
        stage: Stage,
    },
    /// A piece of work ended.
    TaskEnded {
        /// Its name.
        task: TaskId,
        /// Which kind.
        stage: Stage,
        /// How.
        outcome: TaskOutcome,
    },
    /// A fixed text is spoken; the record's turn asks no model.
    Announced {
        /// The text.
        text: Pii<String>,
    },
    /// A piece of the answer, as the model says it. Said is not heard.
    ReplyText {
        /// The piece.
        delta: Pii<String>,
    },
    /// The model's whole answer is there.
    ReplyDone,
    /// The model was asked, for the `request`-th time in this turn (from 1).
    ModelRequested {
        /// Which time.
        request: u32,
    },
    /// Further input of this turn was accepted. Accepted is not adopted.
    InputQueued {
        /// The request that brought it.
        input: RequestId,
        /// What was typed.
        text: Pii<String>,
    },
    /// The `request`-th question to the model shows this input to it.
    InputConsumed {
        /// The request that brought it.
        input: RequestId,
        /// Which question to the model.
        request: u32,
    },
    /// The turn ended before the model was shown this input: here it is back.
    InputReturned {
        /// The request that brought it.
        input: RequestId,
        /// What was typed.
        text: Pii<String>,
    },
    /// The model asks for a tool.
    CallRequested {
        /// Names the call.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it is asked, as the model wrote it.
        arguments: Pii<String>,
        /// Under which key it would change something outside.
        key: IdempotencyKey,
    },
    /// A person is asked whether this call may be made.
    ApprovalAsked {
        /// Which.
        call: CallId,
    },
    /// A person answered.
    ApprovalGiven {
        /// Which.
        call: CallId,
        /// Yes or no.
        granted: bool,
        /// The request that said so.
        request: RequestId,
    },
    /// The call runs.
    CallStarted {
        /// Which.
        call: CallId,
        /// The task that carries it out.
        task: TaskId,
    },
    /// The same thing is being asked already: this call gets the result of that one.
    CallJoined {
        /// Which.
        call: CallId,
        /// The one that runs.
        with: CallId,
    },
    /// The call passed a checkpoint.
    CallCheckpoint {
        /// Which.
        call: CallId,
        /// Where.
        checkpoint: Checkpoint,
    },
    /// The call is about to change something outside. Kept before it does.
    CommitIntent {
        /// Which.
        call: CallId,
        /// Under which key.
        key: IdempotencyKey,
    },
    /// The intent is kept, and the call has leave to commit: from here on nobody knows, until it says.
    CommitSent {
        /// Which.
        call: CallId,
    },
    /// The call outlives the turn that made it and belongs to the record's turn from here on.
    CallKept {
        /// Which.
        call: CallId,
        /// The turn that made it.
        from: TurnId,
    },
    /// The call ended, once. The record's turn is the one it belonged to.
    CallEnded {
        /// Which.
        call: CallId,
        /// How.
        ending: CallEnding,
        /// What it brought, when it is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Pii<String>>,
    },
    /// A call whose turn is over said late what became of it, or the outside was asked. The terminal stays.
    Reconciled {
        /// Which.
        call: CallId,
        /// What became of it.
        outcome: Outcome,
    },
    /// The application hands over: one turn stops, some of its calls are kept, and the record's turn follows it.
    HandedOver {
        /// The turn that stops.
        from: TurnId,
        /// The calls that are kept.
        keep: Vec<CallId>,
        /// What the next answer must heed.
        constraints: Pii<String>,
    },
    /// The first sample of the answer was played.
    AudioStarted,
    /// A cancel was accepted: stopping has begun. Requested is not stopped.
    CancelRequested {
        /// Why.
        cause: CancelCause,
        /// Who.
        initiator: Initiator,
        /// The request that did it.
        request: RequestId,
    },
    /// The turn ended, once.
    TurnEnded {
        /// How.
        terminal: Terminal,
        /// The part of the answer the user can have heard.
        heard: Pii<String>,
        /// The part that was made and never heard.
        unheard: Pii<String>,
        /// How the boundary was found.
        timing: Timing,
    },
    /// The last stale sample of a generation is out; with the tail, when a barge-in caused it.
    Silenced {
        /// The generation that fell silent.
        stale: Generation,
        /// Its last sample that was played.
        last_sample: SamplePos,
        /// Measured from the user's onset; absent when no voice caused the silence.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tail: Option<Tail>,
    },
    /// Output that came too late was dropped, and kept out of every door.
    LateDropped {
        /// Of which kind.
        kind: LateKind,
        /// The generation it was made under.
        stale: Generation,
    },
    /// The link to the client is gone: a fact, which by itself changes no turn.
    LinkLost,
    /// A link is there (again).
    LinkUp,
    /// The agent was waiting for audio and the loudspeaker ran dry.
    Underrun {
        /// Length of the gap, microseconds.
        gap_us: u64,
    },
    /// An input that made no sense in the present state. Counted and answered, never ignored in silence.
    Odd {
        /// What it was, a fixed word of the machine's.
        what: String,
    },
    /// A record of a newer version that this reader does not know.
    #[serde(other)]
    Unknown,
}

impl Event {
    /// How surely this must be kept before it has consequences.
    pub const fn durability(&self) -> Durability {
        match self {
            Event::CancelRequested { .. }
            | Event::TurnEnded { .. }
            | Event::GenerationRaised { .. }
            | Event::CommitIntent { .. }
            | Event::Reconciled { .. }
            | Event::SessionStarted { .. } => Durability::Synced,
            _ => Durability::Buffered,
        }
    }
}

/// Microseconds of a duration, for the `_us` fields of events.
pub const fn duration_us(d: Duration) -> u64 {
    d.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: Event) -> Record {
        Record { v: VERSION, seq: Seq(5), at: Stamp::from_millis(70), turn: Some(TurnId(2)), generation: Generation(7), event }
    }

    #[test]
    fn a_record_survives_json() {
        let before = record(Event::BargeIn {
            utterance: UtteranceId(3),
            onset: Stamp::from_millis(10),
            heard_until: SamplePos(960),
            evidence: Evidence { voiced_us: 160_000, speech: 0.9, ..Evidence::default() },
        });
        let json = serde_json::to_string(&before).expect("a record serialises");
        assert!(json.contains(r#""type":"barge_in""#), "{json}");
        assert_eq!(serde_json::from_str::<Record>(&json).expect("and comes back"), before);
    }

    #[test]
    fn a_newer_event_is_unknown_and_not_an_error() {
        let json = r#"{"v":9,"seq":1,"at":0,"generation":1,"event":{"type":"from_the_future","x":1},"more":true}"#;
        let read: Record = serde_json::from_str(json).expect("an old reader reads on");
        assert_eq!(read.event, Event::Unknown);
        assert_eq!(read.turn, None);
    }

    #[test]
    fn what_was_said_never_reaches_a_log() {
        let line = format!("{:?}", record(Event::TurnStarted { input: "my secret".into() }));
        assert!(!line.contains("secret"), "{line}");
    }
}
