//! Voice detection: two ears on the same 16 kHz sound. One is careful and gives a probability, one is quick and credulous.
//!
//! The careful one (`earshot`) judges 16 ms at a time with 48 ms in view; its word stands until the next one, so the reading of a block
//! may be 16 ms old and a sound must have lasted some 20 to 60 ms before it is believed. The quick one (WebRTC's) judges each block by
//! itself.

use earshot::Detector;
use webrtc_vad::{SampleRate as QuickRate, Vad as Quick, VadMode};

use super::{Io, Node, Ports, Work};
use crate::time::SampleRate;

/// The detectors. Readings: [`Vad::SPEECH`] and [`Vad::QUICK`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vad;

impl Vad {
    /// Speech probability, 0..=1.
    pub const SPEECH: usize = 0;
    /// The quick detector's word, 0 or 1.
    pub const QUICK: usize = 1;
}

impl Node for Vad {
    fn ports(&self) -> Ports {
        Ports::sink(SampleRate::HZ_16000, 2)
    }

    fn build(&self) -> Box<dyn Work> {
        let quick = QuickEar(Quick::new_with_rate_and_mode(QuickRate::Rate16kHz, VadMode::VeryAggressive));
        Box::new(Worker { careful: Box::new(Detector::default()), quick, frame: [0.0; FRAME], filled: 0, pcm: [0; BEAT_16K] })
    }
}

/// What the careful detector takes at a time: 16 ms.
const FRAME: usize = 256;
/// A block at 16 kHz.
const BEAT_16K: usize = 160;

const _: () = assert!(FRAME > BEAT_16K, "a block fills at most one frame");

struct Worker {
    careful: Box<Detector>,
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

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        let sound = io.inputs[0];
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
            io.readings[Vad::SPEECH] = f64::from(self.careful.predict_f32(&self.frame).clamp(0.0, 1.0));
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
        let mut readings = [f64::NAN; 2];
        let mut judged = 0;
        for _ in 0..80 {
            readings[Vad::SPEECH] = f64::NAN;
            run(&mut *work, &[&[0.0; BEAT_16K]], &mut [], &mut readings);
            assert_eq!(readings[Vad::QUICK], 0.0);
            if !readings[Vad::SPEECH].is_nan() {
                judged += 1;
                assert!(readings[Vad::SPEECH] < 0.5);
            }
        }
        assert_eq!(judged, 80 * BEAT_16K / FRAME, "800 ms are fifty frames");
    }

    #[test]
    fn wild_samples_do_no_harm() {
        let mut work = Vad.build();
        let mut readings = [0.0; 2];
        for _ in 0..8 {
            run(&mut *work, &[&[7.0; BEAT_16K]], &mut [], &mut readings);
            run(&mut *work, &[&[-7.0; BEAT_16K]], &mut [], &mut readings);
        }
        assert!((0.0..=1.0).contains(&readings[Vad::SPEECH]));
    }
}
