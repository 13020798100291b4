//! `provider::script`: what the scripted providers share, so that a test can say how a provider misbehaves.
//!
//! * Layer 2. The scripted providers wait on the runtime's timers, so under tokio's paused time they are exact and instant.
//! * The law: the same scripts, seeds and input give the same output at the same runtime time.
//! * Proved by the tests of `stt::scripted`, `llm::scripted`, `tts::scripted`, `tool::scripted`,
//!   `retrieve::scripted`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{ProviderError, TaskCx};
use crate::event::Retry;

/// How a scripted provider ends once its script is played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It returns as a good provider does.
    Complete,
    /// It neither sends nor returns until it is stopped; with [`Obedience::Deaf`] not even then.
    Hang,
    /// It returns [`ProviderError::Broken`] with this advice.
    Break(Retry),
    /// It returns [`ProviderError::Refused`].
    Refuse,
    /// It returns [`ProviderError::Unavailable`].
    Absent,
    /// It returns [`ProviderError::Unknown`]: only a tool that had leave may.
    Unknown,
    /// Its task panics.
    Panic,
}

/// What a scripted provider does when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obedience {
    /// It returns [`ProviderError::Stopped`] at once.
    Prompt,
    /// It does not listen to the stop: from the moment of the stop it sends up to this many more items, at its pace, then returns
    /// `Ok` (or, with [`End::Hang`], never returns).
    Deaf {
        /// Items after the stop.
        more: usize,
    },
}

/// Waiting times of a script, by the runtime's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Before the first item.
    pub(crate) first: Duration,
    /// Between items.
    pub(crate) every: Duration,
    /// Up to this much more before each item, drawn from `seed`.
    pub(crate) jitter: Duration,
    /// Of the jitter.
    pub(crate) seed: u64,
}

impl Pace {
    pub(crate) const AT_ONCE: Pace = Pace { first: Duration::ZERO, every: Duration::ZERO, jitter: Duration::ZERO, seed: 0 };

    pub(crate) fn draw(self) -> Waits {
        Waits { pace: self, begun: false, rng: StdRng::seed_from_u64(self.seed) }
    }
}

/// The waits of one run, in order.
pub(crate) struct Waits {
    pace: Pace,
    begun: bool,
    rng: StdRng,
}

impl Waits {
    pub(crate) fn next(&mut self) -> Duration {
        let base = if std::mem::replace(&mut self.begun, true) { self.pace.every } else { self.pace.first };
        let most = self.pace.jitter.as_micros() as u64;
        base + Duration::from_micros(if most == 0 { 0 } else { self.rng.random_range(0..=most) })
    }
}

/// How far a deaf provider may still go. One per run.
pub(crate) struct Leash {
    obedience: Obedience,
    used: usize,
}

impl Leash {
    pub(crate) fn new(obedience: Obedience) -> Self {
        Leash { obedience, used: 0 }
    }

    /// Waits `time` as the obedience says. `Err` ends the run politely.
    pub(crate) async fn rest(&self, cx: &TaskCx, time: Duration) -> Result<(), ProviderError> {
        match self.obedience {
            Obedience::Prompt => cx.rest(time).await,
            Obedience::Deaf { .. } => {
                deaf_rest(time).await;
                Ok(())
            }
        }
    }

    /// Runs `work` as the obedience says.
    pub(crate) async fn run<F: Future>(&self, cx: &TaskCx, work: F) -> Result<F::Output, ProviderError> {
        match self.obedience {
            Obedience::Prompt => cx.until_stopped(work).await,
            Obedience::Deaf { .. } => Ok(work.await),
        }
    }

    /// Whether one more item may be sent, counting those after the stop.
    pub(crate) fn may_send(&mut self, cx: &TaskCx) -> bool {
        match self.obedience {
            Obedience::Prompt => true,
            Obedience::Deaf { more } => {
                if cx.is_stopped() {
                    self.used += 1;
                }
                self.used <= more
            }
        }
    }

    /// What a failed send means: the end for the prompt, nothing for the deaf.
    pub(crate) fn sent(&self, result: Result<(), ProviderError>) -> Result<(), ProviderError> {
        match self.obedience {
            Obedience::Prompt => result,
            Obedience::Deaf { .. } => Ok(()),
        }
    }

    /// Plays the end of the script.
    pub(crate) async fn end(&self, cx: &TaskCx, end: &End) -> Result<(), ProviderError> {
        match end {
            End::Complete => Ok(()),
            End::Hang => self.run(cx, std::future::pending()).await,
            End::Break(retry) => Err(ProviderError::Broken { why: "the script says so".into(), retry: *retry }),
            End::Refuse => Err(ProviderError::Refused { why: "the script says so".into() }),
            End::Absent => Err(ProviderError::Unavailable {
                what: "the scripted provider".into(),
                help: "its script says it is absent; nothing to install".into(),
            }),
            End::Unknown => Err(ProviderError::Unknown { why: "the script says so".into() }),
            End::Panic => panic!("the script says that this provider panics"),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a scripted delay is what the script is made of; tests run it under paused time")]
async fn deaf_rest(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Scripts in order, and counts. The last script is played again and again.
#[derive(Debug)]
pub(crate) struct Playlist<S> {
    scripts: Mutex<VecDeque<S>>,
    calls: AtomicUsize,
    running: Arc<AtomicUsize>,
    sent: AtomicUsize,
}

impl<S: Clone> Playlist<S> {
    /// # Panics
    /// When there is no script at all.
    pub(crate) fn new(scripts: impl IntoIterator<Item = S>) -> Arc<Self> {
        let scripts: VecDeque<S> = scripts.into_iter().collect();
        assert!(!scripts.is_empty(), "a scripted provider needs at least one script");
        Arc::new(Playlist {
            scripts: Mutex::new(scripts),
            calls: AtomicUsize::new(0),
            running: Arc::new(AtomicUsize::new(0)),
            sent: AtomicUsize::new(0),
        })
    }

    /// The script for the next call, that call's number from 0, and a guard that counts it as running.
    pub(crate) fn call(&self) -> (S, usize, Running) {
        let mut scripts = held(&self.scripts);
        let script =
            if scripts.len() > 1 { scripts.pop_front() } else { scripts.front().cloned() }.expect("never empty, see `new`");
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        (script, number, Running(self.running.clone()))
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn count_sent(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }
}

/// What every scripted provider tells of its calls; `$items` is what it sends.
macro_rules! tells_of_its_calls {
    ($of:ident, $items:literal) => {
        impl $of {
            /// How often it was called.
            pub fn calls(&self) -> usize {
                self.list.calls()
            }

            /// How many calls have not ended.
            pub fn running(&self) -> usize {
                self.list.running()
            }

            #[doc = concat!("How many ", $items, " it tried to send, over all calls.")]
            pub fn sent(&self) -> usize {
                self.list.sent()
            }
        }
    };
}
pub(crate) use tells_of_its_calls;

/// Counts a call as running until it is dropped, by return, abort or panic.
#[derive(Debug)]
pub(crate) struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A lock that survives a scripted panic: the data behind it is whole at every moment.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
