//! Live = replayed, each definition by a small story, and memory that does not grow.

use std::time::Duration;

use super::*;
use crate::event::{
    CallEnding, CallFailure, CancelCause, Evidence, FailReason, IdempotencyKey, Initiator, LateKind, NotStarted, Outcome, Stage,
    Tail, TaskOutcome, Timing, VERSION,
};
use crate::id::{CallId, Generation, RequestId, Seq, TaskId, TurnId, UtteranceId};
use crate::time::{SamplePos, Stamp};

const HERE: SessionId = SessionId::from_bits(1);

/// A session's log, written a line at a time.
struct Log {
    session: SessionId,
    records: Vec<(SessionId, Record)>,
}

impl Log {
    fn of(session: SessionId) -> Self {
        let mut log = Log { session, records: Vec::new() };
        log.add(0, None, 1, Event::SessionStarted { wall_unix_ms: 0 });
        log
    }

    fn add(&mut self, at_ms: u64, turn: Option<u64>, generation: u64, event: Event) -> &mut Self {
        let seq = Seq(self.records.len() as u64 + 1);
        let turn = turn.map(TurnId);
        let record = Record { v: VERSION, seq, at: Stamp::from_millis(at_ms), turn, generation: Generation(generation), event };
        self.records.push((self.session, record));
        self
    }

    fn metrics(&self) -> Metrics {
        Metrics::from_records(self.records.iter().map(|(s, r)| (*s, r)))
    }

    /// Somebody says something at 0..1,000 ms; the turn is accepted at 1,700, answers at 1,900, sounds at 2,100.
    fn spoken_turn(&mut self) -> &mut Self {
        let utterance = UtteranceId(1);
        self.add(100, None, 1, Event::SpeechStarted { utterance, onset: Stamp::ZERO })
            .add(1_600, None, 1, Event::SpeechEnded { utterance, end: Stamp::from_millis(1_000) })
            .add(1_700, None, 1, Event::Transcript { utterance, text: "tell me a story".into(), is_final: true })
            .turn(1_700, 1, 1)
    }

    fn turn(&mut self, at_ms: u64, turn: u64, generation: u64) -> &mut Self {
        let t = Some(turn);
        self.add(at_ms, t, generation, Event::TurnAccepted { parent: None, deadline: Stamp::MAX })
            .add(at_ms + 10, t, generation, Event::TurnStarted { input: "tell me a story".into() })
            .add(at_ms + 10, t, generation, Event::TaskStarted { task: TaskId(turn * 10), stage: Stage::Generate })
            .add(at_ms + 200, t, generation, reply("Once "))
            .add(at_ms + 210, t, generation, reply("upon a time"))
            .add(at_ms + 400, t, generation, Event::AudioStarted)
    }
}

fn reply(text: &str) -> Event {
    Event::ReplyText { delta: text.into() }
}

fn cancel(cause: CancelCause) -> Event {
    Event::CancelRequested { cause, initiator: Initiator::Voice, request: RequestId::from_bits(5) }
}

fn ended(terminal: Terminal, unheard: &str) -> Event {
    Event::TurnEnded { terminal, heard: "Once".into(), unheard: unheard.into(), timing: Timing::Exact }
}

fn task_ended(task: u64) -> Event {
    Event::TaskEnded { task: TaskId(task), stage: Stage::Generate, outcome: TaskOutcome::Stopped }
}

fn barge_in() -> Event {
    Event::BargeIn {
        utterance: UtteranceId(2),
        onset: Stamp::from_millis(2_900),
        heard_until: SamplePos(480),
        evidence: Evidence::default(),
    }
}

fn silenced(tail: Option<Tail>) -> Event {
    Event::Silenced { stale: Generation(1), last_sample: SamplePos(480), tail }
}

const TAIL: Tail = Tail {
    detect_us: 40_000,
    decide_us: 1_000,
    flush_us: 9_000,
    downstream_us: 60_000,
    to_silence_us: 110_000,
    to_hold_us: Some(110_000),
    to_cut_us: 165_000,
    downstream_measured: true,
};

