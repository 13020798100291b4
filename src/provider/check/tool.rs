//! The contract of a tool as a suite. Layer 2.
//!
//! A tool changes things that only its author can see, so the author brings a look at the outside: how many changes are there now.
//! The suite stops the tool at every point before its commit, refuses it leave, gives it arguments it cannot read, runs it to its end,
//! and asks its probe; nothing may be changed except under leave.

mod call;
mod report;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Terms;
use crate::event::{Cancellability, Declaration, IdempotencyKey, Outside};
use crate::provider::{AnyTool, ProviderError, Tool};
use call::{Disturb, Limits, Seen, afterwards, call, context};

pub use report::{ToolFailure, ToolPart, ToolReport};

/// Runs the suite on a tool, with `arguments` that it can carry out. `changes` counts what is there outside because of the tool:
/// what it has published and, until they are removed, things it has laid aside.
///
/// # Panics
/// With everything that is wrong.
pub async fn tool(tool: impl Tool, arguments: &str, changes: impl Fn() -> u64) {
    examine_tool(tool, arguments, changes, &Terms::default()).await.assert();
}

/// What no tool was made for, and a model may write all the same.
const ODD: [&str; 5] = ["", "not JSON", "[1, 2]", "null", r#"{"\u0000": {"deep": [[[[]]]]}}"#];

/// Runs the suite on a tool and reports; see [`tool()`].
pub async fn examine_tool(tool: impl Tool, arguments: &str, changes: impl Fn() -> u64, terms: &Terms) -> ToolReport {
    let tool = AnyTool::new(tool);
    let info = tool.info();
    let declared = info.declaration;
    let mut report = ToolReport { name: declared.name.clone(), failures: Vec::new() };
    if !info.parameters.is_object() {
        report.failures.push(ToolFailure::Parameters);
    }
    report.failures.extend(keys(&tool, arguments));
    // What it declares of its own time holds as well.
    let limits = Limits {
        whole: declared.cap.map_or(terms.whole, |cap| cap.max(terms.whole)),
        grace: declared.grace.map_or(terms.grace, |grace| grace.max(terms.grace)),
    };
    let mut suite = Suite { tool, arguments, changes, limits, declared, keys: 0, failures: Vec::new() };
    // What must change nothing comes first, so that what the plain run changes hides nothing.
    suite.stops().await;
    suite.odd().await;
    suite.plain().await;
    if suite.declared.class == Cancellability::RemoteCancel {
        suite.takes_back().await;
    }
    report.failures.append(&mut suite.failures);
    report
}

/// The same arguments have the same key, and no arguments are a reason to panic.
fn keys(tool: &AnyTool, arguments: &str) -> Option<ToolFailure> {
    let key = |arguments: &str| catch_unwind(AssertUnwindSafe(|| tool.key(arguments)));
    if ODD.iter().any(|odd| key(odd).is_err()) {
        return Some(ToolFailure::KeyPanics);
    }
    match (key(arguments), key(arguments)) {
        (Ok(one), Ok(two)) => (one != two).then_some(ToolFailure::KeyChanges),
        _ => Some(ToolFailure::KeyPanics),
    }
}

struct Suite<'a, C> {
    tool: AnyTool,
    arguments: &'a str,
    changes: C,
    limits: Limits,
    declared: Declaration,
    /// Keys that were given.
    keys: u32,
    failures: Vec<ToolFailure>,
}

