//! `transport::memory`: two ends in one process, with a seeded bad network between them.
//!
//! * Layer 2. The near end is a [`Link`] like any other; the far end is a [`FarEnd`], which a test, a lab or an example turns by
//!   hand, one [`FarEnd::beat`] each 10 ms of session time. Nothing here reads a clock or spawns a task: the same beats on
//!   the same stamps with the same seed give the same run.
//! * The far end behaves like the browser page: it mutes what is stale, reports what it plays, and says when it fell silent.
//!   What it does and does not do is its [`Capability`].
//! * Queues: 64 blocks each way (a side that is not pumped loses the newest, counted), messages as for every link.
//! * Proved by `tests/transport.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ringbuf::traits::{Consumer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::net::Path;
use super::trail::{BEAT_TICKS, Marks, Sent, Trail};
use super::uplink::{Plain, Uplink};
use super::wire::{FromClient, ToClient};
use super::{Capability, FROM_CLIENT, Link, MediaIn, MediaOut, Mic, Outgoing, TO_CLIENT};
use crate::audio::jitter::{Arrival, JitterConfig, JitterCounts};
use crate::id::Generation;
use crate::time::{BEAT, BLOCK_SAMPLES, HOUSE_RATE, SamplePos, Stamp};

pub use super::net::Net;

/// Blocks between the two ends, each way.
const BLOCKS: usize = 64;
/// Beats of sound between two position reports of the far end: 100 ms, as the page does.
const REPORT_EVERY: u64 = 10;
/// Messages the far end keeps for [`FarEnd::messages`]; the oldest are forgotten.
const KEPT: usize = 4_096;
/// Blocks by which the far end's playing may fall behind its buffer before it drops the oldest.
const BEHIND: usize = 8;

/// What a browser page does: everything but holding by itself.
pub const fn page() -> Capability {
    Capability {
        cancels_echo: true,
        can_clear: true,
        reports_position: true,
        holds_locally: false,
        buffer_bound: Duration::from_millis(20),
        uplink_bound: BEAT,
    }
}

/// A connection with both its ends. `capability` is what the far end does, and what it declares.
pub fn pair(net: Net, capability: Capability) -> (Link, FarEnd) {
    let (up_tx, up_rx) = HeapRb::new(BLOCKS).split();
    let (down_tx, down_rx) = HeapRb::new(BLOCKS).split();
    let (to_client, to_client_rx) = mpsc::channel(TO_CLIENT);
    let (from_client_tx, from_client) = mpsc::channel(FROM_CLIENT);
    let closed = CancellationToken::new();
    // A network that does not jitter needs no waiting; one that does begins with what it will need.
    let steady = net.jitter.is_zero() && net.reorder == 0.0;
    let jitter = if steady {
        JitterConfig { start: Duration::ZERO, least: Duration::ZERO, ..JitterConfig::default() }
    } else {
        JitterConfig::default()
    };
    let link = Link {
        capability,
        media_in: Box::new(NearIn {
            ring: up_rx,
            path: Path::new(net.clone(), 1),
            uplink: Uplink::new(jitter, Plain),
            _alive: closed.clone().drop_guard(),
        }),
        media_out: Box::new(NearOut {
            ring: down_tx,
            trail: Trail::new(0),
            marks: Marks::new(to_client.clone(), closed.clone()),
            sent: 0,
            dropped: 0,
            _alive: closed.clone().drop_guard(),
        }),
        from_client,
        to_client,
        closed: closed.clone(),
    };
    let far = FarEnd {
        capability,
        closed: closed.clone(),
        mic: VecDeque::new(),
        mic_open: true,
        mic_seq: 0,
        mic_lost: 0,
        ring_up: up_tx,
        ring_down: down_rx,
        path: Path::new(net.clone(), 2),
        buffer: BTreeMap::new(),
        depth: net.far_buffer,
        next: None,
        stale_below: Generation::UNSET,
        held: None,
        last_sound: None,
        reported: 0,
        way: net.delay,
        to_client: to_client_rx,
        coming: VecDeque::new(),
        inbox: VecDeque::new(),
        from_client: from_client_tx,
        going: VecDeque::new(),
        _alive: closed.drop_guard(),
    };
    (link, far)
}

