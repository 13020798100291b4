//! The graph: nodes and the wires between them, on the control side. It refuses what could not be compiled: cycles, bad ports, rates
//! that do not match. Nothing here is ever touched by the audio side; [`super::compile`] makes a schedule of it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::node::{MAX_INPUTS, MAX_OUTPUTS, Node, Ports, samples_per_beat};
use crate::time::SampleRate;

/// A node of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) usize);

/// Which side of a node a port is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sound goes in.
    Input,
    /// Sound comes out.
    Output,
}

/// Why a graph did not take a change, or could not be compiled. The graph is as it was before. Trying again does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The node is of another graph.
    #[error("there is no node {node:?} in this graph")]
    NoSuchNode {
        /// The node.
        node: NodeId,
    },
    /// The node has no such port.
    #[error("node {node:?} has no {side:?} {port}")]
    NoSuchPort {
        /// The node.
        node: NodeId,
        /// Which side.
        side: Side,
        /// The port.
        port: usize,
    },
    /// The two ports run at different rates; a resampler belongs between them.
    #[error("an output at {from} cannot feed an input at {to}")]
    Rates {
        /// Rate of the output.
        from: SampleRate,
        /// Rate of the input.
        to: SampleRate,
    },
    /// The input has a wire already; sounds are not mixed by chance.
    #[error("input {port} of node {node:?} has a wire already")]
    Taken {
        /// The node.
        node: NodeId,
        /// The input.
        port: usize,
    },
    /// The wire would close a circle.
    #[error("a wire from {from:?} to {to:?} would close a circle")]
    Cycle {
        /// Where the wire begins.
        from: NodeId,
        /// Where it ends.
        to: NodeId,
    },
    /// An input has no wire.
    #[error("input {port} of node {node:?} has no wire")]
    Open {
        /// The node.
        node: NodeId,
        /// The input.
        port: usize,
    },
    /// 10 ms at this rate are not a whole number of samples.
    #[error("10 ms at {rate} are not whole samples")]
    UnevenRate {
        /// The rate.
        rate: SampleRate,
    },
    /// The node has more ports than a node may have.
    #[error("a node has at most {MAX_INPUTS} inputs and {MAX_OUTPUTS} outputs")]
    TooManyPorts,
    /// The node that was to take another's place has other ports.
    #[error("the node that takes the place of {node:?} has other ports")]
    OtherPorts {
        /// The node that keeps its place.
        node: NodeId,
    },
}

/// What stands in one place of the graph.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Sound from outside.
    Input,
    /// Sound to the outside.
    Output,
    /// A node.
    Node(Box<dyn Node>),
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) ports: Ports,
    /// Which output, of which node, feeds each input.
    pub(crate) feeds: Vec<Option<(NodeId, usize)>>,
    /// Names this very node for ever: a worker built for it may move to the next schedule.
    pub(crate) key: u64,
}

/// Nodes and wires.
#[derive(Debug, Default)]
pub struct Graph {
    pub(crate) places: Vec<Place>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a way in for sound at `rate`; it has output 0. Inputs are numbered in the order they are added.
    ///
    /// # Errors
    /// [`GraphError::UnevenRate`].
    pub fn add_input(&mut self, rate: SampleRate) -> Result<NodeId, GraphError> {
        self.place(Kind::Input, Ports { outputs: vec![rate], ..Ports::default() })
    }

    /// Adds a way out for sound at `rate`; it has input 0. Outputs are numbered in the order they are added.
    ///
    /// # Errors
    /// [`GraphError::UnevenRate`].
    pub fn add_output(&mut self, rate: SampleRate) -> Result<NodeId, GraphError> {
        self.place(Kind::Output, Ports { inputs: vec![rate], ..Ports::default() })
    }

    /// Adds a node.
    ///
    /// # Errors
    /// [`GraphError::UnevenRate`] and [`GraphError::TooManyPorts`].
    pub fn add(&mut self, node: impl Node + 'static) -> Result<NodeId, GraphError> {
        let ports = node.ports();
        self.place(Kind::Node(Box::new(node)), ports)
    }

    /// Puts another node with the same ports in the place of `old`; its wires stay. In the next schedule it begins anew, while all other
    /// nodes go on.
    ///
    /// # Errors
    /// [`GraphError::NoSuchNode`] and [`GraphError::OtherPorts`].
    pub fn replace(&mut self, old: NodeId, node: impl Node + 'static) -> Result<(), GraphError> {
        let place = self.places.get_mut(old.0).ok_or(GraphError::NoSuchNode { node: old })?;
        if place.ports != node.ports() || !matches!(place.kind, Kind::Node(_)) {
            return Err(GraphError::OtherPorts { node: old });
        }
        place.kind = Kind::Node(Box::new(node));
        place.key = fresh_key();
        Ok(())
    }

    /// Lays a wire from an output to an input. One output may feed many inputs.
    ///
    /// # Errors
    /// [`GraphError::NoSuchNode`], [`GraphError::NoSuchPort`], [`GraphError::Rates`], [`GraphError::Taken`], [`GraphError::Cycle`].
    pub fn connect(&mut self, from: (NodeId, usize), to: (NodeId, usize)) -> Result<(), GraphError> {
        let rate_from = self.rate(from, Side::Output)?;
        let rate_to = self.rate(to, Side::Input)?;
        if rate_from != rate_to {
            return Err(GraphError::Rates { from: rate_from, to: rate_to });
        }
        if self.places[to.0.0].feeds[to.1].is_some() {
            return Err(GraphError::Taken { node: to.0, port: to.1 });
        }
        if self.hangs_on(from.0, to.0) {
            return Err(GraphError::Cycle { from: from.0, to: to.0 });
        }
        self.places[to.0.0].feeds[to.1] = Some(from);
        Ok(())
    }

