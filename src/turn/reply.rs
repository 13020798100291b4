//! `reply`: one answer, as it was said, spoken and heard.
//!
//! ```text
//! text    |---------- heard ----------|------------ unheard ------------|
//! chunks  |=== played ===|== partly ==|== queued ==|   not spoken yet    |
//! ```
//! The boundary follows the played samples through the chunks, whose synthesizer said which characters each speaks. Inside a chunk
//! it goes by proportion, and always back to the end of a word: who heard half a word has not heard it.
//! 0 ≤ heard ≤ queued at every moment, and reports of another generation never get here.
//!
//! An answer may take several requests to the model. Their texts follow each other here, and so do their synthesizers, one at a time.

use std::collections::VecDeque;

use crate::event::Timing;
use crate::time::SamplePos;

/// The text of an answer and how far it was heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    said: String,
    /// Bytes and characters of `said` that were given to a synthesizer.
    fed: usize,
    fed_chars: usize,
    /// Characters of `said`.
    chars: usize,
    /// Characters the queued chunks speak.
    spoken: usize,
    /// Chunks that are not fully played.
    chunks: VecDeque<Chunk>,
    /// Characters, and how well known, of the chunks that are.
    done: (usize, Known),
    queued: u64,
    position: u64,
    /// Where the text of each request begins, bytes of `said`.
    requests: Vec<(u32, usize)>,
    /// What the present synthesizer was given and made begins here: bytes of `said`, samples.
    speaking_from: (usize, u64),
}

/// A [`Timing`] with a default: that nothing was played yet is known exactly.
#[derive(Clone, Copy, Debug)]
struct Known(Timing);

impl Default for Known {
    fn default() -> Self {
        Known(Timing::Exact)
    }
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    start: u64,
    samples: u64,
    /// Characters before it.
    first_char: usize,
    chars: usize,
    timing: Timing,
}

/// Where the heard part ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) heard: String,
    pub(super) unheard: String,
    pub(super) timing: Timing,
}

impl Reply {
    /// The model is asked for the `request`-th time: what it says from here on answers that.
    pub(super) fn next_request(&mut self, request: u32) {
        self.requests.push((request, self.said.len()));
    }

