//! The book: what a log has said so far, as far as a law asks for it.

use std::collections::BTreeMap;

use super::Fact;
use crate::event::{CallEnding, Event, FailReason, Outcome, Record, Stage, Terminal};
use crate::id::{CallId, Generation, RequestId, Seq, TaskId, TurnId};
use crate::time::Stamp;

/// A turn, as the log tells it.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnSeen {
    pub(super) deadline: Stamp,
    pub(super) cancelled: Option<Stamp>,
    pub(super) terminal: Option<Terminal>,
    /// The process died while it ran.
    pub(super) orphaned: bool,
    /// The last question to its model.
    pub(super) request: u32,
}

/// A call, as the log tells it.
#[derive(Clone, Debug)]
pub(super) struct CallSeen {
    /// The turn it belongs to now.
    pub(super) turn: Option<TurnId>,
    pub(super) tool: String,
    pub(super) key: String,
    pub(super) started: bool,
    pub(super) asked: bool,
    pub(super) granted: Option<bool>,
    pub(super) intent: bool,
    pub(super) sent: bool,
    pub(super) leave: bool,
    pub(super) joined: bool,
    pub(super) ended: Option<(CallEnding, Stamp)>,
    pub(super) outcome: Option<Outcome>,
}

impl CallSeen {
    /// Whether what it was to change outside may be changed, as far as the log tells.
    pub(super) fn may_have_happened(&self) -> bool {
        let undone = matches!(self.outcome, Some(Outcome::DidNotHappen | Outcome::Compensated));
        let ended_without =
            matches!(self.ended, Some((CallEnding::Cancelled | CallEnding::Failed { .. } | CallEnding::NotStarted { .. }, _)));
        (self.sent || self.leave) && !undone && !ended_without
    }
}

/// An input that steers.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputSeen {
    pub(super) turn: Option<TurnId>,
    pub(super) ends: u32,
}

/// What the log has said so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) last: Option<(Seq, Stamp, Generation)>,
    pub(super) over: bool,
    pub(super) turns: BTreeMap<TurnId, TurnSeen>,
    pub(super) calls: BTreeMap<CallId, CallSeen>,
    /// Whether each task that began has ended.
    pub(super) tasks: BTreeMap<TaskId, (Stage, bool)>,
    pub(super) inputs: BTreeMap<RequestId, InputSeen>,
    /// The generations that fell silent, by [`Event::Silenced`].
    pub(super) silenced: Vec<Generation>,
    /// The highest generation that was raised from.
    pub(super) cut: Generation,
    pub(super) lost: Option<Stamp>,
    /// The fence: its generation, and when it was raised.
    pub(super) fence: (Generation, Stamp),
    /// The last record that was shown since the process began.
    pub(super) shown: Option<Seq>,
    /// Samples of older generations heard since the last raise.
    pub(super) stale: u64,
    /// How often something happened outside under a key.
    pub(super) effects: BTreeMap<String, u32>,
    /// Leaves that the log confirms with an intent, by key.
    pub(super) leaves: BTreeMap<String, u32>,
}

impl Book {
    pub(super) fn fingerprint(&self, to: &mut impl std::fmt::Write) -> std::fmt::Result {
        // The place of the last record is relative to itself; of the rest, what is over once and for all decides nothing but that it is.
        let Book { last, over, turns, calls, tasks, inputs, silenced, cut, lost, fence, shown, stale, effects, leaves } = self;
        let generation = last.map(|(_, _, generation)| generation);
        write!(to, "{generation:?}{over}{turns:?}{calls:?}{tasks:?}{inputs:?}{silenced:?}{cut:?}{lost:?}{fence:?}")?;
        write!(to, "{shown:?}{stale}{effects:?}{leaves:?}")
    }

    pub(super) fn turn(&self, record: &Record) -> Option<&TurnSeen> {
        self.turns.get(&record.turn?)
    }

    /// The calls that belong to a turn.
    pub(super) fn calls_of(&self, turn: TurnId) -> impl Iterator<Item = (CallId, &CallSeen)> {
        self.calls.iter().filter(move |(_, call)| call.turn == Some(turn)).map(|(id, call)| (*id, call))
    }

