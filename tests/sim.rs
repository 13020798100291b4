//! The simulation: a seed is a session, to the byte; every law holds in all of them; and each law that is broken on purpose is noticed.

use antiphon::lab::sim::command::read_hashes;
use antiphon::lab::sim::{Batch, run, run_batch};
use antiphon::turn::Sabotage;

/// Seeds of a debug run.
const SEEDS: u64 = 400;
/// Seeds within which a broken law must show.
const SOON: u64 = 50;

#[test]
fn every_law_holds_in_every_seed() {
    let total = run_batch(Batch { from: 0, seeds: SEEDS, threads: 2, sabotage: None }, &|_| {});
    assert!(total.failed.is_none(), "{:#?}", total.failed);
    assert_eq!(total.seeds, SEEDS);
    let met = total.marks.all().filter(|(_, count)| *count > 0).count();
    assert!(total.marks.holes().len() * 10 < met, "most situations are met even in few seeds: {:?}", total.marks.holes());
}

#[test]
fn two_runs_of_a_seed_are_equal() {
    for seed in 0..40 {
        let (first, second) = (run(seed, None, false), run(seed, None, false));
        assert_eq!((first.hash, first.records, first.steps), (second.hash, second.records, second.steps), "seed {seed}");
        assert!(first.records > 5, "seed {seed} is a session");
    }
    assert_ne!(run(1, None, false).hash, run(2, None, false).hash);
}

/// The table is written by `make sim-hashes`; the release build is held against it by `make sim`.
#[test]
fn traces_are_those_of_the_table() {
    let table = read_hashes(include_str!("sim_hashes.txt")).expect("a table of seeds and hashes");
    assert!(table.len() >= 16);
    for (seed, hash) in table {
        assert_eq!(format!("{:016x}", run(seed, None, false).hash), format!("{hash:016x}"), "seed {seed}");
    }
}

#[test]
fn seeds_do_not_depend_on_threads() {
    let batch = |threads| run_batch(Batch { from: 100, seeds: 30, threads, sabotage: None }, &|_| {}).hashes;
    assert_eq!(batch(1), batch(3));
}

#[test]
fn a_broken_law_is_noticed_soon() {
    for (law, checkers) in [
        (Sabotage::Fence, &["fence_never_falls", "nothing_stale_heard", "nothing_stale_starts"][..]),
        (Sabotage::TerminalGuard, &["one_terminal"]),
        (Sabotage::Idempotence, &["one_cancel_effect", "same_answer"]),
    ] {
        let total = run_batch(Batch { from: 0, seeds: SOON, threads: 2, sabotage: Some(law) }, &|_| {});
        let failed = total.failed.unwrap_or_else(|| panic!("{law:?} went unnoticed in {SOON} seeds"));
        let name = failed.violations[0].checker;
        assert!(checkers.contains(&name), "{law:?} was noticed by {name}: {}", failed.violations[0]);
        assert!(!failed.tail.is_empty(), "the records that lead there are shown");
    }
}
