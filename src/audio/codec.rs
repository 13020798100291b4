//! `audio::codec`: Opus in and out, at the house rate, mono. The one file that names the `opus` crate.
//!
//! * Layer 1. Imports nothing of ours but `time`. No tokio, no log; encoding and decoding allocate nothing.
//! * Owned by the two halves of a link, one [`OpusEncoder`] for the far end, one [`OpusDecoder`] for its microphone.
//! * Laws: what comes out has exactly the length that was asked for; a hostile packet is an error, never a panic; samples
//!   that are not numbers are encoded as silence.
//! * Proved at the bottom of this file, with garbage included.

use crate::time::{HOUSE_RATE, SampleRate};

/// Samples in one packet of ours: 20 ms at the house rate.
pub const PACKET_SAMPLES: usize = 960;
/// Most bytes one encoded packet of ours has (the format's own bound for one frame).
pub const MAX_PACKET: usize = 1275;
/// Most samples any Opus packet decodes to: 120 ms at the house rate.
pub const MAX_DECODED: usize = 5760;
/// Shortest stretch that can be concealed, and the grain of all concealment: 2.5 ms.
pub const CONCEAL_GRAIN: usize = 120;

const _: () = assert!(HOUSE_RATE.samples_in(std::time::Duration::from_millis(20)) == PACKET_SAMPLES as u64);
const _: () = assert!(MAX_DECODED.is_multiple_of(CONCEAL_GRAIN));

/// Why a packet could not be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The codec could not be set up; it will not help to try again.
    #[error("the codec cannot be set up: {0}")]
    Setup(&'static str),
    /// The packet has no bytes. A lost packet is concealed, not decoded.
    #[error("the packet is empty; a lost packet is concealed instead")]
    Empty,
    /// The bytes are not Opus. The next packet may well be.
    #[error("the bytes are not an Opus packet: {0}")]
    Malformed(&'static str),
    /// The output has not a length the codec can fill; a mistake of the caller.
    #[error("{got} samples asked for; {need}")]
    Length {
        /// Samples asked for.
        got: usize,
        /// What would be right.
        need: &'static str,
    },
}

/// How to encode. The default suits speech to a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderConfig {
    /// Bits per second, 6,000..=510,000. Default 32,000: full-band speech without audible artefacts.
    pub bitrate: u32,
    /// 0 (cheap) ..= 10 (careful). Default 5: about 0.16 ms of processor time a packet.
    pub complexity: u8,
    /// Percent of packets to expect lost, 0..=100; it sets how much of the forward error correction is paid for. Default 10.
    pub expected_loss: u8,
    /// Whether silence may stop the stream. Default off: a stream that goes on keeps the receiver's jitter buffer and clock
    /// warm, and a receiver that gets nothing stretches the last speech, which must not happen after a cut.
    pub dtx: bool,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        EncoderConfig { bitrate: 32_000, complexity: 5, expected_loss: 10, dtx: false }
    }
}

/// Turns 20 ms of sound into one packet.
#[derive(Debug)]
pub struct OpusEncoder {
    inner: opus::Encoder,
    /// What is encoded when the input holds something that is not a number.
    clean: [f32; PACKET_SAMPLES],
}

impl OpusEncoder {
    /// An encoder of 48 kHz mono speech, with in-band forward error correction.
    ///
    /// # Errors
    /// [`CodecError::Setup`] when libopus refuses the values of `config`.
    pub fn new(config: EncoderConfig) -> Result<Self, CodecError> {
        let setup = |e: opus::Error| CodecError::Setup(e.description());
        let mut inner = opus::Encoder::new(HOUSE_RATE.hz(), opus::Channels::Mono, opus::Application::Voip).map_err(setup)?;
        let bitrate = i32::try_from(config.bitrate).map_err(|_| CodecError::Setup("the bitrate is out of range"))?;
        inner.set_bitrate(opus::Bitrate::Bits(bitrate)).map_err(setup)?;
        inner.set_complexity(i32::from(config.complexity)).map_err(setup)?;
        inner.set_signal(opus::Signal::Voice).map_err(setup)?;
        inner.set_inband_fec(true).map_err(setup)?;
        inner.set_packet_loss_perc(i32::from(config.expected_loss)).map_err(setup)?;
        inner.set_dtx(config.dtx).map_err(setup)?;
        Ok(OpusEncoder { inner, clean: [0.0; PACKET_SAMPLES] })
    }

    /// Encodes one packet into `out` and returns how many bytes it took.
    ///
    /// # Errors
    /// [`CodecError::Malformed`] when libopus fails, which it does for no input known to us.
    pub fn encode(&mut self, samples: &[f32; PACKET_SAMPLES], out: &mut [u8; MAX_PACKET]) -> Result<usize, CodecError> {
        let input = if samples.iter().all(|s| s.is_finite()) {
            samples
        } else {
            for (clean, sample) in self.clean.iter_mut().zip(samples) {
                *clean = if sample.is_finite() { *sample } else { 0.0 };
            }
            &self.clean
        };
        self.inner.encode_float(input, out).map_err(|e| CodecError::Malformed(e.description()))
    }

