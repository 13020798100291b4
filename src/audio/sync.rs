//! The atomics of [`super::fence`], named in one place, so that `tests/loom.rs` can put loom's in their stead and check the very same
//! source.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// Runs a test of the fence once; loom's namesake runs it in every order that its threads could take.
#[cfg(test)]
pub(crate) fn model(test: impl Fn()) {
    test();
}
