//! The world: one session under virtual time. The production machine, fence, ring; tasks, people, a store and an outside that
//! misbehave as the seed says; and the checkers over everything that happens.

mod far;
mod keeper;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use far::Far;
use keeper::Keeper;

use super::jobs::{Job, Kind, latency};
use super::marks::{Mark, Marks};
use super::outside::{Outer, State};
use super::people::{People, Sounding, Wish};
use super::queue::{Happening, Queue};
use super::rng::{Rng, Trace};
use super::shape::Shape;
use super::sound::Sound;
use crate::audio::fence::Mode;
use crate::event::{Event, Outcome, Record};
use crate::id::{CallId, SessionId, TaskId};
use crate::lab::check::{Checks, Fact, Rules, Violation};
use crate::time::{BEAT, Stamp};
use crate::turn::{Answer, Command, Effect, Input, LinkFact, Machine, Sabotage};

/// Records that are kept to be shown with a violation.
const TAIL: usize = 30;
/// Steps after which a session that is to end is stuck.
const STUCK: u64 = 5_000_000;

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// One number over every record and every block that was heard.
    pub hash: u64,
    /// Session time that passed.
    pub simulated: Duration,
    /// Inputs that the machine took.
    pub steps: u64,
    /// Records that were kept.
    pub records: u64,
    /// The laws that were broken, the first first.
    pub violations: Vec<Violation>,
    /// The last records before the first of them, one line each.
    pub tail: Vec<String>,
    /// Which situations were met.
    pub marks: Marks,
}

