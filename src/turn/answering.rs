//! Second chapter of the machine: from words to sound, and to a completed turn.

use crate::event::{Event, FailReason, LateKind, Pii, Retry, Stage, TaskOutcome, Timing};
use crate::id::{Generation, RequestId, TaskId, TurnId};
use crate::time::{SamplePos, Stamp};
use crate::turn::budget::Budget;
use crate::turn::calls::Manner;
use crate::turn::inbox::Inbox;
use crate::turn::life::Life;
use crate::turn::machine::Machine;
use crate::turn::pause::Reason;
use crate::turn::reply::Reply;
use crate::turn::tail::Silence;
use crate::turn::tree::{Branch, Tree};
use crate::turn::turns::{Kind, Turn};
use crate::turn::{Effect, Ended, Playout, QuietBy, Report, SayAnswer, StopReason, TaskSpec};

impl Machine {
    /// Typed text: newer than anything being said or answered.
    pub(super) fn say(&mut self, request: RequestId, text: Pii<String>) -> SayAnswer {
        match self.refusal(&text) {
            Some(refusal) => SayAnswer::NotAccepted { refusal, text },
            None => SayAnswer::Started(self.start_by_text(request, text)),
        }
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
            kind: Kind::Conversation,
            requests: 0,
            calls: 0,
            news: false,
            inbox: Inbox::default(),
            found: None,
            constraints: None,
            text_over: false,
            tree: Tree::default(),
            budget,
            reply: Reply::default(),
            stopped_by: None,
            stop_by: None,
            ran_dry: false,
            queued_at: self.now,
        });
        self.write(Some(id), Event::TurnAccepted { parent, deadline });
        self.adopt_calls(id);
        id
    }

    /// The input of the live turn is complete: something is looked up, or the model is asked (at the safe point, which this is).
    /// Empty input: nothing was made out, and the turn only takes over what was kept for it.
    pub(super) fn start(&mut self, input: Pii<String>) {
        if !self.begin_running(Some(input.clone())) {
            return;
        }
        let Some(turn) = &self.turns.live else { return };
        let (id, now) = (turn.id, self.now);
        if input.reveal().is_empty() {
            self.history.announcement(id);
        } else {
            self.history.user(Some(id), input.reveal());
        }
        self.write(Some(id), Event::TurnStarted { input });
        self.hold_for_link();
        if self.retrieves {
            let context = self.history.context();
            let Some(turn) = &mut self.turns.live else { return };
            let deadline = turn.budget.looks_up(now);
            self.start_task(Stage::Retrieve, TaskSpec::Retrieve { turn: id, context }, deadline);
        }
        self.go_on();
    }

    /// The live turn runs from here on, under a generation of its own.
    pub(super) fn begin_running(&mut self, input: Option<Pii<String>>) -> bool {
        if !self.gate.claim() {
            let from = self.raise();
            self.gate.claim();
            self.write_turn(Event::GenerationRaised { from });
        }
        let generation = self.gate.generation();
        let Some(turn) = &mut self.turns.live else { return false };
        if turn.life.run().is_err() {
            self.counted.terminal_conflicts += 1;
            debug_assert!(false, "only an accepted turn is started");
            return false;
        }
        turn.generation = generation;
        turn.input = input;
        true
    }

    /// Starts a task of the running turn, which fails when there is no time for it.
    pub(super) fn start_task(&mut self, stage: Stage, spec: TaskSpec, deadline: Stamp) -> Option<TaskId> {
        if deadline <= self.now {
            self.fail_live(FailReason::DeadlineExceeded { stage });
            return None;
        }
        let task = self.next_task();
        let turn = self.turns.running()?;
        turn.tree.start(task, stage);
        let (id, generation) = (turn.id, turn.generation);
        self.write(Some(id), Event::TaskStarted { task, stage });
        self.out.push(Effect::StartTask { task, generation, deadline, spec });
        Some(task)
    }

    pub(super) fn report(&mut self, task: TaskId, report: Report) {
        if let Some(call) = self.left.get(&task).copied() {
            self.late_answer(task, call, report);
            return;
        }
        match report {
            Report::Transcript { text, is_final } => self.transcript(task, text, is_final),
            Report::Text { delta } => self.text(task, delta),
            Report::Call { tool, arguments, key } => self.call_requested(task, tool, arguments, key),
            Report::Found { text } => self.found(task, text),
            Report::Checkpoint { checkpoint } => self.checkpoint(task, checkpoint),
            Report::CommitAsked => self.commit_asked(task),
            Report::Result { text } => self.tool_result(task, text),
            Report::Probed { outside } => self.probed(task, outside),
            Report::Audio { samples, chars, timing } => self.audio(task, samples, chars, timing),
            Report::Ended(ended) => self.ended(task, ended),
        }
    }

    /// The running turn, if `task` is its task of this stage and still at work.
    pub(super) fn working(&mut self, task: TaskId, stage: Stage) -> Option<&mut Turn> {
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
        let joint = turn.reply.joint(delta.reveal());
        let delta = if joint.is_empty() { delta } else { format!("{joint}{}", delta.reveal()).into() };
        turn.reply.say(delta.reveal());
        let id = turn.id;
        self.write(Some(id), Event::ReplyText { delta });
        self.speak();
    }

    /// A fixed text, complete from the start.
    pub(super) fn say_all(&mut self, text: Pii<String>) {
        let Some(turn) = self.turns.running() else { return };
        turn.reply.next_request(1);
        turn.reply.say(text.reveal());
        let id = turn.id;
        self.write(Some(id), Event::ReplyText { delta: text });
        self.write(Some(id), Event::ReplyDone);
        self.speak();
    }

    /// What was looked up for the model.
    fn found(&mut self, task: TaskId, text: Pii<String>) {
        let Some(turn) = self.working(task, Stage::Retrieve).filter(|t| t.found.is_none()) else {
            self.late_report(task, LateKind::Result);
            return;
        };
        turn.tree.seen(task);
        turn.found = Some(text);
    }

    /// The lookup has had its time: it is not waited for.
    pub(super) fn lookup_overdue(&mut self) {
        let (now, grace) = (self.now, self.policy.budget.grace);
        let Some(turn) = self.turns.running() else { return };
        turn.budget.looked_up();
        let Some(task) = turn.tree.of(Stage::Retrieve).map(|b| b.task) else { return };
        let signal = turn.tree.stop(task, StopReason::OutOfTime, now, grace);
        self.out.extend(signal);
        self.go_on();
    }

    /// Gives the synthesizer the words it may have. Each request to the model has its own, one after the other.
    fn speak(&mut self) {
        let now = self.now;
        let Some(turn) = self.turns.running() else { return };
        let id = turn.id;
        let last = turn.tree.of(Stage::Synthesize);
        let speaker = match last {
            Some(branch) if branch.at_work() => {
                if turn.text_over {
                    return;
                }
                branch.task
            }
            _ if !turn.reply.has_unfed_words() => return,
            Some(_) if !turn.text_over => {
                // It ended before the text did, so the rest would never be heard.
                self.fail_live(FailReason::Provider { stage: Stage::Synthesize, retry: Retry::Now });
                return;
            }
            Some(_) | None => {
                turn.text_over = false;
                turn.reply.speak_on();
                let deadline = turn.budget.stage_deadline(now, None);
                let Some(task) = self.start_task(Stage::Synthesize, TaskSpec::Synthesize { turn: id }, deadline) else { return };
                task
            }
        };
        let Some(turn) = self.turns.running() else { return };
        let more = turn.reply.feed();
        let complete = !turn.works_on(Stage::Generate);
        if more.is_some() || complete {
            turn.budget.fed(now);
        }
        turn.text_over |= complete;
        if let Some(text) = more {
            self.out.push(Effect::Feed { task: speaker, text: text.into() });
        }
        if complete {
            self.out.push(Effect::EndFeed { task: speaker });
        }
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
        turn.ran_dry = false;
        let owes = turn.reply.owes_audio() || turn.text_over;
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
            Ended::Unknown => (TaskOutcome::Failed, None),
        };
        if self.zombies.remove(&task).is_some() {
            return;
        }
        if self.ears.get(task).is_some() {
            self.listened(task, outcome, failed);
            return;
        }
        if self.errands.get(task).is_some() {
            self.errand_over(task, outcome);
            return;
        }
        let Some((id, branch, told)) = self.turns.of_task(task).and_then(|t| {
            let told = t.tree.get(task).is_some_and(|b| !b.at_work());
            let ours = t.tree.get(task).is_some_and(|b| b.stage != Stage::Play);
            let branch = if ours { t.tree.ended(task, outcome) } else { None };
            branch.map(|branch| (t.id, branch, told))
        }) else {
            self.late_report(task, LateKind::Report);
            return;
        };
        let stage = branch.stage;
        self.write(Some(id), Event::TaskEnded { task, stage, outcome });
        if stage == Stage::Tool {
            self.tool_over(task, ended, told);
            return;
        }
        // A turn that is stopping waits for nothing but the end; see `end_stopped_turns`.
        if self.turns.running().is_none_or(|t| t.id != id) {
            return;
        }
        match (stage, outcome) {
            // However it ended, the model can be asked without it.
            (Stage::Retrieve, _) => {
                if let Some(turn) = self.turns.running() {
                    turn.budget.looked_up();
                }
            }
            (_, TaskOutcome::Finished) => self.stage_finished(stage),
            // Nobody told it to: whoever stopped it, the answer is not whole.
            (_, TaskOutcome::Stopped | TaskOutcome::Aborted | TaskOutcome::Left | TaskOutcome::Failed) => {
                self.fail_live(FailReason::Provider { stage, retry: failed.unwrap_or(Retry::Now) });
            }
        }
    }

    fn stage_finished(&mut self, stage: Stage) {
        let now = self.now;
        let Some(turn) = self.turns.running() else { return };
        let id = turn.id;
        if stage == Stage::Synthesize {
            turn.budget.audio_done();
            turn.budget.moved(now);
            if turn.reply.is_mute() {
                // Words without a sound are no answer, and must not pass for one.
                self.fail_live(FailReason::Provider { stage, retry: Retry::Now });
                return;
            }
        } else {
            turn.budget.text_done();
            let goes_on = turn.news || !turn.inbox.is_empty();
            if !goes_on && !self.calls.of_turn(id).any(|c| c.is_open()) {
                self.write(Some(id), Event::ReplyDone);
            }
        }
        self.speak();
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
            self.history.words(id, turn.reply.by_request(&heard.heard), true);
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
            let stopped = t.tree.all().all(|b| b.stage == Stage::Play || b.is_stopped());
            let asked = t.requests > 0 || t.kind != Kind::Conversation;
            let told = !t.news && t.inbox.is_empty();
            let open = || self.calls.of_turn(t.id).any(|c| c.is_open());
            t.is_running() && asked && told && stopped && !t.reply.has_unfed_words() && t.is_played_out() && !open()
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

    /// Tells every branch of a turn to stop, each in its manner. Playing is not the driver's to stop.
    pub(super) fn stop_branches(&mut self, turn: &mut Turn, why: StopReason) {
        let (now, by) = (self.now, turn.stop_by);
        self.hold_back_commits(turn);
        let grace = |branch: &Branch| {
            let (_, grace) = self.treatment(branch);
            by.map_or(grace, |by| grace.min(by.since(now)))
        };
        for branch in turn.tree.stop_all(now, grace) {
            let (manner, _) = self.treatment(&branch);
            if branch.stage != Stage::Play && manner == Manner::Tell {
                self.out.extend(branch.signal(why));
            }
        }
    }
}
