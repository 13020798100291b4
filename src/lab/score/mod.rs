//! `lab::score`: the production chain and the production floor over labelled recordings, and what came of it.
//!
//! * The agent speaks all the time; what it says is the recording's reference, if it has one, and the echo canceller is given it.
//! * Every decision bears the time of the end of the last sample that was needed for it. Holds and commits are scored apart.
//! * The same recordings give the same decisions, to the byte. It does not show what a device or a network adds: `antiphon tail` does.

pub mod command;
mod listen;
mod mixes;
mod tally;

pub use listen::{Decided, listen};
pub use mixes::{Mix, Mixes, MixesError, User};
pub use tally::{Tally, group, table};
