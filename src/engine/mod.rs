//! `engine`: lives. Owns one machine per session, wires it to the pump, the providers, the store and the link.
//!
//! * Layer 3. Imports everything below; never `server`.
//! * Threads: each session's driver is one task; each provider call another; the pump has threads of its own.
//! * Every queue is bounded and counted ([`Counters`]). What cannot be placed is parked in the outlet, results are not read meanwhile,
//!   and commands and voice still are: "stop" is always heard.
//! * Laws: the driver never waits while carrying out effects; silence comes before bookkeeping; at the end of a session no task is
//!   alive, no record unwritten, no place in the pump taken.
//! * Proved by `tests/engine.rs` on paused time, with the ring and the fence inside, and by the tests of each file.
//!
//! ```text
//!   link ──messages──▶ intake ─▶ turn::Machine ─▶ outlet ──▶ fence, ring ──▶ pump ──▶ link
//!   link ──audio──▶ pump ──voice, playout──▶ ┘        └──▶ store, client, readers
//!                                   tasks ──results──▶ intake      └──▶ tasks
//! ```

mod answers;
mod beat;
mod counters;
mod ear;
mod evidence;
mod far_ear;
mod handle;
mod intake;
mod jobs;
mod open_calls;
mod outlet;
mod pump;
mod records;
mod results;
mod session;
mod tasks;
mod toolbox;
mod uplink;
mod voice;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc, oneshot};

pub use counters::Counters;
pub use evidence::{Asked, AskedCall, AskedInput, IsNow, Returned, Shows, TurnEvidence};
pub use handle::Session;
#[cfg(feature = "lab")]
pub(crate) use intake::voice as as_heard;
pub use open_calls::Unreconciled;
pub use records::Records;

use crate::audio::evidence::Sense;
use crate::audio::fence::Fence;
use crate::audio::mic::MicChain;
use crate::audio::ring::playback_ring;
use crate::event::{Pii, Retry};
use crate::id::SessionId;
use crate::observe::Metrics;
use crate::observe::trace::Tracer;
use crate::provider::{AnyLlm, AnyRetriever, AnyStt, AnyTts, Llm, Retriever, Stt, Tool, Tts};
use crate::store::{AnyStore, EventStore, Memory, StoreError};
use crate::time::{BLOCK_SAMPLES, Clock as _, RuntimeClock};
use crate::transport::Link;
use crate::turn::{Machine, Policy};

use beat::Beat;
use counters::Tally;
use ear::Preroll;
use far_ear::FarEar;
use intake::Ask;
use open_calls::OpenCalls;
use outlet::{LinkEnd, Outlet};
use pump::Pump;
use session::Driver;
use tasks::Tasks;
use toolbox::Toolbox;

/// Blocks in a playback ring: 400 ms.
const PLAYBACK_BLOCKS: usize = 40;
/// Requests that wait for a session; more callers await.
const ASKS: usize = 64;
/// Records a reader may be behind before it reads on from the store.
const NEWS: usize = 256;

/// How much an engine takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once, at most. Default 64. More are refused with [`OpenError::Full`].
    pub sessions: usize,
    /// Threads of the pump, at most. Default: as many as the machine has cores. Each serves its sessions every 10 ms.
    pub pump_threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let pump_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Limits { sessions: 64, pump_threads }
    }
}

/// The providers of an engine.
#[derive(Clone)]
struct Providers {
    stt: AnyStt,
    llm: AnyLlm,
    tts: AnyTts,
    retriever: Option<AnyRetriever>,
    tools: Toolbox,
    instructions: Option<Pii<String>>,
}

/// Why a session was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The engine has as many sessions as it takes.
    #[error("all {limit} sessions are taken")]
    Full {
        /// How many it takes.
        limit: usize,
    },
    /// The engine takes no new sessions any more.
    #[error("the engine is draining")]
    Draining,
    /// There is a session of this id.
    #[error("session {0} is open already")]
    AlreadyOpen(SessionId),
    /// The store gave no log.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pump's thread is gone, which is a fault of ours.
    #[error("the pump takes no session")]
    Pump,
}

impl OpenError {
    /// Whether the same request may be made again.
    pub const fn retry(&self) -> Retry {
        match self {
            OpenError::Full { .. } | OpenError::Draining => Retry::Later,
            OpenError::AlreadyOpen(_) | OpenError::Pump => Retry::Never,
            OpenError::Store(error) => error.retry(),
        }
    }
}

/// Prepares an [`Engine`].
#[must_use]
pub struct Builder {
    providers: Providers,
    policy: Policy,
    limits: Limits,
    store: Option<AnyStore>,
    /// The wall time of a simulation, in which the beat turns on the runtime.
    virtual_wall: Option<u64>,
    #[cfg(feature = "lab")]
    sabotage: Option<crate::turn::Sabotage>,
}

