//! The machine: composes the parts and keeps the order of effects. It knows nothing itself.
//!
//! One step takes one input. The part that owns the question says what follows; then what has become due of itself is done (a
//! stopped turn ends, a played answer is complete, settled words start a turn); then the effects are put into the order of the
//! contract. A [`Input::Tick`] fires the one timer that is due, so no step mixes two decisions: a driver steps ticks while
//! [`Machine::deadline`] is not in the future.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec;

use serde::Serialize;

use crate::event::Declaration;
use crate::event::{CancelCause, Event, FailReason, Initiator, LateKind, Stage};
use crate::id::{CallId, Generation, RequestId, Seq, SessionId, TaskId, TurnId, UtteranceId};
use crate::time::Stamp;
use crate::turn::acting::Kept;
use crate::turn::calls::{CallView, Calls};
use crate::turn::floor::{Floor, Scene};
use crate::turn::gate::Gate;
use crate::turn::history::History;
use crate::turn::memory::{Answered, Answers};
use crate::turn::pause::Pause;
use crate::turn::restore::Orphans;
use crate::turn::sabotage::Sabotage as Law;
use crate::turn::tail::Tails;
use crate::turn::timer::{Timer, Timers};
use crate::turn::tree::Tree;
use crate::turn::turns::Turns;
use crate::turn::utterance::Utterances;
use crate::turn::{Answer, Command, Effect, Input, LinkFact, Policy, Report};

/// Records of oddities and of late output that are written under one generation; more are only counted.
pub(super) const NOTED: u32 = 64;
/// Ended tasks whose generation is remembered, for telling what comes late.
const RETIRED: usize = 64;

/// What the machine counted; numbers of events, since the session began or was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Late output that was dropped.
    pub late: u64,
    /// Inputs that made no sense in their state.
    pub odd: u64,
    /// Attempts to end a turn twice. Always zero.
    pub terminal_conflicts: u64,
    /// Steps whose `now` lay before an earlier one.
    pub clock_backwards: u64,
    /// Tasks that were aborted and have not reported their end.
    pub zombies: u64,
    /// Records and answers that wait for the store.
    pub waiting_for_store: u64,
}

/// The link, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// There was none yet.
    Awaited,
    Up,
    Lost {
        at: Stamp,
    },
}

/// How far the end of the session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Nobody closes it.
    Open,
    /// It waits for what runs to stop.
    Stopping,
    /// Its last record is written and waits for the store.
    Written { at: Stamp },
    /// It is over.
    Finished,
}

/// The turn machine of one session: a value that is handed facts and asked for the next deadline.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) policy: Policy,
    pub(super) now: Stamp,
    pub(super) gate: Gate,
    pub(super) floor: Floor,
    pub(super) utterances: Utterances,
    /// Listening tasks: they belong to the session, because an utterance may have no turn yet.
    pub(super) ears: Tree,
    /// Tasks that find out about calls whose turn is over.
    pub(super) errands: Tree,
    pub(super) session: SessionId,
    pub(super) tools: BTreeMap<String, Declaration>,
    /// Whether something is looked up before the model is asked.
    pub(super) retrieves: bool,
    pub(super) calls: Calls,
    /// Calls to look after once their turn is over, or at once if it runs on.
    pub(super) pending: BTreeSet<CallId>,
    pub(super) kept: Vec<Kept>,
    /// Tasks with leave to commit that were left to themselves.
    pub(super) left: BTreeMap<TaskId, CallId>,
    pub(super) turns: Turns,
    pub(super) history: History,
    pub(super) pause: Pause,
    pub(super) tails: Tails,
    pub(super) answers: Answers,
    pub(super) link: LinkState,
    pub(super) draining: bool,
    pub(super) ending: Ending,
    pub(super) began: bool,
    /// It goes on from a log, and the first step raised the fence.
    pub(super) restored: bool,
    /// The log has its header, from before a restart.
    pub(super) has_header: bool,
    pub(super) last_task: TaskId,
    /// Aborted or left to themselves, and not over yet, as far as is known.
    pub(super) zombies: BTreeMap<TaskId, (Stage, Stamp)>,
    pub(super) retired: VecDeque<(TaskId, Generation)>,
    pub(super) orphans: Orphans,
    pub(super) counted: Counters,
    pub(super) noted: u32,
    pub(super) timers: Timers,
    pub(super) out: Vec<Effect>,
    #[cfg(feature = "lab")]
    pub(super) sabotage: Option<Law>,
}

/// The effects of one step, in the order of the contract. Drain it: dropping it half-full is a bug of the driver.
#[must_use = "effects that are not carried out are lost"]
#[derive(Debug)]
pub struct Drain<'a> {
    effects: vec::Drain<'a, Effect>,
}

