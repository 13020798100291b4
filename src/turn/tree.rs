//! `tree`: the work in progress. Each branch is starting, running, stopping or stopped, and none is forgotten.
//!
//! A stopping branch has until the end of its grace; then it is aborted, recorded as such, and its owner goes on without it.

use std::time::Duration;

use crate::event::{Stage, TaskOutcome};
use crate::id::TaskId;
use crate::time::Stamp;
use crate::turn::timer::earlier;
use crate::turn::{Effect, StopReason};

/// The branches of one turn, or the listening tasks of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    branches: Vec<Branch>,
}

/// One piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) task: TaskId,
    pub(super) stage: Stage,
    pub(super) state: State,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its start was ordered; it has not reported yet.
    Starting,
    /// It has reported.
    Running,
    /// It has done its work and is expected to end by itself before `until`.
    Leaving { until: Stamp },
    /// It was told to stop before `until`.
    Stopping { until: Stamp },
    /// It is over.
    Stopped(TaskOutcome),
}

impl Branch {
    /// Whether it neither ended nor was told to.
    pub(super) fn at_work(&self) -> bool {
        match self.state {
            State::Starting | State::Running => true,
            State::Leaving { .. } | State::Stopping { .. } | State::Stopped(_) => false,
        }
    }

    /// Whether it is over.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped(_))
    }

    /// The signal to a branch that was just told to stop.
    pub(super) fn signal(&self, why: StopReason) -> Option<Effect> {
        match self.state {
            State::Stopping { until } => Some(Effect::StopTask { task: self.task, why, grace_until: until }),
            State::Starting | State::Running | State::Leaving { .. } | State::Stopped(_) => None,
        }
    }

    /// Whether it has neither ended nor been told to stop.
    fn untold(&self) -> bool {
        self.at_work() || matches!(self.state, State::Leaving { .. })
    }
}

impl Tree {
    /// A new branch.
    pub(super) fn start(&mut self, task: TaskId, stage: Stage) {
        self.branches.push(Branch { task, stage, state: State::Starting });
    }

    /// The branch of this task.
    pub(super) fn get(&self, task: TaskId) -> Option<Branch> {
        self.branches.iter().find(|b| b.task == task).copied()
    }

    /// The branch of this stage that was started last.
    pub(super) fn of(&self, stage: Stage) -> Option<Branch> {
        self.branches.iter().rev().find(|b| b.stage == stage).copied()
    }

    /// It reported: it runs.
    pub(super) fn seen(&mut self, task: TaskId) {
        for b in &mut self.branches {
            if b.task == task && b.state == State::Starting {
                b.state = State::Running;
            }
        }
    }

    /// Tells `task` to be over by `now + grace`. `None` when it is over or was told already.
    pub(super) fn stop(&mut self, task: TaskId, why: StopReason, now: Stamp, grace: Duration) -> Option<Effect> {
        let branch = self.branches.iter_mut().find(|b| b.task == task && b.untold())?;
        branch.state = State::Stopping { until: now + grace };
        branch.signal(why)
    }

    /// `task` has done its work: it ends by itself within `patience`, or is aborted.
    pub(super) fn expect_end(&mut self, task: TaskId, now: Stamp, patience: Duration) {
        for branch in self.branches.iter_mut().filter(|b| b.task == task && b.at_work()) {
            branch.state = State::Leaving { until: now + patience };
        }
    }

    /// Tells every branch that does not know it yet to be over by the end of its own grace, and returns them in the order they were
    /// started.
    pub(super) fn stop_all(&mut self, now: Stamp, grace: impl Fn(&Branch) -> Duration) -> Vec<Branch> {
        let mut told = Vec::new();
        for branch in self.branches.iter_mut().filter(|b| b.untold()) {
            branch.state = State::Stopping { until: now + grace(branch) };
            told.push(*branch);
        }
        told
    }

    /// Takes a branch out, as it is.
    pub(super) fn take(&mut self, task: TaskId) -> Option<Branch> {
        let place = self.branches.iter().position(|b| b.task == task)?;
        Some(self.branches.remove(place))
    }

    /// Takes a branch of another tree in, as it is.
    pub(super) fn adopt(&mut self, branch: Branch) {
        self.branches.push(branch);
    }

    /// All branches, in the order they were started or adopted.
    pub(super) fn all(&self) -> impl Iterator<Item = &Branch> {
        self.branches.iter()
    }

