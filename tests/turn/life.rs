//! The life of a turn: its course, its cancels, its deadlines, and the end of a session.

use std::time::Duration;

use antiphon::event::{CancelCause, Event, Initiator, Retry, Stage};
use antiphon::id::{Generation, RequestId, TurnId};
use antiphon::time::Stamp;
use antiphon::turn::*;

use crate::world::*;

#[test]
fn a_spoken_question_is_answered_to_its_end() {
    let mut w = World::new();
    let onset = w.now;
    w.voice(300);
    assert_eq!(w.m.snapshot().floor, FloorView::User { utterance: antiphon::id::UtteranceId(1), onset });
    w.wait(599);
    assert!(!w.has("speech_ended"));
    w.wait(1);
    assert!(w.has("speech_ended"));
    assert!(w.job(Stage::Listen).fed_all, "the recogniser is told that the utterance is over");
    w.partial_words("what is");
    w.final_words("what is the time");
    let turn = w.live().expect("it runs");
    w.model("It is ");
    w.model("noon.");
    assert_eq!(w.job(Stage::Synthesize).fed, "It is noon.");
    w.model_done();
    assert!(w.job(Stage::Synthesize).fed_all);
    w.audio(600, 11);
    w.audio_done();
    assert_eq!(w.m.snapshot().floor, FloorView::Agent);
    w.wait(600);
    w.played(600);
    let names: Vec<_> = w.records.iter().skip(2).map(|r| name(&r.event)).collect();
    assert_eq!(
        names,
        [
            "speech_started",
            "task_started", // listen
            "speech_ended",
            "transcript",
            "transcript",
            "turn_accepted",
            "turn_started",
            "model_requested",
            "task_started", // generate
            "task_ended",   // listen
            "reply_text",
            "task_started", // synthesize
            "reply_text",
            "task_ended", // generate
            "reply_done",
            "task_started", // play
            "task_ended",   // synthesize
            "audio_started",
            "task_ended", // play
            "turn_ended",
        ]
    );
    assert_eq!(w.end(turn), "COMPLETED");
    assert_eq!(w.delivered.len(), w.records.len());
    assert_eq!((w.m.snapshot().floor, w.m.deadline()), (FloorView::Quiet, None));
    assert!(w.running().is_empty());
}

#[test]
fn each_answer_has_a_generation_of_its_own() {
    let mut w = World::new();
    for generation in 1..=3 {
        let turn = w.answer_made("hello", 100);
        assert_eq!(w.job(Stage::Generate).generation, Generation(generation));
        w.played(100);
        assert_eq!(w.end(turn), "COMPLETED");
    }
    assert!(!w.has("cleared") && !w.has("silenced"), "nothing was cut");
}

#[test]
fn an_answer_without_words_is_complete_with_nothing_said() {
    let mut w = World::new();
    let turn = w.say("?");
    w.model(" \n");
    w.model_done();
    assert_eq!((w.end(turn), w.maybe_task(Stage::Synthesize)), ("COMPLETED".into(), None));
}

#[test]
fn the_same_cancel_twice_has_one_answer_and_one_effect() {
    let mut w = World::new();
    w.stores = false;
    w.polite = false;
    let turn = w.answer_begun("hello ");
    let request = w.cancel(turn);
    assert_eq!(w.answer(request), None, "accepted only when the store has it");
    let records = w.records.len();
    w.cancel_as(request, turn);
    assert_eq!((w.records.len(), w.told()), (records, vec![]));
    let seq = w.records.last().expect("some").seq;
    w.step(Input::Appended { seq });
    let accepted = Answer::Cancel(CancelAnswer::Accepted);
    assert_eq!(w.answers.iter().filter(|a| **a == (request, accepted.clone())).count(), 2);
    w.stores = true;
    w.wait(200);
    w.cancel_as(request, turn);
    assert_eq!(w.answer(request), Some(accepted), "the same answer, though it has ended meanwhile");
    let late = w.cancel(turn);
    assert!(matches!(w.answer(late), Some(Answer::Cancel(CancelAnswer::AlreadyTerminal(_)))));
    assert_eq!(w.how_many("cancel_requested"), 1);
}

