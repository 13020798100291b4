//! The slicer: cuts what a provider yields, chunks of any length at any rate, into house blocks with exact positions.
//!
//! Runs beside the provider, not on the beat: it may allocate. It adds no delay that is not the resampler's own need to see ahead,
//! trims the resampler's delay from the front, and loses nothing at the end: what comes out is as long as what went in, to the sample.

use audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Async, Fft, FixedAsync, FixedSync, Indexing, Resampler, SincInterpolationParameters, WindowFunction};

use super::block::Block;
use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, HOUSE_RATE, SamplePos, SampleRate};

/// Cuts the audio of one answer into blocks.
pub struct Slicer {
    from: SampleRate,
    generation: Generation,
    /// `None` when the rate is the house's own.
    resampler: Option<Box<dyn Resampler<f32>>>,
    /// Input that does not yet fill a chunk of the resampler.
    waiting: Vec<f32>,
    /// Output of one chunk.
    scratch: Vec<f32>,
    /// Samples of the resampler's delay still to be thrown away.
    delay_left: usize,
    taken_in: u64,
    given_out: u64,
    finished: bool,
    /// The block being filled.
    open: Block,
}

impl Slicer {
    /// A slicer for audio at `from`, whose blocks carry `generation`.
    pub fn new(from: SampleRate, generation: Generation) -> Self {
        let (resampler, delay_left) = match (from != HOUSE_RATE).then(|| resampler(from)) {
            Some((resampler, delay)) => (Some(resampler), delay),
            None => (None, 0),
        };
        let scratch = resampler.as_ref().map_or(0, |r| r.output_frames_max());
        Slicer {
            from,
            generation,
            resampler,
            waiting: Vec::new(),
            scratch: vec![0.0; scratch],
            delay_left,
            taken_in: 0,
            given_out: 0,
            finished: false,
            open: Block::new(generation, SamplePos::ZERO, &[], false),
        }
    }

    /// Takes mono samples at the provider's rate and appends the blocks they fill to `blocks`. A sample that is not a number counts as
    /// silence. Nothing is taken after [`Slicer::finish`].
    pub fn push(&mut self, samples: &[f32], blocks: &mut Vec<Block>) {
        debug_assert!(!self.finished, "nothing comes after the end");
        if self.finished {
            return;
        }
        self.taken_in += samples.len() as u64;
        let clean = samples.iter().map(|x| if x.is_finite() { *x } else { 0.0 });
        if self.resampler.is_none() {
            for x in clean {
                self.emit(x, blocks);
            }
            return;
        }
        self.waiting.extend(clean);
        let mut start = 0;
        while let Some(n) = self.resampler.as_ref().map(|r| r.input_frames_next())
            && self.waiting.len() - start >= n
        {
            self.convert(start, n, blocks);
            start += n;
        }
        self.waiting.drain(..start);
    }

    /// Ends the answer: appends what is left and marks it last. The last block may be short, and empty when nothing is left.
    pub fn finish(&mut self, blocks: &mut Vec<Block>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let whole = self.expected();
        let left = self.waiting.len();
        if left > 0 {
            self.convert(0, left, blocks);
            self.waiting.clear();
        }
        while self.given_out < whole {
            self.convert(0, 0, blocks);
        }
        self.open.last = true;
        blocks.push(self.open);
    }

    /// Samples at the house rate given out or waiting in the open block: where the next one stands.
    pub fn position(&self) -> SamplePos {
        SamplePos(self.given_out)
    }

    /// How long all that went in is at the house rate, rounded to the nearest sample.
    fn expected(&self) -> u64 {
        let from = u128::from(self.from.hz());
        ((u128::from(self.taken_in) * u128::from(HOUSE_RATE.hz()) + from / 2) / from) as u64
    }

    /// Resamples `len` waiting samples from `start` on, the rest of the resampler's chunk being silence.
    fn convert(&mut self, start: usize, len: usize, blocks: &mut Vec<Block>) {
        let Some(resampler) = self.resampler.as_mut() else { return };
        let input = InterleavedSlice::new(&self.waiting[start..start + len], 1, len).expect("the slice has this length");
        let room = self.scratch.len();
        let mut output = InterleavedSlice::new_mut(&mut self.scratch[..], 1, room).expect("the slice has this length");
        let indexing = Indexing::new().partial_len(len);
        let (_, made) = resampler
            .process_into_buffer(&input, &mut output, Some(&indexing))
            .expect("the buffers are as long as the resampler said");
        let skip = self.delay_left.min(made);
        self.delay_left -= skip;
        let whole = self.expected();
        for i in skip..made {
            // After the end only the resampler's own silence follows.
            if self.finished && self.given_out == whole {
                break;
            }
            self.emit(self.scratch[i], blocks);
        }
    }

