//! `transport::net`: a bad network as a value. Seeded, sans-IO: the same seed and the same sendings give the same arrivals.
//!
//! Layer 2. No clock: sendings and askings carry their [`Stamp`]. Used by the memory link and by whoever tests against one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::time::Stamp;

/// What a network does to packets. Chances are 0.0..=1.0.
#[derive(Clone, Debug, PartialEq)]
pub struct Net {
    /// Draws the fate of each packet.
    pub seed: u64,
    /// Every packet takes at least this long.
    pub delay: Duration,
    /// On top of it, evenly drawn from zero to this. Does not reorder by itself: a packet waits for its predecessor.
    pub jitter: Duration,
    /// Chance that a loss begins with a packet.
    pub loss: f64,
    /// Packets lost in a row once it begins.
    pub burst: u32,
    /// Chance that a packet is overtaken: it comes [`Net::overtaken`] later than it would, and nobody waits for it.
    pub reorder: f64,
    /// How much later an overtaken packet comes.
    pub overtaken: Duration,
    /// Chance that a packet comes twice.
    pub duplicate: f64,
    /// How long the far end keeps sound before it plays it (its own jitter buffer).
    pub far_buffer: Duration,
}

impl Net {
    /// Everything arrives at once, once, in order.
    pub const fn perfect() -> Self {
        Net {
            seed: 0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: 1,
            reorder: 0.0,
            overtaken: Duration::from_millis(25),
            duplicate: 0.0,
            far_buffer: Duration::ZERO,
        }
    }

    /// A poor mobile network: 40 ms away, up to 30 ms jitter, 3 % loss in pairs, 2 % reordered, 1 % doubled; the far end
    /// buffers 60 ms.
    pub const fn poor(seed: u64) -> Self {
        Net {
            seed,
            delay: Duration::from_millis(40),
            jitter: Duration::from_millis(30),
            loss: 0.03,
            burst: 2,
            reorder: 0.02,
            duplicate: 0.01,
            far_buffer: Duration::from_millis(60),
            ..Net::perfect()
        }
    }
}

impl Default for Net {
    /// [`Net::perfect`].
    fn default() -> Self {
        Net::perfect()
    }
}

/// One direction of a network: what was sent and has not arrived.
#[derive(Debug)]
pub struct Path<T> {
    net: Net,
    random: SplitMix,
    flying: BinaryHeap<Flying<T>>,
    sent: u64,
    /// Packets still to lose of the burst that has begun.
    losing: u32,
    /// No packet in order arrives before this.
    front: Stamp,
}

#[derive(Debug)]
struct Flying<T> {
    due: Stamp,
    order: u64,
    item: T,
}

impl<T: Clone> Path<T> {
    /// An idle path. `direction` tells the two directions of one network apart, so that they do not fail alike.
    pub fn new(net: Net, direction: u64) -> Self {
        let random = SplitMix(net.seed ^ direction.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Path { net, random, flying: BinaryHeap::new(), sent: 0, losing: 0, front: Stamp::ZERO }
    }

    /// Sends `item` at `now`.
    pub fn send(&mut self, now: Stamp, item: T) {
        self.sent += 1;
        // Each fate is drawn for each packet, wanted or not: changing one chance leaves the other fates as they were.
        let (lose, late, twice, wait) = (self.random.unit(), self.random.unit(), self.random.unit(), self.random.unit());
        if self.losing == 0 && lose < self.net.loss {
            self.losing = self.net.burst.max(1);
        }
        if self.losing > 0 {
            self.losing -= 1;
            return;
        }
        let mut due = now + self.net.delay + self.net.jitter.mul_f64(wait);
        if late < self.net.reorder {
            due += self.net.overtaken;
        } else {
            due = due.max(self.front);
            self.front = due;
        }
        if twice < self.net.duplicate {
            self.flying.push(Flying { due: due + Duration::from_millis(1), order: self.sent, item: item.clone() });
        }
        self.flying.push(Flying { due, order: self.sent, item });
    }

    /// The next item that has arrived by `now`, and when it did.
    pub fn receive(&mut self, now: Stamp) -> Option<(Stamp, T)> {
        if self.flying.peek()?.due > now {
            return None;
        }
        self.flying.pop().map(|flying| (flying.due, flying.item))
    }

    /// Items under way.
    pub fn flying(&self) -> usize {
        self.flying.len()
    }
}

impl<T> Ord for Flying<T> {
    /// The heap gives its greatest first, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Flying<T> {}

/// SplitMix64: small, and the same for ever, so that a seed in a report stays good.
#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly from 0.0 up to, not including, 1.0.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends 2,000 numbers, one each 20 ms, and returns what arrives, in order of arrival.
    fn arrivals(net: Net) -> Vec<(Stamp, u64)> {
        let mut path = Path::new(net, 0);
        let mut got = Vec::new();
        for i in 0..2_000u64 {
            let now = Stamp::from_millis(i * 20);
            path.send(now, i);
            while let Some(one) = path.receive(now) {
                got.push(one);
            }
        }
        while let Some(one) = path.receive(Stamp::MAX) {
            got.push(one);
        }
        assert_eq!(path.flying(), 0);
        got
    }

    #[test]
    fn a_perfect_network_changes_nothing() {
        let got = arrivals(Net::perfect());
        assert!(got.iter().enumerate().all(|(i, (at, n))| *n == i as u64 && *at == Stamp::from_millis(i as u64 * 20)));
        assert_eq!(got.len(), 2_000);
    }

    #[test]
    fn the_same_seed_gives_the_same_world_and_another_seed_another() {
        assert_eq!(arrivals(Net::poor(7)), arrivals(Net::poor(7)));
        assert_ne!(arrivals(Net::poor(7)), arrivals(Net::poor(8)));
    }

    #[test]
    fn chances_come_out_about_as_asked() {
        let got = arrivals(Net { loss: 0.05, burst: 1, reorder: 0.0, duplicate: 0.0, ..Net::poor(3) });
        let lost = 2_000 - got.len();
        assert!((60..140).contains(&lost), "about 100 of 2,000, got {lost}");
        assert!(got.is_sorted_by_key(|(_, n)| *n), "jitter alone does not reorder");
        let late = got.iter().map(|(at, n)| at.since(Stamp::from_millis(n * 20))).max();
        assert!(late <= Some(Duration::from_millis(70)) && late > Some(Duration::from_millis(60)), "{late:?}");

        let mixed = arrivals(Net { loss: 0.0, jitter: Duration::ZERO, ..Net::poor(3) });
        assert!(!mixed.is_sorted_by_key(|(_, n)| *n), "some are overtaken");
        assert!(mixed.len() > 2_000, "some come twice");
    }
}
