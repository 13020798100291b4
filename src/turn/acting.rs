//! Fourth chapter of the machine: tools. What the model asks for is checked, started, given leave to change something, and ended once.
//!
//! The intent to change something is kept before leave is given; whatever cannot be taken back is told as it is.

use std::time::Duration;

use crate::event::{CallEnding, CallFailure, Cancellability, Checkpoint, Event, FailReason, LateKind, NotStarted, OnTimeout, Pii};
use crate::event::{IdempotencyKey, OnBargeIn, Outcome, Retry, Stage, TaskOutcome};
use crate::id::{CallId, TaskId, TurnId};
use crate::turn::calls::{Call, Errand, Manner, Phase, State};
use crate::turn::life::Life;
use crate::turn::machine::Machine;
use crate::turn::tree::Branch;
use crate::turn::turns::Turn;
use crate::turn::{Effect, Ended, StopReason, TaskSpec};

/// Which calls of a turn that is replaced go on for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep<'a> {
    /// None: nothing follows.
    Nothing,
    /// Those whose tools say so.
    ByPolicy,
    /// These.
    These(&'a [CallId]),
}

/// A call on its way from a turn that is replaced to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) call: CallId,
    from: TurnId,
    /// Its task; one that was joined to another has none.
    branch: Option<Branch>,
}

impl Machine {
    /// The model asks for a tool.
    pub(super) fn call_requested(&mut self, task: TaskId, tool: String, arguments: Pii<String>, key: Option<String>) {
        let now = self.now;
        let Some(turn) = self.working(task, Stage::Generate) else {
            self.late_report(task, LateKind::Text);
            return;
        };
        turn.tree.seen(task);
        turn.budget.text(now);
        turn.calls += 1;
        let (turn, request, made) = (turn.id, turn.requests, turn.calls);
        let id = self.calls.last.next();
        let is_intent = key.is_some();
        let key = IdempotencyKey(key.unwrap_or_else(|| format!("{}-{}", self.session, id.0)));
        let declaration = self.tools.get(&tool).cloned();
        let asked = Event::CallRequested { call: id, tool: tool.clone(), arguments: arguments.clone(), key: key.clone() };
        self.write(Some(turn), asked);
        self.history.call(turn, request, id, &tool, &arguments);
        let is_known = declaration.is_some();
        let call = Call::read(turn, id, tool, arguments, key);
        self.calls.put(Call { is_intent, declaration, ..call });
        if !is_known {
            self.refuse_call(id, NotStarted::UnknownTool);
        } else if made > self.policy.budget.calls {
            self.refuse_call(id, NotStarted::TooMany);
        } else if !self.follows_another(id) {
            self.try_to_start(id, false);
        }
    }

    /// Whether an equal call settles this one, and then it is done.
    fn follows_another(&mut self, id: CallId) -> bool {
        let Some(call) = self.calls.get(id) else { return false };
        let same_tool = |c: &&Call| c.id != id && c.tool == call.tool;
        let same_intent = |c: &&Call| same_tool(c) && call.is_intent && c.is_intent && c.key == call.key;
        let looked_after = |c: &Call| c.outcome == Some(Outcome::NeedsPerson) || matches!(c.errand, Errand::Undoing { .. });
        let sent_elsewhere = |c: &Call| c.turn != call.turn && c.phase() == Some(Phase::CommitSent);
        let may_have_happened = |c: &Call| c.is_unknown() || looked_after(c) || sent_elsewhere(c);
        // Done, or found out later to have happened.
        let stands = |c: &&Call| match (c.state, c.outcome) {
            (State::Ended(CallEnding::Done), None) => true,
            (State::Ended(CallEnding::Done | CallEnding::Unknown), outcome) => outcome == Some(Outcome::Happened),
            (State::Ended(CallEnding::Failed { .. } | CallEnding::Cancelled | CallEnding::NotStarted { .. }), _)
            | (State::Asked | State::Joined { .. } | State::Running { .. }, _) => false,
        };
        let in_flight = |c: &&Call| {
            let runs = matches!(c.state, State::Running { overdue: false, .. } | State::Asked);
            let equal = if call.is_intent && c.is_intent { c.key == call.key } else { c.arguments == call.arguments };
            runs && same_tool(c) && c.turn == call.turn && equal
        };
        let changes = call.class() != Cancellability::ReadOnly;
        let unknown = changes && self.calls.all().filter(same_intent).any(may_have_happened);
        let done = self.calls.all().filter(|c| changes && same_intent(c)).find(stands).map(|c| (c.id, c.result.clone()));
        let running = self.calls.all().find(in_flight).map(|c| c.id);
        if unknown {
            self.refuse_call(id, NotStarted::EarlierUnknown);
            return true;
        }
        if let Some((with, result)) = done {
            self.write_call(id, |call| Event::CallJoined { call, with });
            self.end_call(id, CallEnding::Done, result);
            return true;
        }
        let Some(with) = running else { return false };
        self.write_call(id, |call| Event::CallJoined { call, with });
        if let Some(call) = self.calls.get_mut(id) {
            call.state = State::Joined { with };
        }
        true
    }

