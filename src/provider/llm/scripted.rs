//! `ScriptedLlm`: a language model that does exactly what a test says. Layer 2; one value, shared by clones.
//!
//! Laws: the n-th call plays the n-th script (the last one again and again); same script and seed, same pieces at the same
//! runtime times. Proved by the tests below.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::event::Retry;
use crate::provider::script::{End, Leash, Obedience, Pace, Playlist, held, tells_of_its_calls};
use crate::provider::{Info, Llm, Message, Piece, Prompt, ProviderError, Sink, Stops, TaskCx};

/// One answer of a [`ScriptedLlm`].
#[derive(Clone, Debug)]
pub struct LlmScript {
    pieces: Vec<Piece>,
    forever: bool,
    copies: usize,
    pace: Pace,
    obedience: Obedience,
    end: End,
}

impl LlmScript {
    /// Says `text` a word at a time (each piece keeps its leading space), without delay, and completes.
    pub fn says(text: &str) -> Self {
        Self::pieces(words(text))
    }

    /// Sends exactly these pieces, without delay, and completes.
    pub fn pieces(pieces: impl IntoIterator<Item = impl Into<Piece>>) -> Self {
        LlmScript {
            pieces: pieces.into_iter().map(Into::into).collect(),
            forever: false,
            copies: 1,
            pace: Pace::AT_ONCE,
            obedience: Obedience::Prompt,
            end: End::Complete,
        }
    }

    /// Asks for `tool` after the pieces it has so far.
    #[must_use]
    pub fn calls(mut self, tool: &str, arguments: &str) -> Self {
        self.pieces.push(Piece::Call { tool: tool.to_owned(), arguments: arguments.into() });
        self
    }

    /// Says `text`, a word at a time, after the pieces it has so far.
    #[must_use]
    pub fn and_says(mut self, text: &str) -> Self {
        self.pieces.extend(words(text).into_iter().map(Piece::from));
        self
    }

    /// Sends nothing and ends with `end`.
    pub fn silent(end: End) -> Self {
        Self::pieces(Vec::<Piece>::new()).then(end)
    }

    /// Sends `piece` for ever, until it is stopped: 64 times a millisecond, far more than anybody takes.
    pub fn flood(piece: &str) -> Self {
        // The pause is what lets paused time go on under a flood.
        LlmScript { forever: true, copies: 64, ..Self::pieces([piece]) }.paced(Duration::ZERO, Duration::from_millis(1))
    }

    /// Waits `first` before the first piece and `every` between pieces.
    #[must_use]
    pub fn paced(mut self, first: Duration, every: Duration) -> Self {
        self.pace = Pace { first, every, ..self.pace };
        self
    }

    /// Waits up to `most` more before each piece, drawn from `seed`.
    #[must_use]
    pub fn jitter(mut self, most: Duration, seed: u64) -> Self {
        self.pace = Pace { jitter: most, seed, ..self.pace };
        self
    }

    /// Begins again after the last piece, for ever. Give it a pace: without one it leaves paused time no moment to go on.
    #[must_use]
    pub fn forever(mut self) -> Self {
        self.forever = true;
        self
    }

    /// Sends every piece `copies` times, as a provider does whose reconnect repeats what was delivered.
    #[must_use]
    pub fn repeated(mut self, copies: usize) -> Self {
        self.copies = copies;
        self
    }

    /// Ignores the stop and sends `more` pieces after it (from its script, then "late" ones).
    #[must_use]
    pub fn deaf(mut self, more: usize) -> Self {
        self.obedience = Obedience::Deaf { more };
        self
    }

    /// Ends like this after the last piece.
    #[must_use]
    pub fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Breaks off after the last piece with this advice.
    #[must_use]
    pub fn then_break(self, retry: Retry) -> Self {
        self.then(End::Break(retry))
    }
}

/// Pieces of one word each; together they are `text` again.
fn words(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices(' ').filter(|&(at, _)| at > 0) {
        pieces.push(text[from..at].to_owned());
        from = at;
    }
    if from < text.len() {
        pieces.push(text[from..].to_owned());
    }
    pieces
}