#[test]
fn a_say_sent_twice_starts_one_turn() {
    let mut w = World::new();
    let request = w.request();
    for _ in 0..2 {
        w.step(Input::Command(Command::Say { request, text: text("hello") }));
        assert_eq!(w.answer(request), Some(Answer::Say(SayAnswer::Started(TurnId(1)))));
    }
    assert_eq!(w.how_many("turn_accepted"), 1);
}

#[test]
fn what_is_not_taken_comes_back() {
    let mut w = World::new();
    let refused = |refusal, s| SayAnswer::NotAccepted { refusal, text: text(s) };
    assert_eq!(w.ask("  "), refused(Refusal::Empty, "  "));
    let running = w.answer_made("hello", 100);
    let request = w.request();
    w.step(Input::Command(Command::Drain { request }));
    assert_eq!(w.answer(request), Some(Answer::Done));
    assert_eq!(w.ask("more"), refused(Refusal::Draining, "more"));
    w.played(100);
    assert_eq!(w.end(running), "COMPLETED", "what runs may end");
    w.voice(300);
    w.wait(1_000);
    assert_eq!(w.count(Stage::Listen), 0, "no words are wanted");
    assert_eq!(w.how_many("turn_accepted"), 1);
}

#[test]
fn while_draining_stop_still_stops() {
    let mut w = World::new();
    let turn = w.answer_sounding("a long story", 2_000, 300);
    let request = w.request();
    w.step(Input::Command(Command::Drain { request }));
    w.voice(160);
    assert_eq!((w.end(turn), w.live()), ("CANCELLED(barge_in)".into(), None));
}

#[test]
fn completed_and_cancel_in_the_same_moment_the_first_one_wins() {
    let mut w = World::new();
    let turn = w.answer_made("hello", 100);
    w.played(100);
    let request = w.cancel(turn);
    assert_eq!(w.end(turn), "COMPLETED");
    assert!(matches!(w.answer(request), Some(Answer::Cancel(CancelAnswer::AlreadyTerminal(_)))));
    let turn = w.answer_made("hello", 100);
    w.cancel(turn);
    w.played_of(Generation(2), 100);
    assert_eq!(w.end(turn), "CANCELLED(user)");
}

#[test]
fn a_cancel_while_words_are_waited_for_stops_the_listening() {
    let mut w = World::new();
    w.answer_sounding("a long story", 2_000, 300);
    w.voice(200);
    let waiting = w.live().expect("it waits for its words");
    w.cancel(waiting);
    assert!(w.told().contains(&"stop listen".into()));
    assert_eq!(w.end(waiting), "CANCELLED(user)");
    w.since = Stamp::ZERO;
    for _ in 0..30 {
        w.wait(10);
        w.block();
    }
    assert_eq!(w.count(Stage::Listen), 1, "the rest of that sound does not count");
    w.wait(700);
    w.speak("but this does");
    assert_eq!(w.context().last().map(String::as_str), Some("u:but this does"));
}

/// Brings one story to its failure; the turn, and when it must have failed.
fn fails(story: impl FnOnce(&mut World) -> TurnId, after_ms: u64) -> String {
    let mut w = World::new();
    let turn = story(&mut w);
    w.wait(after_ms - 1);
    assert_eq!(w.end(turn), "-", "not before its time");
    w.wait(1);
    let end = w.end(turn);
    assert!(w.running().is_empty(), "{end}: everything was told to stop");
    assert_eq!(w.fence, Generation(2), "{end}: nothing of it is heard any more");
    assert_eq!(w.m.deadline(), None, "{end}");
    end
}

#[test]
fn each_silence_has_its_own_name() {
    assert_eq!(fails(|w| w.say("?"), 10_000), "FAILED(first_token_timeout)");
    assert_eq!(fails(|w| w.answer_begun(" "), 10_000), "FAILED(idle_timeout in generate)");
    let mute = |w: &mut World| {
        let turn = w.answer_begun("hello");
        w.model_done();
        turn
    };
    assert_eq!(fails(mute, 10_000), "FAILED(idle_timeout in synthesize)");
    assert_eq!(fails(|w| w.answer_made("hello", 500), 3_000), "FAILED(playout_stalled)");
    let stalled = |w: &mut World| {
        let turn = w.answer_made("hello", 500);
        w.wait(1_000);
        w.played(200);
        w.wait(1_000);
        w.played(200);
        turn
    };
    assert_eq!(fails(stalled, 2_000), "FAILED(playout_stalled)", "three seconds after it moved last");
}

