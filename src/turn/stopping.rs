//! Third chapter of the machine: everything stops, and nothing pretends.
//!
//! A stop is always the same: the fence rises, the far end is told to clear, the tasks are told to stop, the records say so; and
//! when every branch has stopped, or its grace is over and it was aborted, the one terminal is written.

use std::time::Duration;

use crate::event::{CancelCause, Event, FailReason, Initiator, Stage, TaskOutcome, Terminal};
use crate::id::{RequestId, Seq, TurnId};
use crate::time::Stamp;
use crate::turn::life::Life;
use crate::turn::machine::{Ending, LinkState, Machine, own_request};
use crate::turn::memory::Recent;
use crate::turn::pause::Reason;
use crate::turn::turns::Turn;
use crate::turn::{CancelAnswer, Effect, OnDisconnect, StopReason};

/// How long a closed session waits for its store to take the last records.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

impl Machine {
    /// The answer, and the record it must wait for.
    pub(super) fn cancel(
        &mut self,
        request: RequestId,
        turn: TurnId,
        cause: CancelCause,
        initiator: Initiator,
    ) -> (CancelAnswer, Option<Seq>) {
        if self.turns.live.as_ref().is_some_and(|t| t.id == turn) {
            return (CancelAnswer::Accepted, self.cancel_live(cause, initiator, request, None));
        }
        if let Some(stopping) = self.turns.closing.iter().find(|t| t.id == turn) {
            // Stopping has begun, whoever asked first.
            return (CancelAnswer::Accepted, stopping.stopped_by);
        }
        match self.turns.endings.get(turn) {
            Some(ending) => (CancelAnswer::AlreadyTerminal(ending.terminal.clone()), Some(ending.seq)),
            None => (CancelAnswer::NoSuchTurn, None),
        }
    }

    /// Stops the live turn because somebody asked. `onset`: a voice did, beginning then. Returns the record of the request.
    pub(super) fn cancel_live(
        &mut self,
        cause: CancelCause,
        initiator: Initiator,
        request: RequestId,
        onset: Option<Stamp>,
    ) -> Option<Seq> {
        let mut turn = self.turns.live.take()?;
        let was_waiting = turn.life == Life::Accepted;
        if turn.life.request_cancel(cause, self.now + self.policy.budget.grace).is_err() {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a live turn can be cancelled");
        }
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
        if turn.life.fail(reason, self.now + self.policy.budget.grace).is_err() {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a live turn can fail");
        }
        if turn.generation.is_set() {
            let from = self.fence_off(&mut turn, StopReason::Failed(reason), None);
            self.write(Some(turn.id), Event::GenerationRaised { from });
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
        self.history.assistant(turn.id, &turn.reply.heard().heard, true);
        self.turns.closing.push(turn);
        self.end_stopped_turns();
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
        let Ok(terminal) = turn.life.end() else {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "a turn ends once");
            return;
        };
        let complete = terminal == Terminal::Completed;
        let text = if complete { turn.reply.all_heard() } else { turn.reply.heard() };
        self.history.assistant(turn.id, &text.heard, !complete);
        for stage in [Stage::Generate, Stage::Synthesize, Stage::Play] {
            if let Some(branch) = turn.tree.of(stage) {
                self.retire(branch.task, turn.generation);
            }
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
        let seq = self.write(Some(turn.id), event);
        self.turns.endings.put(recent, seq);
    }

    /// The grace of some tasks is over.
    pub(super) fn abort_overdue(&mut self) {
        let now = self.now;
        let mut aborted: Vec<_> = self.ears.abort_due(now).into_iter().map(|b| (None, b)).collect();
        self.ears.prune();
        for turn in &mut self.turns.closing {
            aborted.extend(turn.tree.abort_due(now).into_iter().map(|b| (Some(turn.id), b)));
        }
        for (turn, branch) in aborted {
            let (task, stage) = (branch.task, branch.stage);
            // A sink that never said that it is silent is not the driver's task: there is nobody to abort.
            if stage != Stage::Play {
                self.out.push(Effect::AbortTask { task });
                self.zombies.insert(task, ());
            }
            if turn.is_none() {
                self.retire(task, self.gate.generation());
                if let Some(u) = self.utterances.heard_by(task) {
                    u.final_word = true;
                }
            }
            self.write(turn, Event::TaskEnded { task, stage, outcome: TaskOutcome::Aborted });
        }
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
            self.cancel_live(CancelCause::Transport, Initiator::Engine, request, None);
        }
    }

    // The end of the session.

    pub(super) fn close(&mut self, request: RequestId, cause: CancelCause) {
        if self.is_closing() {
            return;
        }
        self.draining = true;
        self.ending = Ending::Stopping;
        self.cancel_live(cause, Initiator::Application, request, None);
        self.drop_utterances(StopReason::Cancelled(cause));
        let grace_until = self.now + self.policy.budget.grace;
        for ear in self.ears.stop_all(self.now, self.policy.budget.grace) {
            self.out.push(Effect::StopTask { task: ear.task, why: StopReason::Cancelled(cause), grace_until });
        }
    }

    /// Everything has stopped: the last record.
    pub(super) fn end_session_if_stopped(&mut self) {
        match self.ending {
            Ending::Open | Ending::Finished => {}
            Ending::Stopping => {
                let stopped = self.turns.live.is_none() && self.turns.closing.is_empty() && self.ears.all_stopped();
                if stopped {
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
