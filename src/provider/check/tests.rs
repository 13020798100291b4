//! The contract suite against wrong providers: each rule catches its fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::event::{Retry, Timing};
use crate::provider::llm::{Brain, LlmScript, ScriptedLlm};
use crate::provider::retrieve::{RetrieverScript, ScriptedRetriever};
use crate::provider::script::End;
use crate::provider::stt::{ScriptedStt, SttScript};
use crate::provider::tts::{ScriptedTts, Sound, TtsScript};
use crate::provider::{AudioStream, Chunk, Info, ProviderError, Sink, TaskCx, Transcript, Words};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn good_tts() -> TtsScript {
    TtsScript::new().first_after(ms(80)).real_time(0.3)
}

async fn tts_failures(script: TtsScript) -> Vec<Failure> {
    examine_tts(ScriptedTts::new([script]), &Terms::default()).await.failures
}

async fn llm_failures(script: LlmScript) -> Vec<Failure> {
    examine_llm(ScriptedLlm::new([script]), &Terms::default()).await.failures
}

async fn retriever_failures(script: RetrieverScript) -> Vec<Failure> {
    examine_retriever(ScriptedRetriever::new([script]), &Terms::default()).await.failures
}

async fn stt_failures(script: SttScript) -> Vec<Failure> {
    examine_stt(ScriptedStt::new([script]), &Terms::default()).await.failures
}