    fn emit(&mut self, sample: f32, blocks: &mut Vec<Block>) {
        self.open.samples[self.open.len] = sample;
        self.open.len += 1;
        self.given_out += 1;
        if self.open.len == BLOCK_SAMPLES {
            blocks.push(self.open);
            self.open = Block::new(self.generation, SamplePos(self.given_out), &[], false);
        }
    }
}

/// A resampler from `from` to the house rate, and its delay in house samples. Rates with a small common ratio get the cheap exact one,
/// all others the general one.
fn resampler(from: SampleRate) -> (Box<dyn Resampler<f32>>, usize) {
    let (hz, house) = (from.hz() as usize, HOUSE_RATE.hz() as usize);
    let unit = hz / gcd(hz, house);
    // A transform spans whole periods of both rates; beyond 20 ms its look-ahead is not worth it.
    if unit <= hz / 50 {
        let chunk = (hz / 200).max(128).div_ceil(unit) * unit;
        let fft = Fft::new(hz, house, chunk, 1, FixedSync::Both).expect("both rates and the chunk are above zero");
        // The filter's centre is a whole input sample, which for an odd length is not quite half of what comes out.
        let delay = ((fft.fft_size_in() / 2) * house + hz / 2) / hz;
        (Box::new(fft), delay)
    } else {
        let parameters = SincInterpolationParameters::new(128, WindowFunction::BlackmanHarris2);
        let ratio = house as f64 / hz as f64;
        let sinc =
            Async::new_sinc(ratio, 1.0, &parameters, hz / 100, 1, FixedAsync::Input).expect("the ratio is finite and above zero");
        let delay = sinc.output_delay();
        (Box::new(sinc), delay)
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [u32; 9] = [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000, 17_389];

    /// Cuts `samples` in chunks of the given lengths, over and over.
    fn cut(hz: u32, samples: &[f32], chunks: &[usize]) -> Vec<Block> {
        let mut slicer = Slicer::new(SampleRate::new(hz).expect("a rate"), Generation(4));
        let (mut blocks, mut at) = (Vec::new(), 0);
        for len in chunks.iter().cycle() {
            let end = (at + len).min(samples.len());
            slicer.push(&samples[at..end], &mut blocks);
            at = end;
            if at == samples.len() {
                break;
            }
        }
        slicer.finish(&mut blocks);
        blocks
    }

    fn joined(blocks: &[Block]) -> Vec<f32> {
        blocks.iter().flat_map(|block| block.sound().iter().copied()).collect()
    }

    #[test]
    fn nothing_is_lost_and_nothing_added_at_any_rate_and_length() {
        for hz in RATES {
            for len in [0, 1, 7, 159, 480, 4_801, hz as usize] {
                let blocks = cut(hz, &vec![0.25; len], &[1_000, 3, 0, 441]);
                let want = (len as f64 * 48_000.0 / f64::from(hz)).round() as usize;
                let mut position = 0;
                for (n, block) in blocks.iter().enumerate() {
                    let last = n + 1 == blocks.len();
                    assert_eq!((block.generation, block.position, block.last), (Generation(4), SamplePos(position), last));
                    assert!(last || block.len == BLOCK_SAMPLES);
                    position += block.len as u64;
                }
                assert_eq!(position as usize, want, "{len} samples at {hz} Hz");
                assert!(blocks.last().is_some_and(|block| block.len < BLOCK_SAMPLES));
            }
        }
    }

    #[test]
    fn positions_map_to_the_source_to_the_sample() {
        for hz in RATES {
            let tone = |t: f64| (std::f64::consts::TAU * 440.0 * t).sin() as f32 * 0.5;
            let source: Vec<f32> = (0..hz / 2).map(|i| tone(f64::from(i) / f64::from(hz))).collect();
            let heard = joined(&cut(hz, &source, &[317]));
            // The first and last milliseconds see the edge of the tone.
            let worst = (480..heard.len() - 480).map(|i| (heard[i] - tone(i as f64 / 48_000.0)).abs()).fold(0.0, f32::max);
            // One sample off would be 0.029.
            assert!(worst < 0.02, "{hz} Hz: {worst}");
        }
    }

    #[test]
    fn the_house_rate_passes_untouched() {
        let source: Vec<f32> = (0..1_000).map(|i| i as f32 / 1_000.0).collect();
        assert_eq!(joined(&cut(48_000, &source, &[7, 600])), source);
    }

    #[test]
    fn the_first_block_comes_soon_and_no_wild_value_passes() {
        for hz in RATES {
            let mut slicer = Slicer::new(SampleRate::new(hz).expect("a rate"), Generation(1));
            let mut blocks = Vec::new();
            let mut needed = 0;
            while blocks.is_empty() {
                slicer.push(&vec![f32::NAN; hz as usize / 100], &mut blocks);
                needed += 10;
            }
            assert!(needed <= 50, "{hz} Hz: the first 10 ms need {needed} ms of source");
            assert!(blocks.iter().flat_map(Block::sound).all(|x| x.is_finite()));
        }
    }
}
