//! Races: what comes late, twice, too early or never, and the engine that does not wedge.

use antiphon::event::{CancelCause, Event, LateKind, Stage, TaskOutcome, Terminal, Timing};
use antiphon::id::{Generation, Seq, TaskId, TurnId};
use antiphon::time::{SamplePos, Stamp};
use antiphon::turn::*;

use crate::world::*;

fn late(w: &World) -> Vec<(LateKind, Generation)> {
    w.events().filter_map(|e| if let Event::LateDropped { kind, stale } = e { Some((*kind, *stale)) } else { None }).collect()
}

#[test]
fn a3_audio_of_the_old_answer_during_the_new_one_is_dropped_and_changes_nothing() {
    let mut w = World::new();
    w.polite = false;
    w.say("one");
    w.model("old answer");
    let old = w.task(Stage::Synthesize);
    let new = w.say("two");
    w.model("new answer");
    w.audio(500, 10);
    let before = w.tasks[&old].plays;
    w.report(old, Report::Audio { samples: 9_600, chars: 10, timing: Timing::Exact });
    assert_eq!(w.told(), ["append late_dropped", "deliver late_dropped"]);
    assert_eq!(w.tasks[&old].plays, before);
    assert_eq!(late(&w), [(LateKind::Audio, Generation(1))]);
    w.model_done();
    w.audio_done();
    w.played(500);
    assert_eq!((w.end(new), w.heard(new).0), ("COMPLETED".into(), "new answer".into()));
}

#[test]
fn a4_a_model_that_ignores_the_cancel_feeds_nobody() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.answer_begun("one ");
    let (model, voice) = (w.task(Stage::Generate), w.task(Stage::Synthesize));
    w.cancel(turn);
    for i in 0..50 {
        w.wait(10);
        w.report(model, Report::Text { delta: text("more ") });
        assert!(!w.told().iter().any(|e| e == "feed"), "token {i}");
    }
    assert_eq!(w.tasks[&voice].fed, "one ");
    assert_eq!(w.m.counters().late, 50, "the waste is counted");
    assert!(w.has("late_dropped"));
    assert_eq!(w.heard(turn).1, "one ", "and it was never said");
    assert_eq!(outcome(&w, Stage::Generate), Some(TaskOutcome::Aborted));
}

#[test]
fn late_output_is_recorded_up_to_a_bound_and_counted_beyond() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.answer_begun("one ");
    let model = w.task(Stage::Generate);
    w.cancel(turn);
    for _ in 0..1_000 {
        w.report(model, Report::Text { delta: text("x") });
    }
    assert_eq!((w.how_many("late_dropped"), w.m.counters().late), (64, 1_000));
}

#[test]
fn a6_between_two_answers_nothing_old_is_current() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.answer_begun("hello ");
    let voice = w.task(Stage::Synthesize);
    w.voice(160);
    assert_eq!(w.cancel_of(turn), Some(CancelCause::Superseded));
    // The new turn has no reply yet: there is no current one, and the old is not taken for it.
    w.report(voice, Report::Audio { samples: 480, chars: 1, timing: Timing::Exact });
    assert_eq!(late(&w), [(LateKind::Audio, Generation(1))]);
    assert_eq!(w.m.snapshot().turn.map(|t| t.generation), Some(Generation::UNSET));
}

#[test]
fn a7_stopped_before_the_first_audio_a_hundred_times_the_next_answer_sounds() {
    let mut w = World::new();
    for round in 0..100 {
        w.answer_begun("never ");
        w.voice(160);
        w.wait(650);
        w.final_words("next");
        let turn = w.live().expect("it runs");
        w.model("heard");
        w.audio(100, 5);
        w.model_done();
        w.audio_done();
        w.played(100);
        assert_eq!((w.end(turn), w.heard(turn).0), ("COMPLETED".into(), "heard".into()), "round {round}");
        w.wait(500);
    }
    assert!(w.running().is_empty());
}

