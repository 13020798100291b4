//! `Espeak`: speech by the `espeak-ng` program, one process a sentence. Needs no key and no network. Layer 2.
//!
//! Who owns what: the task of one answer owns at most one process at a time. Laws: the first sentence is synthesized as soon as it is
//! complete; no chunk is longer than 50 ms, so a full sink holds the synthesis back; every character is accounted for by the chunk
//! in which it sounds (estimated inside a sentence, exact at its end); a stop kills the process and reaps it before returning.
//! Proved by the tests below and, with the real program, by `tests/providers.rs`.

use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::sentence::Sentences;
use super::wav;
use crate::event::{Retry, Timing};
use crate::provider::pace::Pace;
use crate::provider::program::{Pipes, Program};
use crate::provider::{Chunk, Info, ProviderError, Sink, TaskCx, Tts, Words};
use crate::time::SampleRate;

/// What to do when the program is missing.
const HELP: &str = "install it with `apt-get install espeak-ng`, or set the program's path";
/// Samples in a chunk: 50 ms.
const CHUNK: usize = 1_102;
/// Sentences cut and not yet spoken; behind them the model has to wait.
const AHEAD: usize = 64;
/// No sentence makes more than this (about six minutes); more is a fault of the program.
const MOST_BYTES: u64 = 16 << 20;

/// Text to speech by `espeak-ng`.
#[derive(Clone, Debug)]
pub struct Espeak {
    program: PathBuf,
    voice: String,
    words_a_minute: u32,
}

impl Default for Espeak {
    fn default() -> Self {
        Self::new()
    }
}

impl Espeak {
    /// `espeak-ng` from the search path, voice `en-us`, 160 words a minute.
    pub fn new() -> Self {
        Espeak { program: "espeak-ng".into(), voice: "en-us".into(), words_a_minute: 160 }
    }

