//! `turn::Effect` → fence, link, tasks, store, ring. Carries out in the order given, decides nothing, never waits.
//!
//! What cannot be placed is parked here, bounded, and what would make more of it is not read meanwhile ([`Outlet::appetite`]):
//!
//! | full | parked | not read |
//! |---|---|---|
//! | the store's queue | records, 4,096 at most; beyond, the session ends | results of all tasks |
//! | the playback ring | the chunk being cut, and voices that come after it | audio |
//! | a synthesizer's text | pieces of text | text |
//! | the link's queue | nothing: the link is closed, the client resumes from the store | |
//!
//! Commands, voice and playout are read whatever is parked here: "stop" is always heard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::Providers;
use super::answers::{Waiter, Waiters};
use super::counters::{Tally, add, count};
use super::ear::{EarQueue, Preroll, ear};
use super::handle::Inner;
use super::open_calls::{CallFold, OpenCalls};
use super::results::Appetite;
use super::tasks::Tasks;
use super::uplink::MicPiece;
use super::voice::{Voice, Voices};
use crate::audio::fence::{Fence, Mode};
use crate::audio::ring::PlaybackWriter;
use crate::event::{Event, LateKind, Pii, Record, Timing};
use crate::id::{Generation, RequestId, Seq, TaskId, TurnId};
use crate::observe::Metrics;
use crate::observe::trace::Tracer;
use crate::provider::{Chunk, Message, Prompt, ToolCall};
use crate::store::{AppendError, Writer};
use crate::time::Stamp;
use crate::transport::wire::ToClient;
use crate::turn::{self, Effect, Input, RequestKind, TaskSpec};

/// Records that wait for the store, at most. Only commands and voice can add to them, so this is minutes of a dead store.
const OUTBOX: usize = 4_096;

/// The messages' end of a link.
pub(super) struct LinkEnd {
    pub(super) to_client: mpsc::Sender<ToClient>,
    pub(super) closed: CancellationToken,
}

/// Where effects go.
pub(super) struct Outlet {
    pub(super) fence: Arc<Fence>,
    pub(super) ring: PlaybackWriter,
    pub(super) store: Writer,
    pub(super) link: Option<LinkEnd>,
    pub(super) news: broadcast::Sender<Arc<Record>>,
    pub(super) handle: Arc<Inner>,
    pub(super) providers: Providers,
    pub(super) metrics: Arc<Mutex<Metrics>>,
    pub(super) open_calls: Arc<Mutex<OpenCalls>>,
    pub(super) calls: CallFold,
    pub(super) tracer: Tracer,
    pub(super) tally: Arc<Tally>,
    pub(super) parked: Parked,
    pub(super) work: Work,
    pub(super) state: State,
    pub(super) waiters: Waiters,
}

/// What waits for room.
#[derive(Default)]
pub(super) struct Parked {
    records: VecDeque<Arc<Record>>,
    records_since: Option<Stamp>,
    ring_full: bool,
}

/// What the running tasks are fed by and speak through.
#[derive(Default)]
pub(super) struct Work {
    ears: BTreeMap<TaskId, EarQueue>,
    voices: Voices,
    /// The chunk just reported, until the machine says whether it may sound.
    offered: Option<(TaskId, Vec<f32>)>,
    /// What a door refused, for the machine.
    refused: VecDeque<Input>,
}

/// What the driver has to know.
#[derive(Default)]
pub(super) struct State {
    generation: Generation,
    running: BTreeSet<TurnId>,
    last: Seq,
    finished: bool,
    broken: bool,
}

impl Outlet {
    /// Carries out one effect.
    pub(super) fn carry(&mut self, now: Stamp, effect: Effect, tasks: &mut Tasks, preroll: &Preroll) {
        match effect {
            Effect::RaiseFence { generation } => self.raise(generation),
            Effect::Hold { generation } => {
                self.fence.set_mode(generation, Mode::Hold);
                self.tell(ToClient::Hold { generation });
            }
            Effect::Resume { generation } => {
                self.fence.set_mode(generation, Mode::Play);
                self.tell(ToClient::Resume { generation });
            }
            Effect::Clear { stale } => self.tell(ToClient::Clear { generation: stale, next: self.state.generation }),
            Effect::StopTask { task, .. } => {
                tasks.stop(task);
                self.starve(task);
            }
            Effect::AbortTask { task } => {
                tasks.abort(task);
                self.starve(task);
            }
            Effect::Append { record } => self.append(now, record),
            Effect::Deliver { record } => self.deliver(record),
            Effect::Answer { request, kind, answer } => {
                if let Some(message) = self.waiters.answer(request, kind, answer) {
                    self.tell(message);
                }
            }
            Effect::StartTask { task, generation, deadline, spec } => self.start(task, generation, deadline, spec, tasks, preroll),
            Effect::Feed { task, text } => {
                if let Some(voice) = self.work.voices.get_mut(task) {
                    voice.feed(text);
                }
            }
            Effect::EndFeed { task } => {
                if let Some(voice) = self.work.voices.get_mut(task) {
                    voice.end_text();
                }
                // Dropping the queue ends the utterance; what is in it is still passed on.
                self.work.ears.remove(&task);
            }
            Effect::Play { task } => {
                if let Some((of, samples)) = self.work.offered.take_if(|(of, _)| *of == task)
                    && let Some(voice) = self.work.voices.get_mut(of)
                {
                    voice.play(samples);
                }
            }
            Effect::LetCommit { task, .. } => tasks.leave(task, true),
            Effect::RefuseCommit { task } => tasks.leave(task, false),
            Effect::Finish => self.state.finished = true,
        }
    }

