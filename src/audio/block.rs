//! A block: 10 ms of sound that knows whose it is and where it stands.

use std::fmt;

use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, SamplePos};

/// Up to 10 ms of mono sound at the house rate, of one generation. Plain data: dropping it does nothing, so a ring can skip it.
#[derive(Clone, Copy, PartialEq)]
pub struct Block {
    /// The generation it was made under.
    pub generation: Generation,
    /// Place of its first sample in that generation.
    pub position: SamplePos,
    /// Valid samples, at most [`BLOCK_SAMPLES`]; zero is allowed, for an end that was known late.
    pub len: usize,
    /// Whether it ends the answer, or a stretch of it after which the rest may be long in coming.
    pub last: bool,
    /// The samples; those from `len` on mean nothing.
    pub samples: [f32; BLOCK_SAMPLES],
}

impl Block {
    /// A block of `samples`.
    ///
    /// # Panics
    /// When there are more than [`BLOCK_SAMPLES`].
    pub fn new(generation: Generation, position: SamplePos, samples: &[f32], last: bool) -> Self {
        assert!(samples.len() <= BLOCK_SAMPLES, "a block holds at most {BLOCK_SAMPLES} samples");
        let mut block = Block { generation, position, len: samples.len(), last, samples: [0.0; BLOCK_SAMPLES] };
        block.samples[..samples.len()].copy_from_slice(samples);
        block
    }

    /// Its valid samples.
    pub fn sound(&self) -> &[f32] {
        &self.samples[..self.len.min(BLOCK_SAMPLES)]
    }

    /// The position after its last sample.
    pub fn end(&self) -> SamplePos {
        self.position + self.len as u64
    }
}

impl fmt::Debug for Block {
    /// Everything but the samples.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("generation", &self.generation)
            .field("position", &self.position)
            .field("len", &self.len)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