    /// It is over. `None` when it is unknown or was over already.
    pub(super) fn ended(&mut self, task: TaskId, outcome: TaskOutcome) -> Option<Branch> {
        let branch = self.branches.iter_mut().find(|b| b.task == task)?;
        match branch.state {
            State::Starting | State::Running | State::Leaving { .. } | State::Stopping { .. } => {
                branch.state = State::Stopped(outcome);
                Some(*branch)
            }
            State::Stopped(_) => None,
        }
    }

    /// When the first grace is over.
    pub(super) fn due(&self) -> Option<Stamp> {
        self.branches.iter().fold(None, |due, b| match b.state {
            State::Leaving { until } | State::Stopping { until } => earlier(due, Some(until)),
            State::Starting | State::Running | State::Stopped(_) => due,
        })
    }

    /// Marks every branch whose grace is over at `now` as aborted and returns them.
    pub(super) fn abort_due(&mut self, now: Stamp) -> Vec<Branch> {
        let mut aborted = Vec::new();
        for branch in &mut self.branches {
            if let State::Leaving { until } | State::Stopping { until } = branch.state
                && until <= now
            {
                branch.state = State::Stopped(TaskOutcome::Aborted);
                aborted.push(*branch);
            }
        }
        aborted
    }

    /// Whether nothing is at work or stopping.
    pub(super) fn all_stopped(&self) -> bool {
        self.branches.iter().all(|b| matches!(b.state, State::Stopped(_)))
    }

    /// Forgets the branches that are over, for a tree that lives as long as the session.
    pub(super) fn prune(&mut self) {
        self.branches.retain(|b| !matches!(b.state, State::Stopped(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_millis(100);

    fn two() -> Tree {
        let mut tree = Tree::default();
        tree.start(TaskId(1), Stage::Generate);
        tree.start(TaskId(2), Stage::Synthesize);
        tree
    }

    #[test]
    fn a_branch_is_told_once_and_ends_once() {
        let mut tree = two();
        tree.seen(TaskId(1));
        assert_eq!(tree.get(TaskId(1)).map(|b| b.state), Some(State::Running));
        let told: Vec<_> = tree.stop_all(Stamp::ZERO, |_| GRACE).iter().map(|b| b.task).collect();
        assert_eq!(told, [TaskId(1), TaskId(2)]);
        assert!(tree.stop_all(Stamp::ZERO, |_| GRACE).is_empty());
        assert!(tree.stop(TaskId(1), StopReason::NotNeeded, Stamp::ZERO, GRACE).is_none());
        assert!(!tree.all_stopped());
        assert!(tree.ended(TaskId(1), TaskOutcome::Stopped).is_some());
        assert!(tree.ended(TaskId(1), TaskOutcome::Finished).is_none(), "one end");
        assert!(tree.ended(TaskId(9), TaskOutcome::Finished).is_none(), "unknown");
        assert!(tree.ended(TaskId(2), TaskOutcome::Finished).is_some());
        assert!(tree.all_stopped());
    }

    #[test]
    fn what_leaves_by_itself_can_still_be_told() {
        let mut tree = two();
        tree.expect_end(TaskId(1), Stamp::ZERO, Duration::from_secs(4));
        assert_eq!((tree.due(), tree.all_stopped()), (Some(Stamp::from_millis(4_000)), false));
        assert!(!tree.get(TaskId(1)).expect("it is there").at_work());
        assert_eq!(tree.stop_all(Stamp::ZERO, |_| GRACE).len(), 2);
        assert_eq!(tree.due(), Some(Stamp::from_millis(100)));
    }

    #[test]
    fn what_does_not_stop_in_its_grace_is_aborted() {
        let mut tree = two();
        tree.stop(TaskId(2), StopReason::NotNeeded, Stamp::from_millis(50), GRACE);
        tree.stop(TaskId(1), StopReason::NotNeeded, Stamp::from_millis(60), GRACE);
        assert_eq!(tree.due(), Some(Stamp::from_millis(150)));
        assert!(tree.abort_due(Stamp::from_millis(149)).is_empty());
        let aborted: Vec<_> = tree.abort_due(Stamp::from_millis(150)).iter().map(|b| b.task).collect();
        assert_eq!(aborted, [TaskId(2)]);
        assert_eq!(tree.due(), Some(Stamp::from_millis(160)));
        tree.abort_due(Stamp::from_millis(160));
        assert!(tree.all_stopped());
        assert_eq!(tree.of(Stage::Generate).map(|b| b.state), Some(State::Stopped(TaskOutcome::Aborted)));
        tree.prune();
        assert_eq!(tree.get(TaskId(1)), None);
    }
}