    /// Samples by which the decoded sound comes later than the encoded one (312 at the default settings, 6.5 ms).
    ///
    /// # Errors
    /// [`CodecError::Setup`] when libopus does not say.
    pub fn lookahead(&mut self) -> Result<usize, CodecError> {
        let samples = self.inner.get_lookahead().map_err(|e| CodecError::Setup(e.description()))?;
        Ok(usize::try_from(samples).unwrap_or(0))
    }
}

/// Turns packets, and the lack of them, into sound.
#[derive(Debug)]
pub struct OpusDecoder {
    inner: opus::Decoder,
}

impl OpusDecoder {
    /// A decoder to 48 kHz mono; stereo packets are mixed down.
    ///
    /// # Errors
    /// [`CodecError::Setup`] when libopus cannot be set up.
    pub fn new() -> Result<Self, CodecError> {
        let inner = opus::Decoder::new(HOUSE_RATE.hz(), opus::Channels::Mono).map_err(|e| CodecError::Setup(e.description()))?;
        Ok(OpusDecoder { inner })
    }

    /// Decodes a packet into the front of `out` and returns how many samples it held ([`packet_samples`] of it).
    ///
    /// # Errors
    /// [`CodecError::Empty`], [`CodecError::Malformed`]; [`CodecError::Length`] when `out` is too short. `out` is unspecified then,
    /// and the decoder goes on with the next packet.
    pub fn decode(&mut self, packet: &[u8], out: &mut [f32]) -> Result<usize, CodecError> {
        let samples = packet_samples(packet)?;
        let got = out.len();
        let out =
            out.get_mut(..samples).ok_or(CodecError::Length { got, need: "as many as the packet holds, at most MAX_DECODED" })?;
        let decoded = self.inner.decode_float(packet, out, false).map_err(|e| CodecError::Malformed(e.description()))?;
        if decoded == samples { Ok(decoded) } else { Err(CodecError::Malformed("it decodes to another length than it says")) }
    }

    /// Recovers the packet *before* `packet` from the copy that `packet` carries, filling `out`, whose length is exactly the
    /// gap. Without such a copy the gap is concealed.
    ///
    /// # Errors
    /// As [`OpusDecoder::decode`]; [`CodecError::Length`] unless `out` is a multiple of [`CONCEAL_GRAIN`] up to [`MAX_DECODED`].
    pub fn decode_fec(&mut self, packet: &[u8], out: &mut [f32]) -> Result<(), CodecError> {
        packet_samples(packet)?;
        self.fill(packet, out, true)
    }

    /// Makes up `out` from what was heard before; its length is exactly the gap.
    ///
    /// # Errors
    /// [`CodecError::Length`] unless `out` is a multiple of [`CONCEAL_GRAIN`] up to [`MAX_DECODED`].
    pub fn conceal(&mut self, out: &mut [f32]) -> Result<(), CodecError> {
        self.fill(&[], out, false)
    }

    fn fill(&mut self, packet: &[u8], out: &mut [f32], fec: bool) -> Result<(), CodecError> {
        if out.is_empty() || out.len() > MAX_DECODED || !out.len().is_multiple_of(CONCEAL_GRAIN) {
            return Err(CodecError::Length { got: out.len(), need: "a multiple of 2.5 ms up to 120 ms" });
        }
        let decoded = self.inner.decode_float(packet, out, fec).map_err(|e| CodecError::Malformed(e.description()))?;
        // libopus fills the whole gap; should it ever fall short, the rest is silence rather than old memory.
        if let Some(rest) = out.get_mut(decoded..) {
            rest.fill(0.0);
        }
        Ok(())
    }
}

