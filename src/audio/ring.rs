//! The playback ring: tagged blocks from the session to whoever sounds them, and the last door before the ear.
//!
//! * The writer refuses what is not of the current generation and hands it back. The reader looks at the fence once per pull, skips what
//!   is stale, and never plays on past a raise but for one ramp.
//! * A start, a stop, a hold and a resume are ramps of 5 ms: a cut is never a click. A ramp down ends inside the pull in which it
//!   began, so a pull shorter than 5 ms gets a ramp of its own length, and no older sample is ever in a second pull.
//! * Laws: `produced = played + dropped + resident` at every moment; positions are exact; a hold loses nothing and repeats nothing;
//!   where nothing is, silence is. Proved by the tests below, alone and across two threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use super::block::Block;
use super::fence::{Fence, Mode};
use super::ramp::{RAMP_SAMPLES, Ramp, Residue};
use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, SamplePos};

/// Gain of [`Mode::Duck`]: -15 dB.
pub const DUCK_GAIN: f32 = 0.177_827_94;

/// A ring of `blocks` blocks (at least one) and its two halves, which obey `fence`.
pub fn playback_ring(blocks: usize, fence: Arc<Fence>) -> (PlaybackWriter, PlaybackReader) {
    let (producer, consumer) = HeapRb::new(blocks.max(1)).split();
    let tally = Arc::new(Tally::default());
    let writer = PlaybackWriter { ring: producer, fence: fence.clone(), tally: tally.clone() };
    let reader = PlaybackReader {
        ring: consumer,
        fence,
        tally,
        current: Generation::UNSET,
        mode: Mode::Play,
        offset: 0,
        position: SamplePos::ZERO,
        begun: false,
        ended: false,
        gain: Ramp::at(0.0),
        level: 0.0,
        residue: Residue::default(),
    };
    (writer, reader)
}

/// Why a block was not taken. The block comes back.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PushError {
    /// The ring is full. Trying again after the next pull helps.
    #[error("the playback ring is full")]
    Full(Block),
    /// The block is not of the current generation, or of none. Trying again never helps.
    #[error("the block is of {}, which is not the current generation", .0.generation)]
    Stale(Block),
}

/// Where all samples ever pushed are: `produced = played + dropped + resident`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Samples taken in.
    pub produced: u64,
    /// Samples handed out, ramps included.
    pub played: u64,
    /// Samples skipped as stale.
    pub dropped: u64,
    /// Samples that are still in the ring.
    pub resident: u64,
}

/// The counts the halves share. Each is written by one half only.
#[derive(Debug, Default)]
struct Tally {
    produced: AtomicU64,
    played: AtomicU64,
    dropped: AtomicU64,
}

impl Tally {
    fn ledger(&self) -> Ledger {
        // What went out is read before what came in: a count of `produced` read later is never too small for it.
        let played = self.played.load(Ordering::Acquire);
        let dropped = self.dropped.load(Ordering::Acquire);
        let produced = self.produced.load(Ordering::Acquire);
        Ledger { produced, played, dropped, resident: produced - played - dropped }
    }
}

/// The session's half.
pub struct PlaybackWriter {
    ring: HeapProd<Block>,
    fence: Arc<Fence>,
    tally: Arc<Tally>,
}

impl PlaybackWriter {
    /// Queues a block of the current generation.
    ///
    /// That it was taken does not mean that it will sound: a raise may come before the reader does.
    ///
    /// # Errors
    /// [`PushError::Stale`] when it is not of the current generation, else [`PushError::Full`] when there is no room.
    #[allow(clippy::result_large_err, reason = "the refused block is handed back by value")]
    pub fn push(&mut self, mut block: Block) -> Result<(), PushError> {
        if !block.generation.is_set() || block.generation != self.fence.read().0 {
            return Err(PushError::Stale(block));
        }
        if self.ring.is_full() {
            return Err(PushError::Full(block));
        }
        block.len = block.len.min(BLOCK_SAMPLES);
        // Counted first, so that nobody can see a sample played that was not yet produced.
        self.tally.produced.fetch_add(block.len as u64, Ordering::Release);
        let taken = self.ring.try_push(block);
        debug_assert!(taken.is_ok(), "only this half fills the ring, and there was room");
        Ok(())
    }

