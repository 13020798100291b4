//! `observe`: counts. Projections of records, and gauges that others hand in.
//!
//! * Layer 2. Imports layer 0 and `tracing`. Numbers come from records, never from hooks in the rooms that decide or sound.
//! * One [`Metrics`] per engine, owned by it; readers get clones.
//! * Laws: folding the log again gives the same numbers ([`Metrics::from_records`]); memory does not grow with the number of
//!   turns or of ended sessions; nothing here reveals what a person said.
//! * Proved by the tests of this file (live = replayed, bounded memory) and of each part.

pub mod calls;
#[cfg(feature = "server")]
pub mod export;
pub mod histogram;
mod session;
mod table;
pub mod tail;
pub mod trace;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use crate::event::{Event, Record, Terminal};
use crate::id::SessionId;

pub use calls::{CallEndings, Calls, Outcomes, SideEffects};
pub use histogram::Histogram;
pub use tail::{TailPart, TailRecord, Tails};

use session::SessionFold;

/// Sessions followed at once, at most. A session that never ends is forgotten when this many newer ones are at work.
const SESSIONS: usize = 4_096;

/// Output that was too late for the person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateEvents {
    /// Refused at a door and kept out.
    pub dropped: u64,
    /// Let out although its turn had been cancelled or had ended, or its generation was over. Must stay zero for ever.
    pub delivered: u64,
}

/// How turns ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminals {
    /// To their own end.
    pub completed: u64,
    /// Stopped by somebody or something.
    pub cancelled: u64,
    /// Could not be carried out.
    pub failed: u64,
    /// With a side effect of unknown outcome.
    pub reconcile_required: u64,
}

impl Terminals {
    fn count(&mut self, terminal: &Terminal) {
        match terminal {
            Terminal::Completed => self.completed += 1,
            Terminal::Cancelled { .. } => self.cancelled += 1,
            Terminal::Failed { .. } => self.failed += 1,
            Terminal::ReconcileRequired { .. } => self.reconcile_required += 1,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.completed + self.cancelled + self.failed + self.reconcile_required
    }
}

/// What became of inputs that were to steer a running turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// Accepted. Accepted is not adopted.
    pub queued: u64,
    /// Shown to the model.
    pub consumed: u64,
    /// Handed back because the turn ended before.
    pub returned: u64,
}

/// Two of the three objectives of a stop (mission M3). The third, *external result confirmed*, is [`Calls::confirmed`]. None stands
/// for another: an answer can be silent while its tools still work, and these can stop while nobody knows what they sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objectives {
    delivery_stopped: Histogram,
    work_stopped: Histogram,
    work_aborted: u64,
}

impl Objectives {
    /// *Delivery stopped*: a turn was asked to stop until the record says that its last sample is out. Zero for a turn that did not sound.
    pub fn delivery_stopped(&self) -> &Histogram {
        &self.delivery_stopped
    }

    /// *Cooperative work stopped*: a turn was asked to stop until its last task had stopped by itself. Turns that had no task running are
    /// not in it, nor those in which a task had to be aborted ([`Objectives::work_aborted`]).
    pub fn work_stopped(&self) -> &Histogram {
        &self.work_stopped
    }

    /// Stopped turns in which a task did not stop by itself. What it began elsewhere may go on.
    pub fn work_aborted(&self) -> u64 {
        self.work_aborted
    }
}

/// Everything that was measured, as a fold over records.
///
/// A clone is a picture of the moment. Equality compares what was measured, not what is still going on.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    tails: Tails,
    ttft: Histogram,
    ttfa: Histogram,
    e2e: Histogram,
    cancel_propagation: Histogram,
    late: LateEvents,
    late_texts: u64,
    steering: Steering,
    objectives: Objectives,
    calls: Calls,
    terminals: Terminals,
    terminal_conflicts: u64,
    duplicate_cancel_effects: u64,
    underruns: u64,
    holds: u64,
    false_interruptions: u64,
    barge_ins: u64,
    odd_inputs: u64,
    unheard_chars: u64,
    sessions: BTreeMap<SessionId, SessionFold>,
    /// Counts absorbed records: what "longest untouched" is told by.
    absorbed: u64,
}

impl Metrics {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The numbers of a log. The records of each session come in the order of their seq; sessions may be interleaved.
    pub fn from_records<R: Borrow<Record>>(records: impl IntoIterator<Item = (SessionId, R)>) -> Self {
        let mut metrics = Self::new();
        for (session, record) in records {
            metrics.absorb(session, record.borrow());
        }
        metrics
    }

    /// Takes one record of `session` into account. Call it once for each, in the order of their seq.
    pub fn absorb(&mut self, session: SessionId, record: &Record) {
        self.absorbed += 1;
        if record.event == Event::SessionEnded {
            self.sessions.remove(&session);
            return;
        }
        if self.sessions.len() >= SESSIONS && !self.sessions.contains_key(&session) {
            self.forget_the_longest_untouched();
        }
        // Taken out while it is folded, so that the fold may write to the totals.
        let mut fold = self.sessions.remove(&session).unwrap_or_default();
        fold.touched = self.absorbed;
        fold.absorb(session, record, self);
        self.sessions.insert(session, fold);
    }

