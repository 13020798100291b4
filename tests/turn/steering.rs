//! Steering: input for a turn that runs, taken or handed back, shown to the model once.

use antiphon::event::{Cancellability, Declaration, Event, FailReason, Stage};
use antiphon::id::{RequestId, TurnId};
use antiphon::turn::*;

use crate::world::*;

fn refused(refusal: Refusal, text: &str) -> SubmitAnswer {
    SubmitAnswer::NotSubmitted { refusal, text: text.into() }
}

/// The requests whose input was shown to the model, with the number of the question.
fn consumed(w: &World) -> Vec<(RequestId, u32)> {
    (w.events())
        .filter_map(|e| match e {
            Event::InputConsumed { input, request } => Some((*input, *request)),
            _ => None,
        })
        .collect()
}

#[test]
fn h7_the_three_modes_say_what_they_did() {
    let mut w = World::new();
    assert_eq!(w.submit("go", SubmitMode::Steer { expected: TurnId(1) }), refused(Refusal::NoActiveTurn, "go"));
    assert_eq!(w.submit("go", SubmitMode::StartIfIdle), SubmitAnswer::Started(TurnId(1)));
    assert_eq!(w.submit("left", SubmitMode::StartIfIdle), refused(Refusal::ExpectedTurnMismatch { actual: TurnId(1) }, "left"));
    assert_eq!(
        w.submit("left", SubmitMode::Steer { expected: TurnId(7) }),
        refused(Refusal::ExpectedTurnMismatch { actual: TurnId(1) }, "left")
    );
    assert_eq!(w.submit(" ", SubmitMode::StartOrSteer), refused(Refusal::Empty, " "));
    assert_eq!(w.submit("left", SubmitMode::Steer { expected: TurnId(1) }), SubmitAnswer::Steered(TurnId(1)));
    assert_eq!(w.submit("right", SubmitMode::StartOrSteer), SubmitAnswer::Steered(TurnId(1)));
    w.cancel(TurnId(1));
    assert_eq!(w.submit("go", SubmitMode::StartOrSteer), SubmitAnswer::Started(TurnId(2)));
    let request = w.request();
    w.step(Input::Command(Command::Drain { request }));
    assert_eq!(w.submit("on", SubmitMode::StartOrSteer), refused(Refusal::Draining, "on"));
}

#[test]
fn input_is_shown_to_the_model_at_the_safe_point_and_accepted_is_not_adopted() {
    let mut w = World::new();
    let turn = w.say("tell me of the sea");
    w.model("The sea ");
    let input = w.request();
    assert_eq!(w.submit_as(input, "be brief", SubmitMode::StartOrSteer), SubmitAnswer::Steered(turn));
    assert!(w.has("input_queued") && !w.has("input_consumed"));
    w.model("is wide.");
    assert_eq!(w.count(Stage::Generate), 1, "not in the middle of an answer");
    w.model_done();
    assert_eq!(consumed(&w), [(input, 2)]);
    assert_eq!(w.context(), ["u:tell me of the sea", "a:The sea is wide.", "u:be brief"]);
    assert!(!w.has("reply_done"), "an answer that seems finished goes on");
    w.model("Wet, too.");
    w.model_done();
    w.audio(500, 16);
    w.audio_done();
    w.audio(400, 10);
    w.audio_done();
    w.played(900);
    assert_eq!((w.end(turn), w.heard(turn).0), ("COMPLETED".into(), "The sea is wide. Wet, too.".into()));
}

#[test]
fn input_while_the_answer_is_only_spoken_is_shown_at_once() {
    let mut w = World::new();
    let turn = w.answer_sounding("A long story.", 5_000, 1_000);
    assert_eq!(w.submit("shorter", SubmitMode::StartOrSteer), SubmitAnswer::Steered(turn));
    assert_eq!((w.count(Stage::Generate), w.end(turn)), (2, "-".into()));
    assert_eq!(w.context().last().map(String::as_str), Some("u:shorter"));
}

#[test]
fn input_waits_for_the_tools_too() {
    let mut w = World::tools([Declaration::new("look", Cancellability::ReadOnly)]);
    w.say("?");
    let call = w.call("look", "{}");
    w.model_done();
    w.submit("in the cellar", SubmitMode::StartOrSteer);
    assert_eq!(w.count(Stage::Generate), 1);
    w.tool_done(call, "nothing");
    assert_eq!(w.context(), ["u:?", "c1:look({})", "r1:done nothing", "u:in the cellar"]);
}

