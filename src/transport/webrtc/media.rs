//! The two media halves of a WebRTC link, and the two tasks between them and the peer.
//!
//! ```text
//! peer -> receive (task) -> 32 packets -> Incoming (pump): jitter buffer, decoder -> 10 ms
//! 10 ms -> Outbound (pump): encoder, 20 ms -> 3 packets -> send (task) -> peer
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ringbuf::traits::{Consumer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use rtc::rtp::header::Header;
use rtc::rtp::packet::Packet;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};

use super::super::trail::{Marks, Sent, Trail};
use super::super::uplink::{Decode, Uplink};
use super::super::{MediaIn, MediaOut, Mic, Outgoing};
use crate::audio::codec::{MAX_PACKET, OpusDecoder, OpusEncoder, PACKET_SAMPLES, packet_samples};
use crate::audio::jitter::{Arrival, JitterConfig, JitterCounts, MAX_PAYLOAD};
use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, Clock, RuntimeClock, SamplePos, Stamp};

/// Packets between the reader and the pump: 640 ms, far more than a pump may be late.
const PACKETS_IN: usize = 32;

const _: () = assert!(PACKET_SAMPLES == 2 * BLOCK_SAMPLES, "a packet is two beats");

/// A packet as it arrived, small enough to be copied and never freed on the pump.
pub(super) struct Parcel {
    seq: u16,
    rtp: u32,
    samples: u32,
    at: Stamp,
    len: usize,
    bytes: [u8; MAX_PAYLOAD],
}

/// Where the reader puts packets.
pub(super) type Feed = HeapProd<Parcel>;

/// The queue between the reader and the pump.
pub(super) fn microphone() -> (Feed, HeapCons<Parcel>) {
    HeapRb::new(PACKETS_IN).split()
}

/// Reads the browser's packets until either side ends.
pub(super) async fn receive(
    track: Arc<dyn TrackRemote>,
    mut feed: Feed,
    payload_type: u8,
    clock: RuntimeClock,
    closed: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            event = track.poll() => event,
        };
        match event {
            Some(TrackRemoteEvent::OnRtpPacket(packet)) => {
                let at = clock.now();
                let payload = &packet.payload;
                // Comfort noise, tones and padding are not ours; what is not Opus is refused by the codec's own reading.
                if packet.header.payload_type != payload_type || payload.is_empty() || payload.len() > MAX_PAYLOAD {
                    continue;
                }
                let Ok(samples) = packet_samples(payload) else { continue };
                let mut bytes = [0; MAX_PAYLOAD];
                bytes[..payload.len()].copy_from_slice(payload);
                let parcel = Parcel {
                    seq: packet.header.sequence_number,
                    rtp: packet.header.timestamp,
                    samples: samples as u32,
                    at,
                    len: payload.len(),
                    bytes,
                };
                // A pump that does not pull loses the newest; the jitter buffer then counts them as lost.
                let _ = feed.try_push(parcel);
            }
            Some(TrackRemoteEvent::OnEnded) | None => return,
            Some(_) => {}
        }
    }
}

/// Sends what the pump has encoded, in time and in order.
pub(super) async fn send(mut packets: mpsc::Receiver<Packet>, track: Arc<TrackLocalStaticRTP>, closed: CancellationToken) {
    loop {
        let packet = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            packet = packets.recv() => packet,
        };
        let Some(packet) = packet else { return };
        let written = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            written = track.write_rtp(packet) => written,
        };
        if let Err(e) = written {
            tracing::debug!(error = %e, "a packet was not sent");
        }
    }
}

/// The microphone half.
pub(super) struct Incoming {
    packets: HeapCons<Parcel>,
    uplink: Uplink<OpusDecoder>,
    _alive: DropGuard,
}

impl Incoming {
    /// `sender` is what the browser takes before it sends, beside the packet itself.
    pub(super) fn new(packets: HeapCons<Parcel>, decoder: OpusDecoder, sender: Duration, alive: DropGuard) -> Self {
        let config = JitterConfig { sender, ..JitterConfig::default() };
        Incoming { packets, uplink: Uplink::new(config, decoder), _alive: alive }
    }
}

impl MediaIn for Incoming {
    fn pull(&mut self, now: Stamp, block: &mut [f32; BLOCK_SAMPLES]) -> Mic {
        // Bounded by the queue's size, though the reader may add while we take.
        for _ in 0..PACKETS_IN {
            let Some(p) = self.packets.try_pop() else { break };
            self.uplink.push(Arrival { seq: p.seq, rtp: p.rtp, samples: p.samples, at: p.at, payload: &p.bytes[..p.len] });
        }
        self.uplink.pull(now, block)
    }

    fn counts(&self) -> JitterCounts {
        self.uplink.counts()
    }
}

impl Decode for OpusDecoder {
    fn decode(&mut self, payload: &[u8], out: &mut [f32]) -> bool {
        OpusDecoder::decode(self, payload, out).is_ok()
    }

