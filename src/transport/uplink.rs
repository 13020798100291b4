//! `transport::uplink`: from the jitter buffer's decisions to microphone blocks, for whatever codec.
//!
//! Layer 2. Real-time manners: everything is allocated by [`Uplink::new`]. Owned by the microphone half of a link.
//! Proved here with a transparent codec, and in `tests/transport.rs` with Opus.

use super::Mic;
use crate::audio::jitter::{Arrival, Due, JitterBuffer, JitterConfig, JitterCounts, MAX_SAMPLES, Taken};
use crate::time::{BLOCK_SAMPLES, Stamp};

/// A codec's decoding side, as the uplink needs it. No failure: what cannot be decoded is made up.
pub(super) trait Decode: Send {
    /// Decodes `payload` into `out`, whose length is what the packet was said to hold. False when it cannot.
    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> bool;
    /// Recovers the packet before `payload` into `out`. False when it cannot.
    fn recover(&mut self, payload: &[u8], out: &mut [f32]) -> bool;
    /// Makes up `out`.
    fn conceal(&mut self, out: &mut [f32]);
}

/// Longest packet, and the block that is being filled.
const ROOM: usize = MAX_SAMPLES as usize + 2 * BLOCK_SAMPLES;

/// Packets in, a block a beat out.
pub(super) struct Uplink<D> {
    jitter: JitterBuffer,
    decoder: D,
    samples: Box<[f32]>,
    /// Whether each sample came over the wire, or was made up.
    heard: Box<[bool]>,
    held: usize,
    /// The stamp told last; stamps never fall.
    told: Stamp,
}

impl<D: Decode> Uplink<D> {
    pub(super) fn new(config: JitterConfig, decoder: D) -> Self {
        Uplink {
            jitter: JitterBuffer::new(config),
            decoder,
            samples: vec![0.0; ROOM].into(),
            heard: vec![false; ROOM].into(),
            held: 0,
            told: Stamp::ZERO,
        }
    }

    pub(super) fn push(&mut self, packet: Arrival<'_>) -> Taken {
        self.jitter.push(packet)
    }

    pub(super) fn counts(&self) -> JitterCounts {
        self.jitter.counts()
    }

    /// Fills `block` with what is due at `now`.
    pub(super) fn pull(&mut self, now: Stamp, block: &mut [f32; BLOCK_SAMPLES]) -> Mic {
        let squeeze = self.jitter.squeeze(now, self.held);
        let begin = if self.held > 0 { Some(self.jitter.position() - self.held as i64) } else { None };
        self.fill(now, BLOCK_SAMPLES);
        if self.held == 0 {
            block.fill(0.0);
            return Mic::Nothing;
        }
        if squeeze {
            self.fill(now, 2 * BLOCK_SAMPLES);
        }
        let begin = begin.unwrap_or_else(|| self.jitter.position() - self.held as i64);
        let heard = if squeeze && self.held >= 2 * BLOCK_SAMPLES {
            // Two blocks become one: the first fades into the second, so that no edge is heard.
            let (first, rest) = self.samples.split_at(BLOCK_SAMPLES);
            for (i, out) in block.iter_mut().enumerate() {
                let w = i as f32 / BLOCK_SAMPLES as f32;
                *out = first[i] * (1.0 - w) + rest[i] * w;
            }
            self.consume(2 * BLOCK_SAMPLES)
        } else {
            let n = self.held.min(BLOCK_SAMPLES);
            block[..n].copy_from_slice(&self.samples[..n]);
            block[n..].fill(0.0);
            self.consume(n)
        };
        self.told = self.jitter.captured(begin).map_or(self.told, |at| at.max(self.told));
        if heard { Mic::Sound { at: self.told } } else { Mic::Concealed { at: self.told } }
    }

    /// Decodes until `want` samples are held or nothing is due.
    fn fill(&mut self, now: Stamp, want: usize) {
        // A packet has at least 2.5 ms, so the turns are few; the bound is for packets that are all skip.
        for _ in 0..16 {
            if self.held >= want {
                return;
            }
            let room = &mut self.samples[self.held..];
            let (len, skip, heard) = match self.jitter.next(now) {
                Due::Packet { payload, samples, skip, .. } => {
                    let whole = self.decoder.decode(payload, &mut room[..samples]);
                    if !whole {
                        self.decoder.conceal(&mut room[..samples]);
                    }
                    (samples, skip, whole)
                }
                Due::Fec { payload, samples, skip } => {
                    let whole = self.decoder.recover(payload, &mut room[..samples]);
                    if !whole {
                        self.decoder.conceal(&mut room[..samples]);
                    }
                    (samples, skip, whole)
                }
                Due::Conceal { samples } => {
                    self.decoder.conceal(&mut room[..samples]);
                    (samples, 0, false)
                }
                Due::Nothing => return,
            };
            room.copy_within(skip..len, 0);
            let kept = len - skip;
            self.heard[self.held..self.held + kept].fill(heard);
            self.held += kept;
        }
    }

    /// Lets go of the first `n` samples; tells whether any of them came over the wire.
    fn consume(&mut self, n: usize) -> bool {
        let heard = self.heard[..n].iter().any(|h| *h);
        self.samples.copy_within(n..self.held, 0);
        self.heard.copy_within(n..self.held, 0);
        self.held -= n;
        heard
    }
}

/// Plain samples as bytes: the codec of links that have no network to save.
pub(super) struct Plain;

impl Decode for Plain {
    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> bool {
        let (samples, rest) = payload.as_chunks::<4>();
        if samples.len() != out.len() || !rest.is_empty() {
            return false;
        }
        for (out, bytes) in out.iter_mut().zip(samples) {
            *out = f32::from_le_bytes(*bytes);
        }
        true
    }

    fn recover(&mut self, _payload: &[u8], _out: &mut [f32]) -> bool {
        false
    }

    fn conceal(&mut self, out: &mut [f32]) {
        out.fill(0.0);
    }
}
