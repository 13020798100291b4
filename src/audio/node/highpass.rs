//! High-pass: takes away rumble, mains hum and offset, which carry no speech and much level.

use super::{Io, Node, Ports, Work};
use crate::time::SampleRate;

/// A Butterworth high-pass of second order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HighPass {
    /// Rate of the sound.
    pub rate: SampleRate,
    /// Corner (-3 dB), Hz.
    pub corner_hz: f32,
}

impl Node for HighPass {
    fn ports(&self) -> Ports {
        Ports::through(self.rate)
    }

    fn build(&self) -> Box<dyn Work> {
        // Bilinear transform of s² / (s² + √2 s + 1). In f64: the poles stand close to 1.
        let k = (std::f64::consts::PI * f64::from(self.corner_hz) / f64::from(self.rate.hz())).tan();
        let norm = 1.0 / (1.0 + std::f64::consts::SQRT_2 * k + k * k);
        Box::new(Worker {
            b0: norm,
            a1: 2.0 * (k * k - 1.0) * norm,
            a2: (1.0 - std::f64::consts::SQRT_2 * k + k * k) * norm,
            s1: 0.0,
            s2: 0.0,
        })
    }
}

struct Worker {
    b0: f64,
    a1: f64,
    a2: f64,
    s1: f64,
    s2: f64,
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        for (x, y) in io.inputs[0].iter().zip(io.outputs[0].iter_mut()) {
            let x = f64::from(*x);
            let out = self.b0 * x + self.s1;
            self.s1 = -2.0 * self.b0 * x - self.a1 * out + self.s2;
            self.s2 = self.b0 * x - self.a2 * out;
            *y = out as f32;
        }
        // What decays without end becomes a denormal, and denormals are slow.
        if self.s1.abs() < 1e-30 {
            self.s1 = 0.0;
        }
        if self.s2.abs() < 1e-30 {
            self.s2 = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    /// Gain at `hz`, after it has settled, in dB.
    fn gain_at(hz: f32) -> f32 {
        let mut work = HighPass { rate: SampleRate::HZ_48000, corner_hz: 80.0 }.build();
        let mut energy = 0.0;
        for block in 0..200 {
            let input: Vec<f32> =
                (0..480).map(|i| (std::f32::consts::TAU * hz * (block * 480 + i) as f32 / 48_000.0).sin()).collect();
            let mut out = [0.0; 480];
            run(&mut *work, &[&input], &mut out, &mut []);
            if block >= 100 {
                energy += out.iter().map(|x| x * x).sum::<f32>();
            }
        }
        10.0 * (energy / (100.0 * 240.0)).log10()
    }

    #[test]
    fn speech_passes_and_rumble_does_not() {
        assert!(gain_at(300.0).abs() < 0.2);
        assert!((gain_at(80.0) + 3.0).abs() < 0.2);
        assert!(gain_at(20.0) < -22.0);
        let mut work = HighPass { rate: SampleRate::HZ_48000, corner_hz: 80.0 }.build();
        let mut out = [0.0; 480];
        for _ in 0..20 {
            run(&mut *work, &[&[0.5; 480]], &mut out, &mut []);
        }
        assert!(out.iter().all(|x| x.abs() < 1e-3), "an offset is taken away");
    }
}