    /// Opens the fence for the machine's first generation.
    pub(super) fn first(&mut self, generation: Generation) {
        self.raise(generation);
    }

    /// Silence first: one store, and whatever waited for the ring is dropped.
    fn raise(&mut self, generation: Generation) {
        self.fence.raise(generation);
        self.state.generation = generation;
        self.work.voices.silence_before(generation);
        self.parked.ring_full = false;
    }

    /// A task that was told to stop is given nothing more.
    fn starve(&mut self, task: TaskId) {
        self.work.ears.remove(&task);
        if let Some(voice) = self.work.voices.get_mut(task) {
            voice.silence();
            voice.end_sound();
        }
    }

    fn start(
        &mut self,
        task: TaskId,
        generation: Generation,
        deadline: Stamp,
        spec: TaskSpec,
        tasks: &mut Tasks,
        preroll: &Preroll,
    ) {
        match spec {
            TaskSpec::Listen { from, .. } => {
                let (queue, feed) = ear(preroll.since(from), self.tally.clone());
                self.work.ears.insert(task, queue);
                tasks.listen(task, deadline, self.providers.stt.clone(), feed);
            }
            TaskSpec::Retrieve { context, .. } => {
                let context = context.into_iter().map(told).collect();
                tasks.retrieve(task, deadline, self.providers.retriever.clone(), context);
            }
            TaskSpec::Generate { context, found, constraints, .. } => {
                let prompt = self.prompt(context, found, constraints);
                tasks.generate(task, deadline, self.providers.llm.clone(), prompt);
            }
            TaskSpec::Synthesize { .. } => {
                let (voice, words) = Voice::new(self.providers.tts.info().rate, generation);
                self.work.voices.add(task, voice);
                tasks.synthesize(task, deadline, self.providers.tts.clone(), words);
            }
            TaskSpec::Tool { tool, arguments, key, .. } => {
                tasks.tool(task, deadline, self.providers.tools.get(&tool), ToolCall { arguments, key });
            }
            TaskSpec::Reconcile { tool, key, .. } => tasks.reconcile(task, deadline, self.providers.tools.get(&tool), key),
            TaskSpec::Compensate { tool, key, .. } => tasks.compensate(task, deadline, self.providers.tools.get(&tool), key),
        }
    }

    /// What the model is asked: the instructions, what was looked up, what must be heeded, then the conversation.
    fn prompt(&self, context: Vec<turn::Message>, found: Option<Pii<String>>, constraints: Option<Pii<String>>) -> Prompt {
        let system = [self.providers.instructions.clone(), found, constraints].into_iter().flatten();
        let system = system.filter(|text| !text.reveal().is_empty()).map(|text| Message::System { text });
        Prompt { conversation: system.chain(context.into_iter().map(told)).collect(), tools: self.providers.tools.infos() }
    }

