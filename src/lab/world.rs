//! `lab::world`: one session on paused time: the production engine with its ring, fence and pump, the cast of the scenario, and a
//! person's end that is turned by hand.
//!
//! Layer 4. Everything happens on one thread, on tokio's paused clock, whose timers are exact to the millisecond: the pump beats at 0,
//! 10, 20 ms of the session, the far end so many milliseconds later as the scenario says.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::watch;

use super::cast::Cast;
use super::client::Client;
use super::door::StoreDoor;
use super::evidence::{Answered, Note, Outside, Shown, Sound, numbers};
use super::scenario::{Act, Door, Mode, Place, Scenario};
use crate::engine::{Engine, Records, Session};
use crate::event::{CancelCause, Record};
use crate::id::{CallId, RequestId, Seq, SessionId, TurnId};
use crate::observe::Metrics;
use crate::store::Memory;
use crate::time::{BEAT, Clock, RuntimeClock, Stamp};
use crate::transport::Capability;
use crate::transport::memory::{FarEnd, Net, page, pair};
use crate::transport::wire::{FromClient, ToClient};
use crate::turn::{ApproveAnswer, CancelAnswer, Handover, Refusal, ResolveAnswer, Sabotage, SayAnswer, SubmitAnswer, SubmitMode};

/// The wall time at which every world begins, milliseconds since 1970.
const WALL_MS: u64 = 1_764_547_200_000;
/// Places that others may take in a millisecond before [`Place::Last`] is reached.
const OTHERS: usize = 256;
/// Longest time a closed session may take to end, milliseconds.
const LEAVE_WITHIN: u64 = 10_000;

/// What a world leaves behind.
pub(super) struct Left {
    pub(super) session: SessionId,
    pub(super) records: Vec<Arc<Record>>,
    pub(super) notes: Vec<Note>,
    pub(super) answers: Vec<Answered>,
    pub(super) sounds: Vec<Sound>,
    pub(super) shown: Shown,
    pub(super) outside: BTreeMap<String, Outside>,
    pub(super) effects: Vec<(String, Stamp)>,
    pub(super) leaves: Vec<(String, Stamp)>,
    pub(super) prompts: Vec<String>,
    pub(super) metrics: Metrics,
    pub(super) counters: Map<String, Value>,
    pub(super) tasks_alive: usize,
    /// When it was over.
    pub(super) over: Stamp,
}

/// A request under way.
type Asked = Pin<Box<dyn Future<Output = String> + Send>>;

/// What requests under way report when they are answered, with the moment.
type Mail = Arc<Mutex<Vec<(Stamp, Answered)>>>;

/// One session and its surroundings.
pub(super) struct World {
    zero: Stamp,
    engine: Engine,
    session: Session,
    clock: RuntimeClock,
    far: FarEnd,
    stuck: bool,
    cast: Cast,
    door: Option<watch::Sender<bool>>,
    records: Records,
    log: Vec<Arc<Record>>,
    beat: Stamp,
    noise: u32,
    names: BTreeMap<String, RequestId>,
    asked: u128,
    client: Client,
    mail: Mail,
    notes: Vec<Note>,
    sounds: Vec<Sound>,
}

impl World {
    /// Plays a scenario. Call it inside a paused runtime of one thread.
    pub(super) async fn play(scenario: &Scenario, sabotage: Option<Sabotage>) -> Left {
        let mut world = World::open(scenario, sabotage);
        let mut acts: VecDeque<_> = scenario.acts.iter().collect();
        let until = world.stamp(scenario.until);
        loop {
            let act = acts.front().map(|timed| world.stamp(timed.at));
            let beat = (!world.session.is_closed()).then_some(world.beat);
            let next = act.into_iter().chain(beat).min().unwrap_or(until);
            if next > until || (act.is_none() && beat.is_none()) {
                break;
            }
            wait_until(world.clock, next).await;
            while let Some(timed) = acts.front().filter(|t| world.stamp(t.at) <= next && t.place == Place::First) {
                world.perform(&timed.act).await;
                acts.pop_front();
            }
            if world.beat <= next {
                world.beat().await;
            }
            while let Some(timed) = acts.front().filter(|t| world.stamp(t.at) <= next) {
                if timed.place == Place::Last {
                    others().await;
                }
                world.perform(&timed.act).await;
                acts.pop_front();
            }
            world.collect().await;
        }
        world.leave().await
    }