    /// Starts the call if there is time for it and nobody has to be asked.
    pub(super) fn try_to_start(&mut self, id: CallId, allowed: bool) {
        let now = self.now;
        let Some((tool, needs_approval, minimum)) =
            self.calls.get(id).and_then(|c| c.declaration.as_ref().map(|d| (c.tool.clone(), d.approval, d.minimum_budget)))
        else {
            return;
        };
        let Some(turn) = self.turns.running() else { return };
        let left = turn.budget.left(now);
        if left < minimum || left == Duration::ZERO {
            self.refuse_call(id, NotStarted::NoBudget);
        } else if needs_approval && !allowed {
            self.write_call(id, |call| Event::ApprovalAsked { call });
        } else {
            self.start_call(id, tool);
        }
    }

    fn start_call(&mut self, id: CallId, tool: String) {
        let (now, task) = (self.now, self.next_task());
        let Some(call) = self.calls.get_mut(id) else { return };
        let cap = call.declaration.as_ref().and_then(|d| d.cap).unwrap_or(self.policy.budget.tool);
        let Some(turn) = self.turns.running() else { return };
        let deadline = turn.budget.stage_deadline(now, Some(cap));
        turn.tree.start(task, Stage::Tool);
        call.state = State::Running { task, phase: Phase::Prepared, due: deadline, overdue: false };
        let spec = TaskSpec::Tool { turn: turn.id, call: id, tool, arguments: call.arguments.clone(), key: call.key.clone() };
        let (turn, generation) = (turn.id, turn.generation);
        self.write(Some(turn), Event::CallStarted { call: id, task });
        self.write(Some(turn), Event::TaskStarted { task, stage: Stage::Tool });
        self.out.push(Effect::StartTask { task, generation, deadline, spec });
    }

    // What a running tool says.

    pub(super) fn checkpoint(&mut self, task: TaskId, checkpoint: Checkpoint) {
        let Some(call) = self.calls.by_task(task) else {
            self.late_report(task, LateKind::Report);
            return;
        };
        let (id, declared) = (call.id, call.declaration.as_ref().is_some_and(|d| d.checkpoints.contains(&checkpoint)));
        self.seen(task);
        if declared {
            self.write_call(id, |call| Event::CallCheckpoint { call, checkpoint });
        } else {
            self.odd("a checkpoint that the tool does not declare");
        }
    }

    /// It is about to change something outside.
    pub(super) fn commit_asked(&mut self, task: TaskId) {
        let Some(call) = self.calls.by_task(task) else {
            self.late_report(task, LateKind::Report);
            self.out.push(Effect::RefuseCommit { task });
            return;
        };
        let (id, turn, key) = (call.id, call.turn, call.key.clone());
        let may = call.class() != Cancellability::ReadOnly && call.phase() == Some(Phase::Prepared);
        self.seen(task);
        if !may {
            self.odd("a commit that the tool may not make");
        }
        if !may || !self.is_at_work(task) {
            self.out.push(Effect::RefuseCommit { task });
            return;
        }
        let intent = self.write(Some(turn), Event::CommitIntent { call: id, key });
        if let Some(call) = self.calls.get_mut(id) {
            call.set_phase(Phase::CommitAsked { intent });
        }
    }

    /// Gives leave to those whose intent is kept.
    pub(super) fn grant_commits(&mut self) {
        let kept = |c: &&Call| matches!(c.phase(), Some(Phase::CommitAsked { intent }) if self.gate.has(intent));
        let granted: Vec<(CallId, TurnId, TaskId)> =
            self.calls.all().filter(kept).filter_map(|c| c.task().map(|task| (c.id, c.turn, task))).collect();
        for (id, turn, task) in granted {
            if let Some(call) = self.calls.get_mut(id) {
                call.set_phase(Phase::CommitSent);
                call.committed = true;
            }
            self.write(Some(turn), Event::CommitSent { call: id });
            self.out.push(Effect::LetCommit { task, call: id });
        }
    }

