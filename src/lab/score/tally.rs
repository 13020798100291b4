//! `lab::score::tally`: decisions against labels, by the rules of `score_bargein.py` of the shared corpus, so that both say the same.

use std::collections::BTreeMap;

use serde::Serialize;

use super::mixes::Mix;

/// A decision this much before the labelled onset still belongs to it, s.
const EARLY_S: f64 = 0.02;
/// A decision later than this after the onset is a miss, s.
const WINDOW_S: f64 = 2.0;
/// A decision later than this after the last word is a miss, s.
const TAIL_S: f64 = 0.7;
/// False decisions closer together than this are one, s.
const MERGE_S: f64 = 1.0;

/// What came of the recordings of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Recordings with a person in them.
    pub with_user: u32,
    /// Those in which the person was heard.
    pub hits: u32,
    /// Delays from the labelled onset, ms, where that is sure; sorted.
    #[serde(skip)]
    pub delays_ms: Vec<f64>,
    /// Decisions while nobody spoke.
    pub false_decisions: u32,
    /// How long nobody spoke, s.
    pub exposure_s: f64,
}

impl Tally {
    /// Takes the decisions (s, rising) over one recording.
    pub fn add(&mut self, mix: &Mix, decisions: &[f64]) {
        let limit = match &mix.user {
            None => mix.duration_s,
            Some(user) => {
                self.with_user += 1;
                let early = EARLY_S + user.onset_tolerance_s.unwrap_or(0.0);
                let last_word = user.speech.iter().flatten().map(|(_, end)| *end).reduce(f64::max);
                let end = last_word.map_or(f64::INFINITY, |word| word + TAIL_S).min(user.onset_s + WINDOW_S);
                if let Some(hit) = decisions.iter().find(|t| (user.onset_s - early..=end).contains(*t)) {
                    self.hits += 1;
                    if user.onset_quality == "sure" {
                        let delay = (hit - user.onset_s) * 1_000.0;
                        self.delays_ms.insert(self.delays_ms.partition_point(|d| *d < delay), delay);
                    }
                }
                (user.onset_s - early).max(0.0)
            }
        };
        self.exposure_s += limit;
        let mut last = f64::NEG_INFINITY;
        for t in decisions.iter().filter(|t| **t < limit) {
            if t - last > MERGE_S {
                self.false_decisions += 1;
                last = *t;
            }
        }
    }

    /// Takes in what came of other recordings.
    pub fn join(&mut self, other: &Tally) {
        self.with_user += other.with_user;
        self.hits += other.hits;
        self.delays_ms.extend(&other.delays_ms);
        self.delays_ms.sort_by(f64::total_cmp);
        self.false_decisions += other.false_decisions;
        self.exposure_s += other.exposure_s;
    }

    /// The delay below which the share `q` (0..=1) of the hits lies, ms, between neighbours in proportion.
    pub fn delay_ms(&self, q: f64) -> Option<f64> {
        let k = self.delays_ms.len().checked_sub(1)? as f64 * q;
        let (low, high) = (self.delays_ms[k.floor() as usize], self.delays_ms[k.ceil() as usize]);
        Some(low + (high - low) * k.fract())
    }

    /// False decisions per hour in which nobody spoke.
    pub fn false_per_hour(&self) -> Option<f64> {
        (self.exposure_s > 0.0).then(|| f64::from(self.false_decisions) * 3_600.0 / self.exposure_s)
    }
}

/// The name of a condition without its levels: `noisy_music_snr05` is `noisy_music`.
pub fn group(condition: &str) -> String {
    let levels = |part: &&str| !["erl", "snr"].iter().any(|name| part.strip_prefix(name).is_some_and(is_number));
    condition.split('_').filter(levels).collect::<Vec<_>>().join("_")
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A table of tallies by name, as text.
pub fn table(title: &str, tallies: &BTreeMap<String, Tally>) -> String {
    let mut text = format!("{title:<32} {:>9} {:>7} {:>7} {:>7} {:>8}\n", "hits", "p50 ms", "p95 ms", "false", "per hour");
    let number = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.0}"));
    for (name, tally) in tallies {
        let hits = if tally.with_user > 0 { format!("{}/{}", tally.hits, tally.with_user) } else { "-".to_owned() };
        text += &format!(
            "{name:<32} {hits:>9} {:>7} {:>7} {:>7} {:>8}\n",
            number(tally.delay_ms(0.5)),
            number(tally.delay_ms(0.95)),
            tally.false_decisions,
            number(tally.false_per_hour()),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::score::mixes::User;

    fn mix(user: Option<User>) -> Mix {
        Mix { id: "m".into(), file: "m.flac".into(), condition: "c".into(), duration_s: 10.0, user, ref_file: None }
    }

    fn user(quality: &str) -> Option<User> {
        let speech = Some(vec![(3.0, 3.4)]);
        Some(User { onset_s: 3.0, onset_quality: quality.into(), onset_tolerance_s: None, speech })
    }

    fn tally(user: Option<User>, decisions: &[f64]) -> Tally {
        let mut tally = Tally::default();
        tally.add(&mix(user), decisions);
        tally
    }

    #[test]
    fn a_decision_counts_from_the_onset_until_soon_after_the_last_word() {
        let hit = tally(user("sure"), &[3.1]);
        assert_eq!((hit.hits, hit.false_decisions, hit.exposure_s), (1, 0, 2.98));
        assert!((hit.delay_ms(0.5).expect("a delay") - 100.0).abs() < 1e-6);
        assert_eq!(tally(user("soft"), &[3.1]).delay_ms(0.5), None, "a soft onset has no delay");
        assert_eq!(tally(user("sure"), &[4.2]).hits, 0, "0.8 s after the last word");
        let early = tally(user("sure"), &[2.9, 3.05]);
        assert_eq!((early.hits, early.false_decisions), (1, 1), "a false one before does not undo the hit");
        assert_eq!(tally(user("sure"), &[2.985]).hits, 1, "the label may be off a little");
    }

    #[test]
    fn where_nobody_speaks_every_decision_is_false_and_a_burst_is_one() {
        let noise = tally(None, &[1.0, 1.5, 1.9, 2.6, 9.0]);
        assert_eq!((noise.false_decisions, noise.with_user), (3, 0));
        assert_eq!(noise.false_per_hour(), Some(3.0 * 360.0));
    }

    #[test]
    fn percentiles_lie_between_neighbours_and_names_lose_their_levels() {
        let mut all = Tally { delays_ms: vec![10.0, 20.0], ..Tally::default() };
        all.join(&Tally { delays_ms: vec![15.0, 40.0], ..Tally::default() });
        assert_eq!(all.delays_ms, [10.0, 15.0, 20.0, 40.0]);
        assert_eq!(all.delay_ms(0.5), Some(17.5));
        assert_eq!(group("doubletalk_noisy_erl15_snr10"), "doubletalk_noisy");
        assert_eq!(group("clean_speech"), "clean_speech");
    }
}