/// A microphone block under way.
#[derive(Clone)]
struct Spoken {
    sent: Stamp,
    seq: u16,
    rtp: u32,
    bytes: [u8; 4 * BLOCK_SAMPLES],
}

struct NearIn {
    ring: HeapCons<Spoken>,
    path: Path<Spoken>,
    uplink: Uplink<Plain>,
    _alive: DropGuard,
}

impl MediaIn for NearIn {
    fn pull(&mut self, now: Stamp, block: &mut [f32; BLOCK_SAMPLES]) -> Mic {
        while let Some(spoken) = self.ring.try_pop() {
            self.path.send(spoken.sent, spoken);
        }
        while let Some((at, spoken)) = self.path.receive(now) {
            let Spoken { seq, rtp, ref bytes, .. } = spoken;
            self.uplink.push(Arrival { seq, rtp, samples: BEAT_TICKS, at, payload: bytes });
        }
        self.uplink.pull(now, block)
    }

    fn counts(&self) -> JitterCounts {
        self.uplink.counts()
    }
}

/// A loudspeaker block under way.
#[derive(Clone)]
struct Frame {
    sent: Stamp,
    /// Counts blocks, and does not wrap as the timestamp does.
    index: u64,
    rtp: u32,
    place: Sent,
    silent: bool,
    samples: [f32; BLOCK_SAMPLES],
}

struct NearOut {
    ring: HeapProd<Frame>,
    trail: Trail,
    marks: Marks,
    sent: u64,
    dropped: u64,
    _alive: DropGuard,
}

impl MediaOut for NearOut {
    fn push(&mut self, now: Stamp, sound: Outgoing<'_>) {
        let place = self.trail.place(&sound);
        let rtp = self.trail.record(place);
        self.marks.mark(rtp, place);
        let frame = Frame { sent: now, index: self.sent, rtp, place, silent: sound.silent, samples: *sound.samples };
        self.sent += 1;
        if self.ring.try_push(frame).is_err() {
            self.dropped += 1;
        }
    }

    fn locate(&self, rtp: u32) -> Option<(Generation, SamplePos)> {
        self.trail.locate(rtp)
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// One beat of the far end's loudspeaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heard {
    /// When its first sample sounds.
    pub at: Stamp,
    /// What it was sent as; unset when nothing had arrived.
    pub generation: Generation,
    /// RTP timestamp of the block, when one had arrived.
    pub rtp: Option<u32>,
    /// Place in the generation before the first sample.
    pub from: SamplePos,
    /// Place in the generation after the last sample.
    pub until: SamplePos,
    /// Whether a block that was not silent was muted, because its generation is held or stale.
    pub muted: bool,
    /// What the loudspeaker gives: zeros when muted or when nothing had arrived.
    pub samples: [f32; BLOCK_SAMPLES],
}

impl Heard {
    /// Whether anything sounds.
    pub fn sounds(&self) -> bool {
        self.samples.iter().any(|s| *s != 0.0)
    }
}

/// The far end of [`pair`]: a person with a microphone, a loudspeaker and a client program.
pub struct FarEnd {
    capability: Capability,
    closed: CancellationToken,
    /// What the person is about to say.
    mic: VecDeque<f32>,
    mic_open: bool,
    mic_seq: u64,
    mic_lost: u64,
    ring_up: HeapProd<Spoken>,
    ring_down: HeapCons<Frame>,
    path: Path<Frame>,
    /// Arrived, waiting to be played, by index.
    buffer: BTreeMap<u64, (Stamp, Frame)>,
    depth: Duration,
    /// Index of the next block to play, once playing has begun.
    next: Option<u64>,
    /// Generations below this are muted for ever.
    stale_below: Generation,
    held: Option<Generation>,
    /// The last block that sounded.
    last_sound: Option<(Generation, u32)>,
    /// Sounding blocks since the last report.
    reported: u64,
    /// How long a message is under way.
    way: Duration,
    to_client: mpsc::Receiver<ToClient>,
    coming: VecDeque<(Stamp, ToClient)>,
    inbox: VecDeque<ToClient>,
    from_client: mpsc::Sender<FromClient>,
    going: VecDeque<(Stamp, FromClient)>,
    _alive: DropGuard,
}

impl FarEnd {
    /// Queues sound for the microphone (48 kHz mono). Each beat takes 10 ms of it; a beat without sound takes silence.
    pub fn say(&mut self, samples: &[f32]) {
        self.mic.extend(samples);
    }

