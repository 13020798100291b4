//! `calls`: the ledger of tool calls. How far each is, how it ended, and what is still open about it.
//!
//! ```text
//! Asked ──(a person says yes)──▶ Running: Prepared ─▶ CommitAsked ─▶ CommitSent
//!   │ no                            │ (stopped)           │ (too late)      │ no answer
//!   ▼                               ▼                     ▼                 ▼
//! Ended(NotStarted)            Ended(Cancelled)     Ended(Cancelled)   Ended(Unknown) ─▶ open until it is settled
//! ```
//! A call ends once; an ending is never rewritten. What is found out later about an unknown one is its *outcome*.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::event::{CallEnding, Cancellability, Declaration, IdempotencyKey, Outcome, Pii};
use crate::id::{CallId, Seq, TaskId, TurnId};
use crate::time::Stamp;

/// Calls that are remembered after nothing about them is open any more; the oldest is forgotten first.
pub(super) const CALLS: usize = 256;

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    /// The turn it belongs to; another than the one that made it when it was kept.
    pub(super) turn: TurnId,
    pub(super) tool: String,
    pub(super) arguments: Pii<String>,
    pub(super) key: IdempotencyKey,
    /// Whether the tool made the key, so that equal keys are equal intents.
    pub(super) is_intent: bool,
    /// `None` when there is no such tool.
    pub(super) declaration: Option<Declaration>,
    pub(super) state: State,
    /// Whether it had leave to commit.
    pub(super) committed: bool,
    /// Whether its turn was asked to stop while the call was open: then nobody wants what it does any more.
    pub(super) unwanted: bool,
    pub(super) result: Pii<String>,
    /// What was found out about it since; `None` while nothing is known, or nothing need be.
    pub(super) outcome: Option<Outcome>,
    pub(super) errand: Errand,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A person is asked.
    Asked,
    /// It gets the ending of that one.
    Joined { with: CallId },
    /// A task carries it out.
    Running { task: TaskId, phase: Phase, due: Stamp, overdue: bool },
    /// It is over.
    Ended(CallEnding),
}

/// How far a running call is with its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was changed outside.
    Prepared,
    /// It waits for its intent to be kept.
    CommitAsked { intent: Seq },
    /// It has leave: nobody knows until it says.
    CommitSent,
}

/// What is being done to find out about an unknown call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Errand {
    /// Nothing.
    #[default]
    None,
    /// The outside will be asked for the `attempt`-th time.
    Wait { until: Stamp, attempt: u32 },
    /// It is being asked.
    Asking { task: TaskId, due: Stamp, attempt: u32 },
    /// It happened, nobody wants it, and it is being undone; without `due` it was told to stop, and what it comes to is waited for.
    Undoing { task: TaskId, due: Option<Stamp> },
}

impl Call {
    /// One that was read from a log, and of which nothing more is known yet.
    pub(super) fn read(turn: TurnId, id: CallId, tool: String, arguments: Pii<String>, key: IdempotencyKey) -> Self {
        Call {
            id,
            turn,
            tool,
            arguments,
            key,
            is_intent: false,
            declaration: None,
            state: State::Asked,
            committed: false,
            unwanted: false,
            result: Pii::default(),
            outcome: None,
            errand: Errand::None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Ended(_))
    }

    /// Whether it may have happened and nobody knows.
    pub(super) fn is_unknown(&self) -> bool {
        self.state == State::Ended(CallEnding::Unknown) && !self.is_settled()
    }

    /// Whether what was open about it is settled.
    pub(super) fn is_settled(&self) -> bool {
        self.outcome.is_some_and(Outcome::is_settled)
    }

    /// Whether it changed something outside although its turn had been asked to stop.
    pub(super) fn is_unwanted_effect(&self) -> bool {
        self.unwanted && self.committed && self.state == State::Ended(CallEnding::Done)
    }

    /// Whether the turn's end must name it.
    pub(super) fn needs_reconciling(&self) -> bool {
        self.is_unknown() || (self.is_unwanted_effect() && self.outcome != Some(Outcome::Compensated))
    }

    pub(super) fn task(&self) -> Option<TaskId> {
        match self.state {
            State::Running { task, .. } => Some(task),
            State::Asked | State::Joined { .. } | State::Ended(_) => None,
        }
    }

    pub(super) fn phase(&self) -> Option<Phase> {
        match self.state {
            State::Running { phase, .. } => Some(phase),
            State::Asked | State::Joined { .. } | State::Ended(_) => None,
        }
    }

    pub(super) fn set_phase(&mut self, to: Phase) {
        if let State::Running { phase, .. } = &mut self.state {
            *phase = to;
        }
    }