#[tokio::test(start_paused = true)]
async fn ours_keep_the_contract() {
    tts(ScriptedTts::new([good_tts()])).await;
    tts(ScriptedTts::new([TtsScript::new()])).await;
    llm(ScriptedLlm::new([LlmScript::says("Some words for everybody.").paced(ms(200), ms(20))])).await;
    llm(ScriptedLlm::saying("At once.")).await;
    llm(Brain::new()).await;
    stt(ScriptedStt::new([SttScript::hears("hello there").partial(ms(500), "hello").final_after(ms(150))])).await;
    stt(ScriptedStt::new([SttScript::nothing()])).await;
    retriever(ScriptedRetriever::finding("at once")).await;
    retriever(ScriptedRetriever::new([RetrieverScript::nothing().after(ms(200))])).await;
    let report = examine_tts(ScriptedTts::new([good_tts()]), &Terms::default()).await;
    assert_eq!((report.first, report.to_string()), (Some(ms(80)), "scripted-tts keeps the contract".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_synthesizer_that_does_not_listen_is_caught_in_each_stop() {
    let failures = tts_failures(good_tts().deaf(1_000)).await;
    let parts = [Part::StoppedAtOnce, Part::Stopped, Part::StoppedWhenFull, Part::HungUp];
    assert_eq!(failures, parts.map(|part| Failure::NotStopped(part, Terms::default().grace)));
}

#[tokio::test(start_paused = true)]
async fn a_synthesizer_that_breaks_off_hangs_panics_or_is_late_is_caught() {
    let broken = tts_failures(good_tts().after_chunks(1, End::Break(Retry::Now))).await;
    assert!(broken.iter().any(|f| matches!(f, Failure::Failed(Part::Plain, _))), "{broken:?}");
    let hangs = tts_failures(good_tts().then(End::Hang)).await;
    assert!(hangs.contains(&Failure::NeverEnded(Part::Plain, Terms::default().whole)), "{hangs:?}");
    let panics = tts_failures(good_tts().then(End::Panic)).await;
    assert!(panics.contains(&Failure::Panicked(Part::Plain)), "{panics:?}");
    let late = tts_failures(good_tts().first_after(Duration::from_secs(11))).await;
    assert!(late.contains(&Failure::FirstLate(Part::Plain, Terms::default().first)), "{late:?}");
    // It dies without a word and says that it was done.
    let mute = tts_failures(good_tts().after_chunks(1, End::Complete)).await;
    assert!(mute.iter().any(|f| matches!(f, Failure::Chars { part: Part::Plain, .. })), "{mute:?}");
    let loud = tts_failures(good_tts().sound(Sound::Level(1.5))).await;
    assert!(loud.contains(&Failure::BadSample(Part::Plain)), "{loud:?}");
    let nan = tts_failures(good_tts().sound(Sound::Level(f32::NAN))).await;
    assert!(nan.contains(&Failure::BadSample(Part::Plain)), "{nan:?}");
    let silent = tts_failures(good_tts().a_char(Duration::ZERO)).await;
    assert!(silent.contains(&Failure::Nothing(Part::Plain)), "{silent:?}");
}

/// A synthesizer with one fault that no script has.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    CountsBytes,
    CountsTwice,
    GivesUpAsDone,
    SendsFromElsewhere,
    KeepsTheSink,
    StopsOnce,
}

struct Faulty(Fault, AtomicUsize);

impl Tts for Faulty {
    fn info(&self) -> Info {
        Info::new("faulty")
    }

    async fn speak(&self, mut text: Words, out: Sink<Chunk>, cx: TaskCx) -> Result<(), ProviderError> {
        let chunk = |chars| Chunk { samples: vec![0.1; 160], chars, timing: Timing::Exact };
        if self.0 == Fault::StopsOnce && self.1.fetch_add(1, Ordering::SeqCst) > 4 {
            return Err(ProviderError::Broken { why: "it does not recover from a stop".into(), retry: Retry::Now });
        }
        loop {
            let next = match cx.until_stopped(text.next()).await {
                Err(_) if self.0 == Fault::GivesUpAsDone => return Ok(()),
                next => next?,
            };
            let Some(piece) = next else { break };
            let chars = match self.0 {
                Fault::CountsBytes => piece.reveal().len(),
                Fault::CountsTwice => piece.reveal().chars().count() * 2,
                _ => piece.reveal().chars().count(),
            };
            cx.until_stopped(out.send(chunk(chars))).await??;
        }
        match self.0 {
            Fault::SendsFromElsewhere => drop(tokio::spawn(async move {
                pause(ms(50)).await;
                out.send(Chunk { samples: vec![0.1], chars: 0, timing: Timing::Exact }).await
            })),
            Fault::KeepsTheSink => drop(tokio::spawn(async move {
                pause(Duration::from_secs(3_600)).await;
                drop(out);
            })),
            _ => {}
        }
        Ok(())
    }
}

#[allow(clippy::disallowed_methods, reason = "virtual time in a test")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn each_rule_of_a_synthesizer_catches_its_fault() {
    let find = async |fault| examine_tts(Faulty(fault, AtomicUsize::new(0)), &Terms::default()).await.failures;
    let bytes = find(Fault::CountsBytes).await;
    assert!(bytes.iter().any(|f| matches!(f, Failure::Chars { part: Part::Unicode, .. })), "{bytes:?}");
    assert!(!bytes.iter().any(|f| matches!(f, Failure::Chars { part: Part::Plain, .. })), "only beyond ASCII");
    let twice = find(Fault::CountsTwice).await;
    assert!(twice.contains(&Failure::SpeaksAhead(Part::Plain)), "{twice:?}");
    let done = find(Fault::GivesUpAsDone).await;
    assert!(done.iter().any(|f| matches!(f, Failure::NotPolite(Part::StoppedAtOnce, _))), "{done:?}");
    assert!(find(Fault::SendsFromElsewhere).await.contains(&Failure::AfterReturn(Part::Plain)));
    assert!(find(Fault::KeepsTheSink).await.contains(&Failure::StillHolds(Part::Plain)));
    let once = find(Fault::StopsOnce).await;
    assert!(once.iter().any(|f| matches!(f, Failure::Failed(Part::Again, _))), "{once:?}");
}

#[tokio::test(start_paused = true)]
async fn each_rule_of_a_model_catches_its_fault() {
    let deaf = llm_failures(LlmScript::says("a b c").paced(ms(50), ms(500)).deaf(100)).await;
    assert!(deaf.contains(&Failure::NotStopped(Part::Stopped, Terms::default().grace)), "{deaf:?}");
    let flood = llm_failures(LlmScript::flood("x")).await;
    assert!(flood.contains(&Failure::NeverEnded(Part::Plain, Terms::default().whole)), "{flood:?}");
    assert!(!flood.iter().any(|f| matches!(f, Failure::NotStopped(..))), "it does stop: {flood:?}");
    let mute = llm_failures(LlmScript::silent(End::Complete)).await;
    assert!(mute.contains(&Failure::FirstLate(Part::Plain, Terms::default().first)), "{mute:?}");
    assert!(llm_failures(LlmScript::pieces([" ", "\n"])).await.contains(&Failure::Nothing(Part::Plain)));
    assert!(llm_failures(LlmScript::says("a").then(End::Panic)).await.contains(&Failure::Panicked(Part::Plain)));
    assert!(llm_failures(LlmScript::says("a").then(End::Refuse)).await.iter().any(|f| matches!(f, Failure::Failed(..))));
}

#[tokio::test(start_paused = true)]
async fn a_model_may_ask_for_what_it_was_offered_and_for_nothing_else() {
    let calls = |tool: &'static str, arguments: &'static str| {
        ScriptedLlm::choosing(move |prompt| {
            let says = LlmScript::says("Well.");
            if prompt.tools.is_empty() { says } else { says.calls(tool, arguments) }
        })
    };
    llm(calls("clock", r#"{"town":"Köln"}"#)).await;
    let torn = examine_llm(calls("clock", r#"{"town":"#), &Terms::default()).await.failures;
    assert_eq!(torn, [Part::Tools, Part::Results].map(|part| Failure::BadArguments(part, "clock".into())));
    let invents = examine_llm(calls("weather", "{}"), &Terms::default()).await.failures;
    assert_eq!(invents, [Part::Tools, Part::Results].map(|part| Failure::NotOffered(part, "weather".into())));
    let unasked = llm_failures(LlmScript::says("Well.").calls("clock", "{}")).await;
    assert!(unasked.contains(&Failure::NotOffered(Part::Plain, "clock".into())), "{unasked:?}");
    // Some servers refuse a history with calls in it.
    let chokes = ScriptedLlm::choosing(|prompt| {
        let calls = prompt.conversation.iter().any(|m| matches!(m, crate::provider::Message::Call { .. }));
        if calls { LlmScript::silent(End::Refuse) } else { LlmScript::says("Well.") }
    });
    let chokes = examine_llm(chokes, &Terms::default()).await.failures;
    assert!(matches!(chokes[..], [Failure::Failed(Part::Results, _)]), "{chokes:?}");
}

#[tokio::test(start_paused = true)]
async fn each_rule_of_a_retriever_catches_its_fault() {
    let slow = || RetrieverScript::finds("x").after(ms(500));
    let deaf = retriever_failures(slow().after(Duration::from_secs(2)).deaf()).await;
    assert_eq!(deaf, [Failure::NotStopped(Part::StoppedAtOnce, Terms::default().grace)]);
    let late = retriever_failures(slow().after(Duration::from_secs(11))).await;
    assert!(late.contains(&Failure::FirstLate(Part::Plain, Terms::default().first)), "{late:?}");
    let hangs = retriever_failures(slow().then(End::Hang)).await;
    assert!(hangs.contains(&Failure::NeverEnded(Part::Empty, Terms::default().whole)), "{hangs:?}");
    let fails = retriever_failures(slow().then(End::Break(Retry::Now))).await;
    assert!(fails.iter().any(|f| matches!(f, Failure::Failed(Part::Unicode, _))), "{fails:?}");
    let panics = retriever_failures(slow().then(End::Panic)).await;
    assert!(panics.contains(&Failure::Panicked(Part::TwoAtOnce)), "{panics:?}");
}

#[tokio::test(start_paused = true)]
async fn each_rule_of_a_recogniser_catches_its_fault() {
    let double = stt_failures(SttScript::hears("one").and_again("two")).await;
    assert!(double.contains(&Failure::Finals(Part::Plain, 2)), "{double:?}");
    let none = stt_failures(SttScript::fails(End::Complete)).await;
    assert!(none.contains(&Failure::Finals(Part::Plain, 0)), "{none:?}");
    let fails = stt_failures(SttScript::fails(End::Break(Retry::Now))).await;
    assert!(fails.iter().any(|f| matches!(f, Failure::Failed(Part::Plain, _))), "{fails:?}");
    let deaf = stt_failures(SttScript::hears("one").deaf(9)).await;
    assert!(deaf.contains(&Failure::NotStopped(Part::StoppedAtOnce, Terms::default().grace)), "{deaf:?}");

    struct SpeaksOn;
    impl Stt for SpeaksOn {
        fn info(&self) -> Info {
            Info::new("speaks on")
        }
        async fn listen(&self, mut audio: AudioStream, out: Sink<Transcript>, cx: TaskCx) -> Result<(), ProviderError> {
            while cx.until_stopped(audio.next()).await?.is_some() {}
            for is_final in [true, false] {
                out.send(Transcript { text: "x".into(), is_final }).await?;
            }
            Ok(())
        }
    }
    let on = examine_stt(SpeaksOn, &Terms::default()).await.failures;
    assert!(on.contains(&Failure::AfterFinal(Part::Plain)), "{on:?}");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "scripted-llm breaks the contract:")]
async fn the_short_form_panics_with_what_is_wrong() {
    llm(ScriptedLlm::new([LlmScript::silent(End::Refuse)])).await;
}
