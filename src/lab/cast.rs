//! `lab::cast`: how the providers of a scenario behave, as data, and the whole cast of one world.
//!
//! Layer 4. A synthesizer and a recogniser are the provider room's scripted ones. The model, the lookup and the tools are played by
//! [`super::player`], because a story says at which millisecond each thing happens: all times count from the moment at which the
//! provider was asked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::evidence::Outside as Left;
use super::player::{ModelPlayer, Outdoors, RetrieverPlayer, ToolPlayer};
use super::scenario::Scenario;
use crate::engine::{Builder, Engine};
use crate::event::{Checkpoint, Declaration, Outside, Retry};
use crate::provider::script::End;
use crate::provider::stt::{ScriptedStt, SttScript};
use crate::provider::tts::{ScriptedTts, TtsScript};
use crate::time::Stamp;

/// One answer of the model.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// What it says and asks for, in the order of the times.
    pub pieces: Vec<Piece>,
    /// When it returns, at the earliest. Default with its last piece.
    pub until: u64,
    /// How it ends. Default it completes.
    pub then: Then,
    /// What it does when it is told to stop. Default it stops at once.
    pub obeys: Obeys,
    /// How often it sends each piece, as one does that repeats what was delivered. Default once.
    pub copies: Option<usize>,
}

/// A piece of an answer: either words or a call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// When, milliseconds after the request.
    pub at: u64,
    /// What it says.
    #[serde(default)]
    pub says: Option<String>,
    /// Which tool it asks for.
    #[serde(default)]
    pub calls: Option<String>,
    /// What it asks that tool: JSON. Default `{}`.
    #[serde(default = "nothing")]
    pub with: String,
}

fn nothing() -> String {
    "{}".into()
}

/// How a provider ends once its script is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Then {
    /// As a good one does.
    #[default]
    Complete,
    /// Never, until it is stopped.
    Hang,
    /// It breaks off with this advice.
    Break(Retry),
    /// It refuses.
    Refuse,
    /// It does not know whether it happened (a tool that committed).
    Unknown,
    /// It panics.
    Panic,
}

/// What a provider does when it is told to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Obeys {
    /// It stops at once.
    #[default]
    Promptly,
    /// It stops so many milliseconds later, and does nothing in between.
    After(u64),
    /// Only at its checkpoints (a tool).
    AtCheckpoints,
    /// Never: its script is played to the end.
    Never,
}

/// One way of the synthesizer.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Voice {
    /// How long a character sounds, milliseconds. Default 10: a block.
    pub a_char: u64,
    /// How long a chunk is, milliseconds. Default 10.
    pub chunk: u64,
    /// Before its first chunk, milliseconds. Default 0.
    pub first: u64,
    /// Time between chunks as a part of their length: 0 at once, 1 as fast as they sound. Default 0.
    pub real_time: f64,
    /// Chunks that it still sends after it was told to stop, at its pace. Default: it stops at once.
    pub deaf: Option<usize>,
    /// How it ends. Default it completes.
    pub then: Then,
}

impl Default for Voice {
    fn default() -> Self {
        Voice { a_char: 10, chunk: 10, first: 0, real_time: 0.0, deaf: None, then: Then::Complete }
    }
}

/// What the recogniser makes out of one utterance.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hearing {
    /// Its last word.
    pub text: String,
    /// What it makes out when it has heard so many milliseconds.
    pub partials: Vec<(u64, String)>,
    /// How long after the end its last word comes, milliseconds.
    pub final_after: u64,
}

/// One lookup.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lookup {
    /// How long it takes, milliseconds.
    pub takes: u64,
    /// What it finds.
    pub finds: String,
    /// How it ends. Default it completes.
    pub then: Then,
    /// What it does when it is told to stop. Default it stops at once.
    pub obeys: Obeys,
}

/// A tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolPart {
    /// What it declares. The checkpoints that its calls pass, and that it probes when the outside has answers, need not be said.
    pub declares: Declaration,
    /// Whether one intent is told from another by its arguments.
    #[serde(default)]
    pub keyed: bool,
    /// What the outside says when it is asked, one answer a time, the last one again and again. Default: it cannot be asked.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// Its calls, one each; the last one again and again.
    pub calls: Vec<Call>,
}

/// An answer of the outside.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Probe {
    /// What is true: whether the effect is there.
    Truth,
    /// This.
    Says(Outside),
}

