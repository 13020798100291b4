//! The manners of everything that runs on the beat, under an allocator that refuses: whoever allocates or frees inside
//! [`assert_no_alloc`] ends the process.

use std::process::Command;

use antiphon::audio::block::Block;
use antiphon::audio::capture::{Captured, capture_ring};
use antiphon::audio::compile::compile;
use antiphon::audio::fence::{Fence, Mode};
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
use antiphon::audio::ring::playback_ring;
use antiphon::id::Generation;
use antiphon::time::{BEAT, BLOCK_SAMPLES, SamplePos, SampleRate, Stamp};
use assert_no_alloc::{AllocDisabler, assert_no_alloc};

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

const HOUSE: SampleRate = SampleRate::HZ_48000;
const LOW: SampleRate = SampleRate::HZ_16000;

/// A sound with something for every detector: bursts of a buzz, with pauses of digital silence.
fn sound(block: usize) -> [f32; BLOCK_SAMPLES] {
    std::array::from_fn(|i| {
        let n = block * BLOCK_SAMPLES + i;
        if block % 70 < 20 { 0.0 } else { ((n % 400) as f32 / 400.0 - 0.5) * 0.4 }
    })
}

#[test]
fn pulling_is_quiet_in_every_mode_and_through_raises_holds_and_underruns() {
    let fence = Fence::new();
    let (mut writer, mut reader) = playback_ring(64, fence.clone());
    let mut out = [0.0; 1_024];
    let mut dropped = 0;
    for (round, len) in [480, 64, 1_024, 240, 1, 480].into_iter().cycle().take(240).enumerate() {
        let generation = Generation(round as u64 / 12 + 1);
        if round % 12 == 0 {
            fence.raise(generation);
        }
        let mode = [Mode::Play, Mode::Duck, Mode::Hold][round % 3];
        for n in 0..20 {
            let block = Block::new(generation, SamplePos(n * 480), &[0.5; 480], round % 5 == 0);
            if writer.push(block).is_err() {
                break;
            }
        }
        let pulled = assert_no_alloc(|| {
            fence.set_mode(generation, mode);
            reader.pull(&mut out[..len])
        });
        assert_eq!(pulled.generation, generation);
        dropped = writer.ledger().dropped;
    }
    assert!(dropped > 0, "stale blocks were skipped on the way");
}

#[test]
fn the_microphone_chain_is_quiet_through_speech_silence_and_a_change_of_gain() {
    let (mut chain, mut control) = MicChain::controlled();
    let mut at = Stamp::ZERO;
    let mut told = 0;
    for block in 0..600 {
        let (mic, played) = (sound(block), sound(block + 8));
        if block % 100 == 50 {
            control.set_gain(-((block / 100) as f32)).expect("there is room");
        }
        told += assert_no_alloc(|| usize::from(chain.process(at, &mic, &played).voice.is_some()));
        at += BEAT;
    }
    assert!(told > 0, "the detectors worked");
}

#[test]
fn every_node_is_quiet() {
    /// A node with as many ways in and out as it has ports.
    fn alone(node: impl Node + 'static) {
        let name = format!("{node:?}");
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
        for block in 0..200 {
            let sound = sound(block);
            let len = |rate: &SampleRate| rate.hz() as usize / 100;
            let inputs: Vec<&[f32]> = ports.inputs.iter().map(|rate| &sound[..len(rate)]).collect();
            let mut buffers: Vec<Vec<f32>> = ports.outputs.iter().map(|rate| vec![0.0; len(rate)]).collect();
            let mut outputs: Vec<&mut [f32]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
            assert_no_alloc(|| processor.process(&inputs, &mut outputs));
            assert!(buffers.iter().flatten().all(|x| x.is_finite()), "{name}");
        }
    }
    alone(Gain::new(HOUSE, -3.0).going_to(2.0));
    alone(HighPass { rate: HOUSE, corner_hz: 80.0 });
    alone(Resample { from: HOUSE, to: LOW });
    alone(Resample { from: LOW, to: HOUSE });
    alone(Declick { rate: HOUSE });
    alone(Vad);
    alone(Meter);
    alone(Echo);
}

#[test]
fn a_change_of_schedule_is_quiet_even_when_nobody_collects_the_old_ones() {
    let mut graph = Graph::new();
    let input = graph.add_input(HOUSE).expect("a way in");
    let gain = graph.add(Gain::new(HOUSE, 0.0)).expect("a node");
    let down = graph.add(Resample { from: HOUSE, to: LOW }).expect("a node");
    let output = graph.add_output(LOW).expect("a way out");
    for (from, to) in [(input, gain), (gain, down), (down, output)] {
        graph.connect((from, 0), (to, 0)).expect("a wire");
    }
    let (mut processor, mut swapper) = processor(compile(&graph).expect("it compiles"));
    let mut out = [0.0; 160];
    let mut collected = 0;
    for block in 0..50 {
        graph.replace(gain, Gain::new(HOUSE, -(block as f32))).expect("the same ports");
        let schedule = compile(&graph).expect("it compiles");
        if block % 3 == 0 {
            collected += swapper.collect();
        }
        swapper.swap(schedule).expect("there is room");
        let sound = sound(block);
        assert_no_alloc(|| processor.process(&[&sound], &mut [&mut out]));
    }
    assert!(collected > 0, "old schedules came back");
}

#[test]
fn the_capture_ring_is_quiet_when_it_overflows_too() {
    let (mut writer, mut reader) = capture_ring(4);
    let lost = assert_no_alloc(|| {
        let lost =
            (0..10).filter(|ms| !writer.push(Captured { at: Stamp::from_millis(*ms), samples: [0.0; BLOCK_SAMPLES] })).count();
        while reader.pop().is_some() {}
        lost
    });
    assert_eq!(lost, 6);
}

/// The test of the test: a process that allocates on the beat does not live to tell.
#[test]
fn whoever_allocates_on_the_beat_dies() {
    const MARK: &str = "ANTIPHON_ALLOCATE_ON_THE_BEAT";
    if std::env::var_os(MARK).is_some() {
        assert_no_alloc(|| std::hint::black_box(vec![1u8; 64]).len());
        return;
    }
    let me = std::env::current_exe().expect("a test knows its own file");
    let status = Command::new(me)
        .args(["--exact", "whoever_allocates_on_the_beat_dies", "--nocapture"])
        .env(MARK, "1")
        .output()
        .expect("it can be started again")
        .status;
    assert!(!status.success(), "the allocator refuses");
}
