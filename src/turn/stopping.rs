//! Third chapter of the machine: everything stops, and nothing pretends.
//!
//! A stop is always the same: the fence rises, the far end is told to clear, the tasks are told to stop, the records say so; and
//! when every branch has stopped, or its grace is over and it was aborted, the one terminal is written.

use std::time::Duration;

use crate::event::{CancelCause, Event, FailReason, Initiator, Stage, TaskOutcome, Terminal};
use crate::id::{RequestId, Seq, TaskId, TurnId};
use crate::time::Stamp;
use crate::turn::acting::Keep;
use crate::turn::inbox::Queued;
use crate::turn::life::Life;
use crate::turn::machine::{Ending, LinkState, Machine, own_request};
use crate::turn::memory::{Ending as Ended, Recent};
use crate::turn::pause::Reason;
use crate::turn::sabotage::Sabotage as Law;
use crate::turn::turns::Turn;
use crate::turn::{CancelAnswer, Effect, OnDisconnect, StopReason};

/// How long a closed session waits for its store to take the last records.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// A stop of the live turn because somebody asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cancel<'a> {
    pub(super) cause: CancelCause,
    pub(super) initiator: Initiator,
    pub(super) request: RequestId,
    /// A voice did, beginning then.
    pub(super) onset: Option<Stamp>,
    /// Calls that go on. Whoever keeps any accepts a turn for them in the same step.
    pub(super) keep: Keep<'a>,
    /// When stopping must be over, if sooner than the grace.
    pub(super) by: Option<Stamp>,
}

impl Machine {
    /// The answer, and the record it must wait for.
    pub(super) fn cancel(
        &mut self,
        request: RequestId,
        turn: TurnId,
        cause: CancelCause,
        initiator: Initiator,
        by: Option<Stamp>,
    ) -> (CancelAnswer, Option<Seq>) {
        if self.turns.live.as_ref().is_some_and(|t| t.id == turn) {
            let cancel = Cancel { cause, initiator, request, onset: None, keep: Keep::Nothing, by };
            return (CancelAnswer::Accepted, self.cancel_live(cancel));
        }
        if let Some(stopping) = self.turns.closing.iter().find(|t| t.id == turn) {
            // Stopping has begun, whoever asked first.
            let first = stopping.stopped_by;
            if self.breaks(Law::Idempotence) {
                return (
                    CancelAnswer::Accepted,
                    Some(self.write(Some(turn), Event::CancelRequested { cause, initiator, request })),
                );
            }
            return (CancelAnswer::Accepted, first);
        }
        match self.turns.endings.get(turn) {
            Some(Ended { terminal: Terminal::ReconcileRequired { calls }, seq }) => {
                (CancelAnswer::ReconcileRequired(calls.clone()), Some(*seq))
            }
            Some(ending) => (CancelAnswer::AlreadyTerminal(ending.terminal.clone()), Some(ending.seq)),
            None => (CancelAnswer::NoSuchTurn, None),
        }
    }

    /// Stops the live turn because somebody asked. Returns the record of the request.
    pub(super) fn cancel_live(&mut self, cancel: Cancel<'_>) -> Option<Seq> {
        let Cancel { cause, initiator, request, onset, keep, by } = cancel;
        let mut turn = self.turns.live.take()?;
        let was_waiting = turn.life == Life::Accepted;
        if turn.life.request_cancel(cause).is_err() {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a live turn can be cancelled");
        }
        turn.stop_by = by;
        self.keep_calls(&mut turn, keep);
        let from = self.fence_off(&mut turn, StopReason::Cancelled(cause), onset);
        self.write(Some(turn.id), Event::GenerationRaised { from });
        let seq = self.write(Some(turn.id), Event::CancelRequested { cause, initiator, request });
        turn.stopped_by = Some(seq);
        self.stopping(turn);
        // Whoever stops a turn that still listens, stops the listening; only newer input lets it go on.
        if was_waiting && cause != CancelCause::Superseded {
            self.drop_utterances(StopReason::Cancelled(cause));
        }
        Some(seq)
    }

    /// Stops the live turn because it cannot be carried out.
    pub(super) fn fail_live(&mut self, reason: FailReason) {
        let Some(mut turn) = self.turns.live.take() else { return };
        if turn.life.fail(reason).is_err() {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a live turn can fail");
        }
        if turn.generation.is_set() {
            let from = self.fence_off(&mut turn, StopReason::Failed(reason), None);
            self.write(Some(turn.id), Event::GenerationRaised { from });
        } else {
            // Nothing of it can sound yet; what was kept for it stops with it.
            self.stop_branches(&mut turn, StopReason::Failed(reason));
        }
        self.stopping(turn);
    }