    /// It is done: that is so, whatever becomes of its turn.
    pub(super) fn tool_result(&mut self, task: TaskId, text: Pii<String>) {
        let Some(id) = self.calls.by_task(task).map(|c| c.id) else {
            self.late_report(task, LateKind::Result);
            return;
        };
        self.seen(task);
        self.end_call(id, CallEnding::Done, text);
    }

    /// The task of a call is over. A call that has its ending keeps it.
    pub(super) fn tool_over(&mut self, task: TaskId, ended: Ended, told: bool) {
        let Some(call) = self.calls.by_task(task) else { return };
        let overdue = matches!(call.state, State::Running { overdue: true, .. });
        let failed = |retry| CallEnding::Failed { failure: CallFailure::Tool { retry } };
        let stopped = if overdue {
            CallEnding::Failed { failure: CallFailure::Timeout }
        } else if told {
            CallEnding::Cancelled
        } else {
            failed(Retry::Never)
        };
        let taken_back = call.class() == Cancellability::RemoteCancel && told;
        let ending = match (ended, call.committed) {
            (Ended::Unknown, _) | (Ended::Finished | Ended::Aborted, true) => CallEnding::Unknown,
            (Ended::Stopped, true) if !taken_back => CallEnding::Unknown,
            (Ended::Stopped | Ended::Aborted, _) => stopped,
            (Ended::Finished, false) => failed(Retry::Never),
            (Ended::Failed(_), _) if overdue => stopped,
            (Ended::Failed(retry), _) => failed(retry),
        };
        self.end_call(call.id, ending, Pii::default());
    }

    // Endings.

    pub(super) fn refuse_call(&mut self, id: CallId, why: NotStarted) {
        self.end_call(id, CallEnding::NotStarted { why }, Pii::default());
    }

    /// The one place where a call ends.
    pub(super) fn end_call(&mut self, id: CallId, ending: CallEnding, result: Pii<String>) {
        let Some(call) = self.calls.get_mut(id).filter(|c| c.is_open()) else {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a call ends once");
            return;
        };
        call.state = State::Ended(ending);
        call.result = result.clone();
        let turn = call.turn;
        if call.needs_reconciling() {
            self.pending.insert(id);
        }
        self.history.result(id, ending, &result);
        let shown = (ending == CallEnding::Done).then(|| result.clone());
        self.write(Some(turn), Event::CallEnded { call: id, ending, result: shown });
        if let Some(turn) = self.turns.live.as_mut().filter(|t| t.id == turn) {
            turn.news = true;
        }
        let waits = |c: &&Call| c.state == State::Joined { with: id };
        let joined: Vec<CallId> = self.calls.all().filter(waits).map(|c| c.id).collect();
        for joined in joined {
            // It was never started itself; an effect that nobody knows of is asked after once.
            let ending = match ending {
                CallEnding::Unknown => CallEnding::NotStarted { why: NotStarted::EarlierUnknown },
                CallEnding::Done | CallEnding::Failed { .. } | CallEnding::Cancelled | CallEnding::NotStarted { .. } => ending,
            };
            self.end_call(joined, ending, result.clone());
        }
    }

    /// Calls of a turn of which nothing runs any more: what was not started never will be.
    pub(super) fn end_unstarted_calls(&mut self, turn: TurnId) {
        for id in self.calls.open_of(turn) {
            if self.calls.get(id).is_some_and(Call::is_open) {
                self.refuse_call(id, NotStarted::Cancelled);
            }
        }
    }

    // Stopping.

    /// Takes the calls that go on for the next turn out of a turn that is replaced.
    pub(super) fn keep_calls(&mut self, turn: &mut Turn, keep: Keep<'_>) {
        let kept_by = |c: &Call| match keep {
            Keep::Nothing => false,
            Keep::ByPolicy => c.declaration.as_ref().is_some_and(|d| d.on_barge_in == OnBargeIn::Keep),
            Keep::These(ids) => ids.contains(&c.id),
        };
        let runs = |c: &&Call| matches!(c.state, State::Running { overdue: false, .. });
        let stays: Vec<(CallId, TaskId)> = (self.calls.of_turn(turn.id).filter(runs))
            .filter(|c| kept_by(c))
            .filter_map(|c| c.task().map(|task| (c.id, task)))
            .collect();
        for (id, task) in stays {
            if !turn.tree.get(task).is_some_and(|b| b.at_work()) {
                continue;
            }
            let Some(branch) = turn.tree.take(task) else { continue };
            self.kept.push(Kept { call: id, from: turn.id, branch: Some(branch) });
            for call in self.calls.all_mut().filter(|c| c.id == id || c.state == State::Joined { with: id }) {
                // On its way it is no turn's, so that the end of the old one does not touch it.
                call.turn = TurnId::default();
                if call.id != id {
                    self.kept.push(Kept { call: call.id, from: turn.id, branch: None });
                }
            }
        }
    }

