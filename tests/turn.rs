//! The turn machine, driven by a hand-turned clock: the stories of `cases.md` as far as they concern the turn.
//!
//! `world` is the small world the stories are told in; it checks the laws of every step. Names begin with the row they prove.

#[path = "turn/world.rs"]
mod world;

#[path = "turn/barge_in.rs"]
mod barge_in;
#[path = "turn/life.rs"]
mod life;
#[path = "turn/properties.rs"]
mod properties;
#[path = "turn/races.rs"]
mod races;
#[path = "turn/resume.rs"]
mod resume;
#[path = "turn/steering.rs"]
mod steering;
#[path = "turn/tools.rs"]
mod tools;
