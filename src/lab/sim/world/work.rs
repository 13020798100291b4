//! The work of the world: tasks that run, ask for leave and send, and the outside that it reaches.

use std::time::Duration;

use super::World;
use crate::event::Retry;
use crate::id::{CallId, Generation, TaskId};
use crate::lab::check::Fact;
use crate::lab::sim::jobs::{Act, Job, Kind, latency};
use crate::lab::sim::marks::Mark;
use crate::lab::sim::outside::State;
use crate::lab::sim::queue::Happening;
use crate::lab::sim::rng::Rng;
use crate::lab::sim::shape::Shape;
use crate::turn::{Ended, Input, Machine, Report, TaskSpec};

impl World {
    pub(super) fn start(&mut self, task: TaskId, generation: Generation, spec: &TaskSpec) {
        if let Some(current) = self.machine.as_ref().map(Machine::generation)
            && generation != current
        {
            self.wrong("nothing_stale_starts", format!("{task} starts under {generation}, and {current} is current"));
        }
        let job = Job::new(&mut self.rng, &self.shape, generation, spec);
        if self.jobs.insert(task, job).is_some() {
            self.wrong("tasks_end_once", format!("{task} was started twice"));
        }
        self.arm(task);
    }

    pub(super) fn with_job(&mut self, task: TaskId, change: impl FnOnce(&mut Job, &mut Rng, &Shape)) {
        if let Some(job) = self.jobs.get_mut(&task) {
            change(job, &mut self.rng, &self.shape);
            self.arm(task);
        }
    }

    pub(super) fn arm(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get_mut(&task).filter(|job| !job.armed && !job.over && !job.stalled) else { return };
        if let Some((after, _)) = job.plan.front() {
            job.token += 1;
            job.armed = true;
            let (at, token) = (self.now + *after, job.token);
            self.queue.put(at, Happening::Wake { task, token });
        }
    }

    /// Whether the driver reads no results at the moment.
    pub(super) fn is_full(&self) -> bool {
        self.keeper.waiting.len() > self.shape.room
    }

    pub(super) fn wake(&mut self, task: TaskId, token: u64) {
        let (store_full, ring_full) = (self.is_full(), self.sound.is_full());
        let Some(job) = self.jobs.get_mut(&task).filter(|job| job.token == token && !job.over) else { return };
        job.armed = false;
        let is_audio = matches!(job.plan.front(), Some((_, Act::Report(Report::Audio { .. }))));
        if store_full || (ring_full && is_audio) {
            job.stalled = true;
            self.has_stalled = true;
            if ring_full {
                self.marks.hit(Mark::ring_full);
            }
            return;
        }
        let Some((_, act)) = job.plan.pop_front() else { return };
        let call = match &job.kind {
            Kind::Tool { call, .. } | Kind::Reconcile { call } | Kind::Compensate { call } => *call,
            _ => CallId::default(),
        };
        match act {
            Act::Report(report) => {
                if let Report::Audio { samples, .. } = report {
                    self.offered = Some((task, samples));
                }
                self.step(Input::Task { task, report });
                self.offered = None;
            }
            Act::Probe => {
                let outside =
                    if self.rng.chance(self.shape.faults.blind) { crate::event::Outside::Unknown } else { self.outer.says(call) };
                self.step(Input::Task { task, report: Report::Probed { outside } });
            }
            Act::Undo => {
                if self.outer.undo(call) {
                    self.marks.hit(Mark::undone);
                    self.checks.see(Fact::Undone { call });
                }
            }
            Act::TakeBack => {
                if self.outer.take_back(call) {
                    self.marks.hit(Mark::taken_back);
                    self.end(task, Ended::Stopped);
                } else {
                    self.confirm(task, call);
                }
            }
            Act::Confirm => self.confirm(task, call),
            Act::End(ended) => self.end(task, ended),
        }
        self.arm(task);
    }

    /// A tool says what became of what it sent: the truth.
    pub(super) fn confirm(&mut self, task: TaskId, call: CallId) {
        match self.outer.state(call) {
            Some(State::Happened) => {
                self.step(Input::Task { task, report: Report::Result { text: "done".into() } });
                self.with_job(task, |job, rng, shape| {
                    let after = latency(rng, shape, (0, 20));
                    job.replace(after, Act::End(Ended::Finished));
                });
            }
            Some(State::Underway) => {
                self.with_job(task, |job, _, _| job.replace(Duration::from_millis(50), Act::Confirm));
            }
            Some(State::Never | State::Undone) | None => self.end(task, Ended::Failed(Retry::Later)),
        }
    }

    pub(super) fn end(&mut self, task: TaskId, ended: Ended) {
        let Some(job) = self.jobs.get_mut(&task) else { return };
        job.over = true;
        job.plan.clear();
        self.step(Input::Task { task, report: Report::Ended(ended) });
        if self.rng.chance(self.shape.faults.rogue) {
            let at = self.in_a((0, 500));
            let report = match self.rng.below(3) {
                0 => Report::Ended(Ended::Finished),
                1 => Report::Text { delta: "ghost ".into() },
                _ => Report::Audio { samples: 480, chars: 1, timing: crate::event::Timing::Exact },
            };
            self.queue.put(at, Happening::Fact(Input::Task { task, report }));
        }
        self.jobs.retain(|_, job| !job.over);
    }

    pub(super) fn let_commit(&mut self, task: TaskId, call: CallId) {
        self.marks.hit(Mark::leave);
        self.checks.see(Fact::Leave { call, at: self.now });
        let Some(Job { kind: Kind::Tool { key, .. }, .. }) = self.jobs.get(&task) else {
            self.wrong("intent_before_commit", format!("{call} has leave and its task does not run"));
            return;
        };
        let entry = self.outer.send(call, key.clone());
        let arrival = self.grain(self.shape.arrival);
        if self.rng.chance(self.shape.faults.lost_outside) {
            self.outer.lose(call);
        } else {
            self.queue.put(self.now + arrival, Happening::Arrives { entry });
        }
        self.with_job(task, |job, rng, shape| job.leave(rng, shape, arrival));
    }

    pub(super) fn arrives(&mut self, entry: usize) {
        if let Some(sent) = self.outer.arrives(entry) {
            self.marks.hit(Mark::arrived_outside);
            self.checks.see(Fact::Effect { key: &sent.key, at: self.now });
        }
    }

    /// Whoever waited for room goes on.
    pub(super) fn resume(&mut self) {
        self.has_stalled = false;
        let waiting: Vec<TaskId> = self.jobs.iter().filter(|(_, job)| job.stalled).map(|(task, _)| *task).collect();
        for task in waiting {
            let Some(job) = self.jobs.get_mut(&task) else { continue };
            job.stalled = false;
            job.armed = true;
            job.token += 1;
            let token = job.token;
            self.queue.put(self.now, Happening::Wake { task, token });
        }
    }
}
