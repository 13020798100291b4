//! Plain signal arithmetic on mono `f32` samples.

/// Root mean square; zero of nothing.
pub(crate) fn rms(samples: &[f32]) -> f32 {
    if samples.is_empty() {
        return 0.0;
    }
    (samples.iter().map(|x| f64::from(x * x)).sum::<f64>() / samples.len() as f64).sqrt() as f32
}

/// Level relative to full scale, dB, not below -120.
pub(crate) fn dbfs(amplitude: f32) -> f32 {
    20.0 * amplitude.max(1e-6).log10()
}

/// Three samples for each one: 16 kHz to 48 kHz, by a Hann-windowed sinc, sample 0 staying at time 0.
pub(crate) fn times_three(samples: &[f32]) -> Vec<f32> {
    const REACH: i64 = 16;
    let kernel: Vec<f32> = (-3 * REACH..=3 * REACH)
        .map(|i| {
            let t = i as f64 / 3.0;
            let sinc = if i == 0 { 1.0 } else { (std::f64::consts::PI * t).sin() / (std::f64::consts::PI * t) };
            let window = 0.5 + 0.5 * (std::f64::consts::PI * t / (REACH as f64 + 1.0)).cos();
            (sinc * window) as f32
        })
        .collect();
    (0..samples.len() as i64 * 3)
        .map(|n| {
            let nearest = n / 3;
            (nearest - REACH..=nearest + REACH)
                .filter(|k| *k >= 0 && *k < samples.len() as i64)
                .filter_map(|k| kernel.get(usize::try_from(n - 3 * k + 3 * REACH).ok()?).map(|w| w * samples[k as usize]))
                .sum()
        })
        .collect()
}

/// Where `needle` fits best into `hay[from..to]`: the index of its first sample and the normalised correlation there, -1..=1.
///
/// First at every 4th lag on every 4th sample, then exactly around the best.
pub(crate) fn find(needle: &[f32], hay: &[f32], from: usize, to: usize) -> Option<(usize, f32)> {
    const COARSE: usize = 4;
    let last = to.min(hay.len()).checked_sub(needle.len())?;
    let best = |lags: &mut dyn Iterator<Item = usize>, step: usize| {
        lags.map(|lag| (lag, correlation_at(needle, &hay[lag..lag + needle.len()], step))).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let (coarse, _) = best(&mut (from..=last).step_by(COARSE), COARSE)?;
    best(&mut (coarse.saturating_sub(COARSE)..=(coarse + COARSE).min(last)), 1)
}

fn correlation_at(a: &[f32], b: &[f32], step: usize) -> f32 {
    let (mut dot, mut aa, mut bb) = (0.0f32, 1e-12f32, 1e-12f32);
    for (x, y) in a.iter().step_by(step).zip(b.iter().step_by(step)) {
        dot += x * y;
        aa += x * x;
        bb += y * y;
    }
    dot / (aa * bb).sqrt()
}

/// RMS of each whole `frame` samples.
pub(crate) fn envelope(samples: &[f32], frame: usize) -> Vec<f32> {
    samples.chunks_exact(frame).map(rms).collect()
}

/// Pearson correlation of two series over their common length; zero when one of them does not move.
pub(crate) fn pearson(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    if n < 2 {
        return 0.0;
    }
    let mean = |x: &[f32]| x[..n].iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64;
    let (ma, mb) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (dx, dy) = (f64::from(*x) - ma, f64::from(*y) - mb);
        ab += dx * dy;
        aa += dx * dx;
        bb += dy * dy;
    }
    if aa * bb <= 0.0 { 0.0 } else { (ab / (aa * bb).sqrt()) as f32 }
}

