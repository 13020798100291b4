//! Reads the WAV that a program writes into a pipe: its sizes are guesses, since it could not know them when it began.
//! Layer 2, pure. Proved by the tests below.

use crate::time::SampleRate;

/// Why bytes are not a WAV we can play.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WavError {
    #[error("no RIFF/WAVE header")]
    NotWav,
    #[error("no format or no data in it")]
    Truncated,
    #[error("format {tag}, {channels} channels, {bits} bits, {hz} Hz; only 16 bit PCM is read")]
    Unsupported { tag: u16, channels: u16, bits: u16, hz: u32 },
}

/// The rate and the samples (mono; several channels are averaged) of a whole WAV stream. Whatever the header says of sizes, the
/// data runs at most to the end of `bytes`.
pub(crate) fn pcm(bytes: &[u8]) -> Result<(SampleRate, Vec<f32>), WavError> {
    let mut rest = match (bytes.get(..4), bytes.get(8..12)) {
        (Some(b"RIFF"), Some(b"WAVE")) => &bytes[12..],
        _ => return Err(WavError::NotWav),
    };
    let mut format = None;
    loop {
        let (id, size) = match rest.split_at_checked(8) {
            Some((head, tail)) => {
                rest = tail;
                (&head[..4], u32_at(&head[4..]) as usize)
            }
            None => return Err(WavError::Truncated),
        };
        if id == b"data" {
            break;
        }
        let body = rest.get(..size).ok_or(WavError::Truncated)?;
        if id == b"fmt " && size >= 16 {
            format = Some((u16_at(body), u16_at(&body[2..]), u32_at(&body[4..]), u16_at(&body[14..])));
        }
        // Chunks are padded to even length.
        rest = rest.get(size + (size & 1)..).ok_or(WavError::Truncated)?;
    }
    let (tag, channels, hz, bits) = format.ok_or(WavError::Truncated)?;
    let rate = SampleRate::new(hz)
        .filter(|_| tag == 1 && bits == 16 && (1..=8).contains(&channels))
        .ok_or(WavError::Unsupported { tag, channels, bits, hz })?;
    let scale = 1.0 / (32_768.0 * f32::from(channels));
    let samples = rest
        .chunks_exact(2 * usize::from(channels))
        .map(|frame| frame.chunks_exact(2).map(|s| f32::from(i16::from_le_bytes([s[0], s[1]]))).sum::<f32>() * scale)
        .collect();
    Ok((rate, samples))
}

fn u16_at(b: &[u8]) -> u16 {
    u16::from_le_bytes([b[0], b[1]])
}

fn u32_at(b: &[u8]) -> u32 {
    u32::from_le_bytes([b[0], b[1], b[2], b[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wav(extra: &[u8], channels: u16, data: &[i16]) -> Vec<u8> {
        let mut out = b"RIFF\x24\xf0\xff\x7fWAVE".to_vec();
        out.extend_from_slice(extra);
        out.extend_from_slice(b"fmt \x10\0\0\0\x01\0");
        out.extend_from_slice(&channels.to_le_bytes());
        out.extend_from_slice(&22_050u32.to_le_bytes());
        out.extend_from_slice(&44_100u32.to_le_bytes());
        out.extend_from_slice(&[2, 0, 16, 0]);
        out.extend_from_slice(b"data\0\xf0\xff\x7f");
        out.extend(data.iter().flat_map(|s| s.to_le_bytes()));
        out
    }

    #[test]
    fn a_streamed_header_with_false_sizes_is_read_to_the_end() {
        let (rate, samples) = pcm(&wav(b"", 1, &[0, 16_384, -32_768])).expect("it is one");
        assert_eq!((rate, samples), (SampleRate::HZ_22050, vec![0.0, 0.5, -1.0]));
        let (_, samples) = pcm(&wav(b"LIST\x03\0\0\0abc\0", 2, &[100, 300, -32_768, -32_768])).expect("odd chunks are padded");
        assert_eq!(samples, [200.0 / 32_768.0, -1.0]);
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_an_answer_not_a_panic() {
        let whole = wav(b"LIST\x03\0\0\0abc\0", 1, &[1, 2, 3]);
        for end in 0..whole.len() {
            match pcm(&whole[..end]) {
                Ok((_, samples)) => assert!(samples.len() < 3),
                Err(e) => assert!(matches!(e, WavError::NotWav | WavError::Truncated)),
            }
            for bit in [1u8, 0x80] {
                let mut bent = whole.clone();
                bent[end] ^= bit;
                let _ = pcm(&bent);
            }
        }
        assert_eq!(pcm(b"").expect_err("nothing"), WavError::NotWav);
        let mut float = whole;
        float[12 + 12 + 8] = 3;
        assert!(matches!(pcm(&float), Err(WavError::Unsupported { tag: 3, .. })));
    }
}
