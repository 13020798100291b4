//! `restore`: from records back to a machine, after the process died.
//!
//! Nothing that ran is alive any more. A turn without a terminal gets one, FAILED(restarted), at the next step; the generation
//! resumes above the highest ever written, so nothing made before can pass a door; seq goes on without a hole.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{CallEnding, Event, FailReason, Outcome, Pii, Record, Stage, TaskOutcome, Terminal, Timing};
use crate::id::{CallId, Generation, Seq, SessionId, TaskId, TurnId, UtteranceId};
use crate::time::Stamp;
use crate::turn::calls::{Call, State};
use crate::turn::floor::Floor;
use crate::turn::inbox::Queued;
use crate::turn::machine::{Ending, Machine};
use crate::turn::memory::{Answered, Recent};
use crate::turn::reply::{Reply, word_end};
use crate::turn::{Answer, CancelAnswer, Effect, Policy, RequestKind, SubmitAnswer};

/// More characters than anybody speaks in a second: the bound of what can have been heard when no position was recorded.
const CHARS_PER_SECOND: u128 = 20;

/// What was alive when the process died.
#[derive(Clone, Debug, Default)]
pub(super) struct Orphans {
    /// The generation that was current then; unset in a session that was not restored.
    from: Generation,
    turns: Vec<Orphan>,
    tasks: BTreeMap<TaskId, (Option<TurnId>, Stage)>,
}

/// A turn that was running.
#[derive(Clone, Debug)]
struct Orphan {
    recent: Recent,
    said: Reply,
    inbox: Vec<Queued>,
}

/// A turn whose terminal has not been read yet.
#[derive(Clone, Debug, Default)]
struct Open {
    parent: Option<TurnId>,
    input: Option<Pii<String>>,
    request: u32,
    said: Reply,
    inbox: Vec<Queued>,
    sounded_at: Option<Stamp>,
}

