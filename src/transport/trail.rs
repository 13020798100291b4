//! `transport::trail`: what was sent under which RTP timestamp, and the marks that tell the far end.
//!
//! Layer 2. Fixed size, no lock, no allocation after it is made. Owned by the loudspeaker half of a link; proved below.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Outgoing;
use super::wire::ToClient;
use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, SamplePos};

/// Beats remembered: 10.24 s.
const BEATS: usize = 1024;
/// RTP ticks of one beat (the RTP clock of Opus is the house rate).
pub(super) const BEAT_TICKS: u32 = BLOCK_SAMPLES as u32;

/// One beat that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) generation: Generation,
    /// Place in the generation before the beat's first sample, and after its last.
    pub(super) from: SamplePos,
    pub(super) until: SamplePos,
}

/// The last beats, found by timestamp. Beats follow each other without a hole.
pub(super) struct Trail {
    beats: Box<[Sent]>,
    /// Beats recorded so far.
    count: usize,
    /// Timestamp of the beat to come.
    next: u32,
    last: Sent,
}

impl Trail {
    /// Nothing sent; the first beat will have timestamp `first`.
    pub(super) fn new(first: u32) -> Self {
        Trail { beats: vec![Sent::default(); BEATS].into(), count: 0, next: first, last: Sent::default() }
    }

    /// Timestamp of the beat to come.
    #[cfg_attr(not(feature = "webrtc"), allow(dead_code, reason = "the memory link needs no packets"))]
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The place of `sound` in its generation.
    pub(super) fn place(&self, sound: &Outgoing<'_>) -> Sent {
        // The pump tells where a block ends. It begins where the last one of its generation ended; the first one a link sees of
        // a generation begins a block earlier, if it sounds at all.
        let from = if self.last.generation == sound.generation {
            self.last.until.min(sound.until)
        } else if sound.silent {
            sound.until
        } else {
            sound.until - BLOCK_SAMPLES as u64
        };
        Sent { generation: sound.generation, from, until: sound.until }
    }

    /// Records the next beat and returns its timestamp.
    pub(super) fn record(&mut self, sent: Sent) -> u32 {
        let rtp = self.next;
        self.beats[self.count % BEATS] = sent;
        self.count += 1;
        self.next = self.next.wrapping_add(BEAT_TICKS);
        self.last = sent;
        rtp
    }

    /// Silence of the last generation: a beat in which its position does not move.
    #[cfg_attr(not(feature = "webrtc"), allow(dead_code, reason = "the memory link needs no packets"))]
    pub(super) fn standing(&self) -> Sent {
        Sent { from: self.last.until, ..self.last }
    }

    /// Generation and place of the sample at `rtp`.
    pub(super) fn locate(&self, rtp: u32) -> Option<(Generation, SamplePos)> {
        if rtp == self.next && self.count > 0 {
            return self.last.generation.is_set().then_some((self.last.generation, self.last.until));
        }
        let age = self.next.wrapping_sub(rtp);
        let back = age.div_ceil(BEAT_TICKS) as usize;
        if age == 0 || back > self.count.min(BEATS) {
            return None;
        }
        let beat = self.beats[(self.count - back) % BEATS];
        let into = back as u64 * u64::from(BEAT_TICKS) - u64::from(age);
        beat.generation.is_set().then_some((beat.generation, (beat.from + into).min(beat.until)))
    }
}

/// Tells the far end, once per generation, from which timestamp on it hears that generation.
pub(super) struct Marks {
    to_client: mpsc::Sender<ToClient>,
    closed: CancellationToken,
    told: Generation,
}

impl Marks {
    pub(super) fn new(to_client: mpsc::Sender<ToClient>, closed: CancellationToken) -> Self {
        Marks { to_client, closed, told: Generation::UNSET }
    }

    /// The packet at `rtp` begins with `sent`. A queue that is full means a client that does not read: the link ends.
    pub(super) fn mark(&mut self, rtp: u32, sent: Sent) {
        if sent.generation == self.told || !sent.generation.is_set() {
            return;
        }
        self.told = sent.generation;
        let media = ToClient::Media { rtp, generation: sent.generation, position: sent.from };
        if self.to_client.try_send(media).is_err() {
            self.closed.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound(samples: &[f32; BLOCK_SAMPLES], generation: u64, until: u64, silent: bool) -> Outgoing<'_> {
        Outgoing { samples, generation: Generation(generation), until: SamplePos(until), silent }
    }

    fn at(generation: u64, position: u64) -> Option<(Generation, SamplePos)> {
        Some((Generation(generation), SamplePos(position)))
    }

    #[test]
    fn every_sample_of_the_last_ten_seconds_is_found_across_the_wrap() {
        let block = [0.0; BLOCK_SAMPLES];
        let first = u32::MAX - 1_000;
        let mut trail = Trail::new(first);
        assert_eq!(trail.locate(first), None, "nothing was sent");
        for beat in 1..=3_000u64 {
            let sent = trail.place(&sound(&block, 4, beat * 480, false));
            trail.record(sent);
        }
        for position in [3_000 * 480 - 1, 3_000 * 480 - 480, (3_000 - 1_000) * 480 + 17] {
            assert_eq!(trail.locate(first.wrapping_add(position as u32)), at(4, position));
        }
        assert_eq!(trail.locate(trail.next()), at(4, 3_000 * 480), "the end of what was sent");
        assert_eq!(trail.locate(first), None, "longer ago than is remembered");
        assert_eq!(trail.locate(trail.next().wrapping_add(1)), None, "not sent yet");
    }

    #[test]
    fn silence_does_not_move_the_place_and_a_bump_begins_anew() {
        let block = [0.0; BLOCK_SAMPLES];
        let mut trail = Trail::new(0);
        for beat in [
            sound(&block, 0, 0, true),
            sound(&block, 1, 480, false),
            sound(&block, 1, 480, true),
            sound(&block, 1, 600, false),
            sound(&block, 2, 0, true),
            sound(&block, 2, 480, false),
        ] {
            let sent = trail.place(&beat);
            trail.record(sent);
        }
        assert_eq!(trail.locate(100), None, "before any generation");
        assert_eq!(trail.locate(480 + 7), at(1, 7));
        assert_eq!(trail.locate(960 + 7), at(1, 480));
        assert_eq!(trail.locate(1440 + 479), at(1, 600), "a block that ends early stands at its end");
        assert_eq!(trail.locate(1920 + 100), at(2, 0));
        assert_eq!(trail.locate(2400 + 100), at(2, 100));
    }

    #[test]
    fn a_link_joined_in_the_middle_counts_from_where_the_generation_is() {
        let block = [0.0; BLOCK_SAMPLES];
        let mut trail = Trail::new(0);
        let sent = trail.place(&sound(&block, 9, 4_800, false));
        assert_eq!(sent, Sent { generation: Generation(9), from: SamplePos(4_320), until: SamplePos(4_800) });
        trail.record(sent);
        assert_eq!(trail.locate(1), at(9, 4_321));
    }
}
