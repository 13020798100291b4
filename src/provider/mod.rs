//! `provider`: listens, thinks, speaks. Traits and the adapters behind them.
//!
//! * Layer 2. Imports layer 0 and tokio. Never `turn` or `transport`: an adapter must not know who asks.
//! * The traits are written for their authors (`async fn`); one private blanket impl turns each into the boxed form the engine keeps.
//! * An author never sees a generation: it is stamped outside, and what comes late is dropped outside.
//! * A stop is polite: [`TaskCx::until_stopped`] and every sink give [`ProviderError::Stopped`], which `?` carries out. Whoever does
//!   not listen is aborted after the grace and fenced anyway.
//! * Proved by [`check`], the contract suite that third parties can run on theirs.

pub mod check;
pub mod llm;
pub mod pace;
mod program;
pub mod retrieve;
pub mod script;
pub mod stt;
pub mod tool;
pub mod tts;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::event::{CallEnding, CallFailure, NotStarted, Pii, Retry, Timing};
use crate::id::CallId;
use crate::time::{Clock, SampleRate, Stamp};

pub use retrieve::{AnyRetriever, Retriever};
pub use tool::{AnyTool, Tool, ToolCall, ToolCx, ToolInfo};

/// What a task is given besides its work: its end, its stop signal, its clock.
#[derive(Clone)]
pub struct TaskCx {
    clock: Arc<dyn Clock>,
    deadline: Stamp,
    stop: CancellationToken,
}

impl TaskCx {
    /// A context that ends at `deadline` and stops when `stop` is cancelled.
    pub fn new(clock: Arc<dyn Clock>, deadline: Stamp, stop: CancellationToken) -> Self {
        TaskCx { clock, deadline, stop }
    }

    /// The absolute end of this task (session time).
    pub fn deadline(&self) -> Stamp {
        self.deadline
    }

    /// Session time.
    pub fn now(&self) -> Stamp {
        self.clock.now()
    }

    /// Whether the task was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Resolves when the task is told to stop.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// `work`, or [`ProviderError::Stopped`] as soon as the task is told to stop. `work` is dropped then.
    pub async fn until_stopped<F: Future>(&self, work: F) -> Result<F::Output, ProviderError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(ProviderError::Stopped),
            out = work => Ok(out),
        }
    }

    /// Waits for `time`, or less when the task is told to stop ([`ProviderError::Stopped`]). For providers that pace themselves.
    #[allow(clippy::disallowed_methods, reason = "a provider's own pacing; nothing is decided by it")]
    pub async fn rest(&self, time: Duration) -> Result<(), ProviderError> {
        if time.is_zero() {
            return if self.is_stopped() { Err(ProviderError::Stopped) } else { Ok(()) };
        }
        self.until_stopped(tokio::time::sleep(time)).await
    }
}

/// Why a provider did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// It was told to stop: the polite end, not a fault.
    #[error("told to stop")]
    Stopped,
    /// The program, file or address it needs is not there. `help` says what to install or set.
    #[error("{what} is not available: {help}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// What to do.
        help: String,
    },
    /// It refused the request.
    #[error("refused: {why}")]
    Refused {
        /// Its reason, without the request's content.
        why: String,
    },
    /// A tool that had leave to commit, and does not know whether it happened. Never tried again: it is asked after.
    #[error("not known whether it happened: {why}")]
    Unknown {
        /// What happened, without the call's content.
        why: String,
    },
    /// It broke off. From a tool: nothing was changed.
    #[error("broke off: {why}")]
    Broken {
        /// What happened.
        why: String,
        /// What may be done about it.
        retry: Retry,
    },
}

impl ProviderError {
    /// Whether the same request may be tried again.
    pub fn retry(&self) -> Retry {
        match self {
            ProviderError::Stopped | ProviderError::Refused { .. } | ProviderError::Unknown { .. } => Retry::Never,
            ProviderError::Unavailable { .. } => Retry::AskAgain,
            ProviderError::Broken { retry, .. } => *retry,
        }
    }
}

/// What a provider does when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// Its remote or local work ends too.
    Promptly,
    /// It only stops delivering; the work elsewhere may go on unseen.
    DeliveryOnly,
}

/// Facts about a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name in logs and traces.
    pub name: String,
    /// The rate of the audio it takes or makes; ignored for a model.
    pub rate: SampleRate,
    /// What a stop does.
    pub stops: Stops,
}

impl Info {
    /// A provider called `name` that stops promptly and works at 16 kHz.
    pub fn new(name: impl Into<String>) -> Self {
        Info { name: name.into(), rate: SampleRate::HZ_16000, stops: Stops::Promptly }
    }

    /// The same at another rate.
    #[must_use]
    pub fn at(mut self, rate: SampleRate) -> Self {
        self.rate = rate;
        self
    }

    /// The same with another manner of stopping.
    #[must_use]
    pub fn stops(mut self, stops: Stops) -> Self {
        self.stops = stops;
        self
    }
}

/// The sending half of a task's output: bounded, and it waits when the session is busy.
#[derive(Clone, Debug)]
pub struct Sink<T> {
    to: mpsc::Sender<T>,
}

