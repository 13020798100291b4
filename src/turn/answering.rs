//! Second chapter of the machine: from words to sound, and to a completed turn.

use crate::event::{CancelCause, Event, FailReason, Initiator, LateKind, Pii, Retry, Stage, TaskOutcome, Timing};
use crate::id::{Generation, RequestId, TaskId, TurnId};
use crate::time::{SamplePos, Stamp};
use crate::turn::budget::Budget;
use crate::turn::life::Life;
use crate::turn::machine::Machine;
use crate::turn::pause::Reason;
use crate::turn::reply::Reply;
use crate::turn::tail::Silence;
use crate::turn::tree::Tree;
use crate::turn::turns::Turn;
use crate::turn::{Effect, Ended, Playout, QuietBy, Refusal, Report, SayAnswer, StopReason, TaskSpec};

impl Machine {
    /// Typed text: newer than anything being said or answered.
    pub(super) fn say(&mut self, request: RequestId, text: Pii<String>) -> SayAnswer {
        if self.draining || self.is_closing() {
            return SayAnswer::NotAccepted { refusal: Refusal::Draining, text };
        }
        if text.reveal().trim().is_empty() {
            return SayAnswer::NotAccepted { refusal: Refusal::Empty, text };
        }
        let verdict = self.floor.yield_to_text(self.now);
        self.obey(verdict);
        self.collect_words();
        if let Some(words) = self.utterances.set_aside() {
            self.history.user(None, &words);
        }
        let parent = self.turns.live.as_ref().map(|t| t.id);
        self.cancel_live(CancelCause::Superseded, Initiator::Client, request, None);
        let turn = self.accept(parent);
        self.start(text);
        SayAnswer::Started(turn)
    }

    /// Gives a turn its place. Nothing is live when this is called.
    pub(super) fn accept(&mut self, parent: Option<TurnId>) -> TurnId {
        let id = self.turns.last.next();
        self.turns.last = id;
        let budget = Budget::new(self.now, &self.policy.budget);
        let deadline = budget.deadline();
        self.turns.live = Some(Turn {
            id,
            parent,
            life: Life::Accepted,
            accepted_at: self.now,
            generation: Generation::UNSET,
            input: None,
            tree: Tree::default(),
            budget,
            reply: Reply::default(),
            stopped_by: None,
            ran_dry: false,
            queued_at: self.now,
        });
        self.write(Some(id), Event::TurnAccepted { parent, deadline });
        id
    }

