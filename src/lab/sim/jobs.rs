//! Tasks that misbehave: what each kind does, step by step, and what a stop, an abort and leave to commit do to its plan.

use std::collections::VecDeque;
use std::time::Duration;

use super::rng::Rng;
use super::shape::{Shape, Span, TOOL_NAMES};
use crate::event::{Cancellability, Checkpoint, Pii, Retry, Timing};
use crate::id::{CallId, Generation};
use crate::turn::{Ended, Report, TaskSpec};

/// One step of a task's plan.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// It reports.
    Report(Report),
    /// It asks the outside, and reports what it says.
    Probe,
    /// It undoes what was done.
    Undo,
    /// It asks the outside to take back what was sent, and ends by what it says.
    TakeBack,
    /// It reports what became of what it sent.
    Confirm,
    /// It is over.
    End(Ended),
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Listen,
    Retrieve,
    Generate,
    Synthesize,
    Tool { call: CallId, key: String, class: Cancellability, leave: bool },
    Reconcile { call: CallId },
    Compensate { call: CallId },
}

/// A task of the world.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) generation: Generation,
    pub(super) plan: VecDeque<(Duration, Act)>,
    /// Names the pending wake-up; an older one is void.
    pub(super) token: u64,
    pub(super) armed: bool,
    pub(super) told: bool,
    pub(super) over: bool,
    pub(super) deaf: bool,
    /// Results wait because something is full.
    pub(super) stalled: bool,
}

/// A latency out of a span, in the world's own grain.
pub(super) fn latency(rng: &mut Rng, shape: &Shape, span: Span) -> Duration {
    let us = rng.range(span.0 * 1_000, span.1 * 1_000);
    Duration::from_micros(us - us % shape.quantum_us)
}

const WORDS: [&str; 8] = ["so ", "there ", "was once ", "a small ", "house. ", "And then ", "nothing, ", "well "];

impl Job {
    /// A task as it starts, with its plan.
    pub(super) fn new(rng: &mut Rng, shape: &Shape, generation: Generation, spec: &TaskSpec) -> Job {
        let kind = match spec {
            TaskSpec::Listen { .. } => Kind::Listen,
            TaskSpec::Retrieve { .. } => Kind::Retrieve,
            TaskSpec::Generate { .. } => Kind::Generate,
            TaskSpec::Synthesize { .. } => Kind::Synthesize,
            TaskSpec::Tool { call, tool, key, .. } => {
                let class = shape.tools.iter().find(|t| t.name == *tool).map_or(Cancellability::ReadOnly, |t| t.class);
                Kind::Tool { call: *call, key: key.0.clone(), class, leave: false }
            }
            TaskSpec::Reconcile { call, .. } => Kind::Reconcile { call: *call },
            TaskSpec::Compensate { call, .. } => Kind::Compensate { call: *call },
        };
        let deaf = rng.chance(shape.faults.deaf);
        let plan = VecDeque::new();
        let mut job = Job { kind, generation, plan, token: 0, armed: false, told: false, over: false, deaf, stalled: false };
        match spec {
            TaskSpec::Listen { .. } => {
                if rng.chance(600) {
                    let text = Pii::from("well I");
                    job.then(latency(rng, shape, shape.listening), Report::Transcript { text, is_final: false });
                }
            }
            TaskSpec::Retrieve { .. } => {
                if rng.chance(800) {
                    job.then(latency(rng, shape, shape.retrieval), Report::Found { text: "a fact".into() });
                }
                job.end(latency(rng, shape, shape.retrieval), Ended::Finished);
            }
            TaskSpec::Generate { request, .. } => job.think(rng, shape, *request),
            TaskSpec::Synthesize { .. } => {}
            TaskSpec::Tool { tool, .. } => job.act(rng, shape, tool),
            TaskSpec::Reconcile { .. } => {
                job.plan.push_back((latency(rng, shape, shape.tool_step), Act::Probe));
                job.end(latency(rng, shape, (0, 5)), Ended::Finished);
            }
            TaskSpec::Compensate { .. } => {
                job.plan.push_back((latency(rng, shape, shape.tool_step), Act::Undo));
                let ended = if rng.chance(shape.faults.blind) { Ended::Failed(Retry::Never) } else { Ended::Finished };
                job.end(latency(rng, shape, (0, 5)), ended);
                if !matches!(ended, Ended::Finished) {
                    job.plan.pop_front();
                }
            }
        }
        job.spoil(rng, shape);
        job
    }