impl<T> Sink<T> {
    /// A sink and its receiving half, with room for `bound` items.
    pub fn new(bound: usize) -> (Self, mpsc::Receiver<T>) {
        let (to, from) = mpsc::channel(bound);
        (Sink { to }, from)
    }

    /// Delivers `item`, waiting for room. [`ProviderError::Stopped`] when nobody listens any more.
    pub async fn send(&self, item: T) -> Result<(), ProviderError> {
        self.to.send(item).await.map_err(|_| ProviderError::Stopped)
    }
}

/// A piece of microphone sound for a recogniser: mono `f32` in -1..=1 at the rate of its [`Info`].
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// Samples.
    pub samples: Vec<f32>,
    /// Samples missing before these because a queue was full.
    pub gap: u64,
}

/// The microphone sound of one utterance, pre-roll first. Ends when the utterance is over.
#[derive(Debug)]
pub struct AudioStream {
    from: mpsc::Receiver<Heard>,
}

impl AudioStream {
    /// A stream fed by the returned sender, with room for `bound` pieces. Dropping the sender ends the utterance.
    pub fn new(bound: usize) -> (mpsc::Sender<Heard>, Self) {
        let (to, from) = mpsc::channel(bound);
        (to, AudioStream { from })
    }

    /// The next piece, or `None` when the utterance is over.
    pub async fn next(&mut self) -> Option<Heard> {
        self.from.recv().await
    }
}

/// What was recognised of an utterance, as known now: the whole text, not a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcript {
    /// The words.
    pub text: Pii<String>,
    /// Whether this is the last word on it.
    pub is_final: bool,
}

/// Speech to text.
///
/// 1. `listen` is called once an utterance, with audio from before its onset.
/// 2. It may send partial transcripts while audio comes.
/// 3. When the audio ends it sends exactly one final transcript (empty when there were no words) and returns.
/// 4. Told to stop, it returns [`ProviderError::Stopped`] and lets go of everything.
pub trait Stt: Send + Sync + 'static {
    /// Facts about it.
    fn info(&self) -> Info;

    /// Recognises one utterance.
    fn listen(
        &self,
        audio: AudioStream,
        out: Sink<Transcript>,
        cx: TaskCx,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;
}

/// One entry of the conversation for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The application's instructions.
    System {
        /// What.
        text: Pii<String>,
    },
    /// The person said or typed this.
    User {
        /// What.
        text: Pii<String>,
    },
    /// The model said this, and it was *heard*.
    Assistant {
        /// What.
        text: Pii<String>,
        /// Whether it was interrupted here.
        interrupted: bool,
    },
    /// The model asked for a tool. Followed by its one [`Message::Result`].
    Call {
        /// Names the call in this session.
        call: CallId,
        /// The tool.
        tool: String,
        /// What it was asked, as the model wrote it.
        arguments: Pii<String>,
    },
    /// What became of a call.
    Result {
        /// Which call.
        call: CallId,
        /// How it ended; `None` while it still runs.
        ending: Option<CallEnding>,
        /// What it brought; empty unless it is done.
        text: Pii<String>,
    },
}

impl Message {
    /// The person said or typed `text`.
    pub fn user(text: impl Into<Pii<String>>) -> Self {
        Message::User { text: text.into() }
    }

    /// The model said `text`, and it was heard to its end.
    pub fn assistant(text: impl Into<Pii<String>>) -> Self {
        Message::Assistant { text: text.into(), interrupted: false }
    }

    /// The application instructs the model by `text`.
    pub fn system(text: impl Into<Pii<String>>) -> Self {
        Message::System { text: text.into() }
    }

    /// The text of a result in words for a model: what the tool brought, or what became of it, honestly.
    pub fn result_in_words(ending: Option<CallEnding>, text: &str) -> String {
        match ending {
            Some(CallEnding::Done) => text.to_owned(),
            None => {
                "This call is still running; its result is not known yet. Do not call it again and do not invent a result.".into()
            }
            Some(CallEnding::Failed { failure: CallFailure::Timeout }) => {
                "The tool took too long and was stopped. Nothing was changed.".into()
            }
            Some(CallEnding::Failed { failure: CallFailure::Tool { .. } }) => "The tool failed. Nothing was changed.".into(),
            Some(CallEnding::Cancelled) => "The call was stopped before it changed anything.".into(),
            Some(CallEnding::Unknown) => {
                "It is not known whether this happened. It is being asked after; do not try again and do not claim either.".into()
            }
            Some(CallEnding::NotStarted { why }) => match why {
                NotStarted::NoBudget => "The call was not made: too little time was left.",
                NotStarted::UnknownTool => "The call was not made: there is no such tool.",
                NotStarted::Refused => "The call was not made: the person did not allow it.",
                NotStarted::Cancelled => "The call was not made: the answer was stopped before.",
                NotStarted::TooMany => "The call was not made: too many calls in one answer.",
                NotStarted::EarlierUnknown => {
                    "The call was not made: it is not known yet whether an earlier one happened. Do not try again."
                }
            }
            .into(),
        }
    }
}