    pub(super) fn note(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Record(record) => self.note_record(record),
            Fact::Leave { call, .. } => {
                if let Some(call) = self.calls.get_mut(call) {
                    call.leave = true;
                    *self.leaves.entry(call.key.clone()).or_default() += 1;
                }
            }
            Fact::Raised { generation, at } => {
                if *generation > self.fence.0 {
                    self.fence = (*generation, *at);
                    self.stale = 0;
                }
            }
            Fact::Heard { generation, samples, .. } => {
                if *generation < self.fence.0 {
                    self.stale += samples;
                }
            }
            Fact::Effect { key, .. } => *self.effects.entry((*key).to_owned()).or_default() += 1,
            Fact::Shown(record) => self.shown = Some(record.seq),
            Fact::Restarted => {
                // Another process has another fence, and its client begins anew.
                self.fence = (Generation::UNSET, Stamp::ZERO);
                self.stale = 0;
                self.shown = None;
                for turn in self.turns.values_mut().filter(|turn| turn.terminal.is_none()) {
                    turn.orphaned = true;
                }
            }
            Fact::Undone { .. } | Fact::Truth { .. } | Fact::Over { .. } => {}
        }
    }

    fn note_record(&mut self, record: &Record) {
        self.last = Some((record.seq, record.at, record.generation));
        match &record.event {
            Event::SessionEnded => self.over = true,
            Event::LinkLost => self.lost = Some(record.at),
            Event::LinkUp => self.lost = None,
            Event::GenerationRaised { from } => self.cut = self.cut.max(*from),
            Event::Silenced { stale, .. } => self.silenced.push(*stale),
            Event::TaskStarted { task, stage } => drop(self.tasks.insert(*task, (*stage, false))),
            Event::TaskEnded { task, .. } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.1 = true;
                }
            }
            Event::InputQueued { input, .. } => drop(self.inputs.insert(*input, InputSeen { turn: record.turn, ends: 0 })),
            Event::InputConsumed { input, .. } | Event::InputReturned { input, .. } => {
                if let Some(input) = self.inputs.get_mut(input) {
                    input.ends += 1;
                }
            }
            _ => {
                self.note_turn(record);
                self.note_call(record);
            }
        }
    }

    fn note_turn(&mut self, record: &Record) {
        let Some(id) = record.turn else { return };
        if let Event::TurnAccepted { deadline, .. } = &record.event {
            self.turns.insert(id, TurnSeen { deadline: *deadline, ..TurnSeen::default() });
        }
        let Some(turn) = self.turns.get_mut(&id) else { return };
        match &record.event {
            Event::CancelRequested { .. } => turn.cancelled = turn.cancelled.or(Some(record.at)),
            Event::TurnEnded { terminal, .. } => turn.terminal = Some(terminal.clone()),
            Event::ModelRequested { request } => turn.request = *request,
            _ => {}
        }
    }

    fn note_call(&mut self, record: &Record) {
        if let Event::CallRequested { call, tool, key, .. } = &record.event {
            let seen = CallSeen {
                turn: record.turn,
                tool: tool.clone(),
                key: key.0.clone(),
                started: false,
                asked: false,
                granted: None,
                intent: false,
                sent: false,
                leave: false,
                joined: false,
                ended: None,
                outcome: None,
            };
            self.calls.insert(*call, seen);
            return;
        }
        let Some(call) = call_of(&record.event).and_then(|call| self.calls.get_mut(&call)) else { return };
        match &record.event {
            Event::CallStarted { .. } => call.started = true,
            Event::ApprovalAsked { .. } => call.asked = true,
            Event::ApprovalGiven { granted, .. } => call.granted = Some(*granted),
            Event::CallJoined { .. } => call.joined = true,
            Event::CommitIntent { .. } => call.intent = true,
            Event::CommitSent { .. } => call.sent = true,
            Event::CallKept { .. } => call.turn = record.turn,
            Event::CallEnded { ending, .. } => call.ended = Some((*ending, record.at)),
            Event::Reconciled { outcome, .. } => call.outcome = Some(*outcome),
            _ => {}
        }
    }
}

/// The call that an event is about.
pub(super) fn call_of(event: &Event) -> Option<CallId> {
    match event {
        Event::CallRequested { call, .. }
        | Event::ApprovalAsked { call }
        | Event::ApprovalGiven { call, .. }
        | Event::CallStarted { call, .. }
        | Event::CallJoined { call, .. }
        | Event::CallCheckpoint { call, .. }
        | Event::CommitIntent { call, .. }
        | Event::CommitSent { call }
        | Event::CallKept { call, .. }
        | Event::CallEnded { call, .. }
        | Event::Reconciled { call, .. } => Some(*call),
        _ => None,
    }
}

/// Whether a turn ended because the process died.
pub(super) fn is_restart(terminal: &Terminal) -> bool {
    matches!(terminal, Terminal::Failed { reason: FailReason::Restarted })
}
