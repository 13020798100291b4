//! Nodes: what a graph is made of. Each is a pair of twins.
//!
//! The *spec* ([`Node`]) is plain data on the control side: it may be printed, compared, cloned, and knows its ports. The *worker*
//! ([`Work`]) is built from it there too, with all the memory it will ever need, and then lives on the audio side until it is sent
//! back to be dropped. One idea per file, its tests beside it.
//!
//! Life of a worker: 1. built by [`Node::build`], may allocate; 2. called once per 10 ms with [`Io`], real-time manners; 3. moved from an
//! old schedule to a new one when its node is still the same; 4. dropped on the control side.

pub mod declick;
pub mod echo;
pub mod gain;
pub mod highpass;
pub mod meter;
pub mod resample;
pub mod silero;
pub mod vad;

use std::fmt::Debug;

use crate::time::SampleRate;

/// Inputs that one node can have.
pub const MAX_INPUTS: usize = 4;
/// Outputs that one node can have.
pub const MAX_OUTPUTS: usize = 2;

/// The ports of a node. Each carries 10 ms of mono sound at its rate per call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Rates of the inputs, at most [`MAX_INPUTS`].
    pub inputs: Vec<SampleRate>,
    /// Rates of the outputs, at most [`MAX_OUTPUTS`].
    pub outputs: Vec<SampleRate>,
    /// Numbers that it measures.
    pub readings: usize,
}

impl Ports {
    /// One input and one output at the same rate.
    pub fn through(rate: SampleRate) -> Self {
        Ports { inputs: vec![rate], outputs: vec![rate], readings: 0 }
    }

    /// One input, no output, `readings` numbers.
    pub fn sink(rate: SampleRate, readings: usize) -> Self {
        Ports { inputs: vec![rate], outputs: vec![], readings }
    }
}

/// The control twin: plain data. Open: a graph takes any implementation.
pub trait Node: Debug + Send {
    /// Its ports. The same for the same value.
    fn ports(&self) -> Ports;

    /// Builds the audio twin, with all the memory it needs.
    fn build(&self) -> Box<dyn Work>;
}

/// The audio twin.
pub trait Work: Send {
    /// Works on 10 ms. Every sample of every output must be written: what stands there is old.
    fn process(&mut self, io: Io<'_, '_>);
}

/// What a worker sees of its node's ports, in the order of [`Ports`].
pub struct Io<'a, 'b> {
    /// Inputs.
    pub inputs: &'a [&'b [f32]],
    /// Outputs.
    pub outputs: &'a mut [&'b mut [f32]],
    /// Readings; they keep their value until written.
    pub readings: &'a mut [f64],
}

/// Samples of 10 ms at `rate`, or `None` when that is not a whole number.
pub(crate) fn samples_per_beat(rate: SampleRate) -> Option<usize> {
    rate.hz().is_multiple_of(100).then_some(rate.hz() as usize / 100)
}

/// Runs one worker by hand.
#[cfg(test)]
pub(crate) fn run(work: &mut dyn Work, inputs: &[&[f32]], output: &mut [f32], readings: &mut [f64]) {
    if output.is_empty() {
        work.process(Io { inputs, outputs: &mut [], readings });
    } else {
        work.process(Io { inputs, outputs: &mut [output], readings });
    }
}