impl Builder {
    /// What its sessions decide by. Default [`Policy::default`].
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How much it takes on. Default [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What the model is told before every conversation. Default nothing.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.providers.instructions = Some(Pii::new(text.into()));
        self
    }

    /// Where records are kept. Default a [`Memory`] of its own.
    pub fn store(mut self, store: impl EventStore) -> Self {
        self.store = Some(AnyStore::new(store));
        self
    }

    /// Adds a tool that the model may ask for. Several may be added; none by default.
    ///
    /// # Panics
    /// When it has no name, or a tool of its name was added before.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.providers.tools.add(tool);
        self
    }

    /// What looks things up for the model before it is asked, once a turn. Default nothing.
    pub fn retriever(mut self, retriever: impl Retriever) -> Self {
        self.providers.retriever = Some(AnyRetriever::new(retriever));
        self
    }

    /// For tests and simulations: turns the beat in tasks of the runtime instead of threads, so that it follows tokio's paused time, and
    /// writes `wall_unix_ms` (milliseconds since 1970) into every session's header, so that the same run writes the same log. A busy
    /// runtime makes the beat late.
    pub fn virtual_time(mut self, wall_unix_ms: u64) -> Self {
        self.virtual_wall = Some(wall_unix_ms);
        self
    }

    /// Breaks one law of the machine on purpose, so that a test can show that it is noticed.
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn sabotage(mut self, sabotage: crate::turn::Sabotage) -> Self {
        self.sabotage = Some(sabotage);
        self
    }

    /// The engine. Call it inside the runtime that shall run it.
    ///
    /// # Panics
    /// Outside a runtime, when the recogniser does not work at 16 kHz, and when the system gives no thread.
    pub fn build(self) -> Engine {
        let rate = self.providers.stt.info().rate;
        assert!(rate == crate::time::SampleRate::HZ_16000, "a recogniser is given 16 kHz, and this one takes {rate}");
        let tally = Arc::<Tally>::default();
        let Limits { sessions, pump_threads } = self.limits;
        let pump = if self.virtual_wall.is_some() {
            Pump::on_runtime(tally.clone())
        } else {
            Pump::on_threads(pump_threads, sessions, tally.clone()).expect("the system gives a thread")
        };
        Engine {
            shared: Arc::new(Shared {
                providers: self.providers,
                policy: self.policy,
                limits: self.limits,
                store: self.store.unwrap_or_else(|| AnyStore::new(Memory::default())),
                pump,
                virtual_wall: self.virtual_wall,
                #[cfg(feature = "lab")]
                sabotage: self.sabotage,
                metrics: Arc::default(),
                open_calls: Arc::default(),
                tally,
                sessions: Mutex::default(),
                draining: AtomicBool::new(false),
            }),
        }
    }
}

/// Runs conversations. Cloneable; all clones are the same engine. Sessions outlive the last clone until their links are gone: to end
/// them, [`Engine::drain`].
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    providers: Providers,
    policy: Policy,
    limits: Limits,
    store: AnyStore,
    pump: Pump,
    virtual_wall: Option<u64>,
    #[cfg(feature = "lab")]
    sabotage: Option<crate::turn::Sabotage>,
    metrics: Arc<Mutex<Metrics>>,
    open_calls: Arc<Mutex<OpenCalls>>,
    tally: Arc<Tally>,
    sessions: Mutex<BTreeMap<SessionId, Session>>,
    draining: AtomicBool,
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<SessionId, Session>> {
        self.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A machine that knows what the engine can do.
    fn machine(&self) -> Machine {
        #[cfg_attr(not(feature = "lab"), expect(unused_mut, reason = "only a lab breaks laws"))]
        let mut machine = Machine::new(self.policy.clone())
            .with_tools(self.providers.tools.declarations())
            .with_retrieval(self.providers.retriever.is_some());
        #[cfg(feature = "lab")]
        if let Some(law) = self.sabotage {
            machine.sabotage(law);
        }
        machine
    }

    /// A session is over.
    fn forget(&self, id: SessionId) {
        self.sessions().remove(&id);
    }
}

impl Engine {
    /// Prepares an engine with these providers.
    pub fn builder(stt: impl Stt, llm: impl Llm, tts: impl Tts) -> Builder {
        Builder {
            providers: Providers {
                stt: AnyStt::new(stt),
                llm: AnyLlm::new(llm),
                tts: AnyTts::new(tts),
                retriever: None,
                tools: Toolbox::default(),
                instructions: None,
            },
            policy: Policy::default(),
            limits: Limits::default(),
            store: None,
            virtual_wall: None,
            #[cfg(feature = "lab")]
            sabotage: None,
        }
    }

