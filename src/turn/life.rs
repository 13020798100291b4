//! `life`: how far a turn is, and its one end. The only writer of a terminal.
//!
//! ```text
//! Accepted ──▶ Running ──▶ Ended(Completed)
//!     │           ├──────▶ CancelRequested ──▶ Ended(Cancelled)
//!     └───────────┴──────▶ Failing ──────────▶ Ended(Failed)
//! ```
//! Each of the three ends is Ended(ReconcileRequired) instead when side effects of the turn are not known, or came after the stop.
//! `CancelRequested` and `Failing` are left when everything has stopped or the grace is over. *Requested* is never *stopped*.

use crate::event::{CancelCause, FailReason, Terminal};
use crate::id::CallId;

/// A turn's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It has its place; its input is not complete yet.
    Accepted,
    /// It is being answered.
    Running,
    /// Somebody asked it to stop, and it is stopping.
    CancelRequested { cause: CancelCause },
    /// It cannot be carried out, and what runs is stopping.
    Failing { reason: FailReason },
    /// It is over.
    Ended(Terminal),
}

/// The state does not allow this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotNow;

impl Life {
    /// Its input is complete: it runs.
    pub(super) fn run(&mut self) -> Result<(), NotNow> {
        match self {
            Life::Accepted => {
                *self = Life::Running;
                Ok(())
            }
            Life::Running | Life::CancelRequested { .. } | Life::Failing { .. } | Life::Ended(_) => Err(NotNow),
        }
    }

    /// It is asked to stop. The second to ask changes nothing.
    pub(super) fn request_cancel(&mut self, cause: CancelCause) -> Result<(), NotNow> {
        self.leave(Life::CancelRequested { cause })
    }

    /// It cannot go on.
    pub(super) fn fail(&mut self, reason: FailReason) -> Result<(), NotNow> {
        self.leave(Life::Failing { reason })
    }

    fn leave(&mut self, to: Life) -> Result<(), NotNow> {
        match self {
            Life::Accepted | Life::Running => {
                *self = to;
                Ok(())
            }
            Life::CancelRequested { .. } | Life::Failing { .. } | Life::Ended(_) => Err(NotNow),
        }
    }

    /// It is over: the terminal that the facts support. `calls` are those that must be reconciled. `Err` when it was over already,
    /// which is a conflict to be counted.
    pub(super) fn end(&mut self, calls: Vec<CallId>) -> Result<Terminal, NotNow> {
        let terminal = match self {
            // Nothing has been answered yet, so there is nothing that could be complete.
            Life::Accepted | Life::Ended(_) => return Err(NotNow),
            Life::Running | Life::CancelRequested { .. } | Life::Failing { .. } if !calls.is_empty() => {
                Terminal::ReconcileRequired { calls }
            }
            Life::Running => Terminal::Completed,
            Life::CancelRequested { cause } => Terminal::Cancelled { cause: *cause },
            Life::Failing { reason } => Terminal::Failed { reason: *reason },
        };
        *self = Life::Ended(terminal.clone());
        Ok(terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Life = Life::CancelRequested { cause: CancelCause::User };
    const LOST: Life = Life::Failing { reason: FailReason::PlayoutStalled };

    /// Every state with what it answers to run, cancel, fail and end.
    #[test]
    fn the_whole_table() {
        let ended = Life::Ended(Terminal::Completed);
        let failed = Terminal::Failed { reason: FailReason::PlayoutStalled };
        let cancelled = Terminal::Cancelled { cause: CancelCause::User };
        let table = [
            (Life::Accepted, true, true, None),
            (Life::Running, false, true, Some(Terminal::Completed)),
            (USER, false, false, Some(cancelled)),
            (LOST, false, false, Some(failed)),
            (ended, false, false, None),
        ];
        for (state, runs, leaves, terminal) in table {
            let mut life = state.clone();
            assert_eq!(life.run().is_ok(), runs, "run from {state:?}");
            assert_eq!(life, if runs { Life::Running } else { state.clone() });
            let mut life = state.clone();
            assert_eq!(life.request_cancel(CancelCause::User).is_ok(), leaves, "cancel from {state:?}");
            assert_eq!(life, if leaves { USER } else { state.clone() });
            let mut life = state.clone();
            assert_eq!(life.fail(FailReason::PlayoutStalled).is_ok(), leaves, "fail from {state:?}");
            assert_eq!(life, if leaves { LOST } else { state.clone() });
            let mut life = state.clone();
            assert_eq!(life.end(vec![]).ok(), terminal, "end from {state:?}");
        }
    }

    #[test]
    fn a_side_effect_that_nobody_knows_of_is_never_dressed_up() {
        let calls = vec![CallId(4)];
        for state in [Life::Running, USER, LOST] {
            assert_eq!(state.clone().end(calls.clone()), Ok(Terminal::ReconcileRequired { calls: calls.clone() }), "{state:?}");
        }
        assert_eq!(Life::Accepted.end(calls), Err(NotNow));
    }

    #[test]
    fn a_second_ending_is_refused_and_changes_nothing() {
        let mut life = Life::Running;
        assert_eq!(life.end(vec![]), Ok(Terminal::Completed));
        assert_eq!(life.end(vec![CallId(1)]), Err(NotNow));
        assert_eq!(life.request_cancel(CancelCause::User), Err(NotNow));
        assert_eq!(life, Life::Ended(Terminal::Completed));
    }
}
