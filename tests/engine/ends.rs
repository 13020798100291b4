//! How sessions begin and end: limits, drains, lost links, panics; and a thousand turns that leave nothing.

use std::time::Duration;

use antiphon::engine::{Engine, Limits, OpenError};
use antiphon::event::{CancelCause, Event, FailReason, Retry, Stage, Terminal};
use antiphon::id::{RequestId, SessionId, TurnId};
use antiphon::provider::llm::{LlmScript, ScriptedLlm};
use antiphon::provider::script::End;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::time::{BLOCK_SAMPLES, RuntimeClock, Stamp};
use antiphon::transport::memory::{page, pair};
use antiphon::transport::net::Net;
use antiphon::transport::wire::{FromClient, ToClient};
use antiphon::transport::{MediaIn, Mic};
use antiphon::turn::{CancelAnswer, OnDisconnect, Refusal, SayAnswer};

use super::world::{STORY, WALL, World, policy};

#[tokio::test(start_paused = true)]
async fn a_thousand_turns_leave_no_task_and_no_turn_without_its_end() {
    let llm = ScriptedLlm::new([LlmScript::says("Yes, of course.").paced(Duration::from_millis(7), Duration::from_millis(3))]);
    let tts = ScriptedTts::new([TtsScript::new().a_char(Duration::from_millis(3)).first_after(Duration::from_millis(9))]);
    let mut world = World::new(ScriptedStt::hearing("unused"), llm.clone(), tts.clone());
    for i in 0..1_000u64 {
        let turn = world.say("again").await;
        assert_eq!(turn, TurnId(i + 1));
        match i % 4 {
            0 => drop(world.end_of(turn).await),
            1 => {
                world.run(i % 7 * 10).await;
                world.cancel(turn).await;
            }
            2 => world.run(20).await,
            _ => {}
        }
    }
    world.run(2_000).await;
    let ended = world.count(|e| matches!(e, Event::TurnEnded { .. }));
    assert_eq!(ended, 1_000);
    assert_eq!((llm.running(), tts.running(), world.engine.counters().tasks_alive), (0, 0, 0));
    // The first ends are no longer remembered: they are read from the store.
    assert_eq!(world.session.ended(TurnId(1)).await, Some(Terminal::Completed));
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_fails_its_turn_and_nothing_else() {
    let llm = ScriptedLlm::new([LlmScript::pieces(["Well, "]).then(End::Panic), LlmScript::says("Good.")]);
    let mut world = World::new(ScriptedStt::hearing("unused"), llm, ScriptedTts::new([TtsScript::new()]));
    let turn = world.say("one").await;
    let end = world.end_of(turn).await;
    assert_eq!(end, Terminal::Failed { reason: FailReason::Provider { stage: Stage::Generate, retry: Retry::Never } });
    let next = world.say("two").await;
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    assert_eq!(world.engine.counters().task_panics_total, 1);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_answered_the_same_however_often_and_after_the_end() {
    let mut world = World::story();
    let turn = world.say("one").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    let request = RequestId::from_bits(5);
    for _ in 0..3 {
        assert_eq!(world.session.cancel(turn, request, CancelCause::User).await, CancelAnswer::Accepted);
    }
    let end = world.end_of(turn).await;
    let again = world.session.cancel(turn, RequestId::from_bits(6), CancelCause::User).await;
    assert_eq!(again, CancelAnswer::AlreadyTerminal(end.clone()));
    assert_eq!(world.count(|e| matches!(e, Event::CancelRequested { .. })), 1);
    assert_eq!(world.session.cancel(TurnId(99), RequestId::from_bits(7), CancelCause::User).await, CancelAnswer::NoSuchTurn);
    let session = world.session.clone();
    world.leave_nothing().await;
    assert_eq!(session.cancel(turn, RequestId::from_bits(8), CancelCause::User).await, CancelAnswer::AlreadyTerminal(end));
    assert_eq!(session.cancel(TurnId(99), RequestId::from_bits(9), CancelCause::User).await, CancelAnswer::NoSuchTurn);
    let refused = SayAnswer::NotAccepted { refusal: Refusal::Draining, text: "more".into() };
    assert_eq!(session.say("more").await, refused);
    assert!(session.snapshot().await.is_none() && session.records().next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_client_types_stops_and_pings_over_the_wire() {
    let mut world = World::story();
    let request = RequestId::from_bits(21);
    let now = world.clock_now();
    world.far.send(now, FromClient::Text { request, text: "tell me a story".into() });
    world.until("the answer", |w| w.sounds(TurnId(1))).await;
    let now = world.clock_now();
    world.far.send(now, FromClient::Ping { mark: 4.5 });
    world.far.send(now, FromClient::Cancel { request: RequestId::from_bits(22), turn: TurnId(1) });
    assert_eq!(world.end_of(TurnId(1)).await, Terminal::Cancelled { cause: CancelCause::User });
    let now = world.clock_now();
    let last = world.log.last().expect("records").seq;
    world.far.send(now, FromClient::Ack { seq: last });
    world.run(100).await;
    assert_eq!(world.session.acked(), last);
    let answers: Vec<(&str, Option<TurnId>)> = world
        .messages
        .iter()
        .filter_map(|(_, m)| match m {
            ToClient::Answer { answer, turn, .. } => Some((answer.as_str(), *turn)),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [("started", Some(TurnId(1))), ("accepted", Some(TurnId(1)))]);
    assert!(world.messages.iter().any(|(_, m)| matches!(m, ToClient::Pong { mark, .. } if *mark == 4.5)));
    let now = world.clock_now();
    world.far.send(now, FromClient::Hello { v: 99 });
    world.run(100).await;
    assert!(world.far.is_closed(), "another version is let go");
    world.session.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_link_ends_the_session_when_its_policy_has_run() {
    for (policy_of, within, end) in [
        (OnDisconnect::CancelNow, 200, Terminal::Cancelled { cause: CancelCause::Transport }),
        (OnDisconnect::Hold(Duration::from_secs(3)), 3_300, Terminal::Cancelled { cause: CancelCause::Transport }),
        (OnDisconnect::GoOn, 6_500, Terminal::Completed),
    ] {
        let mut policy = policy();
        policy.on_disconnect = policy_of;
        let builder =
            Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), ScriptedTts::new([TtsScript::new()]));
        let mut world = World::with(builder.policy(policy), Net::perfect());
        let turn = world.say("one").await;
        world.until("the answer", |w| w.sounds(turn)).await;
        let lost = world.clock_now();
        world.far.leave();
        world.session.closed().await;
        let took = world.clock_now().since(lost);
        assert!(took <= Duration::from_millis(within), "{policy_of:?}: {took:?}");
        world.collect().await;
        assert_eq!(world.terminal(turn), Some(end), "{policy_of:?}");
        assert_eq!(world.count(|e| matches!(e, Event::LinkLost)), 1);
        assert_eq!(world.engine.counters().tasks_alive, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_turns_end_within_its_time_and_cancels_the_rest() {
    let short = Duration::from_secs(1);
    for (text, end) in [("Yes.", Terminal::Completed), (STORY, Terminal::Cancelled { cause: CancelCause::Shutdown })] {
        let mut world = World::new(ScriptedStt::hearing("unused"), ScriptedLlm::saying(text), ScriptedTts::new([TtsScript::new()]));
        let turn = world.say("one").await;
        let engine = world.engine.clone();
        let began = world.clock_now();
        let draining = tokio::spawn(async move { engine.drain(short).await });
        world.run(50).await;
        let refused = SayAnswer::NotAccepted { refusal: Refusal::Draining, text: "two".into() };
        assert_eq!(world.session.say("two").await, refused);
        let (link, _far) = pair(Net::perfect(), page());
        let other = world.engine.open(SessionId::from_bits(8), RuntimeClock::start(), link);
        assert!(matches!(other, Err(OpenError::Draining)));
        world.until("the end of the drain", |_| draining.is_finished()).await;
        assert!(world.clock_now().since(began) <= short + Duration::from_millis(300));
        assert_eq!(world.terminal(turn), Some(end));
        assert_eq!(world.engine.sessions(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_engine_says_so_and_has_room_again() {
    let engine = Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying("Yes."), ScriptedTts::new([TtsScript::new()]))
        .limits(Limits { sessions: 2, ..Limits::default() })
        .virtual_time(WALL)
        .build();
    let open = |n: u128| {
        let (link, far) = pair(Net::perfect(), page());
        engine.open(SessionId::from_bits(n), RuntimeClock::start(), link).map(|session| (session, far))
    };
    let (first, _far) = open(1).expect("room");
    let _second = open(2).expect("room");
    assert!(matches!(open(2).err(), Some(OpenError::AlreadyOpen(_))));
    assert!(matches!(open(3).err(), Some(OpenError::Full { limit: 2 })));
    first.close(CancelCause::User).await;
    assert!(engine.session(first.id()).is_none());
    let _third = open(3).expect("room again");
}

/// A microphone that panics at its hundredth beat.
struct Faulty(u32);

impl MediaIn for Faulty {
    fn pull(&mut self, _: Stamp, _: &mut [f32; BLOCK_SAMPLES]) -> Mic {
        self.0 += 1;
        assert!(self.0 < 100, "the hundredth beat");
        Mic::Nothing
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_panics_ends_its_session_and_no_other() {
    let mut world = World::story();
    let (mut link, _far) = pair(Net::perfect(), page());
    link.media_in = Box::new(Faulty(0));
    // The other half of the pair's link is dropped with its microphone: this one is closed by hand only.
    link.closed = tokio_util::sync::CancellationToken::new();
    let faulty = world.engine.open(SessionId::from_bits(8), world.clock, link).expect("there is room");
    let turn = world.say("one").await;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    assert!(faulty.is_closed());
    assert_eq!(world.engine.counters().link_panics_total, 1);
    world.leave_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pump_turns_on_threads_of_its_own() {
    let engine = Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying("Yes."), ScriptedTts::new([TtsScript::new()]))
        .limits(Limits { pump_threads: 2, ..Limits::default() })
        .build();
    let mut people = Vec::new();
    for n in 0..4 {
        let (link, far) = pair(Net::perfect(), page());
        let session = engine.open(SessionId::from_bits(n), RuntimeClock::start(), link).expect("there is room");
        people.push((session, far));
    }
    for (session, _) in &people {
        let SayAnswer::Started(turn) = session.say("one").await else { panic!("not started") };
        // Nobody turns the far ends: their silence is not waited for longer than a second.
        assert_eq!(session.ended(turn).await, Some(Terminal::Completed));
    }
    assert_eq!(engine.counters().pumped, 4);
    engine.drain(Duration::ZERO).await;
    let counters = engine.counters();
    assert_eq!((counters.pumped, counters.tasks_alive, counters.sessions), (0, 0, 0));
}
