//! What must be remembered of one running session to measure it: when its turns were accepted, started, asked to stop.

use std::collections::{BTreeMap, VecDeque};

use super::calls::CallsFold;
use super::{Metrics, TailRecord};
use crate::event::{Event, LateKind, Record, TaskOutcome};
use crate::id::{Generation, SessionId, TurnId, UtteranceId};
use crate::time::Stamp;

/// Turns remembered per session. A turn's neighbours may overlap it (a barge-in opens the next before the last has ended), a
/// distant one may not.
const TURNS: usize = 32;
/// Utterances whose end is remembered until their words are in.
const UTTERANCES: usize = 8;

/// The fold of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionFold {
    /// Place, among all absorbed records, of this session's last.
    pub(super) touched: u64,
    turns: BTreeMap<TurnId, TurnFold>,
    /// The newest turn that was forgotten: whatever is not newer has ended.
    forgotten: Option<TurnId>,
    /// The highest generation seen; older output is stale.
    current: Generation,
    ends: VecDeque<(UtteranceId, Stamp)>,
    /// The utterance whose words are in and wait for their turn to start.
    words: Option<UtteranceId>,
    calls: CallsFold,
}

#[derive(Clone, Copy, Debug, Default)]
struct TurnFold {
    accepted: Option<Stamp>,
    started: Option<Stamp>,
    /// From when the person waits for sound.
    asked: Option<Stamp>,
    has_text: bool,
    has_sound: bool,
    /// Barge-in or accepted cancel, whichever came first.
    stop_asked: Option<Stamp>,
    cancelled: bool,
    /// The last task that ended after the stop was asked.
    last_task_ended: Option<Stamp>,
    /// A task had to be aborted after the stop: the work did not stop by itself.
    aborted: bool,
    /// The delivery of this turn's answer is known to have stopped.
    silent: bool,
    ended: bool,
}

impl SessionFold {
    pub(super) fn absorb(&mut self, session: SessionId, record: &Record, to: &mut Metrics) {
        self.current = self.current.max(record.generation);
        match &record.event {
            Event::SpeechEnded { utterance, end } => {
                if self.ends.len() == UTTERANCES {
                    self.ends.pop_front();
                }
                self.ends.push_back((*utterance, *end));
            }
            // Partial words count too: a recogniser that fails or takes too long leaves no final ones, and the turn starts with these.
            Event::Transcript { utterance, text, .. } if !text.reveal().trim().is_empty() => self.words = Some(*utterance),
            Event::Transcript { utterance, is_final: true, .. } => self.forget_words(*utterance),
            Event::Held { .. } => to.holds += 1,
            Event::FalseInterruption { utterance, .. } => {
                to.false_interruptions += 1;
                self.forget_words(*utterance);
            }
            Event::Underrun { .. } => to.underruns += 1,
            Event::LateDropped { kind, .. } => {
                to.late.dropped += 1;
                to.late_texts += u64::from(*kind == LateKind::Text);
            }
            Event::InputQueued { .. } => to.steering.queued += 1,
            Event::InputConsumed { .. } => to.steering.consumed += 1,
            Event::InputReturned { .. } => to.steering.returned += 1,
            Event::Odd { .. } => to.odd_inputs += 1,
            Event::Silenced { stale, tail, .. } => {
                if let Some(tail) = tail {
                    to.tails.add(TailRecord { session, turn: record.turn, stale: *stale, at: record.at, tail: *tail });
                }
                self.with_turn(record, |turn, _| turn.fell_silent(record.at, to));
            }
            Event::BargeIn { .. } => {
                to.barge_ins += 1;
                self.with_turn(record, |turn, _| turn.stop(record.at, to));
            }
            Event::TurnAccepted { .. } => self.with_turn(record, |turn, _| turn.accepted = Some(record.at)),
            Event::TurnStarted { .. } => {
                let spoken = self.words.take().and_then(|words| self.end_of(words));
                self.with_turn(record, |turn, _| {
                    turn.started = Some(record.at);
                    turn.asked = spoken.or(Some(record.at));
                });
            }
            Event::ReplyText { .. } => self.with_turn(record, |turn, current| {
                to.late.delivered += u64::from(turn.is_stale(record, current));
                if !std::mem::replace(&mut turn.has_text, true)
                    && let Some(started) = turn.started
                {
                    to.ttft.record(record.at.since(started));
                }
            }),
            Event::AudioStarted => self.with_turn(record, |turn, current| {
                to.late.delivered += u64::from(turn.is_stale(record, current));
                if !std::mem::replace(&mut turn.has_sound, true)
                    && let Some(asked) = turn.asked
                {
                    to.ttfa.record(record.at.since(asked));
                }
            }),
            Event::CancelRequested { .. } => self.with_turn(record, |turn, _| {
                turn.stop(record.at, to);
                to.duplicate_cancel_effects += u64::from(std::mem::replace(&mut turn.cancelled, true));
            }),
            Event::TaskEnded { outcome, .. } => self.with_turn(record, |turn, _| {
                if turn.stop_asked.is_some() {
                    turn.last_task_ended = Some(record.at);
                    turn.aborted |= *outcome == TaskOutcome::Aborted;
                }
            }),
            Event::TurnEnded { terminal, unheard, .. } => {
                to.terminal_conflicts += u64::from(self.is_forgotten(record.turn));
                self.with_turn(record, |turn, _| {
                    if std::mem::replace(&mut turn.ended, true) {
                        to.terminal_conflicts += 1;
                        return;
                    }
                    to.terminals.count(terminal);
                    to.unheard_chars += unheard.reveal().chars().count() as u64;
                    if let Some(accepted) = turn.accepted {
                        to.e2e.record(record.at.since(accepted));
                    }
                    if let (Some(asked), Some(ended)) = (turn.stop_asked, turn.last_task_ended) {
                        to.cancel_propagation.record(ended.since(asked));
                        if turn.aborted {
                            to.objectives.work_aborted += 1;
                        } else {
                            to.objectives.work_stopped.record(ended.since(asked));
                        }
                    }
                });
            }
            _ => {}
        }
        let turns = &self.turns;
        self.calls.absorb(record, |turn| turns.get(&turn).and_then(|turn| turn.stop_asked), &mut to.calls);
    }

