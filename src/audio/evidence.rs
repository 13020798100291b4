//! How much a block of sound counts as a voice: the one place where what the detectors say becomes a number to decide by.
//!
//! The weight of a block is its share of a sure voice. Whoever decides adds up weighted milliseconds and knows only that sum, so that a
//! better detector changes this file and no threshold. Pure; called in the pump, once a block.

/// What counts as a voice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sense {
    /// Sound that is like speech.
    #[default]
    Speech,
    /// Every sound, where nothing but people sounds. Our own playback never counts.
    Sound,
}

/// Speech probability from which on a block is speech. earshot's own recommendation for its scores.
const SPEECH: f32 = 0.5;
/// A block that is less than this above the noise floor is no voice, dB.
const OVER_NOISE_DB: f32 = 6.0;
/// A block that is explained by our own playback this far is ours, 0..=1.
const EXPLAINED: f32 = 0.5;

/// The weight of a block: 1 for a sure voice, 0 for none, in between for a doubtful one; it may go slightly above 1. Never negative,
/// and 0 when a reading is no number.
///
/// `speech` is the speech probability (0..=1), `over_noise_db` the level over the learned noise floor, `explained` how far the block is
/// explained by what we play ourselves (0..=1). At present all or nothing: a block counts when each of the three is beyond its bound.
pub fn weight(sense: Sense, speech: f32, over_noise_db: f32, explained: f32) -> f32 {
    let speaks = match sense {
        Sense::Speech => speech >= SPEECH,
        Sense::Sound => true,
    };
    if speaks && over_noise_db >= OVER_NOISE_DB && explained < EXPLAINED { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_speech_or_too_quiet_or_our_own_weighs_nothing() {
        for (speech, over, explained, want) in [
            (0.9, 40.0, 0.0, 1.0),
            (0.4, 40.0, 0.0, 0.0),
            (0.5, 40.0, 0.0, 1.0),
            (0.9, 5.9, 0.0, 0.0),
            (0.9, 6.0, 0.0, 1.0),
            (0.9, 40.0, 0.5, 0.0),
            (0.9, 40.0, 0.49, 1.0),
            (f32::NAN, 40.0, 0.0, 0.0),
            (0.9, f32::NAN, 0.0, 0.0),
            (0.9, 40.0, f32::NAN, 0.0),
        ] {
            assert_eq!(weight(Sense::Speech, speech, over, explained), want, "speech {speech}, over {over}, explained {explained}");
        }
        assert_eq!(weight(Sense::Sound, 0.0, 40.0, 0.0), 1.0, "every sound");
        assert_eq!(weight(Sense::Sound, 0.0, 40.0, 0.9), 0.0, "but not our own");
    }
}
