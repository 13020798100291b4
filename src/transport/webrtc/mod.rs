//! `transport::webrtc`: a browser as the far end. The one place that names the crates `webrtc` and `rtc`.
//!
//! * Layer 2. One offer in, one answer out (all candidates inside, no trickle), one [`Link`] per connection. The browser makes
//!   the offer: one audio section with Opus, and one data channel named [`CHANNEL`], reliable and ordered.
//! * Owned: a connection's task owns the peer and its sockets, and ends with [`Link::closed`]; the two media halves are owned by
//!   whoever pumps them. Nothing outlives the token: sockets are freed, tasks end.
//! * Tasks per connection: the crate's own driver; `live` (messages, and the end); one reader of packets; one sender of packets.
//! * Queues: packets in 32 (newest dropped; the jitter buffer counts them as lost), packets out 3 (newest
//!   dropped, [`MediaOut::dropped`](super::MediaOut::dropped)), messages [`TO_CLIENT`] and [`FROM_CLIENT`].
//! * Proved by `tests/transport.rs` over loopback, and with a real browser by `tests/browser.rs`.
//!
//! Choices: the DTLS side is passive, which connects sooner. Names ending in `.local` are not looked up: a browser that hides
//! its addresses finds us, since our candidates are real. Retransmission is not offered for audio by browsers; what is lost is
//! recovered from the next packet (in-band forward error correction), asked for in the answer.

mod channel;
mod media;
mod offer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::transport::RTCDtlsRole;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use webrtc::data_channel::DataChannel;
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::media_stream::track_remote::TrackRemote;
use webrtc::peer_connection::{
    PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCIceGatheringState, RTCPeerConnectionState, Registry,
};

use super::trail::{Marks, Trail};
use super::{Capability, FROM_CLIENT, Link, TO_CLIENT};
use crate::audio::codec::{CodecError, OpusDecoder, OpusEncoder};
use crate::id::SessionId;
use crate::time::{Clock, RuntimeClock};

pub use crate::audio::codec::EncoderConfig;

/// Name of the data channel that the browser makes.
pub const CHANNEL: &str = "antiphon";
/// Longest offer that is read, bytes.
pub const MAX_OFFER: usize = 64 * 1024;

/// The packet that has to be full before it is sent: 20 ms, as browsers do by default.
const PACKET: Duration = Duration::from_millis(20);
/// By how much Opus' sound comes out later than it went in.
const LOOKAHEAD: Duration = Duration::from_micros(6_500);
/// How often a silent browser is asked whether it is there, at most.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Bytes a data channel may hold unsent before its writer waits.
const SEND_BUFFER: usize = 256 * 1024;
/// Packets between the pump and the sender: one that is being sent, and two for a runtime that is late.
const PACKETS_OUT: usize = 3;

/// A browser running the page of this crate.
///
/// * `buffer_bound` 150 ms: our packet 20, its jitter buffer up to 100, its device 30; only for a page that reports nothing.
/// * `uplink_bound` 26.5 ms: packet 20, codec 6.5, so that a stamp is the browser's own capture time; what the device takes before that
///   nobody here can see. [`Mic`](super::Mic) stamps have it taken off already.
pub const BROWSER: Capability = Capability {
    cancels_echo: true,
    can_clear: true,
    reports_position: true,
    holds_locally: false,
    buffer_bound: Duration::from_millis(150),
    uplink_bound: Duration::from_micros(26_500),
};

const _: () = assert!(BROWSER.uplink_bound.as_micros() == PACKET.as_micros() + LOOKAHEAD.as_micros());

/// How connections are made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the sockets, one per connection. Default `127.0.0.1:0`: this machine only, a free port. An unspecified address
    /// (`0.0.0.0`) means every interface there is, this machine's own included. A port other than 0 serves one connection
    /// at a time.
    pub bind: SocketAddr,
    /// How long a browser may take from its answer to an open data channel; then the link is closed. Default 20 s.
    pub connect_within: Duration,
    /// How long a browser may be out of reach (crashed, network gone) before the link is closed; at least 2 s. Default 8 s. One that
    /// closes properly is seen to go at once.
    pub gone_after: Duration,
    /// How sound is encoded.
    pub encoder: EncoderConfig,
    /// What the far end is taken to do. Default [`BROWSER`].
    pub capability: Capability,
}

