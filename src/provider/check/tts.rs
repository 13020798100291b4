//! The contract of a synthesizer as a suite. Layer 2.

use std::time::Duration;

use super::run::{Interrupt, run};
use super::{Failure, Part, Report, Terms};
use crate::provider::{AnyTts, Chunk, Tts, Words};

const PLAIN: &[&str] = &["Good ", "morning. This is", " a test of the", " voice, in two sentences."];
const UNICODE: &[&str] = &["Grüße", " aus Köln! ", "e\u{301}te\u{301}, ", "你好。", " 🙂👩\u{200d}👧 ", "3.14", "15\n\n", "—…"];
/// Long enough that no synthesizer has sent it all before it is stopped: about a minute.
const LONG: &str = "This sentence is here to be spoken for a while, until somebody says that it is enough, and then it ends. ";

/// Runs the suite on a synthesizer and reports.
pub async fn examine_tts(provider: impl Tts, terms: &Terms) -> Report {
    let provider = AnyTts::new(provider);
    let mut report = Report { name: provider.info().name, failures: Vec::new(), first: None };
    report.first = speak(&provider, terms, Part::Plain, PLAIN, &mut report.failures).await;
    speak(&provider, terms, Part::Empty, &[], &mut report.failures).await;
    speak(&provider, terms, Part::Unicode, UNICODE, &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        speak(&provider, terms, Part::TwoAtOnce, PLAIN, &mut one),
        speak(&provider, terms, Part::TwoAtOnce, UNICODE, &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    for (part, interrupt, pieces) in [
        (Part::StoppedAtOnce, Interrupt::AtOnce, 0),
        (Part::Stopped, Interrupt::AfterFirst, 10),
        (Part::StoppedWhenFull, Interrupt::WhenFull, 10),
        (Part::HungUp, Interrupt::HangUp, 10),
    ] {
        let (words, text) = Words::new(16);
        for _ in 0..pieces {
            words.try_send(LONG.into()).expect("room for the pieces");
        }
        let provider = provider.clone();
        let done = run(terms, interrupt, move |out, cx| async move { provider.speak(text, out, cx).await }).await;
        // The text has not ended, so that returning `Ok` would be giving up.
        drop(words);
        done.stopped(part, terms, interrupt, true, &mut report.failures);
    }
    speak(&provider, terms, Part::Again, PLAIN, &mut report.failures).await;
    report
}

async fn speak(provider: &AnyTts, terms: &Terms, part: Part, pieces: &[&str], failures: &mut Vec<Failure>) -> Option<Duration> {
    let (words, text) = Words::new(1);
    let given = pieces.iter().map(|p| p.chars().count()).sum::<usize>();
    let provider = provider.clone();
    let giving = async {
        for piece in pieces {
            if words.send((*piece).into()).await.is_err() {
                break;
            }
        }
        drop(words);
    };
    let running = run::<Chunk, _>(terms, Interrupt::Never, move |out, cx| async move { provider.speak(text, out, cx).await });
    let (done, ()) = tokio::join!(running, giving);
    if done.completed(part, terms, given > 0, failures) {
        let chunks = || done.items.iter().map(|i| &i.1);
        let spoken: usize = chunks().map(|c| c.chars).sum();
        if spoken != given {
            failures.push(Failure::Chars { part, given, spoken });
        }
        if given > 0 && chunks().all(|c| c.samples.is_empty()) {
            failures.push(Failure::Nothing(part));
        }
    }
    let mut told = 0;
    if done.items.iter().any(|(_, c)| {
        told += c.chars;
        told > given
    }) {
        failures.push(Failure::SpeaksAhead(part));
    }
    if done.items.iter().any(|(_, c)| c.samples.iter().any(|s| !(-1.0..=1.0).contains(s))) {
        failures.push(Failure::BadSample(part));
    }
    done.first()
}