#[test]
fn a_sink_is_blamed_only_for_the_time_it_had_sound_to_play() {
    let mut w = World::new();
    let turn = w.answer_begun("slow speech");
    w.audio(500, 5);
    w.wait(500);
    w.played(500);
    w.wait(5_000);
    w.audio(500, 6);
    w.wait(2_999);
    assert_eq!(w.end(turn), "-", "there was nothing to play for five seconds");
    w.wait(1);
    assert_eq!(w.end(turn), "FAILED(playout_stalled)");

    let mut w = World::with(|p| p.floor.commit_after = Duration::from_secs(10));
    let turn = w.answer_sounding("hello", 1_000, 300);
    w.voice(5_000);
    w.wait(250);
    assert_eq!(w.how_many("false_interruption"), 1);
    w.wait(2_999);
    assert_eq!(w.end(turn), "-", "it was held for five seconds");
    w.wait(1);
    assert_eq!(w.end(turn), "FAILED(playout_stalled)");
}

#[test]
fn a_key_cannot_come_up_over_a_link_that_is_gone() {
    let mut w = World::with(|p| p.on_disconnect = OnDisconnect::Hold(Duration::from_secs(15)));
    w.key(true);
    w.voice(500);
    w.step(Input::Link(LinkFact::Lost));
    assert!(w.has("speech_ended") && w.job(Stage::Listen).fed_all);
    w.final_words("what was said until then");
    assert!(w.held(), "it is answered when somebody is there to hear it");
    w.step(Input::Link(LinkFact::Up));
    assert!(!w.held());
}

#[test]
fn nobody_is_blamed_for_silence_while_sound_is_moving() {
    let mut w = World::new();
    let turn = w.answer_begun("a very long text");
    w.audio(60_000, 10);
    for second in 1..=59 {
        w.wait(1_000);
        w.played(second * 1_000);
    }
    assert_eq!(w.end(turn), "-", "model and synthesizer were silent for a minute, and the sink was not");
    w.wait(9_999);
    // The second that is left is not played any more: that is the sink's fault.
    assert_eq!(w.end(turn), "FAILED(playout_stalled)");
}

#[test]
fn a_provider_that_fails_fails_the_turn_with_its_own_word() {
    for (stage, name) in [(Stage::Generate, "generate"), (Stage::Synthesize, "synthesize")] {
        let mut w = World::new();
        let turn = w.answer_begun("hello");
        let task = w.task(stage);
        w.report(task, Report::Ended(Ended::Failed(Retry::Later)));
        assert_eq!(w.end(turn), format!("FAILED(provider failed in {name})"));
        let retry = w.of(turn).find_map(|e| match e {
            Event::TurnEnded { terminal: antiphon::event::Terminal::Failed { reason }, .. } => Some(reason.retry()),
            _ => None,
        });
        assert_eq!(retry, Some(Retry::Later));
        assert_eq!((w.fence, w.running().len()), (Generation(2), 0));
        let next = w.answer_made("better", 100);
        w.played(100);
        assert_eq!(w.end(next), "COMPLETED");
    }
}

#[test]
fn the_absolute_end_names_the_stage_and_leaves_time_to_close() {
    let cap = Duration::from_secs(5);
    let mut w = World::with(|p| p.budget.turn = cap);
    w.polite = false;
    let turn = w.say("?");
    let accepted = w.now;
    w.wait(4_799);
    assert_eq!(w.m.snapshot().stopping.len(), 0);
    w.wait(1 + 100);
    assert_eq!(w.end(turn), "FAILED(deadline_exceeded in generate)");
    assert!(w.now <= accepted + cap, "within its deadline, grace included");
    w.polite = true;
    let turn = w.answer_made("hello", 60_000);
    for second in 1..5 {
        w.wait(1_000);
        w.played(second * 1_000);
    }
    w.wait(1_000);
    assert_eq!(w.end(turn), "FAILED(deadline_exceeded in play)");
}

