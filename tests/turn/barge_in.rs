//! The user takes the floor: the chain in its order, holds that are taken back, and the tail.

use antiphon::event::{CancelCause, Event, Initiator, Stage, Tail, Timing};
use antiphon::id::{Generation, TurnId};
use antiphon::time::{SamplePos, Stamp};
use antiphon::turn::*;

use crate::world::*;

const STORY: &str = "once upon a time";

#[test]
fn b1_the_chain_comes_in_its_order() {
    let mut w = World::new();
    let turn = w.say("tell me a story");
    w.model(STORY);
    w.audio(1_600, 16);
    w.wait(400);
    w.played(400);
    w.stores = false;
    w.polite = false;
    w.sink_reports = false;
    let onset = w.now;

    w.voice(30);
    assert!(!w.held());
    w.wait(10);
    w.block();
    assert_eq!(w.told(), ["hold 1", "append held", "append task_started", "deliver held", "deliver task_started", "start listen"]);
    w.voice_on(110);
    assert_eq!(w.told(), [""; 0], "150 ms are not enough");
    w.wait(10);
    w.block();
    assert_eq!(
        w.told(),
        [
            "fence 2",
            "clear 1",
            "stop generate",
            "stop synthesize",
            "append speech_started",
            "append barge_in",
            "append generation_raised",
            "append cancel_requested",
            "append cleared",
            "append turn_accepted",
            // What follows the first record that must be kept waits for the store.
            "deliver speech_started",
            "deliver barge_in",
        ]
    );
    let new = w.live().expect("the new turn is there at once");
    assert_eq!(w.parent(new), Some(turn));
    let barge_in = w.of(turn).find(|e| matches!(e, Event::BargeIn { .. })).expect("recorded");
    let Event::BargeIn { onset: said, heard_until, evidence, .. } = barge_in else { unreachable!() };
    assert_eq!((*said, *heard_until), (onset, SamplePos(400 * MS)));
    assert_eq!(evidence.voiced_us, 160_000);
    let cancel = w.of(turn).find(|e| matches!(e, Event::CancelRequested { .. })).expect("recorded");
    assert!(matches!(cancel, Event::CancelRequested { cause: CancelCause::BargeIn, initiator: Initiator::Voice, .. }));
    let listens = w.job(Stage::Listen);
    assert!(matches!(listens.spec, TaskSpec::Listen { from, .. } if from == onset.back(Policy::default().floor.preroll)));
    assert_eq!(w.count(Stage::Listen), 1, "the one that was started by the hold listens on");

    let seq = w.records.last().expect("some").seq;
    w.step(Input::Appended { seq });
    assert_eq!(w.told(), ["deliver generation_raised", "deliver cancel_requested", "deliver cleared", "deliver turn_accepted"]);
    // The old work ends, the sink falls silent, and only then has the old turn ended.
    for stage in [Stage::Generate, Stage::Synthesize] {
        let task = w.task(stage);
        w.report(task, Report::Ended(Ended::Stopped));
        assert_eq!(w.end(turn), "-");
    }
    w.go_quiet(Generation(1), QuietBy::Cut);
    assert_eq!(w.told(), ["append silenced", "append task_ended", "append turn_ended", "deliver silenced", "deliver task_ended"]);
    assert_eq!(w.end(turn), "CANCELLED(barge_in)");
    assert_eq!(w.heard(turn), ("once".into(), " upon a time".into(), Timing::Estimated));

    // The words come, and the new turn is answered with the old answer cut where it was heard.
    w.stores = true;
    w.wait(650);
    w.final_words("stop that");
    assert_eq!(w.context(), ["u:tell me a story", "a:once/", "u:stop that"]);
    assert_eq!(w.job(Stage::Generate).generation, Generation(2), "a reply has the generation the barge-in raised");
}

