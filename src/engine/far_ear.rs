//! What the person at the far end has heard, and when a silenced generation was silent *there*.
//!
//! The pump knows what it handed to the link. What sounded is another matter: a far end that reports it is believed; one that does
//! not is given the bound its link declares, and the result is marked as not measured. Times are session time; no clock is read.

use std::collections::VecDeque;
use std::time::Duration;

use crate::audio::ring::Pulled;
use crate::id::Generation;
use crate::time::{BEAT, HOUSE_RATE, SamplePos, Stamp};
use crate::transport::Capability;
use crate::turn::{Playout, QuietBy};

/// How long the client's word may come before the pump's own silence: a few beats, and the way of the message.
const EARLY_FOR: Duration = Duration::from_millis(100);
/// Longest wait for the client's word that it is silent.
const WORD_WITHIN: Duration = Duration::from_millis(500);
/// A client that reports positions and says nothing for so long is treated as one that reports none.
const MUTE_AFTER: Duration = Duration::from_secs(1);
/// Progress is told this often at most, besides its beginning and its end.
const TOLD_EVERY: Duration = Duration::from_millis(50);
/// Blocks remembered until they have sounded (3 s): longer bounds are rounded down to this.
const LINE: usize = 300;

/// A position that was handed over, and when its sound is over at the latest.
#[derive(Clone, Copy, Debug)]
struct Handed {
    generation: Generation,
    position: SamplePos,
    due: Stamp,
}

/// A silence that waits for the client's word.
#[derive(Clone, Copy, Debug)]
struct Hush {
    generation: Generation,
    by: QuietBy,
    last: SamplePos,
    seen_at: Stamp,
    handed_at: Stamp,
    bound_at: Stamp,
    give_up_at: Stamp,
}

/// The client's word that a generation is silent.
#[derive(Clone, Copy, Debug)]
struct Word {
    generation: Generation,
    by: QuietBy,
    at: Stamp,
    /// When it came.
    came: Stamp,
}

/// One link's far end, as known at the pump. Does not allocate after it is made.
pub(super) struct FarEar {
    capability: Capability,
    line: VecDeque<Handed>,
    /// Furthest position whose declared bound is over.
    sounded: Handed,
    /// Furthest position of the current generation that was handed over.
    handed: Handed,
    /// Where the current answer ends, once its last block was pulled.
    end: Option<(Generation, SamplePos)>,
    told: Handed,
    told_at: Stamp,
    /// When the client last said where it is, or when it first had something to say.
    last_word: Stamp,
    hushes: [Option<Hush>; 2],
    early: Option<Word>,
    gap: Option<(Generation, Stamp)>,
}

impl FarEar {
    pub(super) fn new(capability: Capability) -> Self {
        let nothing = Handed { generation: Generation::UNSET, position: SamplePos::ZERO, due: Stamp::ZERO };
        FarEar {
            capability,
            line: VecDeque::with_capacity(LINE),
            sounded: nothing,
            handed: nothing,
            end: None,
            told: nothing,
            told_at: Stamp::ZERO,
            last_word: Stamp::ZERO,
            hushes: [None; 2],
            early: None,
            gap: None,
        }
    }

    fn waits_for_word(&self) -> bool {
        self.capability.reports_position && self.capability.can_clear
    }

    /// The pump handed one pull to the link, at `now`.
    pub(super) fn handed(&mut self, now: Stamp, pulled: &Pulled, tell: &mut impl FnMut(Playout)) {
        self.silence(now, pulled, tell);
        self.starve(now, pulled, tell);
        if pulled.generation != self.handed.generation {
            self.handed = Handed { generation: pulled.generation, position: SamplePos::ZERO, due: now };
            self.end = None;
        }
        if pulled.position > self.handed.position {
            let caught_up = if self.told.generation == pulled.generation {
                self.handed.position <= self.told.position
            } else {
                self.handed.position == SamplePos::ZERO
            };
            if caught_up {
                // The client had nothing new to say until now.
                self.last_word = self.last_word.max(now);
            }
            let due = now + BEAT + self.capability.buffer_bound;
            self.handed = Handed { generation: pulled.generation, position: pulled.position, due };
            if self.line.len() == LINE {
                self.line.pop_back();
            }
            self.line.push_back(self.handed);
        }
        if pulled.ended {
            self.end = Some((pulled.generation, pulled.position));
        }
    }

