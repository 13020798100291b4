//! Compile: from a graph to a flat schedule. Everything the audio side will need is made here, on the control side, and here it is
//! dropped.

use std::ops::Range;

use super::graph::{Graph, GraphError, Kind, NodeId};
use super::node::{MAX_INPUTS, MAX_OUTPUTS, Work, samples_per_beat};

/// A graph in the order it runs: a flat list of steps over a set of buffers. Two sounds share a buffer when they are never needed at the
/// same time.
pub struct Schedule {
    pub(crate) steps: Vec<Step>,
    pub(crate) buffers: Vec<Vec<f32>>,
    pub(crate) readings: Vec<f64>,
    /// Where the readings of each node stand.
    pub(crate) reading_of: Vec<Range<usize>>,
    /// Buffers that are filled from outside, and those that are copied to the outside.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
}

/// One worker and its buffers.
pub(crate) struct Step {
    pub(crate) key: u64,
    pub(crate) work: Box<dyn Work>,
    pub(crate) inputs: Wires<MAX_INPUTS>,
    pub(crate) outputs: Wires<MAX_OUTPUTS>,
    pub(crate) readings: Range<usize>,
}

/// Up to `N` buffer numbers.
#[derive(Clone, Copy)]
pub(crate) struct Wires<const N: usize> {
    buffers: [usize; N],
    len: usize,
}

impl<const N: usize> Wires<N> {
    fn new(of: impl Iterator<Item = usize>) -> Self {
        let mut wires = Wires { buffers: [0; N], len: 0 };
        for buffer in of {
            wires.buffers[wires.len] = buffer;
            wires.len += 1;
        }
        wires
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        &self.buffers[..self.len]
    }
}

/// What a schedule looks like from outside: samples per block of each input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of the inputs.
    pub inputs: Vec<usize>,
    /// Of the outputs.
    pub outputs: Vec<usize>,
}

impl Schedule {
    /// What it looks like from outside.
    pub fn shape(&self) -> Shape {
        let lens = |of: &[usize]| of.iter().map(|b| self.buffers[*b].len()).collect();
        Shape { inputs: lens(&self.inputs), outputs: lens(&self.outputs) }
    }

    /// Buffers it needs.
    pub fn buffers(&self) -> usize {
        self.buffers.len()
    }
}

