//! `lab::evidence`: what came of a scenario, as expectations and people read it.
//!
//! Layer 4. Everything in here is in session time and free of wall time, so that two runs give the same bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::event::{Event, Record};
use crate::id::SessionId;
use crate::observe::Metrics;
use crate::time::Stamp;

/// A record and its place in the log.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Line of the log file, from 1.
    pub(super) number: usize,
    pub(super) record: Arc<Record>,
    /// The event as JSON.
    pub(super) event: Value,
}

/// A block that sounded at the person's end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sound {
    pub(super) at: Stamp,
    pub(super) generation: u64,
}

/// What a tool did outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outside {
    /// Side effects that are there.
    pub(super) effects: usize,
    /// Prepared things that are still there.
    pub(super) staged: usize,
}

/// What the client made of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Its numbers, in the order in which a resume gave them.
    pub(super) resumed: Vec<u64>,
    /// Numbers that it had already.
    pub(super) ignored: Vec<u64>,
    /// The text on its screen.
    pub(super) text: String,
}

/// A remark between the records: something asked, answered, or seen at the person's end.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) at: Stamp,
    pub(super) text: String,
}

/// An answer to a request.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) to: String,
    pub(super) answer: String,
}

/// The words of one answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) said: String,
    pub(super) heard: String,
    pub(super) unheard: String,
}

/// What came of a scenario.
#[derive(Debug)]
pub(super) struct Evidence {
    /// The story's zero in session time.
    pub(super) zero: Stamp,
    pub(super) lines: Vec<Line>,
    /// The log as people read it.
    pub(super) log: Vec<String>,
    pub(super) answers: Vec<Answered>,
    pub(super) sounds: Vec<Sound>,
    pub(super) outside: BTreeMap<String, Outside>,
    pub(super) client: Shown,
    /// What the model was shown, request by request.
    pub(super) prompts: Vec<String>,
    /// Of the live engine.
    pub(super) metrics: Map<String, Value>,
    pub(super) counters: Map<String, Value>,
}

impl Evidence {
    /// Microseconds of the story.
    pub(super) fn micros(&self, at: Stamp) -> i64 {
        at.as_micros() as i64 - self.zero.as_micros() as i64
    }

    /// Milliseconds of the story, as a log shows them.
    pub(super) fn ms(&self, at: Stamp) -> String {
        ms(self.micros(at))
    }

    /// The ends of a turn: one, if all is well.
    pub(super) fn ends(&self, turn: u64) -> impl Iterator<Item = (&Line, String)> {
        self.lines.iter().filter_map(move |line| match &line.record.event {
            Event::TurnEnded { terminal, .. } if line.record.turn.is_some_and(|t| t.0 == turn) => {
                Some((line, terminal.to_string()))
            }
            _ => None,
        })
    }

    pub(super) fn answers_to<'a>(&'a self, to: &'a str) -> impl Iterator<Item = &'a str> {
        self.answers.iter().filter(move |a| a.to == to).map(|a| a.answer.as_str())
    }

    pub(super) fn words(&self, turn: u64) -> Words {
        let mut words = Words::default();
        for line in self.lines.iter().filter(|line| line.record.turn.is_some_and(|t| t.0 == turn)) {
            match &line.record.event {
                Event::ReplyText { delta } => words.said.push_str(delta.reveal()),
                Event::TurnEnded { heard, unheard, .. } => {
                    words.heard = heard.reveal().clone();
                    words.unheard = unheard.reveal().clone();
                }
                _ => {}
            }
        }
        words
    }
}

/// Milliseconds without needless zeros.
pub(super) fn ms(micros: i64) -> String {
    if micros % 1_000 == 0 { (micros / 1_000).to_string() } else { format!("{:.3}", micros as f64 / 1_000.0) }
}

/// The log as people read it, one line a record, with the remarks between; and the records with their lines.
pub(super) fn log(zero: Stamp, records: &[Arc<Record>], notes: &[Note]) -> (Vec<Line>, Vec<String>) {
    let since = |at: Stamp| at.as_micros() as i64 - zero.as_micros() as i64;
    enum Entry<'a> {
        Note(&'a Note),
        Record(&'a Arc<Record>),
    }
    let mut entries: Vec<(Stamp, Entry<'_>)> = notes.iter().map(|note| (note.at, Entry::Note(note))).collect();
    entries.extend(records.iter().map(|record| (record.at, Entry::Record(record))));
    // Remarks of a millisecond stand before its records: what was asked before what came of it. The sort keeps both in their order.
    entries.sort_by_key(|(at, _)| *at);
    let (mut lines, mut log) = (Vec::new(), Vec::new());
    for (at, entry) in entries {
        let mut text = format!("{:>9} ms  ", ms(since(at)));
        // Writing into a string never fails.
        let _ = match entry {
            Entry::Note(note) => write!(text, "-- {}", note.text),
            Entry::Record(record) => {
                let event = serde_json::to_value(&record.event).expect("an event serialises");
                let turn = record.turn.map_or_else(|| "-".into(), |turn| turn.to_string());
                let told = line(&event, since);
                lines.push(Line { number: log.len() + 1, record: record.clone(), event });
                let [seq, generation] = [record.seq.to_string(), record.generation.to_string()];
                write!(text, "{seq:<7} {turn:<7} {generation:<6} {told}")
            }
        };
        log.push(text);
    }
    (lines, log)
}

/// An event in one line; its moments and durations in milliseconds.
fn line(event: &Value, since: impl Fn(Stamp) -> i64) -> String {
    let mut text = event["type"].as_str().unwrap_or("?").to_owned();
    for (key, value) in event.as_object().into_iter().flatten().filter(|(key, _)| *key != "type") {
        let moment = ["onset", "end", "deadline"].contains(&key.as_str());
        let _ = match (value.as_u64(), key.strip_suffix("_us")) {
            (Some(at), None) if moment => write!(text, "  {key} {} ms", ms(since(Stamp::from_micros(at)))),
            (Some(us), Some(key)) => write!(text, "  {key} {} ms", ms(us as i64)),
            _ => write!(text, "  {key} {value}"),
        };
    }
    text
}

/// The numbers of `metrics.json`, by name. Durations in microseconds.
pub(super) fn numbers(metrics: &Metrics) -> Map<String, Value> {
    let named = |name: &str, value: &str| if value.is_empty() { name.to_owned() } else { format!("{name}_{value}") };
    let mut all = Map::new();
    all.insert("turns".into(), metrics.turns().into());
    all.insert("open_reconciliations".into(), metrics.calls().open().into());
    for counts in metrics.counts() {
        all.extend(counts.values.into_iter().map(|(value, number)| (named(counts.name, value), number.into())));
    }
    let us = |value: Option<std::time::Duration>| value.map_or(Value::Null, |d| (d.as_micros() as u64).into());
    for times in metrics.times() {
        for (value, histogram) in times.values {
            let name = named(times.name, value);
            all.insert(format!("{name}_count"), histogram.count().into());
            for (part, percent) in [("p50", 50.0), ("p95", 95.0), ("p99", 99.0)] {
                all.insert(format!("{name}_{part}_us"), us(histogram.p(percent)));
            }
            all.insert(format!("{name}_max_us"), us(histogram.max()));
        }
    }
    all
}

/// The numbers of a log, counted anew.
pub(super) fn recount(session: SessionId, records: &[Arc<Record>]) -> Metrics {
    Metrics::from_records(records.iter().map(|record| (session, &**record)))
}
