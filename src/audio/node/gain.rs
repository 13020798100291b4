//! Gain: makes it louder or softer, and gets there in a straight line of 5 ms.

use super::{Io, Node, Ports, Work};
use crate::audio::ramp::{RAMP_SAMPLES, Ramp};
use crate::time::SampleRate;

/// A gain at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    rate: SampleRate,
    from_db: f32,
    to_db: f32,
}

impl Gain {
    /// A steady gain of `db` decibels.
    pub fn new(rate: SampleRate, db: f32) -> Self {
        Gain { rate, from_db: db, to_db: db }
    }

    /// The gain that takes over from this one and goes to `db` without a jump.
    #[must_use]
    pub fn going_to(self, db: f32) -> Self {
        Gain { rate: self.rate, from_db: self.to_db, to_db: db }
    }
}

impl Node for Gain {
    fn ports(&self) -> Ports {
        Ports::through(self.rate)
    }

    fn build(&self) -> Box<dyn Work> {
        let factor = |db: f32| 10f32.powf(db / 20.0);
        let mut gain = Ramp::at(factor(self.from_db));
        if self.from_db != self.to_db {
            gain.go(factor(self.to_db), RAMP_SAMPLES);
        }
        Box::new(Worker { gain })
    }
}

struct Worker {
    gain: Ramp,
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        io.outputs[0].copy_from_slice(io.inputs[0]);
        self.gain.scale(io.outputs[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn a_gain_scales_and_changes_without_a_jump() {
        let steady = Gain::new(SampleRate::HZ_48000, -6.0206);
        let mut out = [0.0; 480];
        run(&mut *steady.build(), &[&[0.5; 480]], &mut out, &mut []);
        assert!(out.iter().all(|x| (x - 0.25).abs() < 1e-4));

        run(&mut *steady.going_to(0.0).build(), &[&[0.5; 480]], &mut out, &mut []);
        assert!((out[0] - 0.25).abs() < 2e-3, "begins where the old one was");
        assert!(out[240..].iter().all(|x| *x == 0.5), "and arrives after 5 ms");
        assert!(out.windows(2).all(|w| (w[1] - w[0]).abs() < 2e-3));
    }
}