type Choice = dyn Fn(&Prompt) -> LlmScript + Send + Sync;

/// A language model that plays scripts.
#[derive(Clone)]
pub struct ScriptedLlm {
    list: Arc<Playlist<LlmScript>>,
    choice: Option<Arc<Choice>>,
    asked: Arc<Mutex<Vec<Prompt>>>,
}

impl fmt::Debug for ScriptedLlm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedLlm").field("list", &self.list).field("chooses", &self.choice.is_some()).finish_non_exhaustive()
    }
}

impl ScriptedLlm {
    /// Plays `scripts`, one a call; the last one again and again.
    ///
    /// # Panics
    /// When there is no script.
    pub fn new(scripts: impl IntoIterator<Item = LlmScript>) -> Self {
        ScriptedLlm { list: Playlist::new(scripts), choice: None, asked: Arc::default() }
    }

    /// Says `text` to everything.
    pub fn saying(text: &str) -> Self {
        Self::new([LlmScript::says(text)])
    }

    /// Plays the script that `choice` makes for each prompt, for instance by its last message.
    pub fn choosing(choice: impl Fn(&Prompt) -> LlmScript + Send + Sync + 'static) -> Self {
        // The list only counts the calls.
        ScriptedLlm { choice: Some(Arc::new(choice)), ..Self::saying("") }
    }

    /// The conversations it was given, in order of the calls.
    pub fn asked(&self) -> Vec<Vec<Message>> {
        held(&self.asked).iter().map(|prompt| prompt.conversation.clone()).collect()
    }

    /// The prompts it was given, in order of the calls.
    pub fn prompts(&self) -> Vec<Prompt> {
        held(&self.asked).clone()
    }
}

tells_of_its_calls!(ScriptedLlm, "pieces");

