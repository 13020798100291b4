//! `sim`: whole sessions under virtual time, thousands of seconds a second, with chance as the only input.
//!
//! * Layer 4, of `lab`. Drives the production [`crate::turn::Machine`], [`crate::audio::fence`] and [`crate::audio::ring`] on an event
//!   queue of its own: no runtime, no clock, no thread but those that run different seeds.
//! * From a seed the shape of a world is drawn first (`shape`: which faults exist at all), then what happens in it (`world`, `people`,
//!   `jobs`, `outside`, `sound`). The same seed gives the same session, to the byte: no order of a hash map, no wall time.
//! * Every session is held against [`crate::lab::check`], and against laws that only a world can see: liveness, the balance of
//!   samples, the truth of endings about what happened outside.
//! * `marks` counts which situations were met: what never happens is not proved.
//! * Proved by `tests/sim.rs`: two runs of a seed are equal, and each law that is broken on purpose is noticed.

mod batch;
pub mod command;
mod jobs;
mod marks;
mod outside;
mod people;
mod queue;
mod rng;
mod shape;
mod sound;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use batch::{Batch, Progress, Total, run_batch};
pub use marks::{MARKS, Marks};
pub use world::Run;

use crate::lab::check::Violation;
use crate::turn::Sabotage;

/// Runs one seed. A panic of the code under test is a violation like another.
pub fn run(seed: u64, sabotage: Option<Sabotage>, verbose: bool) -> Run {
    let mut world = world::World::new(seed, sabotage, verbose);
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let mut run = world.into_run(seed);
    if let Some(panic) = panicked {
        let words = (panic.downcast_ref::<String>().cloned())
            .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned());
        run.violations.insert(0, Violation { checker: "no_panic", seq: None, words });
    }
    run
}
