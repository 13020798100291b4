//! `lab::expect`: what must have come of a scenario, as data, and whether it did.
//!
//! Layer 4. Each expectation is one assertion with a name that a person can read. A failed one says what was expected, what came, and
//! where in the log to look.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::evidence::{Evidence, Line};
use super::report::Assertion;
use super::scenario::known_event;

/// One expectation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// What it says, in words.
    pub that: String,
    /// What is looked at.
    pub is: Check,
}

/// Which records are meant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// The event's name, as in the log.
    pub event: String,
    /// Of this turn. Default any.
    #[serde(default)]
    pub turn: Option<u64>,
    /// Made under this generation. Default any.
    #[serde(default)]
    pub generation: Option<u64>,
    /// With these fields; of a nested value, these of its fields. Default any.
    #[serde(default)]
    pub with: Map<String, Value>,
}

/// What is looked at. Times are milliseconds of the story, exact.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Check {
    /// The `nth` such record is written at this millisecond, to the microsecond.
    At {
        /// When.
        ms: i64,
        /// Which.
        event: Pattern,
        /// Counted from 1. Default the first.
        #[serde(default = "first")]
        nth: usize,
    },
    /// The first such record is written in this window, both ends included.
    Within {
        /// Not before.
        from: i64,
        /// Not after.
        to: i64,
        /// Which.
        event: Pattern,
    },
    /// These follow each other in the log, whatever stands between.
    InOrder(Vec<Pattern>),
    /// There are exactly so many.
    Count {
        /// Which.
        event: Pattern,
        /// How many.
        times: usize,
    },
    /// There are at least so many.
    AtLeast {
        /// Which.
        event: Pattern,
        /// How many.
        times: usize,
    },
    /// There is none, at this millisecond or later.
    Never {
        /// Which.
        event: Pattern,
        /// From when on. Default from the beginning.
        #[serde(default)]
        from: Option<i64>,
    },
    /// A turn ends once, like this.
    Ends {
        /// Which.
        turn: u64,
        /// The terminal as a log shows it: `CANCELLED(user)`.
        how: String,
        /// When, if that matters.
        #[serde(default)]
        at: Option<i64>,
    },
    /// A request was answered like this.
    Answer {
        /// The request's name.
        to: String,
        /// The answers to it, in order: a request sent again is answered again.
        are: Vec<String>,
    },
    /// What an answer's words became.
    Words {
        /// Of which turn.
        turn: u64,
        /// What the model's pieces that were let out make up.
        #[serde(default)]
        said: Option<String>,
        /// What was heard of it.
        #[serde(default)]
        heard: Option<String>,
        /// What was not.
        #[serde(default)]
        unheard: Option<String>,
    },
    /// A number of the metrics.
    Metric {
        /// Its name in `metrics.json`.
        name: String,
        /// Its value.
        is: f64,
    },
    /// A counter of the engine.
    Counter {
        /// Its name.
        name: String,
        /// At least this.
        at_least: f64,
    },
    /// What a tool did outside.
    Outside {
        /// Which tool.
        tool: String,
        /// Side effects that are there.
        effects: usize,
        /// Prepared things that were left lying.
        #[serde(default)]
        staged: usize,
    },
    /// How often the model was asked.
    ModelAsked(usize),
    /// What the model was shown.
    ModelSaw {
        /// In which request, from 1, over the whole session.
        request: usize,
        /// This stands in it.
        #[serde(default)]
        has: Vec<String>,
        /// This does not.
        #[serde(default)]
        lacks: Vec<String>,
    },
    /// Nothing of an older generation sounds at the person's end from this millisecond on.
    Silent {
        /// From when on.
        from: i64,
        /// Older than this.
        below: u64,
    },
    /// So many blocks (10 ms) of a generation sounded at the person's end.
    Sounded {
        /// Which.
        generation: u64,
        /// How many.
        blocks: usize,
    },
    /// What the client made of the records: its own numbers.
    Client {
        /// What the resume gave it, in order.
        resumed: Vec<u64>,
        /// What it had already and ignored.
        ignored: Vec<u64>,
        /// The text on its screen.
        text: String,
    },
}

const fn first() -> usize {
    1
}

impl Pattern {
    fn check(&self) -> Result<(), String> {
        known_event(&self.event)
    }

    fn matches(&self, line: &Line) -> bool {
        let record = &line.record;
        self.turn.is_none_or(|turn| record.turn.is_some_and(|t| t.0 == turn))
            && self.generation.is_none_or(|generation| record.generation.0 == generation)
            && line.event["type"] == self.event.as_str()
            && self.with.iter().all(|(key, want)| line.event.get(key).is_some_and(|came| has(came, want)))
    }

    fn describe(&self) -> String {
        let mut text = self.event.clone();
        for (what, number) in [("turn#", self.turn), ("gen ", self.generation)] {
            if let Some(number) = number {
                let _ = write!(text, " of {what}{number}");
            }
        }
        if !self.with.is_empty() {
            let _ = write!(text, " with {}", Value::Object(self.with.clone()));
        }
        text
    }
}

