//! A client like a browser, made of the same crates as the host: microphone, loudspeaker, data channel.

use std::sync::{Arc, Mutex};

use antiphon::audio::codec::{EncoderConfig, MAX_PACKET, OpusEncoder, PACKET_SAMPLES};
use antiphon::transport::wire::{FromClient, ToClient};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::rtp::header::Header;
use rtc::rtp::packet::Packet;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use tokio::sync::{mpsc, oneshot};
use webrtc::data_channel::{DataChannel, DataChannelEvent};
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};
use webrtc::peer_connection::{PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCIceGatheringState};

const SSRC: u32 = 77;

/// What the offer contains.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) audio: bool,
    pub(crate) channel: Option<&'static str>,
}

/// As our page makes it.
pub(crate) const PAGE: Shape = Shape { audio: true, channel: Some("antiphon") };

pub(crate) struct Peer {
    connection: Arc<dyn PeerConnection>,
    channel: Option<Arc<dyn DataChannel>>,
    track: Arc<TrackLocalStaticRTP>,
    encoder: OpusEncoder,
    sent: u32,
    /// Complete, with candidates.
    pub(crate) offer: String,
    /// Packets that arrived.
    pub(crate) packets: mpsc::UnboundedReceiver<Packet>,
    /// Messages that arrived; ends when the channel ends.
    pub(crate) messages: mpsc::UnboundedReceiver<ToClient>,
    open: Option<oneshot::Receiver<()>>,
}

struct Handler {
    gathered: Mutex<Option<oneshot::Sender<()>>>,
    packets: mpsc::UnboundedSender<Packet>,
}

impl PeerConnectionEventHandler for Handler {
    fn on_ice_gathering_state_change<'a, 'f>(&'a self, state: RTCIceGatheringState) -> BoxFuture<'f, ()>
    where
        'a: 'f,
    {
        if state == RTCIceGatheringState::Complete
            && let Some(gathered) = self.gathered.lock().expect("no panic inside").take()
        {
            let _ = gathered.send(());
        }
        ready(()).boxed()
    }

    fn on_track<'a, 'f>(&'a self, track: Arc<dyn TrackRemote>) -> BoxFuture<'f, ()>
    where
        'a: 'f,
    {
        let packets = self.packets.clone();
        tokio::spawn(async move {
            while let Some(event) = track.poll().await {
                let over = match event {
                    TrackRemoteEvent::OnRtpPacket(packet) => packets.send(packet).is_err(),
                    TrackRemoteEvent::OnEnded => true,
                    _ => false,
                };
                if over {
                    break;
                }
            }
        });
        ready(()).boxed()
    }
}

fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
        rtcp_feedback: vec![],
    }
}

impl Peer {
    pub(crate) async fn new(shape: Shape) -> Self {
        let mut media = MediaEngine::default();
        let codec = RTCRtpCodecParameters { rtp_codec: opus(), payload_type: 109 };
        media.register_codec(codec, RtpCodecKind::Audio).expect("Opus is known");
        let (gathered_tx, gathered) = oneshot::channel();
        let (packets_tx, packets) = mpsc::unbounded_channel();
        let (messages_tx, messages) = mpsc::unbounded_channel();
        let handler = Handler { gathered: Mutex::new(Some(gathered_tx)), packets: packets_tx };
        let settings = SettingEngineBuilder::new().with_include_loopback_candidate(true).build();
        let connection = PeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_udp_addrs(vec!["127.0.0.1:0".to_owned()])
            .with_handler(Arc::new(handler))
            .build()
            .await
            .expect("a peer");
        let connection: Arc<dyn PeerConnection> = Arc::new(connection);
        let track = Arc::new(TrackLocalStaticRTP::new(MediaStreamTrack::new(
            "person".to_owned(),
            "microphone".to_owned(),
            "microphone".to_owned(),
            RtpCodecKind::Audio,
            vec![RTCRtpEncodingParameters {
                rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(SSRC), ..Default::default() },
                codec: opus(),
                ..Default::default()
            }],
        )));
        if shape.audio {
            connection.add_track(track.clone() as Arc<dyn TrackLocal>).await.expect("a track");
        }
        let mut channel = None;
        let mut open = None;
        if let Some(name) = shape.channel {
            let made = connection.create_data_channel(name, None).await.expect("a channel");
            channel = Some(made.clone());
            let (open_tx, open_rx) = oneshot::channel();
            open = Some(open_rx);
            tokio::spawn(read(made, open_tx, messages_tx));
        }
        let offer = connection.create_offer(None).await.expect("an offer");
        connection.set_local_description(offer).await.expect("it can be set");
        gathered.await.expect("addresses are gathered");
        let offer = connection.local_description().await.expect("it was set").sdp;
        let encoder = OpusEncoder::new(EncoderConfig::default()).expect("an encoder");
        Peer { connection, channel, track, encoder, sent: 0, offer, packets, messages, open }
    }

    /// Takes the answer and waits until the channel is open.
    pub(crate) async fn connect(&mut self, answer: String) {
        let answer = RTCSessionDescription::answer(answer).expect("an answer");
        self.connection.set_remote_description(answer).await.expect("it fits the offer");
        if let Some(open) = self.open.take() {
            open.await.expect("the channel opens");
        }
    }

    /// Says 20 ms of a 440 Hz tone.
    pub(crate) async fn say(&mut self) {
        let from = self.sent * PACKET_SAMPLES as u32;
        let tone = std::array::from_fn(|i| {
            let t = (from + i as u32) as f32 / 48_000.0;
            (t * 440.0 * std::f32::consts::TAU).sin() * 0.5
        });
        let mut bytes = [0; MAX_PACKET];
        let len = self.encoder.encode(&tone, &mut bytes).expect("a tone encodes");
        let header = Header {
            version: 2,
            payload_type: 109,
            sequence_number: (65_500 + self.sent) as u16,
            timestamp: (u32::MAX - 5_000).wrapping_add(from),
            ssrc: SSRC,
            ..Default::default()
        };
        self.sent += 1;
        let packet = Packet { header, payload: Bytes::copy_from_slice(&bytes[..len]) };
        self.track.write_rtp(packet).await.expect("the track is bound");
    }

    pub(crate) async fn send(&self, message: &FromClient) {
        self.send_text(&serde_json::to_string(message).expect("it serialises")).await;
    }

    pub(crate) async fn send_text(&self, text: &str) {
        self.channel.as_ref().expect("there is a channel").send_text(text).await.expect("it is open");
    }

    pub(crate) async fn close_channel(&self) {
        self.channel.as_ref().expect("there is a channel").close().await.expect("it was open");
    }

    pub(crate) async fn close(self) {
        self.connection.close().await.expect("it closes");
    }
}

async fn read(channel: Arc<dyn DataChannel>, open: oneshot::Sender<()>, messages: mpsc::UnboundedSender<ToClient>) {
    let mut open = Some(open);
    while let Some(event) = channel.poll().await {
        match event {
            DataChannelEvent::OnOpen => {
                if let Some(open) = open.take() {
                    let _ = open.send(());
                }
            }
            DataChannelEvent::OnMessage(message) => {
                let message = serde_json::from_slice(&message.data).expect("the host speaks the wire's language");
                if messages.send(message).is_err() {
                    return;
                }
            }
            DataChannelEvent::OnClose => return,
            _ => {}
        }
    }
}