    fn then(&mut self, after: Duration, report: Report) {
        self.plan.push_back((after, Act::Report(report)));
    }

    fn end(&mut self, after: Duration, ended: Ended) {
        self.plan.push_back((after, Act::End(ended)));
    }

    /// The model's answer, piece by piece, and what it asks for.
    fn think(&mut self, rng: &mut Rng, shape: &Shape, request: u32) {
        let mut after = latency(rng, shape, shape.first_token);
        let flood = rng.chance(shape.faults.floods);
        let calls = if rng.chance(shape.faults.calls / u64::from(request.max(1))) || (flood && shape.faults.calls > 0) {
            rng.range(1, 3)
        } else {
            0
        };
        let pieces = if calls > 0 && rng.chance(500) { 0 } else { rng.range(shape.pieces.0, shape.pieces.1) };
        for _ in 0..pieces {
            let word = rng.pick(&WORDS).copied().unwrap_or("so ");
            self.then(after, Report::Text { delta: word.into() });
            after = if flood { Duration::ZERO } else { latency(rng, shape, shape.piece) };
        }
        for _ in 0..calls {
            let tool = rng.pick(&TOOL_NAMES).copied().unwrap_or("look");
            let n = rng.below(3);
            // A tool that makes keys makes the same for the same arguments.
            let key = shape.keyed.contains(&tool).then(|| format!("{tool}-{n}"));
            let arguments = Pii::new(format!("{{\"n\":{n}}}"));
            self.then(after, Report::Call { tool: tool.to_owned(), arguments, key });
            after = latency(rng, shape, shape.piece);
        }
        self.end(after, Ended::Finished);
    }

    /// A tool's work until it is done or asks for leave.
    fn act(&mut self, rng: &mut Rng, shape: &Shape, tool: &str) {
        let Kind::Tool { class, .. } = self.kind else { return };
        let declared = shape.tools.iter().find(|t| t.name == tool).map(|t| t.checkpoints.clone()).unwrap_or_default();
        for checkpoint in declared {
            self.then(latency(rng, shape, shape.tool_step), Report::Checkpoint { checkpoint });
        }
        if rng.chance(shape.faults.rogue) {
            self.then(Duration::ZERO, Report::Checkpoint { checkpoint: Checkpoint::BeforePublish });
        }
        let commits = class != Cancellability::ReadOnly && rng.chance(850);
        if commits || rng.chance(shape.faults.rogue) {
            self.then(latency(rng, shape, shape.tool_step), Report::CommitAsked);
            return;
        }
        self.then(latency(rng, shape, shape.tool_step), Report::Result { text: "done".into() });
        self.end(latency(rng, shape, (0, 20)), Ended::Finished);
    }

    /// The faults that may befall any task.
    fn spoil(&mut self, rng: &mut Rng, shape: &Shape) {
        let at = rng.below(self.plan.len() as u64 + 1) as usize;
        if rng.chance(shape.faults.fails) {
            let retry = *rng.pick(&[Retry::Never, Retry::AskAgain, Retry::Now, Retry::Later]).unwrap_or(&Retry::Now);
            let ended =
                *rng.pick(&[Ended::Failed(retry), Ended::Failed(retry), Ended::Stopped, Ended::Aborted]).unwrap_or(&Ended::Stopped);
            self.plan.truncate(at);
            self.end(latency(rng, shape, (0, 200)), ended);
        } else if rng.chance(shape.faults.hangs) {
            self.plan.truncate(at);
        }
        if rng.chance(shape.faults.doubles)
            && let Some(act) = self.plan.get(at).cloned().filter(|(_, act)| matches!(act, Act::Report(_)))
        {
            self.plan.insert(at, act);
        }
    }