/// How alike two sounds are by their loudness over time: the best correlation of their 10 ms levels (dB, not below -60 of the
/// peak) with `heard` shifted by up to `slack` frames of 10 ms either way. Both at `rate`.
pub(crate) fn likeness(made: &[f32], heard: &[f32], rate: u32, slack: usize) -> f32 {
    let levels = |samples: &[f32]| -> Vec<f32> {
        let envelope = envelope(samples, rate as usize / 100);
        let peak = envelope.iter().copied().fold(1e-6, f32::max);
        envelope.iter().map(|v| dbfs(v / peak).max(-60.0)).collect()
    };
    let (made, heard) = (levels(made), levels(heard));
    let shifted = (0..=slack)
        .flat_map(|s| [pearson(&made, heard.get(s..).unwrap_or_default()), pearson(made.get(s..).unwrap_or_default(), &heard)]);
    shifted.fold(-1.0, f32::max)
}

/// Linear interpolation to another rate: good enough for loudness, not for listening.
pub(crate) fn resample_roughly(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    let n = (samples.len() as u64 * u64::from(to) / u64::from(from)) as usize;
    (0..n)
        .map(|i| {
            let at = i as f64 * f64::from(from) / f64::from(to);
            let (k, part) = (at as usize, (at.fract()) as f32);
            let next = samples.get(k + 1).copied().unwrap_or(samples[k]);
            samples[k] * (1.0 - part) + next * part
        })
        .collect()
}

/// A generator of made-up noise: the same numbers on every machine.
pub(crate) struct Noise(u64);

impl Noise {
    /// From a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Noise(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The next value, even over -1..1.
    pub(crate) fn sample(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32) / (1u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f32, rate: f32, n: usize) -> Vec<f32> {
        (0..n).map(|i| (std::f32::consts::TAU * hz * i as f32 / rate).sin()).collect()
    }

    #[test]
    fn levels_of_known_sounds() {
        assert!((dbfs(rms(&tone(1_000.0, 48_000.0, 48_000))) + 3.01).abs() < 0.01);
        assert_eq!(rms(&[]), 0.0);
        assert_eq!(dbfs(0.0), -120.0);
    }

    #[test]
    fn upsampling_keeps_a_tone_and_its_place() {
        let up = times_three(&tone(1_000.0, 16_000.0, 4_800));
        let wanted = tone(1_000.0, 48_000.0, 14_400);
        let worst = up[600..13_800].iter().zip(&wanted[600..13_800]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 0.01, "{worst}");
    }

    #[test]
    fn a_clip_is_found_to_the_sample_also_in_noise() {
        let mut noise = Noise::new(1);
        let mut smooth = 0.0;
        let clip: Vec<f32> = (0..4_000)
            .map(|_| {
                smooth = 0.8 * smooth + 0.2 * noise.sample();
                smooth
            })
            .collect();
        for at in [0, 1, 777, 20_003] {
            let mut hay: Vec<f32> = (0..30_000).map(|_| 0.03 * noise.sample()).collect();
            for (h, c) in hay[at..].iter_mut().zip(&clip) {
                *h += 0.5 * c;
            }
            let (found, how) = find(&clip, &hay, 0, 30_000).expect("it fits");
            assert_eq!(found, at);
            assert!(how > 0.9, "{how}");
        }
        assert_eq!(find(&clip, &clip[1..], 0, 3_999), None, "too short");
    }

    #[test]
    fn likeness_knows_the_same_rhythm_and_refuses_another() {
        let mut noise = Noise::new(2);
        let mut rhythm = |seed: u64| -> Vec<f32> {
            let mut gates = Noise::new(seed);
            (0..40)
                .flat_map(|_| vec![if gates.sample() > 0.0 { 0.5 } else { 0.002 }; 4_800])
                .map(|g: f32| g * noise.sample())
                .collect()
        };
        let (a, again, b) = (rhythm(7), rhythm(7), rhythm(8));
        let late: Vec<f32> = std::iter::repeat_n(0.0, 1_440).chain(again).collect();
        assert!(likeness(&a, &late, 48_000, 5) > 0.95);
        assert!(likeness(&a, &b, 48_000, 5) < 0.5);
    }

    #[test]
    fn rough_resampling_keeps_length_in_time() {
        let there = resample_roughly(&tone(100.0, 22_050.0, 22_050), 22_050, 48_000);
        assert_eq!(there.len(), 48_000);
        assert!((rms(&there) - rms(&tone(100.0, 48_000.0, 48_000))).abs() < 1e-3);
    }
}