    /// The new turn takes over what was kept for it.
    pub(super) fn adopt_calls(&mut self, to: TurnId) {
        for Kept { call: id, from, branch } in std::mem::take(&mut self.kept) {
            let Some(call) = self.calls.get_mut(id) else { continue };
            call.turn = to;
            if let (Some(turn), Some(branch)) = (&mut self.turns.live, branch) {
                turn.tree.adopt(branch);
            }
            self.write(Some(to), Event::CallKept { call: id, from });
        }
    }

    /// Marks the open calls of a turn that stops, and takes back what has not been given leave yet.
    pub(super) fn hold_back_commits(&mut self, turn: &Turn) {
        let unwanted = matches!(turn.life, Life::CancelRequested { .. });
        for call in self.calls.all_mut().filter(|c| c.turn == turn.id && c.is_open()) {
            call.unwanted |= unwanted;
            if call.hold_back() {
                self.out.extend(call.task().map(|task| Effect::RefuseCommit { task }));
            }
        }
    }

    /// How a stop treats a branch, and how long it is waited for.
    pub(super) fn treatment(&self, branch: &Branch) -> (Manner, Duration) {
        let grace = self.policy.budget.grace;
        let Some(call) = self.calls.by_task(branch.task) else { return (Manner::Tell, grace) };
        match call.manner() {
            Manner::LeaveAtOnce => (Manner::LeaveAtOnce, Duration::ZERO),
            manner @ (Manner::Tell | Manner::Leave) => (manner, call.grace(grace)),
        }
    }

    /// The grace of a tool's task is over. Returns how it is recorded.
    pub(super) fn give_up_tool(&mut self, branch: Branch) -> TaskOutcome {
        let task = branch.task;
        let Some(call) = self.calls.by_task(task) else { return TaskOutcome::Aborted };
        let (id, overdue) = (call.id, matches!(call.state, State::Running { overdue: true, .. }));
        match (call.committed, call.manner()) {
            (true, Manner::Leave | Manner::LeaveAtOnce) => {
                self.left.insert(task, id);
                self.end_call(id, CallEnding::Unknown, Pii::default());
                TaskOutcome::Left
            }
            (true, Manner::Tell) => {
                self.end_call(id, CallEnding::Unknown, Pii::default());
                TaskOutcome::Aborted
            }
            (false, _) => {
                let timeout = CallEnding::Failed { failure: CallFailure::Timeout };
                self.end_call(id, if overdue { timeout } else { CallEnding::Cancelled }, Pii::default());
                TaskOutcome::Aborted
            }
        }
    }

    /// Some running calls of the live turn exceed their cap. (Those of a turn that is stopping have its grace.)
    pub(super) fn calls_overdue(&mut self) {
        let (now, usual) = (self.now, self.policy.budget.grace);
        let Some(live) = self.turns.live.as_ref().map(|t| t.id) else { return };
        let late = |c: &&Call| c.cap_due().is_some_and(|due| due <= now);
        let overdue: Vec<CallId> = self.calls.of_turn(live).filter(late).map(|c| c.id).collect();
        let mut fails = false;
        for id in overdue {
            let Some(call) = self.calls.get_mut(id) else { continue };
            let (Some(task), committed) = (call.task(), call.committed) else { continue };
            fails |= committed || call.declaration.as_ref().is_some_and(|d| d.on_timeout == OnTimeout::FailTurn);
            if call.hold_back() {
                self.out.push(Effect::RefuseCommit { task });
            }
            call.set_overdue();
            let grace = call.grace(usual);
            // One that has leave is treated by its class when the turn fails, below.
            if committed {
                continue;
            }
            let signal = self.turns.of_task(task).and_then(|turn| turn.tree.stop(task, StopReason::OutOfTime, now, grace));
            self.out.extend(signal);
        }
        if fails {
            self.fail_live(FailReason::ToolTimeout);
        }
    }

    fn seen(&mut self, task: TaskId) {
        if let Some(turn) = self.turns.of_task(task) {
            turn.tree.seen(task);
        }
    }

    fn is_at_work(&mut self, task: TaskId) -> bool {
        self.turns.of_task(task).is_some_and(|t| t.tree.get(task).is_some_and(|b| b.at_work()))
    }

    /// A record about a call, under the turn it belongs to.
    pub(super) fn write_call(&mut self, id: CallId, event: impl FnOnce(CallId) -> Event) {
        let turn = self.calls.get(id).map(|c| c.turn);
        self.write(turn, event(id));
    }
}