    /// The client says that this position sounds at `at`.
    pub(super) fn position(
        &mut self,
        now: Stamp,
        generation: Generation,
        position: SamplePos,
        at: Stamp,
        tell: &mut impl FnMut(Playout),
    ) {
        self.last_word = now;
        self.advance(now, Handed { generation, position, due: at.min(now) }, tell);
    }

    /// The client says that a generation fell silent.
    pub(super) fn silenced(&mut self, now: Stamp, generation: Generation, held: bool, at: Stamp, tell: &mut impl FnMut(Playout)) {
        let by = if held { QuietBy::Hold } else { QuietBy::Cut };
        let word = Word { generation, by, at: at.min(now), came: now };
        for slot in &mut self.hushes {
            if let Some(hush) = slot.take_if(|hush| hush.generation == generation && hush.by == by) {
                tell(hush.over(word.at, true));
                return;
            }
        }
        // It may have obeyed before the pump's next beat did.
        self.early = Some(word);
    }

    /// The end of one beat.
    pub(super) fn beat(&mut self, now: Stamp, tell: &mut impl FnMut(Playout)) {
        // A word that no silence of ours follows belongs to one that was given up, not to the next.
        self.early = self.early.filter(|word| now.since(word.came) < EARLY_FOR);
        for slot in &mut self.hushes {
            if let Some(hush) = slot.take_if(|hush| hush.give_up_at <= now) {
                tell(hush.over(hush.bound_at, false));
            }
        }
        while let Some(next) = self.line.front().copied().filter(|handed| handed.due <= now) {
            self.line.pop_front();
            self.sounded = next;
        }
        let mute = now.since(self.last_word) >= MUTE_AFTER;
        if !self.capability.reports_position || mute {
            self.advance(now, self.sounded, tell);
        }
    }

    /// Tells a position, if it is news and worth telling now.
    fn advance(&mut self, now: Stamp, to: Handed, tell: &mut impl FnMut(Playout)) {
        let fresh =
            to.generation > self.told.generation || (to.generation == self.told.generation && to.position > self.told.position);
        if !fresh || to.position == SamplePos::ZERO || !to.generation.is_set() {
            return;
        }
        let begins = to.generation != self.told.generation;
        let ends = self.end == Some((to.generation, to.position));
        if begins || ends || now.since(self.told_at) >= TOLD_EVERY {
            self.told = to;
            self.told_at = now;
            tell(Playout::Progress { generation: to.generation, position: to.position, at: to.due });
        }
    }

    fn silence(&mut self, now: Stamp, pulled: &Pulled, tell: &mut impl FnMut(Playout)) {
        let Some(quiet) = pulled.quiet else { return };
        let by = if quiet.held { QuietBy::Hold } else { QuietBy::Cut };
        let tail = HOUSE_RATE.duration_of(quiet.at_sample as u64);
        let hush = Hush {
            generation: quiet.generation,
            by,
            last: quiet.last,
            seen_at: now,
            handed_at: now,
            bound_at: now + tail + self.capability.buffer_bound,
            give_up_at: now + WORD_WITHIN,
        };
        if by == QuietBy::Cut {
            // What was handed over and not yet heard is never heard.
            self.line.retain(|handed| handed.generation != quiet.generation);
        }
        if !self.waits_for_word() {
            tell(hush.over(hush.bound_at, false));
            return;
        }
        if let Some(word) = self.early.take_if(|word| word.generation == quiet.generation && word.by == by) {
            tell(hush.over(word.at, true));
            return;
        }
        let slot = match by {
            QuietBy::Hold => &mut self.hushes[0],
            QuietBy::Cut => &mut self.hushes[1],
        };
        if let Some(unanswered) = slot.replace(hush) {
            tell(unanswered.over(unanswered.bound_at, false));
        }
    }

