//! `restore`: from records back to a machine, after the process died.
//!
//! Nothing that ran is alive any more. A turn without a terminal gets one, FAILED(restarted), at the next step; the generation
//! resumes above the highest ever written, so nothing made before can pass a door; seq goes on without a hole.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Event, FailReason, Pii, Record, Stage, TaskOutcome, Terminal, Timing};
use crate::id::{Generation, Seq, TaskId, TurnId, UtteranceId};
use crate::time::Stamp;
use crate::turn::floor::Floor;
use crate::turn::machine::{Ending, Machine};
use crate::turn::memory::{Answered, Recent};
use crate::turn::reply::word_end;
use crate::turn::{Answer, CancelAnswer, Effect, Policy, RequestKind};

/// More characters than anybody speaks in a second: the bound of what can have been heard when no position was recorded.
const CHARS_PER_SECOND: u128 = 20;

/// What was alive when the process died.
#[derive(Clone, Debug, Default)]
pub(super) struct Orphans {
    /// The generation that was current then; unset in a session that was not restored.
    from: Generation,
    turns: Vec<Recent>,
    tasks: BTreeMap<TaskId, (Option<TurnId>, Stage)>,
}

/// A turn whose terminal has not been read yet.
#[derive(Clone, Debug, Default)]
struct Open {
    parent: Option<TurnId>,
    input: Option<Pii<String>>,
    said: String,
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
                    m.history.user(Some(id), input.reveal());
                    open.entry(id).or_default().input = Some(input);
                }
                Event::ReplyText { delta } => open.entry(id).or_default().said.push_str(delta.reveal()),
                Event::AudioStarted => open.entry(id).or_default().sounded_at = Some(record.at),
                Event::TurnEnded { terminal, heard, unheard, .. } => {
                    let Open { parent, input, .. } = open.remove(&id).unwrap_or_default();
                    m.history.assistant(id, heard.reveal(), terminal != Terminal::Completed);
                    let recent = Recent { turn: id, parent, terminal, input, heard, unheard };
                    m.turns.endings.put(recent, record.seq);
                }
                Event::CancelRequested { request, .. } => {
                    let answer = Answer::Cancel(CancelAnswer::Accepted);
                    m.answers.put(request, RequestKind::Cancel, Answered { answer, after: Some(record.seq) });
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
        for recent in turns {
            self.history.assistant(recent.turn, recent.heard.reveal(), true);
            let event = Event::TurnEnded {
                terminal: recent.terminal.clone(),
                heard: recent.heard.clone(),
                unheard: recent.unheard.clone(),
                timing: Timing::Estimated,
            };
            let seq = self.write(Some(recent.turn), event);
            self.turns.endings.put(recent, seq);
        }
    }
}

impl Open {
    /// How it ended. Positions are not recorded, so what was heard is what can have been spoken between the first sample and the
    /// last record.
    fn orphan(self, turn: TurnId, last_at: Stamp) -> Recent {
        let spoken_for = self.sounded_at.map_or(Duration::ZERO, |at| last_at.since(at));
        let chars = usize::try_from(spoken_for.as_micros() * CHARS_PER_SECOND / 1_000_000).unwrap_or(usize::MAX);
        let raw = self.said.char_indices().nth(chars).map_or(self.said.len(), |(at, _)| at);
        let (heard, unheard) = self.said.split_at(word_end(&self.said, raw));
        let terminal = Terminal::Failed { reason: FailReason::Restarted };
        Recent { turn, parent: self.parent, terminal, input: self.input, heard: heard.into(), unheard: unheard.into() }
    }
}
