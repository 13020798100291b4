//! Silero: the careful ear, a small recurrent network that says how probable it is that somebody speaks.
//!
//! Silero VAD 6, 16 kHz (Silero Team, MIT; weights in `assets/models`, made from the wheel by `make_silero.py` there). The forward pass is our
//! own, so that it runs on the beat: magnitudes of four spectra of 16 ms, four convolutions, one LSTM cell, one output. It says
//! what the original says to within 1e-4; the tests hold it to scores of the original over a recorded voice.
//!
//! The weights are read once and shared. A [`Silero`] is working memory, a [`Memory`] what one listener has heard: several listeners,
//! each a little behind the other, can share all the rest.

use std::sync::{Arc, LazyLock};

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

/// Samples of one frame at 16 kHz: 4 ms that were heard before, and 32 ms.
pub const FRAME: usize = 576;
/// Samples that the network is trained to hear anew with each frame: 32 ms. A few less do no harm.
pub const FRESH: usize = 512;

const HIDDEN: usize = 128;
const GATES: usize = 4 * HIDDEN;
const WINDOW: usize = 256;
const HOP: usize = 128;
const BINS: usize = WINDOW / 2 + 1;
/// Spectra of one frame; the last one looks past its end into its mirror image.
const SPECTRA: usize = 4;
const MIRRORED: usize = FRAME + 64;
const TAPS: usize = 3;
/// Outputs of the middle layers.
const NARROW: usize = 64;
/// Outputs that are summed at a time, in registers.
const LANES: usize = 32;
/// The same when four spectra are weighed at once.
const QUAD: usize = 8;

const _: () = assert!((MIRRORED - WINDOW) / HOP + 1 == SPECTRA, "the spectra cover a frame");

static BYTES: &[u8] = include_bytes!("../../../assets/models/silero_16k.bin");
static WEIGHTS: LazyLock<Weights> = LazyLock::new(Weights::read);

/// What one listener remembers: the state of the LSTM cell. Starts with nothing.
#[derive(Clone, Debug)]
pub struct Memory {
    hidden: [f32; HIDDEN],
    cell: [f32; HIDDEN],
}

impl Default for Memory {
    fn default() -> Self {
        Memory { hidden: [0.0; HIDDEN], cell: [0.0; HIDDEN] }
    }
}

/// The network with its working memory. Building one allocates, and the first one reads the weights; listening does neither.
pub struct Silero {
    weights: &'static Weights,
    fft: Arc<dyn RealToComplex<f32>>,
    scratch: Vec<Complex<f32>>,
    bins: [Complex<f32>; BINS],
    /// Magnitudes, with a spectrum of nothing before and after.
    spectra: [[f32; BINS]; SPECTRA + 2],
    /// What the layers say, one position after the other.
    first: [[f32; HIDDEN]; SPECTRA],
    second: [[f32; NARROW]; 2],
    third: [f32; NARROW],
    fourth: [f32; HIDDEN],
    gates: [f32; GATES],
    active: Active,
}

impl Default for Silero {
    fn default() -> Self {
        let fft = RealFftPlanner::new().plan_fft_forward(WINDOW);
        let scratch = fft.make_scratch_vec();
        Silero {
            weights: &WEIGHTS,
            fft,
            scratch,
            bins: [Complex::ZERO; BINS],
            spectra: [[0.0; BINS]; SPECTRA + 2],
            first: [[0.0; HIDDEN]; SPECTRA],
            second: [[0.0; NARROW]; 2],
            third: [0.0; NARROW],
            fourth: [0.0; HIDDEN],
            gates: [0.0; GATES],
            active: Active::default(),
        }
    }
}