impl Iterator for Drain<'_> {
    type Item = Effect;

    fn next(&mut self) -> Option<Effect> {
        self.effects.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.effects.size_hint()
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        debug_assert!(self.effects.len() == 0 || std::thread::panicking(), "a driver carries out every effect of a step");
    }
}

impl Machine {
    /// A machine for a new session. Its first input is [`Input::Begin`].
    pub fn new(policy: Policy) -> Self {
        Machine::at(policy, Stamp::ZERO, Generation(1), Seq(0))
    }

    /// An empty machine that goes on after `last`.
    pub(super) fn at(policy: Policy, now: Stamp, generation: Generation, last: Seq) -> Self {
        let mut machine = Machine {
            policy,
            now,
            gate: Gate::new(generation, last),
            floor: Floor::new(UtteranceId(0)),
            utterances: Utterances::default(),
            ears: Tree::default(),
            errands: Tree::default(),
            session: SessionId::from_bits(0),
            tools: BTreeMap::new(),
            retrieves: false,
            calls: Calls::default(),
            pending: BTreeSet::new(),
            kept: Vec::new(),
            left: BTreeMap::new(),
            #[cfg(feature = "lab")]
            sabotage: None,
            turns: Turns::default(),
            history: History::default(),
            pause: Pause::default(),
            tails: Tails::default(),
            answers: Answers::default(),
            link: LinkState::Awaited,
            draining: false,
            ending: Ending::Open,
            began: false,
            restored: false,
            has_header: false,
            last_task: TaskId(0),
            zombies: BTreeMap::new(),
            retired: VecDeque::new(),
            orphans: Orphans::default(),
            counted: Counters::default(),
            noted: 0,
            timers: Timers::default(),
            out: Vec::new(),
        };
        machine.pause.renew(generation);
        machine
    }

