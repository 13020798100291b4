//! The stories, and where in one somebody stopped listening. Pure; the texts are data under `assets/dialogue/stories`.

use std::ops::Range;
use std::sync::LazyLock;

use super::words::{Word, plain, words};

/// All stories.
pub(super) static STORIES: LazyLock<Vec<Story>> = LazyLock::new(|| {
    [
        include_str!("../../../../assets/dialogue/stories/harbour_clock.txt"),
        include_str!("../../../../assets/dialogue/stories/garden_robot.txt"),
        include_str!("../../../../assets/dialogue/stories/night_train.txt"),
        include_str!("../../../../assets/dialogue/stories/honest_echo.txt"),
        include_str!("../../../../assets/dialogue/stories/map_maker.txt"),
    ]
    .map(Story::read)
    .into()
});

/// One story.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) title: String,
    about: Vec<String>,
    pub(super) text: String,
    words: Vec<Word>,
    /// Byte ranges of the sentences.
    sentences: Vec<Range<usize>>,
}

/// A place in a story: so many of its words were heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index into [`STORIES`].
    pub(super) story: usize,
    pub(super) heard: usize,
}

/// Fewer words in a row than this may stand in any text.
const SURE: usize = 4;

impl Story {
    /// Title, a line `about: words`, an empty line, the text.
    fn read(file: &str) -> Self {
        let (head, body) = file.split_once("\n\n").expect("a story has a head and a body");
        let (title, about) = head.split_once('\n').expect("a head is two lines");
        let text = body.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut sentences = Vec::new();
        let mut from = 0;
        for (at, _) in
            text.match_indices(['.', '?', '!']).filter(|&(at, _)| text[at + 1..].starts_with(' ') || at + 1 == text.len())
        {
            sentences.push(from..at + 1);
            from = (at + 2).min(text.len());
        }
        let about = plain(about.strip_prefix("about:").expect("the second line says what it is about"));
        Story { title: title.to_owned(), about, words: words(&text), text, sentences }
    }

    /// Whether one of `asked` is what it is about.
    pub(super) fn is_about(&self, asked: &[String]) -> bool {
        asked.iter().any(|w| self.about.contains(w))
    }

    /// What is left after the first `heard` words, from the beginning of the sentence that was cut. Empty when all was heard.
    pub(super) fn rest(&self, heard: usize) -> &str {
        let Some(next) = self.words.get(heard) else { return "" };
        let cut = self.sentences.iter().find(|s| s.contains(&next.from)).expect("every word is in a sentence");
        &self.text[cut.start..]
    }

    /// Whether `text` names it.
    fn is_named_in(&self, text: &[String]) -> bool {
        let title = plain(&self.title);
        text.windows(title.len()).any(|w| w == title)
    }

    /// Whether its last words stand in `text`.
    fn ends_in(&self, text: &[String]) -> bool {
        let last = &self.words[self.words.len() - 2 * SURE..];
        text.windows(last.len()).any(|w| w.iter().zip(last).all(|(t, l)| *t == l.text))
    }

    /// How many of the words at the end of `heard` stand in it in a row, and how many of its words are heard then.
    fn tail(&self, heard: &[String]) -> (usize, usize) {
        (1..=self.words.len())
            .map(|p| {
                let run = self.words[..p].iter().rev().zip(heard.iter().rev()).take_while(|(a, b)| a.text == **b).count();
                (run, p)
            })
            .max_by_key(|&(run, p)| (run, std::cmp::Reverse(p)))
            .unwrap_or((0, 0))
    }
}

/// Where `heard`, the part of an answer that somebody heard, ends in a story. A word cut in the middle does not count as heard.
pub(super) fn place(heard: &str) -> Option<Place> {
    let heard = plain(heard);
    // Its last words were heard: all of it was, whatever came behind (the offer of another).
    if let Some((story, s)) = STORIES.iter().enumerate().find(|(_, s)| s.ends_in(&heard)) {
        return Some(Place { story, heard: s.words.len() });
    }
    let mut best: Option<(usize, Place)> = None;
    for (story, s) in STORIES.iter().enumerate() {
        for end in [heard.len(), heard.len().saturating_sub(1)] {
            let (run, at) = s.tail(&heard[..end]);
            let cut_word =
                end == heard.len() || s.words.get(at).is_some_and(|w| heard.last().is_some_and(|h| w.text.starts_with(h.as_str())));
            if run >= SURE && cut_word && best.is_none_or(|(most, _)| run > most) {
                best = Some((run, Place { story, heard: at }));
            }
        }
    }
    // Or it was announced, and hardly begun.
    let named = || STORIES.iter().position(|s| s.is_named_in(&heard)).map(|story| Place { story, heard: 0 });
    best.map(|(_, place)| place).or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_long_enough_for_a_minute_and_reads_as_sentences() {
        for s in STORIES.iter() {
            // 160 words a minute.
            assert!(s.words.len() >= 200, "{} has {} words", s.title, s.words.len());
            let joined: Vec<&str> = s.sentences.iter().map(|r| &s.text[r.clone()]).collect();
            assert_eq!(joined.join(" "), s.text);
            assert!(joined.iter().all(|s| s.len() < 260), "{}: a sentence too long to hear", s.title);
        }
    }

    #[test]
    fn any_cut_of_any_story_is_found_and_nothing_unheard_is_skipped() {
        for (k, s) in STORIES.iter().enumerate() {
            let told = format!("Gladly. This one is called {}. {}", s.title, s.text);
            let begin = told.len() - s.text.len();
            for cut in (begin + 40..told.len()).step_by(7).filter(|&c| told.is_char_boundary(c)) {
                let place = place(&told[..cut]).expect("it is in a story");
                assert_eq!(place.story, k);
                let rest = s.rest(place.heard);
                let unheard = told[cut..].trim_start();
                assert!(rest.ends_with(unheard.trim_start_matches(|c: char| !c.is_alphanumeric())), "cut at {cut}");
                assert!(rest.len() < unheard.len() + 260, "it repeats more than the cut sentence");
            }
            assert_eq!(s.rest(s.words.len()), "");
            assert_eq!(place(&told).map(|p| p.heard), Some(s.words.len()));
            assert_eq!(place(&told[..begin - 1]), Some(Place { story: k, heard: 0 }), "only the title was heard");
        }
        assert_eq!(place("It is twenty past three."), None);
        assert_eq!(place(""), None);
    }
}