/// One call of a tool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Call {
    /// What it does, in the order of the times.
    pub steps: Vec<Step>,
    /// When it returns, at the earliest, milliseconds after it was called. Default with its last step.
    pub until: u64,
    /// What it brings.
    pub brings: String,
    /// How it ends. Default with what it brings.
    pub then: Then,
    /// What it does when it is told to stop before it commits. Default it stops at once.
    pub obeys: Obeys,
    /// Told to stop after it committed, it has the other side take it back: milliseconds that takes. Default it cannot.
    pub takes_back: Option<u64>,
    /// Whether it forgets to clean up what it prepared.
    pub untidy: bool,
}

/// A step of a call.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// When, milliseconds after it was called.
    pub at: u64,
    /// What.
    #[serde(rename = "do")]
    pub what: Deed,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Deed {
    /// Passes a checkpoint.
    Pass(Checkpoint),
    /// Prepares something aside.
    Stage,
    /// Asks for leave to commit, and waits for it.
    Commit,
    /// Changes something outside, with the key.
    Publish,
}

impl Then {
    fn end(self) -> End {
        match self {
            Then::Complete => End::Complete,
            Then::Hang => End::Hang,
            Then::Break(retry) => End::Break(retry),
            Then::Refuse | Then::Unknown => End::Refuse,
            Then::Panic => End::Panic,
        }
    }
}

impl ToolPart {
    /// What it declares.
    pub(super) fn declaration(&self) -> Declaration {
        let mut declaration = self.declares.clone();
        for step in self.calls.iter().flat_map(|call| &call.steps) {
            if let Deed::Pass(checkpoint) = step.what
                && !declaration.checkpoints.contains(&checkpoint)
            {
                declaration.checkpoints.push(checkpoint);
            }
        }
        declaration.probes |= !self.probes.is_empty();
        declaration
    }
}

/// Everybody who plays in one world.
#[derive(Debug)]
pub(super) struct Cast {
    model: ModelPlayer,
    voice: ScriptedTts,
    ear: ScriptedStt,
    lookup: Option<RetrieverPlayer>,
    tools: Vec<ToolPlayer>,
    outdoors: Outdoors,
}

impl Cast {
    pub(super) fn of(scenario: &Scenario) -> Cast {
        let outdoors = Outdoors::default();
        let mut voices: Vec<Voice> = scenario.voice.clone();
        if voices.is_empty() {
            voices.push(Voice::default());
        }
        let ways = voices.iter().map(|voice| {
            let millis = Duration::from_millis;
            let way = TtsScript::new()
                .a_char(millis(voice.a_char))
                .chunk(millis(voice.chunk.max(1)))
                .first_after(millis(voice.first))
                .real_time(voice.real_time)
                .then(voice.then.end());
            match voice.deaf {
                Some(more) => way.deaf(more),
                None => way,
            }
        });
        let mut hearings: Vec<SttScript> = scenario
            .hears
            .iter()
            .map(|hearing| {
                let script = SttScript::hears(&hearing.text).final_after(Duration::from_millis(hearing.final_after));
                hearing.partials.iter().fold(script, |script, (heard, text)| script.partial(Duration::from_millis(*heard), text))
            })
            .collect();
        if hearings.is_empty() {
            hearings.push(SttScript::nothing());
        }
        Cast {
            model: ModelPlayer::new(&scenario.model),
            voice: ScriptedTts::new(ways),
            ear: ScriptedStt::new(hearings),
            lookup: (!scenario.lookup.is_empty()).then(|| RetrieverPlayer::new(&scenario.lookup)),
            tools: scenario.tools.iter().map(|part| ToolPlayer::new(part, outdoors.clone())).collect(),
            outdoors,
        }
    }

    /// An engine with this cast.
    pub(super) fn builder(&self) -> Builder {
        let mut builder = Engine::builder(self.ear.clone(), self.model.clone(), self.voice.clone());
        if let Some(lookup) = &self.lookup {
            builder = builder.retriever(lookup.clone());
        }
        self.tools.iter().fold(builder, |builder, tool| builder.tool(tool.clone()))
    }

    /// What the tools did outside.
    pub(super) fn outside(&self) -> BTreeMap<String, Left> {
        self.tools.iter().map(|tool| (tool.name().to_owned(), self.outdoors.left_by(tool.name()))).collect()
    }

    /// Every side effect, with its key and its moment, in order; also those that were undone since.
    pub(super) fn effects(&self) -> Vec<(String, Stamp)> {
        self.outdoors.history()
    }

    /// Every leave to commit that a tool was given, with its key and its moment, in order.
    pub(super) fn leaves(&self) -> Vec<(String, Stamp)> {
        self.outdoors.leaves()
    }

    /// What the model was shown, request by request.
    pub(super) fn prompts(&self) -> Vec<String> {
        self.model.prompts()
    }
}
