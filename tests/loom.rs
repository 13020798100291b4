//! The fence under every order of events that its atomics allow. This compiles the production source itself with loom's atomics in the
//! place of the real ones (see `src/audio/sync.rs`); no copy, no compiler flag.

#![allow(dead_code, unreachable_pub, reason = "the included sources serve more than this test")]

#[path = "../src/id.rs"]
mod id;

#[path = "../src/audio"]
mod audio {
    pub(crate) mod sync {
        pub(crate) use loom::model;
        pub(crate) use loom::sync::Arc;
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    }

    #[path = "fence.rs"]
    pub mod fence;
}

use audio::fence::{Fence, Mode};
use id::Generation;
use loom::thread;

const G1: Generation = Generation(1);
const G2: Generation = Generation(2);
const G3: Generation = Generation(3);

#[test]
fn a_hold_never_survives_a_raise_and_no_reader_sees_the_fence_fall() {
    loom::model(|| {
        let fence = Fence::new();
        fence.raise(G1);
        let holder = {
            let fence = fence.clone();
            thread::spawn(move || fence.set_mode(G1, Mode::Hold))
        };
        let raiser = {
            let fence = fence.clone();
            thread::spawn(move || assert!(fence.raise(G2)))
        };
        let mut before = fence.read();
        for _ in 0..2 {
            let now = fence.read();
            assert!(now.0 >= before.0, "the fence never falls");
            assert!(now.0 != G2 || now.1 == Mode::Play, "nobody holds the new generation");
            assert!(now.0 != before.0 || before.1 == Mode::Play || now == before, "a hold stands until the raise");
            before = now;
        }
        holder.join().expect("no panic");
        raiser.join().expect("no panic");
        assert_eq!(fence.read(), (G2, Mode::Play));
    });
}

#[test]
fn a_raise_is_never_lost_whoever_else_raises_or_holds() {
    loom::model(|| {
        let fence = Fence::new();
        fence.raise(G1);
        let low = {
            let fence = fence.clone();
            thread::spawn(move || fence.raise(G2))
        };
        let high = {
            let fence = fence.clone();
            thread::spawn(move || assert!(fence.raise(G3), "the highest always rises"))
        };
        let held = fence.set_mode(G2, Mode::Hold);
        let low = low.join().expect("no panic");
        high.join().expect("no panic");
        assert!(low || !held, "only a generation that was current can be held");
        assert_eq!(fence.read(), (G3, Mode::Play));
    });
}

#[test]
fn of_two_modes_one_stands_and_both_were_told_the_truth() {
    loom::model(|| {
        let fence = Fence::new();
        fence.raise(G1);
        let duck = {
            let fence = fence.clone();
            thread::spawn(move || fence.set_mode(G1, Mode::Duck))
        };
        let hold = fence.set_mode(G1, Mode::Hold);
        assert!(duck.join().expect("no panic") && hold);
        let (generation, mode) = fence.read();
        assert_eq!(generation, G1);
        assert!(matches!(mode, Mode::Duck | Mode::Hold));
    });
}