fn ms(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

fn asks(call: u64) -> Event {
    let key = IdempotencyKey(format!("k{call}"));
    Event::CallRequested { call: CallId(call), tool: "book".into(), arguments: "{}".into(), key }
}

fn call_ended(call: u64, ending: CallEnding) -> Event {
    Event::CallEnded { call: CallId(call), ending, result: None }
}

fn reconciled(call: u64, outcome: Outcome) -> Event {
    Event::Reconciled { call: CallId(call), outcome }
}

/// A turn that is stopped at 3,000 ms while three calls have committed and two have not.
fn stopped_in_commits() -> Log {
    let required = Terminal::ReconcileRequired { calls: vec![CallId(1), CallId(2), CallId(3)] };
    let mut log = Log::of(HERE);
    log.turn(1_000, 1, 1);
    for call in 1..=5 {
        log.add(2_000, Some(1), 1, asks(call));
    }
    for call in 1..=3 {
        log.add(2_500, Some(1), 1, Event::CommitSent { call: CallId(call) });
    }
    log.add(3_000, Some(1), 1, cancel(CancelCause::User))
        .add(3_000, None, 2, Event::GenerationRaised { from: Generation(1) })
        .add(3_020, Some(1), 2, silenced(None))
        .add(3_030, Some(1), 2, call_ended(4, CallEnding::Cancelled))
        .add(3_040, Some(1), 2, call_ended(1, CallEnding::Done))
        .add(3_050, Some(1), 2, task_ended(10))
        .add(3_100, Some(1), 2, call_ended(2, CallEnding::Unknown))
        .add(3_100, Some(1), 2, call_ended(3, CallEnding::Unknown))
        .add(3_100, Some(1), 2, call_ended(5, CallEnding::NotStarted { why: NotStarted::Cancelled }))
        .add(3_100, Some(1), 2, ended(required, ""))
        .add(3_100, Some(1), 2, reconciled(1, Outcome::Happened));
    log
}

#[test]
fn the_three_objectives_of_a_stop_are_three() {
    let m = stopped_in_commits().add(5_000, Some(1), 2, reconciled(2, Outcome::DidNotHappen)).metrics();
    assert_eq!(m.objectives().delivery_stopped().max(), ms(20));
    assert_eq!((m.objectives().work_stopped().max(), m.objectives().work_aborted()), (ms(50), 0));
    assert_eq!((m.calls().confirmed().count(), m.calls().confirmed().min(), m.calls().confirmed().max()), (2, ms(100), ms(2_000)));
    assert_eq!(m.calls().open(), 1, "the third is not known yet");

    let mut aborted = Log::of(HERE);
    let outcome = TaskOutcome::Aborted;
    aborted
        .add(1_000, Some(1), 1, Event::TurnAccepted { parent: None, deadline: Stamp::MAX })
        .add(1_010, Some(1), 1, cancel(CancelCause::User))
        .add(1_110, Some(1), 1, Event::TaskEnded { task: TaskId(10), stage: Stage::Generate, outcome })
        .add(1_110, Some(1), 1, ended(Terminal::Cancelled { cause: CancelCause::User }, ""));
    let m = aborted.metrics();
    assert_eq!(m.objectives().delivery_stopped().max(), ms(0), "nothing sounded");
    assert_eq!((m.objectives().work_stopped().count(), m.objectives().work_aborted()), (0, 1), "it did not stop by itself");
    assert_eq!(m.cancel_propagation().max(), ms(100));
}

#[test]
fn a_side_effect_after_a_stop_is_counted_once_with_its_reason() {
    let mut log = stopped_in_commits();
    let m = log.metrics();
    let endings = CallEndings { done: 1, failed: 0, cancelled: 1, unknown: 2, not_started: 1 };
    assert_eq!(m.calls().by_ending(), endings);
    assert_eq!(m.calls().side_effects_after_stop(), SideEffects { under_way: 1, found_out: 0, let_through: 0 });
    assert_eq!((m.calls().open(), m.calls().conflicts()), (2, 0));

    log.add(5_000, Some(1), 2, reconciled(2, Outcome::NeedsPerson));
    assert_eq!(log.metrics().calls().open(), 2, "a person has to look: it stays open");
    log.add(6_000, Some(1), 2, reconciled(2, Outcome::Compensated)).add(6_000, Some(1), 2, reconciled(3, Outcome::Happened));
    let m = log.metrics();
    assert_eq!(m.calls().side_effects_after_stop(), SideEffects { under_way: 1, found_out: 2, let_through: 0 });
    let outcomes = Outcomes { happened: 2, did_not_happen: 0, compensated: 1, needs_person: 1 };
    assert_eq!((m.calls().reconciled(), m.calls().open()), (outcomes, 0));

    // What must never be is noticed.
    log.add(7_000, Some(1), 2, Event::CommitSent { call: CallId(4) }).add(7_000, Some(1), 2, call_ended(1, CallEnding::Done));
    let m = log.metrics();
    assert_eq!((m.calls().side_effects_after_stop().let_through, m.calls().conflicts()), (1, 1));
    assert_eq!(m.calls().by_ending().done, 1);
}

#[test]
fn a_call_that_nobody_stopped_is_no_side_effect_after_a_stop() {
    let failed = CallEnding::Failed { failure: CallFailure::Timeout };
    let mut log = Log::of(HERE);
    log.turn(0, 1, 1).add(500, Some(1), 1, asks(1)).add(500, Some(1), 1, asks(2)).add(500, Some(1), 1, asks(3));
    // Lost in a turn that goes on, and found out while it does and after.
    for call in [4, 5] {
        log.add(500, Some(1), 1, asks(call)).add(501, Some(1), 1, Event::CommitSent { call: CallId(call) });
        log.add(505, Some(1), 1, call_ended(call, CallEnding::Unknown));
    }
    log.add(508, Some(1), 1, reconciled(4, Outcome::Happened));
    log.add(510, Some(1), 1, Event::CommitSent { call: CallId(1) })
        .add(600, Some(1), 1, cancel(CancelCause::BargeIn))
        .add(600, Some(2), 2, Event::TurnAccepted { parent: Some(TurnId(1)), deadline: Stamp::MAX })
        .add(600, Some(2), 2, Event::CallKept { call: CallId(1), from: TurnId(1) })
        .add(700, Some(2), 2, call_ended(1, CallEnding::Done))
        .add(700, Some(1), 2, call_ended(2, failed))
        // It read something, and nobody had stopped its turn's work outside.
        .add(700, Some(1), 2, call_ended(3, CallEnding::Done))
        .add(800, Some(1), 2, reconciled(5, Outcome::Happened));
    let m = log.metrics();
    assert_eq!(m.calls().side_effects_after_stop(), SideEffects::default());
    assert_eq!(m.calls().reconciled().happened, 2);
    assert_eq!((m.calls().by_ending().done, m.calls().by_ending().failed), (2, 1));
}

#[test]
fn steering_and_wasted_text_are_counted() {
    let input = RequestId::from_bits(1);
    let mut log = Log::of(HERE);
    log.turn(0, 1, 1)
        .add(500, Some(1), 1, Event::InputQueued { input, text: "a secret".into() })
        .add(500, Some(1), 1, Event::InputQueued { input, text: "a secret".into() })
        .add(600, Some(1), 1, Event::InputConsumed { input, request: 2 })
        .add(700, Some(1), 1, Event::InputReturned { input, text: "a secret".into() })
        .add(800, Some(1), 2, Event::LateDropped { kind: LateKind::Text, stale: Generation(1) })
        .add(800, Some(1), 2, Event::LateDropped { kind: LateKind::Audio, stale: Generation(1) });
    let m = log.metrics();
    assert_eq!(m.steering(), Steering { queued: 2, consumed: 1, returned: 1 });
    assert_eq!((m.late_texts(), m.late_events().dropped), (1, 2));
}

#[test]
fn memory_does_not_grow_with_the_calls() {
    let mut log = Log::of(HERE);
    log.turn(0, 1, 1);
    for call in 1..2_000 {
        log.add(500, Some(1), 1, asks(call));
        if call % 3 > 0 {
            log.add(500, Some(1), 1, call_ended(call, CallEnding::Done));
        }
    }
    let m = log.metrics();
    assert!(m.sessions[&HERE].call_count() <= 256, "{} calls are remembered", m.sessions[&HERE].call_count());
}

/// A conversation with everything in it that is measured.
fn barged_in(session: SessionId) -> Log {
    let cancelled = Terminal::Cancelled { cause: CancelCause::BargeIn };
    let mut log = Log::of(session);
    log.spoken_turn()
        .add(2_500, Some(1), 1, Event::Underrun { gap_us: 20_000 })
        .add(
            2_940,
            Some(1),
            1,
            Event::Held { utterance: UtteranceId(2), onset: Stamp::from_millis(2_900), evidence: Evidence::default() },
        )
        .add(3_060, Some(1), 1, barge_in())
        .add(3_060, Some(1), 2, cancel(CancelCause::BargeIn))
        .add(3_060, None, 2, Event::GenerationRaised { from: Generation(1) })
        .add(3_065, Some(1), 2, silenced(Some(TAIL)))
        .add(3_070, Some(1), 2, Event::LateDropped { kind: LateKind::Text, stale: Generation(1) })
        .add(3_080, Some(1), 2, task_ended(10))
        .add(3_090, Some(1), 2, task_ended(11))
        .add(3_095, Some(1), 2, ended(cancelled, " upon a time"))
        .turn(4_000, 2, 2)
        .add(6_000, Some(2), 2, task_ended(20))
        .add(6_000, Some(2), 2, ended(Terminal::Completed, ""));
    log
}

#[test]
fn each_number_is_what_its_definition_says() {
    let m = barged_in(HERE).metrics();
    assert_eq!((m.ttft().min(), m.ttft().max(), m.ttft().count()), (ms(190), ms(190), 2), "turn started to first text");
    assert_eq!(m.ttfa().max(), ms(1_100), "a spoken turn counts from the end of the speech, on the capture clock");
    assert_eq!(m.ttfa().min(), ms(390), "a typed turn counts from its start");
    assert_eq!((m.e2e().min(), m.e2e().max()), (ms(1_395), ms(2_000)), "accepted to terminal");
    assert_eq!((m.cancel_propagation().max(), m.cancel_propagation().count()), (ms(30), 1), "barge-in to the last task ended");
    assert_eq!((m.audible_tail().p(50.0), m.tail(TailPart::ToCut).p(50.0)), (ms(110), ms(165)));
    assert_eq!(m.tails().recent().map(|t| (t.session, t.turn, t.tail)).collect::<Vec<_>>(), [(HERE, Some(TurnId(1)), TAIL)]);
    assert_eq!(m.late_events(), LateEvents { dropped: 1, delivered: 0 });
    assert_eq!(m.turns_by_terminal(), Terminals { completed: 1, cancelled: 1, ..Terminals::default() });
    assert_eq!((m.barge_ins(), m.holds(), m.false_interruptions(), m.underruns()), (1, 1, 0, 1));
    assert_eq!((m.terminal_conflicts(), m.duplicate_cancel_effects(), m.unheard_chars()), (0, 0, 12));
}

#[test]
fn the_replayed_log_tells_the_same_numbers() {
    // Two sessions, interleaved live, and read back from a file one after the other.
    let logs = [barged_in(HERE), barged_in(SessionId::from_bits(2))];
    let mut live = Metrics::new();
    for at in 0..logs[0].records.len() {
        for log in &logs {
            let (session, record) = &log.records[at];
            live.absorb(*session, record);
        }
    }
    let mut replayed = Metrics::new();
    for (session, record) in logs.iter().flat_map(|log| &log.records) {
        let line = serde_json::to_string(record).expect("a record serialises");
        let read: Record = serde_json::from_str(&line).expect("and comes back");
        replayed.absorb(*session, &read);
    }
    assert_eq!(live.turns(), 4);
    // The order of recent tails is the order of absorbing; everything else must agree as it stands.
    assert_eq!(live, replayed);
    assert_ne!(live, logs[0].metrics(), "the comparison can tell a difference");
}

#[test]
fn output_after_a_cancel_a_terminal_or_a_bump_counts_as_delivered_late() {
    let delivered = |before: Option<(Option<u64>, u64, Event)>| {
        let mut log = Log::of(HERE);
        log.turn(0, 1, 1);
        if let Some((turn, generation, event)) = before {
            log.add(450, turn, generation, event);
        }
        log.add(500, Some(1), 1, reply("ghost"));
        log.metrics().late_events().delivered
    };
    assert_eq!(delivered(None), 0);
    assert_eq!(delivered(Some((Some(1), 1, cancel(CancelCause::User)))), 1);
    assert_eq!(delivered(Some((Some(1), 1, ended(Terminal::Completed, "")))), 1);
    assert_eq!(delivered(Some((None, 2, Event::GenerationRaised { from: Generation(1) }))), 1);
}

#[test]
fn a_second_terminal_and_a_second_cancel_are_counted_and_change_nothing_else() {
    let failed = Terminal::Failed { reason: FailReason::NothingHeard };
    let mut log = Log::of(HERE);
    log.turn(0, 1, 1)
        .add(500, Some(1), 1, cancel(CancelCause::User))
        .add(510, Some(1), 1, cancel(CancelCause::Shutdown))
        .add(600, Some(1), 1, ended(failed.clone(), "abc"))
        .add(900, Some(1), 1, ended(failed, "abc"));
    let m = log.metrics();
    assert_eq!((m.terminal_conflicts(), m.duplicate_cancel_effects()), (1, 1));
    assert_eq!((m.turns(), m.e2e().count(), m.unheard_chars()), (1, 1, 3));
    assert_eq!(m.cancel_propagation().count(), 0, "no task was running");
}

#[test]
fn a_turn_is_spoken_when_the_last_utterance_had_words_final_or_not() {
    let utterance = UtteranceId(1);
    let ttfa_after = |words: &[(&str, bool)], false_alarm: bool| {
        let mut log = Log::of(HERE);
        log.add(500, None, 1, Event::SpeechEnded { utterance, end: Stamp::from_millis(400) });
        for (text, is_final) in words {
            log.add(600, None, 1, Event::Transcript { utterance, text: (*text).into(), is_final: *is_final });
        }
        if false_alarm {
            log.add(700, None, 1, Event::FalseInterruption { utterance, held_us: 1, evidence: Evidence::default() });
        }
        log.turn(1_000, 1, 1).metrics().ttfa().max()
    };
    let (spoken, typed) = (ms(1_000), ms(390));
    assert_eq!(ttfa_after(&[("tell", false), ("tell me", true)], false), spoken);
    assert_eq!(ttfa_after(&[("tell", false)], false), spoken, "a recogniser that took too long");
    assert_eq!(ttfa_after(&[("", true)], false), typed, "no words");
    assert_eq!(ttfa_after(&[("tell", false), ("", true)], false), typed, "words taken back");
    assert_eq!(ttfa_after(&[("mm", false)], true), typed, "a false alarm");
}

#[test]
fn memory_grows_neither_with_turns_nor_with_sessions() {
    let mut log = Log::of(HERE);
    for turn in 1..=200 {
        log.turn(turn * 10_000, turn, 1).add(turn * 10_000 + 500, Some(turn), 1, ended(Terminal::Completed, ""));
    }
    let mut m = log.metrics();
    assert_eq!(m.turns(), 200);
    assert!(m.sessions[&HERE].turn_count() <= 32, "{} turns are remembered", m.sessions[&HERE].turn_count());
    // A forgotten turn's second terminal is still a conflict, not a new turn.
    log.add(9_000_000, Some(3), 1, ended(Terminal::Completed, ""));
    m.absorb(HERE, &log.records.last().expect("just added").1);
    assert_eq!((m.turns(), m.terminal_conflicts()), (200, 1));

    log.add(9_000_001, None, 1, Event::SessionEnded);
    m.absorb(HERE, &log.records.last().expect("just added").1);
    assert_eq!(m.open_sessions(), 0, "an ended session leaves only its numbers");

    for n in 0..SESSIONS as u128 + 5 {
        let begun = Log::of(SessionId::from_bits(n));
        m.absorb(begun.records[0].0, &begun.records[0].1);
    }
    assert_eq!(m.open_sessions(), SESSIONS, "sessions that never end are bounded too");
    assert!(!m.sessions.contains_key(&SessionId::from_bits(4)), "and the longest untouched goes first");
}