#[test]
fn h5_every_input_is_taken_once_or_handed_back() {
    let mut w = World::new();
    let turn = w.say("?");
    let input = w.request();
    for _ in 0..3 {
        assert_eq!(w.submit_as(input, "left", SubmitMode::StartOrSteer), SubmitAnswer::Steered(turn), "sent again");
    }
    assert_eq!(w.how_many("input_queued"), 1);
    w.polite = false;
    w.cancel(turn);
    assert!(!w.has("input_returned"), "not before the tasks have seen the cancel");
    w.wait(100);
    let returned: Vec<(RequestId, String)> = (w.of(turn))
        .filter_map(|e| match e {
            Event::InputReturned { input, text } => Some((*input, text.reveal().clone())),
            _ => None,
        })
        .collect();
    assert_eq!(returned, [(input, "left".into())]);
    assert_eq!(w.of(turn).last().map(name).as_deref(), Some("turn_ended"), "before the one terminal");
}

#[test]
fn a_full_inbox_hands_the_input_back() {
    let mut w = World::with(|p| p.budget.inbox = 1);
    let turn = w.say("?");
    assert_eq!(w.submit("one", SubmitMode::StartOrSteer), SubmitAnswer::Steered(turn));
    assert_eq!(w.submit("two", SubmitMode::StartOrSteer), refused(Refusal::InboxFull { turn }, "two"));
}

#[test]
fn input_for_a_turn_that_still_listens_is_shown_with_the_words_or_in_their_place() {
    for (words, want) in [("and a beer", vec!["u:?", "a:A/", "u:and a beer", "u:cold"]), ("", vec!["u:?", "a:A/", "u:cold"])] {
        let mut w = World::new();
        w.say("?");
        w.model("A long answer.");
        w.audio(5_000, 14);
        w.played(1_000);
        w.voice(300);
        let turn = w.live().expect("accepted");
        assert_eq!(w.submit("cold", SubmitMode::StartOrSteer), SubmitAnswer::Steered(turn));
        w.wait(650);
        w.final_words(words);
        assert_eq!(w.context(), want);
        assert_eq!(consumed(&w).iter().map(|(_, request)| *request).collect::<Vec<_>>(), [1]);
    }
}

// Announcements.

fn announce(w: &mut World, text: &str, interruptible: bool) -> SubmitAnswer {
    let request = w.request();
    w.step(Input::Command(Command::Announce { request, text: text.into(), interruptible }));
    match w.answer(request) {
        Some(Answer::Submit(answer)) => answer,
        other => panic!("answered at once: {other:?}"),
    }
}

#[test]
fn an_announcement_asks_no_model_and_cannot_be_steered() {
    let mut w = World::new();
    let SubmitAnswer::Started(turn) = announce(&mut w, "Good morning.", true) else { panic!("started") };
    assert_eq!((w.count(Stage::Generate), w.job(Stage::Synthesize).fed.as_str()), (0, "Good morning."));
    assert!(w.job(Stage::Synthesize).fed_all);
    assert_eq!(w.submit("what", SubmitMode::StartOrSteer), refused(Refusal::NotSteerable { turn }, "what"));
    w.audio(800, 13);
    w.audio_done();
    w.played(800);
    assert_eq!((w.end(turn), w.heard(turn).0), ("COMPLETED".into(), "Good morning.".into()));
    w.say("who is there");
    assert_eq!(w.context(), ["a:Good morning.", "u:who is there"]);
}

#[test]
fn b6_what_is_said_during_an_announcement_that_must_be_heard_is_answered_after_it() {
    let mut w = World::new();
    let SubmitAnswer::Started(turn) = announce(&mut w, "This call is recorded.", false) else { panic!("started") };
    w.audio(3_000, 22);
    w.audio_done();
    w.played(500);
    w.speak("fine with me");
    assert_eq!((w.end(turn), w.held()), ("-".into(), false));
    w.played(3_000);
    assert_eq!(w.end(turn), "COMPLETED");
    assert_eq!(w.context(), ["a:This call is recorded.", "u:fine with me"]);
}