    fn open(scenario: &Scenario, sabotage: Option<Sabotage>) -> World {
        let clock = RuntimeClock::start();
        let cast = Cast::of(scenario);
        let memory = Memory::default();
        let mut builder = cast.builder().policy(scenario.policy.clone()).virtual_time(WALL_MS);
        if let Some(sabotage) = sabotage {
            builder = builder.sabotage(sabotage);
        }
        let (engine, door) = match scenario.store_queue {
            Some(queue) => {
                let (door, open) = watch::channel(true);
                (builder.store(StoreDoor::new(memory, open, queue)).build(), Some(door))
            }
            None => (builder.store(memory).build(), None),
        };
        let far = scenario.far;
        let net = Net { delay: millis(far.delay), far_buffer: millis(far.buffer), ..Net::perfect() };
        let capability = Capability {
            reports_position: far.reports,
            can_clear: far.clears,
            buffer_bound: millis(far.delay + far.buffer),
            ..page()
        };
        let (link, end) = pair(net, capability);
        let session = engine.open(SessionId::from_bits(7), clock, link).expect("a new engine has room");
        let records = session.records_after(Seq(0));
        World {
            zero: Stamp::from_millis(scenario.zero),
            engine,
            session,
            clock,
            far: end,
            stuck: false,
            cast,
            door,
            records,
            log: Vec::new(),
            beat: Stamp::from_millis(far.phase),
            noise: 0x1234_5678,
            names: BTreeMap::new(),
            asked: 0,
            client: Client::showing(&scenario.client_shows),
            mail: Mail::default(),
            notes: Vec::new(),
            sounds: Vec::new(),
        }
    }

    /// The moment of the session at this millisecond of the story.
    fn stamp(&self, ms: i64) -> Stamp {
        Stamp::from_millis((self.zero.as_micros() as i64 / 1_000 + ms).max(0) as u64)
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(Note { at: self.clock.now(), text: text.into() });
    }

    /// One beat of the person's end, and what is known after it.
    async fn beat(&mut self) {
        if !self.stuck {
            let heard = self.far.beat(self.beat);
            if heard.sounds() {
                self.sounds.push(Sound { at: heard.at, generation: heard.generation.0 });
            }
            let messages: Vec<ToClient> = self.far.messages().collect();
            for message in messages {
                self.message(message);
            }
        }
        self.beat += BEAT;
        self.collect().await;
    }

    fn message(&mut self, message: ToClient) {
        match message {
            ToClient::Record { record } => self.client.take(&record),
            ToClient::Hold { generation } => self.note(format!("the client holds {generation}")),
            ToClient::Resume { generation } => self.note(format!("the client goes on with {generation}")),
            ToClient::Clear { generation, .. } => self.note(format!("the client drops {generation}")),
            ToClient::Bye { reason } => self.note(format!("the client is told goodbye: {reason}")),
            _ => {}
        }
    }

