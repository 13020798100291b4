//! `retrieve`: looks up what the model should know before it answers. Layer 2.
//!
//! Proved by the tests of [`ScriptedRetriever`] and by `check`.

mod scripted;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Info, Message, ProviderError, TaskCx};
use crate::event::Pii;

pub use scripted::{RetrieverScript, ScriptedRetriever};

/// Looks things up for a model: documents, memories, a customer's record.
///
/// 1. `retrieve` is called once a turn, before the model is asked, with the conversation and the user's input last.
/// 2. It returns the text that is shown to the model before the conversation; empty when nothing was found.
/// 3. It has a short cap of its own. What is not found in time, or fails, is not waited for: the model is asked without it.
/// 4. Told to stop, it returns [`ProviderError::Stopped`].
pub trait Retriever: Send + Sync + 'static {
    /// Facts about it.
    fn info(&self) -> Info;

    /// Looks things up.
    fn retrieve(&self, conversation: Vec<Message>, cx: TaskCx) -> impl Future<Output = Result<Pii<String>, ProviderError>> + Send;
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<Pii<String>, ProviderError>> + Send + 'a>>;

trait DynRetriever: Send + Sync + 'static {
    fn info(&self) -> Info;
    fn retrieve(&self, conversation: Vec<Message>, cx: TaskCx) -> Work<'_>;
}

impl<R: Retriever> DynRetriever for R {
    fn info(&self) -> Info {
        Retriever::info(self)
    }

    fn retrieve(&self, conversation: Vec<Message>, cx: TaskCx) -> Work<'_> {
        Box::pin(Retriever::retrieve(self, conversation, cx))
    }
}

/// Any [`Retriever`], as the engine keeps it.
#[derive(Clone)]
pub struct AnyRetriever(Arc<dyn DynRetriever>);

impl AnyRetriever {
    /// Wraps a retriever.
    pub fn new(retriever: impl Retriever) -> Self {
        AnyRetriever(Arc::new(retriever))
    }

    /// Facts about it.
    pub fn info(&self) -> Info {
        self.0.info()
    }

    /// Runs it; see the trait.
    pub async fn retrieve(&self, conversation: Vec<Message>, cx: TaskCx) -> Result<Pii<String>, ProviderError> {
        self.0.retrieve(conversation, cx).await
    }
}
