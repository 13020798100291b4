//! `turn`: decides what a session does next.
//!
//! * Layer 1. Imports layer 0 only. No clock, no IO, no await, no lock, no sample, no `unsafe`.
//! * One [`Machine`] per session, owned by the session driver. Facts go in ([`Input`]), wishes come out ([`Effect`]).
//! * The parts, one question each: `life` (how far is this turn, and how did it end), `floor` (does this sound mean that the user
//!   speaks), `utterance` (what was said), `turns` (which turn is answered, which are stopping), `tree` (what is at work), `budget` (how long may it take), `reply` (what was said and
//!   heard of an answer), `history` (what the model sees), `pause` (why an answer is held), `tail` (how long the old answer
//!   sounded on), `gate` (generation, seq, what may be shown), `memory` (what was answered and ended), `timer` (when to wake).
//!   [`Machine`] composes them; `hearing`, `answering` and `stopping` are its three chapters.
//!
//! The laws, each held by a part and thrown at by the properties in `tests/turn.rs`:
//! * A turn has one terminal, and only `life` makes it.
//! * The generation never falls, and every reply has its own.
//! * Seq has no holes; effects come in the order of [`Effect::rank`].
//! * Nothing of an older generation is shown, fed or given leave to play.
//! * Every wait has a timer; after a terminal the session can always go on.
//! * Nonsense is answered and recorded, and never a panic.
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod effect;
pub mod input;
pub mod policy;

mod acting;
mod answering;
mod budget;
mod calls;
#[cfg(feature = "lab")]
mod fingerprint;
mod floor;
mod gate;
mod hearing;
mod history;
mod inbox;
mod life;
mod machine;
mod memory;
mod pause;
mod reconciling;
mod reply;
mod restore;
mod sabotage;
mod snapshot;
mod steering;
mod stopping;
mod tail;
mod timer;
mod tree;
mod turns;
mod utterance;

pub use calls::{CallPhase, CallView};
pub use effect::*;
#[cfg(feature = "lab")]
pub(crate) use floor::{Floor, Scene, Verdict};
pub use input::*;
pub use machine::{Counters, Drain, Machine};
pub use policy::{BudgetPolicy, FloorPolicy, OnDisconnect, Policy};
#[doc(hidden)]
pub use sabotage::Sabotage;
pub use snapshot::{EndedView, FloorView, LifeView, Snapshot, TurnView, ZombieView};
pub use timer::Timer;
