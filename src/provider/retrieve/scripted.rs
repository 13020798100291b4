//! `ScriptedRetriever`: a retriever that does exactly what a test says. Layer 2; one value, shared by clones.
//!
//! Laws: the n-th call plays the n-th script (the last one again and again); same script and seed, same times. Proved by the tests
//! below.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Retriever;
use crate::event::Pii;
use crate::provider::script::{End, Leash, Obedience, Pace, Playlist, held};
use crate::provider::{Info, Message, ProviderError, Stops, TaskCx};

/// One look-up of a [`ScriptedRetriever`].
#[derive(Clone, Debug)]
pub struct RetrieverScript {
    text: String,
    pace: Pace,
    obedience: Obedience,
    end: End,
}

impl RetrieverScript {
    /// Finds `text` at once.
    pub fn finds(text: &str) -> Self {
        RetrieverScript { text: text.to_owned(), pace: Pace::AT_ONCE, obedience: Obedience::Prompt, end: End::Complete }
    }

    /// Finds nothing, at once.
    pub fn nothing() -> Self {
        Self::finds("")
    }

    /// Takes `time`.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.pace.first = time;
        self
    }

    /// Takes up to `most` more, drawn from `seed`.
    #[must_use]
    pub fn jitter(mut self, most: Duration, seed: u64) -> Self {
        self.pace = Pace { jitter: most, seed, ..self.pace };
        self
    }

    /// Ignores the stop.
    #[must_use]
    pub fn deaf(mut self) -> Self {
        self.obedience = Obedience::Deaf { more: 0 };
        self
    }

    /// Ends like this when its time is over; only with [`End::Complete`] it gives what it found.
    #[must_use]
    pub fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// A retriever that plays scripts.
#[derive(Clone, Debug)]
pub struct ScriptedRetriever {
    list: Arc<Playlist<RetrieverScript>>,
    asked: Arc<Mutex<Vec<Vec<Message>>>>,
}

impl ScriptedRetriever {
    /// Plays `scripts`, one a call; the last one again and again.
    ///
    /// # Panics
    /// When there is no script.
    pub fn new(scripts: impl IntoIterator<Item = RetrieverScript>) -> Self {
        ScriptedRetriever { list: Playlist::new(scripts), asked: Arc::default() }
    }

    /// Finds `text` whatever is asked.
    pub fn finding(text: &str) -> Self {
        Self::new([RetrieverScript::finds(text)])
    }

    /// The conversations it was given, in order of the calls.
    pub fn asked(&self) -> Vec<Vec<Message>> {
        held(&self.asked).clone()
    }

    /// How often it was called.
    pub fn calls(&self) -> usize {
        self.list.calls()
    }

    /// How many calls have not ended.
    pub fn running(&self) -> usize {
        self.list.running()
    }
}

impl Retriever for ScriptedRetriever {
    fn info(&self) -> Info {
        Info::new("scripted-retriever").stops(Stops::DeliveryOnly)
    }

    async fn retrieve(&self, conversation: Vec<Message>, cx: TaskCx) -> Result<Pii<String>, ProviderError> {
        let (script, _, _running) = self.list.call();
        held(&self.asked).push(conversation);
        let leash = Leash::new(script.obedience);
        leash.rest(&cx, script.pace.draw().next()).await?;
        leash.end(&cx, &script.end).await.map(|()| script.text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Retry;
    use crate::time::{Clock, RuntimeClock, Stamp};
    use tokio_util::sync::CancellationToken;

    const MS: Duration = Duration::from_millis(1);

    /// Asks, and stops it after a while. Gives what came, and when in milliseconds.
    async fn ask(to: &ScriptedRetriever, stop_after: Option<Duration>) -> (Result<String, ProviderError>, u64) {
        let (clock, stop) = (RuntimeClock::start(), CancellationToken::new());
        let cx = TaskCx::new(Arc::new(clock), Stamp::MAX, stop.clone());
        let stopping = async {
            if let Some(after) = stop_after {
                let other = TaskCx::new(Arc::new(clock), Stamp::MAX, CancellationToken::new());
                other.rest(after).await.expect("nobody stops this");
                stop.cancel();
            }
        };
        let asking = async { (to.retrieve(vec![Message::user("who")], cx).await, clock.now().as_micros() / 1_000) };
        let ((found, at), ()) = tokio::join!(asking, stopping);
        (found.map(Pii::into_revealed), at)
    }

    #[tokio::test(start_paused = true)]
    async fn it_finds_in_its_time_and_scripts_follow_each_other() {
        let scripts = [RetrieverScript::finds("a customer since 1999").after(25 * MS), RetrieverScript::nothing()];
        let retriever = ScriptedRetriever::new(scripts);
        let (found, at) = ask(&retriever, None).await;
        assert_eq!((found.expect("found").as_str(), at), ("a customer since 1999", 25));
        for _ in 0..2 {
            assert_eq!(ask(&retriever, None).await.0.expect("nothing is no fault"), "");
        }
        assert_eq!((retriever.calls(), retriever.running()), (3, 0));
        assert_eq!(retriever.asked()[2], [Message::user("who")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_one_stops_at_once_and_a_deaf_one_goes_on() {
        let slow = RetrieverScript::finds("x").after(100 * MS);
        let (end, at) = ask(&ScriptedRetriever::new([slow.clone()]), Some(30 * MS)).await;
        assert!(matches!(end, Err(ProviderError::Stopped)) && at == 30, "at {at}");
        let (end, at) = ask(&ScriptedRetriever::new([slow.deaf()]), Some(30 * MS)).await;
        assert!(end.is_ok() && at == 100, "at {at}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_fails_and_hangs_as_told() {
        let fails = ScriptedRetriever::new([RetrieverScript::finds("x").after(5 * MS).then(End::Break(Retry::Later))]);
        let (end, at) = ask(&fails, None).await;
        assert_eq!((end.expect_err("it breaks").retry(), at), (Retry::Later, 5));
        let hangs = ScriptedRetriever::new([RetrieverScript::nothing().then(End::Hang)]);
        let (end, at) = ask(&hangs, Some(70 * MS)).await;
        assert!(matches!(end, Err(ProviderError::Stopped)) && at == 70, "at {at}");
        let deaf = ScriptedRetriever::new([RetrieverScript::nothing().deaf().then(End::Hang)]);
        let task = tokio::spawn({
            let deaf = deaf.clone();
            async move { ask(&deaf, Some(MS)).await }
        });
        while deaf.running() == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        assert!(task.await.expect_err("aborted").is_cancelled());
        assert_eq!(deaf.running(), 0);
    }
}
