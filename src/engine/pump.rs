//! The pump: the threads that turn the beat, 10 ms for every session, and the one place besides the driver that waits for time.
//!
//! * One thread per core at most; a session stays on its thread. A thread without sessions sleeps until one comes.
//! * The beat is absolute: a late one is counted and made up for, so that the far end gets its hundred blocks a second; after a pause
//!   of the machine the missed beats are left out and counted.
//! * A link that panics takes its session's link with it and nothing else.
//! * Under tokio's paused time a thread's clock and the session's would part; [`Pump::on_runtime`] turns the same beat in a task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::beat::Beat;
use super::counters::{Tally, add, count};
use crate::time::{BEAT, Clock as _, Stamp, SystemClock};

/// A beat that begins this much late is counted.
const LATE: Duration = Duration::from_millis(5);
/// Further behind than this, the missed beats are left out.
const HOPELESS: Duration = Duration::from_millis(200);

/// Turns the beat of all sessions of one engine.
pub(super) struct Pump {
    workers: Vec<Worker>,
    tally: Arc<Tally>,
}

struct Worker {
    to: Sender<Box<Beat>>,
    load: Arc<AtomicUsize>,
}

impl Pump {
    /// A pump with threads of its own, for `sessions` sessions at most. Threads end when the pump is dropped and their sessions are
    /// over.
    pub(super) fn on_threads(threads: usize, sessions: usize, tally: Arc<Tally>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let workers = (0..threads.max(1))
            .map(|n| {
                let (to, from) = crossbeam_channel::bounded(sessions.max(1));
                let load = Arc::<AtomicUsize>::default();
                let (on, tally, runtime) = (load.clone(), tally.clone(), runtime.clone());
                std::thread::Builder::new().name(format!("antiphon-pump-{n}")).spawn(move || {
                    // Sessions tell time by the runtime's clock.
                    let _entered = runtime.enter();
                    turn(&from, sessions, &on, &tally);
                })?;
                Ok(Worker { to, load })
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        Ok(Pump { workers, tally })
    }

    /// A pump that turns each session's beat in a task of the runtime, on the session's own clock.
    pub(super) fn on_runtime(tally: Arc<Tally>) -> Self {
        Pump { workers: Vec::new(), tally }
    }

    /// Takes a session in. It comes back when no thread takes it any more.
    pub(super) fn add(&self, beat: Box<Beat>) -> Result<(), Box<Beat>> {
        count(&self.tally.pumped);
        let Some(worker) = self.workers.iter().min_by_key(|worker| worker.load.load(Ordering::Relaxed)) else {
            tokio::spawn(turn_one(beat, self.tally.clone()));
            return Ok(());
        };
        worker.load.fetch_add(1, Ordering::Relaxed);
        worker.to.try_send(beat).map_err(|refused| {
            self.tally.pumped.fetch_sub(1, Ordering::Relaxed);
            worker.load.fetch_sub(1, Ordering::Relaxed);
            match refused {
                TrySendError::Full(beat) | TrySendError::Disconnected(beat) => beat,
            }
        })
    }
}

/// Runs one beat of one session; `false` when the session leaves the pump.
fn beat(beat: &mut Beat, tally: &Tally) -> bool {
    if beat.is_gone() {
        return false;
    }
    // What a link half left undone stays inside this session, which is over for the pump.
    let whole = catch_unwind(AssertUnwindSafe(|| beat.run())).is_ok();
    if !whole {
        count(&tally.link_panics);
        beat.up.shared().lose();
    }
    whole
}

/// Sends a session's place home, to be dropped by its driver.
fn send_home(beat: Box<Beat>, tally: &Tally) {
    tally.pumped.fetch_sub(1, Ordering::Relaxed);
    let mut beat = beat;
    let (nowhere, _) = tokio::sync::oneshot::channel();
    let home = std::mem::replace(&mut beat.home, nowhere);
    // The driver may be gone already; then it is dropped here after all.
    drop(home.send(beat));
}

/// One thread's life.
fn turn(from: &Receiver<Box<Beat>>, sessions: usize, load: &AtomicUsize, tally: &Tally) {
    let clock = SystemClock::start();
    let mut slots: Vec<Box<Beat>> = Vec::with_capacity(sessions);
    let mut next = clock.now();
    loop {
        if slots.is_empty() {
            match from.recv() {
                Ok(first) => slots.push(first),
                Err(_) => return,
            }
            next = clock.now();
        }
        while let Ok(another) = from.try_recv() {
            slots.push(another);
        }
        let mut i = 0;
        while i < slots.len() {
            if beat(&mut slots[i], tally) {
                i += 1;
            } else {
                load.fetch_sub(1, Ordering::Relaxed);
                send_home(slots.swap_remove(i), tally);
            }
        }
        next = wait_for_next(&clock, next, tally);
    }
}

/// Sleeps until the beat after `this` and returns it.
#[allow(clippy::disallowed_methods, reason = "the pump waits for its beat")]
fn wait_for_next(clock: &SystemClock, this: Stamp, tally: &Tally) -> Stamp {
    let mut next = this + BEAT;
    let now = clock.now();
    if now.since(next) >= HOPELESS {
        let missed = now.since(next).as_micros() / BEAT.as_micros();
        add(&tally.beats_skipped, missed as u64);
        next += BEAT * missed as u32;
    }
    if now < next {
        std::thread::sleep(next.since(now));
    }
    if clock.now().since(next) >= LATE {
        count(&tally.beats_late);
    }
    next
}

/// One session's beat in a task, on its own clock.
#[allow(clippy::disallowed_methods, reason = "the pump waits for its beat")]
async fn turn_one(mut slot: Box<Beat>, tally: Arc<Tally>) {
    let clock = slot.clock;
    let mut next = clock.now();
    while beat(&mut slot, &tally) {
        next += BEAT;
        tokio::time::sleep_until(clock.instant(next)).await;
    }
    send_home(slot, &tally);
}
