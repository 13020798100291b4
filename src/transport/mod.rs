//! `transport`: carries audio and records in and out.
//!
//! * Layer 2. Imports layer 0, `audio`, tokio. Never `turn` or `store`: a wire must not know what is decided.
//! * A [`Link`] is one connection. It comes as two audio halves for the pump, two message queues for the session, and a
//!   [`Capability`] that says what the far end does for us.
//! * What has left the last door is bounded: the pump hands over just in time, and after a bump the next packet carries
//!   new-generation silence, because a receiver that gets nothing stretches the last old speech.
//! * Proved by `tests/transport.rs` over the memory link and by the browser test over WebRTC.

pub mod memory;
#[cfg(feature = "webrtc")]
pub mod webrtc;
pub mod wire;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::id::Generation;
use crate::time::{BLOCK_SAMPLES, SamplePos, Stamp};

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
    fn pull(&mut self, now: Stamp, block: &mut [f32; BLOCK_SAMPLES]) -> Mic;
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
}

/// One connection, as the engine takes it.
pub struct Link {
    /// What the far end does.
    pub capability: Capability,
    /// Microphone.
    pub media_in: Box<dyn MediaIn>,
    /// Loudspeaker.
    pub media_out: Box<dyn MediaOut>,
    /// Messages from the client, bounded.
    pub from_client: mpsc::Receiver<wire::FromClient>,
    /// Messages to the client, bounded by 256: a client that does not read is disconnected, and resumes later.
    pub to_client: mpsc::Sender<wire::ToClient>,
    /// Cancelled by either side when the connection is over.
    pub closed: CancellationToken,
}
