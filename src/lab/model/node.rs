//! A state of the search: the machine, the small world around it, and the checkers; and the events that can happen in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::relative::relative;
use super::worlds::{Action, rules, world};
use crate::event::{CancelCause, Event, Initiator, Outside, Record, Retry, Timing};
use crate::id::{CallId, Generation, RequestId, SessionId, TaskId, TurnId};
use crate::lab::check::{Checks, Fact, Violation};
use crate::time::{SamplePos, Stamp};
use crate::turn::{
    Command, Effect, Ended, Input, LinkFact, Machine, Playout, QuietBy, Report, Sabotage, SubmitMode, TaskSpec, Voice,
};

/// What a task is, for the events that it can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Listen,
    Generate,
    Synthesize,
    Tool,
    Errand,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    work: Work,
    generation: Generation,
    told: bool,
    aborted: bool,
    /// It asked to commit and waits; it has leave.
    asked: bool,
    leave: bool,
    /// It gave its result, or its audio.
    done: bool,
    fed: bool,
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug)]
struct Left {
    says: u8,
    steers: u8,
    cancels: u8,
    voices: u8,
    calls: u8,
    texts: u8,
    links: u8,
    deaths: u8,
    fails: u8,
}

/// A state of the search.
#[derive(Clone)]
pub(super) struct Node {
    world: u8,
    machine: Machine,
    sabotage: Option<Sabotage>,
    now: Stamp,
    checks: Checks,
    log: Vec<Arc<Record>>,
    waiting: Vec<Arc<Record>>,
    jobs: BTreeMap<TaskId, Job>,
    /// Samples made and heard of the current generation.
    made: u64,
    heard: u64,
    /// Generations that were cut and have not been said to be silent.
    cut: Vec<Generation>,
    generation: Generation,
    asked: Vec<CallId>,
    link: bool,
    draining: bool,
    closed: bool,
    turns: u64,
    left: Left,
    wrong: Option<Violation>,
}

const BLOCK: Duration = Duration::from_millis(10);

impl Node {
    /// The state at the end of a path.
    pub(super) fn walk(path: &[u8], sabotage: Option<Sabotage>) -> Option<Node> {
        let (world, path) = path.split_first()?;
        let mut node = Node::new(*world, sabotage);
        for byte in path {
            node.take(Action::of(*byte)?);
        }
        Some(node)
    }

    fn new(world: u8, sabotage: Option<Sabotage>) -> Node {
        let rules = rules(world);
        let machine = Machine::new(rules.policy.clone()).with_tools(rules.tools.iter().cloned());
        let mut node = Node {
            world,
            machine,
            sabotage,
            now: Stamp::ZERO,
            checks: Checks::new(rules),
            log: Vec::new(),
            waiting: Vec::new(),
            jobs: BTreeMap::new(),
            made: 0,
            heard: 0,
            cut: Vec::new(),
            generation: Generation::UNSET,
            asked: Vec::new(),
            link: true,
            draining: false,
            closed: false,
            turns: 0,
            left: Left { says: 2, steers: 2, cancels: 2, voices: 2, calls: 2, texts: 3, links: 1, deaths: 1, fails: 2 },
            wrong: None,
        };
        node.begin();
        node
    }

    fn begin(&mut self) {
        if let Some(law) = self.sabotage {
            self.machine.sabotage(law);
        }
        self.step(Input::Begin { session: SessionId::from_bits(7), wall_unix_ms: 0 });
        self.step(Input::Link(LinkFact::Up));
    }

    pub(super) fn violation(&self) -> Option<Violation> {
        self.wrong.clone().or_else(|| self.checks.violations().first().cloned())
    }

