//! What each kind of work runs: the provider's call, wrapped so that everything it brings comes out of its task's queue.
//!
//! Provider code runs in the task only, never in the driver (but for a tool's key, which is guarded). A tool is given no more than its arguments, its key and its context.

use super::ear::EarFeed;
use super::results::{PHASES, RESULTS, Results, What};
use super::tasks::Tasks;
use crate::event::IdempotencyKey;
use crate::id::TaskId;
use crate::provider::{
    AnyLlm, AnyRetriever, AnyStt, AnyTool, AnyTts, AudioStream, Message, Prompt, ProviderError, Sink, ToolCall, ToolCx, Words,
};
use crate::time::Stamp;

/// The machine names what the engine does not have, which is a fault of ours; nothing was changed by it.
fn missing() -> ProviderError {
    ProviderError::Refused { why: "the engine has no such provider".into() }
}

impl Tasks {
    pub(super) fn listen(&mut self, task: TaskId, deadline: Stamp, stt: AnyStt, feed: EarFeed) {
        let (out, results) = Sink::new(RESULTS);
        let (stop, cx) = self.context(deadline);
        self.start(task, What::Listen, stop, Results::Listen(results), async move {
            let (mic, audio) = AudioStream::new(1);
            let listening = stt.listen(audio, out, cx);
            tokio::pin!(listening);
            tokio::select! {
                biased;
                done = &mut listening => return done,
                () = feed.run(mic) => {}
            }
            listening.await
        });
    }

    pub(super) fn retrieve(&mut self, task: TaskId, deadline: Stamp, retriever: Option<AnyRetriever>, context: Vec<Message>) {
        let (out, results) = Sink::new(1);
        let (stop, cx) = self.context(deadline);
        self.start(task, What::Retrieve, stop, Results::Retrieve(results), async move {
            let retriever = retriever.ok_or_else(missing)?;
            out.send(retriever.retrieve(context, cx).await?).await
        });
    }

    pub(super) fn generate(&mut self, task: TaskId, deadline: Stamp, llm: AnyLlm, prompt: Prompt) {
        let (out, results) = Sink::new(RESULTS);
        let (stop, cx) = self.context(deadline);
        self.start(task, What::Generate, stop, Results::Generate(results), async move { llm.reply(prompt, out, cx).await });
    }

    pub(super) fn synthesize(&mut self, task: TaskId, deadline: Stamp, tts: AnyTts, words: Words) {
        let (out, results) = Sink::new(RESULTS);
        let (stop, cx) = self.context(deadline);
        self.start(task, What::Synthesize, stop, Results::Synthesize(results), async move { tts.speak(words, out, cx).await });
    }

    pub(super) fn tool(&mut self, task: TaskId, deadline: Stamp, tool: Option<AnyTool>, call: ToolCall) {
        let (stop, cx) = self.context(deadline);
        let (cx, phases) = ToolCx::new(cx, call.key.clone(), PHASES);
        let (out, result) = Sink::new(1);
        self.start(task, What::Tool, stop, Results::tool(phases, result), async move {
            let tool = tool.ok_or_else(missing)?;
            out.send(tool.call(call, cx).await?).await
        });
    }

    pub(super) fn reconcile(&mut self, task: TaskId, deadline: Stamp, tool: Option<AnyTool>, key: IdempotencyKey) {
        let (out, results) = Sink::new(1);
        let (stop, cx) = self.context(deadline);
        self.start(task, What::Reconcile, stop, Results::Reconcile(results), async move {
            let tool = tool.ok_or_else(missing)?;
            out.send(tool.probe(key, cx).await?).await
        });
    }

    pub(super) fn compensate(&mut self, task: TaskId, deadline: Stamp, tool: Option<AnyTool>, key: IdempotencyKey) {
        let (stop, cx) = self.context(deadline);
        self.start(task, What::Compensate, stop, Results::Compensate, async move {
            tool.ok_or_else(missing)?.compensate(key, cx).await
        });
    }
}