#[test]
fn the_tail_is_split_between_the_moments_that_were_reported() {
    let mut w = World::new();
    w.answer_sounding(STORY, 1_600, 400);
    w.sink_reports = false;
    let onset = w.now;
    w.voice(40);
    let at = |ms: u64| Stamp::from_micros(onset.as_micros() + ms * 1_000);
    w.wait(5);
    w.step(Input::Playout(Playout::Quiet {
        generation: Generation(1),
        by: QuietBy::Hold,
        last: SamplePos(445 * MS),
        seen_at: at(42),
        handed_at: at(45),
        sounded_at: at(75),
        measured: true,
    }));
    w.voice_on(120);
    w.wait(10);
    w.step(Input::Playout(Playout::Quiet {
        generation: Generation(1),
        by: QuietBy::Cut,
        last: SamplePos(445 * MS),
        seen_at: at(170),
        handed_at: at(170),
        sounded_at: at(170),
        measured: false,
    }));
    let tails: Vec<_> = w.events().filter_map(|e| if let Event::Silenced { tail, .. } = e { *tail } else { None }).collect();
    let want = Tail {
        detect_us: 40_000,
        decide_us: 2_000,
        flush_us: 3_000,
        downstream_us: 30_000,
        to_silence_us: 75_000,
        to_hold_us: Some(75_000),
        to_cut_us: 170_000,
        downstream_measured: true,
    };
    assert_eq!(tails, [want]);
}

#[test]
fn a_users_stop_is_silenced_without_a_tail() {
    let mut w = World::new();
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.cancel(turn);
    assert!(w.of(turn).any(|e| matches!(e, Event::Silenced { tail: None, last_sample: SamplePos(19_200), .. })));
    assert_eq!(w.end(turn), "CANCELLED(user)");
    assert_eq!(w.how_many("barge_in"), 0);
}

#[test]
fn b3_while_the_user_talks_nothing_begins_to_sound() {
    let mut w = World::new();
    let turn = w.say("and then?");
    w.voice(40);
    assert_eq!(w.told()[0], "hold 1", "the model is still thinking, and what it makes will wait");
    w.model(STORY);
    w.audio(1_600, 16);
    w.voice_on(150);
    assert_eq!(w.cancel_of(turn), Some(CancelCause::Superseded));
    assert_eq!((w.how_many("barge_in"), w.how_many("audio_started")), (0, 0), "nothing sounded, so nothing was interrupted");
    assert_eq!(w.heard(turn).0, "");
    w.wait(650);
    w.final_words("wait, the other one");
    assert_eq!(w.context(), ["u:and then?", "u:wait, the other one"], "the model sees both");
    assert_eq!(w.parent(w.live().expect("it runs")), Some(turn));
}

#[test]
fn b10_a_mhm_without_words_resumes_from_the_held_sample() {
    let mut w = World::with(|p| p.floor.commit_after = std::time::Duration::from_millis(400));
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.voice(300);
    assert!(w.held());
    let silent_from = w.now;
    w.go_quiet(Generation(1), QuietBy::Hold);
    w.wait(240);
    assert!(w.held());
    w.wait(10);
    assert_eq!(
        w.told(),
        ["resume 1", "stop listen", "append false_interruption", "deliver false_interruption"],
        "the same generation goes on"
    );
    let held_us = w.events().find_map(|e| if let Event::FalseInterruption { held_us, .. } = e { Some(*held_us) } else { None });
    assert_eq!(held_us, Some(w.now.since(silent_from).as_micros() as u64 + 260_000), "held after 40 of the 300 ms");
    w.wait(1_200);
    w.played(1_600);
    assert_eq!(w.end(turn), "COMPLETED");
    assert_eq!(w.fence, Generation(1));
}

#[test]
fn b11_an_empty_last_word_cancels_nothing() {
    let mut w = World::with(|p| p.floor.commit_after = std::time::Duration::from_millis(400));
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.voice(100);
    w.final_words("");
    assert!(w.held(), "it is neither a stop nor a go");
    w.wait(250);
    assert!(!w.held());
    w.wait(850);
    w.played(1_600);
    assert_eq!(w.end(turn), "COMPLETED");
}

#[test]
fn words_confirm_what_the_ear_only_suspects() {
    let mut w = World::new();
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.voice(60);
    w.partial_words("no");
    assert_eq!(w.end(turn), "CANCELLED(barge_in)");
    w.wait(5_000);
    assert_eq!(w.how_many("false_interruption"), 0);
}