    /// One number for everything that the future depends on.
    pub(super) fn fingerprint(&self) -> u64 {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(16_384);
        let Node { machine, checks, waiting, jobs, made, heard, cut, asked, link, draining, closed, turns, left, .. } = self;
        // Writing into a string never fails.
        let _never = machine.fingerprint(&mut text);
        let _never = checks.fingerprint(&mut text);
        let _never =
            write!(text, "{}{}{jobs:?}{made} {heard}{cut:?}{asked:?}{link}{draining}{closed}{turns}", self.world, waiting.len());
        let _never = write!(text, "{left:?}");
        for record in waiting {
            let _never = write!(text, "{:?}", record.event);
        }
        let last = self.log.last().into_iter().chain(waiting.last()).map(|record| record.seq.0).max().unwrap_or(0);
        relative(&text, self.now.as_micros(), last)
    }

    // Events.

    fn first(&self, wanted: impl Fn(&Job) -> bool) -> Option<TaskId> {
        self.jobs.iter().find(|(_, job)| wanted(job)).map(|(task, _)| *task)
    }

    /// The newest task of a kind that goes on.
    fn at_work(&self, work: Work) -> Option<TaskId> {
        self.jobs.iter().rev().find(|(_, job)| job.work == work && !job.told && !job.aborted).map(|(task, _)| *task)
    }

    fn tool(&self, wanted: impl Fn(&Job) -> bool) -> Option<TaskId> {
        self.first(|job| job.work == Work::Tool && !job.aborted && wanted(job))
    }

    /// The task that an event is about, if it is about one; `None` when it cannot happen.
    fn subject(&self, action: Action) -> Option<TaskId> {
        match action {
            Action::Words | Action::NoWords => self.at_work(Work::Listen),
            Action::Text | Action::CallTool | Action::CallSame | Action::ModelEnds | Action::ModelFails => {
                self.at_work(Work::Generate)
            }
            Action::Sound => {
                self.at_work(Work::Synthesize).filter(|task| self.jobs.get(task).is_some_and(|job| job.fed && !job.done))
            }
            Action::VoiceEnds => self.at_work(Work::Synthesize).filter(|task| self.jobs.get(task).is_some_and(|job| job.done)),
            Action::AsksCommit => self.tool(|job| !job.asked && !job.told && !job.done),
            Action::Result => self.tool(|job| !job.done && (job.leave || !job.asked)),
            Action::ToolEnds => self.tool(|job| job.done),
            Action::ToolFails => self.tool(|job| !job.done && (job.leave || !job.asked)),
            Action::ToolUnknown => self.tool(|job| job.leave && !job.done),
            Action::Stops => self.first(|job| job.told && !job.aborted && !job.done),
            Action::AbortedEnds => self.first(|job| job.aborted),
            Action::Happened | Action::DidNotHappen | Action::CannotTell => {
                self.first(|job| job.work == Work::Errand && !job.done && !job.aborted)
            }
            Action::ProbeEnds => self.first(|job| job.work == Work::Errand && !job.aborted),
            _ => None,
        }
    }

    /// What can happen here.
    pub(super) fn enabled(&self) -> Vec<Action> {
        let menu = world(self.world).menu;
        menu.iter().copied().filter(|action| self.can(*action)).collect()
    }

    fn can(&self, action: Action) -> bool {
        let left = &self.left;
        match action {
            Action::Say => left.says > 0,
            Action::Steer => left.steers > 0 && self.turns > 0,
            Action::SteerPast => left.steers > 0 && self.turns > 1,
            Action::Cancel => left.cancels > 0 && self.turns > 0,
            Action::CancelAgain => left.cancels == 1 && self.turns > 0,
            Action::CancelPast => left.cancels > 0 && self.turns > 1,
            Action::VoiceHolds => left.voices > 0,
            Action::VoiceTakesFloor => left.voices > 0,
            Action::Text => left.texts > 0 && self.subject(action).is_some(),
            Action::CallTool | Action::CallSame => left.calls > 0 && self.subject(action).is_some(),
            Action::ModelFails | Action::ToolFails | Action::ToolUnknown => left.fails > 0 && self.subject(action).is_some(),
            Action::Heard => self.heard < self.made,
            Action::FallsSilent => !self.cut.is_empty(),
            Action::Kept => !self.waiting.is_empty(),
            Action::Allow | Action::Refuse => !self.asked.is_empty(),
            Action::LinkLost => self.link && left.links > 0,
            Action::LinkBack => !self.link,
            Action::TimerDue => self.machine.deadline().is_some(),
            Action::Drain => !self.draining && self.turns > 0,
            Action::Close => !self.closed && self.turns > 0,
            Action::Dies => left.deaths > 0 && self.turns > 0 && !self.log.is_empty() && !self.closed,
            _ => self.subject(action).is_some(),
        }
    }

