//! A conversation in one process on paused time: a real engine with its ring, fence and pump, scripted providers, and a far end that
//! is turned by hand.

use std::sync::Arc;
use std::time::Duration;

use antiphon::engine::{Builder, Engine, Records, Session};
use antiphon::event::{Event, Record, Terminal};
use antiphon::id::{Generation, RequestId, SessionId, TurnId};
use antiphon::provider::llm::ScriptedLlm;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::ScriptedTts;
use antiphon::provider::{Llm, Stt, Tts};
use antiphon::store::Memory;
use antiphon::time::{BEAT, Clock, RuntimeClock, Stamp};
use antiphon::transport::memory::{FarEnd, Heard, page, pair};
use antiphon::transport::net::Net;
use antiphon::transport::wire::ToClient;
use antiphon::turn::{CancelAnswer, Policy, SayAnswer};

/// The far end turns its beat this long after the pump does.
const OFFSET: Duration = Duration::from_millis(3);

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) session: Session,
    pub(crate) clock: RuntimeClock,
    pub(crate) far: FarEnd,
    pub(crate) store: Memory,
    pub(crate) heard: Vec<Heard>,
    pub(crate) messages: Vec<(Stamp, ToClient)>,
    pub(crate) log: Vec<Arc<Record>>,
    records: Records,
    beat: Stamp,
    noise: u32,
    said: u128,
}

/// A policy in which every loud sound is speech, so that tests can talk in noise.
pub(crate) fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.floor.every_sound = true;
    policy
}

impl World {
    /// A world with these providers, over a perfect network.
    pub(crate) fn new(stt: impl Stt, llm: impl Llm, tts: impl Tts) -> Self {
        Self::with(Engine::builder(stt, llm, tts).policy(policy()), Net::perfect())
    }

    /// A world in which every utterance is a request for a story, and the model tells it.
    pub(crate) fn story() -> Self {
        Self::new(ScriptedStt::hearing("tell me a story"), ScriptedLlm::saying(STORY), ScriptedTts::new([Default::default()]))
    }

    pub(crate) fn with(builder: Builder, net: Net) -> Self {
        let store = Memory::default();
        let engine = builder.store(store.clone()).virtual_time(WALL).build();
        Self::over(engine, store, net)
    }

    pub(crate) fn over(engine: Engine, store: Memory, net: Net) -> Self {
        let clock = RuntimeClock::start();
        let (link, far) = pair(net, page());
        let session = engine.open(SessionId::from_bits(7), clock, link).expect("there is room");
        let records = session.records_after(Default::default());
        World {
            engine,
            session,
            clock,
            far,
            store,
            heard: Vec::new(),
            messages: Vec::new(),
            log: Vec::new(),
            records,
            beat: Stamp::ZERO + OFFSET,
            noise: 0x1234_5678,
            said: 0,
        }
    }

    /// One beat of the far end, when it is due, and what is known after it.
    pub(crate) async fn beat(&mut self) -> Heard {
        wait_until(self.clock, self.beat).await;
        let heard = self.far.beat(self.beat);
        self.beat += BEAT;
        let now = self.clock.now();
        self.messages.extend(self.far.messages().map(|m| (now, m)));
        self.heard.push(heard);
        self.collect().await;
        heard
    }

    /// Takes the records that are there.
    pub(crate) async fn collect(&mut self) {
        loop {
            tokio::select! {
                biased;
                record = self.records.next() => match record {
                    Some(record) => self.log.push(record),
                    None => return,
                },
                () = tokio::task::yield_now() => return,
            }
        }
    }

