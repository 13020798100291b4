//! Words as the brain compares them: lower case, without marks, and forgiving, since recognisers err. Pure.

/// A word of a text and where it stands in it, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The words of `text`: runs of letters and digits, apostrophes inside dropped, lower case.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut out: Vec<Word> = Vec::new();
    let mut open = false;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if c.is_alphanumeric() {
            if !open {
                out.push(Word { text: String::new(), from: at, to: end });
                open = true;
            }
            let word = out.last_mut().expect("opened above");
            word.text.extend(c.to_lowercase());
            word.to = end;
        } else if !(open && matches!(c, '\'' | '’')) {
            open = false;
        }
    }
    out
}

/// Only the texts of the words.
pub(super) fn plain(text: &str) -> Vec<String> {
    words(text).into_iter().map(|w| w.text).collect()
}

/// Whether a recogniser may have meant `key` by `word`: the same, or one letter off in words of five letters and more, two in
/// words of eight and more.
pub(super) fn alike(word: &str, key: &str) -> bool {
    let allowed = match key.chars().count() {
        0..=4 => 0,
        5..=7 => 1,
        _ => 2,
    };
    word == key || (allowed > 0 && distance(word, key, allowed) <= allowed)
}

/// Letters to insert, delete or replace to get from `a` to `b`; more than `most` is only said to be more.
fn distance(a: &str, b: &str, most: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return most + 1;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let replaced = corner + usize::from(ca != cb);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

const UNITS: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// `n` in words: `forty-two`, `one hundred and seven`. Up to 999,999.
pub(super) fn spelled(n: u32) -> String {
    match n {
        0..=19 => UNITS[n as usize].to_owned(),
        20..=99 => {
            let tens = TENS[(n / 10 - 2) as usize];
            if n.is_multiple_of(10) { tens.to_owned() } else { format!("{tens}-{}", UNITS[(n % 10) as usize]) }
        }
        100..=999 => join(UNITS[(n / 100) as usize], "hundred", n % 100),
        _ => join(&spelled(n / 1_000), "thousand", n % 1_000),
    }
}

fn join(many: &str, unit: &str, rest: u32) -> String {
    match rest {
        0 => format!("{many} {unit}"),
        1..=99 => format!("{many} {unit} and {}", spelled(rest)),
        _ => format!("{many} {unit} {}", spelled(rest)),
    }
}

/// The number that `words` begin with, and how many words it takes: `["forty", "two", "things"]` gives 42 and 2.
pub(super) fn number(words: &[String]) -> Option<(u32, usize)> {
    let unit = |w: &str| UNITS.iter().position(|u| *u == w).map(|k| k as u32);
    let tens = |w: &str| TENS.iter().position(|t| *t == w).map(|k| (k as u32 + 2) * 10);
    let word = |k: usize| words.get(k).map(String::as_str);
    let below_hundred = |k: usize| -> Option<(u32, usize)> {
        let first = word(k)?;
        if let Some(t) = tens(first) {
            return Some(match word(k + 1).and_then(unit) {
                Some(u @ 1..=9) => (t + u, 2),
                _ => (t, 1),
            });
        }
        unit(first).map(|u| (u, 1))
    };
    let first = word(0)?;
    if let Ok(n) = first.parse::<u32>() {
        return (n <= 999_999).then_some((n, 1));
    }
    let (mut n, mut used) = match first {
        "a" | "hundred" if first == "hundred" || word(1) == Some("hundred") => (1, usize::from(first == "a")),
        _ => below_hundred(0)?,
    };
    if word(used) == Some("hundred") {
        n *= 100;
        used += 1;
        let skip = usize::from(word(used) == Some("and"));
        if let Some((rest, more)) = below_hundred(used + skip) {
            n += rest;
            used += skip + more;
        }
    }
    Some((n, used))
}

/// Every number in `words`, in order.
pub(super) fn numbers(words: &[String]) -> Vec<u32> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < words.len() {
        match number(&words[at..]) {
            Some((n, used)) => {
                out.push(n);
                at += used;
            }
            None => at += 1,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_places_and_lose_their_marks() {
        let text = "Don't  STOP, Ägypten!";
        let got = words(text);
        assert_eq!(got.iter().map(|w| w.text.as_str()).collect::<Vec<_>>(), ["dont", "stop", "ägypten"]);
        assert_eq!(&text[got[0].from..got[0].to], "Don't");
        assert_eq!(&text[got[2].from..got[2].to], "Ägypten");
    }

    #[test]
    fn long_words_may_be_a_letter_off_and_short_ones_not() {
        assert!(alike("store", "story") && alike("stories", "story") == (distance("stories", "story", 1) <= 1));
        assert!(alike("slower", "slower") && alike("lower", "slower"));
        assert!(!alike("shop", "stop") && !alike("mother", "faster"));
        assert_eq!((distance("kitten", "sitting", 7), distance("", "abc", 3)), (3, 3));
    }

    #[test]
    fn every_number_is_read_as_it_is_written() {
        for n in (0..=999).chain([1_000, 17_042, 999_999]) {
            if n <= 999 {
                assert_eq!(numbers(&plain(&spelled(n))), [n], "{}", spelled(n));
            }
            assert_eq!(numbers(&plain(&n.to_string())), [n]);
        }
        assert_eq!(numbers(&plain("from five to a hundred and ten, or hundred")), [5, 110, 100]);
        assert_eq!(spelled(17_142), "seventeen thousand one hundred and forty-two");
    }
}
