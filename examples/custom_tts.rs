//! A synthesizer of your own: bells instead of a voice.
//!
//! ```text
//! cargo run --example custom_tts                     checks it against the contract; needs no loudspeaker
//! cargo run --example custom_tts -- bells.wav        and writes what it says to a file
//! ```
//!
//! What you will hear: one stroke a letter, low for `a` and high for `z`, a short rest between words and a longer one behind a
//! sentence, each stroke ringing out into the next.

use std::f32::consts::TAU;
use std::sync::Arc;
use std::time::Duration;

use antiphon::event::Timing;
use antiphon::provider::{Chunk, Info, ProviderError, Sink, TaskCx, Tts, Words, check};
use antiphon::time::{RuntimeClock, SampleRate, Stamp};
use tokio_util::sync::CancellationToken;

const RATE: SampleRate = SampleRate::HZ_24000;

struct Bells;

impl Tts for Bells {
    fn info(&self) -> Info {
        Info::new("bells").at(RATE)
    }

    async fn speak(&self, mut text: Words, out: Sink<Chunk>, cx: TaskCx) -> Result<(), ProviderError> {
        let mut belfry = Vec::new();
        while let Some(piece) = cx.until_stopped(text.next()).await? {
            // `Err(Stopped)` is a polite end, and `?` carries it out.
            for letter in piece.reveal().chars() {
                let samples = strike(&mut belfry, letter);
                // Waits when the listener has enough, so a stop must be able to end this wait as well.
                cx.until_stopped(out.send(Chunk { samples, chars: 1, timing: Timing::Exact })).await??;
            }
        }
        Ok(())
    }
}

/// A bell that still rings.
struct Bell {
    hz: f32,
    age: f32,
}

/// Strikes the bell of `letter` and lets all bells ring for the time of one letter.
fn strike(belfry: &mut Vec<Bell>, letter: char) -> Vec<f32> {
    let (bell, millis) = match letter {
        c if c.is_alphanumeric() => {
            // Two octaves of a pentatonic scale: whatever is written, it sounds together.
            const STEPS: [f32; 10] = [0.0, 2.0, 4.0, 7.0, 9.0, 12.0, 14.0, 16.0, 19.0, 21.0];
            let step = STEPS[c.to_ascii_lowercase() as usize % 26 * STEPS.len() / 26];
            (Some(330.0 * (step / 12.0).exp2()), 90)
        }
        '.' | '!' | '?' => (None, 400),
        _ => (None, 120),
    };
    belfry.extend(bell.map(|hz| Bell { hz, age: 0.0 }));
    belfry.retain(|b| b.age < 1.2);
    let tick = 1.0 / RATE.hz() as f32;
    (0..RATE.samples_in(Duration::from_millis(millis)))
        .map(|_| {
            let sound: f32 = belfry.iter_mut().map(|b| b.ring(tick)).sum();
            // Many bells together must not leave -1..=1.
            (0.25 * sound).tanh()
        })
        .collect()
}

impl Bell {
    fn ring(&mut self, tick: f32) -> f32 {
        self.age += tick;
        // The first 4 ms rise, so that a stroke is no click; the overtones of a bell are not harmonic.
        let swell = (self.age / 0.004).min(1.0) * (-4.0 * self.age).exp();
        swell
            * [(1.0, 1.0), (2.76, 0.4), (5.4, 0.15)]
                .iter()
                .map(|(over, loud)| loud * (TAU * self.hz * over * self.age).sin())
                .sum::<f32>()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First chunk in time, characters add up, stops when told, nothing after the end. Panics with what is wrong.
    check::tts(Bells).await;
    println!("bells keep the contract of a synthesizer");

    let text = "Hello from the belfry. Every letter is a stroke!";
    let (give, words) = Words::new(4);
    let (out, mut chunks) = Sink::new(16);
    let cx = TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, CancellationToken::new());
    let speaking = tokio::spawn(async move { Bells.speak(words, out, cx).await });
    give.send(text.into()).await?;
    drop(give);

    let mut samples = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        samples.extend(chunk.samples);
    }
    speaking.await??;
    println!("{:.1} s for {} characters", samples.len() as f32 / RATE.hz() as f32, text.chars().count());

    match std::env::args_os().nth(1) {
        Some(path) => {
            let spec = hound::WavSpec {
                channels: 1,
                sample_rate: RATE.hz(),
                bits_per_sample: 16,
                sample_format: hound::SampleFormat::Int,
            };
            let mut file = hound::WavWriter::create(&path, spec)?;
            samples.iter().try_for_each(|s| file.write_sample((s * 32_767.0) as i16))?;
            file.finalize()?;
            println!("play {} to hear them", path.display());
        }
        None => println!("give a file name to hear them"),
    }
    Ok(())
}
