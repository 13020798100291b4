//! `lab::player`: the model, the lookup and the tools of a scenario, which do what it says at the millisecond it says.
//!
//! Layer 4. Waits are on the runtime's clock, which is paused: exact and instant. The outside that tools change is [`Outdoors`]: a
//! world of its own that counts what really happened there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::cast::{Call, Deed, Lookup, Model, Obeys, Piece, Probe, Then, ToolPart};
use super::evidence::Outside as Left;
use crate::event::{IdempotencyKey, Outside, Pii};
use crate::provider::script::held;
use crate::provider::{
    Info, Llm, Message, Piece as Said, Prompt, ProviderError, Retriever, Sink, Stops, TaskCx, Tool, ToolCall, ToolCx, ToolInfo,
};
use crate::time::Stamp;

/// Scripts in order; the last one is played again and again.
#[derive(Debug)]
struct Scripts<S>(Mutex<VecDeque<S>>);

impl<S: Clone> Scripts<S> {
    fn new(scripts: &[S]) -> Arc<Self> {
        Arc::new(Scripts(Mutex::new(scripts.iter().cloned().collect())))
    }

    fn next(&self) -> Option<S> {
        let mut scripts = held(&self.0);
        if scripts.len() > 1 { scripts.pop_front() } else { scripts.front().cloned() }
    }
}

