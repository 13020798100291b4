//! `ScriptedTts`: a synthesizer whose samples tell which answer they belong to. Layer 2; one value, shared by clones.
//!
//! Laws: every character of the text is accounted for exactly once when the script completes; same script and text, same
//! samples. Proved by the tests below.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Timing;
use crate::provider::script::{End, Leash, Obedience, Pace, Playlist, tells_of_its_calls};
use crate::provider::{Chunk, Info, ProviderError, Sink, Stops, TaskCx, Tts, Words};
use crate::time::SampleRate;

/// What a scripted answer sounds like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sound {
    /// The constant [`Sound::level_of`] the number of the call: one look at a sample tells the answer.
    Numbered,
    /// This constant.
    Level(f32),
    /// A sine of `hz` with peak `level`.
    Tone {
        /// Pitch in Hz.
        hz: f32,
        /// Peak, 0..=1.
        level: f32,
    },
    /// Rises by 1/32768 a sample from zero and begins again at 1: one look at a sample tells its position modulo 32768.
    Ramp,
}

impl Sound {
    /// The constant of the answer to call `number` (from 0): 1/32 for the first, 2/32 for the next, up to 31/32, then again.
    pub fn level_of(number: usize) -> f32 {
        (number % 31 + 1) as f32 / 32.0
    }

    fn sample(self, number: usize, at: u64, rate: SampleRate) -> f32 {
        match self {
            Sound::Numbered => Sound::level_of(number),
            Sound::Level(level) => level,
            Sound::Tone { hz, level } => {
                let turns = at as f64 * f64::from(hz) / f64::from(rate.hz());
                level * (turns.fract() * std::f64::consts::TAU).sin() as f32
            }
            Sound::Ramp => (at % 32_768) as f32 / 32_768.0,
        }
    }
}

/// One answer of a [`ScriptedTts`].
#[derive(Clone, Debug)]
pub struct TtsScript {
    sound: Sound,
    a_char: Duration,
    chunk: Duration,
    first: Duration,
    factor: f64,
    chunks: Option<usize>,
    obedience: Obedience,
    end: End,
}

impl Default for TtsScript {
    fn default() -> Self {
        Self::new()
    }
}

impl TtsScript {
    /// Numbered sound, 60 ms a character, chunks of 100 ms, as fast as they are taken, and completes.
    pub fn new() -> Self {
        TtsScript {
            sound: Sound::Numbered,
            a_char: Duration::from_millis(60),
            chunk: Duration::from_millis(100),
            first: Duration::ZERO,
            factor: 0.0,
            chunks: None,
            obedience: Obedience::Prompt,
            end: End::Complete,
        }
    }

    /// Sounds like this.
    #[must_use]
    pub fn sound(mut self, sound: Sound) -> Self {
        self.sound = sound;
        self
    }

    /// Speaks each character (Unicode scalar value) for so long.
    #[must_use]
    pub fn a_char(mut self, lasts: Duration) -> Self {
        self.a_char = lasts;
        self
    }

    /// Sends chunks of this length, the last of a piece of text shorter.
    ///
    /// # Panics
    /// When it is zero.
    #[must_use]
    pub fn chunk(mut self, length: Duration) -> Self {
        assert!(!length.is_zero(), "a chunk holds something");
        self.chunk = length;
        self
    }

    /// Sends the first chunk so long after the first text.
    #[must_use]
    pub fn first_after(mut self, delay: Duration) -> Self {
        self.first = delay;
        self
    }

    /// Takes `factor` times a chunk's length to make it: 0 at once, 1 real time, above 1 too slow.
    #[must_use]
    pub fn real_time(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// After `chunks` chunks it goes no further and ends with `end`, whatever text is left.
    #[must_use]
    pub fn after_chunks(mut self, chunks: usize, end: End) -> Self {
        self.chunks = Some(chunks);
        self.end = end;
        self
    }

    /// Ends like this once the text is spoken.
    #[must_use]
    pub fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Ignores the stop: sends `more` chunks after it, of the text and then late ones that speak nothing, at its pace.
    #[must_use]
    pub fn deaf(mut self, more: usize) -> Self {
        self.obedience = Obedience::Deaf { more };
        self
    }
}

/// A synthesizer that plays scripts.
#[derive(Clone, Debug)]
pub struct ScriptedTts {
    list: Arc<Playlist<TtsScript>>,
    rate: SampleRate,
}

impl ScriptedTts {
    /// Plays `scripts`, one a call, at 48 kHz; the last one again and again.
    ///
    /// # Panics
    /// When there is no script.
    pub fn new(scripts: impl IntoIterator<Item = TtsScript>) -> Self {
        ScriptedTts { list: Playlist::new(scripts), rate: SampleRate::HZ_48000 }
    }

    /// The same at another rate.
    #[must_use]
    pub fn at(mut self, rate: SampleRate) -> Self {
        self.rate = rate;
        self
    }
}

tells_of_its_calls!(ScriptedTts, "chunks");

impl Tts for ScriptedTts {
    fn info(&self) -> Info {
        Info::new("scripted-tts").at(self.rate).stops(Stops::DeliveryOnly)
    }

