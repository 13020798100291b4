//! One answer's voice on its way: text to the synthesizer, sound from it into the playback ring. Never waits; what finds no room
//! stays here, and whoever makes more is not read meanwhile.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::audio::block::Block;
use crate::audio::ring::{PlaybackWriter, PushError};
use crate::audio::slice::Slicer;
use crate::event::Pii;
use crate::id::Generation;
use crate::provider::Words;
use crate::time::{HOUSE_RATE, SampleRate};

/// Pieces of text that wait for a synthesizer, at most; more wait in the outlet, and the model is not read.
const WORDS: usize = 64;
/// Samples of a chunk that are cut into blocks at a time: a chunk of a minute stays one allocation, the provider's.
const BITE: usize = 960;

/// One synthesizing task, as the outlet keeps it.
pub(super) struct Voice {
    generation: Generation,
    rate: SampleRate,
    words: Option<mpsc::Sender<Pii<String>>>,
    unfed: VecDeque<Pii<String>>,
    text_over: bool,
    taken_in: u64,
    told: u64,
    slicer: Slicer,
    chunks: VecDeque<Vec<f32>>,
    bitten: usize,
    blocks: VecDeque<Block>,
    cut: Vec<Block>,
    /// The synthesizer is done, so the end may be marked.
    over: bool,
    finished: bool,
}

/// What placing sound into the ring came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// Everything is in the ring.
    All,
    /// The ring is full.
    Full,
    /// The ring refused it as stale, and it was dropped.
    Stale,
}

impl Voice {
    /// A voice at the synthesizer's `rate`, and the text stream to hand to it.
    pub(super) fn new(rate: SampleRate, generation: Generation) -> (Self, Words) {
        let (words, stream) = Words::new(WORDS);
        let voice = Voice {
            generation,
            rate,
            words: Some(words),
            unfed: VecDeque::new(),
            text_over: false,
            taken_in: 0,
            told: 0,
            slicer: Slicer::new(rate, generation),
            chunks: VecDeque::new(),
            bitten: 0,
            blocks: VecDeque::new(),
            cut: Vec::new(),
            over: false,
            finished: false,
        };
        (voice, stream)
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn feed(&mut self, text: Pii<String>) {
        self.unfed.push_back(text);
        self.pass_on();
    }

    pub(super) fn end_text(&mut self) {
        self.text_over = true;
        self.pass_on();
    }

    /// Gives the synthesizer the text there is room for.
    pub(super) fn pass_on(&mut self) {
        let Some(words) = &self.words else { return };
        while let Some(text) = self.unfed.pop_front() {
            match words.try_send(text) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(text)) => {
                    self.unfed.push_front(text);
                    return;
                }
                // It has ended or does not listen; what that means is told by its end.
                Err(mpsc::error::TrySendError::Closed(_)) => self.unfed.clear(),
            }
        }
        if self.text_over {
            self.words = None;
        }
    }

    /// Whether text waits, because the synthesizer takes no more at the moment.
    pub(super) fn is_full(&self) -> bool {
        !self.unfed.is_empty()
    }

    /// Resolves when the synthesizer has room for text, or is gone.
    pub(super) fn word_room(&self) -> Option<mpsc::Sender<Pii<String>>> {
        self.words.clone().filter(|_| self.is_full())
    }

    /// How long a chunk is at the house rate. Over an answer the lengths add up to the length of what is played.
    pub(super) fn length(&mut self, samples: usize) -> u64 {
        self.taken_in += samples as u64;
        let from = u128::from(self.rate.hz());
        let whole = ((u128::from(self.taken_in) * u128::from(HOUSE_RATE.hz()) + from / 2) / from) as u64;
        whole - std::mem::replace(&mut self.told, whole)
    }

    /// Queues a chunk that may be played.
    pub(super) fn play(&mut self, samples: Vec<f32>) {
        if !samples.is_empty() {
            self.chunks.push_back(samples);
        }
    }

    /// The synthesizer is done: what is queued ends the answer.
    pub(super) fn end_sound(&mut self) {
        self.over = true;
        self.text_over = true;
        self.unfed.clear();
        self.words = None;
    }

    /// Whether nothing more will come of it.
    pub(super) fn is_done(&self) -> bool {
        self.over && self.blocks.is_empty() && (self.finished || self.taken_in == 0)
    }

    /// Puts as much sound into the ring as it takes.
    pub(super) fn place(&mut self, ring: &mut PlaybackWriter) -> Placed {
        loop {
            while let Some(block) = self.blocks.front() {
                match ring.push(*block) {
                    Ok(()) => {
                        self.blocks.pop_front();
                    }
                    Err(PushError::Full(_)) => return Placed::Full,
                    Err(PushError::Stale(_)) => {
                        self.silence();
                        return Placed::Stale;
                    }
                }
            }
            if let Some(chunk) = self.chunks.front() {
                let end = chunk.len().min(self.bitten + BITE);
                self.slicer.push(&chunk[self.bitten..end], &mut self.cut);
                self.bitten = end;
                if end == chunk.len() {
                    self.chunks.pop_front();
                    self.bitten = 0;
                }
            } else if self.over && !self.finished && self.taken_in > 0 {
                self.finished = true;
                self.slicer.finish(&mut self.cut);
            } else {
                return Placed::All;
            }
            self.blocks.extend(self.cut.drain(..));
        }
    }

    /// Drops all sound that is not in the ring; nothing more is ever placed.
    pub(super) fn silence(&mut self) {
        self.chunks.clear();
        self.blocks.clear();
        self.bitten = 0;
        self.finished = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::fence::Fence;
    use crate::audio::ring::playback_ring;
    use crate::time::BLOCK_SAMPLES;

    #[test]
    fn lengths_add_up_to_what_is_played_at_any_rate() {
        for rate in [SampleRate::HZ_16000, SampleRate::HZ_22050, SampleRate::HZ_24000, SampleRate::HZ_48000] {
            let fence = Fence::new();
            fence.raise(Generation(1));
            let (mut writer, mut reader) = playback_ring(1_000, fence);
            let (mut voice, _words) = Voice::new(rate, Generation(1));
            let mut told = 0;
            for n in [1, 7, 441, 1_000, 4_801, 333] {
                told += voice.length(n);
                voice.play(vec![0.1; n]);
            }
            voice.end_sound();
            assert_eq!(voice.place(&mut writer), Placed::All);
            assert!(voice.is_done());
            assert_eq!(writer.ledger().produced, told, "{rate}");
            let mut out = [0.0; BLOCK_SAMPLES];
            let ended = (0..1_000).any(|_| reader.pull(&mut out).ended);
            assert!(ended, "the last block is marked");
        }
    }

    #[test]
    fn what_finds_no_room_stays_and_what_is_stale_goes() {
        let fence = Fence::new();
        fence.raise(Generation(1));
        let (mut writer, _reader) = playback_ring(4, fence.clone());
        let (mut voice, _words) = Voice::new(HOUSE_RATE, Generation(1));
        voice.length(48_000);
        voice.play(vec![0.1; 48_000]);
        assert_eq!(voice.place(&mut writer), Placed::Full);
        assert_eq!(writer.ledger().produced, 4 * BLOCK_SAMPLES as u64);
        fence.raise(Generation(2));
        assert_eq!(voice.place(&mut writer), Placed::Stale);
        assert_eq!(voice.place(&mut writer), Placed::All, "nothing is left of it");
    }
}
