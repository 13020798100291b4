//! Resample: from one rate to another, 10 ms in and 10 ms out.

use audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler, WindowFunction};

use super::{Io, Node, Ports, Work, samples_per_beat};
use crate::time::SampleRate;

/// A resampler between two rates that both have whole samples in 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resample {
    /// Rate of the input.
    pub from: SampleRate,
    /// Rate of the output.
    pub to: SampleRate,
}

impl Resample {
    /// How much later a sound comes out than it went in, in samples of the output: half the filter.
    pub fn delay(&self) -> usize {
        self.resampler().map_or(0, |r| r.output_delay())
    }

    fn resampler(&self) -> Option<Fft<f32>> {
        let (from, to) = (samples_per_beat(self.from)?, samples_per_beat(self.to)?);
        // Half a block per transform halves the delay; it must divide the block into whole periods of both rates.
        let halves = from.is_multiple_of(2) && to.is_multiple_of(2);
        let pieces = if halves { 2 } else { 1 };
        let (hz_in, hz_out) = (self.from.hz() as usize, self.to.hz() as usize);
        Some(
            Fft::new_custom(hz_in, hz_out, from, pieces, 1, WindowFunction::BlackmanHarris2, FixedSync::Input)
                .expect("both rates and the block are above zero"),
        )
    }
}

impl Node for Resample {
    fn ports(&self) -> Ports {
        Ports { inputs: vec![self.from], outputs: vec![self.to], readings: 0 }
    }

    fn build(&self) -> Box<dyn Work> {
        Box::new(Worker { resampler: self.resampler().filter(|_| self.from != self.to) })
    }
}

struct Worker {
    /// `None` when the rates are the same.
    resampler: Option<Fft<f32>>,
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        let (from, to) = (io.inputs[0], &mut *io.outputs[0]);
        let Some(resampler) = &mut self.resampler else {
            to.copy_from_slice(from);
            return;
        };
        let (len_in, len_out) = (from.len(), to.len());
        let input = InterleavedSlice::new(from, 1, len_in).expect("the slice has this length");
        let mut output = InterleavedSlice::new_mut(to, 1, len_out).expect("the slice has this length");
        let (_, made) = resampler.process_into_buffer(&input, &mut output, None).expect("10 ms in are 10 ms out");
        debug_assert_eq!(made, len_out, "10 ms in are 10 ms out");
    }
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    #[test]
    fn a_tone_keeps_its_pitch_and_level_at_every_pair_of_rates() {
        for (from, to) in
            [(48_000, 16_000), (16_000, 48_000), (44_100, 48_000), (48_000, 44_100), (24_000, 48_000), (16_000, 16_000)]
        {
            let node = Resample { from: SampleRate::new(from).expect("a rate"), to: SampleRate::new(to).expect("a rate") };
            let mut work = node.build();
            let (n, m) = (from as usize / 100, to as usize / 100);
            let tone = |i: usize, rate: u32| (std::f32::consts::TAU * 440.0 * i as f32 / rate as f32).sin() * 0.5;
            let mut heard = Vec::new();
            for block in 0..30 {
                let input: Vec<f32> = (0..n).map(|i| tone(block * n + i, from)).collect();
                let mut out = vec![f32::NAN; m];
                run(&mut *work, &[&input], &mut out, &mut []);
                heard.extend(out);
            }
            let delay = if from == to { 0 } else { node.delay() };
            let worst = (10 * m..29 * m).map(|i| (heard[i] - tone(i - delay, to)).abs()).fold(0.0, f32::max);
            // Half a sample of delay is not resolved when the filter has an even length.
            assert!(worst < 0.03, "{from} -> {to}: {worst}");
        }
    }

    #[test]
    fn what_cannot_be_carried_is_taken_away() {
        let node = Resample { from: SampleRate::HZ_48000, to: SampleRate::HZ_16000 };
        assert!(node.delay() <= 40, "2.5 ms at most");
        let mut work = node.build();
        let mut out = [0.0; 160];
        for block in 0..10 {
            let input: Vec<f32> =
                (0..480).map(|i| (std::f32::consts::TAU * 10_000.0 * (block * 480 + i) as f32 / 48_000.0).sin()).collect();
            run(&mut *work, &[&input], &mut out, &mut []);
        }
        assert!(out.iter().all(|x| x.abs() < 1e-3), "10 kHz does not come back as 6 kHz");
    }
}
