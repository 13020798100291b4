//! Calls of tools: how they ended, what was changed outside after a stop, and what is still open (missions M2 and M3).

use std::collections::BTreeMap;

use super::Histogram;
use crate::event::{CallEnding, Event, Outcome, Record};
use crate::id::{CallId, TurnId};
use crate::time::Stamp;

/// Calls remembered per session. The oldest that needs no more following goes first.
const CALLS: usize = 256;

/// Calls by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallEndings {
    /// With their result.
    pub done: u64,
    /// They failed; nothing was changed.
    pub failed: u64,
    /// Stopped before anything was changed.
    pub cancelled: u64,
    /// Told to commit, and nobody knew whether they did.
    pub unknown: u64,
    /// Never started.
    pub not_started: u64,
}

/// Changes outside that a stop came too late for, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideEffects {
    /// The commit was under way when the stop came, and the tool said afterwards that it is done.
    pub under_way: u64,
    /// When the stop came or after it nobody knew; asked after, it turned out to have happened.
    pub found_out: u64,
    /// Leave to commit was given after the stop. Must stay zero for ever.
    pub let_through: u64,
}

/// What became of calls that were open, by what was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// It happened.
    pub happened: u64,
    /// It did not.
    pub did_not_happen: u64,
    /// It was undone.
    pub compensated: u64,
    /// A person had to look. Such a call stays open.
    pub needs_person: u64,
}

/// Everything measured about calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    endings: CallEndings,
    conflicts: u64,
    side_effects: SideEffects,
    outcomes: Outcomes,
    opened: u64,
    settled: u64,
    confirmed: Histogram,
}

impl Calls {
    /// How they ended.
    pub fn by_ending(&self) -> CallEndings {
        self.endings
    }

    /// Second endings of a call. Must stay zero for ever.
    pub fn conflicts(&self) -> u64 {
        self.conflicts
    }

    /// Changes outside that a stop came too late for.
    pub fn side_effects_after_stop(&self) -> SideEffects {
        self.side_effects
    }

    /// What was found out about open calls.
    pub fn reconciled(&self) -> Outcomes {
        self.outcomes
    }

    /// Calls that are open: nobody knows, or a person has to look.
    pub fn open(&self) -> u64 {
        self.opened - self.settled
    }

    /// *External result confirmed*: the stop, or without one the unknown ending, to the record that settles the call.
    pub fn confirmed(&self) -> &Histogram {
        &self.confirmed
    }
}

/// What must be remembered of one session's calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallsFold {
    by_call: BTreeMap<CallId, Followed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    turn: TurnId,
    committed: bool,
    ended: bool,
    /// Its turn had been asked to stop when its outcome turned out to be unknown.
    doubted_after_stop: bool,
    /// It is open since the moment from which its confirmation is measured.
    open_since: Option<Stamp>,
    /// Its effect after a stop was counted.
    counted: bool,
}

impl CallsFold {
    /// Takes a record into account. `stop_of` tells when a turn was asked to stop.
    pub(super) fn absorb(&mut self, record: &Record, stop_of: impl Fn(TurnId) -> Option<Stamp>, to: &mut Calls) {
        match &record.event {
            Event::CallRequested { call, .. } => {
                let turn = record.turn.unwrap_or_default();
                self.by_call.insert(*call, Followed { turn, ..Followed::default() });
                self.bound();
            }
            Event::CallKept { call, .. } => {
                if let (Some(known), Some(turn)) = (self.by_call.get_mut(call), record.turn) {
                    known.turn = turn;
                }
            }
            Event::CommitSent { call } => {
                let Some(known) = self.by_call.get_mut(call) else { return };
                known.committed = true;
                if stop_of(known.turn).is_some() && !std::mem::replace(&mut known.counted, true) {
                    to.side_effects.let_through += 1;
                }
            }
            Event::CallEnded { call, ending, .. } => {
                let known = self.by_call.entry(*call).or_default();
                if std::mem::replace(&mut known.ended, true) {
                    to.conflicts += 1;
                    return;
                }
                let stop = stop_of(known.turn);
                match ending {
                    CallEnding::Done => {
                        to.endings.done += 1;
                        if known.committed && stop.is_some() {
                            to.side_effects.under_way += u64::from(!std::mem::replace(&mut known.counted, true));
                        }
                    }
                    CallEnding::Failed { .. } => to.endings.failed += 1,
                    CallEnding::Cancelled => to.endings.cancelled += 1,
                    CallEnding::Unknown => {
                        to.endings.unknown += 1;
                        to.opened += 1;
                        known.doubted_after_stop = stop.is_some();
                        known.open_since = stop.or(Some(record.at));
                    }
                    CallEnding::NotStarted { .. } => to.endings.not_started += 1,
                }
            }
            Event::Reconciled { call, outcome } => {
                let known = self.by_call.entry(*call).or_default();
                let changed = matches!(outcome, Outcome::Happened | Outcome::Compensated);
                if changed && known.doubted_after_stop && !std::mem::replace(&mut known.counted, true) {
                    to.side_effects.found_out += 1;
                }
                match outcome {
                    Outcome::Happened => to.outcomes.happened += 1,
                    Outcome::DidNotHappen => to.outcomes.did_not_happen += 1,
                    Outcome::Compensated => to.outcomes.compensated += 1,
                    Outcome::NeedsPerson => to.outcomes.needs_person += 1,
                }
                if outcome.is_settled() {
                    // One that was done after the stop was never open; it is confirmed all the same.
                    let from = known.open_since.take();
                    to.settled += u64::from(from.is_some());
                    if let Some(from) = from.or_else(|| stop_of(known.turn)) {
                        to.confirmed.record(record.at.since(from));
                    }
                }
            }
            _ => {}
        }
    }

    fn bound(&mut self) {
        if self.by_call.len() > CALLS {
            let spent = self.by_call.iter().find(|(_, known)| known.ended && known.open_since.is_none()).map(|(call, _)| *call);
            match spent {
                Some(call) => drop(self.by_call.remove(&call)),
                None => drop(self.by_call.pop_first()),
            }
        }
    }

    /// How many calls are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_call.len()
    }
}
