//! [`Tracer`]: spans projected from records. One root per turn, a child per task (hearing, looking up, the model, each tool, the voice);
//! no personal content.
//!
//! A span is opened and closed when its record is absorbed, so feed the tracer live. The moments of the log itself are fields
//! (`*_us`, session time), which stay true however late a record comes by.

use std::collections::BTreeMap;

use tracing::{Span, field};

use crate::event::{Event, Record};
use crate::id::{CallId, SessionId, TaskId, TurnId};

/// Turns and tasks followed at once per session, at most; older ones are closed.
const OPEN: usize = 64;

/// The start of a session's id: enough to tell sessions apart in a log, too little to act as its holder.
pub fn short(session: SessionId) -> String {
    let mut text = session.to_string();
    text.truncate(8);
    text
}

/// Projects the records of one session to `tracing` spans under the target `antiphon::turn`.
#[derive(Debug)]
pub struct Tracer {
    session: String,
    turns: BTreeMap<TurnId, Span>,
    tasks: BTreeMap<TaskId, Span>,
    calls: BTreeMap<CallId, Call>,
}

/// A call, as far as its task's span wants to know.
#[derive(Debug)]
struct Call {
    tool: String,
    task: Option<TaskId>,
}

impl Tracer {
    /// A tracer for `session`.
    pub fn new(session: SessionId) -> Self {
        Tracer { session: short(session), turns: BTreeMap::new(), tasks: BTreeMap::new(), calls: BTreeMap::new() }
    }