    /// Queues `ms` milliseconds of something that sounds like syllables: the same talk for the same `seed`, which moves on.
    pub fn talk(&mut self, ms: u64, seed: &mut u32) {
        let samples = (0..ms * HOUSE_RATE.samples_in(Duration::from_millis(1))).map(|i| {
            // A small linear generator, so that no library's version changes what is said.
            *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let white = (*seed >> 8) as f32 / (1 << 23) as f32 - 1.0;
            let syllable = 0.6 + 0.4 * (std::f32::consts::TAU * 5.0 * i as f32 / HOUSE_RATE.hz() as f32).sin();
            0.3 * white * syllable
        });
        self.mic.extend(samples);
    }

    /// Samples queued by [`FarEnd::say`] that no beat has taken yet.
    pub fn unsaid(&self) -> usize {
        self.mic.len()
    }

    /// Closes the microphone: nothing is sent, not even silence. Opened again, its media time goes on where it would be.
    pub fn open_microphone(&mut self, open: bool) {
        self.mic_open = open;
    }

    /// Sends a message; it arrives with the beat that is `delay` of the network later, in order and without loss.
    pub fn send(&mut self, now: Stamp, message: FromClient) {
        self.going.push_back((now + self.way, message));
    }

    /// Messages that have arrived since the last call.
    pub fn messages(&mut self) -> impl Iterator<Item = ToClient> {
        self.inbox.drain(..)
    }

    /// Ends the connection from this side, at once, as a closed page does.
    pub fn leave(&self) {
        self.closed.cancel();
    }

    /// Whether either side has ended the connection.
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Microphone blocks lost because the near end was not pumped.
    pub fn unpumped(&self) -> u64 {
        self.mic_lost
    }

    /// One beat of the far end, at `now`: the microphone block of the 10 ms before `now` is sent; messages are exchanged and
    /// obeyed; and the loudspeaker block of the 10 ms after `now` is returned.
    pub fn beat(&mut self, now: Stamp) -> Heard {
        if self.is_closed() {
            return nothing(now);
        }
        self.speak(now);
        self.listen(now);
        let heard = self.play(now);
        while self.going.front().is_some_and(|(due, _)| *due <= now) {
            // A near end that does not read is waited for: the channel is reliable.
            let Ok(permit) = self.from_client.try_reserve() else { break };
            if let Some((_, message)) = self.going.pop_front() {
                permit.send(message);
            }
        }
        heard
    }

    fn speak(&mut self, now: Stamp) {
        let seq = self.mic_seq;
        if !self.mic_open {
            // Media time goes on, numbers do not: that is how a closed microphone differs from a bad network.
            return;
        }
        self.mic_seq += 1;
        let mut bytes = [0u8; 4 * BLOCK_SAMPLES];
        for out in bytes.as_chunks_mut::<4>().0 {
            *out = self.mic.pop_front().unwrap_or(0.0).to_le_bytes();
        }
        // Media time is the time of the block's first sample.
        let rtp = (u128::from(now.back(BEAT).as_micros()) * 48 / 1_000) as u32;
        if self.ring_up.try_push(Spoken { sent: now, seq: seq as u16, rtp, bytes }).is_err() {
            self.mic_lost += 1;
        }
    }