    /// Another path to the program.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = path.into();
        self
    }

    /// Another voice, as `espeak-ng --voices` names it: `en-gb`, `en-us+f3`, `de`.
    #[must_use]
    pub fn voice(mut self, name: impl Into<String>) -> Self {
        self.voice = name.into();
        self
    }

    /// The usual rate in words a minute; held to what the program can do, 80 to 450.
    #[must_use]
    pub fn words_a_minute(mut self, rate: u32) -> Self {
        self.words_a_minute = rate.clamp(80, 450);
        self
    }

    /// Whether the program is there and has the voice.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] without the program, [`ProviderError::Refused`] without the voice.
    pub async fn probe(&self) -> Result<(), ProviderError> {
        let spoken = self.synthesize("a", Pace::Usual).await?;
        if spoken.is_empty() {
            return Err(ProviderError::Refused { why: format!("espeak-ng is silent with voice {}", self.voice) });
        }
        Ok(())
    }

    /// The sound of one piece of text.
    async fn synthesize(&self, text: &str, pace: Pace) -> Result<Vec<f32>, ProviderError> {
        let (mut program, pipes) = self.start(pace)?;
        let out = self.converse(&mut program, pipes, text).await;
        program.kill().await;
        out
    }

    fn start(&self, pace: Pace) -> Result<(Program, Pipes), ProviderError> {
        let rate = (self.words_a_minute * pace.percent() / 100).clamp(80, 450).to_string();
        Program::start(&self.program, ["--stdin", "--stdout", "-b", "1", "-v", &self.voice, "-s", &rate], HELP)
    }

    async fn converse(&self, program: &mut Program, pipes: Pipes, text: &str) -> Result<Vec<f32>, ProviderError> {
        let Pipes { mut stdin, stdout, stderr } = pipes;
        let (mut bytes, mut complaint) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (stdout.take(MOST_BYTES), stderr.take(4_096));
        let give = async {
            let given = stdin.write_all(text.as_bytes()).await;
            drop(stdin);
            given
        };
        let (given, taken, complained) = tokio::join!(give, stdout.read_to_end(&mut bytes), stderr.read_to_end(&mut complaint));
        taken.map_err(|e| program.broke("speaking", &e))?;
        complained.map_err(|e| program.broke("complaining", &e))?;
        if stdout.limit() == 0 {
            return Err(ProviderError::Broken { why: "espeak-ng does not end a sentence".into(), retry: Retry::Never });
        }
        let status = program.wait().await?;
        if !status.success() {
            return Err(self.failed(&complaint, &status.to_string()));
        }
        given.map_err(|e| program.broke("being given text", &e))?;
        // Nothing to pronounce in it: no sound, not even a header.
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let (rate, samples) =
            wav::pcm(&bytes).map_err(|e| ProviderError::Broken { why: format!("espeak-ng: {e}"), retry: Retry::Now })?;
        if rate != SampleRate::HZ_22050 {
            return Err(ProviderError::Refused { why: format!("voice {} speaks at {rate}, not 22050 Hz", self.voice) });
        }
        Ok(samples)
    }

    /// The program ended with a failure. It complains about its voice and its files, never about the text.
    fn failed(&self, complaint: &[u8], status: &str) -> ProviderError {
        let complaint = String::from_utf8_lossy(complaint);
        if complaint.contains("voice does not exist") {
            return ProviderError::Refused { why: format!("espeak-ng has no voice {}", self.voice) };
        }
        ProviderError::Broken { why: format!("espeak-ng ended with {status}"), retry: Retry::Now }
    }

    /// Speaks the pieces in their order.
    async fn voice_all(&self, mut pieces: mpsc::Receiver<String>, out: Sink<Chunk>, cx: &TaskCx) -> Result<(), ProviderError> {
        let mut pace = Pace::Usual;
        // Characters without sound (white space, a lone pace mark) go with the next chunk that has some.
        let mut silent = 0;
        while let Some(piece) = cx.until_stopped(pieces.recv()).await? {
            pace = piece.chars().filter_map(Pace::from_mark).next_back().unwrap_or(pace);
            let chars = piece.chars().count();
            let text = pronounceable(&piece);
            if text.is_empty() {
                silent += chars;
                continue;
            }
            let (mut program, pipes) = self.start(pace)?;
            let made = cx.until_stopped(self.converse(&mut program, pipes, &text)).await;
            program.kill().await;
            let samples = made??;
            if samples.is_empty() {
                silent += chars;
                continue;
            }
            let clock = CharClock::new(&piece, &samples);
            let mut told = 0;
            for (k, chunk) in samples.chunks(CHUNK).enumerate() {
                let end = (k * CHUNK) + chunk.len();
                let said = if end == samples.len() { chars } else { clock.chars_at(end) };
                let spoken = std::mem::take(&mut silent) + (said - told);
                told = said;
                let chunk = Chunk { samples: chunk.to_vec(), chars: spoken, timing: Timing::Estimated };
                cx.until_stopped(out.send(chunk)).await??;
            }
        }
        if silent > 0 {
            let chunk = Chunk { samples: Vec::new(), chars: silent, timing: Timing::Estimated };
            cx.until_stopped(out.send(chunk)).await??;
        }
        Ok(())
    }
}

impl Tts for Espeak {
    fn info(&self) -> Info {
        Info::new("espeak-ng").at(SampleRate::HZ_22050)
    }

    async fn speak(&self, text: Words, out: Sink<Chunk>, cx: TaskCx) -> Result<(), ProviderError> {
        // Two halves of one task, so that text is taken while a full sink holds the speaking back.
        let (to, pieces) = mpsc::channel(AHEAD);
        let (cut, spoken) = tokio::join!(cut_all(text, to, &cx), self.voice_all(pieces, out, &cx));
        spoken.and(cut)
    }
}