    fn fence_off(&mut self, turn: &mut Turn, why: StopReason, onset: Option<Stamp>) -> crate::id::Generation {
        let from = self.raise();
        if turn.generation.is_set() {
            self.out.push(Effect::Clear { stale: turn.generation });
            self.tails.cut(turn.generation, turn.id, self.now, onset);
        }
        self.stop_branches(turn, why);
        from
    }

    fn stopping(&mut self, turn: Turn) {
        if turn.generation.is_set() {
            self.write(Some(turn.id), Event::Cleared { stale: turn.generation });
        }
        // What was heard so far is what the next request shows; late reports correct it until the terminal.
        self.history.words(turn.id, turn.reply.by_request(&turn.reply.heard().heard), true);
        self.turns.closing.push(turn);
        // What is kept of it belongs to the next turn before this one ends.
        if self.kept.is_empty() {
            self.end_stopped_turns();
        }
    }

    /// A turn that was stopping and of which nothing runs any more ends.
    pub(super) fn end_stopped_turns(&mut self) {
        let mut i = 0;
        while let Some(turn) = self.turns.closing.get(i) {
            if turn.tree.all_stopped() {
                let turn = self.turns.closing.remove(i);
                self.end(turn);
            } else {
                i += 1;
            }
        }
    }

    /// The one place where a turn ends.
    pub(super) fn end(&mut self, mut turn: Turn) {
        self.end_unstarted_calls(turn.id);
        for Queued { input, text } in turn.inbox.take() {
            self.write(Some(turn.id), Event::InputReturned { input, text });
        }
        let open = self.calls.of_turn(turn.id).filter(|c| c.needs_reconciling()).map(|c| c.id).collect();
        let Ok(terminal) = turn.life.end(open) else {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a turn ends once");
            return;
        };
        let complete = terminal == Terminal::Completed;
        let whole = turn.stopped_by.is_none() && !matches!(terminal, Terminal::Failed { .. }) && turn.is_played_out();
        let text = if whole { turn.reply.all_heard() } else { turn.reply.heard() };
        self.history.words(turn.id, turn.reply.by_request(&text.heard), !whole);
        for branch in turn.tree.all() {
            self.retire(branch.task, turn.generation);
        }
        let recent = Recent {
            turn: turn.id,
            parent: turn.parent,
            terminal: terminal.clone(),
            input: turn.input,
            heard: text.heard.into(),
            unheard: text.unheard.into(),
        };
        let event =
            Event::TurnEnded { terminal, heard: recent.heard.clone(), unheard: recent.unheard.clone(), timing: text.timing };
        if self.breaks(Law::TerminalGuard) && !complete {
            let (heard, unheard) = (recent.heard.clone(), recent.unheard.clone());
            self.write(Some(turn.id), Event::TurnEnded { terminal: Terminal::Completed, heard, unheard, timing: text.timing });
        }
        let seq = self.write(Some(turn.id), event);
        self.turns.endings.put(recent, seq);
    }

    /// The grace of some tasks is over.
    pub(super) fn abort_overdue(&mut self) {
        let now = self.now;
        let mut aborted: Vec<_> = self.ears.abort_due(now).into_iter().map(|b| (None, b)).collect();
        self.ears.prune();
        aborted.extend(self.errands.abort_due(now).into_iter().map(|b| (None, b)));
        for turn in self.turns.live.iter_mut().chain(&mut self.turns.closing) {
            aborted.extend(turn.tree.abort_due(now).into_iter().map(|b| (Some(turn.id), b)));
        }
        for (turn, branch) in aborted {
            let (task, stage) = (branch.task, branch.stage);
            if stage == Stage::Reconcile {
                self.abort(task, stage);
                self.errand_over(task, TaskOutcome::Aborted);
                continue;
            }
            let outcome = if stage == Stage::Tool { self.give_up_tool(branch) } else { TaskOutcome::Aborted };
            match (stage, outcome) {
                // A sink that never said that it is silent is not the driver's task: there is nobody to abort.
                (Stage::Play, _) => {}
                (_, TaskOutcome::Left) => drop(self.zombies.insert(task, (stage, now))),
                (_, _) => self.abort(task, stage),
            }
            if turn.is_none() {
                self.retire(task, self.gate.generation());
                if let Some(u) = self.utterances.heard_by(task) {
                    u.final_word = true;
                }
            }
            self.write(turn, Event::TaskEnded { task, stage, outcome });
        }
    }

    fn abort(&mut self, task: TaskId, stage: Stage) {
        self.out.push(Effect::AbortTask { task });
        self.zombies.insert(task, (stage, self.now));
    }

