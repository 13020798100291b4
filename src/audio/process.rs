//! The processor: runs a schedule on the beat, and changes to another without a lock.
//!
//! The control side sends a schedule over a ring; the processor takes it at the start of a block, moves over the workers of the nodes that
//! are still the same, and sends the old schedule back over another ring, to be dropped where dropping is allowed. It never waits: while
//! the way back is full it goes on with what it has.

use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use super::compile::{Schedule, Shape, Step};
use super::graph::NodeId;
use super::node::{Io, MAX_INPUTS, MAX_OUTPUTS};

/// Schedules on their way, each way.
const ON_THE_WAY: usize = 4;

/// The audio side and the control side of a running graph.
pub fn processor(schedule: Box<Schedule>) -> (Processor, Swapper) {
    let (to_audio, from_control) = HeapRb::new(ON_THE_WAY).split();
    let (to_control, from_audio) = HeapRb::new(ON_THE_WAY).split();
    let shape = schedule.shape();
    (Processor { schedule, new: from_control, old: to_control }, Swapper { new: to_audio, old: from_audio, shape })
}

/// The audio side.
pub struct Processor {
    schedule: Box<Schedule>,
    new: HeapCons<Box<Schedule>>,
    old: HeapProd<Box<Schedule>>,
}

impl Processor {
    /// Runs 10 ms. Real-time manners.
    ///
    /// # Panics
    /// When `inputs` and `outputs` are not of the schedule's [`Shape`].
    pub fn process(&mut self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) {
        self.change();
        let schedule = &mut *self.schedule;
        assert_eq!((inputs.len(), outputs.len()), (schedule.inputs.len(), schedule.outputs.len()), "as many as the graph has");
        for (samples, buffer) in inputs.iter().zip(&schedule.inputs) {
            schedule.buffers[*buffer].copy_from_slice(samples);
        }
        for step in &mut schedule.steps {
            run(step, &mut schedule.buffers, &mut schedule.readings);
        }
        for (samples, buffer) in outputs.iter_mut().zip(&schedule.outputs) {
            samples.copy_from_slice(&schedule.buffers[*buffer]);
        }
    }

    /// What a node measured in the last block; `None` when it has no such reading.
    pub fn reading(&self, node: NodeId, reading: usize) -> Option<f64> {
        self.schedule.readings[self.schedule.reading_of.get(node.0)?.clone()].get(reading).copied()
    }

    /// Changes to the next schedule if one has arrived and the way back has room. One per block, so that a ramp that a change begins is
    /// over before the next change.
    fn change(&mut self) {
        if self.old.is_full() {
            return;
        }
        let Some(mut new) = self.new.try_pop() else { return };
        for step in &mut new.steps {
            // Graphs are small: looking through them is cheaper than any table.
            if let Some(same) = self.schedule.steps.iter_mut().find(|old| old.key == step.key) {
                std::mem::swap(&mut step.work, &mut same.work);
                let from = same.readings.clone();
                new.readings[step.readings.clone()].copy_from_slice(&self.schedule.readings[from]);
            }
        }
        let old = std::mem::replace(&mut self.schedule, new);
        let sent = self.old.try_push(old);
        debug_assert!(sent.is_ok(), "only this side fills the way back, and there was room");
    }
}

/// Runs one step. A worker's outputs are taken out of the buffers while it runs, which moves three words and no sample.
fn run(step: &mut Step, buffers: &mut [Vec<f32>], readings: &mut [f64]) {
    let mut taken: [Vec<f32>; MAX_OUTPUTS] = Default::default();
    for (place, buffer) in taken.iter_mut().zip(step.outputs.as_slice()) {
        *place = std::mem::take(&mut buffers[*buffer]);
    }
    {
        let mut inputs: [&[f32]; MAX_INPUTS] = [&[]; MAX_INPUTS];
        for (place, buffer) in inputs.iter_mut().zip(step.inputs.as_slice()) {
            *place = &buffers[*buffer];
        }
        let mut outputs = taken.each_mut().map(Vec::as_mut_slice);
        step.work.process(Io {
            inputs: &inputs[..step.inputs.as_slice().len()],
            outputs: &mut outputs[..step.outputs.as_slice().len()],
            readings: &mut readings[step.readings.clone()],
        });
    }
    for (place, buffer) in taken.iter_mut().zip(step.outputs.as_slice()) {
        buffers[*buffer] = std::mem::take(place);
    }
}

/// Why a schedule was not taken. It comes back.
#[derive(thiserror::Error)]
pub enum SwapError {
    /// The audio side has not yet taken the ones before. Trying again after its next block helps.
    #[error("the audio side has not yet taken the schedules before")]
    Full(Box<Schedule>),
    /// It looks different from outside than the one that runs. Trying again does not help.
    #[error("the schedule has other inputs or outputs than the one that runs")]
    Shape(Box<Schedule>),
}

impl std::fmt::Debug for SwapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SwapError::Full(_) => f.write_str("Full"),
            SwapError::Shape(_) => f.write_str("Shape"),
        }
    }
}