/// Sorts the graph, gives out the buffers and builds the workers.
///
/// # Errors
/// [`GraphError::Open`] when an input has no wire.
pub fn compile(graph: &Graph) -> Result<Box<Schedule>, GraphError> {
    let order = sort(graph)?;
    let mut uses = uses(graph);
    let mut pool = Pool::default();
    let mut schedule = Schedule {
        steps: Vec::new(),
        buffers: Vec::new(),
        readings: Vec::new(),
        reading_of: vec![0..0; graph.places.len()],
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut buffer_of: Vec<Vec<usize>> = vec![Vec::new(); graph.places.len()];
    // The outside writes its sound before the first step.
    for (n, place) in graph.places.iter().enumerate() {
        if matches!(place.kind, Kind::Input) {
            buffer_of[n] = vec![pool.take(len_of(graph, NodeId(n), 0))];
            schedule.inputs.push(buffer_of[n][0]);
        }
    }
    for id in order {
        let place = &graph.places[id.0];
        let Kind::Node(node) = &place.kind else { continue };
        let feeds = || place.feeds.iter().flatten();
        let inputs = Wires::new(feeds().map(|(from, port)| buffer_of[from.0][*port]));
        // Outputs are taken before inputs are given back: a worker never writes where it reads.
        buffer_of[id.0] = (0..place.ports.outputs.len()).map(|port| pool.take(len_of(graph, id, port))).collect();
        let outputs = Wires::new(buffer_of[id.0].iter().copied());
        for (from, port) in feeds() {
            uses[from.0][*port] -= 1;
            if uses[from.0][*port] == 0 {
                pool.give_back(buffer_of[from.0][*port]);
            }
        }
        for (port, buffer) in buffer_of[id.0].iter().enumerate() {
            if uses[id.0][port] == 0 {
                pool.give_back(*buffer);
            }
        }
        let readings = schedule.readings.len()..schedule.readings.len() + place.ports.readings;
        schedule.readings.resize(readings.end, 0.0);
        schedule.reading_of[id.0] = readings.clone();
        schedule.steps.push(Step { key: place.key, work: node.build(), inputs, outputs, readings });
    }
    for place in &graph.places {
        if let (Kind::Output, Some((from, port))) = (&place.kind, place.feeds.first().copied().flatten()) {
            schedule.outputs.push(buffer_of[from.0][port]);
        }
    }
    schedule.buffers = pool.lens.iter().map(|len| vec![0.0; *len]).collect();
    Ok(Box::new(schedule))
}

/// Nodes so that each comes after all that feed it; among equals in the order they were added.
fn sort(graph: &Graph) -> Result<Vec<NodeId>, GraphError> {
    let mut done = vec![false; graph.places.len()];
    let mut order = Vec::with_capacity(graph.places.len());
    for (n, place) in graph.places.iter().enumerate() {
        if let Some(port) = place.feeds.iter().position(Option::is_none) {
            return Err(GraphError::Open { node: NodeId(n), port });
        }
    }
    while order.len() < graph.places.len() {
        let ready = |n: &usize| !done[*n] && graph.places[*n].feeds.iter().flatten().all(|(from, _)| done[from.0]);
        let next = (0..graph.places.len()).find(ready).expect("a graph without circles always has a node that is ready");
        done[next] = true;
        order.push(NodeId(next));
    }
    Ok(order)
}

/// How often each output is read. What goes to the outside is read once more, after the last step, and so never given back.
fn uses(graph: &Graph) -> Vec<Vec<usize>> {
    let mut uses: Vec<Vec<usize>> = graph.places.iter().map(|place| vec![0; place.ports.outputs.len()]).collect();
    for (from, port) in graph.places.iter().flat_map(|place| place.feeds.iter().flatten()) {
        uses[from.0][*port] += 1;
    }
    uses
}

fn len_of(graph: &Graph, node: NodeId, port: usize) -> usize {
    samples_per_beat(graph.places[node.0].ports.outputs[port]).expect("the graph takes even rates only")
}

/// Gives out buffer numbers and takes them back.
#[derive(Default)]
struct Pool {
    lens: Vec<usize>,
    free: Vec<usize>,
}

impl Pool {
    fn take(&mut self, len: usize) -> usize {
        if let Some(at) = self.free.iter().position(|b| self.lens[*b] == len) {
            return self.free.swap_remove(at);
        }
        self.lens.push(len);
        self.lens.len() - 1
    }

    fn give_back(&mut self, buffer: usize) {
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::node::gain::Gain;
    use crate::time::SampleRate;

    const HOUSE: SampleRate = SampleRate::HZ_48000;

    #[test]
    fn an_open_input_is_named() {
        let mut graph = Graph::new();
        let a = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
        assert_eq!(compile(&graph).err(), Some(GraphError::Open { node: a, port: 0 }));
    }

    #[test]
    fn a_long_chain_needs_two_buffers() {
        let mut graph = Graph::new();
        let mut last = graph.add_input(HOUSE).expect("a way in");
        for _ in 0..10 {
            let next = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
            graph.connect((last, 0), (next, 0)).expect("a wire");
            last = next;
        }
        let out = graph.add_output(HOUSE).expect("a way out");
        graph.connect((last, 0), (out, 0)).expect("a wire");
        let schedule = compile(&graph).expect("it compiles");
        assert_eq!(schedule.buffers(), 2);
        assert_eq!(schedule.shape(), Shape { inputs: vec![480], outputs: vec![480] });
    }
}
