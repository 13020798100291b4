//! Everything full: "stop" is heard, nothing is lost, and whoever does not read harms nobody but himself.

use std::sync::Arc;
use std::time::Duration;

use antiphon::engine::Engine;
use antiphon::event::{CancelCause, Event, Record, Terminal};
use antiphon::id::{RequestId, Seq, SessionId};
use antiphon::provider::llm::{LlmScript, ScriptedLlm};
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::store::{EventStore, Memory, StoreError, Writer};
use antiphon::time::{Clock, RuntimeClock};
use antiphon::transport::net::Net;
use antiphon::turn::CancelAnswer;
use tokio::sync::watch;

use super::world::{STORY, WALL, World, policy, wait_until};

/// A memory store behind a narrow door that can be shut: its queue holds eight records.
#[derive(Clone)]
struct Door {
    behind: Memory,
    open: watch::Receiver<bool>,
}

impl EventStore for Door {
    fn open(&self, session: SessionId) -> Result<Writer, StoreError> {
        let (writer, mut end) = Writer::new(8);
        let behind = self.behind.open(session)?;
        let mut open = self.open.clone();
        tokio::spawn(async move {
            let mut stored = behind.stored();
            while open.wait_for(|open| *open).await.is_ok() {
                let Some(record) = end.records.recv().await else { return };
                let seq = record.seq;
                behind.append(record).expect("there is room behind the door");
                if stored.wait_for(|s| *s >= seq).await.is_err() {
                    return;
                }
                end.stored.send_replace(seq);
            }
        });
        Ok(writer)
    }

    async fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<Vec<Arc<Record>>, StoreError> {
        self.behind.read(session, after, limit).await
    }
}

/// A world whose store is behind a door, which is open.
fn behind_a_door(stt: ScriptedStt, llm: ScriptedLlm) -> (World, watch::Sender<bool>) {
    let (door, open) = watch::channel(true);
    let memory = Memory::default();
    let engine = Engine::builder(stt, llm, ScriptedTts::new([TtsScript::new()]))
        .policy(policy())
        .store(Door { behind: memory.clone(), open })
        .virtual_time(WALL)
        .build();
    (World::over(engine, memory, Net::perfect()), door)
}