impl Machine {
    /// The machine of a session whose records these are, in their order.
    ///
    /// `now` is session time and goes on from the last record's: a driver whose clock begins anew adds that record's `at`.
    /// [`Input::Begin`](crate::turn::Input::Begin) may be given again; it writes a second header only if the log has none.
    pub fn restore(policy: Policy, records: impl IntoIterator<Item = Record>, now: Stamp) -> Machine {
        let (mut generation, mut seq, mut at) = (Generation::UNSET, Seq(0), now);
        let (mut turn, mut task, mut utterance) = (TurnId(0), TaskId(0), UtteranceId(0));
        let mut open: BTreeMap<TurnId, Open> = BTreeMap::new();
        let mut m = Machine::at(policy, Stamp::ZERO, Generation(1), Seq(0));
        let mut calls: BTreeMap<CallId, TaskId> = BTreeMap::new();
        let mut over = false;
        let mut last_at = Stamp::ZERO;
        for record in records {
            generation = generation.max(record.generation);
            seq = seq.max(record.seq);
            last_at = last_at.max(record.at);
            at = at.max(record.at);
            let id = record.turn.unwrap_or_default();
            turn = turn.max(id);
            match record.event {
                Event::SessionStarted { .. } => m.has_header = true,
                Event::SessionEnded => over = true,
                Event::TurnAccepted { parent, .. } => {
                    open.insert(id, Open { parent, ..Open::default() });
                }
                Event::TurnStarted { input } => {
                    if input.reveal().is_empty() {
                        m.history.announcement(id);
                    } else {
                        m.history.user(Some(id), input.reveal());
                    }
                    open.entry(id).or_default().input = Some(input);
                }
                Event::Announced { .. } => {
                    m.history.announcement(id);
                    open.entry(id).or_default().said.next_request(1);
                }
                Event::ModelRequested { request } => {
                    let turn = open.entry(id).or_default();
                    turn.request = request;
                    turn.said.next_request(request);
                }
                Event::ReplyText { delta } => open.entry(id).or_default().said.say(delta.reveal()),
                Event::AudioStarted => open.entry(id).or_default().sounded_at = Some(record.at),
                Event::InputQueued { input, text } => {
                    let answer = Answer::Submit(SubmitAnswer::Steered(id));
                    m.answers.put(input, RequestKind::Submit, Answered { answer, after: None });
                    open.entry(id).or_default().inbox.push(Queued { input, text });
                }
                Event::InputConsumed { input, request } => {
                    let turn = open.entry(id).or_default();
                    let text = turn.inbox.iter().position(|q| q.input == input).map(|place| turn.inbox.remove(place).text);
                    // What an accepted turn was given for want of words is its input, and told as such.
                    if let Some(text) = text.filter(|_| turn.input.is_some()) {
                        m.history.further(id, request, text.reveal());
                    }
                }
                Event::InputReturned { input, .. } => open.entry(id).or_default().inbox.retain(|q| q.input != input),
                Event::TurnEnded { terminal, heard, unheard, .. } => {
                    let Open { parent, input, said, .. } = open.remove(&id).unwrap_or_default();
                    m.history.words(id, said.by_request(heard.reveal()), terminal != Terminal::Completed);
                    let recent = Recent { turn: id, parent, terminal, input, heard, unheard };
                    m.turns.endings.put(recent, record.seq);
                }
                Event::CancelRequested { request, .. } => {
                    for call in m.calls.all_mut().filter(|c| c.turn == id && c.is_open()) {
                        call.unwanted = true;
                    }
                    let answer = Answer::Cancel(CancelAnswer::Accepted);
                    m.answers.put(request, RequestKind::Cancel, Answered { answer, after: Some(record.seq) });
                }
                Event::CallRequested { call, tool, arguments, key } => {
                    let request = open.get(&id).map_or(1, |turn| turn.request);
                    m.history.call(id, request, call, &tool, &arguments);
                    // A key that was not made here is the tool's: it names an intent, before the restart as after.
                    let made_here = key.0.strip_suffix(&format!("-{}", call.0)).is_some_and(|s| s.parse::<SessionId>().is_ok());
                    m.calls.put(Call { is_intent: !made_here, ..Call::read(id, call, tool, arguments, key) });
                }
                Event::CommitIntent { call, .. } => {
                    // Whether leave was given is not known for sure: the record of it need not have been kept.
                    m.read_call(call, |c| c.committed = true);
                }
                Event::CallStarted { call, task } => drop(calls.insert(call, task)),
                Event::CallKept { call, .. } => {
                    m.read_call(call, |c| c.turn = id);
                    if let Some((turn, _)) = calls.get(&call).and_then(|task| m.orphans.tasks.get_mut(task)) {
                        *turn = Some(id);
                    }
                }
                Event::CallEnded { call, ending, result } => {
                    let result = result.unwrap_or_default();
                    m.read_call(call, |c| (c.state, c.result) = (State::Ended(ending), result.clone()));
                    m.history.result(call, ending, &result);
                }
                Event::Reconciled { call, outcome } => {
                    m.read_call(call, |c| c.outcome = Some(outcome));
                    let shown = match outcome {
                        Outcome::Happened => Some(CallEnding::Done),
                        Outcome::DidNotHappen | Outcome::Compensated => Some(CallEnding::Cancelled),
                        Outcome::NeedsPerson => None,
                    };
                    if let Some(shown) = shown {
                        let result = m.calls.get(call).map(|c| c.result.clone()).unwrap_or_default();
                        m.history.result(call, shown, &result);
                    }
                }
                Event::TaskStarted { task: id, stage } => {
                    task = task.max(id);
                    m.orphans.tasks.insert(id, (record.turn, stage));
                }
                Event::TaskEnded { task: id, .. } => {
                    m.orphans.tasks.remove(&id);
                }
                Event::SpeechStarted { utterance: id, .. }
                | Event::SpeechEnded { utterance: id, .. }
                | Event::Held { utterance: id, .. }
                | Event::FalseInterruption { utterance: id, .. }
                | Event::BargeIn { utterance: id, .. }
                | Event::Transcript { utterance: id, .. } => utterance = utterance.max(id),
                Event::GenerationRaised { from } | Event::Cleared { stale: from } | Event::Silenced { stale: from, .. } => {
                    generation = generation.max(from);
                }
                Event::ReplyDone
                | Event::ApprovalAsked { .. }
                | Event::ApprovalGiven { .. }
                | Event::CallJoined { .. }
                | Event::CallCheckpoint { .. }
                | Event::CommitSent { .. }
                | Event::HandedOver { .. }
                | Event::LateDropped { .. }
                | Event::LinkLost
                | Event::LinkUp
                | Event::Underrun { .. }
                | Event::Odd { .. }
                | Event::Unknown => {}
            }
        }
        for (id, turn) in open {
            m.orphans.turns.push(turn.orphan(id, last_at));
        }
        m.orphans.from = generation;
        m.restored = generation.is_set();
        m.now = at;
        m.gate = crate::turn::gate::Gate::new(generation.next(), seq);
        m.pause.renew(generation.next());
        m.turns.last = turn;
        m.last_task = task;
        m.floor = Floor::new(utterance);
        if over {
            m.ending = Ending::Finished;
            m.draining = true;
        }
        m
    }