#[test]
fn b13_a_commit_disarms_the_resume() {
    let mut w = World::new();
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.voice(160);
    assert_eq!(w.fence, Generation(2));
    assert_eq!(w.m.deadline().map(|(_, timer)| timer), Some(Timer::Endpoint));
    w.wait(10_000);
    assert_eq!((w.how_many("false_interruption"), w.end(turn)), (0, "CANCELLED(barge_in)".into()));
    assert!(!w.records.iter().any(|r| r.generation > Generation(2)), "and nothing raises anything more");
}

#[test]
fn b14_a_pending_decision_never_blocks_a_resume() {
    let mut w = World::new();
    w.answer_sounding(STORY, 1_600, 400);
    w.voice(60);
    w.partial_words("");
    assert!(w.running().len() == 1, "the recogniser is still at it");
    w.wait(250);
    assert!(!w.held());
    assert_eq!(w.how_many("false_interruption"), 1);
}

#[test]
fn b4_a_hold_belongs_to_its_generation() {
    let mut w = World::new();
    let first = w.answer_sounding(STORY, 1_600, 400);
    w.voice(60);
    assert!(w.held());
    // Another answer begins while the hold's timer runs: the timer is none of its business.
    let second = w.answer_made("another", 500);
    assert!(!w.held());
    let before = w.records.len();
    w.wait(260);
    assert!(!w.records[before..].iter().any(|r| matches!(r.event, Event::FalseInterruption { .. })));
    w.played(500);
    assert_eq!((w.end(first), w.end(second)), ("CANCELLED(superseded)".into(), "COMPLETED".into()));
}

#[test]
fn b4_what_a_button_stopped_is_not_resumed_by_the_holds_timer() {
    let mut w = World::new();
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.voice(60);
    w.cancel(turn);
    w.wait(1_000);
    assert_eq!((w.end(turn), w.how_many("false_interruption")), ("CANCELLED(user)".into(), 0));
    assert!(w.running().is_empty(), "nobody listens to what was nothing");
    assert_eq!(w.m.snapshot().floor, FloorView::Quiet);
}

#[test]
fn a16_a_sound_silences_while_the_user_is_still_talking() {
    let mut w = World::new();
    w.answer_sounding(STORY, 1_600, 400);
    let onset = w.now;
    w.voice(1_000);
    let first = |name: &str| w.records.iter().find(|r| crate::world::name(&r.event) == name).expect("recorded").at;
    assert_eq!(first("held").since(onset).as_millis(), 40);
    assert_eq!(first("barge_in").since(onset).as_millis(), 160);
    assert!(!w.has("speech_ended"), "still talking");
}

#[test]
fn b6_speech_into_an_answer_that_may_not_be_interrupted_is_answered_after_it() {
    let mut w = World::with(|p| p.floor.interruptible = false);
    let turn = w.answer_sounding(STORY, 5_000, 400);
    w.speak("first");
    w.speak("second");
    assert_eq!((w.held(), w.fence, w.end(turn)), (false, Generation(1), "-".into()));
    assert_eq!(w.how_many("speech_started"), 2);
    w.wait(1_000);
    w.played(5_000);
    assert_eq!(w.end(turn), "COMPLETED");
    let next = w.live().expect("it is answered now");
    assert_eq!(w.context(), ["u:a question", "a:once upon a time", "u:first second"]);
    assert_eq!(w.parent(next), None, "nothing was interrupted");
}

#[test]
fn b8_what_has_not_sounded_is_superseded_whatever_its_flag() {
    let mut w = World::with(|p| p.floor.interruptible = false);
    let turn = w.answer_made(STORY, 1_600);
    w.voice(160);
    assert_eq!(w.end(turn), "CANCELLED(superseded)");
    w.wait(650);
    w.final_words("something newer");
    assert_eq!(w.context().last().map(String::as_str), Some("u:something newer"));
}