    pub(crate) async fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.beat().await;
        }
    }

    /// Beats until `done`, a minute at most.
    pub(crate) async fn until(&mut self, what: &str, mut done: impl FnMut(&World) -> bool) {
        for _ in 0..6_000 {
            if done(self) {
                return;
            }
            self.beat().await;
        }
        let log: Vec<String> = self.log.iter().map(|r| format!("{} {:?} {} {:?}", r.at, r.turn, r.generation, r.event)).collect();
        panic!("a minute went by without {what}; the log:\n{}", log.join("\n"));
    }

    /// Makes the person talk for so long, in something that sounds like syllables.
    pub(crate) fn talk(&mut self, ms: u64) {
        self.far.talk(ms, &mut self.noise);
    }

    pub(crate) async fn snapshot_generation(&self) -> Generation {
        self.session.snapshot().await.expect("the session lives").generation
    }

    pub(crate) fn clock_now(&self) -> Stamp {
        self.clock.now()
    }

    /// Types something and returns the turn it started.
    pub(crate) async fn say(&mut self, text: &str) -> TurnId {
        // Counted, so that two runs ask under the same names.
        self.said += 1;
        match self.session.say_as(RequestId::from_bits(0x5A1D_0000 + self.said), text).await {
            SayAnswer::Started(turn) => turn,
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) async fn cancel(&mut self, turn: TurnId) -> CancelAnswer {
        // Derived from the turn, so that two runs ask in the same words.
        let request = RequestId::from_bits(0xCAFE_0000 + u128::from(turn.0));
        self.session.cancel(turn, request, antiphon::event::CancelCause::User).await
    }

    /// Beats until this turn has ended.
    pub(crate) async fn end_of(&mut self, turn: TurnId) -> Terminal {
        self.until("the end of the turn", |w| w.terminal(turn).is_some()).await;
        self.terminal(turn).expect("just seen")
    }

    pub(crate) fn terminal(&self, turn: TurnId) -> Option<Terminal> {
        self.find(|r| match &r.event {
            Event::TurnEnded { terminal, .. } if r.turn == Some(turn) => Some(terminal.clone()),
            _ => None,
        })
    }

    /// What was heard and what was not, of a turn that has ended.
    pub(crate) fn texts(&self, turn: TurnId) -> (String, String) {
        self.find(|r| match &r.event {
            Event::TurnEnded { heard, unheard, .. } if r.turn == Some(turn) => {
                Some((heard.reveal().clone(), unheard.reveal().clone()))
            }
            _ => None,
        })
        .expect("the turn has ended")
    }

    pub(crate) fn find<T>(&self, what: impl FnMut(&Arc<Record>) -> Option<T>) -> Option<T> {
        self.log.iter().find_map(what)
    }

    pub(crate) fn place(&self, what: impl Fn(&Event) -> bool) -> Option<usize> {
        self.log.iter().position(|r| what(&r.event))
    }

    pub(crate) fn count(&self, what: impl Fn(&Event) -> bool) -> usize {
        self.log.iter().filter(|r| what(&r.event)).count()
    }

    /// Whether the answer of `turn` sounds.
    pub(crate) fn sounds(&self, turn: TurnId) -> bool {
        self.log.iter().any(|r| r.turn == Some(turn) && r.event == Event::AudioStarted)
    }

    /// Beats of the far end, not before `from`, in which something older than `generation` sounded.
    pub(crate) fn stale_after(&self, from: Stamp, generation: Generation) -> usize {
        self.heard.iter().filter(|h| h.at >= from && h.generation < generation && h.sounds()).count()
    }

    /// Closes the session and checks that nothing of it is left.
    pub(crate) async fn leave_nothing(mut self) -> Self {
        self.session.close(antiphon::event::CancelCause::Shutdown).await;
        self.collect().await;
        tokio::task::yield_now().await;
        let counters = self.engine.counters();
        assert_eq!(
            (counters.sessions, counters.tasks_alive, counters.pumped, counters.tasks_orphaned_total),
            (0, 0, 0, 0),
            "{counters:?}"
        );
        let metrics = self.engine.metrics();
        assert_eq!((metrics.late_events().delivered, metrics.terminal_conflicts()), (0, 0));
        let mut turns: Vec<TurnId> = Vec::new();
        for record in &self.log {
            if let (Event::TurnEnded { .. }, Some(turn)) = (&record.event, record.turn) {
                assert!(!turns.contains(&turn), "{turn} ended twice");
                turns.push(turn);
            }
        }
        for (i, record) in self.log.iter().enumerate() {
            assert_eq!(record.seq.0, i as u64 + 1, "no hole and no double");
        }
        self
    }
}

/// Waits on the runtime's clock.
#[allow(clippy::disallowed_methods, reason = "paused time: this turns the clock")]
pub(crate) async fn wait_until(clock: RuntimeClock, at: Stamp) {
    tokio::time::sleep_until(clock.instant(at)).await;
}

/// The wall time of every header, milliseconds since 1970.
pub(crate) const WALL: u64 = 1_700_000_000_000;

/// 90 characters, five seconds and a half at the scripted pace.
pub(crate) const STORY: &str = "Once upon a time there was a house by the sea, and in it lived a woman who mended clocks.";