/// Waits until so many milliseconds after `began`, as the script obeys.
async fn until(cx: &TaskCx, began: Stamp, ms: u64, obeys: Obeys) -> Result<(), ProviderError> {
    let left = (began + Duration::from_millis(ms)).since(cx.now());
    match obeys {
        Obeys::Promptly => cx.rest(left).await,
        Obeys::After(slow) => match cx.rest(left).await {
            Err(ProviderError::Stopped) => {
                sleep(Duration::from_millis(slow)).await;
                Err(ProviderError::Stopped)
            }
            other => other,
        },
        Obeys::AtCheckpoints | Obeys::Never => {
            sleep(left).await;
            Ok(())
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a scripted delay on paused time")]
async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Plays the end of a script.
async fn end(cx: &TaskCx, then: Then, obeys: Obeys) -> Result<(), ProviderError> {
    let why = || "the scenario says so".to_owned();
    match then {
        Then::Complete => Ok(()),
        Then::Hang if matches!(obeys, Obeys::Never | Obeys::AtCheckpoints) => std::future::pending().await,
        Then::Hang => until(cx, Stamp::MAX, 0, obeys).await,
        Then::Break(retry) => Err(ProviderError::Broken { why: why(), retry }),
        Then::Refuse => Err(ProviderError::Refused { why: why() }),
        Then::Unknown => Err(ProviderError::Unknown { why: why() }),
        Then::Panic => panic!("the scenario says that this provider panics"),
    }
}

/// The model.
#[derive(Clone, Debug)]
pub(super) struct ModelPlayer {
    scripts: Arc<Scripts<Model>>,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl ModelPlayer {
    pub(super) fn new(scripts: &[Model]) -> Self {
        let yes = Model {
            pieces: vec![Piece { at: 0, says: Some("Yes.".into()), calls: None, with: String::new() }],
            ..Model::default()
        };
        let scripts = if scripts.is_empty() { vec![yes] } else { scripts.to_vec() };
        ModelPlayer { scripts: Scripts::new(&scripts), prompts: Arc::default() }
    }

    pub(super) fn prompts(&self) -> Vec<String> {
        held(&self.prompts).clone()
    }
}

impl Llm for ModelPlayer {
    fn info(&self) -> Info {
        Info::new("lab-model").stops(Stops::DeliveryOnly)
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Said>, cx: TaskCx) -> Result<(), ProviderError> {
        let began = cx.now();
        held(&self.prompts).push(shown(&prompt));
        let Some(Model { pieces, until: last, then, obeys, copies }) = self.scripts.next() else { return Ok(()) };
        for piece in pieces {
            until(&cx, began, piece.at, obeys).await?;
            let said = match (piece.says, piece.calls) {
                (Some(text), _) => Said::Text(text.into()),
                (None, Some(tool)) => Said::Call { tool, arguments: piece.with.into() },
                (None, None) => continue,
            };
            for _ in 0..copies.unwrap_or(1) {
                match obeys {
                    // Nobody may listen any more; one that does not obey does not care.
                    Obeys::Never => drop(out.send(said.clone()).await),
                    Obeys::Promptly | Obeys::After(_) | Obeys::AtCheckpoints => cx.until_stopped(out.send(said.clone())).await??,
                }
            }
        }
        until(&cx, began, last, obeys).await?;
        end(&cx, then, obeys).await
    }
}

/// A prompt as expectations read it: one line an entry.
fn shown(prompt: &Prompt) -> String {
    let entry = |message: &Message| match message {
        Message::System { text } => format!("system: {}", text.reveal()),
        Message::User { text } => format!("user: {}", text.reveal()),
        Message::Assistant { text, interrupted } => {
            format!("assistant: {}{}", text.reveal(), if *interrupted { " [interrupted]" } else { "" })
        }
        Message::Call { tool, arguments, .. } => format!("call: {tool} {}", arguments.reveal()),
        Message::Result { .. } => format!("result: {}", result(message)),
    };
    prompt.conversation.iter().map(entry).collect::<Vec<_>>().join("\n")
}

/// What a result says, with its ending in front.
fn result(message: &Message) -> String {
    match message {
        Message::Result { ending, text, .. } => {
            let ending = ending.map_or_else(|| "running".to_owned(), |ending| ending.to_string());
            format!("{ending} {}", text.reveal())
        }
        _ => String::new(),
    }
}

/// The lookup.
#[derive(Clone, Debug)]
pub(super) struct RetrieverPlayer {
    scripts: Arc<Scripts<Lookup>>,
}

impl RetrieverPlayer {
    pub(super) fn new(scripts: &[Lookup]) -> Self {
        RetrieverPlayer { scripts: Scripts::new(scripts) }
    }
}

impl Retriever for RetrieverPlayer {
    fn info(&self) -> Info {
        Info::new("lab-lookup").stops(Stops::DeliveryOnly)
    }

    async fn retrieve(&self, _: Vec<Message>, cx: TaskCx) -> Result<Pii<String>, ProviderError> {
        let began = cx.now();
        let Some(Lookup { takes, finds, then, obeys }) = self.scripts.next() else { return Ok(String::new().into()) };
        until(&cx, began, takes, obeys).await?;
        end(&cx, then, obeys).await?;
        Ok(finds.into())
    }
}

/// What is outside: side effects under their keys, and things that lie prepared.
#[derive(Clone, Debug, Default)]
pub(super) struct Outdoors(Arc<Mutex<Facts>>);

#[derive(Debug, Default)]
struct Facts {
    /// Every side effect: tool, key, moment.
    happened: Vec<(String, String, Stamp)>,
    /// Those that were undone: tool and key.
    undone: Vec<(String, String)>,
    staged: BTreeMap<String, usize>,
    /// Leaves to commit that were given: key and moment.
    leaves: Vec<(String, Stamp)>,
}

impl Outdoors {
    fn stage(&self, tool: &str, by: isize) {
        let mut facts = held(&self.0);
        let staged = facts.staged.entry(tool.to_owned()).or_default();
        *staged = staged.saturating_add_signed(by);
    }

    fn publish(&self, tool: &str, key: &str, at: Stamp) {
        held(&self.0).happened.push((tool.to_owned(), key.to_owned(), at));
    }

    fn leave(&self, key: &str, at: Stamp) {
        held(&self.0).leaves.push((key.to_owned(), at));
    }

    /// Every leave to commit that was given, in order.
    pub(super) fn leaves(&self) -> Vec<(String, Stamp)> {
        held(&self.0).leaves.clone()
    }

    fn undo(&self, tool: &str, key: &str) {
        held(&self.0).undone.push((tool.to_owned(), key.to_owned()));
    }

    fn is_there(&self, tool: &str, key: &str) -> bool {
        let facts = held(&self.0);
        let undone = facts.undone.iter().filter(|(t, k)| t == tool && k == key).count();
        facts.happened.iter().filter(|(t, k, _)| t == tool && k == key).count() > undone
    }

    /// What a tool left there.
    pub(super) fn left_by(&self, tool: &str) -> Left {
        let facts = held(&self.0);
        let happened = facts.happened.iter().filter(|(t, ..)| t == tool).count();
        let undone = facts.undone.iter().filter(|(t, _)| t == tool).count();
        Left { effects: happened.saturating_sub(undone), staged: facts.staged.get(tool).copied().unwrap_or(0) }
    }

    /// Every side effect that ever happened, in order.
    pub(super) fn history(&self) -> Vec<(String, Stamp)> {
        held(&self.0).happened.iter().map(|(_, key, at)| (key.clone(), *at)).collect()
    }
}

/// A tool.
#[derive(Clone, Debug)]
pub(super) struct ToolPlayer {
    part: Arc<ToolPart>,
    scripts: Arc<Scripts<Call>>,
    probes: Arc<Scripts<Probe>>,
    outdoors: Outdoors,
}

impl ToolPlayer {
    pub(super) fn new(part: &ToolPart, outdoors: Outdoors) -> Self {
        ToolPlayer {
            part: Arc::new(part.clone()),
            scripts: Scripts::new(&part.calls),
            probes: Scripts::new(&part.probes),
            outdoors,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.part.declares.name
    }

    /// Plays the steps. `staged` and `sent` tell what must be cleaned up, and whether it can be.
    async fn play(&self, script: &Call, key: &IdempotencyKey, cx: &ToolCx, work: &mut Work) -> Result<(), ProviderError> {
        let began = cx.task().now();
        let name = self.name();
        for step in &script.steps {
            self.wait(script, cx, began, step.at, work).await?;
            match step.what {
                Deed::Pass(checkpoint) if script.obeys == Obeys::Never => drop(cx.checkpoint(checkpoint).await),
                Deed::Pass(checkpoint) => cx.checkpoint(checkpoint).await?,
                Deed::Stage => {
                    self.outdoors.stage(name, 1);
                    work.staged = true;
                }
                Deed::Commit => {
                    cx.commit().await?;
                    self.outdoors.leave(&key.0, cx.task().now());
                    work.sent = true;
                }
                Deed::Publish => {
                    self.outdoors.publish(name, &key.0, cx.task().now());
                    work.published = true;
                    if std::mem::take(&mut work.staged) {
                        self.outdoors.stage(name, -1);
                    }
                }
            }
        }
        self.wait(script, cx, began, script.until, work).await?;
        let obeys = if work.sent { Obeys::Never } else { script.obeys };
        end(cx.task(), script.then, obeys).await
    }

    /// Waits for a moment of the script. What was sent is not disturbed, unless the other side takes things back.
    async fn wait(&self, script: &Call, cx: &ToolCx, began: Stamp, at: u64, work: &mut Work) -> Result<(), ProviderError> {
        match script.takes_back {
            Some(takes) if work.sent => match until(cx.task(), began, at, Obeys::Promptly).await {
                Err(ProviderError::Stopped) => {
                    sleep(Duration::from_millis(takes)).await;
                    work.taken_back = true;
                    Err(ProviderError::Stopped)
                }
                other => other,
            },
            _ if work.sent => until(cx.task(), began, at, Obeys::Never).await,
            _ => until(cx.task(), began, at, script.obeys).await,
        }
    }
}

/// How far a call came.
#[derive(Debug, Default)]
struct Work {
    staged: bool,
    sent: bool,
    published: bool,
    taken_back: bool,
}

impl Tool for ToolPlayer {
    fn info(&self) -> ToolInfo {
        ToolInfo {
            declaration: self.part.declaration(),
            description: format!("The scenario's tool `{}`.", self.name()),
            parameters: serde_json::json!({"type": "object"}),
        }
    }

    fn key(&self, arguments: &str) -> Option<String> {
        self.part.keyed.then(|| format!("{}:{arguments}", self.name()))
    }

    async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        let script = self.scripts.next().unwrap_or_default();
        let mut work = Work::default();
        let played = self.play(&script, &call.key, &cx, &mut work).await;
        if played.is_err() && work.staged && !script.untidy {
            self.outdoors.stage(self.name(), -1);
        }
        if work.taken_back && work.published {
            self.outdoors.undo(self.name(), &call.key.0);
        }
        played.map(|()| script.brings.into())
    }

    async fn probe(&self, key: IdempotencyKey, _: TaskCx) -> Result<Outside, ProviderError> {
        let there = self.outdoors.is_there(self.name(), &key.0);
        Ok(match self.probes.next() {
            Some(Probe::Says(outside)) => outside,
            Some(Probe::Truth) | None if there => Outside::Happened,
            Some(Probe::Truth) | None => Outside::DidNotHappen,
        })
    }

    async fn compensate(&self, key: IdempotencyKey, _: TaskCx) -> Result<(), ProviderError> {
        self.outdoors.undo(self.name(), &key.0);
        Ok(())
    }
}
