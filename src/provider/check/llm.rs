//! The contract of a language model as a suite. Layer 2.

use std::sync::Arc;
use std::time::Duration;

use super::run::{Interrupt, Run, run};
use super::{Failure, Part, Report, Terms};
use crate::event::{CallEnding, CallFailure, Cancellability, Declaration, NotStarted};
use crate::id::CallId;
use crate::provider::{AnyLlm, Llm, Message, Piece, Prompt, ToolInfo};

/// Runs the suite on a language model and reports.
pub async fn examine_llm(provider: impl Llm, terms: &Terms) -> Report {
    let provider = AnyLlm::new(provider);
    let mut report = Report { name: provider.info().name, failures: Vec::new(), first: None };
    let plain = vec![Message::system("You are a voice assistant."), Message::user("Tell me a long story.")];
    let mut talk = plain.clone();
    let cut = Message::Assistant { text: "Once upon a".into(), interrupted: true };
    talk.extend([cut, Message::user("Grüße, 你好 🙂, go on")]);
    let words = |conversation: &[Message]| Prompt::new(conversation.to_vec());
    report.first = reply(&provider, terms, Part::Plain, words(&plain), &mut report.failures).await;
    // Nothing said: any answer will do, also none.
    reply(&provider, terms, Part::Empty, words(&[Message::user("")]), &mut report.failures).await;
    reply(&provider, terms, Part::Unicode, words(&talk), &mut report.failures).await;
    let asks = vec![plain[0].clone(), Message::user("What time is it in Köln? Look at the clock.")];
    reply(&provider, terms, Part::Tools, with_tools(asks), &mut report.failures).await;
    reply(&provider, terms, Part::Results, with_tools(with_results()), &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        reply(&provider, terms, Part::TwoAtOnce, words(&plain), &mut one),
        reply(&provider, terms, Part::TwoAtOnce, words(&talk), &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    for (part, interrupt) in [
        (Part::StoppedAtOnce, Interrupt::AtOnce),
        (Part::Stopped, Interrupt::AfterFirst),
        (Part::StoppedWhenFull, Interrupt::WhenFull),
        (Part::HungUp, Interrupt::HangUp),
    ] {
        let (provider, prompt) = (provider.clone(), words(&plain));
        let done: Run<Piece> = run(terms, interrupt, move |out, cx| async move { provider.reply(prompt, out, cx).await }).await;
        // A short answer may be complete before the stop.
        done.stopped(part, terms, interrupt, false, &mut report.failures);
    }
    reply(&provider, terms, Part::Again, words(&plain), &mut report.failures).await;
    report
}

async fn reply(provider: &AnyLlm, terms: &Terms, part: Part, prompt: Prompt, failures: &mut Vec<Failure>) -> Option<Duration> {
    let (provider, offered) = (provider.clone(), prompt.tools.clone());
    let asked = part != Part::Empty;
    let done: Run<Piece> = run(terms, Interrupt::Never, move |out, cx| async move { provider.reply(prompt, out, cx).await }).await;
    let says = |piece: &Piece| matches!(piece, Piece::Call { .. }) || !piece.words().trim().is_empty();
    if done.completed(part, terms, asked, failures) && asked && !done.items.iter().any(|i| says(&i.1)) {
        failures.push(Failure::Nothing(part));
    }
    for (_, piece) in &done.items {
        let Piece::Call { tool, arguments } = piece else { continue };
        if !offered.iter().any(|info| info.declaration.name == *tool) {
            failures.push(Failure::NotOffered(part, tool.clone()));
        }
        if serde_json::from_str::<serde_json::Value>(arguments.reveal()).is_err() {
            failures.push(Failure::BadArguments(part, tool.clone()));
        }
    }
    done.first()
}

fn with_tools(conversation: Vec<Message>) -> Prompt {
    let tool = |name, class, description: &str, of: &str| ToolInfo {
        declaration: Declaration::new(name, class),
        description: description.to_owned(),
        parameters: serde_json::json!({
            "type": "object",
            "properties": { of: { "type": "string" } },
            "required": [of],
        }),
    };
    let clock = tool("clock", Cancellability::ReadOnly, "Tells the time in a town.", "town");
    let book = tool("book", Cancellability::Irreversible, "Books a table in a restaurant.", "restaurant");
    Prompt { conversation, tools: Arc::new([clock, book]) }
}

/// A conversation with every way in which a call can stand in it, a round of two among them.
fn with_results() -> Vec<Message> {
    let mut talk = vec![
        Message::system("You are a voice assistant."),
        Message::user("What time is it in Köln, and book a table."),
        Message::assistant("One moment."),
    ];
    let failed = |failure| CallEnding::Failed { failure };
    let endings = [
        Some(CallEnding::Done),
        Some(CallEnding::Cancelled),
        Some(CallEnding::Unknown),
        Some(failed(CallFailure::Timeout)),
        Some(CallEnding::NotStarted { why: NotStarted::Refused }),
        None,
    ];
    for (n, ending) in (1..).zip(endings) {
        let (tool, arguments) = if n == 1 { ("clock", r#"{"town":"Köln"}"#) } else { ("book", r#"{"restaurant":"Zur Post"}"#) };
        talk.push(Message::Call { call: CallId(n), tool: tool.into(), arguments: arguments.into() });
        let text = if ending == Some(CallEnding::Done) { "a quarter past nine" } else { "" };
        talk.push(Message::Result { call: CallId(n), ending, text: text.into() });
        if n == 2 {
            // Cut while it worked, and asked anew.
            talk.push(Message::Assistant { text: "It is".into(), interrupted: true });
            talk.push(Message::user("Go on, and book it now."));
        }
    }
    talk
}