    pub(super) fn take(&mut self, action: Action) {
        self.happens(action);
        if world(self.world).keeps_at_once {
            while !self.waiting.is_empty() {
                self.keep();
            }
        }
    }

    fn happens(&mut self, action: Action) {
        let subject = self.subject(action);
        match action {
            Action::Say => {
                self.left.says -= 1;
                let request = RequestId::from_bits(10 + u128::from(self.left.says));
                self.step(Input::Command(Command::Say { request, text: "tell me".into() }));
            }
            Action::Steer | Action::SteerPast => {
                self.left.steers -= 1;
                let request = RequestId::from_bits(20 + u128::from(self.left.steers));
                let expected = TurnId(if action == Action::Steer { self.turns } else { 1 });
                let mode = if self.left.steers == 0 { SubmitMode::Steer { expected } } else { SubmitMode::StartOrSteer };
                self.step(Input::Command(Command::Submit { request, text: "and".into(), mode }));
            }
            Action::Cancel | Action::CancelPast => {
                self.left.cancels -= 1;
                let turn = TurnId(if action == Action::Cancel { self.turns } else { 1 });
                self.cancel(30 + u128::from(self.left.cancels), turn);
            }
            Action::CancelAgain => {
                // Under the id of the first, and of another turn by now, perhaps.
                self.left.cancels -= 1;
                self.cancel(31, TurnId(self.turns));
            }
            Action::VoiceHolds => {
                self.left.voices -= 1;
                self.voice(5);
            }
            Action::VoiceTakesFloor => {
                self.left.voices -= 1;
                self.voice(17);
            }
            Action::Words => self.listened(subject, "what now"),
            Action::NoWords => self.listened(subject, ""),
            Action::Text => {
                self.left.texts -= 1;
                self.report(subject, Report::Text { delta: "so it was. ".into() });
            }
            Action::CallTool | Action::CallSame => {
                self.left.calls -= 1;
                let key = (action == Action::CallSame).then(|| "k".to_owned());
                let arguments = format!("{{\"n\":{}}}", if action == Action::CallSame { 9 } else { self.left.calls });
                self.report(subject, Report::Call { tool: "act".into(), arguments: arguments.into(), key });
            }
            Action::ModelEnds | Action::VoiceEnds | Action::ToolEnds | Action::ProbeEnds => self.end(subject, Ended::Finished),
            Action::ModelFails | Action::ToolFails => {
                self.left.fails -= 1;
                self.end(subject, Ended::Failed(Retry::Never));
            }
            Action::ToolUnknown => {
                self.left.fails -= 1;
                self.end(subject, Ended::Unknown);
            }
            Action::Stops => self.end(subject, Ended::Stopped),
            Action::AbortedEnds => self.end(subject, Ended::Aborted),
            Action::Sound => {
                if let Some(job) = subject.and_then(|task| self.jobs.get_mut(&task)) {
                    job.done = true;
                }
                self.report(subject, Report::Audio { samples: 4_800, chars: 11, timing: Timing::Exact });
            }
            Action::Heard => {
                self.heard = self.made;
                let (generation, position, at) = (self.generation, SamplePos(self.heard), self.now);
                self.step(Input::Playout(Playout::Progress { generation, position, at }));
            }
            Action::FallsSilent => {
                let (generation, at) = (self.cut.remove(0), self.now);
                let last = SamplePos(0);
                let quiet = Playout::Quiet {
                    generation,
                    by: QuietBy::Cut,
                    last,
                    seen_at: at,
                    handed_at: at,
                    sounded_at: at,
                    measured: true,
                };
                self.step(Input::Playout(quiet));
            }
            Action::Kept => self.keep(),
            Action::AsksCommit => {
                if let Some(job) = subject.and_then(|task| self.jobs.get_mut(&task)) {
                    job.asked = true;
                }
                self.report(subject, Report::CommitAsked);
            }
            Action::Result => {
                if let Some(job) = subject.and_then(|task| self.jobs.get_mut(&task)) {
                    job.done = true;
                }
                self.report(subject, Report::Result { text: "done".into() });
            }
            Action::Happened | Action::DidNotHappen | Action::CannotTell => {
                if let Some(job) = subject.and_then(|task| self.jobs.get_mut(&task)) {
                    job.done = true;
                }
                let outside = match action {
                    Action::Happened => Outside::Happened,
                    Action::DidNotHappen => Outside::DidNotHappen,
                    _ => Outside::Unknown,
                };
                self.report(subject, Report::Probed { outside });
            }
            Action::Allow | Action::Refuse => {
                let call = self.asked.remove(0);
                let (request, granted) = (RequestId::from_bits(40 + u128::from(call.0)), action == Action::Allow);
                self.step(Input::Command(Command::Approve { request, call, granted }));
            }
            Action::LinkLost => {
                self.left.links -= 1;
                self.link = false;
                self.step(Input::Link(LinkFact::Lost));
            }
            Action::LinkBack => {
                self.link = true;
                self.step(Input::Link(LinkFact::Up));
            }
            Action::TimerDue => {
                if let Some((due, _)) = self.machine.deadline() {
                    self.now = self.now.max(due);
                }
                self.step(Input::Tick);
            }
            Action::Drain => {
                self.draining = true;
                self.step(Input::Command(Command::Drain { request: RequestId::from_bits(50) }));
            }
            Action::Close => {
                self.closed = true;
                let request = RequestId::from_bits(51);
                self.step(Input::Command(Command::Close { request, cause: CancelCause::Shutdown }));
            }
            Action::Dies => self.die(),
        }
    }

