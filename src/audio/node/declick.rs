//! Declick: smooths the edges of a sound that comes and goes with digital silence between, as a microphone does that is muted or
//! whose packets are lost. Detectors and recognisers take the edge for a sound.

use super::{Io, Node, Ports, Work};
use crate::audio::ramp::{RAMP_SAMPLES, Ramp, Residue};
use crate::time::SampleRate;

/// A declicker at one rate. A block of which every sample is zero is silence; it begins and ends with 5 ms (at 48 kHz) of ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declick {
    /// Rate of the sound.
    pub rate: SampleRate,
}

impl Node for Declick {
    fn ports(&self) -> Ports {
        Ports::through(self.rate)
    }

    fn build(&self) -> Box<dyn Work> {
        Box::new(Worker { silent: true, gain: Ramp::at(0.0), last: 0.0, residue: Residue::default() })
    }
}

struct Worker {
    silent: bool,
    gain: Ramp,
    last: f32,
    residue: Residue,
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        let out = &mut *io.outputs[0];
        out.copy_from_slice(io.inputs[0]);
        let silent = out.iter().all(|x| *x == 0.0);
        match (self.silent, silent) {
            (true, false) => {
                self.gain = Ramp::at(0.0);
                self.gain.go(1.0, RAMP_SAMPLES);
            }
            (false, true) => self.residue.start(self.last, RAMP_SAMPLES),
            _ => {}
        }
        self.silent = silent;
        self.gain.scale(out);
        self.last = out.last().copied().unwrap_or(0.0);
        self.residue.add(out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn an_edge_to_or_from_digital_silence_is_a_ramp() {
        let mut work = Declick { rate: SampleRate::HZ_48000 }.build();
        let mut heard = Vec::new();
        for level in [0.0, 0.5, 0.5, 0.0, 0.0, 0.5] {
            let mut out = [0.0; 480];
            run(&mut *work, &[&[level; 480]], &mut out, &mut []);
            heard.extend(out);
        }
        assert!(heard.windows(2).all(|w| (w[1] - w[0]).abs() < 0.5 / 200.0));
        assert!(heard[480 + 240..3 * 480].iter().all(|x| *x == 0.5), "the sound itself is untouched");
        assert!(heard[3 * 480 + 240..5 * 480].iter().all(|x| *x == 0.0), "and so is the silence");
    }
}
