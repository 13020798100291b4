//! `lab::run`: plays scenarios, each in a runtime of its own on paused time, and judges them.
//!
//! Layer 4.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::check::{Checks, Fact, Rules};
use super::evidence::{Evidence, log, numbers, recount};
use super::fault;
use super::report::{Assertion, Group, Report, ScenarioReport};
use super::scenario::{Scenario, ScenarioError};
use super::world::{Left, World};
use crate::event::{Event, Record};
use crate::observe::Metrics;
use crate::time::{BEAT, Stamp};
use crate::turn::Sabotage;

/// The stories, in the order in which they are told.
const STORIES: &[(&str, &str)] = &[
    ("normal.ron", include_str!("../../assets/scenarios/normal.ron")),
    ("cancel_tree.ron", include_str!("../../assets/scenarios/cancel_tree.ron")),
    ("barge_in.ron", include_str!("../../assets/scenarios/barge_in.ron")),
    ("deadline.ron", include_str!("../../assets/scenarios/deadline.ron")),
    ("cooperative_tool.ron", include_str!("../../assets/scenarios/cooperative_tool.ron")),
    ("irreversible_tool.ron", include_str!("../../assets/scenarios/irreversible_tool.ron")),
    ("resume.ron", include_str!("../../assets/scenarios/resume.ron")),
    ("idempotent_stop.ron", include_str!("../../assets/scenarios/idempotent_stop.ron")),
    ("barge_in_by_voice.ron", include_str!("../../assets/scenarios/barge_in_by_voice.ron")),
    ("steer.ron", include_str!("../../assets/scenarios/steer.ron")),
    ("steer_refused.ron", include_str!("../../assets/scenarios/steer_refused.ron")),
    ("approval.ron", include_str!("../../assets/scenarios/approval.ron")),
    ("late_result.ron", include_str!("../../assets/scenarios/late_result.ron")),
    ("everything_full.ron", include_str!("../../assets/scenarios/everything_full.ron")),
    ("handover.ron", include_str!("../../assets/scenarios/handover.ron")),
];

/// How the lab is run.
#[derive(Clone, Debug, Default)]
pub struct Lab {
    /// Only the scenario or fault of this name.
    pub only: Option<String>,
    /// This scenario file instead of the stories.
    pub file: Option<std::path::PathBuf>,
    /// Whether this process was sealed; see [`super::seal`]. For the report.
    pub network_refused: Option<bool>,
    /// Breaks a law of the machine on purpose, to see that the lab notices.
    pub sabotage: Option<Sabotage>,
}

/// Why the lab was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// There is none of this name.
    #[error("there is no `{name}`; there are: {}", known.join(", "))]
    NoSuchName {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The scenario file is not there.
    #[error("{file}: {why}")]
    NoFile {
        /// Its name.
        file: String,
        /// What the file system says.
        why: String,
    },
    /// A scenario cannot be read. Of those that are embedded this is our bug.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// The names of all scenarios and of all faults.
pub fn names() -> (Vec<String>, Vec<String>) {
    let stories = STORIES.iter().map(|(file, _)| file.trim_end_matches(".ron").to_owned()).collect();
    (stories, fault::FAMILIES.iter().map(|family| family.name.to_owned()).collect())
}

fn pick<T>(all: Vec<T>, only: Option<&str>, name: impl Fn(&T) -> &str) -> Result<Vec<T>, LabError> {
    let Some(only) = only else { return Ok(all) };
    let known: Vec<String> = all.iter().map(|one| name(one).to_owned()).collect();
    let picked: Vec<T> = all.into_iter().filter(|one| name(one) == only).collect();
    if picked.is_empty() { Err(LabError::NoSuchName { name: only.to_owned(), known }) } else { Ok(picked) }
}

/// Plays the stories. `progress` is told each name before it is played.
///
/// # Errors
/// [`LabError`].
pub fn scenarios(lab: &Lab, mut progress: impl FnMut(&str)) -> Result<Report, LabError> {
    let all: Vec<Scenario> = match &lab.file {
        Some(path) => {
            let file = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|e| LabError::NoFile { file: file.clone(), why: e.to_string() })?;
            vec![Scenario::read(&file, &text)?]
        }
        None => STORIES.iter().map(|(file, text)| Scenario::read(file, text)).collect::<Result<_, ScenarioError>>()?,
    };
    let mut groups = Vec::new();
    for scenario in pick(all, lab.only.as_deref(), |scenario| &scenario.name)? {
        progress(&scenario.name);
        let report = play(&scenario, lab.sabotage).report;
        groups.push(Group { name: scenario.name, what: scenario.story, scenarios: vec![report] });
    }
    Ok(Report::new("scenarios", lab.network_refused, groups))
}