impl Config {
    /// Whether a socket can be opened at [`Config::bind`] now; asked at start, so that not every offer has to fail.
    ///
    /// # Errors
    /// What the system says: the address is not this machine's, or its port is taken.
    pub fn probe(&self) -> std::io::Result<()> {
        std::net::UdpSocket::bind(self.bind).map(drop)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            connect_within: Duration::from_secs(20),
            gone_after: Duration::from_secs(8),
            encoder: EncoderConfig::default(),
            capability: BROWSER,
        }
    }
}

/// Answers offers. Cheap to clone; holds no socket itself.
#[derive(Clone, Debug)]
pub struct Host {
    config: Arc<Config>,
}

/// An offer that was taken.
pub struct Accepted {
    /// The answer, complete with candidates, for the browser's `setRemoteDescription`.
    pub answer: String,
    /// Our end. It connects by itself; [`FromClient::Hello`](super::wire::FromClient::Hello) tells that it has.
    pub link: Link,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted").field("answer", &self.answer.len()).finish_non_exhaustive()
    }
}

/// Why an offer was not taken. Only [`OfferError::Unavailable`] may go better another time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// It cannot be read.
    #[error("the offer is not usable SDP ({detail}); send the `sdp` of `RTCPeerConnection.localDescription` as it is")]
    Malformed {
        /// What is wrong with it.
        detail: String,
    },
    /// It has no audio that we could answer on.
    #[error(
        "the offer has no audio section that receives; add the microphone's track, or an audio transceiver, before creating it"
    )]
    NoAudio,
    /// It has audio, but not in the one format we speak.
    #[error("the offer's audio has no Opus at 48 kHz; every WebRTC client has it, so do not remove it")]
    NoOpus,
    /// It has no data channel, without which records, holds and cuts cannot be told.
    #[error("the offer has no data channel; create one named `antiphon` before creating the offer")]
    NoChannel,
    /// No socket, or no codec: something here, not in the offer.
    #[error("no connection can be made now: {detail}")]
    Unavailable {
        /// What happened.
        detail: String,
    },
}

impl From<CodecError> for OfferError {
    fn from(e: CodecError) -> Self {
        OfferError::Unavailable { detail: e.to_string() }
    }
}

fn unavailable(e: impl std::fmt::Display) -> OfferError {
    OfferError::Unavailable { detail: e.to_string() }
}

fn malformed(e: impl std::fmt::Display) -> OfferError {
    OfferError::Malformed { detail: e.to_string() }
}

impl Host {
    /// A host that makes connections as `config` says.
    pub fn new(config: Config) -> Self {
        Host { config: Arc::new(config) }
    }