    fn listen(&mut self, now: Stamp) {
        while let Ok(message) = self.to_client.try_recv() {
            self.coming.push_back((now + self.way, message));
        }
        while self.coming.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, message)) = self.coming.pop_front() else { break };
            self.obey(now, &message);
            if self.inbox.len() == KEPT {
                self.inbox.pop_front();
            }
            self.inbox.push_back(message);
        }
    }

    fn obey(&mut self, now: Stamp, message: &ToClient) {
        if !self.capability.can_clear {
            return;
        }
        match message {
            ToClient::Hold { generation } => {
                self.held = Some(*generation);
                self.silenced(now, *generation, true);
            }
            ToClient::Resume { generation } if self.held == Some(*generation) => self.held = None,
            ToClient::Clear { generation, next } => {
                self.stale_below = self.stale_below.max(*next);
                self.held = self.held.filter(|held| *held >= *next);
                self.silenced(now, *generation, false);
            }
            _ => {}
        }
    }

    fn silenced(&mut self, now: Stamp, generation: Generation, held: bool) {
        if self.capability.reports_position {
            let rtp = self.last_sound.filter(|(sounded, _)| *sounded == generation).map(|(_, rtp)| rtp);
            self.send(now, FromClient::Silenced { generation, held, rtp, at: now });
        }
    }

    fn play(&mut self, now: Stamp) -> Heard {
        while let Some(frame) = self.ring_down.try_pop() {
            self.path.send(frame.sent, frame);
        }
        while let Some((due, frame)) = self.path.receive(now) {
            if self.next.is_none_or(|next| frame.index >= next) {
                self.buffer.entry(frame.index).or_insert((due, frame));
            }
        }
        let room = (self.depth.as_micros() / BEAT.as_micros()) as usize + BEHIND;
        while self.buffer.len() > room {
            self.buffer.pop_first();
        }
        let Some(first) = self.buffer.first_entry() else { return nothing(now) };
        let next = *self.next.get_or_insert(*first.key());
        if first.get().0 + self.depth > now {
            return nothing(now);
        }
        let (index, (_, frame)) = first.remove_entry();
        // A hole is passed over: what comes after it has waited long enough.
        self.next = Some(index.max(next) + 1);
        self.sound(now, &frame)
    }

    fn sound(&mut self, now: Stamp, frame: &Frame) -> Heard {
        let Sent { generation, from, until } = frame.place;
        let stopped = generation < self.stale_below || self.held == Some(generation);
        let sounding = !frame.silent && !stopped;
        if sounding {
            let fresh = self.last_sound.is_none_or(|(last, _)| last != generation);
            self.last_sound = Some((generation, frame.rtp));
            self.reported = if fresh { 0 } else { self.reported + 1 };
            if self.capability.reports_position && self.reported.is_multiple_of(REPORT_EVERY) {
                self.send(now, FromClient::Playout { rtp: frame.rtp, at: now });
            }
        } else if self.reported > 0 && !stopped && self.last_sound.is_some_and(|(last, _)| last == generation) {
            // The answer has run out: say so once, so that its end is known to the sample.
            self.reported = 0;
            if self.capability.reports_position {
                self.send(now, FromClient::Playout { rtp: frame.rtp, at: now });
            }
        }
        let muted = !frame.silent && stopped;
        let samples = if muted { [0.0; BLOCK_SAMPLES] } else { frame.samples };
        Heard { at: now, generation, rtp: Some(frame.rtp), from, until, muted, samples }
    }
}

fn nothing(now: Stamp) -> Heard {
    Heard {
        at: now,
        generation: Generation::UNSET,
        rtp: None,
        from: SamplePos::ZERO,
        until: SamplePos::ZERO,
        muted: false,
        samples: [0.0; BLOCK_SAMPLES],
    }
}