    /// Takes back a commit that was asked for and has no leave yet. Whether there was one comes back.
    pub(super) fn hold_back(&mut self) -> bool {
        let asked = matches!(self.phase(), Some(Phase::CommitAsked { .. }));
        if asked {
            self.set_phase(Phase::Prepared);
        }
        asked
    }

    /// It exceeds its cap.
    pub(super) fn set_overdue(&mut self) {
        if let State::Running { overdue, .. } = &mut self.state {
            *overdue = true;
        }
    }

    /// How long it is waited for once it is told to stop, `usual` unless its tool says otherwise.
    pub(super) fn grace(&self, usual: Duration) -> Duration {
        self.declaration.as_ref().and_then(|d| d.grace).unwrap_or(usual)
    }

    pub(super) fn class(&self) -> Cancellability {
        self.declaration.as_ref().map_or(Cancellability::ReadOnly, |d| d.class)
    }

    /// What a stop of its turn does to it while it runs.
    pub(super) fn manner(&self) -> Manner {
        if self.phase() != Some(Phase::CommitSent) {
            return Manner::Tell;
        }
        match self.class() {
            Cancellability::ReadOnly | Cancellability::RemoteCancel => Manner::Tell,
            // What is being published is published: it only has to say so.
            Cancellability::Staged | Cancellability::Irreversible => Manner::Leave,
            Cancellability::HumanProcess => Manner::LeaveAtOnce,
        }
    }
}

/// What a stop does to a running call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It is told, and waited for.
    Tell,
    /// It is not disturbed, and waited for.
    Leave,
    /// It is not disturbed, and not waited for.
    LeaveAtOnce,
}

/// All calls of a session that are open or remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    known: BTreeMap<CallId, Call>,
    pub(super) last: CallId,
}

impl Calls {
    pub(super) fn get(&self, id: CallId) -> Option<&Call> {
        self.known.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.known.get_mut(&id)
    }

    pub(super) fn put(&mut self, call: Call) {
        self.last = self.last.max(call.id);
        self.known.insert(call.id, call);
        self.forget();
    }