    fn starve(&mut self, now: Stamp, pulled: &Pulled, tell: &mut impl FnMut(Playout)) {
        match (self.gap, pulled.underrun) {
            (None, true) => self.gap = Some((pulled.generation, now)),
            (Some((generation, _)), true) if generation == pulled.generation => {}
            (Some((generation, began)), underrun) => {
                self.gap = underrun.then_some((pulled.generation, now));
                let gap_us = now.since(began).as_micros() as u64;
                tell(Playout::Underrun { generation, at: began, gap_us });
            }
            (None, false) => {}
        }
    }
}

impl Hush {
    fn over(self, sounded_at: Stamp, measured: bool) -> Playout {
        Playout::Quiet {
            generation: self.generation,
            by: self.by,
            last: self.last,
            seen_at: self.seen_at,
            handed_at: self.handed_at,
            sounded_at,
            measured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::ring::Quiet;

    const GEN: Generation = Generation(3);

    fn far(reports: bool, bound_ms: u64) -> FarEar {
        FarEar::new(Capability {
            cancels_echo: true,
            can_clear: reports,
            reports_position: reports,
            holds_locally: false,
            buffer_bound: Duration::from_millis(bound_ms),
            uplink_bound: Duration::ZERO,
        })
    }

    fn pulled(position: u64) -> Pulled {
        Pulled {
            generation: GEN,
            position: SamplePos(position),
            sounding: 480,
            stale: 0,
            underrun: false,
            missing: 0,
            ended: false,
            silent: false,
            quiet: None,
        }
    }

    /// Beats of 10 ms from `from` on; what is told.
    fn beats(far: &mut FarEar, from: u64, pulls: impl IntoIterator<Item = Pulled>) -> Vec<Playout> {
        let mut told = Vec::new();
        for (i, pull) in pulls.into_iter().enumerate() {
            let now = Stamp::from_millis(from + 10 * i as u64);
            far.handed(now, &pull, &mut |p| told.push(p));
            far.beat(now, &mut |p| told.push(p));
        }
        told
    }

    fn positions(told: &[Playout]) -> Vec<u64> {
        told.iter()
            .filter_map(|p| match p {
                Playout::Progress { position, .. } => Some(position.0),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn without_reports_the_declared_bound_is_waited_for() {
        let mut far = far(false, 40);
        let told = beats(&mut far, 0, (1..=5).map(|i| pulled(480 * i)));
        assert!(told.is_empty(), "the first block is over at 50 ms at the soonest: {told:?}");
        let last = Pulled { ended: true, ..pulled(480 * 6) };
        let told = beats(&mut far, 50, [last].into_iter().chain((0..9).map(|_| Pulled { sounding: 0, ..pulled(480 * 6) })));
        assert_eq!(positions(&told), [480, 480 * 6], "its beginning and its end, and every 50 ms between");
        let Playout::Progress { at, .. } = told[1] else { panic!("progress") };
        assert_eq!(at, Stamp::from_millis(100), "handed over at 50 ms, 10 ms long, 40 ms on the way");
    }

    #[test]
    fn a_client_that_reports_is_believed_and_a_mute_one_is_not_waited_for() {
        let mut far = far(true, 40);
        let mut told = beats(&mut far, 0, (1..=20).map(|i| pulled(480 * i)));
        assert!(told.is_empty(), "the client has not spoken");
        far.position(Stamp::from_millis(200), GEN, SamplePos(4_800), Stamp::from_millis(190), &mut |p| told.push(p));
        let at = Stamp::from_millis(190);
        assert_eq!(told, [Playout::Progress { generation: GEN, position: SamplePos(4_800), at }]);
        let told = beats(&mut far, 210, (0..100).map(|_| Pulled { sounding: 0, ..pulled(9_600) }));
        assert_eq!(positions(&told), [9_600], "after a second of nothing the bound counts");
    }

    #[test]
    fn a_client_that_never_reports_is_not_waited_for_either() {
        let mut far = far(true, 40);
        let told = beats(&mut far, 0, (1..=130).map(|i| pulled(480 * i)));
        assert!(!positions(&told).is_empty(), "after a second without a word the declared bound counts");
    }

    #[test]
    fn a_silence_waits_for_the_clients_word_and_not_for_ever() {
        let quiet = |held| Some(Quiet { generation: GEN, held, last: SamplePos(960), at_sample: 240 });
        let mut ear = far(true, 60);
        assert!(beats(&mut ear, 0, [Pulled { quiet: quiet(true), ..pulled(960) }]).is_empty());
        let mut told = Vec::new();
        ear.silenced(Stamp::from_millis(30), GEN, true, Stamp::from_millis(25), &mut |p| told.push(p));
        let heard = |by, ms, sounded_us, measured| Playout::Quiet {
            generation: GEN,
            by,
            last: SamplePos(960),
            seen_at: Stamp::from_millis(ms),
            handed_at: Stamp::from_millis(ms),
            sounded_at: Stamp::from_micros(sounded_us),
            measured,
        };
        assert_eq!(told, [heard(QuietBy::Hold, 0, 25_000, true)]);
        let told = beats(&mut ear, 40, [Pulled { quiet: quiet(false), ..pulled(960) }]);
        assert!(told.is_empty());
        let told = beats(&mut ear, 540, [pulled(960)]);
        assert_eq!(told, [heard(QuietBy::Cut, 40, 40_000 + 5_000 + 60_000, false)], "declared, not measured");
    }

    #[test]
    fn a_client_may_obey_before_the_pump_does() {
        let mut far = far(true, 60);
        let mut told = Vec::new();
        far.silenced(Stamp::from_millis(5), GEN, false, Stamp::from_millis(4), &mut |p| told.push(p));
        assert!(told.is_empty());
        let quiet = Some(Quiet { generation: GEN, held: false, last: SamplePos(480), at_sample: 240 });
        let told = beats(&mut far, 10, [Pulled { quiet, ..pulled(480) }]);
        assert!(matches!(told[..], [Playout::Quiet { measured: true, sounded_at, .. }] if sounded_at == Stamp::from_millis(4)));
    }

    #[test]
    fn a_word_that_came_too_late_is_not_taken_for_the_next_silence() {
        let mut far = far(true, 60);
        let mut told = Vec::new();
        far.silenced(Stamp::from_millis(5), GEN, true, Stamp::from_millis(4), &mut |p| told.push(p));
        beats(&mut far, 10, (0..20).map(|_| pulled(480)));
        let quiet = Some(Quiet { generation: GEN, held: true, last: SamplePos(480), at_sample: 240 });
        let told = beats(&mut far, 400, [Pulled { quiet, ..pulled(480) }]);
        assert!(told.is_empty(), "the client has not said a word about this hold: {told:?}");
    }

    #[test]
    fn a_gap_is_told_once_with_its_length() {
        let mut far = far(false, 0);
        let dry = Pulled { sounding: 0, underrun: true, ..pulled(480) };
        let told = beats(&mut far, 0, [pulled(480), dry, dry, dry, pulled(960)]);
        let gaps: Vec<_> = told.iter().filter(|p| matches!(p, Playout::Underrun { .. })).collect();
        assert_eq!(gaps, [&Playout::Underrun { generation: GEN, at: Stamp::from_millis(10), gap_us: 30_000 }]);
    }
}
