//! After the process died: records in, a machine out, and nothing that was made before passes a door.

use antiphon::event::{Event, Record, Stage, TaskOutcome, Timing};
use antiphon::id::{Generation, TurnId};
use antiphon::turn::*;

use crate::world::*;

/// The world after a crash: the same records, another machine.
fn restarted(w: &World) -> World {
    let mut next = World::around(Machine::restore(Policy::default(), w.records.iter().cloned(), w.now));
    next.now = w.now;
    next.records = w.records.clone();
    next.delivered = w.records.iter().map(|r| r.seq).collect();
    next
}

#[test]
fn a_running_turn_becomes_failed_restarted_and_the_conversation_goes_on() {
    let mut w = World::new();
    let old = w.say("tell me a story");
    w.model("once upon a time there was a king and a queen");
    w.audio(3_000, 45);
    w.wait(400);
    w.played(400);
    w.wait(600);
    w.model(" ");
    let mut w = restarted(&w);
    w.step(Input::Begin { session: SESSION, wall_unix_ms: 9 });
    assert_eq!(w.end(old), "FAILED(restarted)");
    assert_eq!(w.how_many("session_started"), 1, "one header");
    // 600 ms of sound at 20 characters a second at most: 12 characters, back to a word.
    assert_eq!(w.heard(old), ("once upon a ".into(), "time there was a king and a queen ".into(), Timing::Estimated));
    assert_eq!(outcome(&w, Stage::Generate), Some(TaskOutcome::Aborted));
    let next = w.say("go on");
    assert_eq!(next, TurnId(2));
    assert_eq!(w.context(), ["u:tell me a story", "a:once upon a/", "u:go on"]);
    assert!(w.job(Stage::Generate).generation > Generation(1), "above the highest ever");
}

#[test]
fn what_never_sounded_was_not_heard() {
    let mut w = World::new();
    let old = w.answer_made("never played", 500);
    w.wait(2_000);
    let mut w = restarted(&w);
    w.step(Input::Tick);
    assert_eq!(w.heard(old).0, "");
}

#[test]
fn the_end_is_written_once_over_any_number_of_restarts() {
    let mut w = World::new();
    let turn = w.say("?");
    for generation in 2..6 {
        w = restarted(&w);
        w.step(Input::Tick);
        assert_eq!(w.end(turn), "FAILED(restarted)");
        assert_eq!(w.m.generation(), Generation(generation));
    }
}

#[test]
fn cancels_and_terminals_are_remembered() {
    let mut w = World::new();
    let done = w.answer_made("hello", 100);
    w.played(100);
    let stopped = w.say("again");
    let request = w.cancel(stopped);
    let before = w.m.snapshot();
    let mut w = restarted(&w);
    let records = w.records.len();
    w.cancel_as(request, stopped);
    assert_eq!(w.answer(request), Some(Answer::Cancel(CancelAnswer::Accepted)), "the same answer as before the crash");
    let late = antiphon::id::RequestId::from_bits(0xfeed);
    w.cancel_as(late, done);
    assert!(matches!(w.answer(late), Some(Answer::Cancel(CancelAnswer::AlreadyTerminal(_)))));
    let news: Vec<_> = w.records[records..].iter().map(|r| name(&r.event)).collect();
    assert_eq!(news, ["generation_raised"], "nothing revives");
    let after = w.m.snapshot();
    assert_eq!((after.ended, after.turn), (before.ended, None));
}

#[test]
fn a_closed_session_stays_closed() {
    let mut w = World::new();
    w.close();
    assert!(w.finished);
    let mut w = restarted(&w);
    let records = w.records.len();
    w.step(Input::Begin { session: SESSION, wall_unix_ms: 9 });
    assert!(matches!(w.ask("hello"), SayAnswer::NotAccepted { .. }));
    assert_eq!((w.records.len(), w.m.is_over()), (records, true));
}

#[test]
fn an_empty_log_is_a_new_session() {
    let m = Machine::restore(Policy::default(), Vec::<Record>::new(), antiphon::time::Stamp::ZERO);
    let mut w = World::around(m);
    w.step(Input::Begin { session: SESSION, wall_unix_ms: 9 });
    assert_eq!(w.how_many("session_started"), 1);
    assert_eq!((w.fence, w.say("hello")), (Generation(1), TurnId(1)));
}

#[test]
fn records_of_a_newer_version_are_passed_over() {
    let mut w = World::new();
    w.say("hello");
    let mut unknown = w.records[0].clone();
    unknown.event = Event::Unknown;
    unknown.seq = w.records.last().expect("some").seq.next();
    unknown.at = w.now;
    unknown.generation = Generation(9);
    w.records.push(unknown);
    let mut w = restarted(&w);
    w.step(Input::Tick);
    assert_eq!(w.m.generation(), Generation(10));
}

#[test]
fn h3_who_comes_back_is_told_the_end_before_anything_else() {
    let mut w = World::new();
    let turn = w.answer_sounding("a long story", 5_000, 1_000);
    w.step(Input::Link(LinkFact::Lost));
    w.wait(100);
    assert_eq!(w.end(turn), "CANCELLED(transport)");
    w.step(Input::Link(LinkFact::Up));
    let snapshot = w.m.snapshot();
    assert!(snapshot.turn.is_none() && snapshot.stopping.is_empty(), "nothing pretends to run");
    let ended = &snapshot.ended[0];
    assert_eq!((ended.turn, ended.terminal.to_string()), (turn, "CANCELLED(transport)".to_owned()));
    assert_eq!(snapshot.last_seq, w.records.last().expect("some").seq, "and from where the records go on");
}
