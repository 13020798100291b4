//! Meter: how loud it is, how loud it is when nobody speaks, and when the present stretch of sound began.
//!
//! The noise floor follows minima: the power over 20 ms is lowest when nobody speaks, and in every 1.2 s of speech there is a moment
//! when nobody does. It falls at once and rises slowly, so that a long vowel does not become the floor.
//!
//! The onset is looked for in steps of 2.5 ms. While 10 ms of sound stand out of the floor, the meter walks back over the steps before
//! until it comes to 150 ms of quiet; there the stretch began. Quiet is what is near the floor, and also what is very much softer than
//! the loudest sound since: when somebody speaks, the breath or the rustle before it is no longer where it began.

use super::{Io, Node, Ports, Work};
use crate::time::{BLOCK_SAMPLES, HOUSE_RATE};

/// A meter at the house rate. Readings: [`Meter::LEVEL`], [`Meter::FLOOR`], [`Meter::SOUND`], [`Meter::SINCE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter;

impl Meter {
    /// Level of the block, dB relative to full scale, not below -120.
    pub const LEVEL: usize = 0;
    /// The noise floor, dB relative to full scale.
    pub const FLOOR: usize = 1;
    /// Whether the block has something in it: 0 or 1.
    pub const SOUND: usize = 2;
    /// Samples from the beginning of the present stretch of sound, or the last one, to the end of the block; 0 before the first.
    pub const SINCE: usize = 3;
}

impl Node for Meter {
    fn ports(&self) -> Ports {
        Ports::sink(HOUSE_RATE, 4)
    }

    fn build(&self) -> Box<dyn Work> {
        Box::new(Worker::new())
    }
}

/// Samples of one step: 2.5 ms.
const STEP: usize = 120;
/// Steps of one block.
const STEPS: usize = BLOCK_SAMPLES / STEP;
/// Steps of quiet that end a stretch: 150 ms.
const GAP_STEPS: u64 = 60;
/// Steps remembered for walking back: 320 ms.
const MEMORY: usize = 128;
/// Ten milliseconds this far above the floor stand out, dB.
const STANDS_OUT_DB: f32 = 6.0;
/// A step this far above the floor still belongs to the sound that follows, dB.
const BELONGS_DB: f32 = 4.0;
/// What is this much softer than the loudest moment of a stretch does not begin it, dB.
const SOFTER_DB: f32 = 35.0;
/// How fast the loudest moment is forgotten: 10 dB per second.
const FORGET_DB_PER_STEP: f32 = 10.0 * STEP as f32 / 48_000.0;
/// Below this nothing is a sound, dB relative to full scale.
const INAUDIBLE_DB: f32 = -70.0;
/// The floor is never believed to be lower, dB relative to full scale.
const LOWEST_FLOOR_DB: f32 = -75.0;
/// ... nor higher at the beginning, when the first thing heard may be speech.
const FIRST_FLOOR_DB: f32 = -50.0;
/// How fast the floor may rise: 12 dB per second.
const RISE_DB_PER_STEP: f32 = 12.0 * STEP as f32 / 48_000.0;
/// Windows whose minima are kept, and the steps of one: 6 × 200 ms.
const WINDOWS: usize = 6;
const WINDOW_STEPS: u64 = 80;
/// The minimum of the power of steady noise over 20 ms lies this far below its mean, dB.
const MINIMUM_BIAS_DB: f32 = 1.0;
/// Steps over which the power is taken for the floor: 20 ms.
const FLOOR_STEPS: usize = 8;
/// Power of a step below which nothing was measured: -90 dB. A muted microphone says nothing about the room.
const UNMEASURED: f32 = 1e-9;

const _: () = assert!(BLOCK_SAMPLES.is_multiple_of(STEP), "a block is whole steps");
const _: () = assert!(MEMORY as u64 > 2 * GAP_STEPS && MEMORY >= FLOOR_STEPS, "a gap is seen for some time after it");

struct Worker {
    /// Power of the last steps, by step number modulo [`MEMORY`].
    powers: [f32; MEMORY],
    /// Steps so far.
    steps: u64,
    minima: [f32; WINDOWS],
    window_min: f32,
    /// Steps that the floor has learned from.
    learned: u64,
    floor_db: f32,
    /// Steps since 10 ms of sound last stood out.
    quiet: u64,
    /// The loudest 10 ms of the present stretch.
    loudest_db: f32,
    /// The step with which the present stretch began.
    onset: Option<u64>,
}