/// Cuts the text as it comes; ends early when nobody speaks any more.
async fn cut_all(mut text: Words, to: mpsc::Sender<String>, cx: &TaskCx) -> Result<(), ProviderError> {
    let mut sentences = Sentences::default();
    loop {
        let piece = tokio::select! {
            biased;
            () = to.closed() => return Ok(()),
            piece = cx.until_stopped(text.next()) => piece?,
        };
        let Some(piece) = piece else {
            sentences.finish();
            break;
        };
        sentences.push(piece.reveal());
        while let Some(sentence) = sentences.next() {
            if cx.until_stopped(to.send(sentence)).await?.is_err() {
                return Ok(());
            }
        }
    }
    while let Some(sentence) = sentences.next() {
        if cx.until_stopped(to.send(sentence)).await?.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The text as espeak shall read it: no control characters, no pace marks, no `[[`, which would begin phonemes. Empty when nothing
/// in it can be spoken.
fn pronounceable(piece: &str) -> String {
    let clean: String = piece
        .chars()
        .filter(|&c| Pace::from_mark(c).is_none())
        .map(|c| if c.is_control() || "[]*_#`".contains(c) { ' ' } else { c })
        .collect();
    let clean = clean.trim();
    // Bare punctuation would be read out by name.
    if clean.chars().any(|c| c.is_alphanumeric() || (c as u32) > 0x2190) { clean.to_owned() } else { String::new() }
}

/// Estimates which character sounds at which sample: characters have weights, silence at the edges belongs to none.
struct CharClock {
    /// Sum of the weights up to and including each character.
    weights: Vec<f32>,
    /// First and last sample with sound.
    sound: (usize, usize),
}

impl CharClock {
    fn new(piece: &str, samples: &[f32]) -> Self {
        const SOUND: f32 = 0.004;
        let first = samples.iter().position(|s| s.abs() > SOUND).unwrap_or(0);
        let last = samples.iter().rposition(|s| s.abs() > SOUND).unwrap_or(samples.len());
        let mut sum = 0.0;
        let weights = piece.chars().map(|c| {
            sum += match c {
                ',' | ';' | ':' | '.' | '!' | '?' | '–' | '—' => 3.0,
                // A digit is a word or two.
                _ if c.is_numeric() => 5.0,
                _ if c.is_alphabetic() => 1.0,
                _ if c.is_whitespace() => 0.3,
                _ => 0.1,
            };
            sum
        });
        CharClock { weights: weights.collect(), sound: (first, last.max(first + 1)) }
    }

    /// How many characters have sounded before sample `at`. Never falls as `at` rises.
    fn chars_at(&self, at: usize) -> usize {
        let (first, last) = self.sound;
        let part = (at.saturating_sub(first)) as f32 / (last - first) as f32;
        let weight = part.min(1.0) * self.weights.last().copied().unwrap_or(0.0);
        self.weights.partition_point(|&w| w <= weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_spoken_reaches_the_program() {
        assert_eq!(pronounceable("\u{fe02} Say [[h@l]] *now*\u{7}! \n"), "Say   h@l    now  !");
        assert_eq!(pronounceable(" -- \n"), "");
        assert_eq!(pronounceable("\u{fe02}"), "");
        assert_eq!(pronounceable("你好。"), "你好。");
    }

    #[test]
    fn the_char_clock_rises_from_none_to_all_within_the_sound() {
        let text = "Two words, 7.";
        let samples: Vec<f32> = (0..10_000).map(|k| if (2_000..8_000).contains(&k) { 0.5 } else { 0.0 }).collect();
        let clock = CharClock::new(text, &samples);
        let told: Vec<usize> = (0..=10_000).step_by(100).map(|at| clock.chars_at(at)).collect();
        assert!(told.is_sorted());
        assert_eq!((told[20], told[80]), (0, text.chars().count()));
        let silence = CharClock::new("", &[0.0; 10]);
        assert_eq!(silence.chars_at(10), 0);
    }
}
