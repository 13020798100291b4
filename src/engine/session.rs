//! The driver of one session: one loop, one `select!`, one `now` per turn of the loop. Owns the session's machine; waits here and
//! nowhere else.
//!
//! The order of the `select!` is the order of importance: commands, the client's messages, voice and playout, the store, results, the
//! timer. A due timer is stepped after every event, so none of them can starve it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::answers::Waiter;
use super::beat::Beat;
use super::ear::Preroll;
use super::handle::Inner;
use super::intake::{self, Ask, Meaning};
use super::outlet::Outlet;
use super::results::Output;
use super::tasks::Tasks;
use super::uplink::Down;
use crate::event::CancelCause;
use crate::id::{Seq, TaskId};
use crate::time::{Clock as _, RuntimeClock, Stamp, wall_unix_millis};
use crate::transport::wire::{FromClient, ToClient, VERSION};
use crate::turn::{Command, Input, LinkFact, Machine};

/// Longest wait for tasks that were aborted, for the store's last records, and for the pump, at the end of a session, each.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// How long a session that has nothing else to do asks on after calls whose outcome nobody knows. Then they stay open, and listed.
const ASKS_ON: Duration = Duration::from_secs(10);

/// Timers fired in one turn of the loop, at most.
const TIMERS: usize = 64;

/// One session, living.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) handle: Arc<Inner>,
    pub(super) clock: RuntimeClock,
    pub(super) machine: Machine,
    pub(super) outlet: Outlet,
    pub(super) tasks: Tasks,
    pub(super) preroll: Preroll,
    pub(super) down: Down,
    pub(super) home: oneshot::Receiver<Box<Beat>>,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) from_client: mpsc::Receiver<FromClient>,
    pub(super) link_closed: CancellationToken,
    pub(super) stored: watch::Receiver<Seq>,
    /// The wall time of a simulation.
    pub(super) virtual_wall: Option<u64>,
    pub(super) ending: Ending,
}

/// How far the end has come.
#[derive(Default)]
pub(super) struct Ending {
    /// The link's loss was told to the machine.
    link_lost: bool,
    /// The machine was told to close.
    closing: bool,
    /// Running turns are waited for until then.
    drain_until: Option<Stamp>,
    /// With its link lost and its turns over, it asks after open calls until then.
    asks_until: Option<Stamp>,
    /// The store will not come back.
    store_gone: bool,
    /// The last word to the client.
    reason: Option<&'static str>,
}

/// Why the loop turned.
enum Happened {
    Ask(Option<Ask>),
    Client(Option<FromClient>),
    LinkClosed,
    Pump,
    Stored(bool),
    Room,
    Result(TaskId, Output),
    Timer,
}

impl Driver {
    /// The beginning, before the pump has the link: the client is told the state before it is told anything else.
    pub(super) fn begin(&mut self) {
        let now = self.clock.now();
        self.outlet.first(self.machine.generation());
        self.greet(now);
        let wall_unix_ms = self.virtual_wall.unwrap_or_else(wall_unix_millis);
        self.step(now, Input::Begin { session: self.handle.id, wall_unix_ms });
        self.step(now, Input::Link(LinkFact::Up));
    }

    /// Drives the session from there to its end.
    pub(super) async fn run(mut self) {
        let _place = Place { shared: self.shared.clone(), handle: self.handle.clone() };
        while !self.outlet.is_over() {
            let happened = self.wait().await;
            let now = self.clock.now();
            self.handle(now, happened);
            self.tick(now);
            self.settle(now);
        }
        self.end().await;
    }

    /// Fires what is due. A tick fires one timer; the bound keeps a faulty machine from stopping the session.
    fn tick(&mut self, now: Stamp) {
        for _ in 0..TIMERS {
            if self.machine.deadline().is_none_or(|(due, _)| due > now) {
                return;
            }
            self.step(now, Input::Tick);
        }
    }