#[test]
fn a13_the_far_end_is_told_to_clear_exactly_once_and_before_anything_new() {
    let mut w = World::new();
    w.answer_sounding("a long answer", 1_000, 300);
    w.say("another");
    let told = w.told();
    assert_eq!(told[..2], ["fence 2", "clear 1"]);
    assert_eq!(told.last().map(String::as_str), Some("start generate"));
    assert_eq!(told.iter().filter(|e| e.starts_with("clear")).count(), 1);
}

#[test]
fn a14_late_chunks_are_dropped_whenever_they_come() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.answer_begun("hello there");
    let voice = w.task(Stage::Synthesize);
    w.audio(200, 5);
    w.cancel(turn);
    for wait in [5, 45, 350] {
        w.wait(wait);
        w.report(voice, Report::Audio { samples: 480, chars: 1, timing: Timing::Exact });
    }
    assert_eq!(late(&w), [(LateKind::Audio, Generation(1)); 3]);
    assert_eq!(w.tasks[&voice].plays, 1);
}

#[test]
fn a14_a_stream_that_ends_unmarked_is_played_to_its_end() {
    let mut w = World::new();
    let turn = w.say("hello?");
    w.model("every last word");
    w.model_done();
    w.audio(900, 9);
    w.audio_done();
    w.played(850);
    assert_eq!(w.end(turn), "-", "the rest is still playing");
    w.played(900);
    assert_eq!((w.end(turn), w.heard(turn).0), ("COMPLETED".into(), "every last word".into()));
}

#[test]
fn the_end_of_the_sound_is_the_end_even_if_a_rounding_is_left() {
    let mut w = World::new();
    let turn = w.answer_made("hello", 500);
    w.played(491);
    assert_eq!(w.end(turn), "COMPLETED");
    let turn = w.answer_made("hello", 500);
    w.played(400);
    w.step(Input::Playout(Playout::Underrun { generation: w.fence, at: w.now, gap_us: 10_000 }));
    assert_eq!((w.end(turn), w.how_many("underrun")), ("COMPLETED".into(), 0), "running dry at the end is the end");
}

#[test]
fn a17_a_generator_that_goes_on_does_not_speak_again() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.answer_begun("one ");
    w.audio(300, 4);
    w.wait(100);
    w.played(100);
    w.voice(160);
    let (model, voice) = (w.task(Stage::Generate), w.task(Stage::Synthesize));
    for _ in 0..20 {
        w.wait(20);
        w.report(model, Report::Text { delta: text("and more ") });
        w.report(voice, Report::Audio { samples: 4_800, chars: 9, timing: Timing::Exact });
    }
    w.report(model, Report::Ended(Ended::Finished));
    assert_eq!(w.end(turn), "CANCELLED(barge_in)");
    assert_eq!((w.tasks[&voice].plays, w.tasks[&voice].fed.as_str()), (1, "one "));
}

#[test]
fn a20_words_without_a_sound_are_an_error_and_not_an_answer() {
    let mut w = World::new();
    let turn = w.say("hello?");
    w.model("hello");
    w.model_done();
    w.audio_done();
    assert_eq!(w.end(turn), "FAILED(provider failed in synthesize)");
}

#[test]
fn b15_and_b17_what_never_stops_is_aborted_counted_and_waited_for_no_longer() {
    let mut w = World::new();
    w.polite = false;
    w.sink_reports = false;
    let turn = w.answer_begun("one ");
    w.audio(300, 4);
    w.cancel(turn);
    assert_eq!(w.told()[..2], ["fence 2", "clear 1"], "silence does not wait for anybody");
    w.wait(99);
    assert_eq!(w.end(turn), "-");
    w.wait(1);
    assert_eq!(w.told()[..2], ["abort generate", "abort synthesize"]);
    assert_eq!((w.end(turn), w.m.counters().zombies), ("CANCELLED(user)".into(), 2));
    let next = w.say("and now?");
    w.model("works");
    w.model_done();
    w.audio(100, 5);
    w.audio_done();
    w.played(100);
    assert_eq!(w.end(next), "COMPLETED");
    for task in w.running() {
        w.report(task, Report::Ended(Ended::Aborted));
    }
    assert_eq!(w.m.counters().zombies, 0);
}