    /// Takes the records that are there.
    async fn collect(&mut self) {
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

    /// The id of a named request, or of the next unnamed one.
    fn request(&mut self, name: Option<&String>) -> RequestId {
        self.asked += 1;
        let fresh = RequestId::from_bits(0x1AB << 64 | self.asked);
        match name {
            Some(name) => *self.names.entry(name.clone()).or_insert(fresh),
            None => fresh,
        }
    }

    async fn perform(&mut self, act: &Act) {
        let session = self.session.clone();
        match act {
            Act::Say { text, name } => {
                let (request, text) = (self.request(name.as_ref()), text.clone());
                let what = format!("says {text:?}");
                self.ask(name.as_deref().unwrap_or("say"), what, async move { said(session.say_as(request, text).await) }).await;
            }
            Act::Submit { text, mode, name } => {
                let (request, text) = (self.request(name.as_ref()), text.clone());
                let mode = match *mode {
                    Mode::StartOrSteer => SubmitMode::StartOrSteer,
                    Mode::StartIfIdle => SubmitMode::StartIfIdle,
                    Mode::Steer(turn) => SubmitMode::Steer { expected: TurnId(turn) },
                };
                let what = format!("submits {text:?}, {mode:?}");
                let answer = async move { submitted(session.submit_as(request, text, mode).await) };
                self.ask(name.as_deref().unwrap_or("submit"), what, answer).await;
            }
            Act::Announce { text, interruptible } => {
                let (text, interruptible) = (text.clone(), *interruptible);
                let what = format!("has {text:?} announced");
                self.ask("announce", what, async move { submitted(session.announce(text, interruptible).await) }).await;
            }
            Act::Cancel { turn, cause, name } => {
                let (request, turn, cause) = (self.request(name.as_ref()), TurnId(*turn), *cause);
                let what = format!("asks {turn} to stop ({cause})");
                let answer = async move { cancelled(session.cancel(turn, request, cause).await) };
                self.ask(name.as_deref().unwrap_or("cancel"), what, answer).await;
            }
            Act::Approve { call, granted } => {
                let (call, granted) = (CallId(*call), *granted);
                let what = format!("{} {call}", if granted { "allows" } else { "refuses" });
                self.ask("approve", what, async move { approved(session.approve(call, granted).await).to_owned() }).await;
            }
            Act::Resolve { call, outcome } => {
                let (call, outcome) = (CallId(*call), *outcome);
                let what = format!("found out about {call}: {outcome:?}");
                self.ask("resolve", what, async move { resolved(session.resolve(call, outcome).await) }).await;
            }
            Act::Handover { stop, keep, next, constraints } => {
                let handover = Handover {
                    stop: TurnId(*stop),
                    keep: keep.iter().copied().map(CallId).collect(),
                    next: next.as_str().into(),
                    constraints: constraints.as_str().into(),
                };
                let what = format!("hands turn#{stop} over to {next:?}");
                self.ask("handover", what, async move { submitted(session.handover(handover).await) }).await;
            }
            Act::Key(down) => {
                let down = *down;
                let what = format!("{} the key", if down { "presses" } else { "releases" });
                let answer = async move {
                    session.push_to_talk(down).await;
                    "done".to_owned()
                };
                self.ask("key", what, answer).await;
            }
            Act::Talk(ms) => {
                self.note(format!("speaks for {ms} ms"));
                self.talk(*ms);
            }
            Act::Acknowledge(number) => match self.client.seq(*number) {
                Some(seq) => {
                    self.note(format!("the client has everything up to its {number} ({seq})"));
                    let now = self.clock.now();
                    self.far.send(now, FromClient::Ack { seq });
                }
                None => self.note(format!("the client has no {number} to acknowledge")),
            },
            Act::Disconnect => {
                self.note("the client is gone");
                self.far.leave();
            }
            Act::Resume { after } => self.resume(*after).await,
            Act::Repeat(number) => self.repeat(*number),
            Act::Store(to) => {
                self.note(format!("the store is {}", if *to == Door::Open { "open" } else { "shut" }));
                if let Some(door) = &self.door {
                    door.send_replace(*to == Door::Open);
                }
            }
            Act::Stuck(stuck) => {
                self.note(format!("the far end is {}", if *stuck { "stuck" } else { "back" }));
                self.stuck = *stuck;
            }
            Act::Drain(within) => {
                self.note(format!("the engine drains, {within} ms at most"));
                let (engine, within) = (self.engine.clone(), millis(*within));
                tokio::spawn(async move { engine.drain(within).await });
            }
            Act::Close => {
                self.note("the session is closed");
                tokio::spawn(async move { session.close(CancelCause::Shutdown).await });
            }
        }
    }

    /// Sends a request now, before anybody else acts in this millisecond, and notes its answer when it comes.
    async fn ask(&mut self, name: &str, what: String, answer: impl Future<Output = String> + Send + 'static) {
        self.note(format!("[{name}] {what}"));
        let mut asked: Asked = Box::pin(answer);
        let to = name.to_owned();
        // The first poll puts the request into the session's queue.
        match poll_once(asked.as_mut()).await {
            Some(answer) => post(&self.mail, self.clock.now(), to, answer),
            None => {
                let (mail, clock) = (self.mail.clone(), self.clock);
                tokio::spawn(async move {
                    let answer = asked.await;
                    post(&mail, clock.now(), to, answer);
                });
            }
        }
    }

    /// Makes the person talk for so long, in something that sounds like syllables.
    fn talk(&mut self, ms: u64) {
        self.far.talk(ms, &mut self.noise);
    }

    /// The client comes back and reads what it has not seen.
    async fn resume(&mut self, after: u64) {
        let Some(seq) = self.client.seq(after) else {
            self.note(format!("the client has no {after} to resume after"));
            return;
        };
        self.note(format!("the client is back and has everything up to its {after} ({seq})"));
        let mut missed = self.session.records_after(seq);
        self.client.resumes();
        loop {
            tokio::select! {
                biased;
                record = missed.next() => match record {
                    Some(record) => self.client.take(&record),
                    None => return,
                },
                () = others() => return,
            }
        }
    }

    fn repeat(&mut self, number: u64) {
        let record = self.client.seq(number).and_then(|seq| self.log.iter().find(|r| r.seq == seq).cloned());
        match record {
            Some(record) => {
                self.note(format!("the network repeats {number} ({})", record.seq));
                self.client.take(&record);
            }
            None => self.note(format!("there is no {number} to repeat")),
        }
    }

    /// Ends the session, if it has not ended, and takes stock.
    async fn leave(mut self) -> Left {
        if let Some(door) = &self.door {
            door.send_replace(true);
        }
        let closing = self.session.clone();
        let closing = tokio::spawn(async move { closing.close(CancelCause::Shutdown).await });
        let give_up = self.clock.now() + millis(LEAVE_WITHIN);
        while !closing.is_finished() && self.clock.now() < give_up {
            let due = self.beat.max(self.clock.now());
            wait_until(self.clock, due).await;
            self.beat = due;
            self.beat().await;
        }
        self.collect().await;
        others().await;
        let over = self.clock.now();
        let counters = self.engine.counters();
        let tasks_alive = (counters.sessions + counters.tasks_alive + counters.pumped) as usize;
        let counters = match serde_json::to_value(counters) {
            Ok(Value::Object(counters)) => counters,
            other => unreachable!("counters are an object: {other:?}"),
        };
        let mut counters = counters;
        counters.insert("client_acknowledged_seq".into(), self.session.acked().0.into());
        let mail = std::mem::take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner));
        let mut answers = Vec::new();
        for (at, answered) in mail {
            self.notes.push(Note { at, text: format!("[{}] is answered: {}", answered.to, answered.answer) });
            answers.push(answered);
        }
        Left {
            session: self.session.id(),
            records: self.log,
            notes: self.notes,
            answers,
            sounds: self.sounds,
            shown: self.client.into_shown(),
            outside: self.cast.outside(),
            effects: self.cast.effects(),
            leaves: self.cast.leaves(),
            prompts: self.cast.prompts(),
            metrics: self.engine.metrics(),
            counters,
            tasks_alive,
            over,
        }
    }
}