impl Silero {
    /// The probability, 0..=1, that somebody speaks at the end of `frame`, for a listener who has heard what is in `memory`.
    /// Samples are -1..=1 at 16 kHz. Real-time manners.
    pub fn probability(&mut self, frame: &[f32; FRAME], memory: &mut Memory) -> f32 {
        let w = self.weights;
        self.look(frame);
        w.first.quad(&self.spectra, &mut self.first);
        self.first.as_flattened_mut().iter_mut().for_each(relu);

        // Every second position, with nothing before the first: taps 1 and 2 see positions 0 and 1, then taps 0 to 2 positions 1 to 3.
        for (out, (from, tap)) in self.second.iter_mut().zip([(0, 1), (1, 0)]) {
            self.active.gather(self.first[from..from + TAPS - tap].as_flattened(), tap * HIDDEN);
            w.second.apply(&self.active, out);
        }
        // Again every second position: one is left, and of three taps two see something; then the middle one alone.
        self.active.gather(self.second.as_flattened(), NARROW);
        w.third.apply(&self.active, &mut self.third);
        self.active.gather(&self.third, 0);
        w.fourth.apply(&self.active, &mut self.fourth);

        self.active.gather(&self.fourth, 0);
        self.active.append(&memory.hidden, HIDDEN);
        w.gates.sum(&self.active, &mut self.gates);
        let mut logit = w.out_bias;
        let [enter, forget, say, show] = [0, 1, 2, 3].map(|n| &self.gates[n * HIDDEN..][..HIDDEN]);
        for i in 0..HIDDEN {
            let cell = sigmoid(forget[i]) * memory.cell[i] + sigmoid(enter[i]) * tanh(say[i]);
            let hidden = sigmoid(show[i]) * tanh(cell);
            memory.cell[i] = cell;
            memory.hidden[i] = hidden;
            logit += hidden.max(0.0) * w.out[i];
        }
        sigmoid(logit)
    }

    /// Magnitudes of the spectra of `frame`.
    fn look(&mut self, frame: &[f32; FRAME]) {
        let mut mirrored = [0.0; MIRRORED];
        mirrored[..FRAME].copy_from_slice(frame);
        for (to, x) in mirrored[FRAME..].iter_mut().zip(frame[..FRAME - 1].iter().rev()) {
            *to = *x;
        }
        for (n, spectrum) in self.spectra[1..=SPECTRA].iter_mut().enumerate() {
            let mut windowed: [f32; WINDOW] = std::array::from_fn(|i| mirrored[n * HOP + i] * self.weights.window[i]);
            self.fft
                .process_with_scratch(&mut windowed, &mut self.bins, &mut self.scratch)
                .expect("the buffers have the lengths that the plan asks for");
            for (to, bin) in spectrum.iter_mut().zip(&self.bins) {
                *to = (bin.re * bin.re + bin.im * bin.im).sqrt();
            }
        }
    }
}

/// The inputs of a layer that are not zero. Behind a rectifier many are, and they need no work.
struct Active {
    list: [(u32, f32); TAPS * HIDDEN],
    len: usize,
}

impl Default for Active {
    fn default() -> Self {
        Active { list: [(0, 0.0); TAPS * HIDDEN], len: 0 }
    }
}

impl Active {
    /// Lists `inputs`, the first of which has the number `at`.
    fn gather(&mut self, inputs: &[f32], at: usize) {
        self.len = 0;
        self.append(inputs, at);
    }

    fn append(&mut self, inputs: &[f32], at: usize) {
        for (number, x) in (at as u32..).zip(inputs) {
            self.list[self.len] = (number, *x);
            self.len += usize::from(*x != 0.0);
        }
    }
}

/// One layer: weights by group of outputs, then by input, then by output of the group.
struct Layer<const OUT: usize> {
    weights: Vec<f32>,
    bias: [f32; OUT],
    inputs: usize,
}

impl<const OUT: usize> Layer<OUT> {
    /// Weighted sums of what is active, with the bias.
    fn sum(&self, active: &Active, out: &mut [f32; OUT]) {
        let groups = self.weights.chunks_exact(self.inputs * LANES);
        for ((group, bias), out) in groups.zip(self.bias.as_chunks::<LANES>().0).zip(out.as_chunks_mut::<LANES>().0) {
            let rows = group.as_chunks::<LANES>().0;
            let mut sums = *bias;
            for (input, x) in &active.list[..active.len] {
                let row = &rows[*input as usize];
                for (sum, weight) in sums.iter_mut().zip(row) {
                    *sum += weight * x;
                }
            }
            *out = sums;
        }
    }

    /// The same, rectified.
    fn apply(&self, active: &Active, out: &mut [f32; OUT]) {
        self.sum(active, out);
        out.iter_mut().for_each(relu);
    }

