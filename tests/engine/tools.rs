//! Tools in a conversation that is spoken: before, during and after, whatever is interrupted.

use std::time::Duration;

use antiphon::engine::Engine;
use antiphon::event::{CallEnding, Cancellability, Event, NotStarted, OnBargeIn, TaskOutcome, Terminal};
use antiphon::id::{CallId, TurnId};
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, Sound, TtsScript};
use antiphon::time::HOUSE_RATE;
use antiphon::transport::net::Net;

use super::bench::{Desk, Mind, Say, Step, results, well_formed};
use super::world::{World, policy};

/// A spoken answer with one call in it.
const LOOK: &str = "Let me look. ";
const FOUR: &str = "It is four.";

fn look_it_up() -> Mind {
    Mind::new([vec![Say::Text(LOOK), Say::Call("look", r#"{"what": "time"}"#)], vec![Say::Text(FOUR)]])
}

fn world(mind: &Mind, desks: &[&Desk]) -> World {
    world_hearing("and another thing", mind, desks)
}

pub(crate) fn world_hearing(heard: &str, mind: &Mind, desks: &[&Desk]) -> World {
    let tts = ScriptedTts::new([TtsScript::new()]);
    let builder = Engine::builder(ScriptedStt::hearing(heard), mind.clone(), tts).policy(policy());
    let builder = desks.iter().fold(builder, |builder, desk| builder.tool((*desk).clone()));
    World::with(builder, Net::perfect())
}

/// Samples of a text at 60 ms a character.
fn samples_of(text: &str) -> u64 {
    HOUSE_RATE.samples_in(Duration::from_millis(60) * text.chars().count() as u32)
}

fn endings(world: &World, turn: TurnId) -> Vec<CallEnding> {
    let ending = |e: &Event| match e {
        Event::CallEnded { ending, .. } => Some(*ending),
        _ => None,
    };
    world.log.iter().filter(|r| r.turn == Some(turn)).filter_map(|r| ending(&r.event)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_round_of_tools_is_spoken_before_and_after() {
    let (mind, desk) = (look_it_up(), Desk::new("look", Cancellability::ReadOnly, [Step::Rest(2_000)]));
    let mut world = world(&mind, &[&desk]);
    let turn = world.say("what time is it?").await;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    assert_eq!(world.texts(turn), (format!("{LOOK}{FOUR}"), String::new()), "every word was heard");

    // The two voices are one answer: its positions go on without a hole, and the pause between them is no underrun.
    let mut at = 0;
    for heard in world.heard.iter().filter(|h| h.until > h.from) {
        assert_eq!(heard.from.0, at);
        at = heard.until.0;
    }
    assert_eq!(at, samples_of(LOOK) + samples_of(FOUR));
    let order = [
        world.place(|e| *e == Event::ModelRequested { request: 1 }),
        world.place(|e| matches!(e, Event::CallRequested { .. })),
        world.place(|e| matches!(e, Event::CallStarted { .. })),
        world.place(|e| matches!(e, Event::AudioStarted)),
        world.place(|e| matches!(e, Event::CallEnded { ending: CallEnding::Done, .. })),
        world.place(|e| *e == Event::ModelRequested { request: 2 }),
    ];
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{order:?}");

    let asked = mind.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].tools.iter().map(|tool| tool.declaration.name.as_str()).collect::<Vec<_>>(), ["look"]);
    assert_eq!(well_formed(&asked[1]), [(CallId(1), Some(CallEnding::Done))]);
    assert_eq!(results(&asked[1]), ["it is four"]);
    assert_eq!(desk.book().arguments, [r#"{"what":"time"}"#], "in one form");
    let world = world.leave_nothing().await;
    let metrics = world.engine.metrics();
    assert_eq!((metrics.underruns(), metrics.calls().by_ending().done), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_later_voice_of_an_answer_never_overtakes_the_earlier_one() {
    // The tool is done at once, so that the second voice is there while the first, three seconds long, still waits for the ring.
    let first = "A long sentence that is spoken for three seconds or more. ";
    let mind = Mind::new([vec![Say::Text(first), Say::Call("look", "{}")], vec![Say::Text(FOUR)]]);
    let desk = Desk::new("look", Cancellability::ReadOnly, []);
    let tts = ScriptedTts::new([TtsScript::new().sound(Sound::Level(0.25)), TtsScript::new().sound(Sound::Level(0.75))]);
    let builder = Engine::builder(ScriptedStt::hearing("unused"), mind, tts).policy(policy()).tool(desk);
    let mut world = World::with(builder, Net::perfect());
    let turn = world.say("go").await;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    let border = samples_of(first);
    let mut at = 0;
    for heard in world.heard.iter().filter(|h| h.until > h.from) {
        assert_eq!(heard.from.0, at);
        at = heard.until.0;
        let level = heard.samples[heard.samples.len() - 1];
        // Away from the ramps at the edges.
        if heard.until.0 < border - 480 && heard.from.0 > 480 {
            assert!((level - 0.25).abs() < 0.01, "{level} at {:?}", heard.until);
        } else if heard.from.0 > border + 480 && heard.until.0 - heard.from.0 == 480 {
            assert!((level - 0.75).abs() < 0.01, "{level} at {:?}", heard.until);
        }
    }
    assert_eq!(at, border + samples_of(FOUR));
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn d1_a_tool_that_had_finished_keeps_its_result() {
    // It finishes at 300 ms; the interruption comes one, ten and fifty milliseconds later.
    for late in [1, 10, 50] {
        let mind = Mind::new([
            vec![Say::Call("book", r#"{"seat":1}"#)],
            vec![Say::Rest(60), Say::Text("It is booked.")],
            vec![Say::Call("book", r#"{ "seat": 1 }"#)],
        ]);
        let desk = Desk::new("book", Cancellability::Irreversible, [Step::Rest(300), Step::Commit, Step::Happen]).one_intent();
        let mut world = world(&mind, &[&desk]);
        let turn = world.say("book it").await;
        world.until("its result", |w| w.count(|e| matches!(e, Event::CallEnded { .. })) > 0).await;
        super::world::wait_until(world.clock, world.clock_now() + Duration::from_millis(late)).await;
        let next = world.say("book it, please").await;
        assert_eq!(world.end_of(next).await, Terminal::Completed);
        assert_eq!(endings(&world, turn), [CallEnding::Done]);
        let asked = mind.asked();
        let after = asked.iter().find(|prompt| super::bench::users(prompt).len() == 2).expect("the next turn");
        assert_eq!(well_formed(after), [(CallId(1), Some(CallEnding::Done))], "{late} ms: the result is in the history");
        assert_eq!(endings(&world, next), [CallEnding::Done], "the same intent is answered with what was done");
        assert_eq!(desk.book().arguments.len(), 1, "{late} ms: asked once");
        assert_eq!(desk.book().happened.len(), 1, "{late} ms: booked once");
        world.leave_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn d2_interrupted_at_every_point_of_a_round_the_history_is_whole() {
    for step in 0..60u64 {
        let mind = Mind::new([
            vec![Say::Rest(30), Say::Text(LOOK), Say::Rest(20), Say::Call("look", "{}"), Say::Rest(20), Say::Call("book", "{}")],
            vec![Say::Rest(30), Say::Text(FOUR)],
        ]);
        let look = Desk::new("look", Cancellability::ReadOnly, [Step::Rest(150)]);
        let book = Desk::new("book", Cancellability::Staged, [Step::Rest(80), Step::Commit, Step::Happen, Step::Rest(60)]);
        let mut world = world(&mind, &[&look, &book]);
        let turn = world.say("what time is it?").await;
        super::world::wait_until(world.clock, world.clock_now() + Duration::from_millis(step * 7)).await;
        let next = world.say("and now?").await;
        assert_eq!(world.end_of(next).await, Terminal::Completed, "step {step}");
        world.end_of(turn).await;
        for prompt in mind.asked() {
            well_formed(&prompt);
        }
        let asked = world.count(|e| matches!(e, Event::CallRequested { .. }));
        let ended = world.count(|e| matches!(e, Event::CallEnded { .. }));
        assert_eq!(asked, ended, "step {step}: every call has its one ending");
        assert_eq!((look.book().running, book.book().running), (0, 0), "step {step}");
        let world = world.leave_nothing().await;
        assert_eq!(world.engine.metrics().calls().conflicts(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn d3_every_call_is_answered_once() {
    let mind = Mind::new([vec![
        Say::Call("look", "{}"),
        Say::Call("cook", "{}"),
        Say::Call("fail", "{not json"),
        Say::Call("look", "{ }"),
        Say::Call("panic", "{}"),
    ]]);
    let look = Desk::new("look", Cancellability::ReadOnly, [Step::Rest(100)]);
    let fail = Desk::new("fail", Cancellability::ReadOnly, [Step::Rest(50), Step::Fail]);
    let panic = Desk::new("panic", Cancellability::ReadOnly, [Step::Rest(10), Step::Panic]);
    let mut world = world(&mind, &[&look, &fail, &panic]);
    let turn = world.say("go").await;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    let asked = mind.asked();
    let answered = well_formed(&asked[1]);
    assert_eq!(answered.len(), 5);
    assert_eq!(answered[0].1, Some(CallEnding::Done));
    assert_eq!(answered[1].1, Some(CallEnding::NotStarted { why: NotStarted::UnknownTool }));
    assert!(matches!(answered[2].1, Some(CallEnding::Failed { .. })));
    assert_eq!(answered[3].1, Some(CallEnding::Done), "the same call in other words shares the result");
    assert!(matches!(answered[4].1, Some(CallEnding::Failed { .. })));
    assert_eq!(look.book().arguments.len(), 1);
    assert_eq!(world.count(|e| matches!(e, Event::CallEnded { .. })), 5);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn d5_no_tool_is_left_running_whenever_its_turn_is_cancelled() {
    for step in 0..30u64 {
        let mind = Mind::new([vec![Say::Rest(10), Say::Call("look", "{}")]]);
        let desk = Desk::new("look", Cancellability::ReadOnly, [Step::Rest(100)]);
        let mut world = world(&mind, &[&desk]);
        let turn = world.say("go").await;
        super::world::wait_until(world.clock, world.clock_now() + Duration::from_millis(step)).await;
        world.cancel(turn).await;
        world.end_of(turn).await;
        let snapshot = world.session.snapshot().await.expect("the session lives");
        assert!(snapshot.calls.is_empty() && snapshot.zombies.is_empty(), "step {step}: {snapshot:?}");
        assert_eq!(desk.book().running, 0, "step {step}");
        let started = world.count(|e| matches!(e, Event::TaskStarted { .. }));
        assert_eq!(world.count(|e| matches!(e, Event::TaskEnded { .. })), started, "step {step}");
        world.leave_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn d6_a_lookup_that_is_kept_survives_the_callers_next_sentence() {
    let mind = Mind::new([
        vec![Say::Text(LOOK), Say::Call("look", "{}"), Say::Text("One moment please, this may take a while. ")],
        vec![Say::Text("Still looking. ")],
        vec![Say::Text("On file.")],
    ]);
    let desk = Desk::new("look", Cancellability::ReadOnly, [Step::Rest(6_000)]).declares(|d| d.on_barge_in = OnBargeIn::Keep);
    let mut world = world(&mind, &[&desk]);
    let first = world.say("am I on file?").await;
    world.until("the answer", |w| w.sounds(first)).await;
    world.run(500).await;
    world.talk(700);
    assert_eq!(world.end_of(TurnId(2)).await, Terminal::Completed);
    assert_eq!(world.count(|e| matches!(e, Event::CallKept { from, .. } if *from == first)), 1);
    assert_eq!(endings(&world, TurnId(2)), [CallEnding::Done], "it ended in the turn that kept it");
    let asked = mind.asked();
    assert_eq!(well_formed(&asked[1]), [(CallId(1), None)], "while it runs nobody invents a result");
    assert_eq!(well_formed(asked.last().expect("asked")), [(CallId(1), Some(CallEnding::Done))]);
    assert_eq!(desk.book().arguments.len(), 1, "and it was not asked twice");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_hear_the_stop_is_aborted_and_the_record_says_so() {
    let mind = Mind::new([vec![Say::Call("look", "{}")]]);
    let desk = Desk::new("look", Cancellability::ReadOnly, [Step::Deaf(5_000)]);
    let mut world = world(&mind, &[&desk]);
    let turn = world.say("go").await;
    world.until("its start", |w| w.count(|e| matches!(e, Event::CallStarted { .. })) > 0).await;
    world.cancel(turn).await;
    world.end_of(turn).await;
    let aborted = |e: &Event| matches!(e, Event::TaskEnded { outcome: TaskOutcome::Aborted, .. });
    assert_eq!(world.count(aborted), 1, "the record does not claim that it stopped");
    assert_eq!(world.engine.metrics().objectives().work_aborted(), 1);
    world.leave_nothing().await;
}