impl Left {
    /// The live metrics by name.
    pub(super) fn numbers(&self) -> Map<String, Value> {
        numbers(&self.metrics)
    }
}

fn post(mail: &Mail, at: Stamp, to: String, answer: String) {
    mail.lock().unwrap_or_else(PoisonError::into_inner).push((at, Answered { to, answer }));
}

const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets everything else do what it can do in this millisecond.
async fn others() {
    for _ in 0..OTHERS {
        tokio::task::yield_now().await;
    }
}

/// Polls once.
async fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits on the runtime's clock.
#[allow(clippy::disallowed_methods, reason = "paused time: this turns the clock")]
async fn wait_until(clock: RuntimeClock, at: Stamp) {
    tokio::time::sleep_until(clock.instant(at)).await;
}

fn refusal(refusal: Refusal) -> String {
    match refusal {
        Refusal::Empty => "empty".into(),
        Refusal::Draining => "draining".into(),
        Refusal::NoActiveTurn => "no_active_turn".into(),
        Refusal::ExpectedTurnMismatch { actual } => format!("expected_turn_mismatch(actual {actual})"),
        Refusal::NotSteerable { turn } => format!("not_steerable({turn})"),
        Refusal::InboxFull { turn } => format!("inbox_full({turn})"),
        Refusal::NoSuchTurn => "no_such_turn".into(),
    }
}

fn said(answer: SayAnswer) -> String {
    match answer {
        SayAnswer::Started(turn) => format!("started({turn})"),
        SayAnswer::NotAccepted { refusal: why, text } => format!("not_accepted: {}, with {:?}", refusal(why), text.reveal()),
    }
}

fn submitted(answer: SubmitAnswer) -> String {
    match answer {
        SubmitAnswer::Started(turn) => format!("started({turn})"),
        SubmitAnswer::Steered(turn) => format!("steered({turn})"),
        SubmitAnswer::NotSubmitted { refusal: why, text } => format!("not_submitted: {}, with {:?}", refusal(why), text.reveal()),
    }
}

fn cancelled(answer: CancelAnswer) -> String {
    match answer {
        CancelAnswer::Accepted => "accepted".into(),
        CancelAnswer::AlreadyTerminal(terminal) => format!("already_terminal: {terminal}"),
        CancelAnswer::ReconcileRequired(calls) => format!("reconcile_required({} calls)", calls.len()),
        CancelAnswer::NoSuchTurn => "no_such_turn".into(),
    }
}

const fn approved(answer: ApproveAnswer) -> &'static str {
    match answer {
        ApproveAnswer::Taken => "taken",
        ApproveAnswer::NotAsked => "not_asked",
        ApproveAnswer::NoSuchCall => "no_such_call",
    }
}

fn resolved(answer: ResolveAnswer) -> String {
    match answer {
        ResolveAnswer::Settled => "settled".into(),
        ResolveAnswer::AlreadySettled(outcome) => format!("already_settled({outcome:?})"),
        ResolveAnswer::NotOpen => "not_open".into(),
    }
}
