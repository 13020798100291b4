//! Voice detection: three ears on the same 16 kHz sound, from the surest to the quickest.
//!
//! * *Silero* is sure and never far behind: three listeners take turns, each hears 36 ms every 30 ms, so that there is a fresh word each
//!   10 ms. The word on a block is its own.
//! * *earshot* is a second opinion of another make: it judges 16 ms at a time with 48 ms in view; its word stands until the next one.
//! * *WebRTC's* is quick and credulous, and judges each block by itself.
//!
//! What is too soft to be heard at all (-80 dB peak over 36 ms) is not shown to Silero: a muted microphone costs nothing.

use earshot::Detector;
use webrtc_vad::{SampleRate as QuickRate, Vad as Quick, VadMode};

use super::silero::{FRAME as SILERO_FRAME, Memory, Silero};
use super::{Io, Node, Ports, Work};
use crate::time::SampleRate;

/// The detectors. Readings: [`Vad::SPEECH`], [`Vad::SECOND`] and [`Vad::QUICK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vad;

impl Vad {
    /// Speech probability by Silero, 0..=1.
    pub const SPEECH: usize = 0;
    /// Speech probability by earshot, 0..=1.
    pub const SECOND: usize = 1;
    /// The quick detector's word, 0 or 1.
    pub const QUICK: usize = 2;
}

impl Node for Vad {
    fn ports(&self) -> Ports {
        Ports::sink(SampleRate::HZ_16000, 3)
    }

    fn build(&self) -> Box<dyn Work> {
        let quick = QuickEar(Quick::new_with_rate_and_mode(QuickRate::Rate16kHz, VadMode::VeryAggressive));
        Box::new(Worker {
            silero: Silero::default(),
            listeners: Default::default(),
            turn: 0,
            heard: [0.0; SILERO_FRAME],
            second: Box::new(Detector::default()),
            quick,
            frame: [0.0; FRAME],
            filled: 0,
            pcm: [0; BEAT_16K],
        })
    }
}

/// What earshot takes at a time: 16 ms.
const FRAME: usize = 256;
/// A block at 16 kHz.
const BEAT_16K: usize = 160;
/// Silero's listeners. Each hears anew what came since its last turn, 30 ms; it is trained for 32.
const LISTENERS: usize = 3;
/// Softer than this there is nothing to hear: -80 dB.
const INAUDIBLE: f32 = 1e-4;

const _: () = assert!(FRAME > BEAT_16K, "a block fills at most one frame");
const _: () = assert!(LISTENERS * BEAT_16K < SILERO_FRAME, "a listener misses nothing between its turns");

struct Worker {
    silero: Silero,
    listeners: [Memory; LISTENERS],
    /// Whose turn it is.
    turn: usize,
    /// The last 36 ms.
    heard: [f32; SILERO_FRAME],
    second: Box<Detector>,
    quick: QuickEar,
    frame: [f32; FRAME],
    filled: usize,
    pcm: [i16; BEAT_16K],
}

/// The quick detector, which its crate keeps behind a raw pointer.
struct QuickEar(Quick);

// SAFETY: the pointer leads to one heap object that this value alone owns. The C code behind it keeps no global and no thread-local
// state (its tables are constant) and is reached through `&mut` only, so it does not matter which thread calls it.
#[allow(unsafe_code, reason = "the crate's type is not Send only because it holds a raw pointer")]
unsafe impl Send for QuickEar {}

impl Worker {
    fn sure(&mut self, sound: &[f32]) -> f32 {
        self.heard.copy_within(BEAT_16K.., 0);
        let fresh = &mut self.heard[SILERO_FRAME - BEAT_16K..];
        fresh.iter_mut().zip(sound).for_each(|(to, x)| *to = x.clamp(-1.0, 1.0));
        self.turn = (self.turn + 1) % LISTENERS;
        if self.heard.iter().all(|x| x.abs() < INAUDIBLE) {
            return 0.0;
        }
        self.silero.probability(&self.heard, &mut self.listeners[self.turn])
    }
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        let sound = io.inputs[0];
        io.readings[Vad::SPEECH] = f64::from(self.sure(sound));
        for (to, x) in self.pcm.iter_mut().zip(sound) {
            *to = (x.clamp(-1.0, 1.0) * 32_767.0) as i16;
        }
        io.readings[Vad::QUICK] = f64::from(u8::from(self.quick.0.is_voice_segment(&self.pcm) == Ok(true)));

        // A block leaves at most one frame full.
        let now = sound.len().min(FRAME - self.filled);
        let clamped = |(to, x): (&mut f32, &f32)| *to = x.clamp(-1.0, 1.0);
        self.frame[self.filled..].iter_mut().zip(&sound[..now]).for_each(clamped);
        self.filled += now;
        if self.filled == FRAME {
            io.readings[Vad::SECOND] = f64::from(self.second.predict_f32(&self.frame).clamp(0.0, 1.0));
            self.frame.iter_mut().zip(&sound[now..]).for_each(clamped);
            self.filled = sound.len() - now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn silence_is_not_speech_and_every_sample_is_judged_once() {
        let mut work = Vad.build();
        let mut readings = [f64::NAN; 3];
        let mut judged = 0;
        for _ in 0..80 {
            readings[Vad::SECOND] = f64::NAN;
            run(&mut *work, &[&[0.0; BEAT_16K]], &mut [], &mut readings);
            assert_eq!(readings[Vad::QUICK], 0.0);
            if !readings[Vad::SECOND].is_nan() {
                judged += 1;
                assert!(readings[Vad::SECOND] < 0.5);
            }
        }
        assert_eq!(judged, 80 * BEAT_16K / FRAME, "800 ms are fifty frames");
    }

    #[test]
    fn wild_samples_do_no_harm() {
        let mut work = Vad.build();
        let mut readings = [0.0; 3];
        for _ in 0..8 {
            run(&mut *work, &[&[7.0; BEAT_16K]], &mut [], &mut readings);
            run(&mut *work, &[&[-7.0; BEAT_16K]], &mut [], &mut readings);
        }
        assert!((0.0..=1.0).contains(&readings[Vad::SECOND]));
    }
}
