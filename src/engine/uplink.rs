//! The rings between a session and its place in the pump. Lock-free, allocated once; the pump's side has real-time manners.
//!
//! | ring | from → to | bound | when full |
//! |---|---|---|---|
//! | voice evidence | pump → session | 64 | merged into the last |
//! | microphone blocks | pump → session | 100 (1 s) | dropped, the next one carries the gap |
//! | playout | pump → session | 256 | dropped; the next one is cumulative |
//! | client's playout | session → pump | 64 | dropped; the next one is cumulative |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use ringbuf::traits::{Consumer as _, Observer as _, Producer as _, Split as _};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use super::counters::{Tally, count};
use crate::audio::mic::VoiceEvidence;
use crate::id::Generation;
use crate::time::Stamp;
use crate::turn::Playout;

/// Bounds of the rings, in items.
const VOICE: usize = 64;
const MIC: usize = 100;
const PLAYOUT: usize = 256;
const FAR: usize = 64;

/// Samples of one microphone block for the recogniser (10 ms at 16 kHz).
pub(super) const STT_BLOCK: usize = 160;

/// One block from the microphone for the recogniser.
#[derive(Clone, Copy, Debug)]
pub(super) struct MicPiece {
    /// Capture time of its first sample.
    pub(super) at: Stamp,
    /// Samples (16 kHz) lost just before it.
    pub(super) gap: u64,
    pub(super) samples: [f32; STT_BLOCK],
}

/// What the client says about its loudspeaker; the pump knows which packet was which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FarWord {
    Playout { rtp: u32, at: Stamp },
    Silenced { generation: Generation, held: bool, rtp: Option<u32>, at: Stamp },
}

/// What both sides look at.
#[derive(Debug, Default)]
pub(super) struct Shared {
    waker: AtomicWaker,
    /// The session waits for room in the playback ring.
    wants_room: AtomicBool,
    /// The pump has been round since the session asked for room.
    beat: AtomicBool,
    /// The session is over: the pump lets go at its next beat.
    gone: AtomicBool,
    /// The link panicked; the pump has let go.
    lost: AtomicBool,
}

impl Shared {
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The pump's side.
pub(super) struct Up {
    voice: HeapProd<VoiceEvidence>,
    merged: Option<VoiceEvidence>,
    mic: HeapProd<MicPiece>,
    gap: u64,
    playout: HeapProd<Playout>,
    far: HeapCons<FarWord>,
    news: bool,
    shared: Arc<Shared>,
    tally: Arc<Tally>,
}

/// The session's side.
pub(super) struct Down {
    voice: HeapCons<VoiceEvidence>,
    mic: HeapCons<MicPiece>,
    playout: HeapCons<Playout>,
    far: HeapProd<FarWord>,
    shared: Arc<Shared>,
    tally: Arc<Tally>,
}

/// Both sides of a session's rings.
pub(super) fn rings(tally: Arc<Tally>) -> (Up, Down) {
    let shared = Arc::<Shared>::default();
    let (voice_in, voice_out) = HeapRb::new(VOICE).split();
    let (mic_in, mic_out) = HeapRb::new(MIC).split();
    let (playout_in, playout_out) = HeapRb::new(PLAYOUT).split();
    let (far_in, far_out) = HeapRb::new(FAR).split();
    let up = Up {
        voice: voice_in,
        merged: None,
        mic: mic_in,
        gap: 0,
        playout: playout_in,
        far: far_out,
        news: false,
        shared: shared.clone(),
        tally: tally.clone(),
    };
    (up, Down { voice: voice_out, mic: mic_out, playout: playout_out, far: far_in, shared, tally })
}

/// Two pieces of evidence as one: the time of the later, the strongest of both, the sum of the weights. The count of blocks is lost,
/// and counted.
fn merge(earlier: VoiceEvidence, later: VoiceEvidence) -> VoiceEvidence {
    VoiceEvidence {
        at: later.at,
        since: later.since,
        speech: earlier.speech.max(later.speech),
        quick: earlier.quick || later.quick,
        level_dbfs: earlier.level_dbfs.max(later.level_dbfs),
        noise_dbfs: later.noise_dbfs,
        explained: earlier.explained.min(later.explained),
        weight: earlier.weight + later.weight,
    }
}

impl Up {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn voice(&mut self, evidence: VoiceEvidence) {
        self.news = true;
        let evidence = match self.merged.take() {
            None => evidence,
            Some(waiting) => match self.voice.try_push(waiting) {
                Ok(()) => evidence,
                Err(waiting) => {
                    count(&self.tally.speech_merged);
                    merge(waiting, evidence)
                }
            },
        };
        if let Err(evidence) = self.voice.try_push(evidence) {
            self.merged = Some(evidence);
        }
    }

    pub(super) fn mic(&mut self, at: Stamp, samples: &[f32; STT_BLOCK]) {
        self.news = true;
        match self.mic.try_push(MicPiece { at, gap: self.gap, samples: *samples }) {
            Ok(()) => self.gap = 0,
            Err(_) => {
                count(&self.tally.stt_gap);
                self.gap += STT_BLOCK as u64;
            }
        }
    }

