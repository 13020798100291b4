//! Echo: how far the microphone is explained by what we play ourselves.
//!
//! A score, not a canceller. It compares levels, 10 ms at a time: at which delay (0 to 300 ms) do the ups and downs of the microphone
//! follow those of the loudspeaker, and how much softer do they arrive? Only when they do follow is there a *coupling*, and then a
//! microphone no louder than the coupled playback is explained, and one that is louder is not. A far end that cancels its echo shows
//! no coupling, and nothing is ever explained.

use super::meter::decibel;
use super::{Io, Node, Ports, Work};
use crate::time::HOUSE_RATE;

/// The echo score at the house rate: input 0 is the microphone, input 1 what was played in the same beat. Reading:
/// [`Echo::EXPLAINED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo;

impl Echo {
    /// How far the block is explained by playback, 0..=1; 0 when nothing was played in the last 400 ms or no coupling is known.
    pub const EXPLAINED: usize = 0;
}

impl Node for Echo {
    fn ports(&self) -> Ports {
        Ports { inputs: vec![HOUSE_RATE, HOUSE_RATE], outputs: vec![], readings: 1 }
    }

    fn build(&self) -> Box<dyn Work> {
        Box::new(Worker {
            played: [SOFTEST_DB; MEMORY],
            blocks: 0,
            heard: 0,
            together: [Moments::default(); DELAYS],
            coupling_db: 0.0,
            learned: 0,
            delay: 0,
        })
    }
}

/// Delays that are tried: 0 to 300 ms in blocks.
const DELAYS: usize = 31;
/// Blocks of playback remembered: 400 ms.
const MEMORY: usize = 40;
/// Levels below this are taken as this, dB relative to full scale.
const SOFTEST_DB: f32 = -65.0;
/// Playback louder than this can be heard at the microphone, dB relative to full scale.
const AUDIBLE_DB: f32 = -50.0;
/// How fast old observations are forgotten: 3 s.
const FORGET: f32 = 1.0 / 300.0;
/// Observations before a delay is believed: 0.6 s of playback.
const ENOUGH: u64 = 60;
/// How well the levels must follow each other, as a correlation.
const FOLLOWS: f32 = 0.6;
/// Steps of the running median of the coupling, dB: first, and later.
const FIRST_STEP_DB: f32 = 1.5;
const LATER_STEP_DB: f32 = 0.25;
/// Observations with the first step.
const FIRST_STEPS: u32 = 40;
/// Echo varies around its coupling; this much above it is still explained, dB.
const MARGIN_DB: f32 = 3.0;

/// Running means of two levels and their products.
#[derive(Clone, Copy, Default)]
struct Moments {
    x: f32,
    y: f32,
    xx: f32,
    yy: f32,
    xy: f32,
}

impl Moments {
    fn observe(&mut self, x: f32, y: f32, rate: f32) {
        for (mean, value) in
            [(&mut self.x, x), (&mut self.y, y), (&mut self.xx, x * x), (&mut self.yy, y * y), (&mut self.xy, x * y)]
        {
            *mean += rate * (value - *mean);
        }
    }

    fn correlation(&self) -> f32 {
        let (vx, vy) = (self.xx - self.x * self.x, self.yy - self.y * self.y);
        // Without ups and downs (3 dB) there is nothing to follow.
        if vx < 9.0 || vy < 9.0 { 0.0 } else { (self.xy - self.x * self.y) / (vx * vy).sqrt() }
    }
}

struct Worker {
    /// Level of what was played, by block number modulo [`MEMORY`].
    played: [f32; MEMORY],
    blocks: usize,
    /// Blocks observed while something was played.
    heard: u64,
    together: [Moments; DELAYS],
    /// Median of microphone minus playback at `delay`, dB.
    coupling_db: f32,
    learned: u32,
    delay: usize,
}

impl Worker {
    /// Level played `back` blocks ago.
    fn played(&self, back: usize) -> f32 {
        self.played[(self.blocks + MEMORY - 1 - back) % MEMORY]
    }

    /// Looks for the delay at which the microphone follows; returns whether it does.
    fn follow(&mut self, mic_db: f32) -> bool {
        self.heard += 1;
        let rate = FORGET.max(1.0 / self.heard as f32);
        for delay in 0..DELAYS {
            let x = self.played(delay);
            self.together[delay].observe(x, mic_db, rate);
        }
        let best = self.together.iter().map(Moments::correlation).enumerate().fold((self.delay, 0.0), |best, (delay, c)| {
            // A new delay must be clearly better, or two neighbours would take turns.
            let handicap = if delay == self.delay { 0.0 } else { 0.02 };
            if c - handicap > best.1 { (delay, c - handicap) } else { best }
        });
        let follows = self.heard >= ENOUGH && best.1 >= FOLLOWS;
        if follows && (best.0.abs_diff(self.delay) > 1 || self.learned == 0) {
            self.learned = 0;
            self.coupling_db = self.together[best.0].y - self.together[best.0].x;
        }
        if follows {
            self.delay = best.0;
        }
        follows
    }

    /// What was played around the moment whose echo arrives now: the loudest of the neighbours, since an echo is smeared.
    fn arriving(&self) -> f32 {
        (self.delay.saturating_sub(1)..=self.delay + 2).map(|back| self.played(back)).fold(SOFTEST_DB, f32::max)
    }

