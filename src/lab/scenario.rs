//! `lab::scenario`: a story as data. What the policy is, how the providers behave, what happens when, and what must have come of it.
//!
//! Layer 4. Scenarios are RON files under `assets/scenarios/`. Times are milliseconds of the story; its zero may lie later than the
//! session's ([`Scenario::zero`]), so that a story can begin in the midst of a conversation: what happened before has negative times.
//! A field that nobody reads is an error that says where it stands.

use ron::extensions::Extensions;
use serde::Deserialize;

use super::cast::{Hearing, Lookup, Model, ToolPart, Voice};
use super::expect::Expectation;
use crate::event::{CancelCause, Event, Outcome};
use crate::turn::Policy;

/// One story.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, as `--only` takes it: letters, digits and `_`.
    pub name: String,
    /// What it tells, in a sentence or two.
    pub story: String,
    /// When its zero is, milliseconds of the session. Default 0.
    #[serde(default)]
    pub zero: u64,
    /// What the machine decides by. Default [`Policy::default`].
    #[serde(default)]
    pub policy: Policy,
    /// The model's answers, one a request; the last one again and again. Default: it says "Yes.".
    #[serde(default)]
    pub model: Vec<Model>,
    /// The synthesizer's ways, one an answer; the last one again and again. Default [`Voice::default`].
    #[serde(default)]
    pub voice: Vec<Voice>,
    /// What the recogniser makes out, one an utterance; the last one again and again. Default: nothing.
    #[serde(default)]
    pub hears: Vec<Hearing>,
    /// What is looked up before the model is asked, one a turn; the last one again and again. Default: there is no retriever.
    #[serde(default)]
    pub lookup: Vec<Lookup>,
    /// The tools. Default none.
    #[serde(default)]
    pub tools: Vec<ToolPart>,
    /// The person's end of the link.
    #[serde(default)]
    pub far: Far,
    /// The records that the client shows: it counts these from 1, and names them by that number. Default the pieces of the answer
    /// and the end of the turn, so that an answer of five pieces is 1 to 5 and its terminal is 6.
    #[serde(default = "shown")]
    pub client_shows: Vec<String>,
    /// Records that the store's queue takes, when there is a door before it that can be shut. Default: no door.
    #[serde(default)]
    pub store_queue: Option<usize>,
    /// What happens, in the order of the times.
    pub acts: Vec<Timed>,
    /// When the session is closed, if it still lives, milliseconds of the story.
    pub until: i64,
    /// What must have come of it.
    pub expect: Vec<Expectation>,
}

fn shown() -> Vec<String> {
    ["reply_text", "turn_ended"].map(str::to_owned).to_vec()
}

/// The person's end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Far {
    /// When its first beat is, milliseconds after the pump's. 0 to 9; default 3.
    pub phase: u64,
    /// How long everything is under way, milliseconds. Default 0.
    pub delay: u64,
    /// How long it keeps sound before it plays it, milliseconds. Default 0.
    pub buffer: u64,
    /// Whether it says what it plays and when it fell silent, as a browser page does. Default true.
    pub reports: bool,
    /// Whether it can drop what it has buffered when told to. Default true.
    pub clears: bool,
}

impl Default for Far {
    fn default() -> Self {
        Far { phase: 3, delay: 0, buffer: 0, reports: true, clears: true }
    }
}

/// Something that happens at a moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// When, milliseconds of the story.
    pub at: i64,
    /// What.
    #[serde(rename = "do")]
    pub act: Act,
    /// Its place among what else happens in that millisecond. Default first.
    #[serde(default)]
    pub place: Place,
}

/// The place of an act in its millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Place {
    /// Before the pump, the providers and the far end do what they do then.
    #[default]
    First,
    /// After everything else.
    Last,
}

/// What somebody does. `as` names the request: the same name is the same request id, sent again. Default: a request of its own, whose
/// name in the log is the act's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Act {
    /// Types a text, which replaces what runs.
    Say {
        /// The text.
        text: String,
        /// Names the request.
        #[serde(default, rename = "as")]
        name: Option<String>,
    },
    /// Submits an input.
    Submit {
        /// The text.
        text: String,
        /// When it may be taken.
        mode: Mode,
        /// Names the request.
        #[serde(default, rename = "as")]
        name: Option<String>,
    },
    /// Has a text spoken as it stands.
    Announce {
        /// The text.
        text: String,
        /// Whether a voice may interrupt it. Default true.
        #[serde(default = "yes")]
        interruptible: bool,
    },
    /// Asks a turn to stop.
    Cancel {
        /// Which.
        turn: u64,
        /// Why. Default user.
        #[serde(default = "user")]
        cause: CancelCause,
        /// Names the request.
        #[serde(default, rename = "as")]
        name: Option<String>,
    },
    /// Allows a call, or does not.
    Approve {
        /// Which.
        call: u64,
        /// Yes or no.
        granted: bool,
    },
    /// Says what became of an open call.
    Resolve {
        /// Which.
        call: u64,
        /// What.
        outcome: Outcome,
    },
    /// Hands over.
    Handover {
        /// The turn that stops.
        stop: u64,
        /// Calls that go on.
        #[serde(default)]
        keep: Vec<u64>,
        /// The next input.
        next: String,
        /// What the next answer must heed.
        #[serde(default)]
        constraints: String,
    },
    /// Speaks for so many milliseconds.
    Talk(u64),
    /// Presses or releases the push-to-talk key.
    Key(bool),
    /// The client acknowledges what it has shown up to its number.
    Acknowledge(u64),
    /// The client is gone.
    Disconnect,
    /// The client is back and reads on after its number.
    Resume {
        /// The last one it has.
        after: u64,
    },
    /// The network delivers the record of this number to the client once more.
    Repeat(u64),
    /// Shuts or opens the door before the store.
    Store(Door),
    /// The far end stops being there at all, or comes back: it neither reads nor plays.
    Stuck(bool),
    /// Takes no new turns; what runs has so many milliseconds.
    Drain(u64),
    /// Ends the session.
    Close,
}

