//! When old sound ended, read from samples alone.

use super::signal::{dbfs, rms};

/// What counts as sounding: -60 dB relative to full scale. A voice at conversation level is 30 dB or more above it.
pub(crate) const SOUNDING: f32 = 1e-3;

/// Index after the last sample in `from..to` that sounds; `None` when none does.
pub(crate) fn last_sounding(samples: &[f32], from: usize, to: usize) -> Option<usize> {
    let to = to.min(samples.len());
    samples.get(from..to)?.iter().rposition(|x| x.abs() > SOUNDING).map(|i| from + i + 1)
}

/// First sample in `from..to` from which on sound goes on: in the next 50 ms at least half of the 5 ms frames sound.
pub(crate) fn first_sounding(samples: &[f32], from: usize, to: usize, rate: u32) -> Option<usize> {
    let frame = rate as usize / 200;
    let to = to.min(samples.len());
    (from..to).find(|&i| {
        samples[i].abs() > SOUNDING && {
            let next = &samples[i..(i + 10 * frame).min(samples.len())];
            next.chunks(frame).filter(|f| f.iter().any(|x| x.abs() > SOUNDING)).count() >= 5
        }
    })
}

/// Loudest sample in `from..to`, dB relative to full scale.
pub(crate) fn peak_dbfs(samples: &[f32], from: usize, to: usize) -> f32 {
    dbfs(samples[from.min(samples.len())..to.min(samples.len())].iter().fold(0.0, |m: f32, x| m.max(x.abs())))
}

/// Whether something speaks in the `ms` milliseconds before `at`: level above -45 dB.
pub(crate) fn speaks_before(samples: &[f32], at: usize, ms: usize, rate: u32) -> bool {
    dbfs(rms(&samples[at.saturating_sub(rate as usize * ms / 1_000)..at.min(samples.len())])) > -45.0
}

#[cfg(test)]
mod tests {
    use super::super::signal::Noise;
    use super::*;

    /// 1 s of noise at `level`, from `from` to `to` milliseconds, with a 5 ms ramp down at its end.
    fn burst(level: f32, from: usize, to: usize) -> Vec<f32> {
        let mut noise = Noise::new(3);
        let (from, to) = (from * 48, to * 48);
        (0..48_000)
            .map(|i| {
                let fade = if i >= to { 0.0 } else { ((to - i) as f32 / 240.0).min(1.0) };
                if i < from { 0.0 } else { level * fade * noise.sample() }
            })
            .collect()
    }

    #[test]
    fn the_end_of_a_burst_is_found_within_its_ramp() {
        for level in [0.3, 0.03] {
            let end = last_sounding(&burst(level, 100, 700), 0, 48_000).expect("it sounds");
            assert!((33_300..=33_600).contains(&end), "{level}: {end}");
        }
        assert_eq!(last_sounding(&burst(0.3, 100, 700), 34_000, 48_000), None);
        assert_eq!(last_sounding(&burst(0.0005, 100, 700), 0, 48_000), None, "a noise floor is not sound");
        assert_eq!(last_sounding(&[0.5], 3, 9), None);
    }

    #[test]
    fn one_old_sample_after_the_silence_moves_the_tail() {
        let mut sound = burst(0.3, 100, 400);
        sound[40_000] = 0.01;
        assert_eq!(last_sounding(&sound, 0, 48_000), Some(40_001));
    }

    #[test]
    fn a_beginning_is_found_and_a_click_is_not_one() {
        let mut sound = burst(0.3, 600, 990);
        sound[5_000] = 0.9;
        let first = first_sounding(&sound, 0, 48_000, 48_000).expect("it begins");
        assert!((28_800..28_900).contains(&first), "{first}");
    }

    #[test]
    fn speaking_is_told_from_silence() {
        let sound = burst(0.3, 100, 400);
        assert!(speaks_before(&sound, 400 * 48, 100, 48_000));
        assert!(!speaks_before(&sound, 600 * 48, 100, 48_000));
        assert!(peak_dbfs(&sound, 20_000, 48_000) <= -120.0);
        assert!(peak_dbfs(&sound, 0, 48_000) > -12.0);
    }
}
