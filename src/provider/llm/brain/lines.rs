//! The set phrases, by occasion. Pure; the texts are data in `assets/dialogue/lines.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

static LINES: LazyLock<HashMap<&'static str, Vec<&'static str>>> =
    LazyLock::new(|| read(include_str!("../../../../assets/dialogue/lines.txt")));

fn read(file: &'static str) -> HashMap<&'static str, Vec<&'static str>> {
    let mut sections: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut open = "";
    for line in file.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            Some(name) => open = name,
            None => sections.entry(open).or_default().push(line),
        }
    }
    sections
}

/// The `turn`-th way to speak at `occasion`; they take turns.
pub(super) fn line(occasion: &str, turn: usize) -> &'static str {
    let ways = LINES.get(occasion).unwrap_or_else(|| panic!("assets/dialogue/lines.txt has no section {occasion}"));
    ways[turn % ways.len()]
}

#[cfg(test)]
pub(super) fn ways(occasion: &str) -> &'static [&'static str] {
    &LINES[occasion]
}

#[cfg(test)]
mod tests {
    use super::super::words::{numbers, plain};
    use super::*;

    #[test]
    fn a_count_is_found_by_its_numbers_so_its_lines_hold_none() {
        for occasion in ["go_on", "count_intro", "count_end", "count_far", "slower", "faster", "stop"] {
            assert!(ways(occasion).iter().all(|l| numbers(&plain(l)).is_empty()), "{occasion}");
        }
    }

    #[test]
    fn an_answer_to_anything_is_long_enough_to_be_interrupted() {
        // 8 s at 160 words a minute are 22 words.
        assert!(ways("other").len() >= 4 && ways("other").iter().all(|l| plain(l).len() >= 35 && l.contains("{heard}")));
    }
}
