//! `tail`: how long an old answer sounded on after the user's onset, and where the time went.
//!
//! ```text
//! onset ── detect ──▶ decided ── decide ──▶ reader sees it ── flush ──▶ handed over ── downstream ──▶ silent
//! ```
//! A hold that silenced the answer before the cut is what the person heard; the cut only makes it final.

use std::collections::VecDeque;

use crate::event::{Tail, duration_us};
use crate::id::{Generation, TurnId};
use crate::time::{SamplePos, Stamp};

/// Cuts whose silence is still waited for, at most.
const CUTS: usize = 16;

/// When and how a generation fell silent, as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) last: SamplePos,
    pub(super) seen_at: Stamp,
    pub(super) handed_at: Stamp,
    pub(super) sounded_at: Stamp,
    pub(super) measured: bool,
}

/// A hold by voice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    generation: Generation,
    decided: Stamp,
    silence: Option<Silence>,
}

/// A generation that was cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    generation: Generation,
    turn: TurnId,
    decided: Stamp,
    onset: Option<Stamp>,
    hold: Option<Hold>,
}

/// The present hold and the cuts whose silence is still waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Tails {
    hold: Option<Hold>,
    cuts: VecDeque<Cut>,
}

impl Tails {
    /// Voice holds `generation`.
    pub(super) fn held(&mut self, generation: Generation, decided: Stamp) {
        self.hold = Some(Hold { generation, decided, silence: None });
    }

    /// The hold was taken back.
    pub(super) fn resumed(&mut self) {
        self.hold = None;
    }

    /// The hold took effect. A later word on it (of the far end) replaces an earlier one.
    pub(super) fn hold_silent(&mut self, generation: Generation, silence: Silence) {
        let holds = self.hold.iter_mut().chain(self.cuts.iter_mut().filter_map(|c| c.hold.as_mut()));
        for hold in holds.filter(|h| h.generation == generation) {
            hold.silence = Some(silence);
        }
    }

    /// The generation was cut; by voice when there is an onset.
    pub(super) fn cut(&mut self, generation: Generation, turn: TurnId, decided: Stamp, onset: Option<Stamp>) {
        let hold = self.hold.take().filter(|h| h.generation == generation);
        self.cuts.push_back(Cut { generation, turn, decided, onset, hold });
        if self.cuts.len() > CUTS {
            self.cuts.pop_front();
        }
    }

