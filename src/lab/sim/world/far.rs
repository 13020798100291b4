//! The far end of the world: what is pulled every ten milliseconds, and what is said about it, sometime, or never.

use super::World;
use crate::audio::ring::Pulled;
use crate::id::Generation;
use crate::lab::check::Fact;
use crate::lab::sim::queue::Happening;
use crate::time::{BEAT, BLOCK_SAMPLES, Stamp};
use crate::turn::{Input, Playout, QuietBy};

/// What follows a beat of the sink.
#[derive(Debug, Default)]
pub(super) struct Far {
    pub(super) beats: u64,
    pub(super) reported: Option<(Generation, u64)>,
    pub(super) dry_since: Option<Stamp>,
    pub(super) stands_until: Stamp,
}

impl World {
    pub(super) fn place(&mut self) {
        for generation in self.sound.place() {
            self.inputs.push_back(Input::Late { kind: crate::event::LateKind::Audio, generation });
        }
    }

    pub(super) fn beat(&mut self) {
        let beat = self.sound.beat();
        let at = self.now;
        self.next_beat = Stamp::from_micros((at.as_micros() / 10_000 + 1) * 10_000);
        if let Some(words) = beat.wrong {
            self.wrong("samples_balance", words);
        }
        let pulled = beat.pulled;
        // One pull is one block of the house, however few samples stand for it.
        let scale = (BLOCK_SAMPLES / self.shape.slice) as u64;
        if let Some(quiet) = pulled.quiet.filter(|_| pulled.stale > 0) {
            self.checks.see(Fact::Heard { generation: quiet.generation, samples: pulled.stale as u64 * scale, at });
        }
        if pulled.sounding > 0 {
            let generation = beat.tag.map_or(pulled.generation, Generation);
            self.checks.see(Fact::Heard { generation, samples: pulled.sounding as u64 * scale, at });
            self.trace.word(at.as_micros());
            self.trace.word(generation.0 << 32 | (pulled.stale as u64) << 16 | pulled.sounding as u64);
        }
        self.report_playout(&pulled);
        self.place();
        // What the ring refused.
        while let Some(input) = self.inputs.pop_front() {
            self.queue.put(self.now, Happening::Fact(input));
        }
    }

    /// The sink tells how far it is, sometime, if it does not stand still or the report is lost.
    pub(super) fn report_playout(&mut self, pulled: &Pulled) {
        let now = self.now;
        self.far.beats += 1;
        if self.rng.chance(self.shape.faults.far_stalls) && self.far.stands_until < now {
            self.far.stands_until = self.in_a((500, 5_000));
        }
        let mut reports = Vec::new();
        if let Some(quiet) = pulled.quiet.filter(|quiet| quiet.generation.is_set()) {
            let by = if quiet.held { QuietBy::Hold } else { QuietBy::Cut };
            let sounded_at = self.in_a(self.shape.far);
            reports.push(Playout::Quiet {
                generation: quiet.generation,
                by,
                last: quiet.last,
                seen_at: now,
                handed_at: now,
                sounded_at,
                measured: true,
            });
        }
        if pulled.generation.is_set() {
            let here = (pulled.generation, pulled.position.0);
            let ran_out = pulled.sounding == 0 || self.sound_is_over();
            if here.1 > 0 && self.far.reported != Some(here) && (self.far.beats.is_multiple_of(self.shape.cadence) || ran_out) {
                self.far.reported = Some(here);
                reports.push(Playout::Progress { generation: here.0, position: pulled.position, at: now });
            }
        }
        match (pulled.underrun, self.far.dry_since) {
            (true, None) => self.far.dry_since = Some(now),
            (true, Some(since)) if now.since(since) == BEAT * 5 => {
                let gap_us = now.since(since).as_micros() as u64;
                reports.push(Playout::Underrun { generation: pulled.generation, at: since, gap_us });
            }
            (false, Some(_)) => self.far.dry_since = None,
            _ => {}
        }
        for report in reports {
            // A report that says that all is over comes again until it is heard; the others may be lost.
            if matches!(report, Playout::Progress { .. }) && self.rng.chance(self.shape.faults.far_lost) {
                self.far.reported = None;
                continue;
            }
            let at = self.in_a(self.shape.far).max(self.far.stands_until);
            self.queue.put(at, Happening::Playout(report));
        }
    }

    pub(super) fn sound_is_over(&self) -> bool {
        self.sound.is_drained()
    }
}