    /// The same with these tools. Of two with one name the later counts.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = Declaration>) -> Self {
        self.tools = tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect();
        // Calls that were read from a log.
        for call in self.calls.all_mut() {
            call.declaration = self.tools.get(&call.tool).cloned();
        }
        self
    }

    /// The same with or without a lookup before the model is asked. Default without.
    #[must_use]
    pub fn with_retrieval(mut self, retrieves: bool) -> Self {
        self.retrieves = retrieves;
        self
    }

    /// The calls of this turn that are remembered, the oldest first.
    pub fn calls(&self, turn: TurnId) -> Vec<CallView> {
        self.calls.of_turn(turn).map(CallView::from).collect()
    }

    /// Takes one fact and returns what is to be done about it, in the order of [`Effect::rank`].
    ///
    /// `now` is session time; should it lie before an earlier step's, that one's is used and counted.
    pub fn step(&mut self, now: Stamp, input: Input) -> Drain<'_> {
        self.out.clear();
        if now < self.now {
            self.counted.clock_backwards += 1;
        }
        self.now = self.now.max(now);
        self.bury_orphans();
        match self.ending {
            Ending::Open | Ending::Stopping => self.take(input),
            Ending::Written { .. } | Ending::Finished => self.take_after_the_end(input),
        }
        self.follow_up();
        self.retime();
        self.out.sort_by_key(Effect::rank);
        Drain { effects: self.out.drain(..) }
    }

    /// When the machine must be stepped with [`Input::Tick`] at the latest, and why. A moment in the past means at once.
    pub fn deadline(&self) -> Option<(Stamp, Timer)> {
        self.timers.soonest()
    }

    /// What was counted so far. While `waiting_for_store` is high, a driver should not read results of tasks.
    pub fn counters(&self) -> Counters {
        Counters { zombies: self.zombies.len() as u64, waiting_for_store: self.gate.waiting() as u64, ..self.counted }
    }

    /// The current generation.
    pub fn generation(&self) -> Generation {
        self.gate.generation()
    }

    /// Whether the session is over and [`Effect::Finish`] was given.
    pub fn is_over(&self) -> bool {
        self.ending == Ending::Finished
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Begin { session, wall_unix_ms } => {
                self.session = session;
                self.begin(wall_unix_ms);
            }
            Input::Tick => self.tick(),
            Input::Command(command) => self.command(command),
            Input::Voice(voice) => self.hear(&voice),
            Input::Task { task, report } => self.report(task, report),
            Input::Playout(playout) => self.playout(playout),
            Input::Link(LinkFact::Up) => self.link_up(),
            Input::Link(LinkFact::Lost) => self.link_lost(),
            Input::Late { kind, generation } => self.late(kind, generation),
            Input::Appended { seq } => self.appended(seq),
        }
    }

    /// No record is written any more; commands are still answered.
    fn take_after_the_end(&mut self, input: Input) {
        match input {
            Input::Tick => self.tick(),
            Input::Command(command) => self.command(command),
            Input::Appended { seq } if !self.is_over() => self.appended(seq),
            Input::Appended { .. } => {}
            Input::Task { task, report: Report::Ended(_) } => {
                self.zombies.remove(&task);
                self.left.remove(&task);
            }
            Input::Begin { .. } | Input::Voice(_) | Input::Playout(_) | Input::Link(_) => {}
            Input::Task { .. } | Input::Late { .. } => self.counted.late += 1,
        }
    }

    fn begin(&mut self, wall_unix_ms: u64) {
        if std::mem::replace(&mut self.began, true) {
            self.odd("begin of a session that has begun");
            return;
        }
        if !self.restored {
            self.out.push(Effect::RaiseFence { generation: self.gate.generation() });
        }
        if !self.has_header {
            self.write(None, Event::SessionStarted { wall_unix_ms });
        }
    }

    fn appended(&mut self, seq: Seq) {
        if self.gate.stored(seq, &mut self.out).is_err() {
            self.odd("appended a record that was never written");
        }
        self.grant_commits();
    }

    fn tick(&mut self) {
        let Some((due, timer)) = self.timers.soonest() else { return };
        if due <= self.now {
            self.fire(timer);
        }
    }

    /// What has become due of itself.
    fn follow_up(&mut self) {
        self.end_stopped_turns();
        self.go_on();
        self.complete_if_played();
        self.settle();
        self.end_stopped_turns();
        self.look_after();
        self.end_session_if_stopped();
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Grace => self.abort_overdue(),
            Timer::Deadline => self.out_of_time(),
            Timer::Retrieve => self.lookup_overdue(),
            Timer::Generate => self.fail_live(FailReason::DeadlineExceeded { stage: Stage::Generate }),
            Timer::Tool => self.calls_overdue(),
            Timer::Reconcile => self.errands_due(),
            Timer::Resume | Timer::Endpoint => self.floor_lapsed(),
            Timer::FinalTranscript => self.give_up_on_words(),
            Timer::FirstToken => self.fail_live(FailReason::FirstTokenTimeout),
            Timer::GenerateIdle => self.fail_live(FailReason::IdleTimeout { stage: Stage::Generate }),
            Timer::SynthesizeIdle => {
                self.fail_live(FailReason::IdleTimeout { stage: Stage::Synthesize });
            }
            Timer::PlayoutStall => self.fail_live(FailReason::PlayoutStalled),
            Timer::Disconnect => self.away_too_long(),
            Timer::Closing => self.finish(),
        }
    }

    /// Fills the table from the parts.
    fn retime(&mut self) {
        let Policy { floor, budget, .. } = &self.policy;
        let mut timers = Timers::default();
        let turns = self.turns.live.iter().chain(&self.turns.closing).map(|t| &t.tree);
        let grace = turns.chain([&self.ears, &self.errands]).filter_map(Tree::due).min();
        timers.set(Timer::Grace, grace);
        if let Some(turn) = &self.turns.live {
            timers.set(Timer::Deadline, Some(turn.budget.work_until()));
            timers.set(Timer::Disconnect, self.disconnect_due(turn));
            timers.set(Timer::Tool, self.calls.due(turn.id));
        }
        if let Some(turn) = self.turns.live.as_ref().filter(|t| t.is_running()) {
            let paused = self.pause.is_held();
            timers.set(Timer::Retrieve, turn.budget.retrieve_due());
            timers.set(Timer::Generate, turn.budget.generate_due());
            timers.set(Timer::FirstToken, turn.budget.first_token_due());
            timers.set(Timer::GenerateIdle, turn.budget.generate_idle_due(paused));
            timers.set(Timer::SynthesizeIdle, turn.budget.synthesize_idle_due(paused));
            timers.set(Timer::PlayoutStall, turn.budget.stall_due(!turn.is_played_out(), paused));
        }
        if let Some((due, timer)) = self.floor.due(budget.turn, floor) {
            timers.set(timer, Some(due));
        }
        timers.set(Timer::FinalTranscript, self.utterances.due(floor.final_transcript));
        if !self.is_closing() {
            timers.set(Timer::Reconcile, self.calls.errand_due());
        }
        timers.set(Timer::Closing, self.closing_due());
        self.timers = timers;
    }

    /// A command is answered, and the second time it is asked, answered the same.
    fn command(&mut self, command: Command) {
        let (request, kind) = (command.request(), command.kind());
        let known = self.answers.get(request, kind).filter(|_| !self.breaks(Law::Idempotence)).cloned();
        let answered = known.unwrap_or_else(|| {
            let answered = self.carry_out(command);
            self.answers.put(request, kind, answered.clone());
            answered
        });
        match answered.after {
            Some(seq) => self.gate.answer_after(seq, request, kind, answered.answer, &mut self.out),
            None => Gate::answer(request, kind, answered.answer, &mut self.out),
        }
    }

    fn carry_out(&mut self, command: Command) -> Answered {
        let done = Answered { answer: Answer::Done, after: None };
        match command {
            Command::Say { request, text } => Answered { answer: Answer::Say(self.say(request, text)), after: None },
            Command::Submit { request, text, mode } => {
                Answered { answer: Answer::Submit(self.submit(request, text, mode)), after: None }
            }
            Command::Announce { request, text, interruptible } => {
                Answered { answer: Answer::Submit(self.announce(request, text, interruptible)), after: None }
            }
            Command::Handover { request, handover } => {
                Answered { answer: Answer::Submit(self.hand_over(request, handover)), after: None }
            }
            Command::Approve { request, call, granted } => {
                Answered { answer: Answer::Approve(self.approve(request, call, granted)), after: None }
            }
            Command::Resolve { call, outcome, .. } => {
                Answered { answer: Answer::Resolve(self.resolve(call, outcome)), after: None }
            }
            Command::Cancel { request, turn, cause, initiator, deadline } => {
                let (answer, after) = self.cancel(request, turn, cause, initiator, deadline);
                Answered { answer: Answer::Cancel(answer), after }
            }
            Command::PushToTalk { down: true, .. } => {
                self.key_down();
                done
            }
            Command::PushToTalk { down: false, .. } => {
                self.key_up();
                done
            }
            Command::Drain { .. } => {
                self.draining = true;
                done
            }
            Command::Close { request, cause } => {
                self.close(request, cause);
                done
            }
        }
    }

    // What all chapters use.

    pub(super) fn write(&mut self, turn: Option<TurnId>, event: Event) -> Seq {
        self.gate.write(self.now, turn, event, &mut self.out)
    }

    pub(super) fn next_task(&mut self) -> TaskId {
        self.last_task = self.last_task.next();
        self.last_task
    }

    pub(super) fn scene(&self) -> Scene {
        match self.turns.live.as_ref().filter(|t| t.is_running()) {
            // What has not sounded yet can always be superseded, whatever its flag.
            Some(turn) => {
                let may = self.policy.floor.interruptible && turn.is_interruptible();
                Scene::Agent { interruptible: may || !turn.reply.sounded() }
            }
            None => Scene::Idle,
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.ending != Ending::Open
    }

    /// Raises the generation: the fence first, and every hold is void. The caller writes the record.
    pub(super) fn raise(&mut self) -> Generation {
        let from = self.gate.raise();
        // What this very step held or resumed is void, and a far end must not even hear of it.
        self.out.retain(|e| !matches!(e, Effect::Hold { .. } | Effect::Resume { .. }));
        let generation = self.gate.generation();
        if !self.breaks(Law::Fence) {
            self.out.push(Effect::RaiseFence { generation });
        }
        self.pause.renew(generation);
        self.floor.agent_gone();
        self.noted = 0;
        from
    }

    pub(super) fn odd(&mut self, what: &str) {
        self.counted.odd += 1;
        if self.note() {
            self.write(None, Event::Odd { what: what.to_owned() });
        }
    }

    pub(super) fn late(&mut self, kind: LateKind, stale: Generation) {
        self.counted.late += 1;
        if self.note() {
            self.write(None, Event::LateDropped { kind, stale });
        }
    }

    /// A report of a task that no longer counts, or never did.
    pub(super) fn late_report(&mut self, task: TaskId, kind: LateKind) {
        if task > self.last_task || task == TaskId(0) {
            self.odd("report of a task that was never started");
            return;
        }
        let of_turn = self.turns.of_task(task).map(|t| t.generation);
        let retired = || self.retired.iter().find(|(t, _)| *t == task).map(|(_, generation)| *generation);
        self.late(kind, of_turn.or_else(retired).unwrap_or(Generation::UNSET));
    }

    pub(super) fn retire(&mut self, task: TaskId, generation: Generation) {
        self.retired.push_back((task, generation));
        if self.retired.len() > RETIRED {
            self.retired.pop_front();
        }
    }

    fn note(&mut self) -> bool {
        self.noted = self.noted.saturating_add(1);
        let open = match self.ending {
            Ending::Open | Ending::Stopping => true,
            Ending::Written { .. } | Ending::Finished => false,
        };
        open && self.noted <= NOTED
    }
}

/// The request id of a cancel that the machine itself decides: the same decision has the same id.
pub(super) fn own_request(initiator: Initiator, cause: CancelCause, turn: TurnId, generation: Generation) -> RequestId {
    let kind = 0x80 | (initiator as u128) << 4 | cause as u128;
    RequestId::from_bits(kind << 120 | u128::from(turn.0) << 60 | u128::from(generation.0) & ((1 << 60) - 1))
}
