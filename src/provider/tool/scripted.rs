//! `ScriptedTool`: a tool that does exactly what a test says, to a world that a test can look at. Layer 2; one value, shared by
//! clones.
//!
//! Laws: the n-th call plays the n-th script (the last one again and again), and so do its probes and compensations; same scripts and
//! seeds, same steps at the same runtime times; without misbehaviour in its script it keeps the contract of [`Tool`]. Proved by
//! `scripted::tests` and by [`check`](crate::provider::check).

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::script::Step;
use super::{Backend, Leave, Probe, Tool, ToolCall, ToolCx, ToolInfo, ToolScript};
use crate::event::{Declaration, IdempotencyKey, Outside, Pii};
use crate::provider::script::{End, Leash, Obedience, Pace, Playlist, held, tells_of_its_calls};
use crate::provider::{ProviderError, TaskCx};

type KeyOf = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A tool that plays scripts.
#[derive(Clone)]
pub struct ScriptedTool {
    info: ToolInfo,
    list: Arc<Playlist<ToolScript>>,
    probes: Arc<Playlist<Probe>>,
    undoes: Arc<Playlist<End>>,
    later: Duration,
    key_of: Option<Arc<KeyOf>>,
    backend: Backend,
    asked: Arc<Mutex<Vec<ToolCall>>>,
}

impl fmt::Debug for ScriptedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.info.declaration.name;
        f.debug_struct("ScriptedTool").field("name", name).field("list", &self.list).finish_non_exhaustive()
    }
}

impl ScriptedTool {
    /// Declares `declaration` and plays `scripts`, one a call; the last one again and again. Its probe tells the truth and its
    /// compensation works, at once; both are asked only when it declares them. It takes any JSON object.
    ///
    /// # Panics
    /// When there is no script.
    pub fn new(declaration: Declaration, scripts: impl IntoIterator<Item = ToolScript>) -> Self {
        let description = format!("The scripted tool {}.", declaration.name);
        ScriptedTool {
            info: ToolInfo { declaration, description, parameters: serde_json::json!({ "type": "object" }) },
            list: Playlist::new(scripts),
            probes: Playlist::new([Probe::Truth]),
            undoes: Playlist::new([End::Complete]),
            later: Duration::ZERO,
            key_of: None,
            backend: Backend::new(),
            asked: Arc::default(),
        }
    }

    /// What the model is told of it: what it is for, and the JSON schema of its arguments.
    #[must_use]
    pub fn described(mut self, description: &str, parameters: serde_json::Value) -> Self {
        self.info.description = description.to_owned();
        self.info.parameters = parameters;
        self
    }

    /// Changes this backend. Default one of its own.
    #[must_use]
    pub fn on(mut self, backend: &Backend) -> Self {
        self.backend = backend.clone();
        self
    }

    /// Names the intent in arguments, so that two calls of one intent have one key. Default: every call is an intent of its own.
    #[must_use]
    pub fn keyed(mut self, key_of: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key_of = Some(Arc::new(key_of));
        self
    }

