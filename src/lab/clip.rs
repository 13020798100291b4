//! `lab::clip`: recorded sound from a file, at the house rate.

use std::fs::File;
use std::path::{Path, PathBuf};

use symphonia::core::errors::Error as Symphonia;
use symphonia::core::formats::TrackType;
use symphonia::core::formats::probe::Hint;
use symphonia::core::io::MediaSourceStream;

use crate::audio::slice::Slicer;
use crate::id::Generation;
use crate::time::{HOUSE_RATE, SampleRate};

/// Recorded sound: one list of samples (-1..=1, 48 kHz) per channel, all of the same length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clip {
    /// The channels. At least one.
    pub channels: Vec<Vec<f32>>,
}

/// Why a file gives no sound.
#[derive(Debug, thiserror::Error)]
pub enum ClipError {
    /// It cannot be opened.
    #[error("{}: {error}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It cannot be read as sound.
    #[error("{}: {why} (WAV and FLAC can be read)", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Clip {
    /// Reads a WAV or FLAC file, with any number of channels, at any rate the house can resample; the sound begins with the file's first
    /// sample and is as long as the file, to the sample.
    ///
    /// # Errors
    /// The file is not there, is no sound, is damaged, or is empty. A damaged file is refused rather than read in part.
    pub fn read(path: &Path) -> Result<Clip, ClipError> {
        let file = File::open(path).map_err(|error| ClipError::Open { path: path.to_owned(), error })?;
        let refused = |why: String| ClipError::Read { path: path.to_owned(), why };
        let (rate, channels) = decode(file).map_err(|error| refused(error.to_string()))?;
        let rate = SampleRate::new(rate).ok_or_else(|| refused(format!("a rate of {rate} Hz")))?;
        if channels.iter().all(Vec::is_empty) {
            return Err(refused("there is no sound in it".to_owned()));
        }
        Ok(Clip { channels: channels.into_iter().map(|channel| to_house(&channel, rate)).collect() })
    }

    /// The first channel.
    pub fn mono(self) -> Vec<f32> {
        self.channels.into_iter().next().unwrap_or_default()
    }
}

fn decode(file: File) -> Result<(u32, Vec<Vec<f32>>), Symphonia> {
    let stream = MediaSourceStream::new(Box::new(file), Default::default());
    let mut format = symphonia::default::get_probe().probe(&Hint::new(), stream, Default::default(), Default::default())?;
    let track = format.default_track(TrackType::Audio).ok_or(Symphonia::Unsupported("no sound in it"))?;
    let (id, params) = (track.id, track.codec_params.clone());
    let params = params.as_ref().and_then(|params| params.audio()).ok_or(Symphonia::Unsupported("an unknown codec"))?;
    let mut decoder = symphonia::default::get_codecs().make_audio_decoder(params, &Default::default())?;
    let (mut rate, mut channels, mut piece) = (0, Vec::new(), Vec::<Vec<f32>>::new());
    while let Some(packet) = format.next_packet()? {
        if packet.track_id != id {
            continue;
        }
        let sound = decoder.decode(&packet)?;
        rate = sound.spec().rate();
        sound.copy_to_vecs_planar(&mut piece);
        channels.resize(piece.len().max(channels.len()), Vec::new());
        for (channel, piece) in channels.iter_mut().zip(&piece) {
            channel.extend_from_slice(piece);
        }
    }
    Ok((rate, channels))
}

fn to_house(samples: &[f32], rate: SampleRate) -> Vec<f32> {
    if rate == HOUSE_RATE {
        return samples.to_vec();
    }
    let (mut slicer, mut blocks) = (Slicer::new(rate, Generation(1)), Vec::new());
    slicer.push(samples, &mut blocks);
    slicer.finish(&mut blocks);
    blocks.iter().flat_map(|block| block.sound().iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wav(path: &Path, rate: u32, channels: u16, frames: usize) {
        let spec = hound::WavSpec { channels, sample_rate: rate, bits_per_sample: 16, sample_format: hound::SampleFormat::Int };
        let mut file = hound::WavWriter::create(path, spec).expect("a file");
        for frame in 0..frames {
            for channel in 0..channels {
                let tone = (std::f32::consts::TAU * 440.0 * frame as f32 / rate as f32).sin() * 0.5;
                file.write_sample((tone * 32_767.0) as i16 / (1 + channel as i16)).expect("a sample");
            }
        }
        file.finalize().expect("it is whole");
    }

    #[test]
    fn a_file_comes_at_the_house_rate_with_its_length_and_its_channels() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("tone.wav");
        wav(&path, 16_000, 2, 16_000);
        let clip = Clip::read(&path).expect("sound");
        assert_eq!(clip.channels.iter().map(Vec::len).collect::<Vec<_>>(), [48_000, 48_000]);
        let at = 24_000 + 27;
        let want = (std::f32::consts::TAU * 440.0 * at as f32 / 48_000.0).sin() * 0.5;
        assert!((clip.channels[0][at] - want).abs() < 0.01, "{} {want}", clip.channels[0][at]);
        assert!((clip.channels[1][at] - want / 2.0).abs() < 0.01);
    }

    #[test]
    fn what_is_no_sound_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("not.flac");
        assert!(matches!(Clip::read(&path), Err(ClipError::Open { .. })));
        std::fs::write(&path, "no sound at all, only words").expect("written");
        let refused = Clip::read(&path).expect_err("no sound");
        assert!(matches!(refused, ClipError::Read { .. }) && refused.to_string().contains("not.flac"), "{refused}");
        wav(&path, 48_000, 1, 0);
        assert!(matches!(Clip::read(&path), Err(ClipError::Read { .. })), "an empty file");
    }
}