    /// The first convolution: all four positions at once, so that each weight is read once.
    fn quad(&self, spectra: &[[f32; BINS]; SPECTRA + 2], out: &mut [[f32; OUT]; SPECTRA]) {
        let groups = self.weights.chunks_exact(self.inputs * QUAD);
        for (n, (group, bias)) in groups.zip(self.bias.as_chunks::<QUAD>().0).enumerate() {
            let rows = group.as_chunks::<QUAD>().0;
            let mut sums = [*bias; SPECTRA];
            for tap in 0..TAPS {
                for (bin, row) in rows[tap * BINS..][..BINS].iter().enumerate() {
                    for (position, sums) in sums.iter_mut().enumerate() {
                        let x = spectra[position + tap][bin];
                        for (sum, weight) in sums.iter_mut().zip(row) {
                            *sum += weight * x;
                        }
                    }
                }
            }
            for (out, sums) in out.iter_mut().zip(sums) {
                out[n * QUAD..][..QUAD].copy_from_slice(&sums);
            }
        }
    }
}

struct Weights {
    window: [f32; WINDOW],
    first: Layer<HIDDEN>,
    second: Layer<NARROW>,
    third: Layer<NARROW>,
    fourth: Layer<HIDDEN>,
    gates: Layer<GATES>,
    out: [f32; HIDDEN],
    out_bias: f32,
}

impl Weights {
    fn read() -> Self {
        let (numbers, []) = BYTES.as_chunks::<4>() else { panic!("the weights are whole numbers of four bytes") };
        let mut numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let mut take = |n: usize| -> Vec<f32> { numbers.by_ref().take(n).collect() };

        let first = (take(HIDDEN * BINS * TAPS), take(HIDDEN));
        let second = (take(NARROW * HIDDEN * TAPS), take(NARROW));
        let third = (take(NARROW * NARROW * TAPS), take(NARROW));
        let fourth = (take(HIDDEN * NARROW * TAPS), take(HIDDEN));
        let (from_input, from_hidden) = (take(GATES * HIDDEN), take(GATES * HIDDEN));
        let (bias, more_bias) = (take(GATES), take(GATES));
        let (out, out_bias) = (take(HIDDEN), take(1));
        assert!(out_bias.len() == 1 && numbers.next().is_none(), "the file of the weights has its length");

        // The file has them by output, input, tap; inputs are numbered by tap, then by channel.
        let conv = |w: &[f32], channels: usize, o: usize, input: usize| {
            let (tap, channel) = (input / channels, input % channels);
            w[(o * channels + channel) * TAPS + tap]
        };
        Weights {
            // Periodic Hann.
            window: std::array::from_fn(|n| (0.5 - 0.5 * (std::f64::consts::TAU * n as f64 / WINDOW as f64).cos()) as f32),
            first: layer::<HIDDEN, QUAD>(BINS * TAPS, &first.1, |o, i| conv(&first.0, BINS, o, i)),
            second: layer::<NARROW, LANES>(HIDDEN * TAPS, &second.1, |o, i| conv(&second.0, HIDDEN, o, i)),
            third: layer::<NARROW, LANES>(NARROW * TAPS, &third.1, |o, i| conv(&third.0, NARROW, o, i)),
            // One position, with nothing on either side: the middle tap.
            fourth: layer::<HIDDEN, LANES>(NARROW, &fourth.1, |o, i| conv(&fourth.0, NARROW, o, NARROW + i)),
            gates: layer::<GATES, LANES>(2 * HIDDEN, &std::array::from_fn::<_, GATES, _>(|o| bias[o] + more_bias[o]), |o, i| {
                let (from, i) = if i < HIDDEN { (&from_input, i) } else { (&from_hidden, i - HIDDEN) };
                from[o * HIDDEN + i]
            }),
            out: std::array::from_fn(|i| out[i]),
            out_bias: out_bias[0],
        }
    }
}

/// A layer with `lanes` outputs to a group, its weights by output and input.
fn layer<const OUT: usize, const GROUP: usize>(inputs: usize, bias: &[f32], weight: impl Fn(usize, usize) -> f32) -> Layer<OUT> {
    let mut weights = Vec::with_capacity(OUT * inputs);
    for group in 0..OUT / GROUP {
        for input in 0..inputs {
            weights.extend((0..GROUP).map(|lane| weight(group * GROUP + lane, input)));
        }
    }
    Layer { weights, bias: std::array::from_fn(|o| bias[o]), inputs }
}

fn relu(x: &mut f32) {
    *x = x.max(0.0);
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

#[cfg(test)]
#[path = "silero_tests.rs"]
mod tests;