    /// Its probe answers these, one a probe; the last one again and again.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn probing(mut self, answers: impl IntoIterator<Item = Probe>) -> Self {
        self.probes = Playlist::new(answers);
        self
    }

    /// Its compensations end like these; the last one again and again. Only [`End::Complete`] undoes anything.
    ///
    /// # Panics
    /// When there is no end.
    #[must_use]
    pub fn undoing(mut self, ends: impl IntoIterator<Item = End>) -> Self {
        self.undoes = Playlist::new(ends);
        self
    }

    /// Its probes and compensations take `time`, unless they are told to stop.
    #[must_use]
    pub fn later_takes(mut self, time: Duration) -> Self {
        self.later = time;
        self
    }

    /// What it changes.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The calls it was given, in order.
    pub fn asked(&self) -> Vec<ToolCall> {
        held(&self.asked).clone()
    }

    /// How many compensations were begun.
    pub fn undo_calls(&self) -> usize {
        self.undoes.calls()
    }

    /// A step of its call; `Err` ends it.
    async fn step(
        &self,
        step: &Step,
        script: &ToolScript,
        work: &mut Work<'_>,
        cx: &ToolCx,
        leash: &Leash,
        more: Duration,
    ) -> Result<(), ProviderError> {
        let deaf = matches!(script.obedience, Obedience::Deaf { .. });
        match step {
            // What was sent is waited for, stop or not, unless it can be taken back.
            Step::Rest(time) if work.sent && !script.takes_back => Leash::new(DEAF).rest(cx.task(), *time + more).await,
            Step::Rest(time) => leash.rest(cx.task(), *time + more).await,
            Step::Checkpoint(checkpoint) => match cx.checkpoint(*checkpoint).await {
                Err(_) if deaf => Ok(()),
                passed => passed,
            },
            Step::Stage => {
                work.stage();
                Ok(())
            }
            Step::Commit => match cx.commit().await {
                Ok(leave) => {
                    work.leave = Some(leave);
                    Ok(())
                }
                Err(_) if script.rogue => Ok(()),
                Err(error) => Err(error),
            },
            Step::Send => {
                self.list.count_sent();
                work.publish();
                Ok(())
            }
            Step::Lose => {
                self.list.count_sent();
                self.backend.lose();
                work.sent = true;
                Ok(())
            }
            Step::Block(gate) => {
                gate.pass();
                Ok(())
            }
        }
    }

    async fn play(&self, script: &ToolScript, work: &mut Work<'_>, cx: &ToolCx) -> Result<(), ProviderError> {
        let leash = Leash::new(script.obedience);
        let (most, seed) = script.jitter.unwrap_or_default();
        let mut more = Pace { jitter: most, seed, ..Pace::AT_ONCE }.draw();
        for step in &script.steps {
            let more = if matches!(step, Step::Rest(_)) { more.next() } else { Duration::ZERO };
            self.step(step, script, work, cx, &leash, more).await?;
        }
        let leash = if work.sent && !script.takes_back { Leash::new(DEAF) } else { leash };
        leash.end(cx.task(), &script.end).await
    }
}

/// A wait that no stop ends.
const DEAF: Obedience = Obedience::Deaf { more: usize::MAX };

tells_of_its_calls!(ScriptedTool, "changes");

impl Tool for ScriptedTool {
    fn info(&self) -> ToolInfo {
        self.info.clone()
    }

    fn key(&self, arguments: &str) -> Option<String> {
        self.key_of.as_ref().and_then(|key_of| key_of(arguments))
    }

    async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        let (script, _, _running) = self.list.call();
        let key = call.key.clone();
        held(&self.asked).push(call);
        let mut work = Work { backend: &self.backend, key, leave: None, aside: 0, sent: false, untidy: script.untidy };
        let played = self.play(&script, &mut work, &cx).await;
        if matches!(played, Err(ProviderError::Stopped)) && work.sent && script.takes_back {
            self.backend.undo(work.key());
        }
        played.map(|()| script.brings.into())
    }

    async fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Result<Outside, ProviderError> {
        let (answer, _, _running) = self.probes.call();
        let so = self.backend.probe(&key);
        cx.rest(self.later).await?;
        match answer {
            Probe::Truth => Ok(so),
            Probe::Says(outside) => Ok(outside),
            Probe::Ends(end) => Leash::new(Obedience::Prompt).end(&cx, &end).await.map(|()| Outside::Unknown),
        }
    }

    async fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> Result<(), ProviderError> {
        let (end, _, _running) = self.undoes.call();
        cx.rest(self.later).await?;
        Leash::new(Obedience::Prompt).end(&cx, &end).await?;
        self.backend.undo(&key);
        Ok(())
    }
}

/// What one call has done outside so far. Dropped, by return, abort or panic, it takes away what lies aside.
struct Work<'a> {
    backend: &'a Backend,
    key: IdempotencyKey,
    leave: Option<Leave>,
    aside: usize,
    sent: bool,
    untidy: bool,
}

impl Work<'_> {
    fn key(&self) -> &IdempotencyKey {
        self.leave.as_ref().map_or(&self.key, Leave::key)
    }

    fn stage(&mut self) {
        self.backend.stage();
        self.aside += 1;
    }

    fn publish(&mut self) {
        let aside = std::mem::take(&mut self.aside);
        self.backend.publish(self.key(), aside);
        self.sent = true;
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.untidy {
            for _ in 0..self.aside {
                self.backend.unstage();
            }
        }
    }
}

#[cfg(test)]
mod tests;