#[test]
fn b18_a_cancel_before_the_first_token_holds() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.say("tell me");
    let model = w.task(Stage::Generate);
    w.cancel(turn);
    w.report(model, Report::Text { delta: text("late") });
    w.report(model, Report::Ended(Ended::Finished));
    assert_eq!(w.end(turn), "CANCELLED(user)");
    assert_eq!((w.maybe_task(Stage::Synthesize), w.how_many("reply_text")), (None, 0));
    // B19: and the next request succeeds.
    let next = w.answer_made("hello", 100);
    w.played(100);
    assert_eq!(w.end(next), "COMPLETED");
}

#[test]
fn b17_a_provider_that_never_says_done_after_a_cancel_is_closed_by_the_grace() {
    let mut w = World::new();
    for generation in 1..6 {
        w.polite = false;
        let turn = w.answer_begun("never ends ");
        assert_eq!(w.job(Stage::Generate).generation, Generation(generation * 2 - 1));
        w.cancel(turn);
        w.wait(100);
        assert_eq!(w.end(turn), "CANCELLED(user)");
        w.polite = true;
        let next = w.answer_made("hello", 100);
        w.played(100);
        assert_eq!(w.end(next), "COMPLETED", "the next reply works");
    }
    assert!(w.m.counters().zombies > 0, "what was aborted is counted until it ends");
}

#[test]
fn b19_an_orphan_response_is_neither_spoken_nor_in_the_way() {
    let mut w = World::new();
    w.polite = false;
    let turn = w.say("one");
    let orphan = w.task(Stage::Generate);
    w.cancel(turn);
    let next = w.say("two");
    w.report(orphan, Report::Text { delta: text("the orphan's answer") });
    assert_eq!(w.count(Stage::Synthesize), 0, "it is not spoken");
    w.report(orphan, Report::Call { tool: "look".into(), arguments: "{}".into(), key: None });
    assert!(!w.has("call_requested"), "and asks for nothing");
    w.model("the right answer");
    w.model_done();
    w.audio(300, 16);
    w.audio_done();
    w.played(300);
    assert_eq!((w.end(next), w.heard(next).0), ("COMPLETED".into(), "the right answer".into()));
}

#[test]
fn c5_partial_and_whole_words_are_one_message_of_one_turn() {
    let mut w = World::new();
    w.voice(300);
    for words in ["what", "what is", "what is the time"] {
        w.partial_words(words);
    }
    w.wait(650);
    w.final_words("what is the time");
    assert_eq!(w.context(), ["u:what is the time"]);
    assert_eq!((w.how_many("turn_accepted"), w.how_many("turn_started"), w.count(Stage::Generate)), (1, 1, 1));
}

#[test]
fn b21_a_cancel_stops_the_turn_it_names_and_no_other() {
    let mut w = World::new();
    w.polite = false;
    let old = w.say("one");
    let new = w.say("two");
    let request = w.cancel(old);
    assert_eq!(w.answer(request), Some(Answer::Cancel(CancelAnswer::Accepted)), "it is stopping already");
    assert_eq!((w.cancel_of(old), w.cancel_of(new)), (Some(CancelCause::Superseded), None));
    let request = w.cancel(TurnId(99));
    assert_eq!(w.answer(request), Some(Answer::Cancel(CancelAnswer::NoSuchTurn)));
    assert_eq!(w.live(), Some(new));
}

#[test]
fn b22_a_cancel_of_what_is_over_says_so_and_does_nothing() {
    let mut w = World::new();
    let turn = w.answer_made("hello", 100);
    w.played(100);
    let records = w.records.len();
    let request = w.cancel(turn);
    assert_eq!(w.answer(request), Some(Answer::Cancel(CancelAnswer::AlreadyTerminal(Terminal::Completed))));
    assert_eq!(w.told(), ["answer"]);
    assert_eq!(w.records.len(), records);
}