impl<C: Fn() -> u64> Suite<'_, C> {
    /// One that nothing was ever sent under.
    fn fresh_key(&mut self) -> IdempotencyKey {
        self.keys += 1;
        IdempotencyKey(format!("antiphon-check-{}", self.keys))
    }

    fn only_reads(&self) -> bool {
        self.declared.class == Cancellability::ReadOnly
    }

    /// One call, and how many changes it made.
    async fn call(&mut self, arguments: &str, disturb: Disturb) -> (Seen, u64) {
        let key = self.fresh_key();
        self.call_under(key, arguments, disturb).await
    }

    async fn call_under(&self, key: IdempotencyKey, arguments: &str, disturb: Disturb) -> (Seen, u64) {
        let before = (self.changes)();
        let seen = call(&self.tool, arguments, key, disturb, self.limits).await;
        (seen, (self.changes)().abs_diff(before))
    }

    fn changed(&mut self, part: ToolPart, made: u64) {
        if made > 0 {
            self.failures.push(ToolFailure::Changed(part, made));
        }
    }

    /// Stopped or refused before its commit, it leaves nothing and says so.
    async fn stops(&mut self) {
        let mut stops = vec![(ToolPart::StoppedAtOnce, Disturb::StopAtOnce)];
        stops.extend((0..self.declared.checkpoints.len()).map(|n| (ToolPart::StoppedAt(n), Disturb::StopAt(n))));
        if !self.only_reads() {
            stops.extend([(ToolPart::StoppedBeforeLeave, Disturb::StopBeforeLeave), (ToolPart::Refused, Disturb::RefuseLeave)]);
        }
        for (part, disturb) in stops {
            let (seen, made) = self.call(self.arguments, disturb).await;
            let limit = if disturb == Disturb::RefuseLeave { self.limits.whole } else { self.limits.grace };
            seen.ended(part, limit, &mut self.failures);
            match seen.result {
                Some(Err(ProviderError::Stopped)) | None => {}
                // A reader may be done before it sees the stop.
                Some(Ok(_)) if self.only_reads() => {}
                Some(Ok(_)) => self.failures.push(ToolFailure::NotPolite(part, "a result".into())),
                Some(Err(other)) => self.failures.push(ToolFailure::NotPolite(part, other.to_string())),
            }
            self.changed(part, made);
        }
    }

    /// Whatever a model writes, the tool ends and changes nothing without leave. Which error it gives is its own affair.
    async fn odd(&mut self) {
        for arguments in ODD {
            let (seen, made) = self.call(arguments, Disturb::RefuseLeave).await;
            seen.ended(ToolPart::OddArguments, self.limits.whole, &mut self.failures);
            self.changed(ToolPart::OddArguments, made);
        }
    }

    /// With leave, to its end; then what its probe says, and its compensation.
    async fn plain(&mut self) {
        let part = ToolPart::Plain;
        let key = self.fresh_key();
        if self.declared.probes {
            self.probe(&key, ToolPart::ProbeOfNothing, Outside::DidNotHappen).await;
        }
        let (seen, made) = self.call_under(key.clone(), self.arguments, Disturb::Never).await;
        seen.ended(part, self.limits.whole, &mut self.failures);
        let done = matches!(seen.result, Some(Ok(_)));
        if let Some(Err(error)) = &seen.result {
            self.failures.push(ToolFailure::Failed(part, error.to_string()));
        }
        let declared = &self.declared.checkpoints;
        let undeclared = seen.passed.iter().filter(|c| !declared.contains(c)).map(|c| ToolFailure::Undeclared(part, *c));
        let late = seen.late.iter().map(|c| ToolFailure::LateCheckpoint(part, *c));
        let missed = declared.iter().filter(|c| !seen.passed.contains(c) && !seen.late.contains(c));
        let missed = missed.map(|c| ToolFailure::NotPassed(part, *c));
        self.failures.extend(undeclared.chain(late).chain(missed));
        match (self.only_reads(), seen.commits) {
            (true, 0) => self.changed(part, made),
            (true, _) => self.failures.push(ToolFailure::ReaderCommits(part)),
            (false, 0) => self.failures.push(ToolFailure::NeverAsks(part)),
            (false, n) => {
                if n > 1 {
                    self.failures.push(ToolFailure::AsksAgain(part));
                }
                if made == 0 && done {
                    self.failures.push(ToolFailure::NothingChanged(part));
                }
            }
        }
        // What did not end may be half done: there is nothing to compare with.
        if !done || self.only_reads() {
            return;
        }
        if self.declared.probes {
            self.probe(&key, ToolPart::Probe, Outside::Happened).await;
        }
        if self.declared.compensates {
            self.compensate(&key).await;
        }
    }

    /// Stopped when it has leave, it says what is so: taken back, or done.
    async fn takes_back(&mut self) {
        let part = ToolPart::StoppedAfterLeave;
        let (seen, made) = self.call(self.arguments, Disturb::StopAfterLeave).await;
        seen.ended(part, self.limits.whole, &mut self.failures);
        match seen.result {
            Some(Ok(_)) if made == 0 => self.failures.push(ToolFailure::NothingChanged(part)),
            Some(Ok(_)) | Some(Err(ProviderError::Unknown { .. })) | None => {}
            Some(Err(ProviderError::Stopped)) if made == 0 => {}
            Some(Err(ProviderError::Stopped)) => self.failures.push(ToolFailure::NotTakenBack(part, made)),
            Some(Err(other)) => self.failures.push(ToolFailure::NotPolite(part, other.to_string())),
        }
    }

    /// A probe changes nothing, and says what is so or that it does not know.
    async fn probe(&mut self, key: &IdempotencyKey, part: ToolPart, so: Outside) {
        let before = (self.changes)();
        let (tool, key, cx) = (self.tool.clone(), key.clone(), context(self.limits, CancellationToken::new()));
        let limit: Duration = self.limits.whole;
        let said = afterwards(part, limit, async move { tool.probe(key, cx).await }, &mut self.failures).await;
        if let Some(said) = said.filter(|said| *said != so && *said != Outside::Unknown) {
            self.failures.push(ToolFailure::ProbeWrong { part, said });
        }
        let made = (self.changes)().abs_diff(before);
        self.changed(part, made);
    }

    async fn compensate(&mut self, key: &IdempotencyKey) {
        let part = ToolPart::Compensate;
        let (tool, under, cx) = (self.tool.clone(), key.clone(), context(self.limits, CancellationToken::new()));
        let limit = self.limits.whole;
        let undone = afterwards(part, limit, async move { tool.compensate(under, cx).await }, &mut self.failures).await;
        if undone.is_some() && self.declared.probes {
            self.probe(key, part, Outside::DidNotHappen).await;
        }
    }
}

#[cfg(test)]
mod tests;