/// The control side.
pub struct Swapper {
    new: HeapProd<Box<Schedule>>,
    old: HeapCons<Box<Schedule>>,
    shape: Shape,
}

impl Swapper {
    /// Sends a schedule to the audio side, which changes to it at the start of its next block, and drops what has come back.
    ///
    /// # Errors
    /// [`SwapError`], with the schedule.
    pub fn swap(&mut self, schedule: Box<Schedule>) -> Result<(), SwapError> {
        self.collect();
        if schedule.shape() != self.shape {
            return Err(SwapError::Shape(schedule));
        }
        self.new.try_push(schedule).map_err(SwapError::Full)
    }

    /// Drops the schedules that the audio side is done with, and returns how many there were.
    pub fn collect(&mut self) -> usize {
        self.old.pop_iter().count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::compile::compile;
    use super::super::graph::Graph;
    use super::super::node::gain::Gain;
    use super::super::node::{Node, Ports, Work};
    use super::*;
    use crate::time::SampleRate;

    const HOUSE: SampleRate = SampleRate::HZ_48000;

    /// Counts its blocks in reading 0 and its drops outside.
    #[derive(Debug, Clone)]
    struct Counter {
        dropped: Arc<AtomicUsize>,
    }

    struct Counting {
        blocks: f64,
        dropped: Arc<AtomicUsize>,
    }

    impl Node for Counter {
        fn ports(&self) -> Ports {
            Ports { readings: 1, ..Ports::through(HOUSE) }
        }

        fn build(&self) -> Box<dyn Work> {
            Box::new(Counting { blocks: 0.0, dropped: self.dropped.clone() })
        }
    }

    impl Work for Counting {
        fn process(&mut self, io: Io<'_, '_>) {
            self.blocks += 1.0;
            io.readings[0] = self.blocks;
            io.outputs[0].copy_from_slice(io.inputs[0]);
        }
    }

    impl Drop for Counting {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// In, counter, gain, out.
    fn small(dropped: &Arc<AtomicUsize>) -> (Graph, NodeId, NodeId) {
        let mut graph = Graph::new();
        let input = graph.add_input(HOUSE).expect("a way in");
        let counter = graph.add(Counter { dropped: dropped.clone() }).expect("a node");
        let gain = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
        let output = graph.add_output(HOUSE).expect("a way out");
        for (from, to) in [(input, counter), (counter, gain), (gain, output)] {
            graph.connect((from, 0), (to, 0)).expect("a wire");
        }
        (graph, counter, gain)
    }

    #[test]
    fn a_swap_keeps_the_nodes_that_stayed_and_drops_the_rest_on_the_control_side() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (mut graph, counter, gain) = small(&dropped);
        let (mut processor, mut swapper) = processor(compile(&graph).expect("it compiles"));
        let mut out = [0.0; 480];
        for _ in 0..3 {
            processor.process(&[&[0.5; 480]], &mut [&mut out]);
        }
        assert_eq!((processor.reading(counter, 0), out[479]), (Some(3.0), 0.5));

        graph.replace(gain, Gain::new(HOUSE, -6.0206)).expect("the same ports");
        swapper.swap(compile(&graph).expect("it compiles")).expect("there is room");
        processor.process(&[&[0.5; 480]], &mut [&mut out]);
        assert_eq!(processor.reading(counter, 0), Some(4.0), "the counter went on");
        assert!((out[479] - 0.25).abs() < 1e-4, "the new gain works");
        assert_eq!(dropped.load(Ordering::SeqCst), 0, "nothing was dropped on the audio side");
        assert_eq!(swapper.collect(), 1);
        assert_eq!(dropped.load(Ordering::SeqCst), 1, "the unused twin died with the old schedule");
    }

    #[test]
    fn the_processor_never_drops_even_if_nobody_collects() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (graph, ..) = small(&dropped);
        let (mut processor, mut swapper) = processor(compile(&graph).expect("it compiles"));
        let mut out = [0.0; 480];
        let (mut sent, mut refused) = (0, 0);
        for _ in 0..20 {
            // Past `swap`, which collects.
            match swapper.new.try_push(compile(&graph).expect("it compiles")) {
                Ok(()) => sent += 1,
                Err(_) => refused += 1,
            }
            processor.process(&[&[0.1; 480]], &mut [&mut out]);
        }
        assert_eq!((sent, refused), (2 * ON_THE_WAY, 20 - 2 * ON_THE_WAY));
        assert_eq!(dropped.load(Ordering::SeqCst), refused, "only the refused ones, here");
        assert_eq!(swapper.collect(), ON_THE_WAY);
    }

    #[test]
    fn a_schedule_of_another_shape_comes_back() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (graph, ..) = small(&dropped);
        let (_processor, mut swapper) = processor(compile(&graph).expect("it compiles"));
        let mut other = Graph::new();
        let (i, o) = (other.add_input(SampleRate::HZ_16000).expect("in"), other.add_output(SampleRate::HZ_16000).expect("out"));
        other.connect((i, 0), (o, 0)).expect("a wire");
        let refused = swapper.swap(compile(&other).expect("it compiles"));
        assert!(matches!(refused, Err(SwapError::Shape(_))));
    }
}