    /// Takes one record into account. Call it once for each, in order.
    pub fn absorb(&mut self, record: &Record) {
        let at_us = record.at.as_micros();
        let turn = record.turn.and_then(|id| self.turns.get(&id));
        match &record.event {
            Event::SessionStarted { .. } => {
                tracing::info!(target: "antiphon::turn", session = self.session, "session started");
            }
            Event::SessionEnded => {
                self.tasks.clear();
                self.turns.clear();
                self.calls.clear();
                tracing::info!(target: "antiphon::turn", session = self.session, at_us, "session ended");
            }
            Event::TurnAccepted { parent, deadline } => {
                let Some(id) = record.turn else { return };
                let span = tracing::info_span!(
                    target: "antiphon::turn",
                    parent: None,
                    "turn",
                    session = self.session,
                    turn = id.0,
                    parent_turn = parent.map(|p| p.0),
                    generation = record.generation.0,
                    accepted_us = at_us,
                    deadline_us = deadline.as_micros(),
                    started_us = field::Empty,
                    audio_us = field::Empty,
                    stop_asked_us = field::Empty,
                    ended_us = field::Empty,
                    terminal = field::Empty,
                );
                self.turns.insert(id, span);
                bound(&mut self.turns);
            }
            Event::TurnStarted { .. } => note(turn, "started_us", at_us),
            Event::AudioStarted => note(turn, "audio_us", at_us),
            Event::CancelRequested { cause, initiator, .. } => {
                note(turn, "stop_asked_us", at_us);
                tracing::info!(target: "antiphon::turn", parent: turn.and_then(Span::id), %cause, ?initiator, at_us, "cancel requested");
            }
            Event::BargeIn { onset, evidence, .. } => {
                note(turn, "stop_asked_us", at_us);
                tracing::info!(
                    target: "antiphon::turn",
                    parent: turn.and_then(Span::id),
                    onset_us = onset.as_micros(),
                    at_us,
                    voiced_us = evidence.voiced_us,
                    "barge-in"
                );
            }
            Event::FalseInterruption { held_us, .. } => {
                tracing::debug!(target: "antiphon::turn", parent: turn.and_then(Span::id), held_us, at_us, "false interruption");
            }
            Event::Silenced { stale, tail: Some(tail), .. } => {
                tracing::info!(
                    target: "antiphon::turn",
                    parent: turn.and_then(Span::id),
                    session = self.session,
                    generation = stale.0,
                    detect_us = tail.detect_us,
                    decide_us = tail.decide_us,
                    flush_us = tail.flush_us,
                    downstream_us = tail.downstream_us,
                    to_silence_us = tail.to_silence_us,
                    downstream_measured = tail.downstream_measured,
                    "audible tail"
                );
            }
            Event::TaskStarted { task, stage } => {
                let span = tracing::info_span!(
                    target: "antiphon::turn",
                    parent: turn.and_then(Span::id),
                    "task",
                    session = self.session,
                    task = task.0,
                    stage = %stage,
                    call = field::Empty,
                    tool = field::Empty,
                    started_us = at_us,
                    committed_us = field::Empty,
                    ended_us = field::Empty,
                    outcome = field::Empty,
                );
                // The call may have been told first.
                if let Some((id, call)) = self.calls.iter().find(|(_, call)| call.task == Some(*task)) {
                    name(&span, *id, call);
                }
                self.tasks.insert(*task, span);
                bound(&mut self.tasks);
            }
            Event::TaskEnded { task, outcome, .. } => {
                if let Some(span) = self.tasks.remove(task) {
                    span.record("ended_us", at_us);
                    span.record("outcome", field::debug(outcome));
                }
            }
            Event::CallRequested { call, tool, .. } => {
                tracing::info!(target: "antiphon::turn", parent: turn.and_then(Span::id), call = call.0, tool, at_us, "call requested");
                self.calls.insert(*call, Call { tool: tool.clone(), task: None });
                bound(&mut self.calls);
            }
            Event::CallStarted { call, task } => {
                if let Some(known) = self.calls.get_mut(call) {
                    known.task = Some(*task);
                    if let Some(span) = self.tasks.get(task) {
                        name(span, *call, known);
                    }
                }
            }
            Event::CommitSent { call } => {
                if let Some(span) = self.calls.get(call).and_then(|known| self.tasks.get(&known.task?)) {
                    span.record("committed_us", at_us);
                }
            }
            Event::CallKept { call, from } => {
                tracing::info!(target: "antiphon::turn", parent: turn.and_then(Span::id), call = call.0, from = from.0, at_us, "call kept");
            }
            Event::CallEnded { call, ending, .. } => {
                tracing::info!(target: "antiphon::turn", parent: turn.and_then(Span::id), call = call.0, %ending, at_us, "call ended");
                self.calls.remove(call);
            }
            Event::Reconciled { call, outcome } => {
                let turn = record.turn.map(|turn| turn.0);
                tracing::info!(target: "antiphon::turn", session = self.session, turn, call = call.0, ?outcome, at_us, "reconciled");
            }
            Event::HandedOver { from, .. } => {
                tracing::info!(target: "antiphon::turn", parent: turn.and_then(Span::id), from = from.0, at_us, "handed over");
            }
            Event::TurnEnded { terminal, .. } => {
                note(turn, "ended_us", at_us);
                let span = record.turn.and_then(|id| self.turns.remove(&id));
                if let Some(span) = &span {
                    span.record("terminal", field::display(terminal));
                }
                tracing::info!(
                    target: "antiphon::turn",
                    parent: span.as_ref().and_then(Span::id),
                    session = self.session,
                    turn = record.turn.map(|t| t.0),
                    %terminal,
                    at_us,
                    "turn ended"
                );
            }
            Event::LateDropped { kind, stale } => {
                tracing::debug!(target: "antiphon::turn", session = self.session, ?kind, generation = stale.0, at_us, "late output dropped");
            }
            Event::Underrun { gap_us } => {
                tracing::warn!(target: "antiphon::turn", session = self.session, gap_us, at_us, "the loudspeaker ran dry");
            }
            Event::Odd { what } => {
                tracing::warn!(target: "antiphon::turn", session = self.session, what, at_us, "odd input");
            }
            Event::LinkLost => tracing::info!(target: "antiphon::turn", session = self.session, at_us, "link lost"),
            Event::LinkUp => tracing::info!(target: "antiphon::turn", session = self.session, at_us, "link up"),
            _ => {}
        }
    }
}

/// Tells whose call a task carries out.
fn name(span: &Span, id: CallId, call: &Call) {
    span.record("call", id.0);
    span.record("tool", &call.tool);
}

fn note(turn: Option<&Span>, field: &'static str, at_us: u64) {
    if let Some(span) = turn {
        span.record(field, at_us);
    }
}