/// A door before the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Door {
    /// Records go in.
    Open,
    /// None do.
    Shut,
}

/// When a submitted input may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Mode {
    /// It steers the running turn, or starts one.
    StartOrSteer,
    /// It starts a turn when none runs.
    StartIfIdle,
    /// It steers this turn and no other.
    Steer(u64),
}

const fn yes() -> bool {
    true
}

const fn user() -> CancelCause {
    CancelCause::User
}

/// A scenario that cannot be run, and where it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The file is not a scenario.
    #[error("{file}:{at}: {why}")]
    Unreadable {
        /// Its name.
        file: String,
        /// Line and column.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// It can be read and makes no sense.
    #[error("{file}: {why}")]
    Senseless {
        /// Its name.
        file: String,
        /// What is wrong.
        why: String,
    },
}

impl Scenario {
    /// Reads a scenario; `file` is named in errors.
    ///
    /// # Errors
    /// [`ScenarioError`], which says where.
    pub fn read(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let options =
            ron::Options::default().with_default_extension(Extensions::IMPLICIT_SOME | Extensions::UNWRAP_VARIANT_NEWTYPES);
        let scenario: Scenario = options.from_str(text).map_err(|error| ScenarioError::Unreadable {
            file: file.to_owned(),
            at: error.span.start.to_string(),
            why: error.code.to_string(),
        })?;
        scenario.check().map_err(|why| ScenarioError::Senseless { file: file.to_owned(), why })?;
        Ok(scenario)
    }

    /// Whether it can be run.
    fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Err(format!("the name `{}` is not made of letters, digits and `_`", self.name));
        }
        if self.far.phase >= 10 {
            return Err(format!("the far end's phase is 0 to 9 ms, not {}", self.far.phase));
        }
        let began = -(self.zero as i64);
        let mut last = began;
        for timed in &self.acts {
            if timed.at < last {
                return Err(format!("the act at {} ms comes after one at {last} ms, or before the session began", timed.at));
            }
            last = timed.at;
            let shuts = matches!(timed.act, Act::Store(_));
            if shuts && self.store_queue.is_none() {
                return Err("a store without `store_queue` has no door".into());
            }
        }
        if self.until < last {
            return Err(format!("it ends at {} ms, before its last act at {last} ms", self.until));
        }
        for name in &self.client_shows {
            known_event(name)?;
        }
        for expectation in &self.expect {
            expectation.check()?;
        }
        Ok(())
    }
}

/// Whether an event of this name exists.
pub(super) fn known_event(name: &str) -> Result<(), String> {
    // A known event without its fields is an error or itself; only an unknown one reads as `Unknown`.
    match serde_json::from_value::<Event>(serde_json::json!({ "type": name })) {
        Ok(Event::Unknown) => Err(format!("there is no event `{name}`")),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"(name: "least", story: "Nothing.", acts: [(at: 0, do: Say(text: "hello"))], until: 10, expect: [])"#;

    #[test]
    fn the_least_scenario_has_the_defaults() {
        let read = Scenario::read("least.ron", LEAST).expect("reads");
        assert_eq!((read.zero, read.policy, read.far), (0, Policy::default(), Far::default()));
        assert_eq!(read.client_shows, ["reply_text", "turn_ended"]);
    }

    #[test]
    fn an_unknown_field_is_an_error_that_says_where() {
        let text = LEAST.replace("story:", "\n  storry:");
        let error = Scenario::read("wrong.ron", &text).expect_err("there is no `storry`").to_string();
        assert!(error.starts_with("wrong.ron:2:") && error.contains("storry"), "{error}");
        let text = LEAST.replace("text: \"hello\"", "text: \"hello\",\n loud: true");
        let error = Scenario::read("wrong.ron", &text).expect_err("nobody reads `loud`").to_string();
        assert!(error.starts_with("wrong.ron:2:") && error.contains("loud"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (from, to, says) in [
            ("\"least\"", "\"a b\"", "letters"),
            ("until: 10", "until: -1", "ends at"),
            ("at: 0", "at: -5", "began"),
            ("Say(text: \"hello\")", "Store(Shut)", "no door"),
            ("expect: []", r#"expect: [(that: "x", is: Never(event: (event: "turn_endet")))]"#, "turn_endet"),
            ("expect: []", r#"client_shows: ["nothing"], expect: []"#, "nothing"),
        ] {
            let error = Scenario::read("wrong.ron", &LEAST.replace(from, to)).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
