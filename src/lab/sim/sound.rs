//! The sounding half of a world: the production fence and ring, fed with tagged blocks and pulled at the beat.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::audio::block::Block;
use crate::audio::fence::{Fence, Mode};
use crate::audio::ring::{PlaybackReader, PlaybackWriter, Pulled, PushError, playback_ring};
use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, SamplePos};

/// Samples after which a ramp is over for sure.
const SETTLED: usize = 600;

/// Fence, ring, and what waits for the ring.
pub(super) struct Sound {
    pub(super) fence: Arc<Fence>,
    writer: PlaybackWriter,
    reader: PlaybackReader,
    slice: usize,
    out: Vec<f32>,
    /// What has leave to be played and waits for room: generation and samples.
    waiting: VecDeque<(Generation, u64)>,
    positions: BTreeMap<Generation, u64>,
    pushed: u64,
    capacity: usize,
    /// Samples of content since the last ramp began.
    steady: usize,
    /// Nothing changed since the last pull that found nothing.
    idle: bool,
}

/// What one beat did, and what it was found to be.
pub(super) struct Beat {
    pub(super) pulled: Pulled,
    /// The generation that the samples themselves carry, when they can be told apart.
    pub(super) tag: Option<u64>,
    /// What is wrong with it.
    pub(super) wrong: Option<String>,
}

/// What the samples of a generation look like. Neighbouring generations differ.
fn tag(generation: Generation) -> f32 {
    // Powers of two, so that no arithmetic rounds them.
    1.0 / (1u32 << (1 + generation.0 % 8)) as f32
}

impl Sound {
    pub(super) fn new(blocks: usize, slice: usize) -> Self {
        let fence = Fence::new();
        let (writer, reader) = playback_ring(blocks, fence.clone());
        Sound {
            fence,
            writer,
            reader,
            slice: slice.min(BLOCK_SAMPLES),
            out: vec![0.0; slice.min(BLOCK_SAMPLES)],
            waiting: VecDeque::new(),
            positions: BTreeMap::new(),
            pushed: 0,
            capacity: blocks.max(1),
            steady: 0,
            idle: false,
        }
    }

    /// Publishes a generation. Returns whether the fence moved.
    pub(super) fn raise(&mut self, generation: Generation) -> bool {
        self.idle = false;
        self.waiting.retain(|(of, _)| *of >= generation);
        self.positions.retain(|of, _| *of >= generation);
        self.fence.raise(generation)
    }

    pub(super) fn set_mode(&mut self, generation: Generation, mode: Mode) {
        self.idle = false;
        self.fence.set_mode(generation, mode);
    }

    /// Sound has leave to be played.
    pub(super) fn play(&mut self, generation: Generation, samples: u64) {
        self.waiting.push_back((generation, samples));
    }

    /// Whether sound waits for room in the ring.
    pub(super) fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a beat could find anything.
    pub(super) fn is_idle(&self) -> bool {
        self.idle && self.waiting.is_empty()
    }

    /// Whether the ring is empty and nothing waits for it.
    pub(super) fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.writer.vacant() == self.capacity
    }

    /// Puts what waits into the ring. Returns the generations that the ring refused as stale.
    pub(super) fn place(&mut self) -> Vec<Generation> {
        let mut refused = Vec::new();
        while let Some((generation, samples)) = self.waiting.front_mut() {
            let position = self.positions.entry(*generation).or_default();
            let len = (self.slice as u64).min(*samples) as usize;
            let fill = [tag(*generation); BLOCK_SAMPLES];
            match self.writer.push(Block::new(*generation, SamplePos(*position), &fill[..len], false)) {
                Ok(()) => {
                    self.idle = false;
                    self.pushed += len as u64;
                    *position += len as u64;
                    *samples -= len as u64;
                    if *samples == 0 {
                        self.waiting.pop_front();
                    }
                }
                Err(PushError::Full(_)) => break,
                Err(PushError::Stale(_)) => {
                    refused.push(*generation);
                    self.waiting.pop_front();
                }
            }
        }
        refused
    }

    /// One beat: the reader takes its block.
    pub(super) fn beat(&mut self) -> Beat {
        let before = self.reader.ledger();
        let pulled = self.reader.pull(&mut self.out);
        let ledger = self.reader.ledger();
        let occupied = self.capacity - self.writer.vacant();
        self.idle = occupied == 0 && pulled.silent && pulled.quiet.is_none();
        let mut wrong = None;
        if ledger.produced != self.pushed {
            wrong = Some(format!("{} samples were pushed and {} counted", self.pushed, ledger.produced));
        }
        if ledger.resident > (occupied * self.slice) as u64 || (occupied == 0) != (ledger.resident == 0) {
            wrong = Some(format!("{} samples resident in {occupied} blocks", ledger.resident));
        }
        let played = ledger.played - before.played;
        if played > self.slice as u64 {
            wrong = Some(format!("{played} samples played in one block"));
        }
        let whole = pulled.sounding == self.slice && pulled.stale == 0 && pulled.quiet.is_none();
        self.steady = if whole { self.steady + pulled.sounding } else { 0 };
        let tag = if self.steady > SETTLED { self.tag_of(pulled.generation, &mut wrong) } else { None };
        Beat { pulled, tag, wrong }
    }

    /// Which generation the last sample carries: the one that the reader says, or one of its seven predecessors.
    fn tag_of(&self, said: Generation, wrong: &mut Option<String>) -> Option<u64> {
        let last = *self.out.last()?;
        let found = (0..8).map(|back| said.0.saturating_sub(back)).find(|g| tag(Generation(*g)) == last);
        if found.is_none() {
            *wrong = Some(format!("a sample of {last} is of no generation near {said}"));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_played_carries_its_generation() {
        let mut sound = Sound::new(8, 48);
        sound.raise(Generation(3));
        sound.play(Generation(3), 48 * 30);
        let mut seen = 0;
        for _ in 0..40 {
            assert!(sound.place().is_empty());
            let beat = sound.beat();
            assert_eq!(beat.wrong, None);
            seen += u64::from(beat.tag == Some(3));
        }
        assert!(seen > 10, "steady sound is recognised");
        assert!(sound.is_idle());
    }

    #[test]
    fn what_waits_is_dropped_by_a_raise() {
        let mut sound = Sound::new(2, 48);
        sound.raise(Generation(1));
        sound.play(Generation(1), 480);
        sound.place();
        assert!(sound.is_full());
        sound.raise(Generation(2));
        assert!(!sound.is_full() && !sound.is_idle(), "the reader has to see it");
        assert_eq!(sound.beat().wrong, None);
        sound.beat();
        assert!(sound.is_idle());
    }
}