    pub(super) fn out_of_time(&mut self) {
        if let Some(stage) = self.turns.live.as_ref().map(Turn::working_stage) {
            self.fail_live(FailReason::DeadlineExceeded { stage });
        }
    }

    // The link.

    pub(super) fn link_up(&mut self) {
        if self.link == LinkState::Up {
            return;
        }
        self.link = LinkState::Up;
        self.write(None, Event::LinkUp);
        if let Some(effect) = self.pause.release(Reason::Link) {
            self.out.push(effect);
        }
        if let Some(turn) = &mut self.turns.live {
            turn.budget.moved(self.now);
        }
    }

    pub(super) fn link_lost(&mut self) {
        match self.link {
            LinkState::Lost { .. } => return,
            LinkState::Awaited | LinkState::Up => self.link = LinkState::Lost { at: self.now },
        }
        self.write(None, Event::LinkLost);
        // The key cannot come up over a link that is gone.
        if let Ok(verdict) = self.floor.release(self.now) {
            self.obey(verdict);
        }
        match self.policy.on_disconnect {
            OnDisconnect::GoOn => {}
            OnDisconnect::Hold(_) => self.hold_for_link(),
            OnDisconnect::CancelNow => self.cancel_for_link(),
        }
    }

    /// Holds the running answer while nobody is there to hear it, if that is the policy.
    pub(super) fn hold_for_link(&mut self) {
        let lost = matches!(self.link, LinkState::Lost { .. });
        if lost && matches!(self.policy.on_disconnect, OnDisconnect::Hold(_)) && self.turns.running().is_some() {
            let effect = self.pause.hold(Reason::Link);
            self.out.extend(effect);
        }
    }

    /// When the live turn has waited for a link long enough.
    pub(super) fn disconnect_due(&self, turn: &Turn) -> Option<Stamp> {
        match (self.link, self.policy.on_disconnect) {
            (LinkState::Lost { at }, OnDisconnect::Hold(patience)) => Some(at.max(turn.accepted_at) + patience),
            (LinkState::Lost { .. }, OnDisconnect::GoOn | OnDisconnect::CancelNow) => None,
            (LinkState::Awaited | LinkState::Up, _) => None,
        }
    }

    pub(super) fn away_too_long(&mut self) {
        self.cancel_for_link();
    }

    fn cancel_for_link(&mut self) {
        if let Some((id, generation)) = self.turns.live.as_ref().map(|t| (t.id, self.gate.generation())) {
            let request = own_request(Initiator::Engine, CancelCause::Transport, id, generation);
            let (cause, initiator) = (CancelCause::Transport, Initiator::Engine);
            self.cancel_live(Cancel { cause, initiator, request, onset: None, keep: Keep::Nothing, by: None });
        }
    }

    // The end of the session.

    pub(super) fn close(&mut self, request: RequestId, cause: CancelCause) {
        if self.is_closing() {
            return;
        }
        self.draining = true;
        self.ending = Ending::Stopping;
        let initiator = Initiator::Application;
        self.cancel_live(Cancel { cause, initiator, request, onset: None, keep: Keep::Nothing, by: None });
        self.drop_utterances(StopReason::Cancelled(cause));
        let grace = self.policy.budget.grace;
        let (ears, errands) = (self.ears.stop_all(self.now, |_| grace), self.errands.stop_all(self.now, |_| grace));
        self.out.extend(ears.into_iter().chain(errands).filter_map(|branch| branch.signal(StopReason::Cancelled(cause))));
    }

    /// Everything has stopped: the last record.
    pub(super) fn end_session_if_stopped(&mut self) {
        match self.ending {
            Ending::Open | Ending::Finished => {}
            Ending::Stopping => {
                let turns = self.turns.live.is_none() && self.turns.closing.is_empty();
                if turns && self.ears.all_stopped() && self.errands.all_stopped() {
                    // Those that were left to themselves have had their grace; what became of their calls stays open in the log.
                    for task in std::mem::take(&mut self.left).into_keys() {
                        self.out.push(Effect::AbortTask { task });
                    }
                    self.write(None, Event::SessionEnded);
                    self.ending = Ending::Written { at: self.now };
                    self.finish_if_stored();
                }
            }
            Ending::Written { .. } => self.finish_if_stored(),
        }
    }

    fn finish_if_stored(&mut self) {
        if self.gate.waiting() == 0 {
            self.finish();
        }
    }

    pub(super) fn finish(&mut self) {
        self.ending = Ending::Finished;
        self.out.push(Effect::Finish);
    }

    pub(super) fn closing_due(&self) -> Option<Stamp> {
        match self.ending {
            Ending::Written { at } => Some(at + CLOSE_WAIT),
            Ending::Open | Ending::Stopping | Ending::Finished => None,
        }
    }
}
