//! Fifth chapter of the machine: what became of calls of which nobody knows.
//!
//! ```text
//! Unknown ──▶ its own late answer ─────────────────────────────┐
//!    └──────▶ the outside is asked by the key, again and again ─┴▶ DidNotHappen | Happened | Happened, and undone | for a person
//! ```
//! The terminal of the turn stays as it is. Nothing is ever sent again.

use crate::event::{CallEnding, Event, LateKind, Outcome, Outside, Pii, Stage, TaskOutcome};
use crate::id::{CallId, TaskId};
use crate::time::Stamp;
use crate::turn::calls::{Call, CallView, Errand, State};
use crate::turn::machine::{Ending, Machine};
use crate::turn::{Effect, Ended, Report, ResolveAnswer, StopReason, TaskSpec};

impl Machine {
    /// The calls of which nobody knows whether they happened.
    pub fn unreconciled(&self) -> Vec<CallView> {
        self.calls.all().filter(|c| c.is_unknown()).map(CallView::from).collect()
    }

    /// Looks after what is open about calls whose turn runs on or is over.
    pub(super) fn look_after(&mut self) {
        if self.pending.is_empty() || self.ending == Ending::Finished {
            return;
        }
        let stopping = |c: &Call| self.turns.closing.iter().any(|t| t.id == c.turn);
        let ready = |id: &&CallId| self.calls.get(**id).is_none_or(|c| !stopping(c));
        let ready: Vec<CallId> = self.pending.iter().filter(ready).copied().collect();
        for id in ready {
            self.pending.remove(&id);
            match self.calls.get(id).map(|c| c.state) {
                // A session that ends asks nobody any more; the call stays open in its log.
                Some(State::Ended(CallEnding::Unknown)) if self.is_closing() => {}
                Some(State::Ended(CallEnding::Unknown)) => self.ask_outside(id, 1),
                Some(State::Ended(CallEnding::Done)) => self.settle_call(id, Outcome::Happened),
                Some(State::Ended(_) | State::Asked | State::Joined { .. } | State::Running { .. }) | None => {}
            }
        }
    }

    /// Asks the outside about a call, if it can be asked.
    fn ask_outside(&mut self, id: CallId, attempt: u32) {
        let Some(call) = self.calls.get(id) else { return };
        let answers_late = self.left.values().any(|left| *left == id);
        let probes = call.declaration.as_ref().is_some_and(|d| d.probes);
        if !probes || attempt > self.policy.budget.reconcile_attempts {
            if !answers_late || probes {
                self.settle_call(id, Outcome::NeedsPerson);
            }
            return;
        }
        let spec = TaskSpec::Reconcile { call: id, tool: call.tool.clone(), key: call.key.clone() };
        let (task, due) = self.start_errand(id, spec);
        self.set_errand(id, Errand::Asking { task, due, attempt });
    }

    fn start_errand(&mut self, id: CallId, spec: TaskSpec) -> (TaskId, Stamp) {
        let (task, due) = (self.next_task(), self.now + self.policy.budget.tool);
        self.errands.start(task, Stage::Reconcile);
        self.write_call(id, |_| Event::TaskStarted { task, stage: Stage::Reconcile });
        self.out.push(Effect::StartTask { task, generation: self.gate.generation(), deadline: due, spec });
        (task, due)
    }

    fn set_errand(&mut self, id: CallId, errand: Errand) {
        if let Some(call) = self.calls.get_mut(id) {
            call.errand = errand;
        }
    }

