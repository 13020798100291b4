//! What the world tells the machine. Every input carries facts; none carries a decision.

use crate::event::{CancelCause, Initiator, LateKind, Pii, Retry, Timing};
use crate::id::{Generation, RequestId, Seq, TaskId, TurnId};
use crate::time::{SamplePos, Stamp};

/// One input of [`super::Machine::step`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The session begins. The first input of a new machine.
    Begin {
        /// Wall time, for the session's header record.
        wall_unix_ms: u64,
    },
    /// Time passed; a timer may be due.
    Tick,
    /// A handle or a client asks for something.
    Command(Command),
    /// What the detectors made of one block from the microphone.
    Voice(Voice),
    /// A running task reports.
    Task {
        /// Which.
        task: TaskId,
        /// What.
        report: Report,
    },
    /// How far the sound really got.
    Playout(Playout),
    /// The link to the client.
    Link(LinkFact),
    /// Output that a door outside the machine refused as stale (ring writer, far end).
    Late {
        /// Of which kind.
        kind: LateKind,
        /// Made under which generation.
        generation: Generation,
    },
    /// The store has this record and all before it.
    Appended {
        /// The last stored record.
        seq: Seq,
    },
}

/// What kind of thing a request asks for. A request id names one request of one kind; the same id on another kind is another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// [`Command::Say`].
    Say,
    /// [`Command::Cancel`].
    Cancel,
    /// [`Command::PushToTalk`], down.
    KeyDown,
    /// [`Command::PushToTalk`], up.
    KeyUp,
    /// [`Command::Drain`].
    Drain,
    /// [`Command::Close`].
    Close,
}

impl Command {
    /// The id under which it is answered.
    pub const fn request(&self) -> RequestId {
        match self {
            Command::Say { request, .. }
            | Command::Cancel { request, .. }
            | Command::PushToTalk { request, .. }
            | Command::Drain { request }
            | Command::Close { request, .. } => *request,
        }
    }

    /// What kind of request it is.
    pub const fn kind(&self) -> RequestKind {
        match self {
            Command::Say { .. } => RequestKind::Say,
            Command::Cancel { .. } => RequestKind::Cancel,
            Command::PushToTalk { down: true, .. } => RequestKind::KeyDown,
            Command::PushToTalk { down: false, .. } => RequestKind::KeyUp,
            Command::Drain { .. } => RequestKind::Drain,
            Command::Close { .. } => RequestKind::Close,
        }
    }
}

/// Something asked for. Each carries the request id under which it is answered ([`super::Effect::Answer`]), so that asking twice has
/// one effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Typed text: starts a turn, superseding a running one.
    Say {
        /// Names the request.
        request: RequestId,
        /// What was typed.
        text: Pii<String>,
    },
    /// Stop a turn. It always names its target.
    Cancel {
        /// Names the request.
        request: RequestId,
        /// The turn to stop.
        turn: TurnId,
        /// Why.
        cause: CancelCause,
        /// Who asks.
        initiator: Initiator,
    },
    /// The push-to-talk key. While it is down the user has the floor; letting go ends the utterance.
    PushToTalk {
        /// Names the request.
        request: RequestId,
        /// Down or up.
        down: bool,
    },
    /// Take no new turns, let the running one end.
    Drain {
        /// Names the request.
        request: RequestId,
    },
    /// End the session: cancel what runs, then no more.
    Close {
        /// Names the request.
        request: RequestId,
        /// Why.
        cause: CancelCause,
    },
}

/// What the detectors made of one 10 ms block of microphone sound. Sent for every block with something in it, and for half a second
/// after; no voice input means silence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Voice {
    /// Capture time of the end of the block.
    pub at: Stamp,
    /// Estimated first sample of the present stretch of sound, by level over the noise floor.
    pub since: Stamp,
    /// Speech probability, 0..=1.
    pub speech: f32,
    /// The fast, credulous detector's word.
    pub quick: bool,
    /// Level of the block, dB relative to full scale.
    pub level_dbfs: f32,
    /// Learned noise floor, dB relative to full scale.
    pub noise_dbfs: f32,
    /// How far the block is explained by what we play ourselves, 0..=1.
    pub explained: f32,
}

/// What a task reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Listening: words so far, or the last word on the utterance.
    Transcript {
        /// The whole text of the utterance as known now.
        text: Pii<String>,
        /// Whether the recogniser is done with it.
        is_final: bool,
    },
    /// Generating: the next piece of the answer.
    Text {
        /// The piece.
        delta: Pii<String>,
    },
    /// Synthesizing: the next stretch of audio is here and asks to be played ([`super::Effect::Play`] is the leave).
    Audio {
        /// Its length in samples at the house rate.
        samples: u64,
        /// How many characters (Unicode scalar values) of the text fed to this task it speaks, in order.
        chars: usize,
        /// How well the synthesizer knows that.
        timing: Timing,
    },
    /// The task is over. Its last report.
    Ended(Ended),
}

/// How a task was over, from its own point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It reached its own end.
    Finished,
    /// It was told to stop, and did.
    Stopped,
    /// It was aborted after its grace.
    Aborted,
    /// Its provider failed.
    Failed(Retry),
}

/// How far the sound really got. Positions count samples at the house rate within one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Playout {
    /// The person has heard the samples before `position`.
    Progress {
        /// Of which generation.
        generation: Generation,
        /// Samples heard.
        position: SamplePos,
        /// When the last of them sounded.
        at: Stamp,
    },
    /// A hold or a raised fence took effect, and the generation is silent.
    Quiet {
        /// The generation that fell silent.
        generation: Generation,
        /// By a hold (it may go on) or by the cut (never).
        by: QuietBy,
        /// Samples of it that were heard.
        last: SamplePos,
        /// When the audio reader first saw the hold or the fence.
        seen_at: Stamp,
        /// When the last stale sample was handed to the link.
        handed_at: Stamp,
        /// When that sample ended at the loudspeaker.
        sounded_at: Stamp,
        /// Whether `sounded_at` was reported by the far end (`true`) or computed from its declared bound.
        measured: bool,
    },
    /// The reader wanted audio of this generation and there was none.
    Underrun {
        /// Of which generation.
        generation: Generation,
        /// When the gap began.
        at: Stamp,
        /// How long the gap was, microseconds.
        gap_us: u64,
    },
}

/// What silenced a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuietBy {
    /// A hold: reversible.
    Hold,
    /// A raised fence: for ever.
    Cut,
}

/// The state of the link: a fact that by itself changes no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFact {
    /// A link is there (again).
    Up,
    /// The link is gone.
    Lost,
}