    /// Takes the wire to this input away. Returns whether there was one.
    ///
    /// # Errors
    /// [`GraphError::NoSuchNode`], [`GraphError::NoSuchPort`].
    pub fn disconnect(&mut self, to: (NodeId, usize)) -> Result<bool, GraphError> {
        self.rate(to, Side::Input)?;
        Ok(self.places[to.0.0].feeds[to.1].take().is_some())
    }

    fn place(&mut self, kind: Kind, ports: Ports) -> Result<NodeId, GraphError> {
        if ports.inputs.len() > MAX_INPUTS || ports.outputs.len() > MAX_OUTPUTS {
            return Err(GraphError::TooManyPorts);
        }
        if let Some(rate) = ports.inputs.iter().chain(&ports.outputs).find(|rate| samples_per_beat(**rate).is_none()) {
            return Err(GraphError::UnevenRate { rate: *rate });
        }
        let feeds = vec![None; ports.inputs.len()];
        self.places.push(Place { kind, ports, feeds, key: fresh_key() });
        Ok(NodeId(self.places.len() - 1))
    }

    fn rate(&self, (node, port): (NodeId, usize), side: Side) -> Result<SampleRate, GraphError> {
        let place = self.places.get(node.0).ok_or(GraphError::NoSuchNode { node })?;
        let rates = match side {
            Side::Input => &place.ports.inputs,
            Side::Output => &place.ports.outputs,
        };
        rates.get(port).copied().ok_or(GraphError::NoSuchPort { node, side, port })
    }

    /// Whether `node` is `on`, or gets sound from it by any way.
    fn hangs_on(&self, node: NodeId, on: NodeId) -> bool {
        let mut seen = vec![false; self.places.len()];
        let mut open = vec![node];
        while let Some(next) = open.pop() {
            if next == on {
                return true;
            }
            if !std::mem::replace(&mut seen[next.0], true) {
                open.extend(self.places[next.0].feeds.iter().flatten().map(|(from, _)| *from));
            }
        }
        false
    }
}

fn fresh_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::node::gain::Gain;
    use crate::audio::node::highpass::HighPass;
    use crate::audio::node::resample::Resample;

    const HOUSE: SampleRate = SampleRate::HZ_48000;

    #[test]
    fn bad_wires_are_refused_and_change_nothing() {
        let mut graph = Graph::new();
        let input = graph.add_input(HOUSE).expect("a way in");
        let a = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
        let b = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
        let down = graph.add(Resample { from: HOUSE, to: SampleRate::HZ_16000 }).expect("a node");
        graph.connect((a, 0), (b, 0)).expect("a wire");

        let stranger = NodeId(99);
        let cases = [
            ((a, 0), (a, 0), GraphError::Cycle { from: a, to: a }),
            ((b, 0), (a, 0), GraphError::Cycle { from: b, to: a }),
            ((input, 0), (b, 0), GraphError::Taken { node: b, port: 0 }),
            ((a, 1), (down, 0), GraphError::NoSuchPort { node: a, side: Side::Output, port: 1 }),
            ((a, 0), (down, 1), GraphError::NoSuchPort { node: down, side: Side::Input, port: 1 }),
            ((a, 0), (input, 0), GraphError::NoSuchPort { node: input, side: Side::Input, port: 0 }),
            ((stranger, 0), (a, 0), GraphError::NoSuchNode { node: stranger }),
            ((down, 0), (a, 0), GraphError::Rates { from: SampleRate::HZ_16000, to: HOUSE }),
        ];
        for (from, to, error) in cases {
            assert_eq!(graph.connect(from, to), Err(error));
        }
        assert_eq!(graph.connect((input, 0), (a, 0)), Ok(()), "the good wire still fits");
        assert_eq!((graph.disconnect((a, 0)), graph.disconnect((a, 0))), (Ok(true), Ok(false)));
    }

    #[test]
    fn a_circle_is_found_over_any_distance() {
        let mut graph = Graph::new();
        let nodes: Vec<_> = (0..6).map(|_| graph.add(Gain::new(HOUSE, 0.0)).expect("a node")).collect();
        for pair in nodes.windows(2) {
            graph.connect((pair[0], 0), (pair[1], 0)).expect("a wire");
        }
        assert_eq!(graph.connect((nodes[5], 0), (nodes[0], 0)), Err(GraphError::Cycle { from: nodes[5], to: nodes[0] }));
    }

    #[test]
    fn odd_rates_and_odd_replacements_are_refused() {
        let mut graph = Graph::new();
        let odd = SampleRate::new(22_050).expect("a rate");
        assert_eq!(graph.add_input(odd), Err(GraphError::UnevenRate { rate: odd }));
        let a = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
        assert_eq!(graph.replace(a, Gain::new(SampleRate::HZ_16000, 0.0)), Err(GraphError::OtherPorts { node: a }));
        assert_eq!(graph.replace(a, HighPass { rate: HOUSE, corner_hz: 80.0 }), Ok(()));
    }
}