#[tokio::test(start_paused = true)]
async fn stop_is_heard_while_ring_and_store_are_full() {
    let llm = ScriptedLlm::new([
        LlmScript::says(&STORY.repeat(20)).paced(Duration::ZERO, Duration::from_millis(20)),
        LlmScript::says("Good."),
    ]);
    let (mut world, door) = behind_a_door(ScriptedStt::hearing("unused"), llm);
    let turn = world.say("tell me a story").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(600).await;
    assert!(world.engine.counters().playback_full_total > 0, "the ring is full");
    door.send_replace(false);
    // The queue of eight is full, results are not read any more, and the ring still holds sound.
    world.run(300).await;
    assert!(world.heard.last().expect("beats").sounds(), "a shut store does not silence what is in the ring");

    // Stop, with nothing able to move: the answer falls silent at once, and what is not stored yet is not said.
    let session = world.session.clone();
    let asked = tokio::spawn(async move { session.cancel(turn, RequestId::from_bits(1), CancelCause::User).await });
    let cut = world.clock_now();
    world.run(300).await;
    assert_eq!(world.heard.iter().filter(|h| h.at > cut + Duration::from_millis(20) && h.sounds()).count(), 0);
    assert!(!asked.is_finished(), "an accepted cancel is told when it is kept");

    door.send_replace(true);
    assert_eq!(asked.await.expect("no panic"), CancelAnswer::Accepted);
    assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::User });
    assert!(world.engine.counters().store_wait_seconds > 0.1);
    let next = world.say("well?").await;
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn voice_is_heard_while_the_store_is_shut() {
    let llm = ScriptedLlm::saying(&STORY.repeat(3));
    let (mut world, door) = behind_a_door(ScriptedStt::hearing("stop"), llm);
    let turn = world.say("tell me a story").await;
    world.until("the answer", |w| w.sounds(turn)).await;
    world.run(500).await;
    door.send_replace(false);
    let onset = world.clock_now();
    world.talk(500);
    world.run(1_500).await;
    assert_eq!(world.heard.iter().filter(|h| h.at > onset + Duration::from_millis(80) && h.sounds()).count(), 0);
    door.send_replace(true);
    assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::BargeIn });
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn h2_after_a_cut_exactly_the_rest_comes_and_nothing_is_generated_again() {
    let llm = ScriptedLlm::saying("Half of it was read, and the rest comes later.");
    let mut world = World::new(ScriptedStt::hearing("unused"), llm.clone(), ScriptedTts::new([TtsScript::new()]));
    let turn = world.say("one").await;
    world.until("a beginning", |w| w.log.len() > 12).await;
    // A reader has read so far when it is gone; another goes on from there.
    let read = world.log[8].seq;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    let mut rest = world.session.records_after(read);
    let live = world.log.clone();
    let world = world.leave_nothing().await;
    let mut resumed = Vec::new();
    while let Some(record) = rest.next().await {
        resumed.push(record);
    }
    let seqs: Vec<u64> = resumed.iter().map(|r| r.seq.0).collect();
    let last = world.log.last().expect("some").seq.0;
    assert_eq!(seqs, (read.0 + 1..=last).collect::<Vec<_>>(), "each once, none missing");
    assert!(resumed.iter().zip(&live[9..]).all(|(a, b)| a == b));
    assert_eq!(llm.calls(), 1, "the model was asked once");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_reads_on_from_the_store_without_a_hole() {
    let mut world = World::new(
        ScriptedStt::hearing("unused"),
        ScriptedLlm::saying(&STORY.repeat(30)),
        ScriptedTts::new([TtsScript::new().a_char(Duration::from_millis(1))]),
    );
    let mut slow = world.session.records_after(Seq(0));
    let turn = world.say("one").await;
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    assert!(world.log.len() > 500, "more than a reader's queue holds");
    let live = world.log.clone();
    let world = world.leave_nothing().await;
    let mut read = Vec::new();
    while let Some(record) = slow.next().await {
        read.push(record);
    }
    assert_eq!(read.len(), world.log.len());
    assert!(read.iter().zip(&live).all(|(a, b)| a == b));
    assert_eq!(world.engine.counters().reader_lagged_total, 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go() {
    let world = World::new(
        ScriptedStt::hearing("unused"),
        ScriptedLlm::saying(&STORY.repeat(30)),
        ScriptedTts::new([TtsScript::new().a_char(Duration::from_millis(1))]),
    );
    let mut world = world;
    // The far end is not turned any more: nobody reads.
    world.say("one").await;
    world.session.closed().await;
    world.collect().await;
    let counters = world.engine.counters();
    assert_eq!((counters.link_lagged_total, counters.sessions, counters.tasks_alive), (1, 0, 0));
    assert_eq!(world.count(|e| matches!(e, Event::LinkLost)), 1);
    assert!(world.far.is_closed());
}

/// A store that goes away after ten records.
#[derive(Clone)]
struct Leaving(Memory);

impl EventStore for Leaving {
    fn open(&self, _: SessionId) -> Result<Writer, StoreError> {
        let (writer, mut end) = Writer::new(64);
        tokio::spawn(async move {
            for _ in 0..10 {
                let Some(record) = end.records.recv().await else { return };
                end.stored.send_replace(record.seq);
            }
        });
        Ok(writer)
    }

    async fn read(&self, session: SessionId, after: Seq, limit: usize) -> Result<Vec<Arc<Record>>, StoreError> {
        self.0.read(session, after, limit).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_store_is_gone_ends_and_leaves_nothing() {
    let clock = RuntimeClock::start();
    let engine = Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), ScriptedTts::new([TtsScript::new()]))
        .store(Leaving(Memory::default()))
        .virtual_time(WALL)
        .build();
    let (link, far) = antiphon::transport::memory::pair(Net::perfect(), antiphon::transport::memory::page());
    let session = engine.open(SessionId::from_bits(7), clock, link).expect("there is room");
    session.say("one").await;
    session.closed().await;
    wait_until(clock, clock.now() + Duration::from_millis(20)).await;
    let counters = engine.counters();
    assert_eq!((counters.sessions, counters.tasks_alive, counters.pumped), (0, 0, 0));
    assert!(far.is_closed());
}