    fn recover(&mut self, payload: &[u8], out: &mut [f32]) -> bool {
        self.decode_fec(payload, out).is_ok()
    }

    fn conceal(&mut self, out: &mut [f32]) {
        if OpusDecoder::conceal(self, out).is_err() {
            out.fill(0.0);
        }
    }
}

/// Where packets go, and under which name.
pub(super) struct Lane {
    pub(super) ssrc: u32,
    pub(super) payload_type: u8,
    pub(super) packets: mpsc::Sender<Packet>,
    /// Whether the peer can send yet.
    pub(super) up: Arc<AtomicBool>,
}

/// The loudspeaker half: two beats make a packet.
///
/// A packet has one generation. When the generation changes in the middle of one, the old half is completed with silence and
/// counts to the old generation, and the new generation begins with a packet of its own. The stream is then one beat ahead
/// of the pump; the next silent beat (usually the new generation's first) is left out, which evens it.
///
/// Until the peer is connected beats are dropped: nothing is encoded, timestamps stand.
pub(super) struct Outbound {
    lane: Lane,
    encoder: OpusEncoder,
    trail: Trail,
    marks: Marks,
    samples: [f32; PACKET_SAMPLES],
    /// The first half that waits for its second: its timestamp and its place.
    half: Option<(u32, Sent)>,
    /// Beats by which the stream is ahead of the pump.
    ahead: u32,
    seq: u16,
    began: bool,
    dropped: u64,
    _alive: DropGuard,
}

impl Outbound {
    pub(super) fn new(lane: Lane, encoder: OpusEncoder, trail: Trail, marks: Marks, alive: DropGuard) -> Self {
        let seq = trail.next() as u16;
        Outbound {
            lane,
            encoder,
            trail,
            marks,
            samples: [0.0; PACKET_SAMPLES],
            half: None,
            ahead: 0,
            seq,
            began: false,
            dropped: 0,
            _alive: alive,
        }
    }

    fn packet(&mut self, rtp: u32, first: Sent) {
        self.marks.mark(rtp, first);
        let mut bytes = [0; MAX_PACKET];
        // The number is used up even when the packet is not sent: the far end then knows that something is missing.
        let sequence_number = self.seq;
        self.seq = self.seq.wrapping_add(1);
        let Ok(len) = self.encoder.encode(&self.samples, &mut bytes) else {
            self.dropped += 1;
            return;
        };
        let header = Header {
            version: 2,
            marker: !self.began,
            payload_type: self.lane.payload_type,
            sequence_number,
            timestamp: rtp,
            ssrc: self.lane.ssrc,
            ..Header::default()
        };
        self.began = true;
        if self.lane.packets.try_send(Packet { header, payload: Bytes::copy_from_slice(&bytes[..len]) }).is_err() {
            self.dropped += 1;
        }
    }
}

impl MediaOut for Outbound {
    fn push(&mut self, _now: Stamp, sound: Outgoing<'_>) {
        if !self.lane.up.load(Ordering::Acquire) {
            return;
        }
        if let Some((rtp, first)) = self.half
            && first.generation != sound.generation
        {
            self.half = None;
            self.samples[BLOCK_SAMPLES..].fill(0.0);
            self.trail.record(self.trail.standing());
            self.packet(rtp, first);
            self.ahead += 1;
        }
        if self.ahead > 0 && sound.silent && self.half.is_none() {
            self.ahead -= 1;
            return;
        }
        let place = self.trail.place(&sound);
        let rtp = self.trail.record(place);
        match self.half.take() {
            None => {
                self.samples[..BLOCK_SAMPLES].copy_from_slice(sound.samples);
                self.half = Some((rtp, place));
            }
            Some((rtp, first)) => {
                self.samples[BLOCK_SAMPLES..].copy_from_slice(sound.samples);
                self.packet(rtp, first);
            }
        }
    }

    fn locate(&self, rtp: u32) -> Option<(Generation, SamplePos)> {
        self.trail.locate(rtp)
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::ToClient;
    use super::*;
    use crate::audio::codec::EncoderConfig;

    struct Rig {
        out: Outbound,
        packets: mpsc::Receiver<Packet>,
        messages: mpsc::Receiver<ToClient>,
        closed: CancellationToken,
        up: Arc<AtomicBool>,
    }

    fn rig(first: u32) -> Rig {
        let (packets, packets_rx) = mpsc::channel(super::super::PACKETS_OUT);
        let (to_client, messages) = mpsc::channel(2);
        let closed = CancellationToken::new();
        let up = Arc::new(AtomicBool::new(true));
        let lane = Lane { ssrc: 1, payload_type: 111, packets, up: up.clone() };
        let encoder = OpusEncoder::new(EncoderConfig::default()).expect("an encoder");
        let marks = Marks::new(to_client, closed.clone());
        let out = Outbound::new(lane, encoder, Trail::new(first), marks, closed.clone().drop_guard());
        Rig { out, packets: packets_rx, messages, closed, up }
    }

    impl Rig {
        fn push(&mut self, generation: u64, until: u64, level: f32) {
            let samples = [level; BLOCK_SAMPLES];
            self.out.push(
                Stamp::ZERO,
                Outgoing { samples: &samples, generation: Generation(generation), until: SamplePos(until), silent: level == 0.0 },
            );
        }

        fn sent(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.packets.try_recv().ok()).map(|p| p.header.timestamp).collect()
        }

        fn told(&mut self) -> Vec<ToClient> {
            std::iter::from_fn(|| self.messages.try_recv().ok()).collect()
        }
    }

