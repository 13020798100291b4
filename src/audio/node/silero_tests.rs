use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Scores {
    clip: String,
    probabilities: Vec<f32>,
}

fn clip(name: &str) -> Vec<f32> {
    let path = format!("{}/assets/audio/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut clip = hound::WavReader::open(path).expect("a clip of this repository");
    clip.samples::<i16>().map(|x| f32::from(x.expect("a sample")) / 32_768.0).collect()
}

/// What it says of each 32 ms of `pcm`.
fn listen(pcm: &[f32]) -> Vec<f32> {
    let (mut silero, mut memory, mut frame) = (Silero::default(), Memory::default(), [0.0; FRAME]);
    pcm.chunks_exact(FRESH)
        .map(|fresh| {
            frame.copy_within(FRESH.., 0);
            frame[FRAME - FRESH..].copy_from_slice(fresh);
            silero.probability(&frame, &mut memory)
        })
        .collect()
}

#[test]
fn it_says_what_the_original_says() {
    let scores: Scores =
        serde_json::from_str(include_str!("../../../assets/models/silero_scores.json")).expect("the scores can be read");
    let said = listen(&clip(&scores.clip));
    assert_eq!(said.len(), scores.probabilities.len());
    let worst = said.iter().zip(&scores.probabilities).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 1e-4, "off by {worst}");
    assert!(scores.probabilities.iter().any(|p| *p > 0.9) && said[0] < 0.3, "there is a voice, and it begins later");
}

#[test]
fn silence_and_hiss_are_not_speech_and_wild_samples_leave_a_probability() {
    let mut state = 1u64;
    let hiss: Vec<f32> = (0..16_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as f32 / (1u64 << 30) as f32 - 1.0) * 0.05
        })
        .collect();
    assert!(listen(&[0.0; 16_000]).iter().all(|p| *p < 0.1));
    assert!(listen(&hiss).iter().all(|p| *p < 0.5));
    assert!(listen(&[4.0; 16_000]).iter().all(|p| (0.0..=1.0).contains(p)));
}