#[test]
fn b9_the_user_is_not_stuck_in_speaking_when_nobody_may_interrupt() {
    let mut w = World::with(|p| p.floor.interruptible = false);
    w.answer_sounding("this must be heard", 5_000, 500);
    for round in 1..=3 {
        w.voice(300);
        assert!(matches!(w.m.snapshot().floor, FloorView::Overlap { held: false, .. }), "heard: {:?}", w.m.snapshot().floor);
        w.wait(650);
        assert_eq!((w.how_many("speech_started"), w.how_many("speech_ended")), (round, round), "every frame is seen");
        w.final_words("well");
        assert_eq!(w.m.snapshot().floor, FloorView::Agent);
    }
}

#[test]
fn b2_a_sink_that_never_acknowledges_parks_nothing() {
    // At every point between the request and the first sample.
    type Moment = fn(&mut World);
    let moments: [Moment; 5] = [
        |_| {},
        |w| w.model("hello"),
        |w| {
            w.model("hello");
            w.audio(500, 5);
        },
        |w| {
            w.model("hello");
            w.audio(500, 5);
            w.model_done();
            w.audio_done();
        },
        |w| {
            w.model("hello");
            w.audio(500, 5);
            w.played(100);
        },
    ];
    for (i, moment) in moments.into_iter().enumerate() {
        let mut w = World::new();
        w.sink_reports = false;
        w.polite = false;
        let old = w.say("a question");
        moment(&mut w);
        w.voice(160);
        let began = w.now;
        w.wait(100);
        assert!(w.end(old).starts_with("CANCELLED"), "moment {i}: {}", w.end(old));
        let ended = w.records.iter().find(|r| r.turn == Some(old) && matches!(r.event, Event::TurnEnded { .. }));
        assert!(ended.expect("it ended").at.since(began) <= Policy::default().budget.grace);
        w.polite = true;
        w.wait(600);
        w.final_words("go on");
        let new = w.live().expect("the next turn runs");
        w.model("yes");
        w.model_done();
        w.audio(100, 3);
        w.audio_done();
        w.played(100);
        assert_eq!(w.end(new), "COMPLETED", "moment {i}");
    }
}

#[test]
fn a10_all_audio_was_sent_and_a_cut_still_clears_and_knows_how_much_was_heard() {
    let mut w = World::new();
    let turn = w.answer_sounding("one two three four five ", 1_000, 400);
    w.voice(160);
    assert_eq!(w.told().iter().filter(|e| *e == "clear 1").count(), 1);
    assert_eq!(w.heard(turn).0, "one two ", "40 % is 9.6 characters; half a word is no word");
}

#[test]
fn g4_one_press_is_one_turn_and_waits_for_its_words() {
    let mut w = World::new();
    for press in 1..=3u64 {
        w.key(true);
        assert_eq!(w.told()[..1], ["append speech_started"]);
        w.voice(700);
        w.wait(2_000);
        w.voice(200);
        w.key(false);
        assert!(w.told().contains(&"end feed".into()));
        assert_eq!(w.how_many("turn_started") as u64, press - 1, "it waits for the words");
        w.wait(500);
        w.final_words("by key");
        assert_eq!(w.how_many("turn_started") as u64, press);
        w.model("ok");
        w.model_done();
        w.audio(10, 2);
        w.audio_done();
        w.played(10);
        w.wait(1_000);
    }
    assert_eq!((w.how_many("turn_accepted"), w.count(Stage::Listen)), (3, 3));
}

#[test]
fn c2_a_second_last_word_while_the_key_is_down_is_late() {
    let mut w = World::new();
    w.key(true);
    let listen = w.task(Stage::Listen);
    for words in ["the first", "the second"] {
        w.report(listen, Report::Transcript { text: text(words), is_final: true });
    }
    assert_eq!(w.how_many("late_dropped"), 1);
    w.key(false);
    assert_eq!(w.context(), ["u:the first"]);
}

