//! `Backend`: the outside world of scripted tools, to be looked at by a test. Layer 2; one value, shared by clones.
//!
//! Laws: what is under a key is there once, however often it is sent; looking changes nothing. Proved by the tests of `scripted`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::event::{IdempotencyKey, Outside};
use crate::provider::script::held;

/// What scripted tools change. Several tools may share one.
#[derive(Clone, Debug, Default)]
pub struct Backend(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    aside: usize,
    removed: usize,
    published: Vec<IdempotencyKey>,
    in_force: BTreeSet<IdempotencyKey>,
    duplicates: usize,
    lost: usize,
    undone: Vec<IdempotencyKey>,
    probed: Vec<IdempotencyKey>,
}

impl Backend {
    /// One in which nothing has happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Things that lie aside now, seen by nobody.
    pub fn staged(&self) -> usize {
        held(&self.0).aside
    }

    /// Things that lay aside and were taken away again, unpublished.
    pub fn removed(&self) -> usize {
        held(&self.0).removed
    }

    /// Effects that are there now: published and not undone.
    pub fn effects(&self) -> usize {
        held(&self.0).in_force.len()
    }

    /// What was ever published, in order, undone or not. No key stands in it twice unless it was undone in between.
    pub fn published(&self) -> Vec<IdempotencyKey> {
        held(&self.0).published.clone()
    }

    /// How often something was sent under a key that was there already. It changed nothing.
    pub fn duplicates(&self) -> usize {
        held(&self.0).duplicates
    }

    /// How often something was sent and never arrived.
    pub fn lost(&self) -> usize {
        held(&self.0).lost
    }

    /// What was undone or taken back, in order.
    pub fn undone(&self) -> Vec<IdempotencyKey> {
        held(&self.0).undone.clone()
    }

    /// What was asked after, in order.
    pub fn probed(&self) -> Vec<IdempotencyKey> {
        held(&self.0).probed.clone()
    }

    /// What is so under `key`.
    pub fn shows(&self, key: &IdempotencyKey) -> Outside {
        if held(&self.0).in_force.contains(key) { Outside::Happened } else { Outside::DidNotHappen }
    }

    /// What lies aside and what is there: what [`check::tool()`](crate::provider::check::tool()) wants to look at.
    pub fn changes(&self) -> u64 {
        let state = held(&self.0);
        (state.aside + state.in_force.len()) as u64
    }

    pub(super) fn stage(&self) {
        held(&self.0).aside += 1;
    }

    pub(super) fn unstage(&self) {
        let mut state = held(&self.0);
        state.aside -= 1;
        state.removed += 1;
    }

    /// What was sent arrives; what lay aside for it, `staged` things, is no longer aside.
    pub(super) fn publish(&self, key: &IdempotencyKey, staged: usize) {
        let mut state = held(&self.0);
        state.aside -= staged;
        if state.in_force.insert(key.clone()) {
            state.published.push(key.clone());
        } else {
            state.duplicates += 1;
        }
    }

    pub(super) fn lose(&self) {
        held(&self.0).lost += 1;
    }

    pub(super) fn undo(&self, key: &IdempotencyKey) {
        let mut state = held(&self.0);
        if state.in_force.remove(key) {
            state.undone.push(key.clone());
        }
    }

    pub(super) fn probe(&self, key: &IdempotencyKey) -> Outside {
        held(&self.0).probed.push(key.clone());
        self.shows(key)
    }
}
