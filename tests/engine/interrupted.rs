//! Interruptions at every bad moment: what is old stays silent, what is new is heard.

use std::time::Duration;

use antiphon::engine::Engine;
use antiphon::event::{CancelCause, Event, FailReason, Stage, Terminal};
use antiphon::id::TurnId;
use antiphon::provider::llm::{LlmScript, ScriptedLlm};
use antiphon::provider::script::End;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::transport::net::Net;
use antiphon::transport::wire::ToClient;
use antiphon::turn::{CancelAnswer, FloorView};

use super::world::{STORY, World, policy};

const ONE_BLOCK: Duration = Duration::from_millis(10);

fn long_story() -> String {
    // A thousand characters: a minute of speech.
    STORY.repeat(12)
}

#[tokio::test(start_paused = true)]
async fn a1_old_audio_in_a_deep_queue() {
    // The synthesizer hands over a minute of sound in one chunk.
    let tts = ScriptedTts::new([TtsScript::new().chunk(Duration::from_secs(60)), TtsScript::new()]);
    let llm = ScriptedLlm::new([LlmScript::pieces([long_story()]), LlmScript::says(STORY)]);
    let mut world = World::new(ScriptedStt::hearing("stop it"), llm, tts);
    let turn = world.say("tell me a story").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(500).await;
    world.talk(600);
    world.until("the next answer", |w| w.sounds(TurnId(2))).await;
    let barge_in = world.find(|r| matches!(r.event, Event::BargeIn { .. }).then_some(r.at)).expect("a barge-in");
    let next = world.snapshot_generation().await;
    assert_eq!(world.stale_after(barge_in + ONE_BLOCK, next), 0);
    world.run(2_000).await;
    assert_eq!(world.stale_after(barge_in + ONE_BLOCK, next), 0, "and none later");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a2_no_old_sound_but_the_one_block_of_the_cut() {
    // Every queue is full of the old answer, and nothing was held before the cut.
    let mut world =
        World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying(&long_story()), ScriptedTts::new([TtsScript::new()]));
    let turn = world.say("tell me a story").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(1_000).await;
    let before = world.heard.len();
    assert_eq!(world.cancel(turn).await, CancelAnswer::Accepted);
    let cut = world.clock_now();
    assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::User });
    world.run(500).await;
    let loud = world.heard[before..].iter().filter(|h| h.sounds()).count();
    assert!(loud <= 1, "{loud} blocks after the cut, of which one may be its ramp");
    assert_eq!(world.heard[before..].iter().filter(|h| h.at > cut + 2 * ONE_BLOCK && h.sounds()).count(), 0);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a7_interrupted_between_the_opening_and_the_first_audio_a_hundred_times() {
    let tts = ScriptedTts::new([TtsScript::new().a_char(Duration::from_millis(20)).first_after(Duration::from_millis(120))]);
    let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying("Yes, of course."), tts.clone());
    for i in 0..100u64 {
        let turn = world.say("interrupted").await;
        world
            .until("its voice being opened", |w| {
                let opened = |e: &Event| matches!(e, Event::TaskStarted { stage: Stage::Synthesize, .. });
                w.log.iter().any(|r| r.turn == Some(turn) && opened(&r.event))
            })
            .await;
        world.run(i % 12 * 10).await;
        world.cancel(turn).await;
        world.end_of(turn).await;
        let next = world.say("and now?").await;
        assert_eq!(world.end_of(next).await, Terminal::Completed, "round {i}");
        assert!(world.sounds(next), "round {i}: the next turn is heard");
    }
    assert_eq!(tts.running(), 0);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a13_the_client_knows_from_which_packet_on_the_new_answer_sounds() {
    let net = Net { delay: Duration::from_millis(40), far_buffer: Duration::from_millis(80), ..Net::perfect() };
    let builder =
        Engine::builder(ScriptedStt::hearing("another one"), ScriptedLlm::saying(STORY), ScriptedTts::new([TtsScript::new()]));
    let mut world = World::with(builder.policy(policy()), net);
    let turn = world.say("tell me a story").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(600).await;
    world.talk(600);
    world.until("the next answer", |w| w.sounds(TurnId(2))).await;
    world.run(500).await;
    let (cleared_at, next) = world
        .messages
        .iter()
        .find_map(|(at, m)| match m {
            ToClient::Clear { next, .. } => Some((*at, *next)),
            _ => None,
        })
        .expect("a clear");
    assert_eq!(world.stale_after(cleared_at, next), 0, "120 ms of old sound were under way and are muted");
    let first = world
        .messages
        .iter()
        .find_map(|(_, m)| match m {
            ToClient::Media { rtp, generation, position } if *generation >= next => Some((*rtp, *generation, *position)),
            _ => None,
        })
        .expect("the new generation is announced");
    let heard = world.heard.iter().find(|h| h.generation >= next).expect("the new generation arrives");
    assert_eq!((heard.rtp, heard.generation, heard.from), (Some(first.0), first.1, first.2));
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a16_silence_while_the_user_still_talks() {
    let mut world = World::story();
    let turn = world.say("tell me a story").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(1_000).await;
    let onset = world.clock_now();
    world.talk(3_000);
    world.run(300).await;
    // The minimum evidence for a hold is 40 ms; then one beat of the microphone, one of the pump, one block of the ramp.
    let latest = onset + policy().floor.hold_after + 4 * ONE_BLOCK;
    let late = world.heard.iter().filter(|h| h.at >= latest && h.sounds()).count();
    assert_eq!(late, 0, "blocks that sound into the user's speech");
    assert!(world.far.unsaid() > 48_000, "the user is still talking");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn b1_a_voice_that_never_sounds_does_not_keep_the_floor() {
    let tts = ScriptedTts::new([TtsScript::new().after_chunks(0, End::Hang), TtsScript::new()]);
    let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), tts);
    let turn = world.say("tell me a story").await;
    let end = world.end_of(turn).await;
    assert_eq!(end, Terminal::Failed { reason: FailReason::IdleTimeout { stage: Stage::Synthesize } });
    let snapshot = world.session.snapshot().await.expect("the session lives");
    assert_eq!(snapshot.floor, FloorView::Quiet);
    let next = world.say("and now?").await;
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn b2_interrupted_at_every_moment_before_the_first_block_with_a_mute_sink() {
    // Nobody turns the far end here: nothing is played, nothing acknowledged. The next turn must start all the same.
    for step in 0..40u64 {
        let llm = ScriptedLlm::new([LlmScript::says("Yes.").paced(Duration::from_millis(5), Duration::from_millis(5))]);
        let tts = ScriptedTts::new([TtsScript::new().first_after(Duration::from_millis(10))]);
        let mut world = World::new(ScriptedStt::hearing("unused"), llm, tts);
        let turn = world.say("one").await;
        super::world::wait_until(world.clock, world.clock_now() + Duration::from_millis(step)).await;
        let asked = world.clock_now();
        assert_eq!(world.cancel(turn).await, CancelAnswer::Accepted);
        world.session.ended(turn).await.expect("it ends");
        let took = world.clock_now().since(asked);
        assert!(took <= policy().budget.grace, "step {step}: ended after {took:?}");
        let next = world.say("two").await;
        world.collect().await;
        let started = world.log.iter().any(|r| r.turn == Some(next) && matches!(r.event, Event::TurnStarted { .. }));
        assert!(started, "step {step}: the next turn is at work");
        world.leave_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b3_nothing_begins_to_sound_while_the_user_talks() {
    for lead in [0u64, 20, 40, 60, 80, 100] {
        let tts = ScriptedTts::new([TtsScript::new().first_after(Duration::from_millis(200))]);
        let mut world = World::new(ScriptedStt::hearing("wait, another thing"), ScriptedLlm::saying(STORY), tts);
        world.run(300).await;
        let turn = world.say("tell me a story").await;
        world.run(100 - lead).await;
        world.talk(1_500);
        // The first frame would come 200 ms after the text; the user began at least 100 ms before.
        world.run(1_000).await;
        assert_eq!(world.heard.iter().filter(|h| h.sounds()).count(), 0, "lead {lead}: not one block");
        assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::Superseded });
        world.until("the answer to what was said", |w| w.sounds(TurnId(2))).await;
        world.leave_nothing().await;
    }
}
