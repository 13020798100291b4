//! `lab::report`: what a run of the lab says, to people, to programs and to files.
//!
//! Layer 4. Files hold no wall time and no path, so that two runs write the same bytes.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// One assertion and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assertion {
    /// What it says.
    pub that: String,
    /// Whether it held.
    pub held: bool,
    /// What was expected, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What came, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub came: Option<String>,
    /// Lines of the scenario's log to look at, when it failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<usize>,
}

impl Assertion {
    pub(super) fn held(that: &str) -> Self {
        Assertion { that: that.to_owned(), held: true, expected: None, came: None, lines: Vec::new() }
    }

    pub(super) fn failed(that: &str, expected: impl Into<String>, came: impl Into<String>, lines: Vec<usize>) -> Self {
        Assertion { that: that.to_owned(), held: false, expected: Some(expected.into()), came: Some(came.into()), lines }
    }

    pub(super) fn that<T: PartialEq + std::fmt::Debug>(that: &str, expected: &T, came: &T) -> Self {
        if expected == came {
            Self::held(that)
        } else {
            Self::failed(that, format!("{expected:?}"), format!("{came:?}"), Vec::new())
        }
    }
}

/// What became of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScenarioReport {
    /// Its name.
    pub name: String,
    /// What it tells.
    pub story: String,
    /// Its assertions, in order.
    pub assertions: Vec<Assertion>,
    /// A measure worth seeing, such as the audible tail; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// How long it took on the virtual clock, milliseconds.
    pub virtual_ms: u64,
    /// What was measured, by name; see `metrics.json`.
    #[serde(skip)]
    pub metrics: Map<String, Value>,
    /// The log, one line a record.
    #[serde(skip)]
    pub log: Vec<String>,
    /// The records, one JSON object a line.
    #[serde(skip)]
    pub events: Vec<String>,
}

impl ScenarioReport {
    /// Whether every assertion held.
    pub fn passed(&self) -> bool {
        !self.assertions.is_empty() && self.assertions.iter().all(|assertion| assertion.held)
    }

    /// Those that did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Assertion> {
        self.assertions.iter().filter(|assertion| !assertion.held)
    }
}

/// What became of a group: the scenarios, or the cases of one fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub what: String,
    /// Its worlds, in order.
    pub scenarios: Vec<ScenarioReport>,
}

impl Group {
    /// Whether all of it passed.
    pub fn passed(&self) -> bool {
        !self.scenarios.is_empty() && self.scenarios.iter().all(ScenarioReport::passed)
    }

    /// How many assertions it holds.
    pub fn assertions(&self) -> usize {
        self.scenarios.iter().map(|scenario| scenario.assertions.len()).sum()
    }
}

/// What became of a run of the lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `scenarios` or `faults`.
    pub of: String,
    /// Whether everything passed.
    pub pass: bool,
    /// Whether the process could not open a socket to the network while it ran. `None`: nobody asked for that.
    pub network_refused: Option<bool>,
    /// Groups, in order.
    pub groups: Vec<Group>,
}

impl Report {
    pub(super) fn new(of: &str, network_refused: Option<bool>, groups: Vec<Group>) -> Self {
        let pass = !groups.is_empty() && groups.iter().all(Group::passed);
        Report { of: of.to_owned(), pass, network_refused, groups }
    }

    /// All worlds, in order.
    pub fn scenarios(&self) -> impl Iterator<Item = &ScenarioReport> {
        self.groups.iter().flat_map(|group| &group.scenarios)
    }

    /// How many assertions were made.
    pub fn assertions(&self) -> usize {
        self.groups.iter().map(Group::assertions).sum()
    }

    /// The records of all scenarios, one JSON object a line.
    pub fn events_jsonl(&self) -> String {
        let mut text = String::new();
        for event in self.scenarios().flat_map(|scenario| &scenario.events) {
            text.push_str(event);
            text.push('\n');
        }
        text
    }

    /// The metrics of all scenarios.
    pub fn metrics_json(&self) -> String {
        let all: Map<String, Value> =
            self.scenarios().map(|scenario| (scenario.name.clone(), Value::Object(scenario.metrics.clone()))).collect();
        pretty(&Value::Object(all))
    }

    /// The report itself.
    pub fn report_json(&self) -> String {
        pretty(&serde_json::to_value(self).expect("a report serialises"))
    }

