//! `transport`: carries audio and records in and out.
//!
//! * Layer 2. Imports layer 0, `audio`, tokio. Never `turn` or `store`: a wire must not know what is decided.
//! * A [`Link`] is one connection. It comes as two audio halves for the pump, two message queues for the session, and a
//!   [`Capability`] that says what the far end does for us.
//! * What has left the last door is bounded: the pump hands over just in time, and after a bump the next packet carries
//!   new-generation silence, because a receiver that gets nothing stretches the last old speech.
//! * Proved by `tests/transport.rs` over the memory link and by the browser test over WebRTC.

pub mod memory;
pub mod net;
mod trail;
mod uplink;
#[cfg(feature = "webrtc")]
pub mod webrtc;
pub mod wire;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::audio::jitter::JitterCounts;
use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, SamplePos, Stamp};

/// Bound of the queue to a client.
pub const TO_CLIENT: usize = 256;
/// Bound of the queue from a client. When it is full the connection is not read, which the client's own stack notices.
pub const FROM_CLIENT: usize = 64;

/// What the far end does, and what it does not. Declared by each transport; nothing is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// It cancels the echo of what it plays.
    pub cancels_echo: bool,
    /// It drops and mutes a stale generation when told to.
    pub can_clear: bool,
    /// It reports how far it has played.
    pub reports_position: bool,
    /// It holds playback by itself at the first evidence.
    pub holds_locally: bool,
    /// Longest time between handing a sample over and its sounding, when nothing is reported.
    pub buffer_bound: Duration,
    /// Time between a sound at the microphone and its arrival here that the transport knows of (capture, packet, codec).
    /// The stamps in [`Mic`] have it taken off already; it is declared so that a tail can show it, not to be subtracted again.
    pub uplink_bound: Duration,
}

/// What the microphone gave for one beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mic {
    /// Sound, and when (session time) its first sample was captured.
    Sound {
        /// Capture time of the first sample.
        at: Stamp,
    },
    /// Nothing arrived in time; the block was made up (packet loss concealment).
    Concealed {
        /// Capture time of the first sample.
        at: Stamp,
    },
    /// Nothing is there (muted, not begun, gone); the block is silence.
    Nothing,
}

/// The microphone half, polled by the pump once a beat. Real-time manners: no lock, no allocation, no wait.
pub trait MediaIn: Send {
    /// Fills `block` (10 ms mono at the house rate) with what is due at `now` and says what it is.
    ///
    /// The stamps it tells never fall. They are estimates of when the sound *was captured*, not of when it arrived: network
    /// jitter does not move them, the delay the network has at its best stays in them.
    fn pull(&mut self, now: Stamp, block: &mut [f32; BLOCK_SAMPLES]) -> Mic;

    /// What the network did to the microphone so far. A link without packets has nothing to tell.
    fn counts(&self) -> JitterCounts {
        JitterCounts::default()
    }
}

/// One beat of sound for the far end.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// 10 ms mono at the house rate; silence when nothing is to be said.
    pub samples: &'a [f32; BLOCK_SAMPLES],
    /// The generation these samples belong to. Silence after a bump already carries the new one.
    pub generation: Generation,
    /// Position, within the generation, of the end of this block's sound.
    pub until: SamplePos,
    /// Whether the block is all silence.
    pub silent: bool,
}

/// The loudspeaker half, called by the pump once a beat. May allocate only in its codec's packet; never waits.
pub trait MediaOut: Send {
    /// Takes one beat of sound, at `now`. A full queue drops the packet and counts it.
    fn push(&mut self, now: Stamp, sound: Outgoing<'_>);

    /// Which generation, and which place in it, the sample at RTP timestamp `rtp` has. Knows about the last 10 s; `None` for what
    /// it never sent, no longer knows, or sent before any generation. For the end of a packet ask for the timestamp after it.
    fn locate(&self, rtp: u32) -> Option<(Generation, SamplePos)> {
        let _ = rtp;
        None
    }

    /// Packets dropped because the wire did not take them in time.
    fn dropped(&self) -> u64 {
        0
    }
}

/// One connection, as the engine takes it.
///
/// * The engine's first message is [`wire::ToClient::Hello`], sent before the halves are handed to a pump, because the
///   loudspeaker half puts its [`wire::ToClient::Media`] into the same queue.
/// * Over a network nothing sounds before the far end is connected, which [`wire::FromClient::Hello`] tells.
/// * Dropping either half, or [`Link::from_client`], ends the connection; so nothing is left over when an owner dies.
pub struct Link {
    /// What the far end does.
    pub capability: Capability,
    /// Microphone.
    pub media_in: Box<dyn MediaIn>,
    /// Loudspeaker.
    pub media_out: Box<dyn MediaOut>,
    /// Messages from the client, bounded.
    pub from_client: mpsc::Receiver<wire::FromClient>,
    /// Messages to the client, bounded by [`TO_CLIENT`]: a client that does not read is disconnected, and resumes later. Whoever
    /// finds it full (the engine, or a half of this link) cancels [`Link::closed`].
    pub to_client: mpsc::Sender<wire::ToClient>,
    /// Cancelled by either side when the connection is over.
    pub closed: CancellationToken,
}
