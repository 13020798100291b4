//! `time`: session time, sample positions, and the only clock of the house.
//!
//! Layer 0. Imports nothing of ours. This is the one file in which the operating system's clock is read; everything
//! that decides is handed a [`Stamp`] instead.
//!
//! Three kinds of time, and which one you hold:
//! * [`Stamp`]: microseconds since the session began. Can be written to a log, compared across a restart, printed in a diff.
//! * [`SamplePos`]: a place in one stream of samples, at that stream's [`SampleRate`].
//! * wall time: stands once in the session's header record, nowhere else.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The house sample rate: every block inside the engine is mono `f32` at 48 kHz.
pub const HOUSE_RATE: SampleRate = SampleRate::HZ_48000;
/// The beat of the house: 10 ms, the length of one block.
pub const BEAT: Duration = Duration::from_millis(10);
/// Samples in one block at the house rate (480).
pub const BLOCK_SAMPLES: usize = 480;

const _: () = assert!(BLOCK_SAMPLES as u64 * 100 == HOUSE_RATE.hz() as u64, "a block is 10 ms at the house rate");

/// A moment of a session: microseconds since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(u64);

impl Stamp {
    /// The beginning of the session.
    pub const ZERO: Stamp = Stamp(0);
    /// Later than anything that happens.
    pub const MAX: Stamp = Stamp(u64::MAX);

    /// The moment `micros` microseconds after the session began.
    pub const fn from_micros(micros: u64) -> Self {
        Stamp(micros)
    }

    /// The moment `millis` milliseconds after the session began.
    pub const fn from_millis(millis: u64) -> Self {
        Stamp(millis.saturating_mul(1_000))
    }

    /// Microseconds since the session began.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Stamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// `self` less `by`, not before the session began.
    pub const fn back(self, by: Duration) -> Stamp {
        Stamp(self.0.saturating_sub(micros(by)))
    }
}

/// Whole microseconds of a duration, saturating.
const fn micros(d: Duration) -> u64 {
    let m = d.as_micros();
    if m > u64::MAX as u128 { u64::MAX } else { m as u64 }
}

impl Add<Duration> for Stamp {
    type Output = Stamp;
    fn add(self, by: Duration) -> Stamp {
        Stamp(self.0.saturating_add(micros(by)))
    }
}

impl AddAssign<Duration> for Stamp {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl fmt::Display for Stamp {
    /// Seconds with milliseconds: `12.345s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1_000_000, self.0 / 1_000 % 1_000)
    }
}

/// Samples per second of one channel; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleRate(u32);

impl SampleRate {
    /// 16 kHz: what detectors and recognisers listen at.
    pub const HZ_16000: SampleRate = SampleRate(16_000);
    /// 22.05 kHz: espeak-ng's rate.
    pub const HZ_22050: SampleRate = SampleRate(22_050);
    /// 24 kHz: the usual rate of neural voices.
    pub const HZ_24000: SampleRate = SampleRate(24_000);
    /// 48 kHz: the house rate, and Opus' clock.
    pub const HZ_48000: SampleRate = SampleRate(48_000);

    /// A rate of `hz`, or `None` outside 4,000..=384,000, which no speech device uses.
    pub const fn new(hz: u32) -> Option<Self> {
        if hz >= 4_000 && hz <= 384_000 { Some(SampleRate(hz)) } else { None }
    }

    /// Samples per second.
    pub const fn hz(self) -> u32 {
        self.0
    }

    /// How long `samples` last at this rate, rounded down to microseconds.
    pub const fn duration_of(self, samples: u64) -> Duration {
        Duration::from_micros((samples as u128 * 1_000_000 / self.0 as u128) as u64)
    }

    /// How many whole samples fit into `time` at this rate.
    pub const fn samples_in(self, time: Duration) -> u64 {
        (time.as_micros() * self.0 as u128 / 1_000_000) as u64
    }
}

impl fmt::Display for SampleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Hz", self.0)
    }
}

/// A place in a stream of samples: how many samples stand before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SamplePos(pub u64);

impl SamplePos {
    /// The first sample.
    pub const ZERO: SamplePos = SamplePos(0);

    /// Samples from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: SamplePos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for SamplePos {
    type Output = SamplePos;
    fn add(self, by: u64) -> SamplePos {
        SamplePos(self.0.saturating_add(by))
    }
}

impl Sub<u64> for SamplePos {
    type Output = SamplePos;
    fn sub(self, by: u64) -> SamplePos {
        SamplePos(self.0.saturating_sub(by))
    }
}

