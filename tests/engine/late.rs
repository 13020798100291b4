//! What comes too late, from providers that do not listen: fenced, counted, never heard. And what comes too slowly.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::event::{CancelCause, Event, LateKind, Stage, TaskOutcome, Terminal, Timing};
use antiphon::id::TurnId;
use antiphon::provider::llm::{LlmScript, ScriptedLlm};
use antiphon::provider::script::End;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, Sound, TtsScript};
use antiphon::provider::{Chunk, Info, ProviderError, Sink, TaskCx, Tts, Words};
use antiphon::time::{HOUSE_RATE, SampleRate};

use super::world::{STORY, World};

/// Loud enough to tell one answer's level from another's, away from ramps.
fn plays_level(samples: &[f32], level: f32) -> bool {
    samples.windows(2).any(|w| (w[0] - level).abs() < 1e-4 && (w[1] - level).abs() < 1e-4)
}

#[tokio::test(start_paused = true)]
async fn a3_the_result_of_an_old_turn_comes_during_the_new_one() {
    let tts = ScriptedTts::new([TtsScript::new().first_after(Duration::from_millis(90)).real_time(0.5).deaf(6), TtsScript::new()]);
    let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), tts.clone());
    let old = world.say("one").await;
    world.run(40).await;
    // The first result of the old turn is still to come when the new turn begins.
    let new = world.say("two").await;
    assert_eq!(world.end_of(new).await, Terminal::Completed);
    assert_eq!(world.terminal(old), Some(Terminal::Cancelled { cause: CancelCause::Superseded }));
    assert_eq!(world.texts(new).0, STORY, "the new answer is whole and in order");
    let level = Sound::level_of(0);
    assert!(!world.heard.iter().any(|h| plays_level(&h.samples, level)), "the old answer is not heard");
    assert!(tts.sent() > 0);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a4_a_model_that_ignores_the_cancel() {
    let llm = ScriptedLlm::new([
        LlmScript::flood("more ").paced(Duration::ZERO, Duration::from_millis(1)).deaf(50),
        LlmScript::says("Good."),
    ]);
    let mut world = World::new(ScriptedStt::hearing("unused"), llm.clone(), ScriptedTts::new([TtsScript::new()]));
    let turn = world.say("go on for ever").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(500).await;
    world.cancel(turn).await;
    world.collect().await;
    let said = world.log.iter().filter(|r| r.turn == Some(turn) && matches!(r.event, Event::ReplyText { .. })).count();
    world.end_of(turn).await;
    world.run(1_000).await;
    let later = world.log.iter().filter(|r| r.turn == Some(turn) && matches!(r.event, Event::ReplyText { .. })).count();
    assert_eq!(later, said, "not one token reached the answer after the cancel");
    let late = world.count(|e| matches!(e, Event::LateDropped { kind: LateKind::Text, .. }));
    assert!(late > 0, "the wasted tokens are counted");
    assert_eq!(world.engine.counters().tasks_alive, 0, "and it did not start again by itself");
    let next = world.say("well?").await;
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    assert_eq!(llm.calls(), 2);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a17_a_generator_that_yields_on_and_on_and_never_returns() {
    let llm = ScriptedLlm::new([
        LlmScript::flood("and ").paced(Duration::ZERO, Duration::from_micros(50)).deaf(usize::MAX),
        LlmScript::says("Good."),
    ]);
    let mut world = World::new(ScriptedStt::hearing("unused"), llm.clone(), ScriptedTts::new([TtsScript::new()]));
    let turn = world.say("go on for ever").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(300).await;
    world.cancel(turn).await;
    let cut = world.clock_now();
    assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::User });
    world.run(500).await;
    assert_eq!(world.heard.iter().filter(|h| h.at > cut + Duration::from_millis(20) && h.sounds()).count(), 0);
    let aborted = |e: &Event| matches!(e, Event::TaskEnded { stage: Stage::Generate, outcome: TaskOutcome::Aborted, .. });
    assert_eq!(world.count(aborted), 1, "the record does not claim that it stopped");
    assert_eq!(llm.running(), 0);
    let next = world.say("well?").await;
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    world.leave_nothing().await;
}

/// A synthesizer with one connection for all answers: at each new answer it first delivers, to the old answer's sink, what the vendor
/// still had of it; and it keeps every sink.
#[derive(Clone, Default)]
struct OneSocket {
    old: Arc<Mutex<Vec<Sink<Chunk>>>>,
}

