//! Checkers: the laws of a session, held against what it wrote and did, outside the code that did it.
//!
//! * A [`Checks`] is fed [`Fact`]s in their order: the records of the log, and what the doors and the store did. It knows nothing of the
//!   machine but its vocabulary.
//! * `book` remembers what was said so far, `laws` holds one function per law; [`CHECKERS`] is the list, with names for reports.
//! * A fact that breaks a law is a [`Violation`], never a panic: the caller decides what a broken law means.
//! * Proved by the tests below: each checker passes a good log and names the violation in a bad one.

mod book;
mod laws;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::event::{Declaration, Record};
use crate::id::{CallId, Generation, Seq};
use crate::time::Stamp;
use crate::turn::{OnDisconnect, Policy};

use book::Book;
pub use laws::CHECKERS;

/// What the laws are measured by: the thresholds that the session ran with.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The session's policy.
    pub policy: Policy,
    /// The tools it had.
    pub tools: Vec<Declaration>,
    /// How much later than its time something may be done, because whoever drives stood still. Default zero.
    pub slack: Duration,
}

impl Rules {
    /// The rules of a session with this policy and these tools.
    pub fn new(policy: Policy, tools: Vec<Declaration>) -> Self {
        Rules { policy, tools, slack: Duration::ZERO }
    }

    fn tool(&self, name: &str) -> Option<&Declaration> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The longest that anything of a stopping turn is waited for.
    fn longest_grace(&self) -> Duration {
        let tools = self.tools.iter().filter_map(|tool| tool.grace).max().unwrap_or_default();
        self.policy.budget.grace.max(tools)
    }

    /// How long a lost link is waited for before it may stop a turn; `None` when it never may.
    fn patience(&self) -> Option<Duration> {
        match self.policy.on_disconnect {
            OnDisconnect::GoOn => None,
            OnDisconnect::Hold(patience) => Some(patience),
            OnDisconnect::CancelNow => Some(Duration::ZERO),
        }
    }
}

/// Something that happened, in its order.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// A record, in the order of the log. Fed when the store has it, so that what a crash loses is never fed.
    Record(&'a Record),
    /// A call was given leave to commit.
    Leave {
        /// Which.
        call: CallId,
        /// When.
        at: Stamp,
    },
    /// The fence was raised.
    Raised {
        /// To which generation.
        generation: Generation,
        /// When.
        at: Stamp,
    },
    /// Sound left the last door.
    Heard {
        /// Made under which generation.
        generation: Generation,
        /// How many samples at the house rate.
        samples: u64,
        /// When the last of them was due.
        at: Stamp,
    },
    /// A record was shown to the client.
    Shown(&'a Record),
    /// A side effect happened outside, under this key.
    Effect {
        /// Under which key.
        key: &'a str,
        /// When.
        at: Stamp,
    },
    /// What had happened outside was undone.
    Undone {
        /// Of which call.
        call: CallId,
    },
    /// Everything is over, and this is so outside, for a call that had leave.
    Truth {
        /// Which call.
        call: CallId,
        /// Whether its effect stands.
        happened: bool,
    },
    /// The process died and began anew; what ran is gone.
    Restarted,
    /// The session is over: this many tasks are still alive.
    Over {
        /// How many.
        tasks_alive: usize,
    },
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The name of the checker.
    pub checker: &'static str,
    /// The record at which it showed, when it was one.
    pub seq: Option<Seq>,
    /// What happened.
    pub words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seq {
            Some(seq) => write!(f, "{} at {seq}: {}", self.checker, self.words),
            None => write!(f, "{}: {}", self.checker, self.words),
        }
    }
}

/// One law.
pub struct Checker {
    /// Its name, as reports show it.
    pub name: &'static str,
    /// What it says, in one line.
    pub law: &'static str,
    check: fn(&Book, &Rules, &Fact<'_>, &mut Found),
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("name", &self.name).field("law", &self.law).finish_non_exhaustive()
    }
}

/// Violations of one checker at one fact.
#[derive(Clone, Debug, Default)]
struct Found {
    checker: &'static str,
    seq: Option<Seq>,
    all: Vec<Violation>,
}

impl Found {
    fn say(&mut self, words: impl Into<String>) {
        self.all.push(Violation { checker: self.checker, seq: self.seq, words: words.into() });
    }
}

/// All checkers over one session.
#[derive(Clone, Debug)]
pub struct Checks {
    rules: Rules,
    book: Book,
    found: Found,
}

impl Checks {
    /// Checkers that have seen nothing yet.
    pub fn new(rules: Rules) -> Self {
        Checks { rules, book: Book::default(), found: Found::default() }
    }

    /// Takes the next fact.
    pub fn see(&mut self, fact: Fact<'_>) {
        self.found.seq = if let Fact::Record(record) = fact { Some(record.seq) } else { None };
        for checker in CHECKERS {
            self.found.checker = checker.name;
            (checker.check)(&self.book, &self.rules, &fact, &mut self.found);
        }
        self.book.note(&fact);
    }

    /// What the next verdicts depend on, as text, for a search that must know whether it has been there before. Left out is what only
    /// some words of a violation depend on.
    pub fn fingerprint(&self, to: &mut impl fmt::Write) -> fmt::Result {
        self.book.fingerprint(to)
    }

    /// What was found so far, in the order in which it showed.
    pub fn violations(&self) -> &[Violation] {
        &self.found.all
    }
}

/// Checks a whole log. `over` tells that the session has ended, so that nothing may be left open.
pub fn log<'a>(records: impl IntoIterator<Item = &'a Record>, rules: Rules, over: bool) -> Vec<Violation> {
    let mut checks = Checks::new(rules);
    for record in records {
        checks.see(Fact::Record(record));
    }
    if over {
        checks.see(Fact::Over { tasks_alive: 0 });
    }
    checks.found.all
}