#[test]
fn c1_a_superseded_reply_never_reaches_the_sink() {
    let mut w = World::new();
    w.polite = false;
    w.say("one");
    w.model("the same sentence");
    let (model, voice) = (w.task(Stage::Generate), w.task(Stage::Synthesize));
    w.say("one, I said");
    for _ in 0..10 {
        w.report(voice, Report::Audio { samples: 4_800, chars: 4, timing: Timing::Exact });
        w.report(model, Report::Text { delta: text("x") });
        w.wait(30);
    }
    assert_eq!(w.tasks[&voice].plays, 0);
}

#[test]
fn c2_two_last_words_are_one_turn() {
    let mut w = World::new();
    w.voice(300);
    w.wait(650);
    let listen = w.task(Stage::Listen);
    w.report(listen, Report::Transcript { text: text("hello"), is_final: true });
    let turn = w.live().expect("it runs");
    w.wait(1_000);
    w.report(listen, Report::Transcript { text: text("hello"), is_final: true });
    assert_eq!((w.live(), w.how_many("turn_accepted"), w.count(Stage::Generate)), (Some(turn), 1, 1));
    assert_eq!(late(&w).iter().map(|l| l.0).collect::<Vec<_>>(), [LateKind::Transcript]);
    w.model("hi");
    w.model_done();
    w.audio(100, 2);
    w.audio_done();
    w.played(100);
    assert_eq!(w.end(turn), "COMPLETED");
    w.report(listen, Report::Ended(Ended::Finished));
    w.speak("still there?");
    assert!(w.live().is_some(), "the session stays live");
}

#[test]
fn e1_what_was_heard_before_the_cut_stays_in_the_conversation() {
    let mut w = World::new();
    let turn = w.say("count");
    w.model("one two three four ");
    for word in ["one ", "two ", "three ", "four "] {
        w.audio(250, word.len());
    }
    w.wait(500);
    w.played(500);
    w.cancel(turn);
    assert_eq!(w.heard(turn), ("one two ".into(), "three four ".into(), Timing::Exact));
    w.say("go on");
    assert_eq!(w.context(), ["u:count", "a:one two/", "u:go on"]);
}

#[test]
fn e2_without_word_times_the_boundary_is_an_estimate_and_says_so() {
    let mut w = World::new();
    let turn = w.say("count");
    w.model("one two three four ");
    let voice = w.task(Stage::Synthesize);
    w.report(voice, Report::Audio { samples: 1_000 * MS, chars: 19, timing: Timing::Estimated });
    w.wait(500);
    w.played(500);
    w.cancel(turn);
    assert_eq!(w.heard(turn), ("one two ".into(), "three four ".into(), Timing::Estimated));
}

#[test]
fn e5_and_e7_only_reports_of_this_answer_move_its_boundary_and_never_past_it() {
    let mut w = World::new();
    let first = w.answer_made("first answer", 300);
    w.played(300);
    let second = w.answer_made("second answer", 300);
    w.played_of(Generation(1), 9_999);
    assert_eq!(w.m.snapshot().turn.map(|t| t.heard), Some(text("")), "another item's report");
    w.played_of(Generation(7), 100);
    assert!(w.has("odd"), "an item that never was");
    w.played_of(Generation::UNSET, 100);
    assert_eq!(w.m.snapshot().turn.map(|t| t.heard), Some(text("")));
    w.wait(150);
    w.played_of(Generation(2), 150);
    w.cancel(second);
    assert_eq!(w.heard(second).0, "second", "a delayed start of its own");
    assert_eq!(w.heard(first).0, "first answer");
    let third = w.answer_begun("third");
    w.audio(100, 5);
    w.played(5_000);
    w.cancel(third);
    let last = w.of(third).find_map(|e| if let Event::TurnEnded { heard, .. } = e { Some(heard.reveal().clone()) } else { None });
    assert_eq!(last.as_deref(), Some("third"), "not more than was received");
}

