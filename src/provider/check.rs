//! `provider::check`: the contract of a provider as a suite that its author can run. Layer 2.
//!
//! [`stt`], [`llm`] and [`tts`] panic with everything that is wrong, which is what a test wants; [`examine_stt`], [`examine_llm`]
//! and [`examine_tts`] give a [`Report`] instead. Each runs the provider several times: plainly, with odd input, twice at once, and
//! stopped at every kind of moment (see [`Part`]). They need a tokio runtime with time and are as fast as the provider is; under
//! tokio's paused time a scripted provider takes no time at all.
//!
//! What it cannot see: whether the words are right, and what goes on elsewhere after a stop ([`Stops`](super::Stops)).
//! Proved by `check::tests`, where every rule catches a provider made to break it.

mod run;

use std::fmt;
use std::time::Duration;

use super::{AnyLlm, AnyStt, AnyTts, AudioStream, Chunk, Heard, Llm, Speaker, Stt, Transcript, Tts, Turn, Words};
use crate::event::Pii;
use crate::time::SampleRate;
use run::{Interrupt, Run, run};

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

const PLAIN: &[&str] = &["Good ", "morning. This is", " a test of the", " voice, in two sentences."];
const UNICODE: &[&str] = &["Grüße", " aus Köln! ", "e\u{301}te\u{301}, ", "你好。", " 🙂👩\u{200d}👧 ", "3.14", "15\n\n", "—…"];
/// Long enough that no synthesizer has sent it all before it is stopped: about a minute.
const LONG: &str = "This sentence is here to be spoken for a while, until somebody says that it is enough, and then it ends. ";

