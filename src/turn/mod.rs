//! `turn`: decides what a session does next.
//!
//! * Layer 1. Imports layer 0 only. No clock, no IO, no await, no lock, no sample, no `unsafe`.
//! * One [`Machine`] per session, owned by the session driver.
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod effect;
pub mod input;
pub mod policy;

pub use effect::*;
pub use input::*;
pub use policy::{BudgetPolicy, FloorPolicy, OnDisconnect, Policy};
