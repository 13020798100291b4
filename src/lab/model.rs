//! `model`: every order of a bounded set of events, over the real [`crate::turn::Machine`].
//!
//! * Layer 4, of `lab`. Breadth first: from each state every event that can happen there is tried; a state that was seen before is not
//!   gone on from. A state is kept as the path of events that leads to it, and rebuilt by walking that path, so millions of them fit.
//! * The events (`node`): say, steer, cancel twice under one request id, a voice that holds, a voice that takes the floor, a false alarm,
//!   the model's text, calls and end, sound made and heard, commit asked, intent kept, result, failure, unknown, lost answer, late
//!   answer, probes, approval, link lost and back, drain, close, death and restart, and every timer when it is due.
//! * Two states are equal when what the machine decides by, what the world around it is, and what the checkers have seen are equal:
//!   [`crate::turn::Machine`]'s fingerprint, with every stamp taken relative to now and every seq relative to the last record. That is
//!   sound because the machine compares stamps and seqs with each other and never with a constant; what is left out of the
//!   fingerprint, and why, is written there.
//! * Every law of [`crate::lab::check`] is held at every step, and four more that only a walk can see.
//! * Proved by `tests/model.rs`: a bound in CI, and each law broken on purpose is found.

pub mod command;
mod node;
mod relative;
mod worlds;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::lab::check::Violation;
use crate::turn::Sabotage;

use node::Node;
use worlds::Action;

/// Laws held at every step besides those of [`crate::lab::check::CHECKERS`]: name and law.
pub const LAWS: &[(&str, &str)] = &[
    ("no_panic", "no order of events makes the machine panic"),
    ("order_of_effects", "the effects of a step come in the order of their rank"),
    ("no_conflict", "the machine counts no conflict of terminals"),
    ("every_wait_has_a_timer", "a turn that has not ended always has a moment at which something is done about it"),
];

/// How far to search.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Distinct states after which the search stops, having finished the event it was at. Shared out among the worlds; what a small
    /// world does not need, the next ones have.
    pub states: u64,
    /// Events in a row, at most.
    pub depth: usize,
    /// Threads, at least one.
    pub threads: usize,
    /// A law to break on purpose.
    pub sabotage: Option<Sabotage>,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Distinct states in all worlds.
    pub states: u64,
    /// Events that were tried.
    pub transitions: u64,
    /// World by world.
    pub worlds: Vec<Searched>,
    /// What broke, and the events that lead there.
    pub broken: Option<(Vec<String>, Violation)>,
}

/// What the search of one world came to.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Searched {
    /// What it is called.
    pub name: &'static str,
    /// Distinct states.
    pub states: u64,
    /// Events in a row, as far as it was searched.
    pub depth: usize,
    /// Whether every state within the depth was seen.
    pub complete: bool,
}

/// One state, as the way to it.
type Path = Box<[u8]>;

/// What one worker brings back: each new state's fingerprint and path, how many events it tried, and what broke.
#[derive(Default)]
struct Brought {
    states: Vec<(u64, Path)>,
    transitions: u64,
    broken: Option<(Vec<String>, Violation)>,
}

/// Searches. `watch` is told the number of states and the depth, now and then.
pub fn search(bound: Bound, watch: &(dyn Fn(u64, usize) + Sync)) -> Found {
    let mut found = Found::default();
    for world in 0..worlds::WORLDS {
        let share = bound.states.saturating_sub(found.states) / u64::from(worlds::WORLDS - world);
        let before = found.states;
        let searched =
            search_world(world, Bound { states: share, ..bound }, &mut found, &|states, depth| watch(before + states, depth));
        found.states += searched.states;
        found.worlds.push(searched);
        if found.broken.is_some() {
            break;
        }
    }
    found
}

fn search_world(world: u8, bound: Bound, found: &mut Found, watch: &(dyn Fn(u64, usize) + Sync)) -> Searched {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut searched = Searched { name: worlds::name(world), ..Searched::default() };
    let mut frontier: Vec<Path> = vec![Box::from([world])];
    let piece = usize::try_from(bound.states / 64).unwrap_or(usize::MAX).clamp(64, 4_096);
    while searched.depth < bound.depth {
        searched.depth += 1;
        let mut next = Vec::new();
        // In pieces, so that the bound and the watch are looked at often; merged in order, so that threads change nothing.
        for piece in frontier.chunks(piece) {
            let share = piece.len().div_ceil(bound.threads.max(1)).max(1);
            let brought: Vec<Brought> = std::thread::scope(|scope| {
                let seen = &seen;
                let workers: Vec<_> =
                    piece.chunks(share).map(|part| scope.spawn(move || explore(part, seen, bound.sabotage))).collect();
                // A worker that panicked outside the step itself is our own fault, and must not pass for an empty piece.
                workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            });
            for brought in brought {
                found.transitions += brought.transitions;
                if found.broken.is_none() {
                    found.broken = brought.broken;
                }
                for (fingerprint, path) in brought.states {
                    if seen.insert(fingerprint) {
                        next.push(path);
                    }
                }
            }
            searched.states = seen.len() as u64;
            watch(searched.states, searched.depth);
            if found.broken.is_some() || searched.states >= bound.states {
                return searched;
            }
        }
        if next.is_empty() {
            searched.complete = true;
            return searched;
        }
        frontier = next;
    }
    searched
}

/// Tries every event in each of these states.
fn explore(paths: &[Path], seen: &HashSet<u64>, sabotage: Option<Sabotage>) -> Brought {
    let mut brought = Brought::default();
    for path in paths {
        let Some(node) = Node::walk(path, sabotage) else { continue };
        for action in node.enabled() {
            brought.transitions += 1;
            let mut next = node.clone();
            let panicked = catch_unwind(AssertUnwindSafe(|| next.take(action))).is_err();
            let violation = if panicked {
                Some(Violation { checker: "no_panic", seq: None, words: "the machine panicked".to_owned() })
            } else {
                next.violation()
            };
            if let Some(violation) = violation {
                let mut words: Vec<String> =
                    path[1..].iter().filter_map(|byte| Action::of(*byte)).map(|a| format!("{a:?}")).collect();
                words.insert(0, format!("in the world: {}", worlds::name(path[0])));
                words.push(format!("{action:?}"));
                brought.broken = Some((words, violation));
                return brought;
            }
            let fingerprint = next.fingerprint();
            if !seen.contains(&fingerprint) {
                let mut longer = path.to_vec();
                longer.push(action as u8);
                brought.states.push((fingerprint, longer.into_boxed_slice()));
            }
        }
    }
    brought
}