/// How many samples at the house rate `packet` holds, read from its first bytes.
///
/// # Errors
/// [`CodecError::Empty`]; [`CodecError::Malformed`] when the head is not that of an Opus packet.
pub fn packet_samples(packet: &[u8]) -> Result<usize, CodecError> {
    const RATE: SampleRate = HOUSE_RATE;
    if packet.is_empty() {
        return Err(CodecError::Empty);
    }
    let samples = opus::packet::get_nb_samples(packet, RATE.hz()).map_err(|e| CodecError::Malformed(e.description()))?;
    if samples == 0 || samples > MAX_DECODED {
        return Err(CodecError::Malformed("it says it lasts longer than 120 ms"));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tone(from: usize) -> [f32; PACKET_SAMPLES] {
        std::array::from_fn(|i| ((from + i) as f32 * 440.0 * std::f32::consts::TAU / 48_000.0).sin() * 0.5)
    }

    fn packets(n: usize) -> Vec<Vec<u8>> {
        let mut encoder = OpusEncoder::new(EncoderConfig::default()).expect("the default can be set up");
        let mut out = [0u8; MAX_PACKET];
        (0..n)
            .map(|i| {
                let len = encoder.encode(&tone(i * PACKET_SAMPLES), &mut out).expect("a tone encodes");
                out[..len].to_vec()
            })
            .collect()
    }

    fn power(samples: &[f32]) -> f32 {
        samples.iter().map(|s| s * s).sum::<f32>() / samples.len() as f32
    }

    #[test]
    fn a_tone_survives_and_lengths_are_exact() {
        let mut decoder = OpusDecoder::new().expect("a decoder");
        let mut out = [0.0; MAX_DECODED];
        for (i, packet) in packets(20).iter().enumerate() {
            assert!(packet.len() < 200, "32 kbit/s is 80 bytes a packet, got {}", packet.len());
            assert_eq!(packet_samples(packet), Ok(PACKET_SAMPLES));
            assert_eq!(decoder.decode(packet, &mut out), Ok(PACKET_SAMPLES));
            if i > 2 {
                let p = power(&out[..PACKET_SAMPLES]);
                assert!((0.1..0.15).contains(&p), "the tone has power 0.125, packet {i} {p}");
            }
        }
    }

    #[test]
    fn silence_keeps_the_stream_warm() {
        let mut encoder = OpusEncoder::new(EncoderConfig::default()).expect("an encoder");
        let mut out = [0u8; MAX_PACKET];
        for _ in 0..100 {
            let len = encoder.encode(&[0.0; PACKET_SAMPLES], &mut out).expect("silence encodes");
            assert!(len > 2, "a packet of two bytes or less would mean the stream has stopped");
        }
    }

    #[test]
    fn error_correction_beats_concealment() {
        let packets = packets(40);
        let (mut whole, mut fec, mut plc) = (decoder(), decoder(), decoder());
        let (mut truth, mut a, mut b) = ([0.0; PACKET_SAMPLES], [0.0; PACKET_SAMPLES], [0.0; PACKET_SAMPLES]);
        for packet in &packets[..20] {
            for d in [&mut whole, &mut fec, &mut plc] {
                d.decode(packet, &mut truth).expect("decodes");
            }
        }
        whole.decode(&packets[20], &mut truth).expect("decodes");
        fec.decode_fec(&packets[21], &mut a).expect("carries a copy or conceals");
        plc.conceal(&mut b).expect("conceals");
        assert!(power(&a) > 0.02, "the lost packet sounds: {}", power(&a));
        assert!(power(&b) > 0.02, "and so does what was made up: {}", power(&b));
    }

    #[test]
    fn only_whole_grains_can_be_made_up() {
        let mut decoder = decoder();
        let mut out = [1.0; MAX_DECODED + CONCEAL_GRAIN];
        for bad in [0, 1, 119, 479, MAX_DECODED + CONCEAL_GRAIN] {
            let got = decoder.conceal(&mut out[..bad]);
            assert!(matches!(got, Err(CodecError::Length { got, .. }) if got == bad), "{bad}: {got:?}");
        }
        for good in [120, 480, 960, 2880, MAX_DECODED] {
            assert_eq!(decoder.conceal(&mut out[..good]), Ok(()), "{good}");
        }
        assert_eq!(decoder.decode(&[], &mut out), Err(CodecError::Empty));
        assert!(matches!(decoder.decode(&packets(1)[0], &mut out[..100]), Err(CodecError::Length { got: 100, .. })));
    }

    #[test]
    fn what_is_not_a_number_is_silence() {
        let mut encoder = OpusEncoder::new(EncoderConfig::default()).expect("an encoder");
        let mut out = [0u8; MAX_PACKET];
        let mut bad = tone(0);
        bad[100] = f32::NAN;
        bad[200] = f32::INFINITY;
        let len = encoder.encode(&bad, &mut out).expect("encodes");
        let mut decoded = [0.0; PACKET_SAMPLES];
        decoder().decode(&out[..len], &mut decoded).expect("decodes");
        assert!(decoded.iter().all(|s| s.is_finite()));
    }

    #[test]
    fn the_lookahead_is_what_the_links_declare() {
        let mut encoder = OpusEncoder::new(EncoderConfig::default()).expect("an encoder");
        assert_eq!(encoder.lookahead(), Ok(312));
    }

    fn decoder() -> OpusDecoder {
        OpusDecoder::new().expect("a decoder")
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_or_sound_but_never_a_panic(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 1..8)) {
            let mut decoder = decoder();
            let mut out = [0.0; MAX_DECODED];
            for packet in packets {
                if let Ok(samples) = decoder.decode(&packet, &mut out) {
                    prop_assert_eq!(Ok(samples), packet_samples(&packet));
                    prop_assert!(out[..samples].iter().all(|s| s.is_finite()));
                }
                let _ = decoder.decode_fec(&packet, &mut out[..PACKET_SAMPLES]);
                prop_assert_eq!(decoder.conceal(&mut out[..480]), Ok(()));
            }
        }

        #[test]
        fn a_damaged_packet_does_not_silence_the_next(at in 0usize..60, bits in 1u8..) {
            let good = packets(3);
            let mut decoder = decoder();
            let mut out = [0.0; MAX_DECODED];
            let mut bad = good[1].clone();
            let at = at % bad.len();
            bad[at] ^= bits;
            decoder.decode(&good[0], &mut out).expect("decodes");
            let _ = decoder.decode(&bad, &mut out);
            prop_assert_eq!(decoder.decode(&good[2], &mut out), Ok(PACKET_SAMPLES));
        }
    }
}