    /// Gives those that were alive their end. The first step after a restore does.
    pub(super) fn bury_orphans(&mut self) {
        let Orphans { from, turns, tasks } = std::mem::take(&mut self.orphans);
        if self.is_over() || !from.is_set() {
            return;
        }
        self.out.push(Effect::RaiseFence { generation: self.gate.generation() });
        self.write(None, Event::GenerationRaised { from });
        for (task, (turn, stage)) in tasks {
            self.write(turn, Event::TaskEnded { task, stage, outcome: TaskOutcome::Aborted });
        }
        for Orphan { mut recent, said, inbox } in turns {
            let turn = recent.turn;
            self.end_orphaned_calls(turn);
            for Queued { input, text } in inbox {
                self.write(Some(turn), Event::InputReturned { input, text });
            }
            let calls: Vec<CallId> = self.calls.of_turn(turn).filter(|c| c.needs_reconciling()).map(|c| c.id).collect();
            if !calls.is_empty() {
                recent.terminal = Terminal::ReconcileRequired { calls };
            }
            self.history.words(turn, said.by_request(recent.heard.reveal()), true);
            let event = Event::TurnEnded {
                terminal: recent.terminal.clone(),
                heard: recent.heard.clone(),
                unheard: recent.unheard.clone(),
                timing: Timing::Estimated,
            };
            let seq = self.write(Some(turn), event);
            self.turns.endings.put(recent, seq);
        }
        // What was open about older turns is looked after again.
        let open = |c: &&Call| c.is_unknown() || c.is_unwanted_effect() && c.outcome.is_none();
        self.pending.extend(self.calls.all().filter(open).map(|c| c.id));
    }

    /// A call whose process died: nothing was changed before its intent was kept, and afterwards nobody knows.
    fn end_orphaned_calls(&mut self, turn: TurnId) {
        for id in self.calls.open_of(turn) {
            let Some(call) = self.calls.get(id).filter(|c| c.is_open()) else { continue };
            let ending = if call.committed { CallEnding::Unknown } else { CallEnding::Cancelled };
            self.end_call(id, ending, Pii::default());
        }
    }

    fn read_call(&mut self, id: CallId, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.get_mut(id) {
            change(call);
        }
    }
}

impl Open {
    /// How it ended. Positions are not recorded, so what was heard is what can have been spoken between the first sample and the
    /// last record.
    fn orphan(self, turn: TurnId, last_at: Stamp) -> Orphan {
        let spoken_for = self.sounded_at.map_or(Duration::ZERO, |at| last_at.since(at));
        let chars = usize::try_from(spoken_for.as_micros() * CHARS_PER_SECOND / 1_000_000).unwrap_or(usize::MAX);
        let text = self.said.said();
        let raw = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
        let (heard, unheard) = text.split_at(word_end(text, raw));
        let terminal = Terminal::Failed { reason: FailReason::Restarted };
        let recent =
            Recent { turn, parent: self.parent, terminal, input: self.input, heard: heard.into(), unheard: unheard.into() };
        Orphan { recent, said: self.said, inbox: self.inbox }
    }
}