/// Whether `came` has at least what `want` has.
fn has(came: &Value, want: &Value) -> bool {
    match (came, want) {
        (Value::Object(came), Value::Object(want)) => {
            want.iter().all(|(key, want)| came.get(key).is_some_and(|came| has(came, want)))
        }
        (Value::Number(came), Value::Number(want)) => came.as_f64() == want.as_f64(),
        (came, want) => came == want,
    }
}

impl Expectation {
    /// Whether it can be looked at.
    pub(super) fn check(&self) -> Result<(), String> {
        let patterns = match &self.is {
            Check::At { event, .. }
            | Check::Within { event, .. }
            | Check::Count { event, .. }
            | Check::AtLeast { event, .. }
            | Check::Never { event, .. } => std::slice::from_ref(event),
            Check::InOrder(patterns) if patterns.len() < 2 => return Err(format!("`{}`: an order has two places", self.that)),
            Check::InOrder(patterns) => patterns,
            Check::Ends { .. }
            | Check::Answer { .. }
            | Check::Words { .. }
            | Check::Metric { .. }
            | Check::Counter { .. }
            | Check::Outside { .. }
            | Check::ModelAsked(_)
            | Check::ModelSaw { .. }
            | Check::Silent { .. }
            | Check::Sounded { .. }
            | Check::Client { .. } => &[],
        };
        patterns.iter().try_for_each(Pattern::check).map_err(|why| format!("`{}`: {why}", self.that))
    }

    /// Looks at what came.
    pub(super) fn judge(&self, evidence: &Evidence) -> Assertion {
        match self.verdict(evidence) {
            Ok(()) => Assertion::held(&self.that),
            Err(Miss { expected, came, at }) => Assertion::failed(&self.that, expected, came, at),
        }
    }