    /// Blocks that can be pushed now. Only a pull makes it grow, only a push makes it shrink.
    pub fn vacant(&self) -> usize {
        self.ring.vacant_len()
    }

    /// Where all samples are.
    pub fn ledger(&self) -> Ledger {
        self.tally.ledger()
    }
}

/// A generation fell silent in this pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// Which.
    pub generation: Generation,
    /// By a hold (`true`: it may go on) or by a cut (`false`: never).
    pub held: bool,
    /// Samples of it that were heard in all.
    pub last: SamplePos,
    /// Index in `out` after its last sample; zero when it was silent before.
    pub at_sample: usize,
}

/// What one pull did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The current generation, as read once at the start of the pull.
    pub generation: Generation,
    /// Samples of it that were heard, this pull included. Zero until it begins.
    pub position: SamplePos,
    /// Samples of its content written.
    pub sounding: usize,
    /// Samples at the start of `out` that still carry an older generation: the ramp of a cut.
    pub stale: usize,
    /// It has begun, its last stretch has not ended, and there was not enough of it. Never set by a hold.
    pub underrun: bool,
    /// Samples of silence written for that reason.
    pub missing: usize,
    /// A block marked last was played out in this pull, and nothing after it.
    pub ended: bool,
    /// Every sample of `out` is zero.
    pub silent: bool,
    /// A hold or a cut took effect in this pull. When both did, the hold is reported by the next pull.
    pub quiet: Option<Quiet>,
}

/// The half of whoever sounds it: a device callback or the pump.
pub struct PlaybackReader {
    ring: HeapCons<Block>,
    fence: Arc<Fence>,
    tally: Arc<Tally>,
    current: Generation,
    /// The mode that has taken effect and was reported.
    mode: Mode,
    /// Samples of the first block that were already taken.
    offset: usize,
    position: SamplePos,
    begun: bool,
    ended: bool,
    /// Gain of the content; it moves only while there is content.
    gain: Ramp,
    /// The last sample of content as it went out.
    level: f32,
    residue: Residue,
}

impl PlaybackReader {
    /// Fills `out`, of any length, with what is to be heard now, and silence where nothing is.
    ///
    /// Real-time manners: looks at the fence once, skips stale blocks at a cost of a few nanoseconds each, never waits. An empty `out`
    /// changes nothing.
    pub fn pull(&mut self, out: &mut [f32]) -> Pulled {
        let mut pulled = Pulled {
            generation: self.current,
            position: self.position,
            sounding: 0,
            stale: 0,
            underrun: false,
            missing: 0,
            ended: false,
            silent: true,
            quiet: None,
        };
        if out.is_empty() {
            return pulled;
        }
        out.fill(0.0);
        let (generation, mode) = self.fence.read();
        if generation != self.current {
            pulled.quiet = self.cut(generation, out);
            pulled.stale = pulled.quiet.map_or(0, |quiet| quiet.at_sample);
        }
        let ended_at = self.ended.then_some((self.current, self.position));
        match mode {
            Mode::Play => self.sound(1.0, out, &mut pulled),
            Mode::Duck => self.sound(DUCK_GAIN, out, &mut pulled),
            Mode::Hold => self.hold(out, &mut pulled),
        }
        if mode != Mode::Hold {
            self.mode = mode;
        }
        pulled.generation = self.current;
        pulled.position = self.position;
        pulled.ended = self.ended && ended_at != Some((self.current, self.position));
        pulled.silent = out.iter().all(|x| *x == 0.0);
        pulled
    }

    /// Where all samples are.
    pub fn ledger(&self) -> Ledger {
        self.tally.ledger()
    }

    /// Ramps the old generation down, skips the rest of it, and makes `generation` the current one.
    fn cut(&mut self, generation: Generation, out: &mut [f32]) -> Option<Quiet> {
        let ramp = RAMP_SAMPLES.min(out.len());
        let silent_from = self.fade(&mut out[..ramp]).silent_from;
        let old = std::mem::replace(&mut self.current, generation);
        let quiet = Quiet { generation: old, held: false, last: self.position, at_sample: silent_from };
        self.skip_stale();
        self.position = SamplePos::ZERO;
        self.begun = false;
        self.ended = false;
        self.mode = Mode::Play;
        old.is_set().then_some(quiet)
    }