    /// The input of the live turn is complete: the model is asked, under a generation of its own.
    pub(super) fn start(&mut self, input: Pii<String>) {
        if !self.gate.claim() {
            let from = self.raise();
            self.gate.claim();
            self.write_turn(Event::GenerationRaised { from });
        }
        let (now, generation) = (self.now, self.gate.generation());
        let Some(turn) = &mut self.turns.live else { return };
        if turn.life.run().is_err() {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "only an accepted turn is started");
            return;
        }
        turn.generation = generation;
        turn.input = Some(input.clone());
        let (id, deadline) = (turn.id, turn.budget.stage_deadline(now, None));
        self.history.user(Some(id), input.reveal());
        self.write(Some(id), Event::TurnStarted { input });
        if deadline <= now {
            self.fail_live(FailReason::DeadlineExceeded { stage: Stage::Generate });
            return;
        }
        self.hold_for_link();
        let context = self.history.context();
        if let Some(turn) = &mut self.turns.live {
            turn.budget.asked(now);
        }
        self.start_task(Stage::Generate, TaskSpec::Generate { turn: id, context });
    }

    /// Starts a task of the running turn.
    fn start_task(&mut self, stage: Stage, spec: TaskSpec) -> Option<TaskId> {
        let task = self.next_task();
        let now = self.now;
        let turn = self.turns.running()?;
        turn.tree.start(task, stage);
        let (id, generation, deadline) = (turn.id, turn.generation, turn.budget.stage_deadline(now, None));
        self.write(Some(id), Event::TaskStarted { task, stage });
        self.out.push(Effect::StartTask { task, generation, deadline, spec });
        Some(task)
    }

    pub(super) fn report(&mut self, task: TaskId, report: Report) {
        match report {
            Report::Transcript { text, is_final } => self.transcript(task, text, is_final),
            Report::Text { delta } => self.text(task, delta),
            Report::Audio { samples, chars, timing } => self.audio(task, samples, chars, timing),
            Report::Ended(ended) => self.ended(task, ended),
        }
    }

    /// The running turn, if `task` is its task of this stage and still at work.
    fn working(&mut self, task: TaskId, stage: Stage) -> Option<&mut Turn> {
        self.turns.running().filter(|t| t.tree.get(task).is_some_and(|b| b.stage == stage && b.at_work()))
    }

    fn text(&mut self, task: TaskId, delta: Pii<String>) {
        let now = self.now;
        let Some(turn) = self.working(task, Stage::Generate) else {
            self.late_report(task, LateKind::Text);
            return;
        };
        turn.tree.seen(task);
        turn.budget.text(now);
        turn.reply.say(delta.reveal());
        let (id, more, speaking) = (turn.id, turn.reply.feed(), turn.tree.of(Stage::Synthesize));
        self.write(Some(id), Event::ReplyText { delta });
        let Some(more) = more else { return };
        let speaker = match speaking {
            Some(branch) => branch.at_work().then_some(branch.task),
            None => self.start_task(Stage::Synthesize, TaskSpec::Synthesize { turn: id }),
        };
        let Some(speaker) = speaker else {
            // It ended before the text did, so the rest would never be heard.
            self.fail_live(FailReason::Provider { stage: Stage::Synthesize, retry: Retry::Now });
            return;
        };
        if let Some(turn) = self.turns.running() {
            turn.budget.fed(now);
        }
        self.out.push(Effect::Feed { task: speaker, text: more.into() });
    }

    fn audio(&mut self, task: TaskId, samples: u64, chars: usize, timing: Timing) {
        let now = self.now;
        let Some(turn) = self.working(task, Stage::Synthesize) else {
            self.late_report(task, LateKind::Audio);
            return;
        };
        turn.tree.seen(task);
        let was_empty = turn.is_played_out();
        turn.reply.queue(samples, chars, timing);
        turn.queued_at = now;
        let text_done = turn.tree.of(Stage::Generate).is_none_or(|b| !b.at_work());
        let owes = turn.reply.owes_audio() || text_done;
        turn.budget.audio(now, owes, was_empty);
        let (id, plays) = (turn.id, turn.tree.of(Stage::Play).is_some());
        self.out.push(Effect::Play { task });
        if !plays {
            // Playing is no task of the driver's: it ends with the last sample, or with the silence after a cut.
            let play = self.next_task();
            if let Some(turn) = self.turns.running() {
                turn.tree.start(play, Stage::Play);
            }
            self.write(Some(id), Event::TaskStarted { task: play, stage: Stage::Play });
        }
    }

    fn ended(&mut self, task: TaskId, ended: Ended) {
        let (outcome, failed) = match ended {
            Ended::Finished => (TaskOutcome::Finished, None),
            Ended::Stopped => (TaskOutcome::Stopped, None),
            Ended::Aborted => (TaskOutcome::Aborted, None),
            Ended::Failed(retry) => (TaskOutcome::Failed, Some(retry)),
        };
        if self.zombies.remove(&task).is_some() {
            return;
        }
        if self.ears.get(task).is_some() {
            self.listened(task, outcome, failed);
            return;
        }
        let Some(branch) =
            self.turns.of_task(task).filter(|t| t.tree.of(Stage::Play).is_none_or(|b| b.task != task)).and_then(|t| {
                let id = t.id;
                t.tree.ended(task, outcome).map(|branch| (id, branch.stage))
            })
        else {
            self.late_report(task, LateKind::Report);
            return;
        };
        let (id, stage) = branch;
        self.write(Some(id), Event::TaskEnded { task, stage, outcome });
        // A turn that is stopping waits for nothing but the end; see `end_stopped_turns`.
        if self.turns.running().is_none_or(|t| t.id != id) {
            return;
        }
        match outcome {
            TaskOutcome::Finished => self.stage_finished(stage),
            // Nobody told it to: whoever stopped it, the answer is not whole.
            TaskOutcome::Stopped | TaskOutcome::Aborted | TaskOutcome::Failed => {
                self.fail_live(FailReason::Provider { stage, retry: failed.unwrap_or(Retry::Now) });
            }
        }
    }

    fn stage_finished(&mut self, stage: Stage) {
        let now = self.now;
        let Some(turn) = self.turns.running() else { return };
        if stage == Stage::Synthesize {
            turn.budget.audio_done();
            turn.budget.moved(now);
            if turn.reply.is_mute() {
                // Words without a sound are no answer, and must not pass for one.
                self.fail_live(FailReason::Provider { stage, retry: Retry::Now });
            }
            return;
        }
        turn.budget.text_done();
        let (id, speaker) = (turn.id, turn.tree.of(Stage::Synthesize).filter(|b| b.at_work()));
        if let Some(speaker) = speaker {
            turn.budget.fed(now);
            self.out.push(Effect::EndFeed { task: speaker.task });
        }
        self.write(Some(id), Event::ReplyDone);
    }

    // Playing.

    pub(super) fn playout(&mut self, playout: Playout) {
        let generation = match playout {
            Playout::Progress { generation, .. } | Playout::Quiet { generation, .. } | Playout::Underrun { generation, .. } => {
                generation
            }
        };
        if !generation.is_set() {
            // The silence before the first reply.
            return;
        }
        if generation > self.gate.generation() {
            self.odd("playout of a generation that never was");
            return;
        }
        match playout {
            Playout::Progress { position, .. } => self.played(generation, position),
            Playout::Quiet { by, last, seen_at, handed_at, sounded_at, measured, .. } => {
                self.played(generation, last);
                let silence = Silence { last, seen_at, handed_at, sounded_at, measured };
                match by {
                    QuietBy::Hold => self.tails.hold_silent(generation, silence),
                    QuietBy::Cut => self.silenced(generation, silence),
                }
            }
            Playout::Underrun { at, gap_us, .. } => self.ran_dry(generation, at, gap_us),
        }
    }

    /// Sound of `generation` got as far as `position`. It counts until its turn has its terminal.
    fn played(&mut self, generation: Generation, position: SamplePos) {
        let now = self.now;
        let Some(turn) = self.turns.of_generation(generation) else { return };
        let first = !turn.reply.sounded();
        if !turn.reply.played(position) {
            return;
        }
        turn.budget.moved(now);
        if let Some(play) = turn.tree.of(Stage::Play) {
            turn.tree.seen(play.task);
        }
        let id = turn.id;
        if !turn.is_running() {
            let heard = turn.reply.heard();
            self.history.assistant(id, &heard.heard, true);
        } else if first {
            self.write(Some(id), Event::AudioStarted);
        }
    }

    /// A cut took effect.
    fn silenced(&mut self, generation: Generation, silence: Silence) {
        let Some((id, last_sample, tail)) = self.tails.cut_silent(generation, silence) else { return };
        self.write(Some(id), Event::Silenced { stale: generation, last_sample, tail });
        let Some(turn) = self.turns.of_generation(generation) else { return };
        let Some(play) = turn.tree.of(Stage::Play) else { return };
        if turn.tree.ended(play.task, TaskOutcome::Stopped).is_some() {
            self.write(Some(id), Event::TaskEnded { task: play.task, stage: Stage::Play, outcome: TaskOutcome::Stopped });
        }
    }

    fn ran_dry(&mut self, generation: Generation, at: Stamp, gap_us: u64) {
        let Some(turn) = self.turns.running().filter(|t| t.generation == generation) else { return };
        if turn.audio_complete() && at >= turn.queued_at {
            turn.ran_dry = true;
        } else if turn.reply.sounded() {
            self.write_turn(Event::Underrun { gap_us });
        }
    }

    /// The running turn is complete when the model and the synthesizer are done and the last sample was played.
    pub(super) fn complete_if_played(&mut self) {
        let complete = |t: &Turn| {
            let over = |stage| t.tree.of(stage).is_none_or(|b| !b.at_work());
            t.is_running() && over(Stage::Generate) && over(Stage::Synthesize) && t.is_played_out()
        };
        if !self.turns.live.as_ref().is_some_and(complete) {
            return;
        }
        let Some(mut turn) = self.turns.live.take() else { return };
        for reason in [Reason::Voice, Reason::Link] {
            let effect = self.pause.release(reason);
            self.out.extend(effect);
        }
        self.floor.agent_gone();
        self.tails.resumed();
        if let Some(play) = turn.tree.of(Stage::Play) {
            turn.tree.ended(play.task, TaskOutcome::Finished);
            self.write(Some(turn.id), Event::TaskEnded { task: play.task, stage: Stage::Play, outcome: TaskOutcome::Finished });
        }
        self.end(turn);
    }

    /// Why a task of a failing or cancelled turn is stopped; playing is not the driver's to stop.
    pub(super) fn stop_branches(&mut self, turn: &mut Turn, why: StopReason) {
        let grace_until = self.now + self.policy.budget.grace;
        for branch in turn.tree.stop_all(self.now, self.policy.budget.grace) {
            if branch.stage != Stage::Play {
                self.out.push(Effect::StopTask { task: branch.task, why, grace_until });
            }
        }
    }
}
