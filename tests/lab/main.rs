//! The lab proves the engine; this proves the lab: it passes, it repeats itself to the byte, and it fails when a law is broken.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use antiphon::Metrics;
use antiphon::event::Record;
use antiphon::id::SessionId;
use antiphon::lab::{Lab, LabError, Report, faults, names, scenarios, try_sockets};
use antiphon::turn::Sabotage;
use serde_json::Value;

/// The eight that the mission names; the others come on top.
const EIGHT: [&str; 8] =
    ["normal", "cancel_tree", "barge_in", "deadline", "cooperative_tool", "irreversible_tool", "resume", "idempotent_stop"];

fn antiphon(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_antiphon")).args(args).output().expect("the program starts")
}

fn code(args: &[&str]) -> i32 {
    antiphon(args).status.code().expect("it exits by itself")
}

fn all_scenarios() -> Report {
    scenarios(&Lab::default(), |_| {}).expect("the embedded scenarios can be read")
}

fn all_faults() -> Report {
    faults(&Lab::default(), |_| {}).expect("the embedded faults can be read")
}

#[test]
fn all_scenarios_pass_and_repeat_themselves_to_the_byte() {
    let report = all_scenarios();
    assert!(report.pass, "{}", report.table(0));
    let told: usize =
        EIGHT.iter().map(|name| report.groups.iter().find(|group| group.name == *name).expect("it is there").assertions()).sum();
    assert!(told >= 24, "{told} assertions over the eight");
    assert!(report.groups.len() > EIGHT.len(), "and there are more");
    let again = all_scenarios();
    assert!(report.events_jsonl() == again.events_jsonl(), "two runs write the same events");
    assert!(report == again, "and everything else");
}

#[test]
fn all_ten_faults_pass_and_repeat_themselves_to_the_byte() {
    let report = all_faults();
    assert!(report.pass, "{}", report.table(0));
    assert_eq!(report.groups.len(), 10);
    assert!(report.groups.iter().all(|group| !group.scenarios.is_empty()));
    assert!(report.table(0).contains("audible tail"), "the tail over each buffer is shown");
    assert!(report.events_jsonl() == all_faults().events_jsonl(), "two runs write the same events");
}

#[test]
fn the_files_tell_the_same_numbers_when_they_are_counted_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8");
    let out = antiphon(&["lab", "--agent", "--out", path]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let line = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(line.lines().count(), 1, "a program reads one line");
    let told: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(told["pass"], true);
    assert_eq!(told["network_refused"], cfg!(target_os = "linux"));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("it was written");
    let report: Value = serde_json::from_str(&read("report.json")).expect("JSON");
    assert_eq!(report["pass"], true);
    let mut logs: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for line in read("events.jsonl").lines() {
        let mut event: Value = serde_json::from_str(line).expect("JSON");
        let scenario = event["scenario"].as_str().expect("its scenario").to_owned();
        logs.entry(scenario).or_default().push(serde_json::from_value(event["record"].take()).expect("a record"));
    }
    let metrics: Value = serde_json::from_str(&read("metrics.json")).expect("JSON");
    for (scenario, records) in &logs {
        assert!(Path::new(&dir.path().join(format!("{scenario}.log"))).exists());
        let counted = Metrics::from_records(records.iter().map(|record| (SessionId::from_bits(1), record)));
        let told = &metrics[scenario]["live"];
        assert_eq!(told, &metrics[scenario]["counted_from_events"], "{scenario}");
        assert_eq!(told["turns"], counted.turns(), "{scenario}");
        assert_eq!(told["late_events_dropped"], counted.late_events().dropped, "{scenario}");
        let us = |time: Option<std::time::Duration>| time.map_or(Value::Null, |t| (t.as_micros() as u64).into());
        assert_eq!(told["turn_e2e_max_us"], us(counted.e2e().max()), "{scenario}");
        assert_eq!(told["cancel_propagation_max_us"], us(counted.cancel_propagation().max()), "{scenario}");
        assert_eq!(told["audible_tail_to_silence_max_us"], us(counted.audible_tail().max()), "{scenario}");
        assert_eq!(told["calls_unknown"], counted.calls().by_ending().unknown, "{scenario}");
        assert_eq!(told["stop_confirmed_count"], counted.calls().confirmed().count(), "{scenario}");
    }
    assert_eq!(logs.len(), names().0.len());
}

#[test]
fn a_broken_law_fails_scenarios_and_faults() {
    for sabotage in ["fence", "terminal-guard", "idempotence"] {
        assert_eq!(code(&["lab", "--agent", "--sabotage", sabotage]), 1, "scenarios with a broken {sabotage}");
        assert_eq!(code(&["lab", "faults", "--agent", "--sabotage", sabotage]), 1, "faults with a broken {sabotage}");
    }
}

#[test]
fn a_failed_assertion_says_what_where_and_why() {
    let lab = Lab { only: Some("idempotent_stop".into()), sabotage: Some(Sabotage::Idempotence), ..Lab::default() };
    let report = scenarios(&lab, |_| {}).expect("it can be read");
    assert!(!report.pass);
    let failure = report.scenarios().flat_map(|scenario| scenario.failures()).next().expect("one failed");
    assert!(failure.expected.is_some() && failure.came.is_some());
    let table = report.table(0);
    assert!(table.contains("expected") && table.contains("came") && table.contains("FAIL"), "{table}");
}

#[test]
fn the_exit_codes_and_the_names() {
    assert_eq!(code(&["lab"]), 0);
    assert_eq!(code(&["lab", "faults"]), 0);
    let out = antiphon(&["lab", "--only", "nonsense"]);
    assert_eq!(out.status.code(), Some(2));
    let says = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(says.contains("there is no `nonsense`") && says.contains("cancel_tree"), "{says}");
    assert!(matches!(faults(&Lab { only: Some("x".into()), ..Lab::default() }, |_| {}), Err(LabError::NoSuchName { .. })));
    assert_eq!(code(&["lab", "--only", "resume"]), 0);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("mine.ron");
    std::fs::write(&file, "(name: \"mine\", story: \"\", acts: [], until: 0,\n loud: true, expect: [])").expect("written");
    let out = antiphon(&["lab", "--file", file.to_str().expect("UTF-8")]);
    let says = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2));
    assert!(says.contains("mine.ron:2:") && says.contains("loud"), "an unknown field is an error that says where: {says}");
}

#[test]
#[cfg(target_os = "linux")]
fn no_socket_to_the_network_can_be_opened_while_the_lab_runs() {
    // Outside they can (an address family that the machine lacks proves nothing, so it is asked for here first).
    let here: Vec<&str> = try_sockets().into_iter().filter(|(_, open)| *open).map(|(what, _)| what).collect();
    assert!(here.contains(&"tcp4") && here.contains(&"udp4"), "{here:?}");
    let out = antiphon(&["lab", "try-sockets"]);
    let told: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&told["sealed"], &told["opened"]), (&Value::Bool(true), &serde_json::json!([])));
    assert_eq!(out.status.code(), Some(0));
}
