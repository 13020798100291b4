//! The contract of a retriever as a suite. Layer 2.

use std::time::Duration;

use super::run::{Interrupt, Run, run};
use super::{Failure, Part, Report, Terms};
use crate::event::Pii;
use crate::provider::{AnyRetriever, Message, Retriever};

/// Runs the suite on a retriever and reports. What it finds is not judged: nothing found is no fault.
pub async fn examine_retriever(provider: impl Retriever, terms: &Terms) -> Report {
    let provider = AnyRetriever::new(provider);
    let mut report = Report { name: provider.info().name, failures: Vec::new(), first: None };
    let plain = vec![Message::system("You are a voice assistant."), Message::user("When is the next train to Köln?")];
    let mut talk = plain.clone();
    let cut = Message::Assistant { text: "The next train".into(), interrupted: true };
    talk.extend([cut, Message::user("Grüße, 你好 🙂, e\u{301}te\u{301}\n\n—…")]);
    report.first = retrieve(&provider, terms, Part::Plain, &plain, &mut report.failures).await;
    retrieve(&provider, terms, Part::Empty, &[], &mut report.failures).await;
    retrieve(&provider, terms, Part::Unicode, &talk, &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        retrieve(&provider, terms, Part::TwoAtOnce, &plain, &mut one),
        retrieve(&provider, terms, Part::TwoAtOnce, &talk, &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    let stopped = start(&provider, terms, Interrupt::AtOnce, &plain).await;
    // What is found at once may be found before the stop.
    stopped.stopped(Part::StoppedAtOnce, terms, Interrupt::AtOnce, false, &mut report.failures);
    retrieve(&provider, terms, Part::Again, &plain, &mut report.failures).await;
    report
}

async fn start(provider: &AnyRetriever, terms: &Terms, interrupt: Interrupt, conversation: &[Message]) -> Run<Pii<String>> {
    let (provider, conversation) = (provider.clone(), conversation.to_vec());
    run(terms, interrupt, move |out, cx| async move { out.send(provider.retrieve(conversation, cx).await?).await }).await
}

async fn retrieve(
    provider: &AnyRetriever,
    terms: &Terms,
    part: Part,
    conversation: &[Message],
    failures: &mut Vec<Failure>,
) -> Option<Duration> {
    let done = start(provider, terms, Interrupt::Never, conversation).await;
    done.completed(part, terms, true, failures);
    done.first()
}
