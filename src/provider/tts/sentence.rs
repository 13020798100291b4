//! Cuts streaming text into what can be spoken at once: sentences, and pieces of very long ones. Layer 2, pure.
//!
//! Laws: the pieces together are exactly the text; none is longer than [`LONGEST`] characters; a sentence is given out as soon as
//! the white space after it is seen; a cut never depends on how the text was split on its way. Proved by the tests below.

use std::collections::VecDeque;

/// The longest piece, in characters (about 12 s of speech).
pub(crate) const LONGEST: usize = 200;
/// A long sentence is cut at a comma only behind this many characters, so that no crumbs are spoken.
const CLAUSE_FROM: usize = 60;
/// The first piece of an answer may end at a comma already behind this many: the first sound is worth it.
const FIRST_CLAUSE_FROM: usize = 32;

/// Words before a full stop that do not end a sentence (lower case).
const ABBREVIATIONS: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "st", "sr", "jr", "vs", "etc", "e.g", "i.e", "vol", "approx", "dept", "inc", "ltd", "mt",
    "capt", "lt", "sgt", "rev", "jan", "feb", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "a.m", "p.m",
];

/// The text that has come and is not yet given out.
#[derive(Debug, Default)]
pub(crate) struct Sentences {
    pending: String,
    /// Where the scan for an end goes on, in bytes of `pending`.
    scanned: usize,
    /// Characters before `scanned`.
    chars: usize,
    /// Byte positions after the last comma and the last space worth cutting at.
    clause: Option<usize>,
    space: Option<usize>,
    begun: bool,
    ready: VecDeque<String>,
}

impl Sentences {
    /// Takes more text.
    pub(crate) fn push(&mut self, text: &str) {
        self.pending.push_str(text);
        self.scan();
    }

    /// The text is complete: what is left is the last piece.
    pub(crate) fn finish(&mut self) {
        if !self.pending.is_empty() {
            self.cut(self.pending.len());
        }
    }

    /// The next piece, if one is complete.
    pub(crate) fn next(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    fn scan(&mut self) {
        while let Some(c) = self.pending[self.scanned..].chars().next() {
            let here = self.scanned;
            let after = here + c.len_utf8();
            if c.is_whitespace() && !self.pending[..here].trim().is_empty() {
                let before = &self.pending[..here];
                if c == '\n' || ends_sentence(before) {
                    self.cut(after);
                    continue;
                }
                if before.ends_with([',', ';', ':', '–', '—']) {
                    if !self.begun && self.chars >= FIRST_CLAUSE_FROM {
                        self.cut(after);
                        continue;
                    }
                    if self.chars >= CLAUSE_FROM {
                        self.clause = Some(after);
                    }
                }
                self.space = Some(after);
            }
            self.scanned = after;
            self.chars += 1;
            if self.chars >= LONGEST {
                self.cut(self.clause.or(self.space).unwrap_or(self.scanned));
            }
        }
    }

    /// Gives out `pending` up to byte `end` and scans the rest anew.
    fn cut(&mut self, end: usize) {
        let rest = self.pending.split_off(end);
        let piece = std::mem::replace(&mut self.pending, rest);
        (self.scanned, self.chars, self.clause, self.space) = (0, 0, None, None);
        self.begun = true;
        self.ready.push_back(piece);
    }
}

/// Whether `text`, with white space behind it, ends a sentence.
fn ends_sentence(text: &str) -> bool {
    let text = text.trim_end_matches(['"', '\'', ')', ']', '”', '’', '»', '*', '_']);
    if text.ends_with(['!', '?', '…', '。', '！', '？']) {
        return true;
    }
    let Some(text) = text.strip_suffix('.') else { return false };
    if text.ends_with('.') {
        return true; // an ellipsis typed as dots
    }
    let word = text.rsplit(|c: char| c.is_whitespace() || "(\"“‘'[".contains(c)).next().unwrap_or(text);
    // Initials ("J. R. Smith") and abbreviations go on; so does the number of a list item, which stands alone.
    let mut letters = word.chars();
    let initial = matches!((letters.next(), letters.next()), (Some(c), None) if c.is_uppercase() && c != 'I');
    let item = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit()) && word.len() == text.trim_start().len();
    !initial && !item && !ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(parts: &[&str]) -> Vec<String> {
        let mut s = Sentences::default();
        let mut out = Vec::new();
        for part in parts {
            s.push(part);
            out.extend(std::iter::from_fn(|| s.next()));
        }
        s.finish();
        out.extend(std::iter::from_fn(|| s.next()));
        out
    }

    #[test]
    fn sentences_end_where_a_reader_ends_them() {
        for (text, want) in [
            ("Hello. How are you? Fine!", vec!["Hello. ", "How are you? ", "Fine!"]),
            (
                "Dr. J. Smith paid 3.50 at 5 p.m. on the 2nd. Then he left.",
                vec!["Dr. J. Smith paid 3.50 at 5 p.m. on the 2nd. ", "Then he left."],
            ),
            ("She said \"go.\" And he went.", vec!["She said \"go.\" ", "And he went."]),
            ("Wait... what? Yes", vec!["Wait... ", "what? ", "Yes"]),
            ("1. Eggs\n2. Milk\n", vec!["1. Eggs\n", "2. Milk\n"]),
            ("It was I. Nobody else.", vec!["It was I. ", "Nobody else."]),
            ("no full stop at all", vec!["no full stop at all"]),
            ("  \n ", vec!["  \n "]),
            ("", vec![]),
        ] {
            assert_eq!(pieces(&[text]), want);
        }
    }

    #[test]
    fn the_first_sentence_is_out_before_the_second_begins() {
        let mut s = Sentences::default();
        s.push("Good morning.");
        assert_eq!(s.next(), None, "3.14 might follow");
        s.push(" ");
        assert_eq!(s.next().as_deref(), Some("Good morning. "));
    }

    #[test]
    fn the_first_long_clause_is_spoken_at_once_and_later_ones_wait_for_their_sentence() {
        let clause = "Once upon a time there was a small harbour, and in it lay a boat. ";
        assert_eq!(pieces(&[clause, clause]), ["Once upon a time there was a small harbour, ", "and in it lay a boat. ", clause]);
    }

    #[test]
    fn text_without_any_mark_is_cut_at_a_space_and_without_a_space_anywhere() {
        let words = "word ".repeat(100);
        assert!(pieces(&[&words]).iter().all(|p| p.chars().count() <= LONGEST && p.ends_with(' ')));
        let wall = "ü".repeat(450);
        assert_eq!(pieces(&[&wall]).iter().map(|p| p.chars().count()).collect::<Vec<_>>(), [200, 200, 50]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_the_way_it_came_does_not_matter(text in "[ab .,!?\n\u{e4}\u{1f600}0-9\"]{0,700}", cuts in prop::collection::vec(0usize..700, 0..20)) {
            let whole = pieces(&[&text]);
            prop_assert_eq!(whole.concat(), text.clone());
            prop_assert!(whole.iter().all(|p| !p.is_empty() && p.chars().count() <= LONGEST));
            let mut at: Vec<usize> = cuts.into_iter().filter(|&c| c <= text.len() && text.is_char_boundary(c)).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let parts: Vec<&str> = at.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            prop_assert_eq!(pieces(&parts), whole);
        }
    }
}