pub(super) struct World {
    rng: Rng,
    shape: Shape,
    sabotage: Option<Sabotage>,
    verbose: bool,
    now: Stamp,
    machine: Option<Machine>,
    queue: Queue,
    sound: Sound,
    next_beat: Stamp,
    jobs: BTreeMap<TaskId, Job>,
    offered: Option<(TaskId, u64)>,
    keeper: Keeper,
    far: Far,
    outer: Outer,
    people: People,
    checks: Checks,
    marks: Marks,
    trace: Trace,
    tail: VecDeque<Arc<Record>>,
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
    steps: u64,
    stands_until: Stamp,
    finished: bool,
    closing: bool,
    /// Some tasks wait for room.
    has_stalled: bool,
    broken: Vec<Violation>,
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Option<Sabotage>, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let shape = Shape::draw(&mut rng);
        let rules = Rules { slack: shape.slack(), ..Rules::new(shape.policy.clone(), shape.tools.clone()) };
        let queue = Queue::new(Rng::new(rng.next()));
        let sound = Sound::new(shape.ring, shape.slice);
        World {
            rng,
            sabotage,
            verbose,
            now: Stamp::ZERO,
            machine: None,
            queue,
            sound,
            next_beat: Stamp::ZERO,
            jobs: BTreeMap::new(),
            offered: None,
            keeper: Keeper::default(),
            far: Far::default(),
            outer: Outer::default(),
            people: People::default(),
            checks: Checks::new(rules),
            marks: Marks::default(),
            trace: Trace::new(),
            tail: VecDeque::new(),
            inputs: VecDeque::new(),
            effects: Vec::new(),
            steps: 0,
            stands_until: Stamp::ZERO,
            finished: false,
            closing: false,
            has_stalled: false,
            broken: Vec::new(),
            shape,
        }
    }

    /// Runs the session to its end.
    pub(super) fn run(&mut self) {
        if self.verbose {
            eprintln!("{:#?}", self.shape);
        }
        self.plan();
        self.begin();
        while self.broken.is_empty() && self.checks.violations().is_empty() {
            if !self.advance() {
                self.settle_accounts();
                return;
            }
            if self.steps > STUCK {
                self.wrong("liveness", "the session does not come to its end");
            }
        }
    }

    pub(super) fn into_run(self, seed: u64) -> Run {
        let mut violations = self.broken;
        violations.extend(self.checks.violations().iter().cloned());
        let tail = if violations.is_empty() { Vec::new() } else { self.tail.iter().map(|record| line(record)).collect() };
        Run {
            seed,
            hash: self.trace.value(),
            // What is waited for after the last stimulus costs nothing and proves little: it does not count.
            simulated: self.now.since(Stamp::ZERO).min(self.shape.session),
            steps: self.steps,
            records: self.keeper.log.len() as u64,
            violations,
            tail,
            marks: self.marks,
        }
    }

    fn wrong(&mut self, checker: &'static str, words: impl Into<String>) {
        let seq = self.tail.back().map(|record| record.seq);
        self.broken.push(Violation { checker, seq, words: words.into() });
    }

    /// What is certain from the start: people, deaths, the end.
    fn plan(&mut self) {
        let end = Stamp::ZERO + self.shape.session;
        let us = end.as_micros();
        let first = self.grain((0, 500));
        self.queue.put(Stamp::ZERO + first, Happening::Person);
        for _ in 0..self.shape.faults.deaths {
            let at = Stamp::from_micros(self.rng.range(us / 20, us));
            self.queue.put(at, Happening::Dies);
        }
        if self.shape.faults.driver_stalls > 0 {
            for _ in 0..self.rng.range(1, 20) {
                let at = Stamp::from_micros(self.rng.below(us));
                self.queue.put(at, Happening::Stall);
            }
        }
        if self.rng.chance(400) {
            // Some people do not notice that it is over.
            let before = self.rng.ms(0, 10_000);
            self.queue.put(end.back(before), Happening::Drains);
        }
        // Sometimes in the middle of everything, sometimes after every turn has had its time.
        let rest = if self.rng.chance(400) { Duration::ZERO } else { self.shape.policy.budget.turn + Duration::from_secs(2) };
        self.queue.put(end + rest, Happening::Closes);
    }

    fn grain(&mut self, span: (u64, u64)) -> Duration {
        latency(&mut self.rng, &self.shape, span)
    }

    fn in_a(&mut self, span: (u64, u64)) -> Stamp {
        self.now + self.grain(span)
    }

    // The process.

    fn begin(&mut self) {
        let policy = self.shape.policy.clone();
        let machine = if self.keeper.log.is_empty() {
            Machine::new(policy)
        } else {
            Machine::restore(policy, self.keeper.log.iter().map(|record| (**record).clone()), self.now)
        };
        let mut machine = machine.with_tools(self.shape.tools.iter().cloned()).with_retrieval(self.shape.retrieves);
        if let Some(law) = self.sabotage {
            machine.sabotage(law);
        }
        self.machine = Some(machine);
        self.step(Input::Begin { session: SessionId::from_bits(7), wall_unix_ms: 1_700_000_000_000 });
        self.step(Input::Link(LinkFact::Up));
    }

    fn die(&mut self) {
        if self.machine.take().is_none() || self.finished || self.closing {
            return;
        }
        self.marks.hit(Mark::restarted);
        if self.people.is_looking() {
            self.marks.hit(Mark::restarted_with_running_turn);
        }
        if self.outer.sent.iter().any(|sent| sent.state == State::Underway) {
            self.marks.hit(Mark::restarted_with_open_commit);
        }
        if self.keeper.writing > 0 && self.rng.chance(500) {
            // What was being written is kept in part, and nobody was told.
            let kept = self.rng.range(0, self.keeper.writing as u64) as usize;
            self.marks.hit(Mark::torn_write);
            for _ in 0..kept {
                self.keep();
            }
        }
        self.keeper.waiting.clear();
        self.keeper.writing = 0;
        self.jobs.clear();
        self.inputs.clear();
        self.offered = None;
        self.queue.forget();
        self.sound = Sound::new(self.shape.ring, self.shape.slice);
        self.far = Far::default();
        self.people.restarted();
        self.stands_until = Stamp::ZERO;
        self.checks.see(Fact::Restarted);
        let at = self.in_a((10, 3_000));
        self.queue.put(at, Happening::Begins);
    }

    // Time.

    /// Lets the next thing happen. Returns whether anything did.
    fn advance(&mut self) -> bool {
        let event = self.queue.next_at();
        let beat = (!self.sound.is_idle()).then_some(self.next_beat.max(self.now));
        let tick = self.machine.as_ref().filter(|_| !self.finished).and_then(Machine::deadline);
        let tick = tick.map(|(due, _)| due.max(self.now).max(self.stands_until));
        let Some(soonest) = [event, beat, tick].into_iter().flatten().min() else { return false };
        self.now = self.now.max(soonest);
        let due = |at: Option<Stamp>| at.is_some_and(|at| at <= soonest);
        if due(beat) && (!(due(event) || due(tick)) || self.queue.heads()) {
            self.beat();
        } else if due(tick) && (!due(event) || self.queue.heads()) {
            self.step(Input::Tick);
        } else if due(event) {
            self.happen();
        }
        if self.has_stalled && !self.is_full() && !self.sound.is_full() {
            self.resume();
        }
        true
    }

    fn happen(&mut self) {
        let Some(what) = self.queue.pop() else { return };
        if what.is_for_the_driver() {
            if self.now < self.stands_until {
                self.queue.put(self.stands_until, what);
                return;
            }
            if self.machine.is_none() {
                // Whoever asks meanwhile asks again.
                let at = self.now + Duration::from_millis(100);
                self.queue.put(at, what);
                return;
            }
        }
        match what {
            Happening::Wake { task, token } => self.wake(task, token),
            Happening::Stored => self.stored(),
            Happening::Arrives { entry } => self.arrives(entry),
            Happening::Person => self.person(),
            Happening::Voice { voice } => self.voice(voice),
            Happening::Playout(playout) => self.step(Input::Playout(playout)),
            Happening::Command(command) => self.step(Input::Command(command)),
            Happening::Fact(input) => self.step(input),
            Happening::Stall => {
                self.marks.hit(Mark::driver_stalled);
                self.stands_until = self.now + self.rng.ms(1, self.shape.faults.driver_stalls);
            }
            Happening::Dies => self.die(),
            Happening::Begins => self.begin(),
            Happening::Drains => {
                let request = self.people.request();
                self.step(Input::Command(Command::Drain { request }));
            }
            Happening::Closes => self.close(),
        }
    }

    // The driver.

    fn step(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let Some(machine) = &mut self.machine else { return };
            if self.verbose {
                eprintln!("{} <- {}", self.now, told(&input));
            }
            self.steps += 1;
            let generation = machine.generation();
            let mut effects = std::mem::take(&mut self.effects);
            effects.extend(machine.step(self.now, input));
            let (risen, counters) = (machine.generation(), machine.counters());
            if risen < generation {
                self.wrong("generation_never_falls", format!("the machine went from {generation} to {risen}"));
            }
            if counters.terminal_conflicts > 0 {
                self.wrong("one_terminal", "the machine counts a conflict of terminals");
            }
            if !effects.is_sorted_by_key(Effect::rank) {
                self.wrong("order_of_effects", "effects are not in the order of their rank");
            }
            for effect in effects.drain(..) {
                self.carry(effect);
            }
            self.effects = effects;
            self.write();
        }
    }

    fn carry(&mut self, effect: Effect) {
        if self.verbose && !matches!(effect, Effect::Append { .. } | Effect::Deliver { .. }) {
            eprintln!("{} -> {effect:?}", self.now);
        }
        match effect {
            Effect::RaiseFence { generation } => {
                self.sound.raise(generation);
                self.checks.see(Fact::Raised { generation, at: self.now });
            }
            Effect::Hold { generation } => self.sound.set_mode(generation, Mode::Hold),
            Effect::Resume { generation } => self.sound.set_mode(generation, Mode::Play),
            Effect::Clear { .. } => {}
            Effect::StopTask { task, .. } => self.with_job(task, |job, rng, shape| job.stop(rng, shape)),
            Effect::AbortTask { task } => self.with_job(task, |job, rng, shape| job.abort(rng, shape)),
            Effect::Append { record } => {
                if self.verbose {
                    eprintln!("{} -> append {}", self.now, line(&record));
                }
                self.marks.record(&record);
                if self.tail.len() >= TAIL {
                    self.tail.pop_front();
                }
                self.tail.push_back(record.clone());
                self.keeper.waiting.push_back(record);
                if self.keeper.waiting.len() == self.shape.room {
                    self.marks.hit(Mark::store_full);
                }
            }
            Effect::Deliver { record } => self.deliver(&record),
            Effect::Answer { request, answer, .. } => {
                let kind = kind_of(&answer);
                if let Some(words) = self.people.answered(request, kind, &answer, &mut self.marks) {
                    self.wrong("same_answer", words);
                }
            }
            Effect::StartTask { task, generation, spec, .. } => self.start(task, generation, &spec),
            Effect::Feed { task, text } => self.with_job(task, |job, rng, shape| job.feed(rng, shape, text.reveal())),
            Effect::EndFeed { task } => {
                let words = self.people.sound.map_or("what about this", |sound| sound.words);
                self.with_job(task, |job, rng, shape| job.end_feed(rng, shape, words));
            }
            Effect::Play { task } => {
                if let Some((of, samples)) = self.offered.take_if(|(of, _)| *of == task)
                    && let Some(job) = self.jobs.get(&of)
                {
                    self.sound.play(job.generation, samples);
                    self.place();
                }
            }
            Effect::LetCommit { task, call } => self.let_commit(task, call),
            Effect::RefuseCommit { task } => {
                self.marks.hit(Mark::refused_commit);
                self.with_job(task, |job, rng, shape| job.refused(rng, shape));
            }
            Effect::Finish => self.finished = true,
        }
    }

    fn deliver(&mut self, record: &Arc<Record>) {
        self.checks.see(Fact::Shown(record));
        if let Some(call) = self.people.shown(record)
            && !self.rng.chance(self.shape.faults.ignores_approvals)
        {
            let request = self.people.request();
            let command = Command::Approve { request, call, granted: self.rng.chance(750) };
            self.people.remember(&command);
            let at = self.in_a(self.shape.approves);
            self.queue.put(at, Happening::Command(command));
        }
        if let Event::Reconciled { call, outcome: Outcome::NeedsPerson } = record.event
            && self.rng.chance(600)
        {
            // Somebody looks, and says what is so: not while an undoing that was given up may still take effect.
            if self.jobs.values().any(|job| !job.over && matches!(job.kind, Kind::Compensate { call: of } if of == call)) {
                return;
            }
            let request = self.people.request();
            let outcome = match self.outer.state(call) {
                Some(State::Happened) => Outcome::Happened,
                Some(State::Never) | None => Outcome::DidNotHappen,
                Some(State::Undone) => Outcome::Compensated,
                Some(State::Underway) => return,
            };
            let at = self.in_a(self.shape.approves);
            self.queue.put(at, Happening::Command(Command::Resolve { request, call, outcome }));
        }
    }

    // People.

    fn person(&mut self) {
        if self.closing || self.now > Stamp::ZERO + self.shape.session {
            return;
        }
        let wish = self.people.wish(&mut self.rng, &self.shape, self.now);
        match wish {
            Wish::Command(command) => self.step(Input::Command(command)),
            Wish::Link(fact) => self.step(Input::Link(fact)),
            Wish::Nonsense(input) => self.step(input),
            Wish::Sound { blocks, words, weak } => {
                if self.people.sound.is_none() {
                    self.people.voices += 1;
                    let voice = self.people.voices;
                    self.people.sound = Some(Sounding { voice, left: blocks, since: self.now, words, weak });
                    self.queue.put(self.now + BEAT, Happening::Voice { voice });
                }
            }
        }
        let at = self.in_a(self.shape.pause);
        self.queue.put(at, Happening::Person);
    }

    fn voice(&mut self, voice: u64) {
        let Some(mut sound) = self.people.sound.filter(|sound| sound.voice == voice) else { return };
        sound.left -= 1;
        self.people.sound = (sound.left > 0).then_some(sound);
        let evidence = sound.evidence(&mut self.rng, self.now);
        if sound.left > 0 {
            self.queue.put(self.now + BEAT, Happening::Voice { voice });
        }
        self.step(Input::Voice(evidence));
    }

    // The end.

    fn close(&mut self) {
        self.closing = true;
        let running = self.machine.as_ref().is_some_and(|machine| machine.snapshot().turn.is_some());
        if running {
            self.marks.hit(Mark::closed_while_running);
        }
        let request = self.people.request();
        self.step(Input::Command(Command::Close { request, cause: crate::event::CancelCause::Shutdown }));
    }

    /// Everything is over: what must be so now.
    fn settle_accounts(&mut self) {
        if !self.finished || !self.machine.as_ref().is_some_and(Machine::is_over) {
            self.wrong("liveness", "nothing more will happen, and the session is not over");
        }
        if !self.keeper.waiting.is_empty() {
            self.wrong("liveness", "records wait for a store that has nothing to do");
        }
        let calls: Vec<(CallId, bool)> = self.outer.sent.iter().map(|sent| (sent.call, sent.state == State::Happened)).collect();
        for (call, happened) in calls {
            self.checks.see(Fact::Truth { call, happened });
        }
        let tasks_alive = self.jobs.values().filter(|job| !job.over).count();
        self.checks.see(Fact::Over { tasks_alive });
    }
}

fn kind_of(answer: &Answer) -> u8 {
    match answer {
        Answer::Say(_) => 0,
        Answer::Submit(_) => 1,
        Answer::Approve(_) => 2,
        Answer::Resolve(_) => 3,
        Answer::Cancel(_) => 4,
        Answer::Done => 5,
    }
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

fn told(input: &Input) -> String {
    format!("{input:?}")
}
