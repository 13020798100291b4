//! `ScriptedStt`: a recogniser that hears what a test says. Layer 2; one value, shared by clones.
//!
//! Laws: the n-th utterance gives the n-th script (the last one again and again), whatever the audio is; partial transcripts come
//! when that much audio has come. Proved by the tests below.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::provider::script::{End, Leash, Obedience, Pace, Playlist, held, tells_of_its_calls};
use crate::provider::{AudioStream, Info, ProviderError, Sink, Stops, Stt, TaskCx, Transcript};
use crate::time::SampleRate;

/// What a [`ScriptedStt`] makes of one utterance.
#[derive(Clone, Debug)]
pub struct SttScript {
    partials: Vec<(Duration, String)>,
    finals: Vec<String>,
    delay: Duration,
    obedience: Obedience,
    end: End,
}

impl SttScript {
    /// Hears `text` as soon as the utterance is over.
    pub fn hears(text: &str) -> Self {
        SttScript {
            partials: Vec::new(),
            finals: vec![text.to_owned()],
            delay: Duration::ZERO,
            obedience: Obedience::Prompt,
            end: End::Complete,
        }
    }

    /// Hears sound without words: an empty final transcript.
    pub fn nothing() -> Self {
        Self::hears("")
    }

    /// Listens to the end and then ends with `end` without a final transcript.
    pub fn fails(end: End) -> Self {
        SttScript { finals: Vec::new(), ..Self::hears("") }.then(end)
    }

    /// Sends the partial transcript `text` once `heard` of the utterance has come.
    #[must_use]
    pub fn partial(mut self, heard: Duration, text: &str) -> Self {
        self.partials.push((heard, text.to_owned()));
        self.partials.sort_by_key(|p| p.0);
        self
    }

    /// Sends the final transcript so long after the end of the utterance.
    #[must_use]
    pub fn final_after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends one more final transcript, as a broken recogniser does.
    #[must_use]
    pub fn and_again(mut self, text: &str) -> Self {
        self.finals.push(text.to_owned());
        self
    }

    /// Ignores the stop and sends up to `more` of its transcripts after it.
    #[must_use]
    pub fn deaf(mut self, more: usize) -> Self {
        self.obedience = Obedience::Deaf { more };
        self
    }

    /// Ends like this after its transcripts.
    #[must_use]
    pub fn then(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// A recogniser that plays scripts.
#[derive(Clone, Debug)]
pub struct ScriptedStt {
    list: Arc<Playlist<SttScript>>,
    heard: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl ScriptedStt {
    /// Plays `scripts`, one an utterance; the last one again and again.
    ///
    /// # Panics
    /// When there is no script.
    pub fn new(scripts: impl IntoIterator<Item = SttScript>) -> Self {
        ScriptedStt { list: Playlist::new(scripts), heard: Arc::default() }
    }

    /// Hears `text` in everything.
    pub fn hearing(text: &str) -> Self {
        Self::new([SttScript::hears(text)])
    }

    /// The samples of each utterance (16 kHz), as far as it has come.
    pub fn heard(&self) -> Vec<Vec<f32>> {
        held(&self.heard).clone()
    }
}

tells_of_its_calls!(ScriptedStt, "transcripts");

impl Stt for ScriptedStt {
    fn info(&self) -> Info {
        Info::new("scripted-stt").stops(Stops::DeliveryOnly)
    }

    async fn listen(&self, mut audio: AudioStream, out: Sink<Transcript>, cx: TaskCx) -> Result<(), ProviderError> {
        let (script, _, _running) = self.list.call();
        let slot = {
            let mut heard = held(&self.heard);
            heard.push(Vec::new());
            heard.len() - 1
        };
        let mut leash = Leash::new(script.obedience);
        let mut partials = script.partials.iter().peekable();
        let mut samples = 0u64;
        while let Some(piece) = leash.run(&cx, audio.next()).await? {
            samples += piece.gap + piece.samples.len() as u64;
            held(&self.heard)[slot].extend_from_slice(&piece.samples);
            while let Some((_, text)) = partials.next_if(|p| p.0 <= SampleRate::HZ_16000.duration_of(samples)) {
                self.send(&mut leash, &out, &cx, text, false).await?;
            }
        }
        let mut waits = Pace { first: script.delay, ..Pace::AT_ONCE }.draw();
        leash.rest(&cx, waits.next()).await?;
        for text in &script.finals {
            self.send(&mut leash, &out, &cx, text, true).await?;
        }
        leash.end(&cx, &script.end).await
    }
}

impl ScriptedStt {
    async fn send(
        &self,
        leash: &mut Leash,
        out: &Sink<Transcript>,
        cx: &TaskCx,
        text: &str,
        is_final: bool,
    ) -> Result<(), ProviderError> {
        if !leash.may_send(cx) {
            return Ok(());
        }
        self.list.count_sent();
        let sent = leash.run(cx, out.send(Transcript { text: text.into(), is_final })).await?;
        leash.sent(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Heard;
    use crate::time::{Clock, RuntimeClock, Stamp};
    use tokio_util::sync::CancellationToken;

    async fn collect(stt: &ScriptedStt, blocks: usize) -> (Vec<(u64, String, bool)>, Result<(), ProviderError>) {
        let (mic, audio) = AudioStream::new(8);
        let (out, mut from) = Sink::new(8);
        let clock = RuntimeClock::start();
        let cx = TaskCx::new(Arc::new(clock), Stamp::MAX, CancellationToken::new());
        let task = tokio::spawn({
            let stt = stt.clone();
            async move { stt.listen(audio, out, cx).await }
        });
        tokio::spawn(async move {
            for _ in 0..blocks {
                deaf_beat().await;
                mic.send(Heard { samples: vec![0.5; 160], gap: 0 }).await.expect("it listens");
            }
        });
        let mut got = Vec::new();
        while let Some(t) = from.recv().await {
            got.push((clock.now().as_micros() / 1_000, t.text.into_revealed(), t.is_final));
        }
        (got, task.await.expect("no panic"))
    }

    #[allow(clippy::disallowed_methods, reason = "ten virtual milliseconds")]
    async fn deaf_beat() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn partials_come_with_the_audio_and_the_final_after_it() {
        let stt = ScriptedStt::new([SttScript::hears("tell me a story")
            .partial(Duration::from_millis(100), "tell")
            .partial(Duration::from_millis(200), "tell me")
            .final_after(Duration::from_millis(70))]);
        let (got, end) = collect(&stt, 30).await;
        assert!(end.is_ok());
        let want = [(100, "tell", false), (200, "tell me", false), (370, "tell me a story", true)];
        assert_eq!(got, want.map(|(at, text, last)| (at, text.to_owned(), last)));
        assert_eq!(stt.heard()[0], vec![0.5; 4_800]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_be_wrong_in_all_ways() {
        let stt = ScriptedStt::new([
            SttScript::hears("one").and_again("two"),
            SttScript::nothing(),
            SttScript::fails(End::Break(crate::event::Retry::Now)),
        ]);
        assert_eq!(collect(&stt, 1).await.0.iter().filter(|t| t.2).count(), 2);
        assert_eq!(collect(&stt, 1).await.0, [(10, String::new(), true)]);
        let (got, end) = collect(&stt, 1).await;
        assert!(got.is_empty() && end.is_err());
        assert_eq!((stt.calls(), stt.running(), stt.sent()), (3, 0, 3));
    }
}