    fn verdict(&self, evidence: &Evidence) -> Result<(), Miss> {
        let lines = |pattern: &Pattern| -> Vec<&Line> { evidence.lines.iter().filter(|line| pattern.matches(line)).collect() };
        match &self.is {
            Check::At { ms, event, nth } => {
                let found = lines(event);
                let expected = || format!("{} number {nth} at {ms} ms", event.describe());
                match found.get(nth.saturating_sub(1)) {
                    Some(line) if evidence.micros(line.record.at) == ms * 1_000 => Ok(()),
                    Some(line) => Err(Miss::new(expected(), format!("it at {} ms", evidence.ms(line.record.at)), [*line])),
                    None => Err(Miss::new(expected(), format!("{} of them", found.len()), found)),
                }
            }
            Check::Within { from, to, event } => {
                let found = lines(event);
                let expected = || format!("{} from {from} to {to} ms", event.describe());
                match found.first() {
                    Some(line) if (from * 1_000..=to * 1_000).contains(&evidence.micros(line.record.at)) => Ok(()),
                    Some(line) => Err(Miss::new(expected(), format!("it at {} ms", evidence.ms(line.record.at)), [*line])),
                    None => Err(Miss::new(expected(), "none".into(), [])),
                }
            }
            Check::InOrder(patterns) => {
                let mut rest = evidence.lines.iter();
                let mut last = None;
                for pattern in patterns {
                    match rest.find(|line| pattern.matches(line)) {
                        Some(line) => last = Some(line),
                        None => {
                            let names: Vec<String> = patterns.iter().map(Pattern::describe).collect();
                            let came = format!("no {} after the others", pattern.describe());
                            return Err(Miss::new(names.join(", then "), came, last));
                        }
                    }
                }
                Ok(())
            }
            Check::Count { event, times } => {
                let found = lines(event);
                let miss = || Miss::new(format!("{times} of {}", event.describe()), found.len().to_string(), found.clone());
                if found.len() == *times { Ok(()) } else { Err(miss()) }
            }
            Check::AtLeast { event, times } => {
                let found = lines(event);
                let miss =
                    || Miss::new(format!("at least {times} of {}", event.describe()), found.len().to_string(), found.clone());
                if found.len() >= *times { Ok(()) } else { Err(miss()) }
            }
            Check::Never { event, from } => {
                let after = from.map_or(i64::MIN, |ms| ms * 1_000);
                let found: Vec<_> = lines(event).into_iter().filter(|l| evidence.micros(l.record.at) >= after).collect();
                let miss = || Miss::new(format!("no {}", event.describe()), found.len().to_string(), found.clone());
                if found.is_empty() { Ok(()) } else { Err(miss()) }
            }
            Check::Ends { turn, how, at } => {
                let ends: Vec<_> = evidence.ends(*turn).collect();
                let when = |micros: i64| at.is_none_or(|ms| micros == ms * 1_000);
                match ends.as_slice() {
                    [(line, terminal)] if terminal == how && when(evidence.micros(line.record.at)) => Ok(()),
                    found => {
                        let at = at.map(|ms| format!(" at {ms} ms")).unwrap_or_default();
                        let came = found.iter().map(|(l, t)| format!("{t} at {} ms", evidence.ms(l.record.at)));
                        let came = if found.is_empty() { "no end".into() } else { came.collect::<Vec<_>>().join(", ") };
                        Err(Miss::new(format!("turn#{turn} ends once, {how}{at}"), came, found.iter().map(|(line, _)| *line)))
                    }
                }
            }
            Check::Answer { to, are } => {
                let came: Vec<String> = evidence.answers_to(to).map(str::to_owned).collect();
                equal(&came, are, |list| list.join(", "))
            }
            Check::Words { turn, said, heard, unheard } => {
                let words = evidence.words(*turn);
                for (what, want, came) in
                    [("said", said, &words.said), ("heard", heard, &words.heard), ("unheard", unheard, &words.unheard)]
                {
                    if want.as_ref().is_some_and(|want| want != came) {
                        let expected = format!("{what} {:?}", want.as_deref().unwrap_or_default());
                        return Err(Miss::new(expected, format!("{came:?}"), evidence.ends(*turn).map(|(line, _)| line)));
                    }
                }
                Ok(())
            }
            Check::Metric { name, is } => match evidence.metrics.get(name).and_then(Value::as_f64) {
                Some(came) if came == *is => Ok(()),
                Some(came) => Err(Miss::new(format!("{name} = {is}"), came.to_string(), [])),
                None => Err(Miss::new(format!("{name} = {is}"), "no metric of that name".into(), [])),
            },
            Check::Counter { name, at_least } => match evidence.counters.get(name).and_then(Value::as_f64) {
                Some(came) if came >= *at_least => Ok(()),
                Some(came) => Err(Miss::new(format!("{name} of {at_least} or more"), came.to_string(), [])),
                None => Err(Miss::new(format!("{name} of {at_least} or more"), "no counter of that name".into(), [])),
            },
            Check::Outside { tool, effects, staged } => match evidence.outside.get(tool) {
                Some(came) if (came.effects, came.staged) == (*effects, *staged) => Ok(()),
                Some(came) => {
                    let show = |effects, staged| format!("{effects} side effects of `{tool}` and {staged} things left prepared");
                    Err(Miss::new(show(*effects, *staged), show(came.effects, came.staged), []))
                }
                None => Err(Miss::new(format!("side effects of `{tool}`"), "no such tool".into(), [])),
            },
            Check::ModelAsked(times) => equal(&evidence.prompts.len(), times, |n| format!("{n} requests to the model")),
            Check::ModelSaw { request, has, lacks } => {
                let Some(prompt) = evidence.prompts.get(request.saturating_sub(1)) else {
                    return Err(Miss::new(format!("request {request}"), format!("{} requests", evidence.prompts.len()), []));
                };
                for text in has {
                    if !prompt.contains(text) {
                        return Err(Miss::new(format!("request {request} shows {text:?}"), prompt.clone(), []));
                    }
                }
                match lacks.iter().find(|text| prompt.contains(*text)) {
                    Some(text) => Err(Miss::new(format!("request {request} does not show {text:?}"), prompt.clone(), [])),
                    None => Ok(()),
                }
            }
            Check::Silent { from, below } => {
                let stale = |h: &&super::evidence::Sound| h.generation < *below && evidence.micros(h.at) >= from * 1_000;
                let found: Vec<_> = evidence.sounds.iter().filter(stale).collect();
                match found.first() {
                    None => Ok(()),
                    Some(first) => {
                        let came = format!(
                            "{} blocks, the first at {} ms of gen {}",
                            found.len(),
                            evidence.ms(first.at),
                            first.generation
                        );
                        Err(Miss::new(format!("nothing older than gen {below} sounds from {from} ms on"), came, []))
                    }
                }
            }
            Check::Sounded { generation, blocks } => {
                let came = evidence.sounds.iter().filter(|h| h.generation == *generation).count();
                equal(&came, blocks, |n| format!("{n} blocks of gen {generation} sounded"))
            }
            Check::Client { resumed, ignored, text } => {
                let client = &evidence.client;
                equal(&client.resumed, resumed, |list| format!("resumed with {list:?}"))?;
                equal(&client.ignored, ignored, |list| format!("ignored {list:?}"))?;
                equal(&client.text, text, |text| format!("shown {text:?}"))
            }
        }
    }
}

/// What was expected, what came, and where.
struct Miss {
    expected: String,
    came: String,
    at: Vec<usize>,
}

impl Miss {
    fn new<'a>(expected: String, came: String, lines: impl IntoIterator<Item = &'a Line>) -> Self {
        Miss { expected, came, at: lines.into_iter().map(|line| line.number).collect() }
    }
}

fn equal<T: PartialEq + ?Sized>(came: &T, want: &T, show: impl Fn(&T) -> String) -> Result<(), Miss> {
    if came == want { Ok(()) } else { Err(Miss::new(show(want), show(came), [])) }
}