fn bound<K: Ord, V>(open: &mut BTreeMap<K, V>) {
    if open.len() > OPEN {
        open.pop_first();
    }
}

// The subscriber that shows spans comes with the server.
#[cfg(all(test, feature = "server"))]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::format::FmtSpan;

    use super::*;
    use crate::event::{CallEnding, CancelCause, IdempotencyKey, Initiator, Stage, TaskOutcome, Terminal, Timing, VERSION};
    use crate::id::{Generation, RequestId, Seq};
    use crate::time::Stamp;

    const RETRIEVE: (TaskId, Stage) = (TaskId(8), Stage::Retrieve);
    const TOOL: (TaskId, Stage) = (TaskId(9), Stage::Tool);

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic while logging").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_turn_is_a_span_with_its_tasks_as_children_and_without_a_word_of_it() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let (task, stage) = (TaskId(7), Stage::Generate);
        let cause = CancelCause::User;
        let (call, key) = (CallId(1), IdempotencyKey("k".into()));
        let story = [
            (10, Event::TurnAccepted { parent: Some(TurnId(1)), deadline: Stamp::from_millis(300_000) }),
            (11, Event::TurnStarted { input: "a secret wish".into() }),
            (11, Event::TaskStarted { task: RETRIEVE.0, stage: RETRIEVE.1 }),
            (11, Event::TaskEnded { task: RETRIEVE.0, stage: RETRIEVE.1, outcome: TaskOutcome::Finished }),
            (11, Event::TaskStarted { task, stage }),
            (12, Event::CallRequested { call, tool: "book".into(), arguments: "a secret place".into(), key: key.clone() }),
            (12, Event::CallStarted { call, task: TOOL.0 }),
            (12, Event::TaskStarted { task: TOOL.0, stage: TOOL.1 }),
            (13, Event::CommitSent { call }),
            (14, Event::CallEnded { call, ending: CallEnding::Done, result: Some("a secret seat".into()) }),
            (14, Event::TaskEnded { task: TOOL.0, stage: TOOL.1, outcome: TaskOutcome::Finished }),
            (20, Event::ReplyText { delta: "a secret answer".into() }),
            (30, Event::CancelRequested { cause, initiator: Initiator::Client, request: RequestId::from_bits(1) }),
            (35, Event::TaskEnded { task, stage, outcome: TaskOutcome::Stopped }),
            (
                40,
                Event::TurnEnded {
                    terminal: Terminal::Cancelled { cause },
                    heard: "a secret".into(),
                    unheard: " answer".into(),
                    timing: Timing::Exact,
                },
            ),
        ];
        tracing::subscriber::with_default(subscriber, || {
            let mut tracer = Tracer::new(SessionId::from_bits(0xabcd_ef01 << 96));
            for (seq, (at, event)) in (1..).zip(story) {
                let (at, turn) = (Stamp::from_millis(at), Some(TurnId(2)));
                tracer.absorb(&Record { v: VERSION, seq: Seq(seq), at, turn, generation: Generation(3), event });
            }
        });
        let log = String::from_utf8(lines.0.lock().expect("no panic while logging").clone()).expect("text");
        let closed: Vec<&str> = log.lines().filter(|line| line.contains("close") && line.contains(":task{")).collect();
        for (task, parts) in closed.iter().zip([
            &["turn{", "stage=retrieve", "started_us=11000", "outcome=Finished"][..],
            &["turn{", "stage=tool", "call=1", "tool=\"book\"", "started_us=12000", "committed_us=13000", "ended_us=14000"],
            &["turn{", "stage=generate", "started_us=11000", "ended_us=35000", "outcome=Stopped"],
        ]) {
            for part in parts {
                assert!(task.contains(part), "{part} is missing from {task}");
            }
        }
        assert_eq!(closed.len(), 3);
        let turn = log.lines().rfind(|line| line.contains("close")).expect("the turn is closed last");
        for part in ["session=\"abcdef01\"", "turn=2", "parent_turn=1", "stop_asked_us=30000", "terminal=CANCELLED(user)"] {
            assert!(turn.contains(part), "{part} is missing from {turn}");
        }
        assert!(!log.contains("secret"), "{log}");
    }
}