    fn media(rtp: u32, generation: u64, position: u64) -> ToClient {
        ToClient::Media { rtp, generation: Generation(generation), position: SamplePos(position) }
    }

    #[test]
    fn two_beats_make_a_packet_and_a_generation_is_told_once_with_its_first_timestamp() {
        let mut rig = rig(5_000);
        rig.push(1, 480, 0.1);
        assert_eq!(rig.sent(), [] as [u32; 0]);
        rig.push(1, 960, 0.1);
        rig.push(1, 1_440, 0.1);
        rig.push(1, 1_920, 0.1);
        assert_eq!(rig.sent(), [5_000, 5_960]);
        assert_eq!(rig.told(), [media(5_000, 1, 0)]);
        assert_eq!(rig.out.locate(5_960 + 500), Some((Generation(1), SamplePos(1_460))));
    }

    #[test]
    fn a_bump_in_the_middle_of_a_packet_completes_the_old_half_with_silence() {
        let mut rig = rig(0);
        rig.push(1, 480, 0.1);
        rig.push(2, 0, 0.0);
        assert_eq!(rig.sent(), [0], "the old half is sent at once");
        // The silent beat was left out to even the stream; the next two make the new generation's first packet.
        rig.push(2, 480, 0.1);
        rig.push(2, 960, 0.1);
        assert_eq!(rig.sent(), [960]);
        assert_eq!(rig.told(), [media(0, 1, 0), media(960, 2, 0)]);
        assert_eq!(rig.out.locate(479), Some((Generation(1), SamplePos(479))));
        assert_eq!(rig.out.locate(700), Some((Generation(1), SamplePos(480))), "the filling counts to the old generation");
        assert_eq!(rig.out.locate(961), Some((Generation(2), SamplePos(1))));
    }

    #[test]
    fn a_bump_without_silence_loses_no_sound_and_is_evened_later() {
        let mut rig = rig(0);
        rig.push(1, 480, 0.1);
        rig.push(2, 480, 0.1);
        rig.push(2, 960, 0.1);
        assert_eq!(rig.sent(), [0, 960]);
        rig.push(2, 960, 0.0);
        rig.push(2, 960, 0.0);
        assert_eq!(rig.sent(), [] as [u32; 0], "one of the two silent beats was left out");
        rig.push(2, 960, 0.0);
        assert_eq!(rig.sent(), [1_920]);
    }

    #[test]
    fn nothing_is_sent_or_told_before_the_peer_is_up() {
        let mut rig = rig(0);
        rig.up.store(false, Ordering::Release);
        for beat in 1..=10 {
            rig.push(1, beat * 480, 0.1);
        }
        assert_eq!((rig.sent(), rig.told()), (vec![], vec![]));
        rig.up.store(true, Ordering::Release);
        rig.push(1, 11 * 480, 0.1);
        rig.push(1, 12 * 480, 0.1);
        assert_eq!(rig.sent(), [0]);
        assert_eq!(rig.told(), [media(0, 1, 4_800)], "it begins where the generation is by then");
    }

    #[test]
    fn a_wire_that_does_not_take_loses_the_newest_and_numbers_show_it() {
        let mut rig = rig(0);
        for beat in 1..=20 {
            rig.push(1, beat * 480, 0.1);
        }
        assert_eq!(rig.out.dropped(), 7);
        let numbers: Vec<_> = std::iter::from_fn(|| rig.packets.try_recv().ok()).map(|p| p.header.sequence_number).collect();
        assert_eq!(numbers, [0, 1, 2]);
        rig.push(1, 21 * 480, 0.1);
        rig.push(1, 22 * 480, 0.1);
        assert_eq!(rig.packets.try_recv().map(|p| (p.header.sequence_number, p.header.timestamp)), Ok((10, 9_600)));
    }

    #[test]
    fn a_client_that_does_not_read_ends_the_link() {
        let mut rig = rig(0);
        for generation in 1..=3 {
            assert!(!rig.closed.is_cancelled());
            rig.push(generation, 480, 0.1);
            rig.push(generation, 960, 0.1);
        }
        assert!(rig.closed.is_cancelled(), "the third mark did not fit into a queue of two");
    }
}