impl Worker {
    fn new() -> Self {
        Worker {
            powers: [0.0; MEMORY],
            steps: 0,
            minima: [f32::INFINITY; WINDOWS],
            window_min: f32::INFINITY,
            learned: 0,
            floor_db: FIRST_FLOOR_DB,
            quiet: GAP_STEPS,
            loudest_db: f32::NEG_INFINITY,
            onset: None,
        }
    }

    /// Takes one step of sound with this power and returns whether the last 10 ms stand out.
    fn step(&mut self, power: f32) -> bool {
        self.powers[(self.steps % MEMORY as u64) as usize] = power;
        self.steps += 1;
        self.learn();
        let recent = self.powers(STEPS).sum::<f32>() / STEPS as f32;
        let recent_db = decibel(recent);
        if recent_db <= (self.floor_db + STANDS_OUT_DB).max(INAUDIBLE_DB) {
            self.quiet += 1;
            return false;
        }
        let anew = self.quiet >= GAP_STEPS;
        self.quiet = 0;
        self.loudest_db = if anew { recent_db } else { recent_db.max(self.loudest_db - FORGET_DB_PER_STEP) };
        match self.walk_back() {
            Some(steps) => self.onset = self.onset.max(Some(self.steps - steps)),
            None if anew => self.onset = Some(self.steps - 1),
            None => {}
        }
        true
    }

    fn learn(&mut self) {
        let (total, least) = self.powers(FLOOR_STEPS).fold((0.0, f32::INFINITY), |(t, l): (f32, f32), p| (t + p, l.min(p)));
        if self.steps < FLOOR_STEPS as u64 || least < UNMEASURED {
            return;
        }
        self.window_min = self.window_min.min(total / FLOOR_STEPS as f32);
        let lowest = self.minima.iter().copied().fold(self.window_min, f32::min);
        let target = (decibel(lowest) + MINIMUM_BIAS_DB).max(LOWEST_FLOOR_DB);
        self.floor_db = target.min(self.floor_db + RISE_DB_PER_STEP);
        self.learned += 1;
        if self.learned.is_multiple_of(WINDOW_STEPS) {
            self.minima[(self.learned / WINDOW_STEPS % WINDOWS as u64) as usize] = self.window_min;
            self.window_min = f32::INFINITY;
        }
    }

    /// How many steps, from the last one back, belong to the present stretch; `None` when it is longer than the memory.
    fn walk_back(&self) -> Option<u64> {
        let threshold = (self.floor_db + BELONGS_DB).max(INAUDIBLE_DB).max(self.loudest_db - SOFTER_DB);
        let threshold = 10f32.powf(threshold / 10.0);
        let mut belong = 0;
        for (back, power) in (1..).zip(self.powers(MEMORY)) {
            if power > threshold {
                belong = back;
            } else if back - belong >= GAP_STEPS {
                return Some(belong.max(1));
            }
        }
        // The beginning of all sound is a gap too.
        (self.steps < MEMORY as u64).then_some(belong.max(1))
    }

    /// Powers of the last `n` steps, the newest first.
    fn powers(&self, n: usize) -> impl Iterator<Item = f32> + '_ {
        let have = self.steps.min(n as u64);
        (1..=have).map(|back| self.powers[((self.steps - back) % MEMORY as u64) as usize])
    }
}

impl Work for Worker {
    fn process(&mut self, io: Io<'_, '_>) {
        let mut sound = false;
        let mut total = 0.0;
        for step in io.inputs[0].chunks_exact(STEP) {
            let power = step.iter().map(|x| x * x).sum::<f32>() / STEP as f32;
            total += power;
            sound |= self.step(power);
        }
        io.readings[Meter::LEVEL] = f64::from(decibel(total / STEPS as f32));
        io.readings[Meter::FLOOR] = f64::from(self.floor_db);
        io.readings[Meter::SOUND] = f64::from(u8::from(sound));
        io.readings[Meter::SINCE] = self.onset.map_or(0.0, |onset| ((self.steps - onset) * STEP as u64) as f64);
    }
}

