//! What the microphone chain costs per 10 ms, whole and node by node.

use antiphon::audio::compile::compile;
use antiphon::audio::graph::Graph;
use antiphon::audio::mic::MicChain;
use antiphon::audio::node::Node;
use antiphon::audio::node::declick::Declick;
use antiphon::audio::node::echo::Echo;
use antiphon::audio::node::gain::Gain;
use antiphon::audio::node::highpass::HighPass;
use antiphon::audio::node::meter::Meter;
use antiphon::audio::node::resample::Resample;
use antiphon::audio::node::vad::Vad;
use antiphon::audio::process::processor;
use antiphon::time::{BEAT, BLOCK_SAMPLES, SampleRate, Stamp};
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

const HOUSE: SampleRate = SampleRate::HZ_48000;

/// A buzz of 120 Hz.
fn sound(block: usize) -> [f32; BLOCK_SAMPLES] {
    std::array::from_fn(|i| (((block * BLOCK_SAMPLES + i) % 400) as f32 / 400.0 - 0.5) * 0.4)
}

#[divan::bench]
fn microphone_chain(bencher: Bencher) {
    let mut chain = MicChain::new();
    let (mic, played) = (sound(0), sound(3));
    let mut at = Stamp::ZERO;
    bencher.bench_local(|| {
        at += BEAT;
        black_box(chain.process(at, &mic, &played).voice)
    });
}

/// One node with its ways in and out.
fn alone(bencher: Bencher, node: impl Node + 'static) {
    let ports = node.ports();
    let mut graph = Graph::new();
    let node = graph.add(node).expect("a node");
    for (port, rate) in ports.inputs.iter().enumerate() {
        let input = graph.add_input(*rate).expect("a way in");
        graph.connect((input, 0), (node, port)).expect("a wire");
    }
    for (port, rate) in ports.outputs.iter().enumerate() {
        let output = graph.add_output(*rate).expect("a way out");
        graph.connect((node, port), (output, 0)).expect("a wire");
    }
    let (mut processor, _swapper) = processor(compile(&graph).expect("it compiles"));
    let len = |rate: &SampleRate| rate.hz() as usize / 100;
    let sound = sound(0);
    let inputs: Vec<&[f32]> = ports.inputs.iter().map(|rate| &sound[..len(rate)]).collect();
    let mut buffers: Vec<Vec<f32>> = ports.outputs.iter().map(|rate| vec![0.0; len(rate)]).collect();
    let mut outputs: Vec<&mut [f32]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    bencher.bench_local(|| processor.process(black_box(&inputs), &mut outputs));
}

#[divan::bench]
fn node_gain(bencher: Bencher) {
    alone(bencher, Gain::new(HOUSE, -3.0));
}

#[divan::bench]
fn node_highpass(bencher: Bencher) {
    alone(bencher, HighPass { rate: HOUSE, corner_hz: 80.0 });
}

#[divan::bench]
fn node_resample_to_16k(bencher: Bencher) {
    alone(bencher, Resample { from: HOUSE, to: SampleRate::HZ_16000 });
}

#[divan::bench]
fn node_declick(bencher: Bencher) {
    alone(bencher, Declick { rate: HOUSE });
}

#[divan::bench]
fn node_vad(bencher: Bencher) {
    alone(bencher, Vad);
}

#[divan::bench]
fn node_meter(bencher: Bencher) {
    alone(bencher, Meter);
}

#[divan::bench]
fn node_echo(bencher: Bencher) {
    alone(bencher, Echo);
}
