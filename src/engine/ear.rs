//! What a recogniser is given: the microphone from before the onset on, through a queue that drops its oldest and says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, mpsc};

use super::counters::{Tally, add};
use super::uplink::{MicPiece, STT_BLOCK};
use crate::provider::Heard;
use crate::time::{BEAT, Stamp};

/// Sound kept from before an onset: 2 s, so that the policy's pre-roll and the time to decide both fit.
const PREROLL: usize = 200;
/// Blocks that wait for a recogniser, at most (1 s).
const QUEUE: usize = 100;

/// The last two seconds of the microphone. Lives as long as the session, so that a raised generation forgets no sound.
pub(super) struct Preroll {
    blocks: VecDeque<MicPiece>,
}

impl Preroll {
    pub(super) fn new() -> Self {
        Preroll { blocks: VecDeque::with_capacity(PREROLL) }
    }

    pub(super) fn keep(&mut self, piece: MicPiece) {
        if self.blocks.len() == PREROLL {
            self.blocks.pop_front();
        }
        self.blocks.push_back(piece);
    }

    /// The blocks that end after `from`.
    pub(super) fn since(&self, from: Stamp) -> impl Iterator<Item = &MicPiece> {
        self.blocks.iter().filter(move |piece| piece.at + BEAT > from)
    }
}

/// The queue to one recogniser; the session's end.
pub(super) struct EarQueue {
    inner: Arc<Inner>,
}

/// The recogniser's end: feeds its audio stream.
pub(super) struct EarFeed {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    changed: Notify,
    tally: Arc<Tally>,
}

#[derive(Default)]
struct State {
    blocks: VecDeque<Heard>,
    /// Samples dropped just before the first block in the queue.
    gap: u64,
    over: bool,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Held for a push or a pop; a panic in between leaves the queue whole.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A queue for one utterance, beginning with `preroll` as one piece.
pub(super) fn ear<'a>(preroll: impl Iterator<Item = &'a MicPiece>, tally: Arc<Tally>) -> (EarQueue, EarFeed) {
    let mut first = Heard { samples: Vec::new(), gap: 0 };
    for piece in preroll {
        first.samples.extend_from_slice(&piece.samples);
    }
    let mut state = State::default();
    if !first.samples.is_empty() {
        state.blocks.push_back(first);
    }
    let inner = Arc::new(Inner { state: Mutex::new(state), changed: Notify::new(), tally });
    (EarQueue { inner: inner.clone() }, EarFeed { inner })
}

impl EarQueue {
    /// One more block; when the queue is full the oldest goes, and the one after it says how much is missing.
    pub(super) fn push(&self, piece: &MicPiece) {
        let mut state = self.inner.lock();
        if state.over {
            return;
        }
        if state.blocks.len() >= QUEUE
            && let Some(oldest) = state.blocks.pop_front()
        {
            let lost = oldest.gap + oldest.samples.len() as u64;
            state.gap += lost;
            add(&self.inner.tally.stt_gap, lost.div_ceil(STT_BLOCK as u64));
        }
        state.blocks.push_back(Heard { samples: piece.samples.to_vec(), gap: piece.gap });
        drop(state);
        self.inner.changed.notify_one();
    }

    /// The utterance is over.
    pub(super) fn end(&self) {
        self.inner.lock().over = true;
        self.inner.changed.notify_one();
    }
}

impl Drop for EarQueue {
    fn drop(&mut self) {
        self.end();
    }
}

impl EarFeed {
    /// Passes everything on until the utterance is over or the recogniser no longer listens.
    pub(super) async fn run(self, to: mpsc::Sender<Heard>) {
        loop {
            // Room first, so that what cannot be taken yet stays where its oldest can be dropped.
            let Ok(room) = to.reserve().await else { return };
            let next = loop {
                {
                    let mut state = self.inner.lock();
                    if let Some(mut next) = state.blocks.pop_front() {
                        next.gap += std::mem::take(&mut state.gap);
                        break Some(next);
                    }
                    if state.over {
                        break None;
                    }
                }
                self.inner.changed.notified().await;
            };
            match next {
                Some(heard) => room.send(heard),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::AudioStream;

    fn piece(i: u64) -> MicPiece {
        MicPiece { at: Stamp::from_millis(10 * i), gap: 0, samples: [i as f32; STT_BLOCK] }
    }

    #[test]
    fn the_preroll_reaches_back_to_the_block_that_holds_the_moment() {
        let mut preroll = Preroll::new();
        for i in 0..300 {
            preroll.keep(piece(i));
        }
        let firsts = |from: u64| preroll.since(Stamp::from_millis(from)).next().map(|piece| piece.at);
        assert_eq!(firsts(2_555), Some(Stamp::from_millis(2_550)));
        assert_eq!(firsts(2_560), Some(Stamp::from_millis(2_560)));
        assert_eq!(firsts(0), Some(Stamp::from_millis(1_000)), "two seconds, no more");
        assert_eq!(firsts(9_999), None);
    }

    #[tokio::test]
    async fn a_recogniser_that_does_not_keep_up_is_told_what_it_missed() {
        let tally = Arc::<Tally>::default();
        let (queue, feed) = ear([piece(0), piece(1)].iter(), tally.clone());
        for i in 2..2 + QUEUE as u64 + 4 {
            queue.push(&piece(i));
        }
        queue.end();
        queue.push(&piece(999));
        let (to, mut stream) = AudioStream::new(1);
        let feeding = tokio::spawn(feed.run(to));
        let first = stream.next().await.expect("the oldest that is left");
        // The pre-roll (two blocks) and four single ones went.
        assert_eq!((first.gap, first.samples[0]), (6 * STT_BLOCK as u64, 6.0));
        let mut rest = 0;
        while let Some(heard) = stream.next().await {
            assert_eq!(heard.gap, 0);
            rest += 1;
        }
        assert_eq!(rest, QUEUE - 1);
        feeding.await.expect("no panic");
        assert_eq!(tally.picture(0).stt_gap_total, 6);
    }

    #[tokio::test]
    async fn the_stream_ends_with_the_utterance() {
        let (queue, feed) = ear(std::iter::empty(), Arc::default());
        let (to, mut stream) = AudioStream::new(1);
        tokio::spawn(feed.run(to));
        queue.push(&piece(7));
        assert_eq!(stream.next().await.expect("live").samples, vec![7.0; STT_BLOCK]);
        drop(queue);
        assert!(stream.next().await.is_none());
    }
}
