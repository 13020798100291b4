//! A model and a tool to try the engine with: both do what they are told, step by step, and keep a book of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use antiphon::event::{CallEnding, Cancellability, Checkpoint, Declaration, IdempotencyKey, Outside, Pii, Retry};
use antiphon::id::CallId;
use antiphon::provider::{Info, Llm, Message, Piece, Prompt, ProviderError, Sink, TaskCx, Tool, ToolCall, ToolCx, ToolInfo};

/// One step of a model.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Text(&'static str),
    Call(&'static str, &'static str),
    Rest(u64),
}

/// A model with an answer for each time that it is asked; then it says "Good."
#[derive(Clone, Default)]
pub(crate) struct Mind {
    answers: Arc<Mutex<VecDeque<Vec<Say>>>>,
    asked: Arc<Mutex<Vec<Prompt>>>,
}

impl Mind {
    pub(crate) fn new(answers: impl IntoIterator<Item = Vec<Say>>) -> Self {
        Mind { answers: Arc::new(Mutex::new(answers.into_iter().collect())), asked: Arc::default() }
    }

    /// What it was asked, every time.
    pub(crate) fn asked(&self) -> Vec<Prompt> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl Llm for Mind {
    fn info(&self) -> Info {
        Info::new("mind")
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> Result<(), ProviderError> {
        self.asked.lock().expect("no panic").push(prompt);
        let answer = self.answers.lock().expect("no panic").pop_front().unwrap_or_else(|| vec![Say::Text("Good.")]);
        for step in answer {
            match step {
                Say::Text(text) => out.send(text.into()).await?,
                Say::Call(tool, arguments) => out.send(Piece::Call { tool: tool.into(), arguments: arguments.into() }).await?,
                Say::Rest(ms) => cx.rest(Duration::from_millis(ms)).await?,
            }
        }
        Ok(())
    }
}

/// One step of a tool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Works, and stops when it is told to.
    Rest(u64),
    Pass(Checkpoint),
    /// Asks for leave to change something outside.
    Commit,
    /// Works, and does not hear a stop.
    Deaf(u64),
    /// What it does is done outside.
    Happen,
    Fail,
    /// It does not know whether it happened.
    Doubt,
    Panic,
}

/// What a desk did, and what became of it outside.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) arguments: Vec<String>,
    pub(crate) running: usize,
    pub(crate) happened: Vec<String>,
    pub(crate) probed: usize,
    pub(crate) undone: Vec<String>,
    /// So often the outside does not say.
    pub(crate) mute_probes: usize,
}

/// A tool that goes through its steps and then gives its answer.
#[derive(Clone)]
pub(crate) struct Desk {
    declaration: Declaration,
    steps: Vec<Step>,
    answer: &'static str,
    one_intent: bool,
    book: Arc<Mutex<Book>>,
}

impl Desk {
    pub(crate) fn new(name: &str, class: Cancellability, steps: impl IntoIterator<Item = Step>) -> Self {
        Desk {
            declaration: Declaration::new(name, class),
            steps: steps.into_iter().collect(),
            answer: "it is four",
            one_intent: false,
            book: Arc::default(),
        }
    }

    pub(crate) fn declares(mut self, change: impl FnOnce(&mut Declaration)) -> Self {
        change(&mut self.declaration);
        self
    }

    /// The same arguments are the same intent.
    pub(crate) fn one_intent(mut self) -> Self {
        self.one_intent = true;
        self
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no panic")
    }
}

/// Counts a call as running until it is dropped, however.
struct Running<'a>(&'a Desk);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.book().running -= 1;
    }
}

impl Tool for Desk {
    fn info(&self) -> ToolInfo {
        ToolInfo {
            declaration: self.declaration.clone(),
            description: "A desk.".into(),
            parameters: serde_json::json!({"type": "object"}),
        }
    }

    fn key(&self, arguments: &str) -> Option<String> {
        self.one_intent.then(|| format!("{}:{arguments}", self.declaration.name))
    }

    #[allow(clippy::disallowed_methods, reason = "paused time: a tool that does not hear a stop")]
    async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        {
            let mut book = self.book();
            book.running += 1;
            book.arguments.push(call.arguments.reveal().clone());
        }
        let _running = Running(self);
        for step in &self.steps {
            match step {
                Step::Rest(ms) => cx.task().rest(Duration::from_millis(*ms)).await?,
                Step::Pass(checkpoint) => cx.checkpoint(*checkpoint).await?,
                Step::Commit => assert_eq!(cx.commit().await?.key(), &call.key, "the key of the call"),
                Step::Deaf(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
                Step::Happen => self.book().happened.push(call.key.0.clone()),
                Step::Fail => return Err(ProviderError::Broken { why: "on purpose".into(), retry: Retry::Later }),
                Step::Doubt => return Err(ProviderError::Unknown { why: "on purpose".into() }),
                Step::Panic => panic!("on purpose"),
            }
        }
        Ok(self.answer.into())
    }

    async fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Result<Outside, ProviderError> {
        cx.rest(Duration::from_millis(20)).await?;
        let mut book = self.book();
        book.probed += 1;
        if book.mute_probes > 0 {
            book.mute_probes -= 1;
            return Ok(Outside::Unknown);
        }
        Ok(if book.happened.contains(&key.0) { Outside::Happened } else { Outside::DidNotHappen })
    }

    async fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> Result<(), ProviderError> {
        cx.rest(Duration::from_millis(20)).await?;
        let mut book = self.book();
        book.happened.retain(|done| *done != key.0);
        book.undone.push(key.0);
        Ok(())
    }
}

/// Checks that every call in a conversation has its one result right after it, and none has a result without a call. What became of
/// the calls comes back.
pub(crate) fn well_formed(prompt: &Prompt) -> Vec<(CallId, Option<CallEnding>)> {
    let mut results = Vec::new();
    let mut open: Vec<CallId> = Vec::new();
    for message in &prompt.conversation {
        match message {
            Message::Call { call, .. } => {
                assert!(!open.contains(call) && results.iter().all(|(known, _)| known != call), "{call} is asked twice");
                open.push(*call);
            }
            Message::Result { call, ending, text } => {
                let place = open.iter().position(|asked| asked == call);
                let place = place.unwrap_or_else(|| panic!("a result of {call} without its call: {:?}", prompt.conversation));
                open.remove(place);
                assert!(*ending == Some(CallEnding::Done) || text.reveal().is_empty(), "a result that nobody brought");
                results.push((*call, *ending));
            }
            Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => {
                assert!(open.is_empty(), "{open:?} have no result yet: {:?}", prompt.conversation);
            }
        }
    }
    assert!(open.is_empty(), "{open:?} have no result: {:?}", prompt.conversation);
    results
}

/// The texts of the results in a conversation.
pub(crate) fn results(prompt: &Prompt) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::Result { text, .. } => Some(text.reveal().clone()),
        _ => None,
    };
    prompt.conversation.iter().filter_map(text).collect()
}

/// What the person said, as the model was shown it.
pub(crate) fn users(prompt: &Prompt) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User { text } => Some(text.reveal().clone()),
        _ => None,
    };
    prompt.conversation.iter().filter_map(text).collect()
}