    /// It is known what became of a call. The first settled outcome stands.
    fn settle_call(&mut self, id: CallId, outcome: Outcome) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.is_settled() || call.outcome == Some(outcome) {
            return;
        }
        let undoing = matches!(call.errand, Errand::Undoing { .. });
        let undoes = call.unwanted && call.declaration.as_ref().is_some_and(|d| d.compensates);
        if outcome == Outcome::Happened && undoes && !undoing && !self.is_closing() {
            self.undo(id);
            return;
        }
        let Some(call) = self.calls.get_mut(id) else { return };
        call.outcome = Some(outcome);
        let (ending, result, errand) = (call.state, call.result.clone(), std::mem::take(&mut call.errand));
        self.pending.remove(&id);
        self.stop_errand(errand);
        self.write_call(id, |call| Event::Reconciled { call, outcome });
        // The model is shown what is so.
        match (outcome, ending) {
            (Outcome::Happened, _) => self.history.result(id, CallEnding::Done, &result),
            (Outcome::DidNotHappen | Outcome::Compensated, _) => self.history.result(id, CallEnding::Cancelled, &Pii::default()),
            (Outcome::NeedsPerson, _) => {}
        }
    }

    /// It happened, nobody wants it, and its tool can undo it.
    fn undo(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let errand = std::mem::take(&mut call.errand);
        let spec = TaskSpec::Compensate { call: id, tool: call.tool.clone(), key: call.key.clone() };
        self.stop_errand(errand);
        let (task, due) = self.start_errand(id, spec);
        self.set_errand(id, Errand::Undoing { task, due: Some(due) });
    }

    fn stop_errand(&mut self, errand: Errand) {
        let (Errand::Asking { task, .. } | Errand::Undoing { task, .. }) = errand else { return };
        let signal = self.errands.stop(task, StopReason::NotNeeded, self.now, self.policy.budget.grace);
        self.out.extend(signal);
    }

    /// The outside answers.
    pub(super) fn probed(&mut self, task: TaskId, outside: Outside) {
        // Whoever undoes was not asked what is so.
        let asked = |c: &&Call| matches!(c.errand, Errand::Asking { .. });
        let Some(id) = self.calls.by_errand(task).filter(asked).map(|c| c.id) else {
            self.late_report(task, LateKind::Result);
            return;
        };
        self.errands.seen(task);
        match outside {
            Outside::Happened => self.settle_call(id, Outcome::Happened),
            Outside::DidNotHappen => self.settle_call(id, Outcome::DidNotHappen),
            // Asked again when the task is over.
            Outside::Unknown => {}
        }
    }

    /// The task of an errand is over.
    pub(super) fn errand_over(&mut self, task: TaskId, outcome: TaskOutcome) {
        let of = self.calls.by_errand(task).map(|c| (c.id, c.errand, c.turn));
        self.errands.ended(task, outcome);
        self.errands.prune();
        self.retire(task, self.gate.generation());
        self.write(of.map(|(_, _, turn)| turn), Event::TaskEnded { task, stage: Stage::Reconcile, outcome });
        match of {
            Some((id, Errand::Asking { attempt, .. }, _)) => self.ask_later(id, attempt),
            Some((id, Errand::Undoing { .. }, _)) => {
                let undone = outcome == TaskOutcome::Finished;
                self.settle_call(id, if undone { Outcome::Compensated } else { Outcome::NeedsPerson });
            }
            Some((_, Errand::None | Errand::Wait { .. }, _)) | None => {}
        }
    }

    /// It could not tell: once more, after twice the pause.
    fn ask_later(&mut self, id: CallId, attempt: u32) {
        let pause = self.policy.budget.reconcile_after.saturating_mul(1 << attempt.saturating_sub(1).min(16));
        self.set_errand(id, Errand::Wait { until: self.now + pause, attempt: attempt + 1 });
    }

    /// Some errands are due, or take too long.
    pub(super) fn errands_due(&mut self) {
        let now = self.now;
        let due: Vec<(CallId, Errand)> = self.calls.all().map(|c| (c.id, c.errand)).collect();
        for (id, errand) in due {
            match errand {
                Errand::Wait { until, attempt } if until <= now => {
                    self.set_errand(id, Errand::None);
                    self.ask_outside(id, attempt);
                }
                Errand::Asking { due, attempt, .. } if due <= now => {
                    self.stop_errand(errand);
                    self.ask_later(id, attempt);
                }
                Errand::Undoing { task, due: Some(due) } if due <= now => {
                    // Until it is over it may still succeed; what it comes to is said then.
                    self.set_errand(id, Errand::Undoing { task, due: None });
                    self.stop_errand(errand);
                }
                Errand::None | Errand::Wait { .. } | Errand::Asking { .. } | Errand::Undoing { .. } => {}
            }
        }
    }

    /// A call that was left to itself says late what became of it.
    pub(super) fn late_answer(&mut self, task: TaskId, id: CallId, report: Report) {
        match report {
            Report::Result { text } => {
                if let Some(call) = self.calls.get_mut(id).filter(|c| !c.is_settled()) {
                    call.result = text;
                    self.settle_call(id, Outcome::Happened);
                } else {
                    self.late_report(task, LateKind::Result);
                }
            }
            Report::Ended(ended) => {
                self.left.remove(&task);
                self.zombies.remove(&task);
                match ended {
                    Ended::Failed(_) => self.settle_call(id, Outcome::DidNotHappen),
                    Ended::Finished | Ended::Stopped | Ended::Aborted | Ended::Unknown => {
                        let waits = self.calls.get(id).is_some_and(|c| c.is_unknown() && c.errand == Errand::None);
                        if waits && !self.pending.contains(&id) {
                            self.settle_call(id, Outcome::NeedsPerson);
                        }
                    }
                }
            }
            Report::Transcript { .. }
            | Report::Text { .. }
            | Report::Call { .. }
            | Report::Found { .. }
            | Report::Checkpoint { .. }
            | Report::CommitAsked
            | Report::Probed { .. }
            | Report::Audio { .. } => self.late_report(task, LateKind::Report),
        }
    }

    /// A person found out.
    pub(super) fn resolve(&mut self, id: CallId, outcome: Outcome) -> ResolveAnswer {
        let Some(call) = self.calls.get(id) else { return ResolveAnswer::NotOpen };
        if let Some(settled) = call.outcome.filter(|o| o.is_settled()) {
            return ResolveAnswer::AlreadySettled(settled);
        }
        let open = call.is_unknown() || call.is_unwanted_effect();
        // Its log has its last record: what is found out now belongs elsewhere.
        let over = matches!(self.ending, Ending::Written { .. } | Ending::Finished);
        if !open || over || self.turns.closing.iter().any(|t| t.id == call.turn) {
            return ResolveAnswer::NotOpen;
        }
        // Whoever says what became of it has seen to it: nothing is undone behind their back.
        let errand = self.calls.get_mut(id).map(|c| {
            c.unwanted = false;
            std::mem::take(&mut c.errand)
        });
        self.stop_errand(errand.unwrap_or_default());
        self.settle_call(id, outcome);
        ResolveAnswer::Settled
    }
}