#[test]
fn a_recogniser_that_never_returns_after_its_last_word_is_aborted() {
    let mut w = World::new();
    w.polite = false;
    w.voice(300);
    w.wait(650);
    let listen = w.task(Stage::Listen);
    w.report(listen, Report::Transcript { text: text("hello"), is_final: true });
    let turn = w.live().expect("it does not wait for that");
    w.wait(4_000);
    assert!(w.told().contains(&"abort listen".into()));
    assert_eq!((w.m.counters().zombies, w.live()), (1, Some(turn)));
}

#[test]
fn g4_a_release_without_a_last_word_takes_what_is_known_at_the_timeout() {
    let mut w = World::new();
    w.key(true);
    w.voice(500);
    w.partial_words("half a sentence");
    w.key(false);
    w.wait(3_999);
    assert_eq!(w.live(), None);
    w.wait(1);
    assert_eq!(w.context(), ["u:half a sentence"]);
}

#[test]
fn g3_a_key_takes_the_floor_at_once_with_the_sound_before_it() {
    let mut w = World::new();
    let turn = w.answer_sounding(STORY, 1_600, 400);
    w.key(true);
    assert_eq!(w.end(turn), "CANCELLED(barge_in)");
    let from = w.now.back(Policy::default().floor.preroll);
    assert!(matches!(w.job(Stage::Listen).spec, TaskSpec::Listen { from: f, .. } if f == from));
    let evidence = w.events().find_map(|e| if let Event::BargeIn { evidence, .. } = e { Some(*evidence) } else { None });
    assert!(evidence.expect("recorded").push_to_talk);
}

#[test]
fn g3_the_first_sound_reaches_the_recogniser() {
    let mut w = World::new();
    let onset = w.now;
    w.voice(200);
    assert!(
        matches!(w.job(Stage::Listen).spec, TaskSpec::Listen { from, .. } if from == onset.back(Policy::default().floor.preroll))
    );
}

#[test]
fn going_on_after_the_endpoint_supersedes_and_the_model_sees_both() {
    let mut w = World::new();
    w.speak("book a table");
    let first = w.live().expect("it runs");
    w.voice(40);
    assert!(w.held(), "nothing sounds while the user goes on");
    w.voice_on(200);
    assert_eq!(w.end(first), "CANCELLED(superseded)");
    w.wait(650);
    w.final_words("for two");
    assert_eq!(w.context(), ["u:book a table", "u:for two"]);
}

#[test]
fn going_on_before_the_words_are_in_is_one_turn() {
    let mut w = World::new();
    w.voice(300);
    w.wait(650);
    let first = w.task(Stage::Listen);
    w.voice(300);
    w.report(first, Report::Transcript { text: text("book a table"), is_final: true });
    assert_eq!(w.live(), None, "the user is speaking");
    w.wait(650);
    w.final_words("for two");
    assert_eq!(w.context(), ["u:book a table for two"]);
    assert_eq!(w.how_many("turn_accepted"), 1);
}

#[test]
fn a_floor_taken_without_words_is_nothing_heard() {
    let mut w = World::new();
    w.answer_sounding(STORY, 1_600, 400);
    w.voice(300);
    w.wait(650);
    let new = w.live().expect("it waits for its words");
    w.final_words("");
    assert_eq!(w.end(new), "FAILED(nothing_heard)");
    assert_eq!(w.live(), None);
    assert_eq!(w.m.snapshot().floor, FloorView::Quiet);
}

#[test]
fn a_recogniser_that_fails_fails_the_turn_that_waits_for_it() {
    let mut w = World::new();
    w.answer_sounding(STORY, 1_600, 400);
    w.voice(300);
    let new = w.live().expect("it waits");
    let listen = w.task(Stage::Listen);
    w.report(listen, Report::Ended(Ended::Failed(antiphon::event::Retry::Later)));
    w.wait(650);
    assert_eq!(w.end(new), "FAILED(provider failed in listen)");
    // In quiet there is no turn to fail, and the next words are answered.
    w.voice(300);
    let listen = w.task(Stage::Listen);
    w.report(listen, Report::Ended(Ended::Failed(antiphon::event::Retry::Later)));
    w.wait(650);
    w.speak("hello");
    assert_eq!(w.context().last().map(String::as_str), Some("u:hello"));
}

