//! Whether a sound is speech-like: loud enough, in syllables, with a voice's pitch. A coarse judge that noise, tones, music-box
//! beeps and silence do not pass.

use super::signal::{dbfs, envelope, rms};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Likeness {
    /// Level of the frames that sound, dB relative to full scale.
    pub(crate) level_dbfs: f32,
    /// Share of 10 ms frames within 30 dB of the loudest.
    pub(crate) active: f32,
    /// Share of the sounding 40 ms frames that have a pitch of 60..=400 Hz.
    pub(crate) voiced: f32,
    /// Spread of that pitch over its mean: a held tone has none.
    pub(crate) melody: f32,
    /// Rises of loudness per second.
    pub(crate) syllables: f32,
}

impl Likeness {
    /// Whether all of it is as in speech.
    pub(crate) fn is_speech(self) -> bool {
        self.level_dbfs > -45.0
            && (0.3..=0.98).contains(&self.active)
            && self.voiced > 0.3
            && self.melody > 0.03
            && (1.5..=12.0).contains(&self.syllables)
    }
}

/// Judges at least one second of sound.
pub(crate) fn judge(samples: &[f32], rate: u32) -> Likeness {
    let levels: Vec<f32> = envelope(samples, rate as usize / 100).iter().map(|v| dbfs(*v)).collect();
    let loudest = levels.iter().copied().fold(-120.0, f32::max);
    let sounding = |db: f32| db > loudest - 30.0 && db > -60.0;
    let active = levels.iter().filter(|l| sounding(**l)).count() as f32 / levels.len().max(1) as f32;

    let frame = rate as usize / 25;
    let loud: Vec<&[f32]> = samples.chunks_exact(frame).filter(|f| sounding(dbfs(rms(f)))).collect();
    let pitches: Vec<f32> = loud.iter().filter_map(|f| pitch(f, rate)).collect();
    let mean = pitches.iter().sum::<f32>() / pitches.len().max(1) as f32;
    let spread = (pitches.iter().map(|p| (p - mean).powi(2)).sum::<f32>() / pitches.len().max(1) as f32).sqrt();
    let level: Vec<f32> = loud.iter().flat_map(|f| f.iter().copied()).collect();

    Likeness {
        level_dbfs: dbfs(rms(&level)),
        active,
        voiced: pitches.len() as f32 / loud.len().max(1) as f32,
        melody: if mean > 0.0 { spread / mean } else { 0.0 },
        syllables: rises(&levels) as f32 / (samples.len() as f32 / rate as f32),
    }
}

/// Rises by 6 dB or more after a fall of 6 dB or more, on levels smoothed over 50 ms.
fn rises(levels: &[f32]) -> usize {
    let smooth: Vec<f32> = levels.windows(5).map(|w| w.iter().sum::<f32>() / 5.0).collect();
    let (mut low, mut high, mut up, mut count) = (f32::MAX, f32::MIN, false, 0);
    for &level in &smooth {
        if up {
            high = high.max(level);
            if level < high - 6.0 {
                (up, low) = (false, level);
            }
        } else {
            low = low.min(level);
            if level > low + 6.0 && level > -60.0 {
                (up, high, count) = (true, level, count + 1);
            }
        }
    }
    count
}

/// The pitch of one frame by its autocorrelation, Hz; `None` when it has none between 60 and 400 Hz.
fn pitch(frame: &[f32], rate: u32) -> Option<f32> {
    // Averaged down to 8 kHz or so: pitch needs no more.
    let step = (rate as usize / 8_000).max(1);
    let low: Vec<f32> = frame.chunks_exact(step).map(|c| c.iter().sum::<f32>() / step as f32).collect();
    let rate = rate as f32 / step as f32;
    let energy: f32 = low.iter().map(|x| x * x).sum();
    let strength = |lag: usize| {
        let n = low.len() - lag;
        let (mut dot, mut a, mut b) = (0.0, 1e-12, 1e-12);
        for i in 0..n {
            dot += low[i] * low[i + lag];
            a += low[i] * low[i];
            b += low[i + lag] * low[i + lag];
        }
        dot / f32::sqrt(a * b)
    };
    let (from, to) = ((rate / 400.0) as usize, ((rate / 60.0) as usize).min(low.len() / 2));
    let strengths: Vec<f32> = (from..=to).map(strength).collect();
    let best = strengths.iter().copied().fold(0.0, f32::max);
    // The shortest lag that is nearly as good: not an octave below.
    let at = strengths.iter().position(|s| *s > 0.92 * best)?;
    // A hump inside the range, not the slope of something slower or faster.
    let inside = at > 0 && at + 1 < strengths.len();
    (energy > 1e-9 && best > 0.6 && inside).then(|| rate / (from + at) as f32)
}

#[cfg(test)]
mod tests {
    use super::super::clips;
    use super::super::signal::Noise;
    use super::*;

    const RATE: u32 = 48_000;

    /// Three seconds of pulses at a wandering pitch, in syllables: a buzzing made-up voice.
    fn voice() -> Vec<f32> {
        let mut phase = 0.0f32;
        let mut ring = 0.0f32;
        (0..RATE as usize * 3)
            .map(|i| {
                let t = i as f32 / RATE as f32;
                phase += (120.0 + 25.0 * (2.0 * t).sin()) / RATE as f32;
                let pulse = if phase >= 1.0 { 1.0 } else { 0.0 };
                phase -= phase.floor();
                ring = 0.99 * ring + pulse;
                let syllable = (0.5 - 0.5 * (std::f32::consts::TAU * 4.0 * t).cos()).powi(2);
                0.2 * syllable * (ring - 0.4)
            })
            .collect()
    }

    #[test]
    fn a_made_up_voice_and_recorded_ones_are_speech() {
        let made = judge(&voice(), RATE);
        assert!(made.is_speech(), "{made:?}");
        for clip in clips::all() {
            let found = judge(&clip.samples, clips::RATE);
            assert!(found.is_speech(), "{}: {found:?}", clip.file);
        }
    }

    #[test]
    fn silence_noise_tones_and_beeps_are_not() {
        let n = RATE as usize * 3;
        let mut noise = Noise::new(5);
        let tone = |i: usize| (std::f32::consts::TAU * 220.0 * i as f32 / RATE as f32).sin();
        let cases: [(&str, Vec<f32>); 4] = [
            ("silence", vec![0.0; n]),
            ("noise", (0..n).map(|_| 0.2 * noise.sample()).collect()),
            ("tone", (0..n).map(|i| 0.2 * tone(i)).collect()),
            ("beeps", (0..n).map(|i| if i / 12_000 % 2 == 0 { 0.2 * tone(i) } else { 0.0 }).collect()),
        ];
        for (name, sound) in cases {
            let found = judge(&sound, RATE);
            assert!(!found.is_speech(), "{name}: {found:?}");
        }
    }
}