    /// The space that must stand before `delta` if it is the first of its request and would run into the words before it.
    pub(super) fn joint(&self, delta: &str) -> &'static str {
        let first = self.requests.last().is_some_and(|(_, start)| *start == self.said.len());
        let apart = |c: Option<char>| c.is_none_or(char::is_whitespace);
        if first && !apart(self.said.chars().last()) && !apart(delta.chars().next()) { " " } else { "" }
    }

    /// The model said more.
    pub(super) fn say(&mut self, delta: &str) {
        self.said.push_str(delta);
        self.chars += delta.chars().count();
    }

    /// `text`, which begins this answer, by request.
    pub(super) fn by_request<'a>(&self, text: &'a str) -> Vec<(u32, &'a str)> {
        let ends = self.requests.iter().skip(1).map(|(_, start)| *start).chain([usize::MAX]);
        let cut = |at: usize| at.min(text.len());
        self.requests.iter().zip(ends).map(|((request, start), end)| (*request, &text[cut(*start)..cut(end)])).collect()
    }

    /// Everything the model said.
    pub(super) fn said(&self) -> &str {
        &self.said
    }

    /// Whether words wait for a synthesizer.
    pub(super) fn has_unfed_words(&self) -> bool {
        !self.said[self.fed..].trim().is_empty()
    }

    /// A synthesizer begins with what was not given to another.
    pub(super) fn speak_on(&mut self) {
        // What the one before it did not account for was spoken by it all the same.
        self.spoken = self.fed_chars;
        self.speaking_from = (self.fed, self.queued);
    }

    /// What the present synthesizer has not been given yet, once there is something to speak; it counts as given from here on.
    pub(super) fn feed(&mut self) -> Option<String> {
        let untold = self.fed == self.speaking_from.0;
        if self.fed == self.said.len() || untold && !self.has_unfed_words() {
            return None;
        }
        let more = self.said[self.fed..].to_owned();
        self.fed = self.said.len();
        self.fed_chars = self.chars;
        Some(more)
    }

    /// Audio was queued for playing.
    pub(super) fn queue(&mut self, samples: u64, chars: usize, timing: Timing) {
        let chars = chars.min(self.chars.saturating_sub(self.spoken));
        let samples = samples.min(u64::MAX - self.queued);
        self.chunks.push_back(Chunk { start: self.queued, samples, first_char: self.spoken, chars, timing });
        self.queued += samples;
        self.spoken += chars;
        self.retire();
    }

    /// Sound got as far as `position`. Returns whether it moved; it never moves back, nor past what was queued.
    pub(super) fn played(&mut self, position: SamplePos) -> bool {
        let position = position.0.min(self.queued);
        if position <= self.position {
            return false;
        }
        self.position = position;
        self.retire();
        true
    }

    fn retire(&mut self) {
        while let Some(chunk) = self.chunks.front()
            && chunk.start + chunk.samples <= self.position
        {
            self.done = (chunk.first_char + chunk.chars, Known(chunk.timing));
            self.chunks.pop_front();
        }
    }

    /// Samples heard.
    pub(super) fn position(&self) -> SamplePos {
        SamplePos(self.position)
    }

    /// Samples queued and not heard.
    pub(super) fn unplayed(&self) -> u64 {
        self.queued - self.position
    }

    /// Whether the synthesizer still has characters to speak.
    pub(super) fn owes_audio(&self) -> bool {
        self.spoken < self.fed_chars
    }

    /// Whether the present synthesizer had words to speak and not one sample came of them.
    pub(super) fn is_mute(&self) -> bool {
        let (from, samples) = self.speaking_from;
        self.queued == samples && self.said[from..self.fed].chars().any(char::is_alphanumeric)
    }

    /// Whether any of it was heard.
    pub(super) fn sounded(&self) -> bool {
        self.position > 0
    }

    /// The text, cut where it was heard.
    pub(super) fn heard(&self) -> Heard {
        let (mut chars, mut timing) = (self.done.0, self.done.1.0);
        if let Some(chunk) = self.chunks.front()
            && self.position > chunk.start
        {
            // Never past the chunk: position is inside it, so the quotient is below one.
            let inside = (chunk.chars as u128 * u128::from(self.position - chunk.start) / u128::from(chunk.samples)) as usize;
            (chars, timing) = (chunk.first_char + inside, Timing::Estimated);
        }
        let raw = self.said.char_indices().nth(chars).map_or(self.said.len(), |(at, _)| at);
        let cut = word_end(&self.said, raw);
        if cut != raw {
            timing = Timing::Estimated;
        }
        Heard { heard: self.said[..cut].to_owned(), unheard: self.said[cut..].to_owned(), timing }
    }

    /// The whole text: it was played to its end.
    pub(super) fn all_heard(&self) -> Heard {
        Heard { heard: self.said.clone(), unheard: String::new(), timing: self.heard().timing }
    }
}