#[test]
fn b8_an_announcement_that_has_not_sounded_is_superseded_whatever_its_flag() {
    let mut w = World::new();
    let SubmitAnswer::Started(turn) = announce(&mut w, "This call is recorded.", false) else { panic!("started") };
    w.speak("stop");
    assert_eq!(w.end(turn), "CANCELLED(superseded)");
    assert_eq!(w.context(), ["u:stop"]);
}

#[test]
fn b7_no_flag_makes_an_internal_stop_an_error() {
    let mut w = World::with(|p| p.floor.interruptible = false);
    let SubmitAnswer::Started(turn) = announce(&mut w, "One.", false) else { panic!("started") };
    w.audio(3_000, 4);
    w.played(500);
    let SubmitAnswer::Started(next) = announce(&mut w, "Two.", false) else { panic!("started") };
    assert_eq!((w.end(turn), w.parent(next)), ("CANCELLED(superseded)".into(), Some(turn)));
    w.close();
    w.wait(100);
    assert!(w.finished);
}

// Handing over.

fn hand_over(w: &mut World, handover: Handover) -> SubmitAnswer {
    let request = w.request();
    w.step(Input::Command(Command::Handover { request, handover }));
    match w.answer(request) {
        Some(Answer::Submit(answer)) => answer,
        other => panic!("answered at once: {other:?}"),
    }
}

#[test]
fn s5_a_handover_says_what_stops_what_stays_and_what_comes() {
    let look = || Declaration::new("look", Cancellability::ReadOnly);
    let find = Declaration::new("find", Cancellability::ReadOnly);
    let mut w = World::tools([look(), find]);
    let old = w.say("plan my trip");
    let (kept, stopped) = (w.call("look", "{}"), w.call("find", "{}"));
    w.model_done();
    let handover = Handover { stop: old, keep: vec![kept], next: "only trains".into(), constraints: "No planes.".into() };
    let SubmitAnswer::Started(next) = hand_over(&mut w, handover) else { panic!("started") };
    assert_eq!((w.end(old), w.parent(next)), ("CANCELLED(superseded)".into(), Some(old)));
    assert_eq!((w.ending(kept), w.ending(stopped)), ("-".into(), "cancelled".into()));
    assert!(w.of(next).any(|e| matches!(e, Event::HandedOver { from, keep, .. } if *from == old && *keep == [kept])));
    let TaskSpec::Generate { constraints, .. } = &w.job(Stage::Generate).spec else { panic!("a model") };
    assert_eq!(constraints.as_ref().map(|t| t.reveal().as_str()), Some("No planes."));
    assert_eq!(
        w.context(),
        ["u:plan my trip", "c1:look({})", "r1:running", "c2:find({})", "r2:running", "u:only trains"],
        "a stop is no end yet"
    );
    w.model_done();
    w.tool_done(kept, "a train");
    assert_eq!(w.context()[2], "r1:done a train");
}

#[test]
fn a_handover_names_a_turn_that_was() {
    let mut w = World::new();
    let handover = |stop| Handover { stop, keep: vec![], next: "go on".into(), constraints: "".into() };
    assert_eq!(hand_over(&mut w, handover(TurnId(1))), refused(Refusal::NoSuchTurn, "go on"));
    let first = w.say("?");
    w.cancel(first);
    assert_eq!(hand_over(&mut w, handover(first)), SubmitAnswer::Started(TurnId(2)), "one that has ended is only the parent");
    let mismatch = Refusal::ExpectedTurnMismatch { actual: TurnId(2) };
    assert_eq!(hand_over(&mut w, handover(first)), refused(mismatch, "go on"), "another runs");
    let empty = Handover { next: " ".into(), ..handover(TurnId(2)) };
    assert_eq!(hand_over(&mut w, empty), refused(Refusal::Empty, " "));
}

#[test]
fn a_model_that_takes_too_long_over_one_answer_fails_the_turn() {
    let mut w = World::with(|p| p.budget.generate = std::time::Duration::from_secs(5));
    let turn = w.say("?");
    for _ in 0..10 {
        w.model("on and ");
        w.audio(600, 7);
        w.wait(500);
        w.played((w.now.as_micros() / 1_000 - 1_000).saturating_sub(10));
    }
    assert_eq!(w.end(turn), format!("FAILED({})", FailReason::DeadlineExceeded { stage: Stage::Generate }));
}
