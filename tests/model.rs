//! The model check, with a small bound: every order of the first events keeps every law, and a law broken on purpose is found.
//! The big search is `antiphon lab model`.

use antiphon::lab::model::{Bound, search};
use antiphon::turn::Sabotage;

#[test]
fn every_order_of_the_first_events_keeps_every_law() {
    let found = search(Bound { states: 30_000, depth: 40, threads: 2, sabotage: None }, &|_, _| {});
    assert!(found.broken.is_none(), "{:#?}", found.broken);
    assert!(found.states >= 30_000 && found.transitions > found.states, "{found:?}");
    assert!(found.worlds.iter().all(|world| world.depth >= 4), "{:?}", found.worlds);
}

#[test]
fn the_search_does_not_depend_on_threads() {
    let states = |threads| search(Bound { states: u64::MAX, depth: 3, threads, sabotage: None }, &|_, _| {}).states;
    assert_eq!(states(1), states(2));
}

#[test]
fn a_broken_law_is_found() {
    for law in [Sabotage::Fence, Sabotage::TerminalGuard, Sabotage::Idempotence] {
        let found = search(Bound { states: 160_000, depth: 8, threads: 2, sabotage: Some(law) }, &|_, _| {});
        let (events, violation) = found.broken.unwrap_or_else(|| panic!("{law:?} was not found in {} states", found.states));
        assert!(events.len() > 1, "{violation}");
    }
}