    async fn speak(&self, mut text: Words, out: Sink<Chunk>, cx: TaskCx) -> Result<(), ProviderError> {
        let (script, number, _running) = self.list.call();
        let pause = Duration::from_secs_f64(script.chunk.as_secs_f64() * script.factor);
        let mut waits = Pace { first: script.first, every: pause, ..Pace::AT_ONCE }.draw();
        let mut leash = Leash::new(script.obedience);
        let size = self.rate.samples_in(script.chunk).max(1);
        let (mut at, mut sent) = (0u64, 0usize);
        loop {
            let piece = leash.run(&cx, text.next()).await?;
            let chars = match &piece {
                Some(piece) => piece.reveal().chars().count() as u64,
                // A deaf one that was stopped goes on with chunks that speak nothing.
                None if matches!(script.obedience, Obedience::Deaf { .. }) && cx.is_stopped() => 0,
                None => break,
            };
            let length = if piece.is_some() { self.rate.samples_in(script.a_char * chars as u32) } else { size };
            // Without sound the characters must still be accounted for.
            let chunks = if length == 0 && chars > 0 { 1 } else { length.div_ceil(size) };
            for c in 0..chunks {
                if script.chunks == Some(sent) {
                    return leash.end(&cx, &script.end).await;
                }
                leash.rest(&cx, waits.next()).await?;
                if !leash.may_send(&cx) {
                    return leash.end(&cx, if script.end == End::Hang { &End::Hang } else { &End::Complete }).await;
                }
                let (from, to) = (c * size, ((c + 1) * size).min(length));
                let samples = (from..to).map(|k| script.sound.sample(number, at + k, self.rate)).collect();
                let share = |end: u64| if length == 0 { chars } else { (end * chars).div_ceil(length) };
                let spoken = share(to) - if c == 0 { 0 } else { share(from) };
                self.list.count_sent();
                let chunk = Chunk { samples, chars: spoken as usize, timing: Timing::Exact };
                let result = leash.run(&cx, out.send(chunk)).await?;
                leash.sent(result)?;
                sent += 1;
            }
            at += length;
        }
        leash.end(&cx, &script.end).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, RuntimeClock, Stamp};
    use tokio_util::sync::CancellationToken;

    async fn collect(
        tts: &ScriptedTts,
        text: &[&str],
        stop_after: Option<usize>,
    ) -> (Vec<(u64, Chunk)>, Result<(), ProviderError>) {
        let (words, from_words) = Words::new(64);
        for piece in text {
            words.try_send((*piece).into()).expect("room");
        }
        drop(words);
        let (out, mut from) = Sink::new(64);
        let stop = CancellationToken::new();
        let clock = RuntimeClock::start();
        let cx = TaskCx::new(Arc::new(clock), Stamp::MAX, stop.clone());
        let task = tokio::spawn({
            let tts = tts.clone();
            async move { tts.speak(from_words, out, cx).await }
        });
        let mut got = Vec::new();
        while let Some(chunk) = from.recv().await {
            got.push((clock.now().as_micros() / 1_000, chunk));
            if Some(got.len()) == stop_after {
                stop.cancel();
            }
        }
        (got, task.await.expect("no panic"))
    }

    #[tokio::test(start_paused = true)]
    async fn every_character_is_spoken_once_and_every_sample_tells_its_place() {
        let tts = ScriptedTts::new([TtsScript::new().sound(Sound::Ramp).chunk(Duration::from_millis(35))]);
        let (got, end) = collect(&tts, &["Grüß ", "Gott", "!"], None).await;
        assert!(end.is_ok());
        assert_eq!(got.iter().map(|g| g.1.chars).sum::<usize>(), "Grüß Gott!".chars().count());
        let samples: Vec<f32> = got.into_iter().flat_map(|g| g.1.samples).collect();
        assert_eq!(samples.len() as u64, SampleRate::HZ_48000.samples_in(Duration::from_millis(600)));
        assert!(samples.iter().enumerate().all(|(k, &s)| s == k as f32 / 32_768.0));
    }

    #[tokio::test(start_paused = true)]
    async fn it_keeps_its_pace() {
        let script = TtsScript::new().a_char(Duration::from_millis(50)).first_after(Duration::from_millis(80)).real_time(0.5);
        let (got, _) = collect(&ScriptedTts::new([script]), &["abcdef"], None).await;
        assert_eq!(got.iter().map(|g| g.0).collect::<Vec<_>>(), [80, 130, 180]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deaf_one_sends_late_chunks_and_a_dying_one_leaves_text_unspoken() {
        let tts = ScriptedTts::new([
            TtsScript::new().real_time(1.0).deaf(4),
            TtsScript::new().after_chunks(2, End::Break(crate::event::Retry::Now)),
            TtsScript::new().real_time(1.0),
        ]);
        let (got, end) = collect(&tts, &["abc"], Some(1)).await;
        assert_eq!((got.len(), end.is_ok()), (5, true));
        assert!(got.iter().all(|g| g.1.samples.iter().all(|&s| s == Sound::level_of(0))));
        let (got, end) = collect(&tts, &["a long text"], None).await;
        assert_eq!((got.len(), matches!(end, Err(ProviderError::Broken { .. }))), (2, true));
        assert!(got.iter().map(|g| g.1.chars).sum::<usize>() < 11);
        let (got, end) = collect(&tts, &["a long text"], Some(3)).await;
        assert_eq!((got.len(), matches!(end, Err(ProviderError::Stopped))), (3, true));
        assert_eq!((tts.calls(), tts.running()), (3, 0));
    }
}
