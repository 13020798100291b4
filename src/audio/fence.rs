//! The fence: the lowest generation still allowed to sound, and whether it sounds, is lowered, or is held.
//!
//! * One atomic word, `generation << 2 | mode`. Both are read at once, so no reader can pair a new generation with an old mode, and a
//!   raise voids a hold by itself.
//! * Raised by the session, read once per pull by the audio side. Any thread may do either; nobody waits.
//! * Laws: the generation never falls; a raise is never lost; a hold never survives a raise. Proved by `tests/loom.rs`, which compiles
//!   this file with loom's atomics.

use super::sync::{Arc, AtomicU64, Ordering};
use crate::id::Generation;

/// How the current generation sounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As it is.
    #[default]
    Play,
    /// Lowered by 15 dB.
    Duck,
    /// Not at all; it stands still at an exact sample and can go on.
    Hold,
}

/// The lowest generation still allowed to sound, with its mode.
#[derive(Debug)]
pub struct Fence {
    word: AtomicU64,
}

impl Fence {
    /// A fence at [`Generation::UNSET`]: nothing may sound before the first raise.
    pub fn new() -> Arc<Fence> {
        Arc::new(Fence { word: AtomicU64::new(pack(Generation::UNSET, Mode::Play)) })
    }

    /// Publishes `generation`: whatever is older is never heard again, and no hold stands. Returns whether the fence rose; a
    /// generation that is not above the current one changes nothing.
    pub fn raise(&self, generation: Generation) -> bool {
        if generation.0 > HIGHEST {
            return false;
        }
        let before = self.word.fetch_max(pack(generation, Mode::Play), Ordering::AcqRel);
        unpack(before).0 < generation
    }

    /// Sets the mode of `generation`, if it is the current one. Returns whether it is; a fence raised meanwhile makes this void.
    pub fn set_mode(&self, generation: Generation, mode: Mode) -> bool {
        let mut seen = self.word.load(Ordering::Acquire);
        while unpack(seen).0 == generation && generation.is_set() {
            match self.word.compare_exchange_weak(seen, pack(generation, mode), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The current generation and its mode, read at once.
    pub fn read(&self) -> (Generation, Mode) {
        unpack(self.word.load(Ordering::Acquire))
    }
}

const MODE_BITS: u32 = 2;
/// The highest generation that the word can carry.
const HIGHEST: u64 = u64::MAX >> MODE_BITS;

fn pack(generation: Generation, mode: Mode) -> u64 {
    let mode = match mode {
        Mode::Play => 0,
        Mode::Duck => 1,
        Mode::Hold => 2,
    };
    generation.0 << MODE_BITS | mode
}

fn unpack(word: u64) -> (Generation, Mode) {
    let mode = match word & ((1 << MODE_BITS) - 1) {
        0 => Mode::Play,
        1 => Mode::Duck,
        _ => Mode::Hold,
    };
    (Generation(word >> MODE_BITS), mode)
}

#[cfg(test)]
mod tests {
    use super::super::sync::model;
    use super::*;

    #[test]
    fn a_fence_rises_and_never_falls() {
        model(|| {
            let fence = Fence::new();
            assert_eq!(fence.read(), (Generation::UNSET, Mode::Play));
            assert!(fence.raise(Generation(3)));
            assert!(!fence.raise(Generation(3)), "not above");
            assert!(!fence.raise(Generation(2)), "below");
            assert!(!fence.raise(Generation(u64::MAX)), "more than the word can carry");
            assert_eq!(fence.read(), (Generation(3), Mode::Play));
        });
    }

    #[test]
    fn a_mode_belongs_to_its_generation() {
        model(|| {
            let fence = Fence::new();
            assert!(!fence.set_mode(Generation::UNSET, Mode::Hold), "unset is refused at every door");
            fence.raise(Generation(1));
            assert!(fence.set_mode(Generation(1), Mode::Hold));
            assert!(!fence.raise(Generation(1)));
            assert_eq!(fence.read(), (Generation(1), Mode::Hold), "an equal raise does not resume");
            assert!(fence.raise(Generation(2)));
            assert_eq!(fence.read(), (Generation(2), Mode::Play), "a raise voids the hold");
            assert!(!fence.set_mode(Generation(1), Mode::Duck));
            assert!(fence.set_mode(Generation(2), Mode::Duck));
            assert_eq!(fence.read(), (Generation(2), Mode::Duck));
        });
    }
}