    fn learn(&mut self, mic_db: f32) {
        let arriving = self.arriving();
        if arriving < AUDIBLE_DB || mic_db <= SOFTEST_DB {
            return;
        }
        let step = if self.learned < FIRST_STEPS { FIRST_STEP_DB } else { LATER_STEP_DB };
        self.learned = self.learned.saturating_add(1);
        // A median: somebody speaking over the echo pulls it by one step, however loud.
        self.coupling_db += if mic_db - arriving > self.coupling_db { step } else { -step };
    }
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        let level = |samples: &[f32]| decibel(samples.iter().map(|x| x * x).sum::<f32>() / samples.len() as f32).max(SOFTEST_DB);
        let mic_db = level(io.inputs[0]);
        self.played[self.blocks % MEMORY] = level(io.inputs[1]);
        self.blocks += 1;
        io.readings[Echo::EXPLAINED] = 0.0;
        if self.played.iter().all(|db| *db < AUDIBLE_DB) || !self.follow(mic_db) {
            return;
        }
        self.learn(mic_db);
        let echo_db = self.arriving() + self.coupling_db + MARGIN_DB;
        io.readings[Echo::EXPLAINED] = f64::from(10f32.powf((echo_db - mic_db) / 10.0).min(1.0));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::run;
    use super::*;
    use crate::time::BLOCK_SAMPLES;

    /// Speech-like noise: syllables of changing length and loudness.
    struct Babble {
        state: u64,
        left: usize,
        level: f32,
    }

    impl Babble {
        fn new(seed: u64) -> Self {
            Babble { state: seed, left: 0, level: 0.0 }
        }

        fn random(&mut self) -> f32 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 40) as f32 / (1u64 << 24) as f32
        }

        fn block(&mut self) -> Vec<f32> {
            if self.left == 0 {
                self.left = 4 + (self.random() * 16.0) as usize;
                self.level = if self.random() < 0.3 { 0.0 } else { 0.05 + 0.3 * self.random() };
            }
            self.left -= 1;
            (0..BLOCK_SAMPLES).map(|_| (self.random() * 2.0 - 1.0) * self.level).collect()
        }
    }

    /// Plays for `blocks`; the microphone hears the echo (if any) and, in `talk`, somebody else. Returns the score of each block that
    /// is louder than -45 dB.
    fn scores(echo: Option<(usize, f32)>, talk: std::ops::Range<usize>, blocks: usize) -> Vec<(usize, f64)> {
        let mut work = Echo.build();
        let (mut ours, mut theirs) = (Babble::new(5), Babble::new(77));
        let mut line: VecDeque<Vec<f32>> = VecDeque::new();
        let mut seen = Vec::new();
        for n in 0..blocks {
            let played = ours.block();
            line.push_back(played.clone());
            let mut mic: Vec<f32> = vec![1e-4; BLOCK_SAMPLES];
            if let Some((delay, gain)) = echo
                && line.len() > delay
            {
                let arriving = line.pop_front().expect("it is longer than the delay");
                mic.iter_mut().zip(arriving).for_each(|(m, x)| *m += x * gain);
            }
            let voice = theirs.block();
            if talk.contains(&n) {
                mic.iter_mut().zip(voice).for_each(|(m, x)| *m += x);
            }
            let mut readings = [0.0];
            run(&mut *work, &[&mic, &played], &mut [], &mut readings);
            if decibel(mic.iter().map(|x| x * x).sum::<f32>() / BLOCK_SAMPLES as f32) > -45.0 {
                seen.push((n, readings[0]));
            }
        }
        seen
    }

    #[test]
    fn f1_our_own_echo_is_explained_at_any_delay_and_level() {
        for delay in [0, 8, 15, 30] {
            for gain in [0.5, 0.1, 0.03] {
                let seen = scores(Some((delay, gain)), 0..0, 900);
                let late: Vec<_> = seen.iter().filter(|(n, _)| *n > 300).collect();
                let unexplained = late.iter().filter(|(_, e)| *e < 0.5).count();
                assert!(
                    unexplained * 50 <= late.len(),
                    "delay {delay}, gain {gain}: {unexplained} of {} not explained",
                    late.len()
                );
            }
        }
    }

    #[test]
    fn f4_speech_louder_than_the_echo_is_not_explained() {
        let seen = scores(Some((10, 0.05)), 600..700, 900);
        let talking: Vec<_> = seen.iter().filter(|(n, _)| (600..700).contains(n)).collect();
        let free = talking.iter().filter(|(_, e)| *e < 0.5).count();
        assert!(free * 10 >= talking.len() * 6, "{free} of {} blocks of speech stand out", talking.len());
    }

    #[test]
    fn without_coupling_nothing_is_explained() {
        let seen = scores(None, 0..900, 900);
        let explained = seen.iter().filter(|(_, e)| *e >= 0.5).count();
        assert!(explained * 50 <= seen.len(), "{explained} of {}", seen.len());
        let mut work = Echo.build();
        let mut readings = [9.0];
        run(&mut *work, &[&[0.3; BLOCK_SAMPLES], &[0.0; BLOCK_SAMPLES]], &mut [], &mut readings);
        assert_eq!(readings[0], 0.0, "nothing played, nothing explained");
    }
}
