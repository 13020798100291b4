//! `lab`: proves. Stories, faults and their checkers, on a virtual clock, against the production engine.
//!
//! * Layer 4. Imports everything below; never `server`. Nothing of it runs in a session that somebody else opened.
//! * A [`Scenario`] is data (`assets/scenarios/*.ron`, embedded): how providers behave, what happens when, what must have come of it. A
//!   `World` plays it: the real machine, driver, ring, fence, pump, store and memory link on tokio's paused time, with no network.
//! * [`scenarios`] plays the stories, [`faults`] injects what goes wrong; both give a [`Report`], whose files hold no wall time, so that two
//!   runs write the same bytes.
//! * [`sim`] lives whole random sessions, from a seed, around the production machine.
//! * Laws: no socket to the network ([`seal`]); every world leaves nothing running; the metrics counted from its log are those of the live
//!   engine; every world ends with the checkers of [`check`] over its log.
//! * Proved by `tests/lab.rs`, which also breaks the engine on purpose and sees the lab notice.
//!
//! ```text
//!   *.ron ─▶ Scenario ─▶ World ─▶ Evidence ─▶ Expectations ─▶ Report ─▶ table, JSON, files
//!            fault ──────▲  │ records, answers, sounds, side effects
//!                           └▶ checkers
//! ```

mod cast;
pub mod check;
pub mod cli;
mod client;
pub mod clip;
mod door;
mod evidence;
mod expect;
mod fault;
pub mod model;
mod player;
mod report;
mod restart;
mod run;
pub mod scenario;
pub mod score;
mod seal;
pub mod sim;
mod world;

pub use cast::{Call, Deed, Hearing, Lookup, Model, Obeys, Piece, Probe, Step, Then, ToolPart, Voice};
pub use expect::{Check, Expectation, Pattern};
pub use report::{Assertion, Group, Report, ScenarioReport};
pub use run::{Lab, LabError, faults, names, scenarios};
pub use scenario::{Scenario, ScenarioError};
pub use seal::{SealError, seal, try_sockets};