    /// How connections are made.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes a browser's offer for `session`, whose time is `clock`'s. Resolves when the answer is complete, which needs no
    /// network; dropped before, it leaves nothing behind.
    ///
    /// Needs a tokio runtime with IO and time.
    ///
    /// # Errors
    /// [`OfferError`]. An offer that cannot be used is refused before a socket or a codec is made for it.
    pub async fn accept(&self, offer: &str, session: SessionId, clock: RuntimeClock) -> Result<Accepted, OfferError> {
        let offer = offer::read(offer)?;
        let closed = CancellationToken::new();
        let undo = closed.clone().drop_guard();

        let (to_client, to_client_rx) = mpsc::channel(TO_CLIENT);
        let (from_client_tx, from_client) = mpsc::channel(FROM_CLIENT);
        let (packets, packets_rx) = mpsc::channel(PACKETS_OUT);
        let (mic, mic_rx) = media::microphone();
        let (channel_tx, channel_rx) = oneshot::channel();
        let (gathered_tx, gathered_rx) = oneshot::channel();
        let up = Arc::new(AtomicBool::new(false));
        let ssrc = random()?;
        let encoder = OpusEncoder::new(self.config.encoder)?;
        let decoder = OpusDecoder::new()?;

        let track = Arc::new(TrackLocalStaticRTP::new(voice_track(ssrc)));
        let handler = Handler {
            session,
            clock,
            payload_type: offer.payload_type,
            up: up.clone(),
            closed: closed.clone(),
            gathered: Mutex::new(Some(gathered_tx)),
            mic: Mutex::new(Some(mic)),
            channel: Mutex::new(Some(channel_tx)),
        };
        let live = channel::Live {
            session,
            clock,
            connect_by: clock.now() + self.config.connect_within,
            channel: channel_rx,
            to_client: to_client_rx,
            problems: to_client.downgrade(),
            from_client: from_client_tx,
            closed: closed.clone(),
        };
        // Making a peer cannot be given up half-way without leaving its tasks behind, so the connection's own task makes it, owns
        // it, and closes it whatever becomes of this call.
        let (peer_tx, peer_rx) = oneshot::channel();
        let host = self.clone();
        tokio::spawn(async move {
            match host.peer(offer.payload_type, handler).await {
                Ok(peer) => {
                    let peer: Arc<dyn PeerConnection> = Arc::new(peer);
                    let _ = peer_tx.send(Ok(peer.clone()));
                    live.run(peer).await;
                }
                Err(e) => {
                    let _ = peer_tx.send(Err(e));
                }
            }
        });
        let peer = peer_rx.await.map_err(|_| unavailable("the runtime is ending"))??;

        peer.add_track(track.clone() as Arc<dyn TrackLocal>).await.map_err(unavailable)?;
        peer.set_remote_description(offer.description).await.map_err(malformed)?;
        let answer = peer.create_answer(None).await.map_err(malformed)?;
        peer.set_local_description(answer).await.map_err(unavailable)?;
        tokio::select! {
            biased;
            // Its bound is the connection's own: `live` closes what does not come up.
            () = closed.cancelled() => return Err(unavailable("the connection ended before it was answered")),
            gathered = gathered_rx => gathered.map_err(|_| unavailable("no address was gathered"))?,
        }
        let answer = peer.local_description().await.ok_or_else(|| unavailable("there is no answer"))?;
        if !answer.sdp.contains("a=candidate:") {
            return Err(unavailable("no address of this machine can be offered; check the bind address"));
        }

        tokio::spawn(media::send(packets_rx, track, closed.clone()));
        let first_rtp = random()?;
        let link = Link {
            capability: self.config.capability,
            media_in: Box::new(media::Incoming::new(mic_rx, decoder, LOOKAHEAD, closed.clone().drop_guard())),
            media_out: Box::new(media::Outbound::new(
                media::Lane { ssrc, payload_type: offer.payload_type, packets, up },
                encoder,
                Trail::new(first_rtp),
                Marks::new(to_client.clone(), closed.clone()),
                closed.clone().drop_guard(),
            )),
            from_client,
            to_client,
            closed,
        };
        let _ = undo.disarm();
        tracing::debug!(%session, "offer answered");
        Ok(Accepted { answer: answer.sdp, link })
    }

    async fn peer(&self, payload_type: u8, handler: Handler) -> Result<impl PeerConnection + use<>, OfferError> {
        let mut media = MediaEngine::default();
        media.register_codec(opus(payload_type), RtpCodecKind::Audio).map_err(unavailable)?;
        let registry = configure_rtcp_reports(Registry::new());
        // Half of the time until it counts as disconnected, the other half until it has failed.
        let half = self.config.gone_after.max(Duration::from_secs(2)) / 2;
        let settings = SettingEngineBuilder::new()
            .with_ice_timeouts(Some(half), Some(half), Some(half.min(KEEP_ALIVE)))
            .with_answering_dtls_role(RTCDtlsRole::Server)
            .with_include_loopback_candidate(true)
            .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
            .build();
        PeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_interceptor_registry(registry)
            .with_setting_engine(settings)
            .with_data_channel_send_buffer_limit(SEND_BUFFER)
            .with_udp_addrs(addresses(self.config.bind))
            .with_handler(Arc::new(handler))
            .build()
            .await
            .map_err(unavailable)
    }
}