/// Runs the suite on a synthesizer and reports.
pub async fn examine_tts(provider: impl Tts, terms: &Terms) -> Report {
    let provider = AnyTts::new(provider);
    let mut report = Report { name: provider.info().name, failures: Vec::new(), first: None };
    report.first = speak(&provider, terms, Part::Plain, PLAIN, &mut report.failures).await;
    speak(&provider, terms, Part::Empty, &[], &mut report.failures).await;
    speak(&provider, terms, Part::Unicode, UNICODE, &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        speak(&provider, terms, Part::TwoAtOnce, PLAIN, &mut one),
        speak(&provider, terms, Part::TwoAtOnce, UNICODE, &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    for (part, interrupt, pieces) in [
        (Part::StoppedAtOnce, Interrupt::AtOnce, 0),
        (Part::Stopped, Interrupt::AfterFirst, 10),
        (Part::StoppedWhenFull, Interrupt::WhenFull, 10),
        (Part::HungUp, Interrupt::HangUp, 10),
    ] {
        let (words, text) = Words::new(16);
        for _ in 0..pieces {
            words.try_send(LONG.into()).expect("room for the pieces");
        }
        let provider = provider.clone();
        let done = run(terms, interrupt, move |out, cx| async move { provider.speak(text, out, cx).await }).await;
        // The text has not ended, so that returning `Ok` would be giving up.
        drop(words);
        done.stopped(part, terms, interrupt, true, &mut report.failures);
    }
    speak(&provider, terms, Part::Again, PLAIN, &mut report.failures).await;
    report
}

async fn speak(provider: &AnyTts, terms: &Terms, part: Part, pieces: &[&str], failures: &mut Vec<Failure>) -> Option<Duration> {
    let (words, text) = Words::new(1);
    let given = pieces.iter().map(|p| p.chars().count()).sum::<usize>();
    let provider = provider.clone();
    let giving = async {
        for piece in pieces {
            if words.send((*piece).into()).await.is_err() {
                break;
            }
        }
        drop(words);
    };
    let running = run::<Chunk, _>(terms, Interrupt::Never, move |out, cx| async move { provider.speak(text, out, cx).await });
    let (done, ()) = tokio::join!(running, giving);
    if done.completed(part, terms, given > 0, failures) {
        let chunks = || done.items.iter().map(|i| &i.1);
        let spoken: usize = chunks().map(|c| c.chars).sum();
        if spoken != given {
            failures.push(Failure::Chars { part, given, spoken });
        }
        if given > 0 && chunks().all(|c| c.samples.is_empty()) {
            failures.push(Failure::Nothing(part));
        }
    }
    let mut told = 0;
    if done.items.iter().any(|(_, c)| {
        told += c.chars;
        told > given
    }) {
        failures.push(Failure::SpeaksAhead(part));
    }
    if done.items.iter().any(|(_, c)| c.samples.iter().any(|s| !(-1.0..=1.0).contains(s))) {
        failures.push(Failure::BadSample(part));
    }
    done.first()
}

/// Runs the suite on a language model and reports.
pub async fn examine_llm(provider: impl Llm, terms: &Terms) -> Report {
    let provider = AnyLlm::new(provider);
    let mut report = Report { name: provider.info().name, failures: Vec::new(), first: None };
    let say = |speaker, text: &str, interrupted| Turn { speaker, text: text.into(), interrupted };
    let plain = vec![say(Speaker::System, "You are a voice assistant.", false), say(Speaker::User, "Tell me a long story.", false)];
    let mut talk = plain.clone();
    talk.extend([say(Speaker::Assistant, "Once upon a", true), say(Speaker::User, "Grüße, 你好 🙂, go on", false)]);
    report.first = reply(&provider, terms, Part::Plain, plain.clone(), &mut report.failures).await;
    // Nothing said: any answer will do, also none.
    let nothing = vec![say(Speaker::User, "", false)];
    reply(&provider, terms, Part::Empty, nothing, &mut report.failures).await;
    reply(&provider, terms, Part::Unicode, talk.clone(), &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        reply(&provider, terms, Part::TwoAtOnce, plain.clone(), &mut one),
        reply(&provider, terms, Part::TwoAtOnce, talk, &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    for (part, interrupt) in [
        (Part::StoppedAtOnce, Interrupt::AtOnce),
        (Part::Stopped, Interrupt::AfterFirst),
        (Part::StoppedWhenFull, Interrupt::WhenFull),
        (Part::HungUp, Interrupt::HangUp),
    ] {
        let (provider, plain) = (provider.clone(), plain.clone());
        let done: Run<Pii<String>> =
            run(terms, interrupt, move |out, cx| async move { provider.reply(plain, out, cx).await }).await;
        // A short answer may be complete before the stop.
        done.stopped(part, terms, interrupt, false, &mut report.failures);
    }
    reply(&provider, terms, Part::Again, plain, &mut report.failures).await;
    report
}

async fn reply(
    provider: &AnyLlm,
    terms: &Terms,
    part: Part,
    conversation: Vec<Turn>,
    failures: &mut Vec<Failure>,
) -> Option<Duration> {
    let provider = provider.clone();
    let asked = part != Part::Empty;
    let done: Run<Pii<String>> =
        run(terms, Interrupt::Never, move |out, cx| async move { provider.reply(conversation, out, cx).await }).await;
    if done.completed(part, terms, asked, failures) && asked && done.items.iter().all(|i| i.1.reveal().trim().is_empty()) {
        failures.push(Failure::Nothing(part));
    }
    done.first()
}

/// Runs the suite on a recogniser and reports.
pub async fn examine_stt(provider: impl Stt, terms: &Terms) -> Report {
    let provider = AnyStt::new(provider);
    let info = provider.info();
    let mut report = Report { name: info.name, failures: Vec::new(), first: None };
    let sound = terms.utterance.clone().unwrap_or_else(|| tone(info.rate));
    report.first = listen(&provider, terms, Part::Plain, &sound, info.rate, &mut report.failures).await;
    listen(&provider, terms, Part::Empty, &[], info.rate, &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        listen(&provider, terms, Part::TwoAtOnce, &sound, info.rate, &mut one),
        listen(&provider, terms, Part::TwoAtOnce, &sound, info.rate, &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    for (part, interrupt) in [(Part::StoppedAtOnce, Interrupt::AtOnce), (Part::HungUp, Interrupt::HangUpAtOnce)] {
        let (mic, audio) = AudioStream::new(1_024);
        for piece in pieces(&sound, info.rate) {
            mic.try_send(piece).expect("room for the utterance");
        }
        // The utterance goes on when it is stopped; when nobody listens it ends, and the final transcript has nowhere to go.
        let open = (interrupt == Interrupt::AtOnce).then_some(mic);
        let provider = provider.clone();
        let done: Run<Transcript> =
            run(terms, interrupt, move |out, cx| async move { provider.listen(audio, out, cx).await }).await;
        drop(open);
        done.stopped(part, terms, interrupt, interrupt == Interrupt::AtOnce, &mut report.failures);
    }
    listen(&provider, terms, Part::Again, &sound, info.rate, &mut report.failures).await;
    report
}

async fn listen(
    provider: &AnyStt,
    terms: &Terms,
    part: Part,
    sound: &[f32],
    rate: SampleRate,
    failures: &mut Vec<Failure>,
) -> Option<Duration> {
    let (mic, audio) = AudioStream::new(8);
    let provider = provider.clone();
    let speaking = async {
        for piece in pieces(sound, rate) {
            if mic.send(piece).await.is_err() {
                break;
            }
        }
        drop(mic);
    };
    let running =
        run::<Transcript, _>(terms, Interrupt::Never, move |out, cx| async move { provider.listen(audio, out, cx).await });
    let (done, ()) = tokio::join!(running, speaking);
    if done.completed(part, terms, true, failures) {
        let finals = done.items.iter().filter(|i| i.1.is_final).count();
        if finals != 1 {
            failures.push(Failure::Finals(part, finals));
        }
        if finals > 0 && done.items.last().is_some_and(|i| !i.1.is_final) {
            failures.push(Failure::AfterFinal(part));
        }
    }
    done.first()
}

/// The utterance in pieces of 10 ms, with a hole in the middle as a full queue makes one.
fn pieces(sound: &[f32], rate: SampleRate) -> impl Iterator<Item = Heard> {
    let size = rate.samples_in(crate::time::BEAT) as usize;
    let hole = sound.len() / size / 2;
    sound
        .chunks(size)
        .enumerate()
        .map(move |(k, piece)| Heard { samples: piece.to_vec(), gap: if k == hole && k > 0 { size as u64 } else { 0 } })
}

fn tone(rate: SampleRate) -> Vec<f32> {
    let hz = f64::from(rate.hz());
    (0..rate.samples_in(Duration::from_millis(1_500)))
        .map(|k| {
            let t = k as f64 / hz;
            ((t * 180.0 * std::f64::consts::TAU).sin() * (t * 4.0 * std::f64::consts::TAU).sin().max(0.0) * 0.4) as f32
        })
        .collect()
}

#[cfg(test)]
mod tests;
