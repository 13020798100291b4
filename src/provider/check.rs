//! `provider::check`: the contract of a provider as a suite that its author can run. Layer 2.
//!
//! [`stt()`], [`llm()`], [`tts()`], [`retriever()`] and [`tool()`] panic with everything that is wrong, which is what a test wants;
//! [`examine_stt`], [`examine_llm`], [`examine_tts`], [`examine_retriever`] and [`examine_tool`] give a report instead. Each runs the
//! provider several times: plainly, with odd input, twice at once, and stopped at every kind of moment (see [`Part`] and [`ToolPart`]).
//! They need a tokio runtime with time and are as fast as the provider is; under tokio's paused time a scripted provider takes no time
//! at all.
//!
//! What it cannot see: whether the words are right, and what goes on elsewhere after a stop ([`Stops`](super::Stops)).
//! Proved by `check::tests`, where every rule catches a provider made to break it.

mod llm;
mod retriever;
mod run;
mod stt;
mod tool;
mod tts;

use std::fmt;
use std::time::Duration;

use super::{Llm, Retriever, Stt, Tts};

pub use llm::examine_llm;
pub use retriever::examine_retriever;
pub use stt::examine_stt;
pub use tool::{ToolFailure, ToolPart, ToolReport, examine_tool, tool};
pub use tts::examine_tts;

/// What is asked of a provider. Every limit is generous: it finds what hangs, not what is slow.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Terms {
    /// From the first input to the first output (for a recogniser: from the end of the utterance). Default 10 s.
    pub first: Duration,
    /// From a stop to the return. Default 1 s.
    pub grace: Duration,
    /// For one whole answer. Default 120 s.
    pub whole: Duration,
    /// What a recogniser is given to hear, at the rate of its `Info`. Default: 1.5 s of a tone that comes and goes.
    pub utterance: Option<Vec<f32>>,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { first: Duration::from_secs(10), grace: Duration::from_secs(1), whole: Duration::from_secs(120), utterance: None }
    }
}

/// One run of a provider in the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// An ordinary call.
    Plain,
    /// Input without anything in it.
    Empty,
    /// Input of many scripts, in odd pieces.
    Unicode,
    /// Tools are offered to a model.
    Tools,
    /// A model is shown calls with every kind of result, one still running.
    Results,
    /// Two calls at the same time.
    TwoAtOnce,
    /// Stopped before there was any input.
    StoppedAtOnce,
    /// Stopped after its first output.
    Stopped,
    /// Stopped while it waits for room in a full sink.
    StoppedWhenFull,
    /// Nobody listens any more.
    HungUp,
    /// An ordinary call after all the stops.
    Again,
}

/// A rule that was broken, and in which part.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The first output came too late or never.
    #[error("{0:?}: no output within {1:?}")]
    FirstLate(Part, Duration),
    /// It did not return.
    #[error("{0:?}: it has not returned within {1:?}")]
    NeverEnded(Part, Duration),
    /// It was told to stop, or nobody listened, and it did not return within the grace.
    #[error("{0:?}: it has not stopped within {1:?}")]
    NotStopped(Part, Duration),
    /// It returned an error where it should have done its work.
    #[error("{0:?}: it failed: {1}")]
    Failed(Part, String),
    /// It panicked.
    #[error("{0:?}: it panicked")]
    Panicked(Part),
    /// It was stopped, and returned something else than [`ProviderError::Stopped`](super::ProviderError::Stopped).
    #[error("{0:?}: it was stopped in the middle and returned {1}")]
    NotPolite(Part, String),
    /// Output came after it had returned.
    #[error("{0:?}: output came after it had returned")]
    AfterReturn(Part),
    /// It has returned, and something of it still holds the sink.
    #[error("{0:?}: something still holds the sink after it has returned")]
    StillHolds(Part),
    /// The chunks account for another number of characters than the text has.
    #[error("{part:?}: the text has {given} characters and the chunks speak {spoken}")]
    Chars {
        /// In which part.
        part: Part,
        /// Characters of the text.
        given: usize,
        /// Characters accounted for.
        spoken: usize,
    },
    /// It accounted for characters before it was given them.
    #[error("{0:?}: it speaks more characters than it was given")]
    SpeaksAhead(Part),
    /// A sample is not a number or outside -1..=1.
    #[error("{0:?}: a sample is not in -1..=1")]
    BadSample(Part),
    /// There was text and no sound, or a question and no answer.
    #[error("{0:?}: nothing came of it")]
    Nothing(Part),
    /// It asks for a tool that it was not offered.
    #[error("{0:?}: it asks for a tool that it was not offered: {1:?}")]
    NotOffered(Part, String),
    /// The arguments of a call are no JSON.
    #[error("{0:?}: the arguments of its call of {1} are not JSON")]
    BadArguments(Part, String),
    /// Not exactly one final transcript.
    #[error("{0:?}: {1} final transcripts")]
    Finals(Part, usize),
    /// A transcript came after the final one.
    #[error("{0:?}: a transcript came after the final one")]
    AfterFinal(Part),
}

/// What the suite found.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a report that nobody reads proves nothing"]
pub struct Report {
    /// The provider's name.
    pub name: String,
    /// What was broken, in the order of the parts; empty is a pass.
    pub failures: Vec<Failure>,
    /// How long the first output of the plain part took.
    pub first: Option<Duration>,
}

impl Report {
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.passed() {
            return write!(f, "{} keeps the contract", self.name);
        }
        write!(f, "{} breaks the contract:", self.name)?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// Runs the suite on a synthesizer.
///
/// # Panics
/// With everything that is wrong.
pub async fn tts(provider: impl Tts) {
    examine_tts(provider, &Terms::default()).await.assert();
}

/// Runs the suite on a language model.
///
/// # Panics
/// With everything that is wrong.
pub async fn llm(provider: impl Llm) {
    examine_llm(provider, &Terms::default()).await.assert();
}

/// Runs the suite on a recogniser.
///
/// # Panics
/// With everything that is wrong.
pub async fn stt(provider: impl Stt) {
    examine_stt(provider, &Terms::default()).await.assert();
}

/// Runs the suite on a retriever.
///
/// # Panics
/// With everything that is wrong.
pub async fn retriever(provider: impl Retriever) {
    examine_retriever(provider, &Terms::default()).await.assert();
}

#[cfg(test)]
mod tests;