#[test]
fn e10_the_far_ends_word_corrects_the_boundary_until_the_terminal() {
    let mut w = World::new();
    w.sink_reports = false;
    w.polite = false;
    let turn = w.answer_sounding("one two three four ", 1_000, 210);
    w.say("next");
    assert_eq!(w.context(), ["u:a question", "a:one/", "u:next"]);
    w.wait(50);
    w.played_of(Generation(1), 430);
    w.say("after");
    assert_eq!(w.context()[..2], ["u:a question", "a:one two/"], "corrected before the terminal");
    w.wait(50);
    assert_eq!(w.heard(turn).0, "one two ");
    w.played_of(Generation(1), 900);
    assert_eq!(w.heard(turn).0, "one two ", "a terminal is the last word");
    w.say("and now");
    assert_eq!(w.context(), ["u:a question", "a:one two/", "u:next", "u:after", "u:and now"]);
}

#[test]
fn nonsense_is_answered_and_recorded_and_bounded() {
    let mut w = World::new();
    w.step(Input::Begin { session: SESSION, wall_unix_ms: 8 });
    w.step(Input::Appended { seq: Seq(1_000) });
    w.step(Input::Task { task: TaskId(77), report: Report::Ended(Ended::Finished) });
    w.step(Input::Task { task: TaskId(0), report: Report::Text { delta: text("x") } });
    w.key(false);
    w.key(true);
    w.key(true);
    assert_eq!(w.how_many("odd"), 6);
    assert_eq!(w.how_many("session_started"), 1);
    for _ in 0..1_000 {
        w.step(Input::Appended { seq: Seq(100_000) });
    }
    assert_eq!((w.how_many("odd"), w.m.counters().odd), (64, 1_006));
}

#[test]
fn a_stale_output_that_another_door_refused_is_in_the_log() {
    let mut w = World::new();
    w.step(Input::Late { kind: LateKind::Audio, generation: Generation(1) });
    assert_eq!(late(&w), [(LateKind::Audio, Generation(1))]);
}

#[test]
fn a_clock_that_runs_backwards_is_held_and_counted() {
    let mut w = World::new();
    let before = w.now;
    w.now = Stamp::ZERO;
    w.step(Input::Link(LinkFact::Lost));
    assert_eq!(w.records.last().map(|r| r.at), Some(before));
    assert_eq!(w.m.counters().clock_backwards, 2, "the step and the store's word on it");
}

#[test]
fn a_task_that_ends_twice_ends_once() {
    let mut w = World::new();
    let turn = w.answer_begun("hello ");
    let model = w.task(Stage::Generate);
    w.report(model, Report::Ended(Ended::Finished));
    w.report(model, Report::Ended(Ended::Finished));
    assert_eq!(late(&w), [(LateKind::Report, Generation(1))]);
    w.report(model, Report::Text { delta: text("more") });
    assert_eq!((w.how_many("reply_text"), late(&w)[1].0), (1, LateKind::Text), "nor does it say more");
    assert_eq!(w.of(turn).filter(|e| matches!(e, Event::TaskEnded { .. })).count(), 1);
}

#[test]
fn a_position_beyond_all_counting_does_no_harm() {
    let mut w = World::new();
    let turn = w.answer_begun("hello");
    let voice = w.task(Stage::Synthesize);
    w.report(voice, Report::Audio { samples: u64::MAX, chars: usize::MAX, timing: Timing::Exact });
    w.report(voice, Report::Audio { samples: u64::MAX, chars: usize::MAX, timing: Timing::Exact });
    let (generation, position, at) = (w.fence, SamplePos(u64::MAX), Stamp::MAX);
    w.step(Input::Playout(Playout::Progress { generation, position, at }));
    w.model_done();
    w.audio_done();
    assert_eq!(w.end(turn), "COMPLETED");
}

impl World {
    /// A typed question, and the first text of its answer.
    pub(crate) fn answer_begun(&mut self, text: &str) -> TurnId {
        let turn = self.say("a question");
        self.model(text);
        turn
    }
}
