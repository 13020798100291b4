//! First chapter of the machine: from sound to a turn.
//!
//! The order of records at a barge-in: `SpeechStarted`, `BargeIn` (only when the answer had sounded), `GenerationRaised`,
//! `CancelRequested`, `Cleared`, the interrupted turn's `TurnEnded` if nothing of it runs any more, `TurnAccepted` of the new turn,
//! and `TaskStarted` if nobody listens yet. When calls are kept, `TurnAccepted` and `CallKept` come before that `TurnEnded`.

use crate::event::{CancelCause, Event, FailReason, Initiator, LateKind, Pii, Retry, Stage, TaskOutcome};
use crate::id::{TaskId, TurnId, UtteranceId};
use crate::time::Stamp;
use crate::turn::acting::Keep;
use crate::turn::floor::{NotDown, Scene, Sound, Verdict};
use crate::turn::inbox::Queued;
use crate::turn::life::Life;
use crate::turn::machine::{Machine, own_request};
use crate::turn::pause::Reason;
use crate::turn::stopping::Cancel;
use crate::turn::{Effect, StopReason, TaskSpec, Voice};

impl Machine {
    pub(super) fn hear(&mut self, voice: &Voice) {
        if self.is_closing() {
            return;
        }
        let scene = self.scene();
        let verdict = self.floor.hear(self.now, voice, scene, &self.policy.floor);
        self.obey(verdict);
    }

    pub(super) fn floor_lapsed(&mut self) {
        let verdict = self.floor.lapse(self.now, self.policy.budget.turn, &self.policy.floor);
        self.obey(verdict);
    }

    pub(super) fn obey(&mut self, verdict: Option<Verdict>) {
        match verdict {
            None => {}
            Some(Verdict::Begin(sound)) => self.speech_begins(sound),
            Some(Verdict::Hold(sound)) => self.hold(sound),
            Some(Verdict::Commit(sound)) => self.commit(sound),
            Some(Verdict::FalseAlarm(sound, held)) => self.false_alarm(sound, held),
            Some(Verdict::Endpoint { utterance, end }) => self.speech_ends(utterance, end),
        }
    }

    fn speech_begins(&mut self, sound: Sound) {
        // An answer that was held for it and may not be interrupted after all goes on.
        self.release_voice();
        self.write_turn(Event::SpeechStarted { utterance: sound.utterance, onset: sound.onset });
        self.listen(sound.utterance, sound.onset);
    }

    fn hold(&mut self, sound: Sound) {
        let Sound { utterance, onset, evidence } = sound;
        let effect = self.pause.hold(Reason::Voice);
        self.out.extend(effect);
        if let Some(turn) = self.turns.running() {
            self.tails.held(turn.generation, self.now);
        }
        self.write_turn(Event::Held { utterance, onset, evidence });
        self.listen(utterance, onset);
    }

    /// The user takes the floor from a running turn.
    fn commit(&mut self, sound: Sound) {
        self.write_turn(Event::SpeechStarted { utterance: sound.utterance, onset: sound.onset });
        self.interrupt(sound);
    }

    /// Cuts the running turn by voice and, unless the session drains, accepts the one that follows it.
    fn interrupt(&mut self, sound: Sound) {
        let Sound { utterance, onset, evidence } = sound;
        let Some(turn) = self.turns.running() else { return };
        let (id, generation, heard_until) = (turn.id, turn.generation, turn.reply.position());
        let cause = if turn.reply.sounded() { CancelCause::BargeIn } else { CancelCause::Superseded };
        if cause == CancelCause::BargeIn {
            self.write(Some(id), Event::BargeIn { utterance, onset, heard_until, evidence });
        }
        let request = own_request(Initiator::Voice, cause, id, generation);
        let keep = self.keep_for_the_next();
        self.cancel_live(Cancel { cause, initiator: Initiator::Voice, request, onset: Some(onset), keep, by: None });
        if !self.draining {
            self.accept(Some(id));
        }
        self.listen(utterance, onset);
    }