/// The addresses to bind for `bind`: the crate below leaves the loopback out of "every interface", which a page on this
/// machine needs.
fn addresses(bind: SocketAddr) -> Vec<SocketAddr> {
    let loopback = match bind.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(ip) if ip.is_unspecified() => Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        _ => None,
    };
    std::iter::once(bind).chain(loopback.map(|ip| SocketAddr::new(ip, bind.port()))).collect()
}

fn random() -> Result<u32, OfferError> {
    getrandom::u32().map_err(unavailable)
}

fn opus_format() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
        rtcp_feedback: vec![],
    }
}

fn opus(payload_type: u8) -> RTCRtpCodecParameters {
    RTCRtpCodecParameters { rtp_codec: opus_format(), payload_type }
}

fn voice_track(ssrc: u32) -> MediaStreamTrack {
    MediaStreamTrack::new(
        CHANNEL.to_owned(),
        "voice".to_owned(),
        "voice".to_owned(),
        RtpCodecKind::Audio,
        vec![RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters { ssrc: Some(ssrc), ..RTCRtpCodingParameters::default() },
            codec: opus_format(),
            ..RTCRtpEncodingParameters::default()
        }],
    )
}

/// What the crate below calls. It may be called on the driver's own task, so nothing here waits.
struct Handler {
    session: SessionId,
    clock: RuntimeClock,
    payload_type: u8,
    /// Whether packets can be sent.
    up: Arc<AtomicBool>,
    closed: CancellationToken,
    gathered: Mutex<Option<oneshot::Sender<()>>>,
    mic: Mutex<Option<media::Feed>>,
    channel: Mutex<Option<oneshot::Sender<Arc<dyn DataChannel>>>>,
}

/// Takes what is there to be taken once.
fn once<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

// The trait is written with a macro of a crate that is not ours; these are the signatures it makes.
impl PeerConnectionEventHandler for Handler {
    fn on_ice_gathering_state_change<'a, 'f>(&'a self, state: RTCIceGatheringState) -> BoxFuture<'f, ()>
    where
        'a: 'f,
    {
        if state == RTCIceGatheringState::Complete
            && let Some(gathered) = once(&self.gathered)
        {
            let _ = gathered.send(());
        }
        ready(()).boxed()
    }

    fn on_connection_state_change<'a, 'f>(&'a self, state: RTCPeerConnectionState) -> BoxFuture<'f, ()>
    where
        'a: 'f,
    {
        tracing::debug!(session = %self.session, %state, "connection");
        match state {
            RTCPeerConnectionState::Connected => self.up.store(true, Ordering::Release),
            RTCPeerConnectionState::Failed | RTCPeerConnectionState::Closed => self.closed.cancel(),
            // Disconnected may come back by itself.
            _ => {}
        }
        ready(()).boxed()
    }

    fn on_data_channel<'a, 'f>(&'a self, channel: Arc<dyn DataChannel>) -> BoxFuture<'f, ()>
    where
        'a: 'f,
    {
        async move {
            // A second channel, or one of another name, is nobody's: it is dropped, and its messages with it.
            if channel.label().await.is_ok_and(|label| label == CHANNEL)
                && let Some(taker) = once(&self.channel)
            {
                let _ = taker.send(channel);
            }
        }
        .boxed()
    }

    fn on_track<'a, 'f>(&'a self, track: Arc<dyn TrackRemote>) -> BoxFuture<'f, ()>
    where
        'a: 'f,
    {
        if let Some(feed) = once(&self.mic) {
            tokio::spawn(media::receive(track, feed, self.payload_type, self.clock, self.closed.clone()));
        }
        ready(()).boxed()
    }
}
