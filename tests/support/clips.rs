//! The recorded voices of `assets/audio`, and the microphone file made of them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::signal::{Noise, times_three};

/// Sample rate of the clips, Hz.
pub(crate) const RATE: u32 = 16_000;
/// Sample rate of the microphone file, Hz.
pub(crate) const MIC_RATE: u32 = 48_000;

/// One clip with its labels, as `clips.json` has it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Clip {
    /// File name.
    pub(crate) file: String,
    /// `question`, `barge_in` or `spare`.
    pub(crate) role: String,
    /// Who speaks.
    pub(crate) speaker: String,
    /// First sound of the utterance, seconds from the start of the clip.
    pub(crate) onset_s: f64,
    /// First glottal pulse, seconds from the start of the clip.
    pub(crate) voiced_onset_s: f64,
    /// `sure` or `soft`.
    pub(crate) onset_quality: String,
    /// The samples, at [`RATE`].
    #[serde(skip)]
    pub(crate) samples: Vec<f32>,
}

#[derive(Deserialize)]
struct Listing {
    clips: Vec<Clip>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/audio")
}

/// Every clip, in the order of the list.
pub(crate) fn all() -> Vec<Clip> {
    let listing = std::fs::read_to_string(folder().join("clips.json")).expect("assets/audio/clips.json is in the repository");
    let mut listing: Listing = serde_json::from_str(&listing).expect("clips.json is well formed");
    for clip in &mut listing.clips {
        let mut reader = hound::WavReader::open(folder().join(&clip.file)).expect("a listed clip is there");
        let spec = reader.spec();
        assert_eq!((spec.sample_rate, spec.channels, spec.bits_per_sample), (RATE, 1, 16), "{}", clip.file);
        clip.samples = reader.samples::<i16>().map(|s| f32::from(s.expect("a whole file")) / 32_768.0).collect();
    }
    listing.clips
}

/// One utterance in the microphone file. Times are seconds from the start of the file.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    /// What is said.
    pub(crate) clip: Clip,
    /// Start of the clip.
    pub(crate) start_s: f64,
    /// The clip at [`MIC_RATE`].
    pub(crate) samples: Vec<f32>,
}

impl Spoken {
    /// End of the clip.
    pub(crate) fn end_s(&self) -> f64 {
        self.start_s + self.samples.len() as f64 / f64::from(MIC_RATE)
    }
}

/// The question, every barge-in, then the spare and `again` more, from the first barge-in on.
pub(crate) fn cast(again: usize) -> Vec<Clip> {
    let clips = all();
    let role = |wanted: &'static str| clips.iter().filter(move |c| c.role == wanted).cloned();
    role("question").chain(role("barge_in")).chain(role("spare")).chain(role("barge_in").cycle().take(again)).collect()
}

/// Puts a first utterance at `lead_s` and each further one `gap_s` after the end of the one before.
pub(crate) fn schedule(clips: Vec<Clip>, lead_s: f64, gap_s: f64) -> Vec<Spoken> {
    let mut at = lead_s;
    clips
        .into_iter()
        .map(|clip| {
            let mut samples = times_three(&clip.samples);
            quiet_before_onset(&mut samples, clip.onset_s);
            let spoken = Spoken { clip, start_s: at, samples };
            at = spoken.end_s() + gap_s;
            spoken
        })
        .collect()
}

/// Takes away the room noise before the first sound: it would begin with a step of its own, and be taken for the onset.
fn quiet_before_onset(samples: &mut [f32], onset_s: f64) {
    let onset = (onset_s * f64::from(MIC_RATE)).round() as usize;
    let fade = (0.002 * f64::from(MIC_RATE)) as usize;
    for (i, sample) in samples[..onset].iter_mut().enumerate() {
        *sample *= (i + fade).saturating_sub(onset) as f32 / fade as f32;
    }
}

/// The microphone: silence with a self noise of -68 dB, and the utterances in it. `tail_s` of silence follow the last one.
pub(crate) fn microphone(spoken: &[Spoken], tail_s: f64) -> Vec<f32> {
    let end = spoken.last().map_or(0.0, Spoken::end_s) + tail_s;
    let mut noise = Noise::new(20_261);
    // Even noise of amplitude a has an RMS of a / sqrt 3.
    let amplitude = 10f32.powf(-68.0 / 20.0) * 3f32.sqrt();
    let mut mic: Vec<f32> = (0..(end * f64::from(MIC_RATE)) as usize).map(|_| amplitude * noise.sample()).collect();
    for s in spoken {
        let start = (s.start_s * f64::from(MIC_RATE)).round() as usize;
        for (m, v) in mic[start..].iter_mut().zip(&s.samples) {
            *m += v;
        }
    }
    mic
}

/// Writes 16 bit mono at [`MIC_RATE`].
pub(crate) fn write_wav(path: &Path, samples: &[f32]) {
    let spec = hound::WavSpec { channels: 1, sample_rate: MIC_RATE, bits_per_sample: 16, sample_format: hound::SampleFormat::Int };
    let mut writer = hound::WavWriter::create(path, spec).expect("the temporary folder can be written");
    for s in samples {
        writer.write_sample((s.clamp(-1.0, 1.0) * 32_767.0).round() as i16).expect("the disk has room");
    }
    writer.finalize().expect("the disk has room");
}

#[cfg(test)]
mod tests {
    use super::super::signal::{dbfs, find, rms};
    use super::*;

    #[test]
    fn the_repository_has_a_question_and_ten_different_speakers_with_sure_onsets() {
        let clips = all();
        let asks: Vec<&Clip> = clips.iter().filter(|c| c.role == "question").collect();
        let cuts: Vec<&Clip> = clips.iter().filter(|c| c.role == "barge_in").collect();
        assert_eq!((asks.len(), cuts.len()), (1, 10));
        let speakers: std::collections::HashSet<&str> = cuts.iter().map(|c| c.speaker.as_str()).collect();
        assert_eq!(speakers.len(), 10);
        for clip in &clips {
            assert_eq!(clip.onset_quality, "sure", "{}", clip.file);
            assert!((clip.voiced_onset_s - clip.onset_s).abs() <= 0.02, "{}: the two onsets lie together", clip.file);
        }
    }

    #[test]
    fn labels_say_where_the_sound_begins() {
        for clip in all() {
            let at = (clip.onset_s * f64::from(RATE)) as usize;
            let before = dbfs(rms(&clip.samples[160..at - 80]));
            let after = dbfs(rms(&clip.samples[at..at + 1_600]));
            assert!(after > before + 15.0, "{}: {before} dB before, {after} dB after", clip.file);
        }
    }

    #[test]
    fn the_microphone_file_has_each_utterance_where_the_schedule_says() {
        let spoken = schedule(all(), 1.5, 2.0);
        let mic = microphone(&spoken, 1.0);
        for s in &spoken {
            let wanted = (s.start_s * f64::from(MIC_RATE)).round() as usize;
            let (found, how) = find(&s.samples[..19_200], &mic, wanted.saturating_sub(4_800), wanted + 24_000).expect("it fits");
            assert!(found.abs_diff(wanted) <= 1 && how > 0.99, "{}: {found} for {wanted}, {how}", s.clip.file);
        }
    }
}
