//! What an idle session costs in memory: ours, counted by the allocator, not the operating system's guess.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use antiphon::engine::{Engine, Limits};
use antiphon::event::CancelCause;
use antiphon::id::SessionId;
use antiphon::provider::llm::ScriptedLlm;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::time::{BEAT, Clock, RuntimeClock};
use antiphon::transport::memory::{Net, page, pair};

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[allow(unsafe_code, reason = "an allocator is unsafe by its trait; it only counts and passes on")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(clippy::disallowed_methods, reason = "paused time: this turns the clock")]
async fn turn_clock(by: Duration) {
    tokio::time::sleep(by).await;
}

/// One after the other: the allocator counts for the whole process.
#[tokio::test(start_paused = true)]
async fn sessions_cost_little_while_idle_and_nothing_when_over() {
    an_idle_session_costs_less_than_a_mebibyte_and_leaves_nothing().await;
    sessions_that_ended_leave_their_logs_and_nothing_else().await;
}

async fn an_idle_session_costs_less_than_a_mebibyte_and_leaves_nothing() {
    const SESSIONS: usize = 20;
    let engine = Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying("Yes."), ScriptedTts::new([TtsScript::new()]))
        .limits(Limits { sessions: 100, ..Limits::default() })
        .virtual_time(0)
        .build();
    let clock = RuntimeClock::start();
    let mut used = Vec::new();
    // The first round warms up what is allocated once.
    for round in 0..2 {
        // The link of this transport is its far end's memory too, and is there before and after.
        let (links, mut fars): (Vec<_>, Vec<_>) = (0..SESSIONS).map(|_| pair(Net::perfect(), page())).unzip();
        let before = LIVE.load(Ordering::Relaxed);
        let mut sessions = Vec::new();
        for (i, link) in links.into_iter().enumerate() {
            let id = SessionId::from_bits((round * SESSIONS + i) as u128);
            sessions.push(engine.open(id, clock, link).expect("there is room"));
        }
        for _ in 0..300 {
            turn_clock(BEAT).await;
            for far in &mut fars {
                far.beat(clock.now());
                far.messages().for_each(drop);
            }
        }
        let open = LIVE.load(Ordering::Relaxed);
        used.push(open.saturating_sub(before) / SESSIONS);
        for session in sessions {
            session.close(CancelCause::User).await;
        }
        turn_clock(BEAT).await;
        assert_eq!((engine.sessions(), engine.counters().pumped), (0, 0));
    }
    println!("bytes of an idle session: {used:?}");
    assert!(used[1] < 1 << 20, "{} bytes a session", used[1]);
    assert!(used[1] > 50_000, "the allocator counts: {} bytes a session", used[1]);
}

async fn sessions_that_ended_leave_their_logs_and_nothing_else() {
    let engine = Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying("Yes."), ScriptedTts::new([TtsScript::new()]))
        .virtual_time(0)
        .build();
    let mut after = Vec::new();
    for n in 0..200u128 {
        let (link, mut far) = pair(Net::perfect(), page());
        let clock = RuntimeClock::start();
        let session = engine.open(SessionId::from_bits(n), clock, link).expect("there is room");
        session.say("hello").await;
        for _ in 0..60 {
            turn_clock(BEAT).await;
            far.beat(clock.now());
        }
        session.close(CancelCause::User).await;
        drop((session, far));
        turn_clock(BEAT).await;
        after.push(LIVE.load(Ordering::Relaxed));
    }
    // The store keeps 64 ended logs; from there on nothing may grow.
    let (early, late) = (after[100], after[199]);
    assert!(late <= early + 200_000, "grew from {early} to {late} bytes over a hundred sessions");
}
