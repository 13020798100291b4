//! [`Histogram`]: durations with a count, a sum and percentiles, in bounded memory.

use std::fmt;
use std::time::Duration;

/// Longest duration told apart; whatever is longer counts as this (10 minutes).
pub const LONGEST: Duration = Duration::from_secs(600);

/// Durations from 1 µs to [`LONGEST`], three digits exact. Grows with the largest value seen, to at most about 170 kB.
#[derive(Clone)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Self {
        let mut buckets = hdrhistogram::Histogram::new(3).expect("three digits are within the crate's 0..=5");
        buckets.auto(true);
        Histogram { buckets, sum_us: 0, min_us: u64::MAX, max_us: 0 }
    }

    /// Counts one duration.
    pub fn record(&mut self, value: Duration) {
        self.record_us(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts one duration given in microseconds.
    pub fn record_us(&mut self, us: u64) {
        let us = us.min(LONGEST.as_micros() as u64);
        self.buckets.record(us).expect("an automatically growing histogram takes every value below its bound");
        self.sum_us = self.sum_us.saturating_add(us);
        self.min_us = self.min_us.min(us);
        self.max_us = self.max_us.max(us);
    }

    /// The duration that `percent` per cent of the values do not exceed (`50.0` is the median); `None` while there is none.
    /// Values outside 0..=100 are taken as the nearer end.
    pub fn p(&self, percent: f64) -> Option<Duration> {
        if self.count() == 0 {
            return None;
        }
        let us = self.buckets.value_at_percentile(percent.clamp(0.0, 100.0));
        // A bucket answers with its upper edge; the exact extremes are known, so that no answer lies outside of what was seen.
        Some(Duration::from_micros(us.clamp(self.min_us, self.max_us)))
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// The longest, exactly (up to [`LONGEST`]).
    pub fn max(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_micros(self.max_us))
    }

    /// The shortest, exactly.
    pub fn min(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_micros(self.min_us))
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// How many did not exceed `bound`, to three digits.
    pub fn count_up_to(&self, bound: Duration) -> u64 {
        let bound = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
        if bound >= self.max_us { self.count() } else { self.buckets.count_between(0, bound) }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Histogram {
    /// Equal when the same values were counted, to three digits, with the same sum and extremes.
    fn eq(&self, other: &Self) -> bool {
        (self.sum_us, self.min_us, self.max_us, self.count()) == (other.sum_us, other.min_us, other.max_us, other.count())
            && self.buckets.iter_recorded().map(pair).eq(other.buckets.iter_recorded().map(pair))
    }
}

fn pair(at: hdrhistogram::iterators::IterationValue<u64>) -> (u64, u64) {
    (at.value_iterated_to(), at.count_at_value())
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.p(50.0))
            .field("p95", &self.p(95.0))
            .field("p99", &self.p(99.0))
            .field("max", &self.max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        millis.iter().for_each(|ms| h.record(Duration::from_millis(*ms)));
        h
    }

    #[test]
    fn an_empty_histogram_has_no_percentiles() {
        let h = Histogram::new();
        assert_eq!((h.p(50.0), h.max(), h.min(), h.count(), h.sum()), (None, None, None, 0, Duration::ZERO));
    }

    #[test]
    fn percentiles_are_right_to_three_digits_and_never_outside_of_what_was_seen() {
        let h = of(&(1..=1000).collect::<Vec<_>>());
        for (percent, ms) in [(50.0, 500.0), (95.0, 950.0), (99.0, 990.0)] {
            let got = h.p(percent).expect("it has values").as_secs_f64() * 1000.0;
            assert!((got - ms).abs() <= ms * 0.001, "p{percent} is {got} ms");
        }
        assert_eq!(h.p(0.0), h.min());
        assert_eq!(h.p(100.0), Some(Duration::from_secs(1)));
        assert_eq!(h.p(f64::INFINITY), h.max());
        assert_eq!(h.sum(), Duration::from_millis(500_500));
        assert_eq!(of(&[201]).p(50.0), Some(Duration::from_millis(201)), "one value is exact");
    }

    #[test]
    fn what_is_longer_than_the_longest_counts_as_the_longest() {
        let h = of(&[u64::MAX / 2_000, 1]);
        assert_eq!(h.max(), Some(LONGEST));
        assert_eq!(h.count_up_to(Duration::from_secs(1)), 1);
        assert_eq!(h.count_up_to(LONGEST), 2);
    }

    #[test]
    fn equal_means_the_same_values_in_any_order() {
        assert_eq!(of(&[5, 70_000, 9]), of(&[70_000, 9, 5]), "growing early or late makes no difference");
        assert_ne!(of(&[5, 9]), of(&[5, 10]));
    }
}