    /// Forgets the oldest about which nothing is open.
    fn forget(&mut self) {
        let over = |c: &&Call| !c.is_open() && !c.needs_reconciling() && c.errand == Errand::None;
        while self.known.len() > CALLS {
            let Some(oldest) = self.known.values().find(over).map(|c| c.id) else { return };
            self.known.remove(&oldest);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Call> {
        self.known.values()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.known.values_mut()
    }

    pub(super) fn of_turn(&self, turn: TurnId) -> impl Iterator<Item = &Call> {
        self.known.values().filter(move |c| c.turn == turn)
    }

    /// The open calls of a turn.
    pub(super) fn open_of(&self, turn: TurnId) -> Vec<CallId> {
        self.of_turn(turn).filter(|c| c.is_open()).map(|c| c.id).collect()
    }

    /// The call that this task carries out.
    pub(super) fn by_task(&self, task: TaskId) -> Option<&Call> {
        self.known.values().find(|c| c.task() == Some(task))
    }

    /// The call on whose errand this task is.
    pub(super) fn by_errand(&self, task: TaskId) -> Option<&Call> {
        self.known.values().find(|c| match c.errand {
            Errand::Asking { task: t, .. } | Errand::Undoing { task: t, .. } => t == task,
            Errand::None | Errand::Wait { .. } => false,
        })
    }

    /// When the first running call of a turn exceeds its cap.
    pub(super) fn due(&self, turn: TurnId) -> Option<Stamp> {
        self.of_turn(turn).filter_map(Call::cap_due).min()
    }

    /// When the next errand has to be looked at.
    pub(super) fn errand_due(&self) -> Option<Stamp> {
        (self.known.values())
            .filter_map(|c| match c.errand {
                Errand::None => None,
                Errand::Wait { until, .. } => Some(until),
                Errand::Asking { due, .. } => Some(due),
                Errand::Undoing { due, .. } => due,
            })
            .min()
    }
}

impl Call {
    pub(super) fn cap_due(&self) -> Option<Stamp> {
        match self.state {
            State::Running { due, overdue: false, .. } => Some(due),
            State::Running { overdue: true, .. } | State::Asked | State::Joined { .. } | State::Ended(_) => None,
        }
    }
}

/// A call as others are shown it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallView {
    /// Which.
    pub call: CallId,
    /// The turn it belongs to.
    pub turn: TurnId,
    /// The tool.
    pub tool: String,
    /// What it was asked.
    pub arguments: Pii<String>,
    /// Under which key it changes something outside.
    pub key: IdempotencyKey,
    /// How far it is.
    pub phase: CallPhase,
    /// How it ended, if it has.
    pub ending: Option<CallEnding>,
    /// What it brought.
    pub result: Pii<String>,
    /// What was found out about it since.
    pub outcome: Option<Outcome>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPhase {
    /// A person is asked whether it may be made.
    AwaitingApproval,
    /// It waits for an equal one that runs.
    Joined,
    /// It runs, and nothing was changed outside.
    Prepared,
    /// It waits for its intent to be kept.
    CommitAsked,
    /// It has leave to commit and has not said what became of it.
    CommitSent,
    /// It is over.
    Ended,
}

impl From<&Call> for CallView {
    fn from(call: &Call) -> Self {
        let (phase, ending) = match call.state {
            State::Asked => (CallPhase::AwaitingApproval, None),
            State::Joined { .. } => (CallPhase::Joined, None),
            State::Running { phase: Phase::Prepared, .. } => (CallPhase::Prepared, None),
            State::Running { phase: Phase::CommitAsked { .. }, .. } => (CallPhase::CommitAsked, None),
            State::Running { phase: Phase::CommitSent, .. } => (CallPhase::CommitSent, None),
            State::Ended(ending) => (CallPhase::Ended, Some(ending)),
        };
        CallView {
            call: call.id,
            turn: call.turn,
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            key: call.key.clone(),
            phase,
            ending,
            result: call.result.clone(),
            outcome: call.outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u64, class: Cancellability, state: State) -> Call {
        let declaration = Some(Declaration::new("book", class));
        let call = Call::read(TurnId(1), CallId(id), "book".into(), "{}".into(), IdempotencyKey("k".into()));
        Call { declaration, state, ..call }
    }

    fn running(phase: Phase) -> State {
        State::Running { task: TaskId(3), phase, due: Stamp::from_millis(50), overdue: false }
    }

    #[test]
    fn a_stop_disturbs_whatever_has_not_been_sent() {
        use Cancellability::*;
        for class in [ReadOnly, Staged, RemoteCancel, Irreversible, HumanProcess] {
            for phase in [Phase::Prepared, Phase::CommitAsked { intent: Seq(4) }] {
                assert_eq!(call(1, class, running(phase)).manner(), Manner::Tell, "{class:?} {phase:?}");
            }
        }
        let sent = |class| call(1, class, running(Phase::CommitSent)).manner();
        assert_eq!(
            [sent(RemoteCancel), sent(Irreversible), sent(HumanProcess)],
            [Manner::Tell, Manner::Leave, Manner::LeaveAtOnce]
        );
    }

    #[test]
    fn only_what_is_closed_is_forgotten() {
        let mut calls = Calls::default();
        calls.put(call(1, Cancellability::Irreversible, State::Ended(CallEnding::Unknown)));
        calls.put(call(2, Cancellability::ReadOnly, running(Phase::Prepared)));
        for id in 3..3 + CALLS as u64 + 10 {
            calls.put(call(id, Cancellability::ReadOnly, State::Ended(CallEnding::Done)));
        }
        assert_eq!(calls.all().count(), CALLS);
        assert!(calls.get(CallId(1)).is_some_and(Call::is_unknown), "what is open stays");
        assert!(calls.get(CallId(2)).is_some_and(Call::is_open));
        assert!(calls.get(CallId(3)).is_none());
        calls.get_mut(CallId(1)).expect("known").outcome = Some(Outcome::Happened);
        calls.put(call(999, Cancellability::ReadOnly, State::Ended(CallEnding::Done)));
        assert!(calls.get(CallId(1)).is_none(), "settled, it may be forgotten");
    }

    #[test]
    fn a_call_for_a_person_still_needs_reconciling() {
        let mut c = call(1, Cancellability::Irreversible, State::Ended(CallEnding::Unknown));
        assert!(c.needs_reconciling());
        c.outcome = Some(Outcome::NeedsPerson);
        assert!(c.needs_reconciling() && !c.is_settled());
        c.outcome = Some(Outcome::DidNotHappen);
        assert!(!c.needs_reconciling());
    }

    #[test]
    fn an_effect_that_came_after_the_stop_is_named_until_it_is_undone() {
        let mut c = call(1, Cancellability::Irreversible, State::Ended(CallEnding::Done));
        c.committed = true;
        assert!(!c.needs_reconciling(), "it was wanted");
        c.unwanted = true;
        assert!(c.needs_reconciling());
        c.outcome = Some(Outcome::Compensated);
        assert!(!c.needs_reconciling());
    }
}