    pub(super) fn playout(&mut self, playout: Playout) {
        self.news = true;
        if self.playout.try_push(playout).is_err() {
            count(&self.tally.playout_lost);
        }
    }

    pub(super) fn far_word(&mut self) -> Option<FarWord> {
        self.far.try_pop()
    }

    /// The end of the beat: wakes the session, once, when it has something.
    pub(super) fn flush(&mut self) {
        if let Some(waiting) = self.merged.take()
            && let Err(waiting) = self.voice.try_push(waiting)
        {
            self.merged = Some(waiting);
        }
        let wants_room = self.shared.wants_room.load(Ordering::Acquire);
        if wants_room {
            self.shared.beat.store(true, Ordering::Release);
        }
        if std::mem::take(&mut self.news) || wants_room {
            self.shared.waker.wake();
        }
    }
}

impl Down {
    /// Resolves when the pump has something for the session.
    pub(super) async fn ready(&mut self) {
        std::future::poll_fn(|cx| {
            if self.has_news() {
                return Poll::Ready(());
            }
            self.shared.waker.register(cx.waker());
            // The pump may have pushed between the look and the registration.
            if self.has_news() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn has_news(&mut self) -> bool {
        !self.voice.is_empty()
            || !self.mic.is_empty()
            || !self.playout.is_empty()
            || self.shared.beat.swap(false, Ordering::AcqRel)
            || self.shared.lost.load(Ordering::Acquire)
    }

    pub(super) fn voice(&mut self) -> Option<VoiceEvidence> {
        self.voice.try_pop()
    }

    pub(super) fn mic(&mut self) -> Option<MicPiece> {
        self.mic.try_pop()
    }

    pub(super) fn playout(&mut self) -> Option<Playout> {
        self.playout.try_pop()
    }

    /// Passes on what the client says about its loudspeaker.
    pub(super) fn far_word(&mut self, word: FarWord) {
        if self.far.try_push(word).is_err() {
            count(&self.tally.client_report_lost);
        }
    }

    /// Whether to be woken at every beat, because the playback ring was full.
    pub(super) fn want_room(&self, wanted: bool) {
        self.shared.wants_room.store(wanted, Ordering::Release);
    }

    /// Tells the pump to let go at its next beat.
    pub(super) fn leave(&self) {
        self.shared.gone.store(true, Ordering::Release);
    }

    /// Whether the link panicked. Answers once.
    pub(super) fn take_lost(&self) -> bool {
        self.shared.lost.swap(false, Ordering::AcqRel)
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SamplePos;

    fn evidence(ms: u64, speech: f32) -> VoiceEvidence {
        VoiceEvidence { at: Stamp::from_millis(ms), speech, weight: 0.5, ..VoiceEvidence::default() }
    }

    #[test]
    fn evidence_that_finds_no_room_is_merged_into_the_last() {
        let tally = Arc::<Tally>::default();
        let (mut up, mut down) = rings(tally.clone());
        for i in 0..VOICE as u64 + 3 {
            up.voice(evidence(i, if i == 65 { 0.9 } else { 0.1 }));
        }
        let mut seen = Vec::new();
        while let Some(voice) = down.voice() {
            seen.push(voice);
        }
        assert_eq!(seen.len(), VOICE);
        up.flush();
        let last = down.voice().expect("the merged one follows");
        assert_eq!((last.at, last.speech), (Stamp::from_millis(66), 0.9), "the latest time, the strongest word");
        assert_eq!(last.weight, 1.5, "and no voice is lost");
        assert_eq!(tally.picture(0).speech_events_merged_total, 2);
    }

    #[test]
    fn a_lost_microphone_block_is_told_as_a_gap() {
        let (mut up, mut down) = rings(Arc::default());
        for i in 0..MIC as u64 + 2 {
            up.mic(Stamp::from_millis(10 * i), &[0.0; STT_BLOCK]);
        }
        assert_eq!(down.mic().expect("the first").gap, 0);
        up.mic(Stamp::from_millis(5_000), &[0.0; STT_BLOCK]);
        let mut last = None;
        while let Some(piece) = down.mic() {
            last = Some(piece);
        }
        assert_eq!(last.expect("the newest").gap, 2 * STT_BLOCK as u64);
    }

    #[tokio::test]
    async fn the_session_is_woken_once_a_beat() {
        let (mut up, mut down) = rings(Arc::default());
        let waiting = tokio::spawn(async move {
            down.ready().await;
            down.playout()
        });
        tokio::task::yield_now().await;
        let progress = Playout::Progress { generation: Generation(1), position: SamplePos(480), at: Stamp::ZERO };
        up.playout(progress);
        assert!(!waiting.is_finished(), "nothing happens before the end of the beat");
        up.flush();
        assert_eq!(waiting.await.expect("no panic"), Some(progress));
    }
}