/// Injects the faults. `progress` is told each name before it is played.
///
/// # Errors
/// [`LabError`].
pub fn faults(lab: &Lab, mut progress: impl FnMut(&str)) -> Result<Report, LabError> {
    let mut groups = Vec::new();
    for family in pick(fault::FAMILIES.iter().collect(), lab.only.as_deref(), |family| family.name)? {
        progress(family.name);
        let scenarios = family.play(lab.sabotage)?;
        groups.push(Group { name: family.name.to_owned(), what: family.what.to_owned(), scenarios });
    }
    Ok(Report::new("faults", lab.network_refused, groups))
}

/// What a world left, judged.
pub(super) struct Played {
    pub(super) report: ScenarioReport,
    pub(super) records: Vec<std::sync::Arc<Record>>,
}

/// Plays one scenario and judges it.
pub(super) fn play(scenario: &Scenario, sabotage: Option<Sabotage>) -> Played {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("the system gives a runtime");
    // A world that panics is a failed assertion of its scenario, not the end of the lab.
    let left = catch_unwind(AssertUnwindSafe(|| runtime.block_on(World::play(scenario, sabotage))));
    drop(runtime);
    match left {
        Ok(left) => judge(scenario, left),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
            let failed = Assertion::failed("the world is played to its end", "no panic", why, Vec::new());
            let report = ScenarioReport {
                name: scenario.name.clone(),
                story: scenario.story.clone(),
                assertions: vec![failed],
                note: String::new(),
                virtual_ms: 0,
                metrics: Map::new(),
                log: Vec::new(),
                events: Vec::new(),
            };
            Played { report, records: Vec::new() }
        }
    }
}

fn judge(scenario: &Scenario, left: Left) -> Played {
    let zero = Stamp::from_millis(scenario.zero);
    let (lines, log) = log(zero, &left.records, &left.notes);
    let live = left.numbers();
    let recounted = recount(left.session, &left.records);
    let evidence = Evidence {
        zero,
        lines,
        log,
        answers: left.answers,
        sounds: left.sounds,
        outside: left.outside,
        client: left.shown,
        prompts: left.prompts,
        metrics: live.clone(),
        counters: left.counters,
    };
    let mut assertions: Vec<Assertion> = scenario.expect.iter().map(|expectation| expectation.judge(&evidence)).collect();
    assertions.push(whole(&left.records));
    assertions.push(quiet(scenario, &evidence));
    let alike = numbers(&recounted) == live && recounted == left.metrics;
    assertions.push(if alike {
        Assertion::held("metrics counted from the log equal the live ones")
    } else {
        let show = |numbers: Map<String, Value>| Value::Object(numbers).to_string();
        Assertion::failed(
            "metrics counted from the log equal the live ones",
            show(live.clone()),
            show(numbers(&recounted)),
            Vec::new(),
        )
    });
    assertions.push(Assertion::that("nothing is left running", &0, &left.tasks_alive));
    let outdoors = Outdoors { leaves: &left.leaves, effects: &left.effects, tasks_alive: left.tasks_alive };
    assertions.push(laws(scenario, &left.records, &outdoors, &evidence));
    let events = left.records.iter().map(|record| {
        let at = record.at.as_micros() as i64 - zero.as_micros() as i64;
        json!({"scenario": scenario.name, "story_ms": at as f64 / 1_000.0, "record": **record}).to_string()
    });
    let report = ScenarioReport {
        name: scenario.name.clone(),
        story: scenario.story.clone(),
        assertions,
        note: tail(&left.metrics),
        virtual_ms: left.over.as_micros() / 1_000,
        metrics: Map::from_iter([
            ("live".to_owned(), Value::Object(live)),
            ("counted_from_events".to_owned(), Value::Object(numbers(&recounted))),
        ]),
        events: events.collect(),
        log: evidence.log,
    };
    Played { report, records: left.records }
}

/// The audible tail, when there was one.
fn tail(metrics: &Metrics) -> String {
    match metrics.audible_tail().max() {
        Some(tail) => format!("audible tail {} ms", tail.as_micros() as f64 / 1_000.0),
        None => String::new(),
    }
}