/// The last end of a word at or before byte `at` of `text`: the whole text, or a place with white space on either side.
pub(super) fn word_end(text: &str, at: usize) -> usize {
    if text[at..].chars().next().is_none_or(char::is_whitespace) {
        return at;
    }
    text[..at].char_indices().rev().find(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply(text: &str, chunks: &[(u64, usize, Timing)]) -> Reply {
        let mut reply = Reply::default();
        reply.next_request(1);
        reply.say(text);
        reply.feed();
        for (samples, chars, timing) in chunks {
            reply.queue(*samples, *chars, *timing);
        }
        reply
    }

    #[test]
    fn the_boundary_follows_the_samples_back_to_a_word() {
        use Timing::{Estimated, Exact};
        // "One two " is 8 characters in 800 samples, "three four" 10 in 1000.
        let chunks = [(800, 8, Exact), (1000, 10, Exact)];
        for (position, heard, timing) in [
            (0, "", Exact),
            (100, "", Estimated),     // "O"
            (300, "One", Estimated),  // "One": a space follows
            (400, "One ", Estimated), // "One "
            (699, "One ", Estimated), // "One tw": the second word is not complete
            (799, "One two", Estimated),
            (800, "One two ", Exact),      // the end of a chunk is known
            (1200, "One two ", Estimated), // "thre"
            (1300, "One two three", Estimated),
            (1800, "One two three four", Exact),
            (9999, "One two three four", Exact), // E7: never more than was queued
        ] {
            let mut r = reply("One two three four", &chunks);
            r.played(SamplePos(position));
            let h = r.heard();
            assert_eq!((h.heard.as_str(), h.timing), (heard, timing), "at {position}");
            assert_eq!(h.heard + &h.unheard, "One two three four");
        }
    }

    #[test]
    fn e1_words_played_before_the_cut_are_kept_and_later_ones_are_not() {
        let mut r = reply("alpha beta gamma", &[(480, 6, Timing::Exact), (480, 5, Timing::Exact), (480, 5, Timing::Exact)]);
        r.played(SamplePos(960));
        assert_eq!(r.heard(), Heard { heard: "alpha beta ".into(), unheard: "gamma".into(), timing: Timing::Exact });
    }

    #[test]
    fn a_second_request_is_heard_after_the_first_and_told_apart() {
        let mut r = reply("One moment.", &[(800, 9, Timing::Exact)]);
        r.next_request(2);
        assert_eq!(r.joint("Booked"), " ");
        assert_eq!(r.joint(" Booked"), "");
        r.say(" Booked");
        assert_eq!(r.joint(" for two"), "", "only before the first words");
        r.say(" for two");
        assert!(r.has_unfed_words());
        r.speak_on();
        assert_eq!(r.feed().as_deref(), Some(" Booked for two"));
        assert!(!r.has_unfed_words() && r.is_mute(), "the second has made no sound yet");
        r.queue(1_500, 15, Timing::Exact);
        assert!(!r.is_mute());
        r.played(SamplePos(800 + 700));
        let h = r.heard();
        assert_eq!((h.heard.as_str(), h.unheard.as_str()), ("One moment. Booked", " for two"));
        assert_eq!(r.by_request(&h.heard), [(1, "One moment."), (2, " Booked")]);
        assert_eq!(r.by_request("One"), [(1, "One"), (2, "")]);
        r.played(SamplePos(800));
        assert_eq!(r.by_request(r.said())[1].1, " Booked for two");
    }

    #[test]
    fn a_position_never_goes_back_nor_past_the_queue() {
        let mut r = reply("hello", &[(480, 5, Timing::Exact)]);
        assert!(r.played(SamplePos(200)));
        assert!(!r.played(SamplePos(100)));
        assert!(!r.played(SamplePos(200)));
        assert!(r.played(SamplePos(10_000)));
        assert_eq!((r.position(), r.unplayed()), (SamplePos(480), 0));
    }

    #[test]
    fn white_space_alone_is_not_spoken_and_nothing_is_fed_twice() {
        let mut r = Reply::default();
        r.say(" \n");
        assert_eq!(r.feed(), None);
        r.say("Hi");
        assert_eq!(r.feed().as_deref(), Some(" \nHi"));
        assert_eq!(r.feed(), None);
        r.say(" ");
        assert_eq!(r.feed().as_deref(), Some(" "));
    }

    #[test]
    fn chunks_without_samples_or_with_too_many_characters_do_no_harm() {
        let mut r = reply("häh", &[(0, 2, Timing::Estimated), (10, 999, Timing::Exact), (10, 3, Timing::Exact)]);
        assert!(!r.owes_audio());
        r.played(SamplePos(20));
        assert_eq!(r.heard().heard, "häh");
    }

    proptest! {
        #[test]
        fn e5_heard_is_between_nothing_and_what_was_queued_and_only_grows(
            text in "[a-zé ]{0,40}",
            chunks in prop::collection::vec((0u64..2_000, 0usize..12), 0..8),
            positions in prop::collection::vec(0u64..20_000, 0..12),
        ) {
            let chunks: Vec<_> = chunks.into_iter().map(|(s, c)| (s, c, Timing::Exact)).collect();
            let mut r = reply(&text, &chunks);
            let queued: u64 = chunks.iter().map(|c| c.0).sum();
            let spoken = chunks.iter().map(|c| c.1).sum::<usize>().min(text.chars().count());
            let mut before = 0;
            for position in positions {
                r.played(SamplePos(position));
                prop_assert!(r.position().0 <= queued);
                let h = r.heard();
                prop_assert!(h.heard.chars().count() <= spoken);
                prop_assert!(h.heard.len() >= before, "heard text shrank");
                before = h.heard.len();
                prop_assert_eq!(h.heard + &h.unheard, text.clone());
            }
        }
    }
}
