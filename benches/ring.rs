//! What the playback ring costs: a block through it, against the raw ring it is built on, and a cut through a deep queue.
//!
//! Times are of one thread on whatever machine runs this, with warm caches; they do not show what two cores pay each other.

use antiphon::audio::block::Block;
use antiphon::audio::fence::{Fence, Mode};
use antiphon::audio::ring::{PlaybackReader, PlaybackWriter, playback_ring};
use antiphon::id::Generation;
use antiphon::time::{BLOCK_SAMPLES, SamplePos};
use divan::{Bencher, black_box};
use ringbuf::HeapRb;
use ringbuf::traits::{Consumer, Producer, Split};

fn main() {
    divan::main();
}

fn block(generation: Generation, n: u64) -> Block {
    Block::new(generation, SamplePos(n * BLOCK_SAMPLES as u64), &[0.25; BLOCK_SAMPLES], false)
}

/// A ring with `blocks` blocks of `generation` in it.
fn filled(generation: Generation, blocks: usize) -> (std::sync::Arc<Fence>, PlaybackWriter, PlaybackReader) {
    let fence = Fence::new();
    let (mut writer, reader) = playback_ring(blocks.max(1), fence.clone());
    fence.raise(generation);
    for n in 0..blocks {
        writer.push(block(generation, n as u64)).expect("there is room");
    }
    (fence, writer, reader)
}

#[divan::bench(args = [Mode::Play, Mode::Duck])]
fn push_and_pull_a_block(bencher: Bencher, mode: Mode) {
    let (fence, mut writer, mut reader) = filled(Generation(1), 0);
    fence.set_mode(Generation(1), mode);
    let (mut out, mut n) = ([0.0; BLOCK_SAMPLES], 0);
    bencher.bench_local(|| {
        let _taken = black_box(writer.push(block(Generation(1), n)));
        n += 1;
        black_box(reader.pull(&mut out))
    });
}

#[divan::bench]
fn push_and_pop_on_the_raw_ring(bencher: Bencher) {
    let (mut writer, mut reader) = HeapRb::new(1).split();
    let (mut out, mut n) = ([0.0; BLOCK_SAMPLES], 0);
    bencher.bench_local(|| {
        let _taken = black_box(writer.try_push(block(Generation(1), n)).is_ok());
        n += 1;
        if let Some(block) = reader.try_pop() {
            out.copy_from_slice(&block.samples);
        }
        black_box(&mut out);
    });
}

#[divan::bench]
fn pull_while_held(bencher: Bencher) {
    let (fence, _writer, mut reader) = filled(Generation(1), 8);
    fence.set_mode(Generation(1), Mode::Hold);
    let mut out = [0.0; BLOCK_SAMPLES];
    bencher.bench_local(|| black_box(reader.pull(&mut out)));
}

#[divan::bench(args = [0, 10, 100, 1_000])]
fn the_pull_that_cuts(bencher: Bencher, stale: usize) {
    bencher
        .with_inputs(|| {
            let (fence, writer, mut reader) = filled(Generation(1), stale + 2);
            reader.pull(&mut [0.0; BLOCK_SAMPLES]);
            fence.raise(Generation(2));
            (writer, reader)
        })
        .bench_local_refs(|(_writer, reader)| black_box(reader.pull(&mut [0.0; BLOCK_SAMPLES])));
}