    /// Runs `change` on the record's turn. Records of turns that were forgotten, or of none, change nothing.
    fn with_turn(&mut self, record: &Record, change: impl FnOnce(&mut TurnFold, Generation)) {
        let Some(id) = record.turn else { return };
        if self.is_forgotten(Some(id)) {
            return;
        }
        change(self.turns.entry(id).or_default(), self.current);
        if self.turns.len() > TURNS
            && let Some((oldest, _)) = self.turns.pop_first()
        {
            self.forgotten = Some(oldest);
        }
    }

    /// How many calls are remembered.
    #[cfg(test)]
    pub(super) fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// How many turns are remembered.
    #[cfg(test)]
    pub(super) fn turn_count(&self) -> usize {
        self.turns.len()
    }

    fn is_forgotten(&self, turn: Option<TurnId>) -> bool {
        matches!((turn, self.forgotten), (Some(turn), Some(forgotten)) if turn <= forgotten)
    }

    fn forget_words(&mut self, utterance: UtteranceId) {
        self.words = self.words.filter(|words| *words != utterance);
    }

    fn end_of(&self, utterance: UtteranceId) -> Option<Stamp> {
        self.ends.iter().rev().find(|(id, _)| *id == utterance).map(|(_, end)| *end)
    }
}

impl TurnFold {
    /// It was asked to stop, the first time or again.
    fn stop(&mut self, at: Stamp, to: &mut Metrics) {
        if self.stop_asked.is_some() {
            return;
        }
        self.stop_asked = Some(at);
        if !self.has_sound {
            // Nothing was being delivered to the ear, and nothing will be.
            self.fell_silent(at, to);
        }
    }

    /// Nothing of its answer reaches the ear any more.
    fn fell_silent(&mut self, at: Stamp, to: &mut Metrics) {
        if let Some(asked) = self.stop_asked
            && !std::mem::replace(&mut self.silent, true)
        {
            to.objectives.delivery_stopped.record(at.since(asked));
        }
    }

    /// Whether output of this turn must no longer get out.
    fn is_stale(&self, record: &Record, current: Generation) -> bool {
        self.ended || self.cancelled || record.generation < current
    }
}