/// Tells the time of one session. Everything that needs `now` is handed one of these, or the stamp itself.
pub trait Clock: Send + Sync + 'static {
    /// Time since the session began. Never falls.
    fn now(&self) -> Stamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Stamp {
        (**self).now()
    }
}

/// The real, monotonic clock, beginning at zero when it is made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    /// A clock that reads zero now.
    #[allow(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
    pub fn start() -> Self {
        SystemClock { began: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
    fn now(&self) -> Stamp {
        Stamp(micros(self.began.elapsed()))
    }
}

/// The runtime's clock: the real one in production, and the one a test turns by hand under tokio's paused time, where
/// sleeping tasks and this clock then agree to the microsecond.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeClock {
    began: tokio::time::Instant,
}

impl RuntimeClock {
    /// A clock that reads zero now. Call it inside the runtime whose time it shall follow.
    #[allow(clippy::disallowed_methods, reason = "the one reader of the runtime's clock")]
    pub fn start() -> Self {
        RuntimeClock { began: tokio::time::Instant::now() }
    }

    /// The runtime's own name for the moment `at`, for its timers.
    pub fn instant(&self, at: Stamp) -> tokio::time::Instant {
        // A century bounds the addition: a timer set to `Stamp::MAX` must not overflow the platform's instant.
        const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        self.began + Duration::from_micros(at.as_micros()).min(FAR)
    }
}

impl Clock for RuntimeClock {
    #[allow(clippy::disallowed_methods, reason = "the one reader of the runtime's clock")]
    fn now(&self) -> Stamp {
        Stamp(micros(tokio::time::Instant::now().saturating_duration_since(self.began)))
    }
}

/// A clock that a test turns by hand. Clones share the same hand.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    micros: Arc<AtomicU64>,
}

impl VirtualClock {
    /// A clock that reads zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns the hand forward by `by` and returns the new time.
    pub fn advance(&self, by: Duration) -> Stamp {
        Stamp(self.micros.fetch_add(micros(by), Ordering::SeqCst).saturating_add(micros(by)))
    }

    /// Turns the hand forward to `at`; a moment already past changes nothing.
    pub fn advance_to(&self, at: Stamp) -> Stamp {
        Stamp(self.micros.fetch_max(at.0, Ordering::SeqCst).max(at.0))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Stamp {
        Stamp(self.micros.load(Ordering::SeqCst))
    }
}

/// Wall time in milliseconds since 1970, for the session's header record; zero before 1970.
#[allow(clippy::disallowed_methods, reason = "the one reader of wall time")]
pub fn wall_unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Durations as milliseconds, as they stand in files: `#[serde(with = "millis")]`.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(d: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(d.as_millis() as u64)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }

    /// The same for one that need not be there.
    pub(crate) mod option {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        pub(crate) fn serialize<S: Serializer>(d: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
            d.map(|d| d.as_millis() as u64).serialize(to)
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
            Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_add_and_subtract_without_wrapping() {
        let t = Stamp::from_millis(70);
        assert_eq!(t + Duration::from_millis(5), Stamp::from_micros(75_000));
        assert_eq!(t.since(Stamp::from_millis(71)), Duration::ZERO);
        assert_eq!(t.back(Duration::from_secs(9)), Stamp::ZERO);
        assert_eq!(Stamp::MAX + Duration::from_secs(1), Stamp::MAX);
        assert_eq!(Stamp::from_millis(12_345).to_string(), "12.345s");
    }

    #[test]
    fn rates_convert_between_samples_and_time() {
        assert_eq!(HOUSE_RATE.samples_in(BEAT), BLOCK_SAMPLES as u64);
        assert_eq!(HOUSE_RATE.duration_of(480), BEAT);
        assert_eq!(SampleRate::HZ_22050.duration_of(22_050), Duration::from_secs(1));
        assert_eq!(SampleRate::new(0), None);
        assert_eq!(SampleRate::new(44_100).map(SampleRate::hz), Some(44_100));
    }

    #[test]
    fn a_virtual_clock_never_falls() {
        let clock = VirtualClock::new();
        let other = clock.clone();
        assert_eq!(clock.advance(Duration::from_millis(3)), Stamp::from_millis(3));
        assert_eq!(clock.advance_to(Stamp::from_millis(2)), Stamp::from_millis(3));
        assert_eq!(other.now(), Stamp::from_millis(3));
    }

    #[test]
    fn the_runtime_clock_accepts_the_farthest_stamp() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let clock = RuntimeClock::start();
            assert!(clock.instant(Stamp::MAX) > clock.instant(Stamp::from_millis(1)));
        });
    }
}