    fn cancel(&mut self, request: u128, turn: TurnId) {
        let (request, cause, initiator) = (RequestId::from_bits(request), CancelCause::User, Initiator::Client);
        self.step(Input::Command(Command::Cancel { request, turn, cause, initiator, deadline: None }));
    }

    fn voice(&mut self, blocks: u32) {
        let since = self.now;
        for _ in 0..blocks {
            // Whatever is due before the block comes first, as a driver sees to it.
            let at = self.now + BLOCK;
            while let Some((due, _)) = self.machine.deadline().filter(|(due, _)| *due <= at) {
                self.now = self.now.max(due);
                self.step(Input::Tick);
            }
            self.now = at;
            self.step(Input::Voice(Voice::sure(at, since)));
        }
    }

    fn listened(&mut self, task: Option<TaskId>, words: &str) {
        self.report(task, Report::Transcript { text: words.into(), is_final: true });
        self.end(task, Ended::Finished);
    }

    fn report(&mut self, task: Option<TaskId>, report: Report) {
        if let Some(task) = task {
            self.step(Input::Task { task, report });
        }
    }

    fn end(&mut self, task: Option<TaskId>, ended: Ended) {
        if let Some(task) = task {
            self.jobs.remove(&task);
            self.step(Input::Task { task, report: Report::Ended(ended) });
        }
    }

    fn keep(&mut self) {
        for record in std::mem::take(&mut self.waiting) {
            self.checks.see(Fact::Record(&record));
            self.log.push(record);
        }
        if let Some(seq) = self.log.last().map(|record| record.seq) {
            self.step(Input::Appended { seq });
        }
    }

    fn die(&mut self) {
        self.left.deaths -= 1;
        self.waiting.clear();
        self.jobs.clear();
        self.asked.clear();
        self.cut.clear();
        (self.made, self.heard) = (0, 0);
        self.link = true;
        self.draining = false;
        self.checks.see(Fact::Restarted);
        let rules = rules(self.world);
        let records = self.log.iter().map(|record| (**record).clone());
        self.machine = Machine::restore(rules.policy, records, self.now).with_tools(rules.tools);
        self.begin();
    }