/// What a model is asked.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// The conversation, the user's input or a tool's result last.
    pub conversation: Vec<Message>,
    /// The tools it may ask for.
    pub tools: Arc<[ToolInfo]>,
}

impl Prompt {
    /// A conversation without tools.
    pub fn new(conversation: Vec<Message>) -> Self {
        Prompt { conversation, tools: Arc::new([]) }
    }
}

/// A piece of a model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next words.
    Text(Pii<String>),
    /// It asks for a tool.
    Call {
        /// The tool's name.
        tool: String,
        /// What it is asked: JSON, complete.
        arguments: Pii<String>,
    },
}

impl Piece {
    /// The words of it; empty for a call.
    pub fn words(&self) -> &str {
        match self {
            Piece::Text(text) => text.reveal(),
            Piece::Call { .. } => "",
        }
    }
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Piece::Text(text.into())
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Self {
        Piece::Text(text.into())
    }
}

/// A language model.
///
/// 1. `reply` is called with the conversation: once a turn, and once more after each round of tools or further input.
/// 2. It sends the answer in pieces, in order, as they come; a call only when its arguments are complete.
/// 3. It returns when the answer is complete. If it asked for tools, it will be asked again with their results.
/// 4. Told to stop, it returns [`ProviderError::Stopped`] and, if it can, ends the work elsewhere.
pub trait Llm: Send + Sync + 'static {
    /// Facts about it.
    fn info(&self) -> Info;

    /// Answers the conversation.
    fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> impl Future<Output = Result<(), ProviderError>> + Send;
}

/// The text of one answer for a synthesizer, as it comes from the model. Ends when the answer is complete.
#[derive(Debug)]
pub struct Words {
    from: mpsc::Receiver<Pii<String>>,
}

impl Words {
    /// A stream fed by the returned sender, with room for `bound` pieces. Dropping the sender ends the text.
    pub fn new(bound: usize) -> (mpsc::Sender<Pii<String>>, Self) {
        let (to, from) = mpsc::channel(bound);
        (to, Words { from })
    }

    /// The next piece, or `None` when the text is complete.
    pub async fn next(&mut self) -> Option<Pii<String>> {
        self.from.recv().await
    }
}

/// A stretch of synthesized sound: mono `f32` in -1..=1 at the rate of its synthesizer's [`Info`].
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Samples; any number.
    pub samples: Vec<f32>,
    /// How many characters (Unicode scalar values) of the text it speaks, in order; all chunks of an answer together speak all
    /// of its characters.
    pub chars: usize,
    /// How well that is known.
    pub timing: Timing,
}

/// Text to speech.
///
/// 1. `speak` is called once a turn, and text arrives while it speaks.
/// 2. It sends chunks in order; together they account for every character of the text.
/// 3. It returns when the text is complete and spoken.
/// 4. Told to stop, it returns [`ProviderError::Stopped`]; nothing it sends later is heard.
pub trait Tts: Send + Sync + 'static {
    /// Facts about it.
    fn info(&self) -> Info;

    /// Speaks one answer.
    fn speak(&self, text: Words, out: Sink<Chunk>, cx: TaskCx) -> impl Future<Output = Result<(), ProviderError>> + Send;
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), ProviderError>> + Send + 'a>>;

macro_rules! erased {
    ($(#[$doc:meta])* $dyn_trait:ident, $handle:ident, $of:ident, $method:ident($($arg:ident: $ty:ty),*)) => {
        trait $dyn_trait: Send + Sync + 'static {
            fn info(&self) -> Info;
            fn $method(&self, $($arg: $ty,)* cx: TaskCx) -> Work<'_>;
        }

        impl<P: $of> $dyn_trait for P {
            fn info(&self) -> Info {
                $of::info(self)
            }
            fn $method(&self, $($arg: $ty,)* cx: TaskCx) -> Work<'_> {
                Box::pin($of::$method(self, $($arg,)* cx))
            }
        }

        $(#[$doc])*
        #[derive(Clone)]
        pub struct $handle(Arc<dyn $dyn_trait>);

        impl $handle {
            /// Wraps a provider.
            pub fn new(provider: impl $of) -> Self {
                $handle(Arc::new(provider))
            }

            /// Facts about it.
            pub fn info(&self) -> Info {
                self.0.info()
            }

            /// Runs it; see the trait.
            pub async fn $method(&self, $($arg: $ty,)* cx: TaskCx) -> Result<(), ProviderError> {
                self.0.$method($($arg,)* cx).await
            }
        }
    };
}

erased!(
    /// Any [`Stt`], as the engine keeps it.
    DynStt, AnyStt, Stt, listen(audio: AudioStream, out: Sink<Transcript>)
);
erased!(
    /// Any [`Llm`], as the engine keeps it.
    DynLlm, AnyLlm, Llm, reply(prompt: Prompt, out: Sink<Piece>)
);
erased!(
    /// Any [`Tts`], as the engine keeps it.
    DynTts, AnyTts, Tts, speak(text: Words, out: Sink<Chunk>)
);