    /// The current generation stands still, after a ramp if it sounded.
    fn hold(&mut self, out: &mut [f32], pulled: &mut Pulled) {
        if self.mode == Mode::Hold || pulled.quiet.is_some() {
            self.residue.add(&mut out[pulled.stale..]);
            self.skip_stale();
            return;
        }
        let ramp = RAMP_SAMPLES.min(out.len());
        let faded = self.fade(&mut out[..ramp]);
        pulled.sounding = faded.content;
        pulled.quiet = Some(Quiet { generation: self.current, held: true, last: self.position, at_sample: faded.silent_from });
        self.mode = Mode::Hold;
    }

    /// The current generation sounds at `gain`.
    fn sound(&mut self, gain: f32, out: &mut [f32], pulled: &mut Pulled) {
        let out = &mut out[pulled.stale..];
        if self.gain.target() != gain {
            self.gain.go(gain, RAMP_SAMPLES);
        }
        let content = self.take(out);
        self.residue.add(&mut out[..content]);
        pulled.sounding = content;
        if content < out.len() {
            self.run_dry(RAMP_SAMPLES);
            self.residue.add(&mut out[content..]);
            // A block of a newer generation at the head means that a raise is on its way: this generation is not late, it is over.
            let over = self.ring.first().is_some_and(|block| block.generation > self.current);
            pulled.underrun = self.begun && !self.ended && !over;
            pulled.missing = if pulled.underrun { out.len() - content } else { 0 };
        }
    }

    /// Brings what sounds to zero within `out`.
    fn fade(&mut self, out: &mut [f32]) -> Faded {
        self.residue.shorten(out.len());
        let mut content = 0;
        if self.gain.value() > 0.0 {
            self.gain.go(0.0, out.len());
            content = self.take(out);
        }
        let mut silent_from = content.max(self.residue.add(&mut out[..content]));
        self.run_dry(out.len() - content);
        silent_from = silent_from.max(content + self.residue.add(&mut out[content..]));
        Faded { content, silent_from }
    }

    /// The content stopped here: what it stopped with goes to zero within `samples`, and the next content ramps up.
    fn run_dry(&mut self, samples: usize) {
        if self.gain.value() > 0.0 && self.level != 0.0 {
            self.residue.start(self.level, samples);
        }
        self.gain = Ramp::at(0.0);
        self.level = 0.0;
    }

    /// Adds content of the current generation to `out` and returns how many samples of it there were.
    fn take(&mut self, out: &mut [f32]) -> usize {
        self.skip_stale();
        let mut taken = 0;
        // At most what is there now: what comes meanwhile can wait for the next pull.
        for _ in 0..self.ring.occupied_len() {
            let Some(block) = self.ring.first() else { break };
            if block.generation != self.current {
                break;
            }
            let rest = &block.sound()[self.offset..];
            let n = rest.len().min(out.len() - taken);
            if n == 0 && !rest.is_empty() {
                break;
            }
            if n > 0 {
                self.gain.add(&rest[..n], &mut out[taken..taken + n]);
                self.level = rest[n - 1] * self.gain.value();
                self.begun = true;
                // More of the generation after an end: an answer of several stretches goes on.
                self.ended = false;
            }
            taken += n;
            self.offset += n;
            self.position = block.position + self.offset as u64;
            if n == rest.len() {
                self.ended = block.last;
                self.ring.skip(1);
                self.offset = 0;
            }
        }
        self.tally.played.fetch_add(taken as u64, Ordering::Release);
        taken
    }

    /// Skips the blocks at the head that are older than the current generation, in one step.
    fn skip_stale(&mut self) {
        let stale = |block: &&Block| block.generation < self.current;
        let (blocks, samples) = {
            let (left, right) = self.ring.as_slices();
            left.iter().chain(right).take_while(stale).fold((0, 0), |(n, samples), block| (n + 1, samples + block.sound().len()))
        };
        if blocks > 0 {
            let dropped = samples - std::mem::take(&mut self.offset);
            self.ring.skip(blocks);
            self.tally.dropped.fetch_add(dropped as u64, Ordering::Release);
        }
    }
}

/// What a ramp down did.
struct Faded {
    /// Samples of content it took.
    content: usize,
    /// Index from which the rest is silence.
    silent_from: usize,
}

#[cfg(test)]
mod tests;