    fn wrong(&mut self, checker: &'static str, words: &str) {
        self.wrong.get_or_insert(Violation { checker, seq: None, words: words.to_owned() });
    }

    fn step(&mut self, input: Input) {
        let effects: Vec<Effect> = self.machine.step(self.now, input).collect();
        if !effects.is_sorted_by_key(Effect::rank) {
            self.wrong("order_of_effects", "effects are not in the order of their rank");
        }
        if self.machine.counters().terminal_conflicts > 0 {
            self.wrong("no_conflict", "a conflict of terminals was counted");
        }
        for effect in effects {
            self.carry(effect);
        }
        let snapshot_needed = self.machine.deadline().is_none();
        if snapshot_needed && !self.machine.is_over() {
            let snapshot = self.machine.snapshot();
            if snapshot.turn.is_some() || !snapshot.stopping.is_empty() {
                self.wrong("every_wait_has_a_timer", "a turn waits and nothing will ever be done about it");
            }
        }
    }

    fn carry(&mut self, effect: Effect) {
        match effect {
            Effect::RaiseFence { generation } => {
                if self.made > 0 {
                    self.cut.push(self.generation);
                }
                (self.made, self.heard) = (0, 0);
                self.generation = generation;
                self.checks.see(Fact::Raised { generation, at: self.now });
            }
            Effect::StopTask { task, .. } => {
                if let Some(job) = self.jobs.get_mut(&task) {
                    job.told = true;
                }
            }
            Effect::AbortTask { task } => {
                if let Some(job) = self.jobs.get_mut(&task) {
                    job.aborted = true;
                }
            }
            Effect::Append { record } => {
                if let (Event::TurnAccepted { .. }, Some(turn)) = (&record.event, record.turn) {
                    self.turns = self.turns.max(turn.0);
                }
                if let Event::ApprovalAsked { call } = &record.event {
                    self.asked.push(*call);
                }
                self.waiting.push(record);
            }
            Effect::Deliver { record } => self.checks.see(Fact::Shown(&record)),
            Effect::StartTask { task, generation, spec, .. } => {
                let work = match spec {
                    TaskSpec::Listen { .. } => Work::Listen,
                    TaskSpec::Retrieve { .. } | TaskSpec::Generate { .. } => Work::Generate,
                    TaskSpec::Synthesize { .. } => Work::Synthesize,
                    TaskSpec::Tool { .. } => Work::Tool,
                    TaskSpec::Reconcile { .. } | TaskSpec::Compensate { .. } => Work::Errand,
                };
                let new =
                    Job { work, generation, told: false, aborted: false, asked: false, leave: false, done: false, fed: false };
                self.jobs.insert(task, new);
            }
            Effect::Feed { task, .. } => {
                if let Some(job) = self.jobs.get_mut(&task) {
                    job.fed = true;
                    job.done = false;
                }
            }
            Effect::Play { task } => {
                if self.jobs.get(&task).is_some_and(|job| job.generation == self.generation) {
                    self.made += 4_800;
                    let (generation, at) = (self.generation, self.now);
                    self.checks.see(Fact::Heard { generation, samples: 480, at });
                }
            }
            Effect::LetCommit { task, call } => {
                if let Some(job) = self.jobs.get_mut(&task) {
                    job.leave = true;
                }
                self.checks.see(Fact::Leave { call, at: self.now });
            }
            Effect::RefuseCommit { task } => {
                if let Some(job) = self.jobs.get_mut(&task) {
                    // It ends by itself, as one that was told to.
                    job.told = true;
                }
            }
            Effect::Hold { .. }
            | Effect::Resume { .. }
            | Effect::Clear { .. }
            | Effect::Answer { .. }
            | Effect::EndFeed { .. }
            | Effect::Finish => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_one_state() {
        let path = [0, Action::Say as u8, Action::Text as u8, Action::ModelEnds as u8, Action::Kept as u8];
        let walk = || Node::walk(&path, None).expect("a path").fingerprint();
        assert_eq!(walk(), walk());
    }
}