    fn forget_the_longest_untouched(&mut self) {
        let longest = self.sessions.iter().min_by_key(|(_, fold)| fold.touched).map(|(id, _)| *id);
        if let Some(id) = longest {
            self.sessions.remove(&id);
        }
    }

    /// The audible tail: a barge-in's onset to the last stale sample at the loudspeaker.
    pub fn audible_tail(&self) -> &Histogram {
        self.tails.to_silence()
    }

    /// A part of the audible tail, or one of its other endpoints.
    pub fn tail(&self, part: TailPart) -> &Histogram {
        self.tails.part(part)
    }

    /// Everything about tails, the newest ones whole.
    pub fn tails(&self) -> &Tails {
        &self.tails
    }

    /// Turn started (its input complete) to the first text of its answer.
    pub fn ttft(&self) -> &Histogram {
        &self.ttft
    }

    /// End of the user's speech, or for typed text the turn's start, to the first sample of the answer being played.
    pub fn ttfa(&self) -> &Histogram {
        &self.ttfa
    }

    /// Turn accepted to its terminal.
    pub fn e2e(&self) -> &Histogram {
        &self.e2e
    }

    /// Cancel accepted or barge-in to the last task of the turn having ended. Turns that had no task running are not in it.
    pub fn cancel_propagation(&self) -> &Histogram {
        &self.cancel_propagation
    }

    /// Output that was too late.
    pub fn late_events(&self) -> LateEvents {
        self.late
    }

    /// Pieces of text that a model made after its answer had been stopped: wasted work.
    pub fn late_texts(&self) -> u64 {
        self.late_texts
    }

    /// What became of inputs that were to steer.
    pub fn steering(&self) -> Steering {
        self.steering
    }

    /// How soon what was asked to stop had stopped.
    pub fn objectives(&self) -> &Objectives {
        &self.objectives
    }

    /// Everything about calls of tools.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Second terminals of a turn. Must stay zero for ever.
    pub fn terminal_conflicts(&self) -> u64 {
        self.terminal_conflicts
    }

    /// Second effects of a cancel on one turn. Must stay zero for ever.
    pub fn duplicate_cancel_effects(&self) -> u64 {
        self.duplicate_cancel_effects
    }

    /// Times that the loudspeaker ran dry in the midst of an answer.
    pub fn underruns(&self) -> u64 {
        self.underruns
    }

    /// Answers paused on weak evidence.
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// Holds that turned out not to be a barge-in.
    pub fn false_interruptions(&self) -> u64 {
        self.false_interruptions
    }

    /// Times that a person took the floor from the agent.
    pub fn barge_ins(&self) -> u64 {
        self.barge_ins
    }

    /// Inputs that made no sense in the state they met.
    pub fn odd_inputs(&self) -> u64 {
        self.odd_inputs
    }

    /// Characters that were made and never heard: wasted work.
    pub fn unheard_chars(&self) -> u64 {
        self.unheard_chars
    }

    /// How turns ended.
    pub fn turns_by_terminal(&self) -> Terminals {
        self.terminals
    }

    /// Turns that have ended, in whichever way.
    pub fn turns(&self) -> u64 {
        self.terminals.total()
    }

    /// Sessions begun and not ended, as far as the records tell.
    pub fn open_sessions(&self) -> usize {
        self.sessions.len()
    }
}

impl PartialEq for Metrics {
    /// Whether the same was measured. Sessions still going on are compared by their number.
    fn eq(&self, other: &Self) -> bool {
        // Written as destructuring so that a new field cannot be forgotten here.
        let Metrics {
            tails,
            ttft,
            ttfa,
            e2e,
            cancel_propagation,
            late,
            late_texts,
            steering,
            objectives,
            calls,
            terminals,
            terminal_conflicts,
            duplicate_cancel_effects,
            underruns,
            holds,
            false_interruptions,
            barge_ins,
            odd_inputs,
            unheard_chars,
            sessions,
            absorbed: _,
        } = self;
        tails == &other.tails
            && ttft == &other.ttft
            && ttfa == &other.ttfa
            && e2e == &other.e2e
            && cancel_propagation == &other.cancel_propagation
            && late == &other.late
            && late_texts == &other.late_texts
            && steering == &other.steering
            && objectives == &other.objectives
            && calls == &other.calls
            && terminals == &other.terminals
            && terminal_conflicts == &other.terminal_conflicts
            && duplicate_cancel_effects == &other.duplicate_cancel_effects
            && underruns == &other.underruns
            && holds == &other.holds
            && false_interruptions == &other.false_interruptions
            && barge_ins == &other.barge_ins
            && odd_inputs == &other.odd_inputs
            && unheard_chars == &other.unheard_chars
            && sessions.len() == other.sessions.len()
    }
}

#[cfg(test)]
mod tests;