    /// What goes on when a voice replaces the running turn.
    fn keep_for_the_next(&self) -> Keep<'static> {
        if self.draining { Keep::Nothing } else { Keep::ByPolicy }
    }

    fn false_alarm(&mut self, sound: Sound, held: Option<Stamp>) {
        let Sound { utterance, evidence, .. } = sound;
        if let Some(since) = held {
            let held_us = crate::event::duration_us(self.now.since(since));
            self.write_turn(Event::FalseInterruption { utterance, held_us, evidence });
        }
        self.release_voice();
        if let Some(u) = self.utterances.remove(utterance) {
            self.stop_listening(u.listen, StopReason::NotSpeech);
        }
    }

    fn speech_ends(&mut self, utterance: UtteranceId, end: Stamp) {
        let now = self.now;
        if let Some(u) = self.utterances.get(utterance) {
            u.over = Some(now);
            let listen = u.listen;
            if self.ears.get(listen).is_some_and(|b| b.at_work()) {
                self.out.push(Effect::EndFeed { task: listen });
            }
        }
        self.write_turn(Event::SpeechEnded { utterance, end });
    }

    fn release_voice(&mut self) {
        if let Some(effect) = self.pause.release(Reason::Voice) {
            self.out.push(effect);
            if let Some(turn) = &mut self.turns.live {
                turn.budget.moved(self.now);
            }
        }
        self.tails.resumed();
    }

    /// Starts a recogniser for `utterance`, unless one listens already or no words are wanted.
    fn listen(&mut self, utterance: UtteranceId, onset: Stamp) {
        let wanted = !self.draining || self.turns.live.as_ref().is_some_and(|t| t.life == Life::Accepted);
        if !wanted || self.utterances.get(utterance).is_some() {
            return;
        }
        let task = self.next_task();
        self.utterances.open(utterance, task);
        self.ears.start(task, Stage::Listen);
        self.write(None, Event::TaskStarted { task, stage: Stage::Listen });
        let (from, deadline) = (onset.back(self.policy.floor.preroll), self.listen_deadline());
        let spec = TaskSpec::Listen { utterance, from };
        self.out.push(Effect::StartTask { task, generation: self.gate.generation(), deadline, spec });
        if let Some(surplus) = self.utterances.surplus() {
            self.give_up(surplus);
        }
    }

    /// Nobody speaks for longer than a turn may last, and then the last word must come.
    fn listen_deadline(&self) -> Stamp {
        self.now + self.policy.budget.turn + self.policy.floor.final_transcript
    }

    pub(super) fn key_down(&mut self) {
        if self.is_closing() {
            return;
        }
        let Some((sound, speaking)) = self.floor.press(self.now) else {
            self.odd("key down twice");
            return;
        };
        match self.scene() {
            Scene::Agent { .. } if speaking => self.interrupt(sound),
            Scene::Agent { .. } => self.commit(sound),
            Scene::Idle if speaking => {}
            Scene::Idle => self.speech_begins(sound),
        }
    }

    pub(super) fn key_up(&mut self) {
        if self.is_closing() {
            return;
        }
        match self.floor.release(self.now) {
            Ok(verdict) => self.obey(verdict),
            Err(NotDown) => self.odd("key up without down"),
        }
    }

    // Words.

    pub(super) fn transcript(&mut self, task: TaskId, text: Pii<String>, is_final: bool) {
        self.ears.seen(task);
        let Some(u) = self.utterances.heard_by(task).filter(|u| !u.spoke) else {
            self.late_report(task, LateKind::Transcript);
            return;
        };
        let words = text.reveal().trim().to_owned();
        let news = is_final || words != u.text;
        u.text.clone_from(&words);
        u.spoke = is_final;
        u.final_word |= is_final;
        let id = u.id;
        if news {
            self.write_turn(Event::Transcript { utterance: id, text, is_final });
        }
        if words.is_empty() {
            return;
        }
        let count = u32::try_from(words.split_whitespace().count()).unwrap_or(u32::MAX);
        if let Some(sound) = self.floor.words(self.now, count, id) {
            match self.scene() {
                Scene::Agent { interruptible: true } => self.commit(sound),
                Scene::Agent { interruptible: false } | Scene::Idle => self.speech_begins(sound),
            }
        }
    }

    /// A listening task is over.
    pub(super) fn listened(&mut self, task: TaskId, outcome: TaskOutcome, failed: Option<Retry>) {
        self.ears.ended(task, outcome);
        self.ears.prune();
        self.write(None, Event::TaskEnded { task, stage: Stage::Listen, outcome });
        self.retire(task, self.gate.generation());
        if let Some(u) = self.utterances.heard_by(task) {
            u.final_word = true;
            u.failed = u.failed.or(failed);
        }
    }

    pub(super) fn give_up_on_words(&mut self) {
        for id in self.utterances.overdue(self.now, self.policy.floor.final_transcript) {
            self.give_up(id);
        }
    }

    /// No more words are waited for; those known count.
    fn give_up(&mut self, id: UtteranceId) {
        let Some(u) = self.utterances.get(id) else { return };
        u.final_word = true;
        u.spoke = true;
        let listen = u.listen;
        self.stop_listening(listen, StopReason::Failed(FailReason::IdleTimeout { stage: Stage::Listen }));
    }

    pub(super) fn stop_listening(&mut self, task: TaskId, why: StopReason) {
        let signal = self.ears.stop(task, why, self.now, self.policy.budget.grace);
        self.out.extend(signal);
    }

    /// Everything being said or waited for is dropped.
    pub(super) fn drop_utterances(&mut self, why: StopReason) {
        for u in self.utterances.clear() {
            self.stop_listening(u.listen, why);
        }
        self.floor.dismiss(self.now);
    }

    /// Takes the words that are settled; those that were set aside join the conversation.
    pub(super) fn collect_words(&mut self) {
        let (settled, asides) = self.utterances.settle();
        for u in settled {
            self.ears.expect_end(u.listen, self.now, self.policy.floor.final_transcript);
        }
        for text in asides {
            self.history.user(None, &text);
        }
    }

    /// Settled words start the turn they belong to, when nobody speaks any more.
    pub(super) fn settle(&mut self) {
        self.collect_words();
        if self.utterances.any_open() || self.is_closing() {
            return;
        }
        match self.turns.live.as_ref().map(|t| (t.life == Life::Accepted, t.id)) {
            Some((true, _)) => {
                let words = self.utterances.take();
                if words.text.is_empty() && self.has_more_to_do() {
                    let typed = self.first_of_the_inbox();
                    self.start(typed);
                } else if words.text.is_empty() {
                    let unheard = FailReason::NothingHeard;
                    let failed = |retry| FailReason::Provider { stage: Stage::Listen, retry };
                    self.fail_live(words.failed.map_or(unheard, failed));
                } else {
                    self.start(words.text.into());
                }
            }
            Some((false, _)) => {
                // An answer that may not be interrupted is listened to first; the words wait.
                if self.utterances.any_ready() && self.scene() == (Scene::Agent { interruptible: true }) {
                    let words = self.utterances.take();
                    self.supersede_by_words(words.text);
                }
            }
            None => {
                let words = self.utterances.take();
                if !words.text.is_empty() && !self.draining {
                    self.accept(None);
                    self.start(words.text.into());
                }
            }
        }
    }

    /// Whether the accepted turn has something to do although no words were made out.
    fn has_more_to_do(&self) -> bool {
        self.turns.live.as_ref().is_some_and(|t| !t.inbox.is_empty() || self.calls.of_turn(t.id).any(|c| c.is_open()))
    }

    /// What was typed for the accepted turn, as its input.
    fn first_of_the_inbox(&mut self) -> Pii<String> {
        let Some(turn) = &mut self.turns.live else { return Pii::default() };
        let (id, Some(Queued { input, text })) = (turn.id, turn.inbox.pop()) else { return Pii::default() };
        self.write(Some(id), Event::InputConsumed { input, request: 1 });
        text
    }

    /// Words that were said before the answer sounded, and settled only now.
    fn supersede_by_words(&mut self, text: String) {
        let Some((id, generation)) = self.turns.running().map(|t| (t.id, t.generation)) else { return };
        let request = own_request(Initiator::Voice, CancelCause::Superseded, id, generation);
        let (cause, keep) = (CancelCause::Superseded, self.keep_for_the_next());
        self.cancel_live(Cancel { cause, initiator: Initiator::Voice, request, onset: None, keep, by: None });
        if !self.draining {
            self.accept(Some(id));
            self.start(text.into());
        }
    }

    /// A record about the live turn, if there is one.
    pub(super) fn write_turn(&mut self, event: Event) {
        let turn: Option<TurnId> = self.turns.live.as_ref().map(|t| t.id);
        self.write(turn, event);
    }
}
