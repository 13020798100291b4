//! Chance, the same for a seed everywhere: a 64-bit mixer of our own, because a library's generator may change with its version.

use std::time::Duration;

/// A stream of chance from one seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng(seed ^ 0x5851_f42d_4c95_7f2d);
        rng.next();
        rng
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`; zero when there is none.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// One of `from..=to`.
    pub(super) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True in so many of a thousand cases.
    pub(super) fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }

    pub(super) fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.range(from, to))
    }

    /// The index of one of these weights, each as often as it weighs.
    pub(super) fn weighed(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (i, weight) in weights.iter().enumerate() {
            if at < *weight {
                return i;
            }
            at -= weight;
        }
        0
    }
}

/// A trace as one number: 64 bits over everything that was written and heard.
#[derive(Clone, Debug)]
pub(super) struct Trace(u64);

impl Trace {
    pub(super) fn new() -> Self {
        Trace(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(23);
    }

    pub(super) fn value(&self) -> u64 {
        let mut z = self.0;
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^ (z >> 32)
    }
}

impl std::io::Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // What is written is one stream, whatever pieces it comes in: byte by byte, so that a writer's buffering is not part of it.
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_the_same_everywhere() {
        let mut rng = Rng::new(1);
        assert_eq!([rng.next(), rng.next()], [18_200_408_164_192_772_652, 16_404_582_681_253_576_005]);
        assert!((0..1_000).all(|_| (3..=5).contains(&rng.range(3, 5))));
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.weighed(&[0, 7, 0]), 1);
    }

    #[test]
    fn a_trace_does_not_depend_on_the_pieces() {
        use std::io::Write as _;
        let (mut whole, mut parts) = (Trace::new(), Trace::new());
        whole.write_all(b"abcdef").expect("never fails");
        parts.write_all(b"abc").expect("never fails");
        parts.write_all(b"def").expect("never fails");
        assert_eq!(whole.value(), parts.value());
        parts.word(1);
        assert_ne!(whole.value(), parts.value());
    }
}