#[test]
fn nobody_waits_for_ever_for_a_recogniser_that_hangs() {
    let mut w = World::new();
    w.polite = false;
    w.voice(300);
    w.wait(600 + 4_000 + 100);
    assert_eq!(w.m.deadline(), None);
    assert_eq!(w.m.counters().zombies, 1);
    assert_eq!(w.how_many("turn_accepted"), 0);
    let task = w.task(Stage::Listen);
    w.report(task, Report::Ended(Ended::Aborted));
    assert_eq!(w.m.counters().zombies, 0);
}

#[test]
fn typed_text_supersedes_what_is_being_said_and_keeps_its_words() {
    let mut w = World::new();
    w.voice(300);
    let turn = w.say("typed");
    assert!(w.told().contains(&"end feed".into()));
    w.final_words("spoken");
    assert_eq!((w.live(), w.how_many("turn_accepted")), (Some(turn), 1), "its words ask for no answer of their own");
    let next = w.say("again");
    assert_eq!(w.parent(next), Some(turn));
    assert_eq!(w.context(), ["u:typed", "u:spoken", "u:again"]);
}

#[test]
fn our_own_echo_is_not_a_voice() {
    let mut w = World::new();
    let turn = w.answer_sounding(STORY, 1_600, 400);
    for _ in 0..100 {
        w.wait(10);
        let (at, since) = (w.now, w.now);
        let echo = Voice { level_dbfs: -10.0, explained: 0.9, weight: 0.0, ..Voice::sure(at, since) };
        w.step(Input::Voice(echo));
    }
    assert_eq!((w.held(), w.cancel_of(turn)), (false, None));
}

#[test]
fn the_second_barge_in_is_as_good_as_the_first() {
    let mut w = World::new();
    let mut parent = w.answer_sounding(STORY, 1_600, 400);
    for round in 0..50u64 {
        w.voice(160);
        assert_eq!(w.end(parent), "CANCELLED(barge_in)", "round {round}");
        w.wait(650);
        w.final_words("and?");
        let turn = w.live().expect("it runs");
        assert_eq!(w.parent(turn), Some(parent));
        w.model(STORY);
        w.audio(1_600, 16);
        w.wait(200);
        w.played(200);
        parent = turn;
    }
    assert_eq!(w.how_many("silenced"), 50);
    assert_eq!(w.how_many("barge_in"), 50);
    let live: TurnId = w.live().expect("the last one runs");
    assert_eq!(live, TurnId(51));
    assert_eq!(w.running().len(), 2, "its model and its voice; nothing else is left over");
}

impl World {
    /// The present voice goes on for `ms`.
    fn voice_on(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.wait(10);
            self.block();
        }
    }
}

#[test]
fn a_last_word_in_the_middle_of_speech_waits_for_its_end() {
    let mut w = World::new();
    w.voice(300);
    w.final_words("what is");
    assert!(!w.has("turn_started"), "the user still speaks");
    w.wait(650);
    assert_eq!(w.how_many("turn_started"), 1);
}

#[test]
fn a_pause_for_breath_ends_no_speech_while_the_microphone_goes_on() {
    let mut w = World::new();
    w.voice(300);
    for _ in 0..40 {
        w.wait(10);
        let at = w.now;
        w.step(Input::Voice(Voice { at, since: at, speech: 0.0, level_dbfs: -60.0, noise_dbfs: -60.0, ..Voice::default() }));
    }
    assert!(!w.has("speech_ended"), "400 ms of silence, and 600 end it");
    w.voice(100);
    w.wait(650);
    assert_eq!((w.how_many("speech_started"), w.how_many("speech_ended")), (1, 1));
}

#[test]
fn a_link_lost_while_the_next_turn_listens_holds_nothing() {
    let mut w = World::with(|p| p.on_disconnect = OnDisconnect::Hold(std::time::Duration::from_secs(5)));
    w.answer_sounding("a long story", 5_000, 500);
    w.voice(300);
    w.step(Input::Link(LinkFact::Lost));
    assert!(!w.told().iter().any(|e| e.starts_with("hold")), "{:?}", w.told());
}
