//! `lab::restart`: the manager of the turns dies at every record of a log, and a new one is made of what was kept.
//!
//! Layer 4. The new one is the production machine, restored; the clock and the store are played by hand, because nothing else of the
//! old process is left.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use super::check::{Checks, Fact, Rules};
use super::evidence::log;
use super::report::{Assertion, ScenarioReport};
use super::scenario::Scenario;
use crate::event::{Event, FailReason, Record, Terminal};
use crate::id::{Generation, SessionId, TurnId};
use crate::time::Stamp;
use crate::turn::{Effect, Input, Machine, Sabotage};

/// How long the dead time is.
const DEAD: Duration = Duration::from_millis(500);

/// What the restored machine wrote, by hand.
fn revive(scenario: &Scenario, kept: &[Arc<Record>], sabotage: Option<Sabotage>) -> Vec<Arc<Record>> {
    let now = kept.last().map_or(Stamp::ZERO, |last| last.at) + DEAD;
    let tools = scenario.tools.iter().map(super::cast::ToolPart::declaration);
    let mut machine =
        Machine::restore(scenario.policy.clone(), kept.iter().map(|record| (**record).clone()), now).with_tools(tools);
    if let Some(sabotage) = sabotage {
        machine.sabotage(sabotage);
    }
    let mut written = Vec::new();
    let mut inputs = vec![Input::Begin { session: SessionId::from_bits(7), wall_unix_ms: 0 }, Input::Tick];
    // Every record is kept at once; a few rounds are enough for what follows from that.
    while let Some(input) = (!inputs.is_empty()).then(|| inputs.remove(0)) {
        let effects: Vec<Effect> = machine.step(now, input).collect();
        for effect in effects {
            if let Effect::Append { record } = effect {
                inputs.push(Input::Appended { seq: record.seq });
                written.push(record);
            }
        }
    }
    written
}

/// Kills the manager after each record of `records` and looks at what the next one makes of it.
pub(super) fn everywhere(scenario: &Scenario, records: &[Arc<Record>], sabotage: Option<Sabotage>) -> ScenarioReport {
    let (mut assertions, mut all, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for kept in (1..records.len()).map(|n| &records[..n]) {
        let written = revive(scenario, kept, sabotage);
        let last = kept.last().expect("at least one");
        let that = format!("killed after {} ({})", last.seq, name(&last.event));
        assertions.push(verdict(scenario, &that, kept, &written));
        all.extend(written.iter().cloned());
        events.extend(
            written
                .iter()
                .map(|record| json!({"scenario": scenario.name, "killed_after": last.seq, "record": **record}).to_string()),
        );
    }
    ScenarioReport {
        name: scenario.name.clone(),
        story: scenario.story.clone(),
        assertions,
        note: String::new(),
        virtual_ms: records.last().map_or(0, |last| last.at.as_micros() / 1_000),
        metrics: Map::new(),
        log: log(Stamp::ZERO, &all, &[]).1,
        events,
    }
}

fn name(event: &Event) -> String {
    serde_json::to_value(event).ok().and_then(|v| v["type"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// One terminal for each turn that was accepted, no second one for those that had theirs, an unknown payment said to be unknown, the
/// generation above all that were, seq without a hole, and every law.
fn verdict(scenario: &Scenario, that: &str, kept: &[Arc<Record>], written: &[Arc<Record>]) -> Assertion {
    let whole = || kept.iter().chain(written);
    let highest = kept.iter().map(|record| record.generation).max().unwrap_or(Generation::UNSET);
    for (i, record) in whole().enumerate() {
        if record.seq.0 != i as u64 + 1 {
            return Assertion::failed(that, format!("seq {}", i + 1), record.seq.to_string(), Vec::new());
        }
    }
    if let Some(low) = written.iter().find(|record| record.generation <= highest) {
        return Assertion::failed(that, format!("a generation above {highest}"), low.generation.to_string(), Vec::new());
    }
    let accepted = kept.iter().filter(|record| matches!(record.event, Event::TurnAccepted { .. })).filter_map(|record| record.turn);
    for turn in accepted {
        let ends: Vec<&Terminal> = whole()
            .filter(|record| record.turn == Some(turn))
            .filter_map(|record| match &record.event {
                Event::TurnEnded { terminal, .. } => Some(terminal),
                _ => None,
            })
            .collect();
        let had = kept.iter().any(|record| record.turn == Some(turn) && matches!(record.event, Event::TurnEnded { .. }));
        let fits = match ends.as_slice() {
            [_] if had => true,
            [Terminal::ReconcileRequired { .. }] => in_doubt(kept, turn),
            [Terminal::Failed { reason: FailReason::Restarted }] => !in_doubt(kept, turn),
            _ => false,
        };
        if !fits {
            let came: Vec<String> = ends.iter().map(ToString::to_string).collect();
            let expected = if in_doubt(kept, turn) { "RECONCILE_REQUIRED" } else { "FAILED(restarted)" };
            return Assertion::failed(that, format!("{turn} ends once, {expected}"), came.join(", "), Vec::new());
        }
    }
    let tools = scenario.tools.iter().map(super::cast::ToolPart::declaration).collect();
    let mut checks = Checks::new(Rules::new(scenario.policy.clone(), tools));
    kept.iter().for_each(|record| checks.see(Fact::Record(record)));
    checks.see(Fact::Restarted);
    written.iter().for_each(|record| checks.see(Fact::Record(record)));
    match checks.violations() {
        [] => Assertion::held(that),
        found => {
            let came: Vec<String> = found.iter().map(ToString::to_string).collect();
            Assertion::failed(that, "every law holds", came.join("; "), Vec::new())
        }
    }
}

/// Whether a call of this turn had been meant to commit and had not ended: nobody knows.
fn in_doubt(kept: &[Arc<Record>], turn: TurnId) -> bool {
    kept.iter().any(|record| match record.event {
        Event::CommitIntent { call, .. } if record.turn == Some(turn) => {
            !kept.iter().any(|later| matches!(later.event, Event::CallEnded { call: ended, .. } if ended == call))
        }
        _ => false,
    })
}