/// Power in dB relative to full scale, not below -120.
pub(crate) fn decibel(power: f32) -> f32 {
    10.0 * power.max(1e-12).log10()
}

#[cfg(test)]
mod tests {
    use super::super::run;
    use super::*;

    /// Noise of this level, the same for the same seed.
    struct Hiss {
        state: u64,
    }

    impl Hiss {
        fn next(&mut self) -> f32 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Uniform in -√3..√3: power 1.
            ((self.state >> 33) as f32 / (1u64 << 31) as f32 * 2.0 - 1.0) * 3f32.sqrt()
        }
    }

    /// Runs `seconds` of a sound given by sample number and returns the readings of each block.
    fn meter(seconds: f32, mut sound: impl FnMut(usize) -> f32) -> Vec<[f64; 4]> {
        let mut work = Meter.build();
        let mut readings = [0.0; 4];
        (0..(seconds * 100.0) as usize)
            .map(|block| {
                let samples: Vec<f32> = (0..BLOCK_SAMPLES).map(|i| sound(block * BLOCK_SAMPLES + i)).collect();
                run(&mut *work, &[&samples], &mut [], &mut readings);
                readings
            })
            .collect()
    }

    fn level(db: f32) -> f32 {
        10f32.powf(db / 20.0)
    }

    #[test]
    fn the_floor_is_learned_within_about_a_second() {
        for noise_db in [-65.0, -50.0, -40.0, -30.0] {
            let mut hiss = Hiss { state: 1 };
            let seen = meter(2.5, |_| hiss.next() * level(noise_db));
            // From -50 on it may rise by 12 dB in a second.
            let at = if noise_db > -45.0 { 230 } else { 100 };
            let floor = seen[at][Meter::FLOOR];
            assert!((floor - f64::from(noise_db)).abs() < 2.0, "{noise_db}: {floor}");
            assert!((seen[at][Meter::LEVEL] - f64::from(noise_db)).abs() < 1.0);
            assert!(seen[at..].iter().all(|r| r[Meter::SOUND] == 0.0), "steady noise does not stand out");
        }
    }

    #[test]
    fn syllables_do_not_become_the_floor() {
        let mut hiss = Hiss { state: 2 };
        // Four seconds of syllables: 180 ms of tone, 70 ms of pause, over a floor of -60 dB.
        let seen = meter(5.0, |i| {
            let speaking = i > 48_000 && (i / 480) % 25 < 18;
            let tone = (std::f32::consts::TAU * 200.0 * i as f32 / 48_000.0).sin() * 0.14;
            hiss.next() * level(-60.0) + if speaking { tone } else { 0.0 }
        });
        for (block, readings) in seen.iter().enumerate().skip(150) {
            assert!(readings[Meter::FLOOR] < -50.0, "block {block}: {}", readings[Meter::FLOOR]);
        }
    }

    #[test]
    fn the_onset_is_the_first_sample_and_a_pause_of_150_ms_begins_a_new_stretch() {
        let mut hiss = Hiss { state: 3 };
        let starts = [96_037usize, 96_037 + 48_000, 96_037 + 48_000 + 14_400];
        let tone = |i: usize, start: usize, len: usize| {
            if (start..start + len).contains(&i) {
                (std::f32::consts::TAU * 300.0 * (i - start) as f32 / 48_000.0).sin() * 0.1
            } else {
                0.0
            }
        };
        // The third begins 100 ms after the second has ended: the same stretch.
        let seen = meter(5.0, |i| {
            hiss.next() * level(-60.0) + tone(i, starts[0], 9_600) + tone(i, starts[1], 9_600) + tone(i, starts[2], 9_600)
        });
        let onset_at = |block: usize| ((block + 1) * BLOCK_SAMPLES) as f64 - seen[block][Meter::SINCE];
        for (sample, want) in [(starts[0] + 2_000, starts[0]), (starts[1] + 2_000, starts[1]), (starts[2] + 2_000, starts[1])] {
            let got = onset_at(sample / BLOCK_SAMPLES);
            assert!((got - want as f64).abs() <= 240.0, "5 ms at most: {got} for {want}");
        }
    }
}