impl Llm for ScriptedLlm {
    fn info(&self) -> Info {
        Info::new("scripted-llm").stops(Stops::DeliveryOnly)
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> Result<(), ProviderError> {
        let (script, _, _running) = self.list.call();
        let script = self.choice.as_ref().map_or(script, |choice| choice(&prompt));
        held(&self.asked).push(prompt);
        let mut waits = script.pace.draw();
        let mut leash = Leash::new(script.obedience);
        let mut next = 0;
        loop {
            let piece = match script.pieces.get(next) {
                Some(piece) => piece.clone(),
                None if script.forever && !script.pieces.is_empty() => {
                    next = 0;
                    continue;
                }
                None if matches!(script.obedience, Obedience::Deaf { .. }) && cx.is_stopped() => " late".into(),
                None => break,
            };
            next += 1;
            leash.rest(&cx, waits.next()).await?;
            for _ in 0..script.copies {
                if !leash.may_send(&cx) {
                    return leash.end(&cx, if script.end == End::Hang { &End::Hang } else { &End::Complete }).await;
                }
                self.list.count_sent();
                let sent = leash.run(&cx, out.send(piece.clone())).await?;
                leash.sent(sent)?;
            }
        }
        leash.end(&cx, &script.end).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Clock, RuntimeClock, Stamp};
    use tokio_util::sync::CancellationToken;

    async fn collect(llm: &ScriptedLlm, stop_after: Option<usize>) -> (Vec<(u64, String)>, Result<(), ProviderError>) {
        let (out, mut from) = Sink::new(64);
        let stop = CancellationToken::new();
        let clock = RuntimeClock::start();
        let cx = TaskCx::new(Arc::new(clock), Stamp::MAX, stop.clone());
        let task = tokio::spawn({
            let llm = llm.clone();
            async move { llm.reply(Prompt::default(), out, cx).await }
        });
        let mut got = Vec::new();
        while let Some(piece) = from.recv().await {
            got.push((clock.now().as_micros() / 1_000, piece.words().to_owned()));
            if Some(got.len()) == stop_after {
                stop.cancel();
            }
        }
        (got, task.await.expect("no panic"))
    }

    #[tokio::test(start_paused = true)]
    async fn words_come_at_their_times_and_make_up_the_text() {
        let script = LlmScript::says("Well, hello there.").paced(Duration::from_millis(50), Duration::from_millis(20));
        let (got, end) = collect(&ScriptedLlm::new([script]), None).await;
        let at: Vec<u64> = got.iter().map(|g| g.0).collect();
        assert_eq!(at, [50, 70, 90]);
        assert_eq!(got.into_iter().map(|g| g.1).collect::<String>(), "Well, hello there.");
        assert!(end.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_times_and_another_other_ones() {
        let run = async |seed| {
            let script = LlmScript::says("a b c d e f").jitter(Duration::from_millis(100), seed);
            collect(&ScriptedLlm::new([script]), None).await.0
        };
        assert_eq!(run(7).await, run(7).await);
        assert_ne!(run(7).await, run(8).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_one_stops_and_a_deaf_one_sends_exactly_so_many_more() {
        let slow = |s: LlmScript| s.paced(Duration::ZERO, Duration::from_millis(10));
        let (got, end) = collect(&ScriptedLlm::new([slow(LlmScript::says("a b c d e f"))]), Some(2)).await;
        assert_eq!((got.len(), matches!(end, Err(ProviderError::Stopped))), (2, true));
        let (got, end) = collect(&ScriptedLlm::new([slow(LlmScript::says("a b c d").deaf(5))]), Some(2)).await;
        assert_eq!((got.len(), end.is_ok()), (7, true), "two, then five after the stop, past the end of its own script");
    }

    #[tokio::test(start_paused = true)]
    async fn scripts_follow_each_other_and_the_last_one_stays() {
        let llm = ScriptedLlm::new([
            LlmScript::says("one").then_break(Retry::Now),
            LlmScript::says("two").repeated(2),
            LlmScript::flood("x"),
        ]);
        let (got, end) = collect(&llm, None).await;
        assert_eq!((got.len(), end.expect_err("it breaks").retry()), (1, Retry::Now));
        assert_eq!(collect(&llm, None).await.0.len(), 2);
        for _ in 0..2 {
            let (got, end) = collect(&llm, Some(100)).await;
            assert!(got.len() >= 100 && matches!(end, Err(ProviderError::Stopped)));
        }
        assert_eq!((llm.calls(), llm.running(), llm.asked().len()), (4, 0, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn it_asks_for_tools_and_answers_by_what_came_back() {
        let llm = ScriptedLlm::choosing(|prompt| match prompt.conversation.last() {
            Some(Message::Result { text, .. }) => LlmScript::says(&format!("It is {}.", text.reveal())),
            _ => LlmScript::says("One moment.").calls("clock", "{}"),
        });
        let ask = async |conversation| {
            let (out, mut from) = Sink::new(64);
            let cx = TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, CancellationToken::new());
            llm.reply(Prompt::new(conversation), out, cx).await.expect("it completes");
            let mut pieces = Vec::new();
            while let Some(piece) = from.recv().await {
                pieces.push(piece);
            }
            pieces
        };
        let asked = ask(vec![Message::user("how late is it")]).await;
        assert_eq!(asked.last(), Some(&Piece::Call { tool: "clock".into(), arguments: "{}".into() }));
        let (call, ending) = (crate::id::CallId(1), Some(crate::event::CallEnding::Done));
        let told = ask(vec![Message::Result { call, ending, text: "noon".into() }]).await;
        assert_eq!(told.iter().map(Piece::words).collect::<String>(), "It is noon.");
        assert_eq!((llm.calls(), llm.prompts().len()), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_never_ends_is_running_until_it_is_dropped() {
        let llm = ScriptedLlm::new([LlmScript::silent(End::Hang).deaf(0)]);
        let (out, _from) = Sink::new(1);
        let stop = CancellationToken::new();
        let cx = TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, stop.clone());
        let task = tokio::spawn({
            let llm = llm.clone();
            async move { llm.reply(Prompt::default(), out, cx).await }
        });
        tokio::task::yield_now().await;
        stop.cancel();
        tokio::task::yield_now().await;
        assert_eq!(llm.running(), 1, "it does not listen");
        task.abort();
        assert!(task.await.expect_err("aborted").is_cancelled());
        assert_eq!(llm.running(), 0);
    }
}