    /// A synthesizer is given text.
    pub(super) fn feed(&mut self, rng: &mut Rng, shape: &Shape, text: &str) {
        if self.kind != Kind::Synthesize || self.over || rng.chance(shape.faults.mute) {
            return;
        }
        let chars = text.chars().count();
        let blocks = (chars as u64 * rng.range(shape.per_char.0, shape.per_char.1)).div_ceil(10);
        let timing = if rng.chance(500) { Timing::Exact } else { Timing::Estimated };
        let samples = blocks * shape.slice as u64;
        // In one stretch, or two.
        let first = if rng.chance(500) { samples } else { samples / 2 };
        for (samples, chars) in [(first, chars / 2), (samples - first, chars - chars / 2)] {
            if samples > 0 {
                let at = self.plan.iter().position(|(_, act)| matches!(act, Act::End(_))).unwrap_or(self.plan.len());
                let act = Act::Report(Report::Audio { samples, chars, timing });
                self.plan.insert(at, (latency(rng, shape, shape.synthesis), act));
            }
        }
    }

    /// Its text, or its utterance, is complete.
    pub(super) fn end_feed(&mut self, rng: &mut Rng, shape: &Shape, words: &str) {
        if self.over || self.told && !self.deaf || rng.chance(shape.faults.hangs) {
            return;
        }
        if self.kind == Kind::Listen {
            self.then(latency(rng, shape, shape.listening), Report::Transcript { text: words.into(), is_final: true });
            self.end(latency(rng, shape, (0, 10)), Ended::Finished);
        } else {
            self.end(latency(rng, shape, (0, 10)), Ended::Finished);
        }
    }

    /// It is told to stop.
    pub(super) fn stop(&mut self, rng: &mut Rng, shape: &Shape) {
        self.told = true;
        if self.deaf || self.over {
            return;
        }
        match &self.kind {
            Kind::Tool { class: Cancellability::RemoteCancel, leave: true, .. } => {
                self.replace(latency(rng, shape, shape.stops), Act::TakeBack);
            }
            // It has leave and cannot take it back: it goes on to its answer.
            Kind::Tool { leave: true, .. } => {}
            _ => {
                let half_done = rng.chance(200).then(|| self.plan.pop_front()).flatten();
                self.replace(latency(rng, shape, shape.stops), Act::End(Ended::Stopped));
                if let Some((_, act @ Act::Report(_))) = half_done {
                    self.plan.push_front((Duration::ZERO, act));
                }
            }
        }
    }

    /// It is aborted: it says nothing more but that it is over.
    pub(super) fn abort(&mut self, rng: &mut Rng, shape: &Shape) {
        let span = if rng.chance(shape.faults.stubborn) { (100, 5_000) } else { (0, 5) };
        self.replace(latency(rng, shape, span), Act::End(Ended::Aborted));
    }

    /// It may commit: from here on it waits for the outside.
    pub(super) fn leave(&mut self, rng: &mut Rng, shape: &Shape, arrival: Duration) {
        if let Kind::Tool { leave, .. } = &mut self.kind {
            *leave = true;
        }
        self.plan.clear();
        self.token += 1;
        self.armed = false;
        if rng.chance(shape.faults.hangs) {
            return;
        }
        if rng.chance(shape.faults.unknown) {
            self.end(latency(rng, shape, shape.arrival), Ended::Unknown);
        } else {
            self.plan.push_back((arrival + latency(rng, shape, (0, 40)), Act::Confirm));
        }
    }

    /// It may not commit.
    pub(super) fn refused(&mut self, rng: &mut Rng, shape: &Shape) {
        if !self.over {
            self.replace(latency(rng, shape, (0, 30)), Act::End(Ended::Stopped));
        }
    }

    pub(super) fn replace(&mut self, after: Duration, act: Act) {
        self.plan.clear();
        self.plan.push_back((after, act));
        self.token += 1;
        self.armed = false;
    }
}