    /// The report for a program: one line of JSON.
    pub fn agent_json(&self) -> String {
        let failures: Vec<Value> = self
            .scenarios()
            .flat_map(|scenario| {
                scenario.failures().map(|a| json!({"scenario": scenario.name, "that": a.that, "expected": a.expected, "came": a.came, "lines": a.lines}))
            })
            .collect();
        let groups: Vec<Value> = self
            .groups
            .iter()
            .map(|group| json!({"name": group.name, "worlds": group.scenarios.len(), "assertions": group.assertions(), "pass": group.passed()}))
            .collect();
        json!({
            "of": self.of,
            "pass": self.pass,
            "passed": self.groups.iter().filter(|group| group.passed()).count(),
            "groups": groups,
            "assertions": self.assertions(),
            "network_refused": self.network_refused,
            "failures": failures,
        })
        .to_string()
    }

    /// The table for people. `wall_ms` is shown and stands in no file.
    pub fn table(&self, wall_ms: u128) -> String {
        let mut text = String::new();
        let width = self.groups.iter().map(|group| group.name.len()).chain([8]).max().unwrap_or(8);
        let head = if self.of == "faults" { "fault" } else { "scenario" };
        let _ = writeln!(text, "{head:<width$}  {:>6}  {:>10}  {:>12}  result", "worlds", "assertions", "virtual time");
        for group in &self.groups {
            let result = if group.passed() { "PASS" } else { "FAIL" };
            let virtual_ms: u64 = group.scenarios.iter().map(|scenario| scenario.virtual_ms).sum();
            let _ = writeln!(
                text,
                "{:<width$}  {:>6}  {:>10}  {:>9} ms  {result}",
                group.name,
                group.scenarios.len(),
                group.assertions(),
                virtual_ms
            );
        }
        for scenario in self.scenarios().filter(|scenario| !scenario.note.is_empty()) {
            let _ = writeln!(text, "{}: {}", scenario.name, scenario.note);
        }
        for scenario in self.scenarios() {
            for failure in scenario.failures() {
                let _ = writeln!(text, "\n{}: {}", scenario.name, failure.that);
                let _ = writeln!(text, "  expected  {}", failure.expected.as_deref().unwrap_or_default());
                let _ = writeln!(text, "  came      {}", failure.came.as_deref().unwrap_or_default());
                for line in &failure.lines {
                    let logged = scenario.log.get(line.saturating_sub(1)).map_or("", String::as_str);
                    let _ = writeln!(text, "  log:{line:<4} {}", logged.trim_start());
                }
            }
        }
        let network = match self.network_refused {
            Some(true) => "no socket could be opened",
            Some(false) => "sockets could not be refused on this system",
            None => "sockets were not refused",
        };
        let passed = self.groups.iter().filter(|group| group.passed()).count();
        let _ = writeln!(
            text,
            "\n{}  {passed} of {} {}, {} assertions; {network}; {wall_ms} ms of real time",
            if self.pass { "PASS" } else { "FAIL" },
            self.groups.len(),
            self.of,
            self.assertions(),
        );
        text
    }

    /// Writes a log per scenario, `events.jsonl`, `metrics.json` and `report.json` into `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        for scenario in self.scenarios() {
            fs::write(dir.join(format!("{}.log", scenario.name)), scenario.log.join("\n") + "\n")?;
        }
        fs::write(dir.join("events.jsonl"), self.events_jsonl())?;
        fs::write(dir.join("metrics.json"), self.metrics_json())?;
        fs::write(dir.join("report.json"), self.report_json())
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("a value serialises") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(held: bool) -> Report {
        let assertion = if held { Assertion::held("it ends") } else { Assertion::failed("it ends", "one end", "two", vec![2]) };
        let scenario = ScenarioReport {
            name: "least".into(),
            story: "Nothing.".into(),
            assertions: vec![assertion],
            note: String::new(),
            virtual_ms: 10,
            metrics: Map::new(),
            log: vec!["first".into(), "  second".into()],
            events: vec!["{}".into()],
        };
        let group = Group { name: "least".into(), what: "Nothing.".into(), scenarios: vec![scenario] };
        Report::new("scenarios", Some(true), vec![group])
    }

    #[test]
    fn a_failed_assertion_says_what_was_expected_what_came_and_where() {
        let table = report(false).table(7);
        for says in ["FAIL", "least: it ends", "expected  one end", "came      two", "log:2    second"] {
            assert!(table.contains(says), "{says} is not in\n{table}");
        }
        assert!(report(true).table(7).contains("PASS  1 of 1 scenarios, 1 assertions"));
    }

    #[test]
    fn a_run_without_assertions_has_not_passed() {
        assert!(!Report::new("scenarios", None, Vec::new()).pass);
        let mut hollow = report(true);
        hollow.groups[0].scenarios[0].assertions.clear();
        assert!(!Report::new("scenarios", None, hollow.groups).pass);
    }

    #[test]
    fn what_a_program_reads_is_one_line() {
        let line = report(false).agent_json();
        assert_eq!(line.lines().count(), 1);
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&read["pass"], &read["failures"][0]["came"]), (&json!(false), &json!("two")));
    }
}