    /// The cut took effect: the turn, the last sample heard, and the tail if a voice did it and something was to be heard. `None` for
    /// a generation that was not cut, or is known to be silent.
    pub(super) fn cut_silent(&mut self, generation: Generation, cut_at: Silence) -> Option<(TurnId, SamplePos, Option<Tail>)> {
        let place = self.cuts.iter().position(|c| c.generation == generation)?;
        let cut = self.cuts.remove(place)?;
        let held = cut.hold.and_then(|h| h.silence);
        let silence = held.unwrap_or(cut_at);
        let last = silence.last.max(cut_at.last);
        let Some(onset) = cut.onset.filter(|_| last > SamplePos::ZERO) else {
            return Some((cut.turn, last, None));
        };
        // Each moment is at least the one before it, so the parts add up to the whole whatever the clocks say.
        let decided = cut.hold.map_or(cut.decided, |h| h.decided).max(onset);
        let seen = silence.seen_at.max(decided);
        let handed = silence.handed_at.max(seen);
        let silent = silence.sounded_at.max(handed);
        let tail = Tail {
            detect_us: duration_us(decided.since(onset)),
            decide_us: duration_us(seen.since(decided)),
            flush_us: duration_us(handed.since(seen)),
            downstream_us: duration_us(silent.since(handed)),
            to_silence_us: duration_us(silent.since(onset)),
            to_hold_us: held.map(|_| duration_us(silent.since(onset))),
            to_cut_us: duration_us(cut_at.seen_at.since(onset)),
            downstream_measured: silence.measured,
        };
        Some((cut.turn, last, Some(tail)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: Generation = Generation(4);

    fn silence(seen: u64, handed: u64, sounded: u64) -> Silence {
        let at = Stamp::from_millis;
        Silence { last: SamplePos(960), seen_at: at(seen), handed_at: at(handed), sounded_at: at(sounded), measured: true }
    }

    #[test]
    fn a_cut_without_a_hold_is_split_at_its_own_moments() {
        let mut tails = Tails::default();
        tails.cut(OLD, TurnId(1), Stamp::from_millis(160), Some(Stamp::from_millis(0)));
        let (turn, last, tail) = tails.cut_silent(OLD, silence(165, 170, 230)).expect("it was cut");
        assert_eq!((turn, last), (TurnId(1), SamplePos(960)));
        let want = Tail {
            detect_us: 160_000,
            decide_us: 5_000,
            flush_us: 5_000,
            downstream_us: 60_000,
            to_silence_us: 230_000,
            to_hold_us: None,
            to_cut_us: 165_000,
            downstream_measured: true,
        };
        assert_eq!(tail, Some(want));
        assert_eq!(tails.cut_silent(OLD, silence(165, 170, 230)), None, "once");
    }

    #[test]
    fn a_hold_that_silenced_it_first_is_the_tail_and_the_cut_makes_it_final() {
        let mut tails = Tails::default();
        tails.held(OLD, Stamp::from_millis(40));
        tails.hold_silent(OLD, silence(45, 50, 80));
        tails.cut(OLD, TurnId(1), Stamp::from_millis(160), Some(Stamp::from_millis(0)));
        let (_, _, tail) = tails.cut_silent(OLD, silence(170, 170, 170)).expect("it was cut");
        let tail = tail.expect("a voice did it");
        assert_eq!((tail.to_hold_us, tail.to_silence_us, tail.to_cut_us), (Some(80_000), 80_000, 170_000));
        assert_eq!((tail.detect_us, tail.decide_us, tail.flush_us, tail.downstream_us), (40_000, 5_000, 5_000, 30_000));
    }

    #[test]
    fn a_hold_taken_back_is_no_part_of_a_later_cut() {
        let mut tails = Tails::default();
        tails.held(OLD, Stamp::from_millis(40));
        tails.hold_silent(OLD, silence(45, 50, 80));
        tails.resumed();
        tails.cut(OLD, TurnId(1), Stamp::from_millis(900), Some(Stamp::from_millis(740)));
        let (_, _, tail) = tails.cut_silent(OLD, silence(905, 910, 930)).expect("it was cut");
        assert_eq!(tail.map(|t| (t.to_hold_us, t.detect_us)), Some((None, 160_000)));
    }

    #[test]
    fn a_hold_of_another_generation_is_no_part_of_a_cut() {
        let mut tails = Tails::default();
        tails.held(Generation(3), Stamp::from_millis(40));
        tails.hold_silent(Generation(3), silence(45, 50, 80));
        tails.cut(OLD, TurnId(1), Stamp::from_millis(160), Some(Stamp::ZERO));
        let (_, _, tail) = tails.cut_silent(OLD, silence(165, 170, 230)).expect("it was cut");
        assert_eq!(tail.map(|t| (t.to_hold_us, t.to_silence_us)), Some((None, 230_000)));
    }

    #[test]
    fn no_voice_no_tail_and_what_was_not_cut_is_not_silenced() {
        let mut tails = Tails::default();
        tails.cut(OLD, TurnId(1), Stamp::from_millis(160), None);
        assert_eq!(tails.cut_silent(Generation(3), silence(1, 1, 1)), None);
        assert_eq!(tails.cut_silent(OLD, silence(165, 170, 230)), Some((TurnId(1), SamplePos(960), None)));
        tails.cut(OLD, TurnId(1), Stamp::from_millis(160), Some(Stamp::ZERO));
        let unheard = Silence { last: SamplePos::ZERO, ..silence(165, 170, 230) };
        assert_eq!(tails.cut_silent(OLD, unheard), Some((TurnId(1), SamplePos::ZERO, None)), "nothing had sounded");
    }

    proptest! {
        #[test]
        fn the_parts_add_up_whatever_the_clocks_say(
            times in prop::collection::vec(0u64..1_000, 9), held in any::<bool>(), reported in any::<bool>(),
        ) {
            let mut tails = Tails::default();
            if held {
                tails.held(OLD, Stamp::from_millis(times[0]));
                if reported {
                    tails.hold_silent(OLD, silence(times[1], times[2], times[3]));
                }
            }
            tails.cut(OLD, TurnId(1), Stamp::from_millis(times[4]), Some(Stamp::from_millis(times[5])));
            let (_, _, tail) = tails.cut_silent(OLD, silence(times[6], times[7], times[8])).expect("it was cut");
            let t = tail.expect("a voice did it");
            prop_assert_eq!(t.detect_us + t.decide_us + t.flush_us + t.downstream_us, t.to_silence_us);
            prop_assert_eq!(t.to_hold_us.is_some(), held && reported);
        }
    }
}