#[test]
fn without_budget_nothing_is_started() {
    let mut w = World::with(|p| p.budget.turn = Duration::from_millis(200));
    let turn = w.say("?");
    assert_eq!((w.end(turn), w.count(Stage::Generate)), ("FAILED(deadline_exceeded in generate)".into(), 0));
}

#[test]
fn a_stage_is_told_when_it_must_be_done() {
    let mut w = World::new();
    w.say("?");
    let deadline = w.last.iter().find_map(|e| if let Effect::StartTask { deadline, .. } = e { Some(*deadline) } else { None });
    assert_eq!(deadline, Some(w.now + Policy::default().budget.generate), "its own cap");
    let mut w = World::with(|p| p.budget.turn = Duration::from_secs(60));
    w.say("?");
    let deadline = w.last.iter().find_map(|e| if let Effect::StartTask { deadline, .. } = e { Some(*deadline) } else { None });
    assert_eq!(deadline, Some(w.now + Duration::from_millis(60_000 - 200)), "or what the turn has left");
}

#[test]
fn a_lost_link_changes_no_turn_by_itself() {
    let mut w = World::with(|p| p.on_disconnect = OnDisconnect::GoOn);
    let turn = w.answer_sounding("hello", 1_000, 300);
    w.step(Input::Link(LinkFact::Lost));
    assert_eq!(w.told(), ["append link_lost", "deliver link_lost"]);
    w.wait(700);
    w.played(1_000);
    assert_eq!(w.end(turn), "COMPLETED");
    w.step(Input::Link(LinkFact::Up));
    w.step(Input::Link(LinkFact::Up));
    assert_eq!(w.how_many("link_up"), 2, "the first one, and this one once");
}

#[test]
fn a_lost_link_can_hold_the_answer_for_a_while() {
    let hold = |p: &mut Policy| p.on_disconnect = OnDisconnect::Hold(Duration::from_secs(5));
    let mut w = World::with(hold);
    let turn = w.answer_sounding("hello", 1_000, 300);
    w.step(Input::Link(LinkFact::Lost));
    assert_eq!(w.told()[0], "hold 1");
    w.wait(4_900);
    assert_eq!(w.end(turn), "-", "held sound is not a stalled sink");
    w.step(Input::Link(LinkFact::Up));
    assert_eq!(w.told()[0], "resume 1");
    w.wait(700);
    w.played(1_000);
    assert_eq!(w.end(turn), "COMPLETED");

    let mut w = World::with(hold);
    let turn = w.answer_sounding("hello", 1_000, 300);
    w.step(Input::Link(LinkFact::Lost));
    w.wait(4_999);
    assert_eq!(w.cancel_of(turn), None);
    w.wait(1);
    assert_eq!(w.end(turn), "CANCELLED(transport)");
}

#[test]
fn a_lost_link_can_cancel_at_once() {
    let mut w = World::with(|p| p.on_disconnect = OnDisconnect::CancelNow);
    let turn = w.answer_sounding("hello", 1_000, 300);
    w.step(Input::Link(LinkFact::Lost));
    assert_eq!(w.end(turn), "CANCELLED(transport)");
    let by = w.of(turn).find_map(|e| if let Event::CancelRequested { initiator, .. } = e { Some(*initiator) } else { None });
    assert_eq!(by, Some(Initiator::Engine));
}

#[test]
fn an_answer_is_held_for_a_link_and_a_voice_until_both_let_go() {
    let mut w = World::with(|p| p.on_disconnect = OnDisconnect::Hold(Duration::from_secs(15)));
    w.answer_sounding("hello", 1_000, 300);
    w.voice(60);
    w.step(Input::Link(LinkFact::Lost));
    assert!(!w.told().iter().any(|e| e.starts_with("hold")));
    w.wait(250);
    assert_eq!(w.how_many("false_interruption"), 1);
    assert!(w.held());
    w.step(Input::Link(LinkFact::Up));
    assert_eq!(w.told()[0], "resume 1");
}

