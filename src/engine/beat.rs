//! One beat of one session: 10 ms in, 10 ms out. The same body under the pump's thread and under a test's paused time.
//!
//! Real-time manners: no lock, no allocation but the codec's packet, no log, no wait. What it has for the session goes through rings;
//! the session is woken once, at the end.

use tokio::sync::oneshot;

use super::counters::{Tally, add};
use super::far_ear::FarEar;
use super::uplink::{FarWord, Up};
use crate::audio::jitter::JitterCounts;
use crate::audio::mic::MicChain;
use crate::audio::ring::PlaybackReader;
use crate::id::Generation;
use crate::time::{BEAT, BLOCK_SAMPLES, Clock as _, RuntimeClock, SamplePos, Stamp};
use crate::transport::{MediaIn, MediaOut, Mic, Outgoing};

/// Beats without sound after which the recogniser is spared the silence (2 s).
const SILENT_BEATS: u32 = 200;

/// A session's place in the pump.
pub(super) struct Beat {
    pub(super) clock: RuntimeClock,
    pub(super) media_in: Box<dyn MediaIn>,
    pub(super) media_out: Box<dyn MediaOut>,
    pub(super) mic: MicChain,
    pub(super) reader: PlaybackReader,
    pub(super) far: FarEar,
    pub(super) up: Up,
    /// Where it goes when it is over, so that it is dropped outside the pump.
    pub(super) home: oneshot::Sender<Box<Beat>>,
    pub(super) heard: [f32; BLOCK_SAMPLES],
    /// What was sounded in the last beat: the echo reference.
    pub(super) played: [f32; BLOCK_SAMPLES],
    pub(super) silent_beats: u32,
    pub(super) toll: Toll,
}

/// What the network had taken when it was last counted.
#[derive(Default)]
pub(super) struct Toll {
    mic: JitterCounts,
    dropped: u64,
}

impl Toll {
    /// Counts what the network has taken since.
    fn collect(&mut self, mic: JitterCounts, dropped: u64, tally: &Tally) {
        add(&tally.mic_lost, mic.lost.saturating_sub(self.mic.lost));
        add(&tally.mic_recovered, mic.recovered.saturating_sub(self.mic.recovered));
        add(&tally.mic_overflowed, mic.overflowed.saturating_sub(self.mic.overflowed));
        add(&tally.speaker_dropped, dropped.saturating_sub(self.dropped));
        *self = Toll { mic, dropped };
    }
}

impl Beat {
    /// Whether the session is over.
    pub(super) fn is_gone(&self) -> bool {
        self.up.shared().is_gone()
    }

    /// One beat.
    pub(super) fn run(&mut self) {
        let now = self.clock.now();
        self.listen(now);
        self.speak(now);
        self.toll.collect(self.media_in.counts(), self.media_out.dropped(), self.up.tally());
        self.up.flush();
    }

    fn listen(&mut self, now: Stamp) {
        let (at, sound) = match self.media_in.pull(now, &mut self.heard) {
            Mic::Sound { at } | Mic::Concealed { at } => (at, true),
            Mic::Nothing => (now.back(BEAT), false),
        };
        self.silent_beats = if sound { 0 } else { self.silent_beats.saturating_add(1) };
        let block = self.mic.process(at, &self.heard, &self.played);
        if self.silent_beats <= SILENT_BEATS {
            self.up.mic(at, block.stt);
        }
        if let Some(voice) = block.voice {
            self.up.voice(voice);
        }
    }

    fn speak(&mut self, now: Stamp) {
        let Beat { reader, media_out, far, up, played, .. } = self;
        let pulled = reader.pull(played);
        let sound = Outgoing { samples: played, generation: pulled.generation, until: pulled.position, silent: pulled.silent };
        media_out.push(now, sound);
        far.handed(now, &pulled, &mut |playout| up.playout(playout));
        while let Some(word) = up.far_word() {
            match word {
                FarWord::Playout { rtp, at } => {
                    if let Some((generation, position)) = sounding(&**media_out, rtp) {
                        far.position(now, generation, position, at, &mut |playout| up.playout(playout));
                    }
                }
                FarWord::Silenced { generation, held, rtp, at } => {
                    if let Some((generation, position)) = rtp.and_then(|rtp| sounding(&**media_out, rtp)) {
                        far.position(now, generation, position, at, &mut |playout| up.playout(playout));
                    }
                    far.silenced(now, generation, held, at, &mut |playout| up.playout(playout));
                }
            }
        }
        far.beat(now, &mut |playout| up.playout(playout));
    }
}

/// What was heard when the packet at `rtp` sounds. At the beginning of an answer that is its first sample, and not yet none.
fn sounding(out: &dyn MediaOut, rtp: u32) -> Option<(Generation, SamplePos)> {
    let (generation, position) = out.locate(rtp)?;
    let begins = position == SamplePos::ZERO
        && out
            .locate(rtp.wrapping_add(BLOCK_SAMPLES as u32))
            .is_some_and(|(same, end)| same == generation && end > SamplePos::ZERO);
    Some((generation, if begins { SamplePos(1) } else { position }))
}