/// Whether the log is whole.
fn whole(records: &[std::sync::Arc<Record>]) -> Assertion {
    const THAT: &str = "the log is whole: from the session's beginning to its end, without a hole";
    let hole = records.iter().enumerate().find(|(i, record)| record.seq.0 != *i as u64 + 1);
    let ended = records.last().is_some_and(|record| record.event == Event::SessionEnded);
    match hole {
        None if ended => Assertion::held(THAT),
        None => Assertion::failed(THAT, "session_ended last", format!("{} records without it", records.len()), Vec::new()),
        Some((i, record)) => Assertion::failed(THAT, format!("seq {}", i + 1), record.seq.to_string(), vec![i + 1]),
    }
}

/// Whether the person's end was silent soon after each raised generation: a beat of the pump, the way there, a beat there.
fn quiet(scenario: &Scenario, evidence: &Evidence) -> Assertion {
    const THAT: &str = "nothing stale sounds later than a beat after it was stopped";
    let buffered = if scenario.far.clears { 0 } else { scenario.far.buffer };
    let way = BEAT + BEAT + Duration::from_millis(scenario.far.delay + buffered);
    for raised in evidence.lines.iter().filter(|line| matches!(line.record.event, Event::GenerationRaised { .. })) {
        let from = raised.record.at + way;
        if let Some(stale) = evidence.sounds.iter().find(|s| s.at > from && s.generation < raised.record.generation.0) {
            let came = format!("gen {} at {} ms", stale.generation, evidence.ms(stale.at));
            let expected = format!("silence after {} ms", evidence.ms(from));
            return Assertion::failed(THAT, expected, came, vec![raised.number]);
        }
    }
    Assertion::held(THAT)
}

/// What happened outside, beside the log.
struct Outdoors<'a> {
    leaves: &'a [(String, Stamp)],
    effects: &'a [(String, Stamp)],
    tasks_alive: usize,
}

/// Whether every law holds over the log and what happened outside.
fn laws(scenario: &Scenario, records: &[std::sync::Arc<Record>], outdoors: &Outdoors<'_>, evidence: &Evidence) -> Assertion {
    const THAT: &str = "all invariants hold";
    let tools = scenario.tools.iter().map(super::cast::ToolPart::declaration).collect();
    let mut checks = Checks::new(Rules::new(scenario.policy.clone(), tools));
    let call_of = |key: &str| {
        records.iter().find_map(|record| match &record.event {
            Event::CommitIntent { call, key: of } if of.0 == key => Some(*call),
            _ => None,
        })
    };
    // A leave comes before the effect it allows, and both after the records of their moment.
    let mut facts: Vec<(Stamp, Fact<'_>)> = Vec::new();
    for (key, at) in outdoors.leaves {
        facts.extend(call_of(key).map(|call| (*at, Fact::Leave { call, at: *at })));
    }
    facts.extend(outdoors.effects.iter().map(|(key, at)| (*at, Fact::Effect { key, at: *at })));
    facts.sort_by_key(|(at, _)| *at);
    let mut facts = facts.into_iter().peekable();
    for record in records {
        while let Some((_, fact)) = facts.next_if(|(at, _)| *at < record.at) {
            checks.see(fact);
        }
        checks.see(Fact::Record(record));
    }
    facts.for_each(|(_, fact)| checks.see(fact));
    checks.see(Fact::Over { tasks_alive: outdoors.tasks_alive });
    let found = checks.violations();
    if found.is_empty() {
        return Assertion::held(THAT);
    }
    let at = found
        .iter()
        .filter_map(|violation| evidence.lines.iter().find(|line| Some(line.record.seq) == violation.seq).map(|line| line.number));
    let came: Vec<String> = found.iter().map(ToString::to_string).collect();
    Assertion::failed(THAT, "no violation", came.join("; "), at.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_story_bears_the_name_of_its_file_and_makes_assertions() {
        for (file, text) in STORIES {
            let scenario = Scenario::read(file, text).expect("an embedded scenario can be read");
            assert_eq!(format!("{}.ron", scenario.name), *file);
            assert!(!scenario.expect.is_empty(), "{file} asserts nothing");
            let mut names: Vec<&str> = scenario.expect.iter().map(|e| e.that.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), scenario.expect.len(), "{file}: two assertions have one name");
        }
    }
}