    fn append(&mut self, now: Stamp, record: Arc<Record>) {
        self.state.last = record.seq;
        match (&record.event, record.turn) {
            (Event::TurnAccepted { .. }, Some(turn)) => drop(self.state.running.insert(turn)),
            (Event::TurnEnded { .. }, Some(turn)) => drop(self.state.running.remove(&turn)),
            _ => {}
        }
        self.tracer.absorb(&record);
        self.metrics.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).absorb(self.handle.id, &record);
        self.calls.absorb(self.handle.id, &record, &self.open_calls, &self.tally);
        self.parked.records.push_back(record);
        self.store(now);
    }

    /// Hands parked records to the store as far as it takes them.
    fn store(&mut self, now: Stamp) {
        while let Some(record) = self.parked.records.pop_front() {
            match self.store.append(record) {
                Ok(()) => {}
                Err(AppendError::Full(record)) => {
                    self.parked.records.push_front(record);
                    self.parked.records_since.get_or_insert(now);
                    if self.parked.records.len() > OUTBOX {
                        tracing::error!("the store takes nothing and the outbox is full: the session ends");
                        self.state.broken = true;
                    }
                    return;
                }
                Err(AppendError::Gone(_)) => {
                    tracing::error!("the store is gone: the session ends");
                    self.state.broken = true;
                    return;
                }
            }
        }
        if let Some(since) = self.parked.records_since.take() {
            add(&self.tally.store_wait_us, now.since(since).as_micros() as u64);
        }
    }

    fn deliver(&mut self, record: Arc<Record>) {
        self.handle.delivered(&record);
        if self.link.is_some() {
            self.tell(ToClient::Record { record: (*record).clone() });
        }
        // Nobody may be reading, which is no concern of the session.
        let _readers = self.news.send(record);
    }

    /// Says something to the client. One who does not read is let go, and can resume from the store.
    pub(super) fn tell(&mut self, message: ToClient) {
        let Some(link) = &self.link else { return };
        if let Err(mpsc::error::TrySendError::Full(_)) = link.to_client.try_send(message) {
            count(&self.tally.link_lagged);
            tracing::warn!("the client does not read: its link is closed");
            link.closed.cancel();
            self.link = None;
        }
    }

    /// Takes note of a request of the client and says `busy` when too many wait.
    pub(super) fn wait_for(&mut self, request: RequestId, kind: RequestKind, waiter: Waiter) -> bool {
        let taken = self.waiters.wait(request, kind, waiter);
        if !taken {
            count(&self.tally.busy);
            self.tell(ToClient::Answer { request, answer: "busy".into(), turn: None });
        }
        taken
    }

    /// Passes a microphone block to whoever listens.
    pub(super) fn hear(&self, piece: &MicPiece) {
        for ear in self.work.ears.values() {
            ear.push(piece);
        }
    }

    /// Keeps a chunk until the machine says whether it may sound. Returns what the machine has to know of it.
    pub(super) fn offer(&mut self, task: TaskId, chunk: Chunk) -> (u64, usize, Timing) {
        let samples = match self.work.voices.get_mut(task) {
            Some(voice) => voice.length(chunk.samples.len()),
            None => 0,
        };
        self.work.offered = Some((task, chunk.samples));
        (samples, chunk.chars, chunk.timing)
    }

    /// Forgets a chunk that was not let through.
    pub(super) fn withdraw(&mut self) {
        self.work.offered = None;
    }

    /// A task is over: its voice ends with what is queued.
    pub(super) fn task_ended(&mut self, task: TaskId) {
        self.work.ears.remove(&task);
        if let Some(voice) = self.work.voices.get_mut(task) {
            voice.end_sound();
        }
    }

    /// Tries again to place what is parked.
    pub(super) fn settle(&mut self, now: Stamp) {
        self.store(now);
        let (refused, stale) = (&mut self.work.refused, &self.tally.playback_stale);
        let full = self.work.voices.place(&mut self.ring, |generation| {
            count(stale);
            refused.push_back(Input::Late { kind: LateKind::Audio, generation });
        });
        if full && !self.parked.ring_full {
            count(&self.tally.playback_full);
        }
        self.parked.ring_full = full;
    }

    /// What a door refused since the last call.
    pub(super) fn refused(&mut self) -> Option<Input> {
        self.work.refused.pop_front()
    }

    /// Whose results may be read now.
    pub(super) fn appetite(&self) -> Appetite {
        Appetite {
            any: self.parked.records.is_empty(),
            text: !self.work.voices.iter().any(Voice::is_full),
            audio: !self.parked.ring_full,
        }
    }

    /// Resolves when something parked may find room in the store or at a synthesizer. (For the ring, the pump's beat tells.)
    pub(super) fn room(&self) -> impl Future<Output = ()> + Send + use<> {
        let store = (!self.parked.records.is_empty()).then(|| self.store.queue());
        let words = self.work.voices.iter().find_map(Voice::word_room);
        async move {
            // A permit is given back at once: the outlet is the only one who sends, so the room stays.
            match (store, words) {
                (Some(store), _) => drop(store.reserve().await.is_ok()),
                (None, Some(words)) => drop(words.reserve().await.is_ok()),
                (None, None) => std::future::pending().await,
            }
        }
    }

    /// The last record of the session.
    pub(super) fn last(&self) -> Seq {
        self.state.last
    }

    /// Whether no record waits for room in the store's queue, or none ever will find it.
    pub(super) fn is_flushed(&self) -> bool {
        self.parked.records.is_empty() || self.state.broken
    }

    /// Whether the playback ring is full and something waits for it.
    pub(super) fn is_ring_full(&self) -> bool {
        self.parked.ring_full
    }

    /// Whether a turn is not at its end.
    pub(super) fn is_running(&self) -> bool {
        !self.state.running.is_empty()
    }

    /// Whether a call whose turn is over is being asked after.
    pub(super) fn is_asking(&self) -> bool {
        self.calls.is_asking()
    }

    /// Whether the session is over, in order or because its store failed.
    pub(super) fn is_over(&self) -> bool {
        self.state.finished || self.state.broken
    }
}

/// An entry of the conversation in a provider's words.
fn told(message: turn::Message) -> Message {
    match message {
        turn::Message::User { text } => Message::User { text },
        turn::Message::Assistant { text, interrupted } => Message::Assistant { text, interrupted },
        turn::Message::Call { call, tool, arguments } => Message::Call { call, tool, arguments },
        turn::Message::Result { call, ending, text } => Message::Result { call, ending, text },
    }
}