#[test]
fn a_close_stops_everything_writes_the_last_record_and_finishes() {
    let mut w = World::new();
    w.polite = false;
    w.sink_reports = false;
    let turn = w.answer_sounding("hello", 1_000, 300);
    w.voice(200);
    let waiting = w.live().expect("it waits");
    w.close();
    assert!(!w.finished);
    w.wait(100);
    assert_eq!((w.end(turn), w.end(waiting)), ("CANCELLED(barge_in)".into(), "CANCELLED(shutdown)".into()));
    assert!(w.finished && w.m.is_over());
    assert_eq!(w.records.last().map(|r| name(&r.event)), Some("session_ended".into()));
    assert_eq!(w.delivered.len(), w.records.len(), "nothing was kept back");
    let (records, answers) = (w.records.len(), w.answers.len());
    w.voice(300);
    w.key(true);
    w.key(false);
    w.step(Input::Link(LinkFact::Lost));
    assert!(matches!(w.ask("hello?"), SayAnswer::NotAccepted { refusal: Refusal::Draining, .. }));
    let request = w.cancel(turn);
    assert!(matches!(w.answer(request), Some(Answer::Cancel(CancelAnswer::AlreadyTerminal(_)))));
    assert_eq!((w.records.len(), w.answers.len()), (records, answers + 4), "commands are answered, and nothing is written");
    assert_eq!(w.m.deadline(), None);
}

#[test]
fn a_store_that_never_answers_does_not_keep_a_session_open() {
    let mut w = World::new();
    w.stores = false;
    w.answer_sounding("hello", 1_000, 300);
    w.close();
    w.wait(100);
    assert!(!w.finished);
    assert_eq!(w.m.deadline().map(|(_, timer)| timer), Some(Timer::Closing));
    w.wait(2_000);
    assert!(w.finished);
}

#[test]
fn the_snapshot_tells_the_truth() {
    let mut w = World::new();
    let first = w.answer_sounding("one two three four ", 1_000, 500);
    let view = w.m.snapshot();
    let turn = view.turn.expect("it runs");
    assert_eq!((turn.turn, turn.life, turn.heard), (first, LifeView::Running, text("one two ")));
    assert_eq!((turn.said, turn.input), (text("one two three four "), Some(text("a question"))));
    w.polite = false;
    w.sink_reports = false;
    let second = w.say("another");
    let view = w.m.snapshot();
    assert_eq!(
        view.stopping.iter().map(|t| (t.turn, t.life)).collect::<Vec<_>>(),
        [(first, LifeView::CancelRequested { cause: CancelCause::Superseded })]
    );
    w.wait(100);
    w.voice(60);
    let view = w.m.snapshot();
    assert!(matches!(view.floor, FloorView::Overlap { held: true, .. }));
    assert_eq!(view.turn.map(|t| (t.turn, t.parent, t.held)), Some((second, Some(first), true)));
    assert_eq!(view.ended.iter().map(|t| (t.turn, t.heard.clone())).collect::<Vec<_>>(), [(first, text("one two "))]);
    assert_eq!((view.generation, view.last_seq), (Generation(2), w.records.last().expect("some").seq));
    let json = serde_json::to_value(w.m.snapshot()).expect("a snapshot serialises");
    assert_eq!(json["floor"]["state"], "overlap");
    assert_eq!(json["turn"]["life"]["state"], "RUNNING");
}

#[test]
fn own_cancels_are_named_by_what_they_decide() {
    let mut w = World::new();
    let mut requests = Vec::new();
    for _ in 0..3 {
        w.answer_sounding("hello there", 1_000, 300);
        w.voice(160);
        w.wait(700);
        w.final_words("");
    }
    for event in w.events() {
        if let Event::CancelRequested { request, .. } = event {
            requests.push(*request);
        }
    }
    requests.dedup();
    assert_eq!(requests.len(), 3);
    assert!(!requests.contains(&RequestId::from_bits(0)));
}

#[test]
#[should_panic(expected = "carries out every effect")]
#[cfg(debug_assertions)]
fn effects_that_are_not_carried_out_are_a_bug_of_the_driver() {
    let mut m = Machine::new(Policy::default());
    drop(m.step(Stamp::ZERO, Input::Begin { session: SESSION, wall_unix_ms: 1 }));
}