    async fn wait(&mut self) -> Happened {
        let due = self.machine.deadline().map(|(due, _)| due);
        let due = due.into_iter().chain(self.ending.drain_until).chain(self.ending.asks_until).min();
        let appetite = self.outlet.appetite();
        let (lost, store_gone) = (self.ending.link_lost, self.ending.store_gone);
        tokio::select! {
            biased;
            ask = self.asks.recv() => Happened::Ask(ask),
            message = self.from_client.recv(), if !lost => Happened::Client(message),
            () = self.link_closed.cancelled(), if !lost => Happened::LinkClosed,
            () = self.down.ready() => Happened::Pump,
            changed = self.stored.changed(), if !store_gone => Happened::Stored(changed.is_ok()),
            () = self.outlet.room() => Happened::Room,
            (task, output) = self.tasks.next(appetite) => Happened::Result(task, output),
            () = until(self.clock, due) => Happened::Timer,
        }
    }

    fn handle(&mut self, now: Stamp, happened: Happened) {
        match happened {
            Happened::Ask(Some(ask)) => self.asked(now, ask),
            // The registry holds a handle as long as the session lives.
            Happened::Ask(None) => self.close(now, CancelCause::Shutdown),
            Happened::Client(Some(message)) => self.client(now, message),
            Happened::Client(None) | Happened::LinkClosed => self.lose_link(now),
            Happened::Pump => self.pumped(now),
            Happened::Stored(true) => {
                let seq = *self.stored.borrow_and_update();
                self.step(now, Input::Appended { seq });
            }
            Happened::Stored(false) => self.ending.store_gone = true,
            Happened::Result(task, output) => self.result(now, task, output),
            // Room is used by `settle`, a due timer by the loop.
            Happened::Room | Happened::Timer => {}
        }
    }

