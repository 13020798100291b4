//! [`Tails`]: the audible tail of barge-ins and its split (mission M1), read from `Silenced` records.

use std::collections::VecDeque;

use serde::Serialize;

use super::Histogram;
use crate::event::Tail;
use crate::id::{Generation, SessionId, TurnId};
use crate::time::Stamp;

/// How many of the newest tails are kept whole.
pub const RECENT: usize = 256;

/// A part of the audible tail, or a second endpoint of it. Exhaustive: each has its own histogram and label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TailPart {
    /// Onset to the deciding core's word.
    Detect,
    /// From there to the audio reader obeying it.
    Decide,
    /// From there to the last stale sample handed to the link.
    Flush,
    /// From there to its end at the loudspeaker.
    Downstream,
    /// Onset to the hold's silence. Counted only where something was held.
    ToHold,
    /// Onset to the cut being in force.
    ToCut,
}

impl TailPart {
    /// All of them, in the order of time.
    pub const ALL: [TailPart; 6] =
        [TailPart::Detect, TailPart::Decide, TailPart::Flush, TailPart::Downstream, TailPart::ToHold, TailPart::ToCut];

    /// The value of the metric's `stage` label.
    pub const fn label(self) -> &'static str {
        match self {
            TailPart::Detect => "detect",
            TailPart::Decide => "decide",
            TailPart::Flush => "flush",
            TailPart::Downstream => "downstream",
            TailPart::ToHold => "to_hold",
            TailPart::ToCut => "to_cut",
        }
    }

    /// This part of a tail, microseconds.
    pub const fn of(self, tail: &Tail) -> Option<u64> {
        match self {
            TailPart::Detect => Some(tail.detect_us),
            TailPart::Decide => Some(tail.decide_us),
            TailPart::Flush => Some(tail.flush_us),
            TailPart::Downstream => Some(tail.downstream_us),
            TailPart::ToHold => tail.to_hold_us,
            TailPart::ToCut => Some(tail.to_cut_us),
        }
    }
}

/// One barge-in's tail with its place. Holds no personal content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TailRecord {
    /// The session. Left out when serialised: the whole id is a capability, and this goes to whoever asks.
    #[serde(skip)]
    pub session: SessionId,
    /// The interrupted turn, when the record named it.
    pub turn: Option<TurnId>,
    /// The generation that fell silent.
    pub stale: Generation,
    /// When the deciding core knew (session time, microseconds).
    pub at: Stamp,
    /// The tail, all in microseconds.
    #[serde(flatten)]
    pub tail: Tail,
}

/// Every tail so far as histograms, and the newest [`RECENT`] whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tails {
    to_silence: Histogram,
    parts: [Histogram; TailPart::ALL.len()],
    measured: u64,
    broken_sums: u64,
    recent: VecDeque<TailRecord>,
}

impl Tails {
    pub(super) fn add(&mut self, record: TailRecord) {
        let tail = &record.tail;
        self.to_silence.record_us(tail.to_silence_us);
        for part in TailPart::ALL {
            if let Some(us) = part.of(tail) {
                self.parts[part as usize].record_us(us);
            }
        }
        self.measured += u64::from(tail.downstream_measured);
        let sum = [tail.detect_us, tail.decide_us, tail.flush_us, tail.downstream_us].into_iter().fold(0, u64::saturating_add);
        self.broken_sums += u64::from(sum != tail.to_silence_us);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(record);
    }

    /// Onset to the last stale sample at the loudspeaker.
    pub fn to_silence(&self) -> &Histogram {
        &self.to_silence
    }

    /// One part of the tail, or one of its other endpoints.
    pub fn part(&self, part: TailPart) -> &Histogram {
        &self.parts[part as usize]
    }

    /// How many tails have their downstream part reported by the far end. The others carry its declared bound.
    pub fn measured(&self) -> u64 {
        self.measured
    }

    /// How many tails have parts that do not sum up to the whole. More than none is a fault of ours.
    pub fn broken_sums(&self) -> u64 {
        self.broken_sums
    }

    /// The newest [`RECENT`] tails, oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &TailRecord> + ExactSizeIterator {
        self.recent.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(detect_us: u64) -> Tail {
        Tail {
            detect_us,
            decide_us: 2,
            flush_us: 3,
            downstream_us: 4,
            to_silence_us: detect_us + 9,
            to_cut_us: detect_us + 5,
            ..Tail::default()
        }
    }

    fn record(tail: Tail) -> TailRecord {
        TailRecord { session: SessionId::from_bits(0xfeed), turn: Some(TurnId(1)), stale: Generation(2), at: Stamp::ZERO, tail }
    }

    #[test]
    fn each_part_goes_to_its_own_histogram() {
        let mut tails = Tails::default();
        tails.add(record(tail(100)));
        tails.add(record(Tail { to_hold_us: Some(60), downstream_measured: true, ..tail(300) }));
        let medians = TailPart::ALL.map(|part| (part.label(), tails.part(part).count()));
        let expected = [("detect", 2), ("decide", 2), ("flush", 2), ("downstream", 2), ("to_hold", 1), ("to_cut", 2)];
        assert_eq!(medians, expected);
        assert_eq!(tails.part(TailPart::Detect).max(), Some(std::time::Duration::from_micros(300)));
        assert_eq!(tails.to_silence().max(), Some(std::time::Duration::from_micros(309)));
        assert_eq!((tails.measured(), tails.broken_sums()), (1, 0));
    }

    #[test]
    fn a_tail_whose_parts_do_not_sum_up_is_counted() {
        let mut tails = Tails::default();
        tails.add(record(Tail { to_silence_us: 1, ..tail(100) }));
        assert_eq!(tails.broken_sums(), 1);
    }

    #[test]
    fn recent_tails_are_bounded_and_the_newest_stay() {
        let mut tails = Tails::default();
        (0..RECENT as u64 + 10).for_each(|n| tails.add(record(tail(n))));
        assert_eq!(tails.recent().len(), RECENT);
        assert_eq!(tails.recent().next().map(|r| r.tail.detect_us), Some(10));
        assert_eq!(tails.to_silence().count(), RECENT as u64 + 10, "the histogram forgets nothing");
    }

    #[test]
    fn a_serialised_tail_does_not_give_the_session_away() {
        let json = serde_json::to_string(&record(tail(7))).expect("it serialises");
        assert!(!json.contains("feed"), "{json}");
        assert!(json.contains(r#""detect_us":7"#) && json.contains(r#""turn":1"#), "{json}");
    }
}
