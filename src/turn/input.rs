//! What the world tells the machine. Every input carries facts; none carries a decision.

use crate::event::{CancelCause, Checkpoint, Initiator, LateKind, Outcome, Outside, Pii, Retry, Timing};
use crate::id::{CallId, Generation, RequestId, Seq, SessionId, TaskId, TurnId};
use crate::time::{SamplePos, Stamp};

/// One input of [`super::Machine::step`].
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The session begins. The first input of a new machine.
    Begin {
        /// Its name, which makes keys of tool calls unique.
        session: SessionId,
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
    /// [`Command::Submit`].
    Submit,
    /// [`Command::Announce`].
    Announce,
    /// [`Command::Handover`].
    Handover,
    /// [`Command::Approve`].
    Approve,
    /// [`Command::Resolve`].
    Resolve,
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
            | Command::Submit { request, .. }
            | Command::Announce { request, .. }
            | Command::Handover { request, .. }
            | Command::Approve { request, .. }
            | Command::Resolve { request, .. }
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
            Command::Submit { .. } => RequestKind::Submit,
            Command::Announce { .. } => RequestKind::Announce,
            Command::Handover { .. } => RequestKind::Handover,
            Command::Approve { .. } => RequestKind::Approve,
            Command::Resolve { .. } => RequestKind::Resolve,
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
    /// Input that may steer the running turn instead of replacing it. The request id is the client's name of this input: sent again,
    /// it takes effect once.
    Submit {
        /// Names the request and the input.
        request: RequestId,
        /// What was typed.
        text: Pii<String>,
        /// When it may be taken.
        mode: SubmitMode,
    },
    /// Speak this text as it stands, without asking the model: a turn that cannot be steered.
    Announce {
        /// Names the request.
        request: RequestId,
        /// What is spoken.
        text: Pii<String>,
        /// Whether a voice may interrupt it once it sounds. (Before, everything can be superseded.)
        interruptible: bool,
    },
    /// One turn stops, some of its calls are kept, and another follows it.
    Handover {
        /// Names the request.
        request: RequestId,
        /// What stops, stays and comes.
        handover: Handover,
    },
    /// A person allows a call, or does not.
    Approve {
        /// Names the request.
        request: RequestId,
        /// Which call.
        call: CallId,
        /// Yes or no.
        granted: bool,
    },
    /// A person found out what became of a call that nobody could tell of.
    Resolve {
        /// Names the request.
        request: RequestId,
        /// Which call.
        call: CallId,
        /// What became of it.
        outcome: Outcome,
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
        /// When stopping must be over, if sooner than the grace.
        deadline: Option<Stamp>,
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

/// When a submitted input may be taken (mission S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmitMode {
    /// It steers the running turn, or starts one.
    StartOrSteer,
    /// It starts a turn, and only when none is running.
    StartIfIdle,
    /// It steers this turn and no other.
    Steer {
        /// The turn that its author looks at.
        expected: TurnId,
    },
}

/// One turn stops, some of its calls are kept, and another follows it (mission S5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The turn that stops. One that has ended already is only the parent of the next.
    pub stop: TurnId,
    /// Calls of it that go on, for the next turn. Those that are not running are ignored.
    pub keep: Vec<CallId>,
    /// The input of the next turn.
    pub next: Pii<String>,
    /// What its answer must heed; shown to the model as an instruction. May be empty.
    pub constraints: Pii<String>,
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
    /// The block's share of a sure voice, 0 to slightly above 1; the sum of them when blocks were merged. What is decided by.
    pub weight: f32,
}

impl Voice {
    /// A block of sure voice, loud over a quiet room: for tests and simulations.
    pub const fn sure(at: Stamp, since: Stamp) -> Self {
        Voice { at, since, speech: 0.95, quick: true, level_dbfs: -20.0, noise_dbfs: -60.0, explained: 0.0, weight: 1.0 }
    }
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
    /// Generating: the model asks for a tool.
    Call {
        /// The tool's name, as the model wrote it.
        tool: String,
        /// What it is asked.
        arguments: Pii<String>,
        /// The tool's own key for this intent, if it makes one; the same intent has the same key.
        key: Option<String>,
    },
    /// Retrieving: what was found for the model. At most one.
    Found {
        /// The text.
        text: Pii<String>,
    },
    /// A tool passed a checkpoint.
    Checkpoint {
        /// Which.
        checkpoint: Checkpoint,
    },
    /// A tool asks for leave to change something outside; it waits for [`super::Effect::LetCommit`].
    CommitAsked,
    /// A tool has its result: it is done, whatever becomes of its turn. At most one.
    Result {
        /// What it brought.
        text: Pii<String>,
    },
    /// Reconciling: what the outside says. At most one.
    Probed {
        /// What it says.
        outside: Outside,
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
    /// Its provider failed. A tool says by it that nothing was changed.
    Failed(Retry),
    /// A tool that had leave to commit, and does not know whether it happened.
    Unknown,
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