    /// One step of the machine, its effects carried out in their order, then what a door refused.
    fn step(&mut self, now: Stamp, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            for effect in self.machine.step(now, input) {
                self.outlet.carry(now, effect, &mut self.tasks, &self.preroll);
            }
            next = self.outlet.refused();
        }
    }

    fn asked(&mut self, now: Stamp, ask: Ask) {
        match ask {
            Ask::Command { command, reply } => self.command(now, command, Waiter::Handle(reply)),
            Ask::Close { cause } => self.close(now, cause),
            // A handle that does not wait for its snapshot is not told.
            Ask::Snapshot { reply } => drop(reply.send(self.machine.snapshot())),
            Ask::Drain { until } => {
                self.ending.drain_until = Some(until);
                self.ending.reason = Some("draining");
                let request = self.handle.next_request();
                self.command(now, Command::Drain { request }, Waiter::Nobody);
            }
        }
    }

    /// Gives the machine a command, unless too many wait for their answers.
    fn command(&mut self, now: Stamp, command: Command, waiter: Waiter) {
        if self.outlet.wait_for(command.request(), command.kind(), waiter) {
            self.step(now, Input::Command(command));
        }
    }

    fn client(&mut self, now: Stamp, message: FromClient) {
        match intake::read(message, now) {
            Meaning::Command(command, named) => self.command(now, command, Waiter::Client(named)),
            Meaning::Far(word) => self.down.far_word(word),
            Meaning::Reply(message) => self.outlet.tell(message),
            Meaning::Ack(seq) => drop(self.handle.acked.fetch_max(seq.0, std::sync::atomic::Ordering::AcqRel)),
            Meaning::Foreign(version) => {
                tracing::info!(version, "a client speaks another version");
                self.outlet.tell(ToClient::Bye { reason: "version".into() });
                self.link_closed.cancel();
            }
            Meaning::Nothing => {}
        }
    }

    /// What the pump has: the microphone first, so that a recogniser started now hears all of it.
    fn pumped(&mut self, now: Stamp) {
        while let Some(piece) = self.down.mic() {
            self.outlet.hear(&piece);
            self.preroll.keep(piece);
        }
        while let Some(evidence) = self.down.voice() {
            self.step(now, Input::Voice(intake::voice(evidence)));
        }
        while let Some(playout) = self.down.playout() {
            self.step(now, Input::Playout(playout));
        }
        if self.down.take_lost() {
            tracing::error!("the link panicked");
            self.link_closed.cancel();
            self.lose_link(now);
        }
    }

    fn result(&mut self, now: Stamp, task: TaskId, output: Output) {
        if matches!(output, Output::Ended(_)) {
            self.outlet.task_ended(task);
        }
        let report = intake::report(output, &self.handle.tools, |chunk| self.outlet.offer(task, chunk));
        self.step(now, Input::Task { task, report });
        self.outlet.withdraw();
    }

    fn lose_link(&mut self, now: Stamp) {
        if !std::mem::replace(&mut self.ending.link_lost, true) {
            self.outlet.link = None;
            self.step(now, Input::Link(LinkFact::Lost));
        }
    }

    fn close(&mut self, now: Stamp, cause: CancelCause) {
        if !std::mem::replace(&mut self.ending.closing, true) {
            let request = self.handle.next_request();
            self.ending.reason.get_or_insert("closed");
            self.command(now, Command::Close { request, cause }, Waiter::Nobody);
        }
    }

    /// The end of one turn of the loop: what was parked finds its place, and a session that has nothing left to do ends.
    fn settle(&mut self, now: Stamp) {
        self.outlet.settle(now);
        while let Some(refused) = self.outlet.refused() {
            self.step(now, refused);
        }
        self.down.want_room(self.outlet.is_ring_full());
        if self.outlet.link.is_none() && !self.ending.link_lost {
            // The outlet let go of a client that does not read.
            self.lose_link(now);
        }
        let idle = !self.outlet.is_running();
        let done = idle && !self.outlet.is_asking();
        if let Some(until) = self.ending.drain_until
            && (done || until <= now)
        {
            self.ending.drain_until = None;
            self.close(now, CancelCause::Shutdown);
        }
        // Nobody can come back to a session without a link (yet): it ends when its policy has run, and what it left open is known or
        // has been asked after long enough.
        if self.ending.link_lost && idle && !self.ending.closing {
            let until = *self.ending.asks_until.get_or_insert(now + ASKS_ON);
            if done || until <= now {
                self.ending.asks_until = None;
                self.close(now, CancelCause::Transport);
            }
        }
    }

    fn greet(&mut self, now: Stamp) {
        let snapshot = serde_json::to_value(self.machine.snapshot()).expect("a snapshot serialises");
        self.outlet.tell(ToClient::Hello { v: VERSION, session: self.handle.id, at: now, snapshot });
    }

    /// Waits until the store has every record, or is gone.
    async fn flush(&mut self) {
        while !self.outlet.is_flushed() {
            self.outlet.room().await;
            self.outlet.settle(self.clock.now());
        }
        let last = self.outlet.last();
        // An error means that the store is gone; there is nobody left to tell.
        let _gone = self.stored.wait_for(|seq| *seq >= last).await.is_err();
    }

    /// Leaves nothing behind: no task, no record unwritten, no place in the pump.
    async fn end(mut self) {
        if within(LAST_WAIT, self.tasks.shutdown()).await.is_none() {
            self.tasks.give_up();
        }
        if within(LAST_WAIT, self.flush()).await.is_none() {
            tracing::error!("the store did not take the session's last records in time");
        }
        self.outlet.tell(ToClient::Bye { reason: self.ending.reason.unwrap_or("closed").to_owned() });
        self.link_closed.cancel();
        self.down.leave();
        // The beat comes home to be dropped here, on a thread that may free memory. One whose link panicked may be gone.
        if within(LAST_WAIT, &mut self.home).await.is_none() {
            tracing::warn!("the pump did not let go in time");
        }
    }
}

/// A session's place in its engine, given back even when the driver panics: nobody waits for it for ever.
struct Place {
    shared: Arc<Shared>,
    handle: Arc<Inner>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.forget(self.handle.id);
        self.handle.closed.cancel();
    }
}

/// Resolves at `due`, or never.
#[allow(clippy::disallowed_methods, reason = "the driver's one wait, for the machine's deadline")]
async fn until(clock: RuntimeClock, due: Option<Stamp>) {
    match due {
        Some(due) => tokio::time::sleep_until(clock.instant(due)).await,
        None => std::future::pending().await,
    }
}

/// What `work` came to, or `None` when it was not done in `time`.
#[allow(
    clippy::disallowed_methods,
    reason = "a session's end, and what a handle asks of the outside, is bounded whatever others do"
)]
pub(super) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}
