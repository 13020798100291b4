//! `Brain`: the built-in dialogue. It tells stories, counts, tells the time, repeats, and goes on where it was interrupted; no
//! weights, no key, no network. Layer 2.
//!
//! Laws: it decides only from the conversation it is given and the moment (nothing is kept between two calls), so any session, and
//! one restored after a crash, gets the same answer; what it goes on with begins at the sentence that was cut, as far as it was
//! *heard*. A wish for another pace is carried out by a synthesizer that reads [`Pace`](crate::provider::pace::Pace) marks.
//! Proved by the tests of its parts and by [`check`](crate::provider::check).

mod answer;
mod intent;
mod lines;
mod moment;
mod story;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Pii;
use crate::provider::{Info, Llm, Message, Piece, Prompt, ProviderError, Sink, TaskCx};
use crate::time::wall_unix_millis;

/// The built-in dialogue as a language model.
#[derive(Clone)]
pub struct Brain {
    token: Duration,
    offset: Option<i32>,
    seed: usize,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl fmt::Debug for Brain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brain").field("token", &self.token).field("offset", &self.offset).field("seed", &self.seed).finish()
    }
}

impl Default for Brain {
    fn default() -> Self {
        Self::new()
    }
}

impl Brain {
    /// 15 ms a token, the wall clock, universal time.
    pub fn new() -> Self {
        Brain { token: Duration::from_millis(15), offset: None, seed: 0, clock: Arc::new(wall_unix_millis) }
    }

    /// Time between two tokens; 0 sends as fast as they are taken.
    #[must_use]
    pub fn token_every(mut self, time: Duration) -> Self {
        self.token = time;
        self
    }

    /// The zone in which the time is told, in minutes east of universal time. Without it universal time is told, and called so.
    #[must_use]
    pub fn minutes_east(mut self, minutes: i32) -> Self {
        self.offset = Some(minutes.clamp(-14 * 60, 14 * 60));
        self
    }

    /// Where the stories and the ways of saying things begin; any number.
    #[must_use]
    pub fn seed(mut self, seed: u16) -> Self {
        self.seed = usize::from(seed);
        self
    }

    /// Another wall clock: milliseconds since 1970.
    #[must_use]
    pub fn clock(mut self, unix_millis: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(unix_millis);
        self
    }
}

impl Llm for Brain {
    fn info(&self) -> Info {
        Info::new("brain")
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> Result<(), ProviderError> {
        let conversation: Vec<Turn> = prompt.conversation.into_iter().filter_map(Turn::read).collect();
        let facts = answer::Facts { unix_millis: (self.clock)(), offset: self.offset, seed: self.seed };
        let text = answer::answer(&conversation, facts);
        for token in tokens(&text) {
            cx.rest(self.token).await?;
            cx.until_stopped(out.send(token.into())).await??;
        }
        Ok(())
    }
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    System,
    User,
    Assistant,
}

/// One entry of the conversation. It uses no tools, so calls are nothing to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    speaker: Speaker,
    text: Pii<String>,
    interrupted: bool,
}

impl Turn {
    fn read(message: Message) -> Option<Self> {
        let (speaker, text, interrupted) = match message {
            Message::System { text } => (Speaker::System, text, false),
            Message::User { text } => (Speaker::User, text, false),
            Message::Assistant { text, interrupted } => (Speaker::Assistant, text, interrupted),
            Message::Call { .. } | Message::Result { .. } => return None,
        };
        Some(Turn { speaker, text, interrupted })
    }
}

/// Cuts a text as a model would send it: a word with the space before it, a long word in two.
fn tokens(text: &str) -> Vec<&str> {
    const LONG: usize = 8;
    let mut out = Vec::new();
    for word in text.split_inclusive(' ').scan(0, |from, part| {
        // The space belongs to the word after it.
        let begin = *from;
        *from += part.len();
        Some((begin, *from))
    }) {
        let (begin, end) = (if word.0 == 0 { 0 } else { word.0 - 1 }, if word.1 == text.len() { word.1 } else { word.1 - 1 });
        let whole = &text[begin..end];
        match whole.char_indices().nth(LONG) {
            Some((middle, _)) if whole.chars().count() > LONG + 2 => out.extend([&whole[..middle], &whole[middle..]]),
            _ if whole.is_empty() => {}
            _ => out.push(whole),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_small_and_make_up_the_text() {
        for text in ["", " ", "a", "Hello  there, extraordinarily long  words. ", "Überraschungsgäste kommen", "  x"] {
            let got = tokens(text);
            assert_eq!(got.concat(), text);
            assert!(got.iter().all(|t| !t.is_empty() && t.chars().count() < 16), "{got:?}");
        }
    }
}
