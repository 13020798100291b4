//! One voice on its way: text to the synthesizer, sound from it into the playback ring. Never waits; what finds no room stays here,
//! and whoever makes more is not read meanwhile.
//!
//! An answer is spoken by one voice after another (one for each time that the model was asked). [`Voices`] keeps them in their order:
//! a later one of the same generation waits until the earlier is wholly in the ring, and its positions go on from there.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::mpsc;

use crate::audio::block::Block;
use crate::audio::ring::{PlaybackWriter, PushError};
use crate::audio::slice::Slicer;
use crate::event::Pii;
use crate::id::{Generation, TaskId};
use crate::provider::Words;
use crate::time::{HOUSE_RATE, SamplePos, SampleRate};

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
    /// Where its first sample stands in the generation: after all voices before it.
    base: SamplePos,
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
            base: SamplePos::ZERO,
            chunks: VecDeque::new(),
            bitten: 0,
            blocks: VecDeque::new(),
            cut: Vec::new(),
            over: false,
            finished: false,
        };
        (voice, stream)
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

    /// The synthesizer is done: what is queued ends its part of the answer.
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
            let base = self.base.0;
            self.blocks.extend(self.cut.drain(..).map(|block| Block { position: block.position + base, ..block }));
        }
    }

    /// Where the voice after it begins.
    fn end(&self) -> SamplePos {
        self.base + self.slicer.position().0
    }

    /// Drops all sound that is not in the ring; nothing more is ever placed.
    pub(super) fn silence(&mut self) {
        self.chunks.clear();
        self.blocks.clear();
        self.bitten = 0;
        self.finished = true;
    }
}

/// The voices of a session, in the order in which they were started.
#[derive(Default)]
pub(super) struct Voices {
    by_task: BTreeMap<TaskId, Voice>,
    /// Of this generation so much is in the ring, by voices that are done.
    placed: (Generation, SamplePos),
}

impl Voices {
    pub(super) fn add(&mut self, task: TaskId, voice: Voice) {
        self.by_task.insert(task, voice);
    }

    pub(super) fn get_mut(&mut self, task: TaskId) -> Option<&mut Voice> {
        self.by_task.get_mut(&task)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Voice> {
        self.by_task.values()
    }

    /// Drops the sound of every voice older than `generation`.
    pub(super) fn silence_before(&mut self, generation: Generation) {
        for voice in self.by_task.values_mut().filter(|voice| voice.generation < generation) {
            voice.silence();
        }
    }

    /// Gives the synthesizers text and puts as much sound into the ring as it takes, in order. Whether the ring is full comes back;
    /// `stale` is told each generation that the ring refused.
    pub(super) fn place(&mut self, ring: &mut PlaybackWriter, mut stale: impl FnMut(Generation)) -> bool {
        let mut full = false;
        // The generation whose earlier voice is not wholly in the ring.
        let mut busy = Generation::UNSET;
        for voice in self.by_task.values_mut() {
            voice.pass_on();
            // The ring may get room between two tries: whoever comes later must not be the one to find it.
            if full || voice.generation == busy {
                continue;
            }
            // (One of an older generation has nothing to place, or is refused.)
            if self.placed.0 < voice.generation {
                self.placed = (voice.generation, SamplePos::ZERO);
            }
            voice.base = self.placed.1;
            match voice.place(ring) {
                Placed::All => {}
                Placed::Full => full = true,
                Placed::Stale => stale(voice.generation),
            }
            if voice.generation == self.placed.0 {
                if voice.is_done() {
                    self.placed.1 = voice.end();
                } else {
                    busy = voice.generation;
                }
            }
        }
        self.by_task.retain(|_, voice| !voice.is_done());
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::fence::Fence;
    use crate::audio::ring::{PlaybackReader, playback_ring};
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

    /// Everything the reader gets in one go, as places in the generation.
    fn pull(reader: &mut PlaybackReader) -> (u64, u64) {
        let mut out = [0.0; BLOCK_SAMPLES];
        let pulled = reader.pull(&mut out);
        (pulled.position.0, pulled.sounding as u64)
    }

    #[test]
    fn a_later_voice_goes_on_where_the_earlier_ended_and_never_overtakes_it() {
        let fence = Fence::new();
        fence.raise(Generation(1));
        let (mut writer, mut reader) = playback_ring(2, fence);
        let mut voices = Voices::default();
        let mut never = |generation: Generation| panic!("{generation} is not stale");
        for (task, samples) in [(1, 1_700), (2, 1_000)] {
            let (mut voice, _words) = Voice::new(HOUSE_RATE, Generation(1));
            voice.length(samples);
            voice.play(vec![0.5; samples]);
            voice.end_sound();
            voices.add(TaskId(task), voice);
        }
        let mut last = 0;
        assert!(voices.place(&mut writer, &mut never), "two blocks fit");
        loop {
            // One block of room, found by whoever asks first.
            let (position, sounding) = pull(&mut reader);
            assert_eq!(position, last + sounding, "no hole and no double");
            last = position;
            if !voices.place(&mut writer, &mut never) && sounding == 0 {
                break;
            }
        }
        assert_eq!(last, 2_700);
        assert_eq!(voices.iter().count(), 0);
    }

    #[test]
    fn a_voice_waits_for_one_that_still_speaks_and_a_new_generation_begins_at_zero() {
        let fence = Fence::new();
        fence.raise(Generation(1));
        let (mut writer, mut reader) = playback_ring(40, fence.clone());
        let mut voices = Voices::default();
        let mut never = |generation: Generation| panic!("{generation} is not stale");
        for (task, generation) in [(1, 1), (2, 1)] {
            let (mut voice, _words) = Voice::new(HOUSE_RATE, Generation(generation));
            voice.length(480);
            voice.play(vec![0.5; 480]);
            voices.add(TaskId(task), voice);
        }
        voices.get_mut(TaskId(2)).expect("it is there").end_sound();
        voices.place(&mut writer, &mut never);
        assert_eq!(writer.ledger().produced, 480, "the first is not over");
        voices.get_mut(TaskId(1)).expect("it is there").end_sound();
        voices.place(&mut writer, &mut never);
        assert_eq!((pull(&mut reader), pull(&mut reader)), ((480, 480), (960, 480)));
        fence.raise(Generation(2));
        let (mut voice, _words) = Voice::new(HOUSE_RATE, Generation(2));
        voice.length(480);
        voice.play(vec![0.5; 480]);
        voice.end_sound();
        voices.add(TaskId(3), voice);
        voices.place(&mut writer, &mut never);
        let (position, sounding) = pull(&mut reader);
        assert_eq!(position, sounding);
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