fn chunk(level: f32, chars: usize) -> Chunk {
    Chunk { samples: vec![level; 4_800], chars, timing: Timing::Exact }
}

impl Tts for OneSocket {
    fn info(&self) -> Info {
        Info::new("one-socket").at(SampleRate::HZ_48000)
    }

    async fn speak(&self, mut text: Words, out: Sink<Chunk>, cx: TaskCx) -> Result<(), ProviderError> {
        let old: Vec<_> = self.old.lock().expect("whole").drain(..).collect();
        for sink in old {
            // That nobody listens any more is what the test is about.
            let _late = sink.send(chunk(0.9, 0)).await;
        }
        self.old.lock().expect("whole").push(out.clone());
        while let Some(piece) = cx.until_stopped(text.next()).await? {
            cx.until_stopped(out.send(chunk(0.2, piece.reveal().chars().count()))).await??;
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a6_a_kept_connection_still_delivers_the_old_answer() {
    let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), OneSocket::default());
    let old = world.say("one").await;
    world.until("the answer", |w| w.sounds(old)).await;
    world.run(200).await;
    world.cancel(old).await;
    world.end_of(old).await;
    let new = world.say("two").await;
    assert_eq!(world.end_of(new).await, Terminal::Completed, "a task ends with its provider, whoever keeps its sink");
    assert!(!world.heard.iter().any(|h| plays_level(&h.samples, 0.9)), "nothing of the old answer is heard");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a14_old_chunks_come_late_and_a_stream_ends_without_its_end() {
    // Late chunks after the cancel: some inside the grace, the rest after the abort.
    let slow = TtsScript::new().chunk(Duration::from_millis(50)).real_time(0.9).deaf(10);
    let broken = TtsScript::new().after_chunks(8, End::Complete);
    let tts = ScriptedTts::new([slow, broken, TtsScript::new()]);
    let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), tts);
    let turn = world.say("one").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.cancel(turn).await;
    let cut = world.clock_now();
    world.run(1_000).await;
    assert_eq!(world.heard.iter().filter(|h| h.at > cut + Duration::from_millis(20) && h.sounds()).count(), 0);
    assert!(world.count(|e| matches!(e, Event::LateDropped { kind: LateKind::Audio, .. })) > 0);

    // And nobody interrupts a stream that ends in the midst of its text: what it delivered is played, to the last sample.
    let before = world.heard.len();
    let turn = world.say("two").await;
    world.end_of(turn).await;
    world.run(1_000).await;
    let played: u64 = world.heard[before..].iter().filter(|h| !h.muted).map(|h| h.until.0 - h.from.0).sum();
    assert_eq!(played, HOUSE_RATE.samples_in(Duration::from_millis(660)), "eight chunks: once upon a");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a19_a_dry_ring_gives_silence_and_never_an_old_sample() {
    let tts = ScriptedTts::new([TtsScript::new().sound(Sound::Ramp).real_time(1.6)]);
    let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying("A slow voice."), tts);
    let turn = world.say("one").await;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    assert!(world.count(|e| matches!(e, Event::Underrun { .. })) >= 5, "each gap is told");
    let mut at = 0;
    for heard in &world.heard {
        if heard.until > heard.from {
            assert_eq!(heard.from.0, at, "nothing twice and nothing left out");
            at = heard.until.0;
            continue;
        }
        // A gap: at most the 5 ms in which what sounded goes to zero.
        assert!(heard.samples[240..].iter().all(|s| *s == 0.0), "a gap is silent");
    }
    assert_eq!(at, HOUSE_RATE.samples_in(Duration::from_millis(60) * 13));
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn b15_a_model_that_never_comes_back_from_its_cancel() {
    let llm = ScriptedLlm::new([LlmScript::silent(End::Hang).deaf(0), LlmScript::says("Good.")]);
    let mut world = World::new(ScriptedStt::hearing("unused"), llm, ScriptedTts::new([TtsScript::new()]));
    let turn = world.say("one").await;
    world.run(200).await;
    let asked = world.clock_now();
    world.cancel(turn).await;
    assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::User });
    assert!(world.clock_now().since(asked) <= Duration::from_millis(130), "the grace, and no more");
    let next = world.say("two").await;
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    assert_eq!(next, TurnId(2));
    world.leave_nothing().await;
}
