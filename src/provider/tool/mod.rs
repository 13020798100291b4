//! `tool`: acts. Work with side effects, told honestly. Layer 2.
//!
//! ```text
//! call ─ read ─▶ checkpoint ─ stage ─▶ checkpoint ─▶ commit() ── waits: the intent is kept ──▶ Leave ─ send ─▶ result
//!                    │ stopped           │ stopped       │ stopped                              │ stopped: not disturbed
//!                    ▼                   ▼               ▼                                      ▼ (unless it can be taken back)
//!                         clean up, Err(Stopped): nothing was changed                 Ok: it happened; Unknown: ask by the key
//! ```
//!
//! Proved by `tool::tests`, by the tests of [`ScriptedTool`], which can be made to do every wrong thing, and by
//! [`check::tool()`](crate::provider::check::tool()), which finds it out.

mod backend;
mod script;
mod scripted;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{ProviderError, TaskCx};
use crate::event::{Checkpoint, Declaration, IdempotencyKey, Outside, Pii};

pub use backend::Backend;
pub use script::{Gate, Probe, ToolScript};
pub use scripted::ScriptedTool;

/// What a tool is and what the model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInfo {
    /// What it declares about stopping, committing and time.
    pub declaration: Declaration,
    /// What it is for, in words for a model.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: serde_json::Value,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// What it is asked: JSON as the model wrote it, not yet checked against the schema.
    pub arguments: Pii<String>,
    /// The key under which it changes something outside. The same intent has the same key.
    pub key: IdempotencyKey,
}

/// A tool.
///
/// 1. `call` is called once for each call that the model makes and the engine starts.
/// 2. It passes its declared checkpoints with [`ToolCx::checkpoint`]; `?` ends it when it was told to stop. It cleans up what it
///    staged then.
/// 3. Before it changes anything outside it asks [`ToolCx::commit`] for leave, and sends the key of the [`Leave`] with what it sends.
/// 4. `Ok` is its result: it happened. [`ProviderError::Unknown`] after a commit: nobody knows. Any other error: nothing was changed.
/// 5. `probe` tells later what became of a key; it never sends anything again.
pub trait Tool: Send + Sync + 'static {
    /// Facts about it.
    fn info(&self) -> ToolInfo;

    /// The key of the intent in these arguments, if the tool can tell one intent from another: two calls of one key are the same
    /// intent, and the second is answered with the result of the first. Default `None`: every call is an intent of its own.
    fn key(&self, arguments: &str) -> Option<String> {
        let _ = arguments;
        None
    }

    /// Carries out one call.
    fn call(&self, call: ToolCall, cx: ToolCx) -> impl Future<Output = Result<Pii<String>, ProviderError>> + Send;

    /// What the outside says about a key, now. Default: that it does not say. Called only when it declares that it probes.
    fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> impl Future<Output = Result<Outside, ProviderError>> + Send {
        let _ = (key, cx);
        async { Ok(Outside::Unknown) }
    }

    /// Undoes what was done under a key. Called only when it declares that it compensates.
    fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> impl Future<Output = Result<(), ProviderError>> + Send {
        let _ = (key, cx);
        async { Err(ProviderError::Refused { why: "this tool cannot undo".into() }) }
    }
}

/// What a call says while it runs.
#[derive(Debug)]
pub enum Phase {
    /// It passed a checkpoint.
    Checkpoint(Checkpoint),
    /// It asks for leave to commit; `true` grants it. Dropping the sender refuses.
    Commit(oneshot::Sender<bool>),
}

/// Leave to change something outside: the intent is kept. Given once a call.
#[derive(Debug)]
pub struct Leave {
    key: IdempotencyKey,
}

impl Leave {
    /// The key to send along.
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }
}

/// What a call is given besides its work.
#[derive(Clone)]
pub struct ToolCx {
    cx: TaskCx,
    key: IdempotencyKey,
    phases: mpsc::Sender<Phase>,
}

impl ToolCx {
    /// A context that reports to the returned receiver, with room for `bound` phases.
    pub fn new(cx: TaskCx, key: IdempotencyKey, bound: usize) -> (Self, mpsc::Receiver<Phase>) {
        let (phases, from) = mpsc::channel(bound);
        (ToolCx { cx, key, phases }, from)
    }

    /// The task's own context: deadline, clock, stop signal.
    pub fn task(&self) -> &TaskCx {
        &self.cx
    }

    /// Passes a checkpoint, or gives [`ProviderError::Stopped`] when the call was told to stop.
    pub async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), ProviderError> {
        if self.cx.is_stopped() {
            return Err(ProviderError::Stopped);
        }
        self.cx.until_stopped(self.phases.send(Phase::Checkpoint(checkpoint))).await?.map_err(|_| ProviderError::Stopped)
    }

    /// Asks for leave to change something outside and waits until the intent is kept. [`ProviderError::Stopped`] when it was too
    /// late, or the tool's class never commits. From `Ok` on a stop no longer ends the call's waits by itself.
    pub async fn commit(&self) -> Result<Leave, ProviderError> {
        if self.cx.is_stopped() {
            return Err(ProviderError::Stopped);
        }
        let (grant, granted) = oneshot::channel();
        let asked = self.cx.until_stopped(self.phases.send(Phase::Commit(grant))).await?;
        asked.map_err(|_| ProviderError::Stopped)?;
        // Not `until_stopped`: whoever is granted leave has it, and only the session knows which of the two came first.
        match granted.await {
            Ok(true) => Ok(Leave { key: self.key.clone() }),
            Ok(false) | Err(_) => Err(ProviderError::Stopped),
        }
    }
}

type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, ProviderError>> + Send + 'a>>;

trait DynTool: Send + Sync + 'static {
    fn info(&self) -> ToolInfo;
    fn key(&self, arguments: &str) -> Option<String>;
    fn call(&self, call: ToolCall, cx: ToolCx) -> Work<'_, Pii<String>>;
    fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Work<'_, Outside>;
    fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> Work<'_, ()>;
}

impl<T: Tool> DynTool for T {
    fn info(&self) -> ToolInfo {
        Tool::info(self)
    }

    fn key(&self, arguments: &str) -> Option<String> {
        Tool::key(self, arguments)
    }

    fn call(&self, call: ToolCall, cx: ToolCx) -> Work<'_, Pii<String>> {
        Box::pin(Tool::call(self, call, cx))
    }

    fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Work<'_, Outside> {
        Box::pin(Tool::probe(self, key, cx))
    }

    fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> Work<'_, ()> {
        Box::pin(Tool::compensate(self, key, cx))
    }
}

/// Any [`Tool`], as the engine keeps it.
#[derive(Clone)]
pub struct AnyTool(Arc<dyn DynTool>);

impl AnyTool {
    /// Wraps a tool.
    pub fn new(tool: impl Tool) -> Self {
        AnyTool(Arc::new(tool))
    }

    /// Facts about it.
    pub fn info(&self) -> ToolInfo {
        self.0.info()
    }

    /// The key of the intent in these arguments; see the trait.
    pub fn key(&self, arguments: &str) -> Option<String> {
        self.0.key(arguments)
    }

    /// Carries out one call; see the trait.
    pub async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        self.0.call(call, cx).await
    }

    /// What the outside says about a key, now; see the trait.
    pub async fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Result<Outside, ProviderError> {
        self.0.probe(key, cx).await
    }

    /// Undoes what was done under a key; see the trait.
    pub async fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> Result<(), ProviderError> {
        self.0.compensate(key, cx).await
    }
}

#[cfg(test)]
mod tests;
