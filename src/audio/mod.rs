//! `audio`: sounds. Takes blocks in and gives blocks out, in real time.
//!
//! * Layer 1. Imports `time` and `id` of ours, and the DSP crates. Never `turn`, `event`, tokio or tracing: it would lose its thread.
//! * The beat: every block is 10 ms mono `f32` at 48 kHz ([`crate::time::BLOCK_SAMPLES`] samples).
//! * Owners: the writing half of a ring belongs to the session, the reading half and the microphone chain to the pump. Halves share
//!   nothing but the ring and the [`fence::Fence`].
//!
//! Manners of everything that runs on the beat ([`ring::PlaybackReader::pull`], [`mic::MicChain::process`],
//! [`process::Processor::process`], [`capture`]): no lock, no allocation, no free, no log, no system call, no wait, no loop without
//! a bound. `tests/realtime_manners.rs` holds them to it with an allocator that refuses.
//!
//! Laws, and where they are proved:
//! 1. The fence never falls, and a raise voids every hold. (`tests/loom.rs`)
//! 2. After a raise at most one pull holds samples of an older generation, the ramp; then none, ever. (`ring`)
//! 3. `produced = played + dropped + resident`, at every moment. (`ring`, property)
//! 4. A hold loses no sample and repeats none. (`ring`, property)
//! 5. A graph that compiles has no cycle and no open input, and its schedule never allocates. (`graph`, `compile`)

pub mod block;
pub mod capture;
#[cfg(feature = "opus")]
pub mod codec;
pub mod compile;
pub mod evidence;
pub mod fence;
pub mod graph;
pub mod jitter;
pub mod mic;
pub mod node;
pub mod process;
mod ramp;
pub mod ring;
pub mod slice;
pub(crate) mod sync;