    /// Begins a conversation over `link`, whose time is told by `clock`.
    ///
    /// # Errors
    /// See [`OpenError`]; the link is dropped then, which closes it.
    pub fn open(&self, id: SessionId, clock: RuntimeClock, link: Link) -> Result<Session, OpenError> {
        let shared = &self.shared;
        // Held to the end, so that no two openings count the same place. Nothing in between waits.
        let mut sessions = shared.sessions();
        if shared.draining.load(Ordering::Acquire) {
            return Err(OpenError::Draining);
        }
        if sessions.contains_key(&id) {
            return Err(OpenError::AlreadyOpen(id));
        }
        if sessions.len() >= shared.limits.sessions {
            return Err(OpenError::Full { limit: shared.limits.sessions });
        }
        let (session, mut driver, beat) = self.wire(id, clock, link)?;
        driver.begin();
        shared.pump.add(beat).map_err(|_| OpenError::Pump)?;
        sessions.insert(id, session.clone());
        drop(sessions);
        tokio::spawn(driver.run());
        Ok(session)
    }

    /// Puts the parts of a session together.
    fn wire(&self, id: SessionId, clock: RuntimeClock, link: Link) -> Result<(Session, Driver, Box<Beat>), OpenError> {
        let shared = &self.shared;
        let Link { capability, media_in, media_out, from_client, to_client, closed } = link;
        let store = shared.store.open(id)?;
        let fence = Fence::new();
        let (ring, reader) = playback_ring(PLAYBACK_BLOCKS, fence.clone());
        let (up, down) = uplink::rings(shared.tally.clone());
        let (send_home, home) = oneshot::channel();
        let beat = Box::new(Beat {
            clock,
            media_in,
            media_out,
            mic: MicChain::new().sensing(if shared.policy.floor.every_sound { Sense::Sound } else { Sense::Speech }),
            reader,
            far: FarEar::new(capability),
            up,
            home: send_home,
            heard: [0.0; BLOCK_SAMPLES],
            played: [0.0; BLOCK_SAMPLES],
            silent_beats: u32::MAX,
            toll: Default::default(),
        });
        let tools = shared.providers.tools.clone();
        let handle = Arc::new(handle::Inner::new(id, clock, shared.store.clone(), store.stored(), shared.tally.clone(), tools));
        let (news, _) = broadcast::channel(NEWS);
        let (asks, from_handles) = mpsc::channel::<Ask>(ASKS);
        let session = Session { inner: handle.clone(), asks, news: news.downgrade() };
        let stored = store.stored();
        let outlet = Outlet {
            fence,
            ring,
            store,
            link: Some(LinkEnd { to_client, closed: closed.clone() }),
            news,
            handle: handle.clone(),
            providers: shared.providers.clone(),
            metrics: shared.metrics.clone(),
            open_calls: shared.open_calls.clone(),
            calls: Default::default(),
            tracer: Tracer::new(id),
            tally: shared.tally.clone(),
            parked: Default::default(),
            work: Default::default(),
            state: Default::default(),
            waiters: Default::default(),
        };
        let driver = Driver {
            shared: shared.clone(),
            handle,
            clock,
            machine: shared.machine(),
            outlet,
            tasks: Tasks::new(clock, shared.tally.clone()),
            preroll: Preroll::new(),
            down,
            home,
            asks: from_handles,
            from_client,
            link_closed: closed,
            stored,
            virtual_wall: shared.virtual_wall,
            ending: Default::default(),
        };
        Ok((session, driver, beat))
    }

    /// The open session of this id.
    pub fn session(&self, id: SessionId) -> Option<Session> {
        self.shared.sessions().get(&id).cloned()
    }

    /// How much it takes on.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.shared.sessions().len()
    }

    /// A picture of what was measured, over all sessions since the engine was built.
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// The calls of which nobody knows whether they happened, or after which a person has to look: over all sessions, those that are
    /// over too, the longest open first. A session that has ended asks no more; what it left open stays here, 4,096 calls at most.
    pub fn unreconciled(&self) -> Vec<Unreconciled> {
        self.shared.open_calls.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).picture()
    }

    /// A picture of the counters.
    pub fn counters(&self) -> Counters {
        self.shared.tally.picture(self.sessions())
    }

    /// Takes no new session and no new turn, lets running turns end `within` this time, then cancels them for shutdown. Returns when
    /// every session is over.
    pub async fn drain(&self, within: Duration) {
        self.shared.draining.store(true, Ordering::Release);
        let sessions: Vec<Session> = self.shared.sessions().values().cloned().collect();
        for session in &sessions {
            session.drain(within).await;
        }
        for session in &sessions {
            session.closed().await;
        }
    }

    /// Whether it takes no new sessions any more.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Acquire)
    }
}

impl Session {
    async fn drain(&self, within: Duration) {
        let until = self.inner.clock.now() + within;
        // An error means that it is ending already.
        let _ending = self.asks.send(Ask::Drain { until }).await.is_err();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("sessions", &self.sessions()).field("draining", &self.is_draining()).finish_non_exhaustive()
    }
}
