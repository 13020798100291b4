//! `audio::jitter`: packets in, in whatever order the network likes; what to play next out, at the beat.
//!
//! * Layer 1, sans-IO. No clock, no codec, no tokio: arrival and beat are handed in as [`Stamp`]s, payloads are bytes.
//! * Owned by the microphone half of a link. [`JitterBuffer::push`] copies into fixed slots, [`JitterBuffer::next`] lends them
//!   out; neither allocates.
//! * Laws: packets leave in order of sequence, each at most once; at most [`CAPACITY`] are held; what is refused is counted;
//!   the media position never falls.
//! * Proved at the bottom of this file: loss, burst, reordering, doubles, wrap, drift, silence gaps, restarts, nonsense.
//!
//! Three numbers rule it, all in samples of the house rate:
//!
//! ```text
//!   offset    of a packet: its arrival less the RTP time of its *end*
//!   envelope  the lowest offset of the last 4 to 8 s: a packet that met no queue. It follows clock drift, ignores jitter.
//!   target    how much later than the envelope a packet may come and still be played; grows at once when one comes too
//!             late, shrinks slowly when none needs it
//!
//!   captured(sample) = sample + envelope - declared delay of the sender's side
//!   played(sample)   = sample + envelope + one packet + target
//! ```

use std::time::Duration;

use crate::time::{BLOCK_SAMPLES, HOUSE_RATE, Stamp};

/// Most packets held (1.28 s of 20 ms packets).
pub const CAPACITY: usize = 64;
/// Most bytes of one payload; larger ones are refused. Fits any network packet, and 10 ms of plain `f32`.
pub const MAX_PAYLOAD: usize = 1920;
/// Most samples one packet may hold: 120 ms.
pub const MAX_SAMPLES: u32 = 5760;

/// The grain of concealment, as the codec wants it: 2.5 ms.
const GRAIN: i64 = 120;
/// One beat.
const BEAT: i64 = BLOCK_SAMPLES as i64;
/// Added to what a packet needed, and the step of shrinking: 5 ms.
const MARGIN: i64 = 240;
/// A packet further off the envelope than this belongs to another stream of time: 3 s.
const JUMP: i64 = 144_000;
/// A sequence number further off than this belongs to another stream.
const SEQ_JUMP: i64 = 3_000;
/// Window halves of the envelope and of the peak lateness.
const ENVELOPE_HALF: i64 = 4 * 48_000;
const PEAK_HALF: i64 = 2 * 48_000;
/// Further behind its place than this, the buffer skips instead of squeezing: 200 ms.
const SKIP: i64 = 9_600;
/// Further behind than this, it squeezes every fifth beat instead of every fiftieth: 60 ms.
const HURRY: i64 = 2_880;

/// Bounds of the delay the buffer adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterConfig {
    /// Delay to begin with. Default 20 ms.
    pub start: Duration,
    /// It never shrinks below this. Default 10 ms: one beat, which the pump may come late.
    pub least: Duration,
    /// It never grows above this; packets later than it are lost. Default 200 ms.
    pub most: Duration,
    /// How long a hole is filled with made-up sound before silence. Default 100 ms.
    pub conceal: Duration,
    /// What the sender's side takes between sound and sending, apart from the packet's own length (device, codec
    /// lookahead); taken off capture times. Default zero.
    pub sender: Duration,
}

impl Default for JitterConfig {
    fn default() -> Self {
        JitterConfig {
            start: Duration::from_millis(20),
            least: Duration::from_millis(10),
            most: Duration::from_millis(200),
            conceal: Duration::from_millis(100),
            sender: Duration::ZERO,
        }
    }
}

/// A packet as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// RTP sequence number.
    pub seq: u16,
    /// RTP timestamp, 48 kHz.
    pub rtp: u32,
    /// Samples the payload decodes to.
    pub samples: u32,
    /// When it arrived.
    pub at: Stamp,
    /// Encoded sound.
    pub payload: &'a [u8],
}

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It waits for its turn.
    Kept,
    /// It was here before.
    Duplicate,
    /// Its time has passed.
    Late,
    /// It does not fit the stream. If the next one follows it, the stream has begun anew.
    Jump,
    /// Empty, too large, or of no or absurd length.
    Malformed,
}

/// What is to be played next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due<'a> {
    /// Decode this, and leave out its first `skip` samples (made up meanwhile).
    Packet {
        /// Extended sequence number: rises by one per packet sent, across wraps.
        seq: i64,
        /// Encoded sound.
        payload: &'a [u8],
        /// Samples it decodes to.
        samples: usize,
        /// Samples of it whose time has passed.
        skip: usize,
    },
    /// The packet before this one is lost: recover it from this payload, leave out the first `skip` samples.
    Fec {
        /// Encoded sound of the packet *after* the hole; it comes again as [`Due::Packet`].
        payload: &'a [u8],
        /// Samples of the lost packet.
        samples: usize,
        /// Samples of it whose time has passed.
        skip: usize,
    },
    /// Make up this many samples, a multiple of 2.5 ms.
    Conceal {
        /// How many.
        samples: usize,
    },
    /// Nothing: silence until asked again at the next beat.
    Nothing,
}

/// What happened so far. Counts only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitterCounts {
    /// Packets that arrived.
    pub received: u64,
    /// Packets handed out.
    pub played: u64,
    /// Packets that were not there when their time came (late ones among them).
    pub lost: u64,
    /// Of the lost, those recovered from their successor.
    pub recovered: u64,
    /// Arrived after their time.
    pub late: u64,
    /// Arrived more than once.
    pub duplicate: u64,
    /// Arrived after a packet that was sent later.
    pub reordered: u64,
    /// Did not fit the stream.
    pub jumped: u64,
    /// Could not be packets.
    pub malformed: u64,
    /// Pushed out because too many waited, or skipped to catch up.
    pub overflowed: u64,
    /// Times the stream began anew.
    pub restarts: u64,
    /// Samples made up.
    pub concealed: u64,
    /// Beats inserted because the target grew or the sender's clock is slow.
    pub stretched: u64,
    /// Beats merged because the target shrank or the sender's clock is fast.
    pub squeezed: u64,
}

struct Slot {
    seq: i64,
    rtp: i64,
    samples: i64,
    len: usize,
    full: bool,
    payload: [u8; MAX_PAYLOAD],
}

/// Lowest (or, negated, highest) value of the last one to two halves of a window.
#[derive(Clone, Copy)]
struct Lowest {
    half: i64,
    began: i64,
    before: i64,
    now: i64,
}

impl Lowest {
    const NONE: i64 = i64::MAX;

    fn new(half: i64) -> Self {
        Lowest { half, began: i64::MIN, before: Self::NONE, now: Self::NONE }
    }

    /// Takes `value` at time `at`; true when a half has just ended.
    fn take(&mut self, at: i64, value: i64) -> bool {
        let rolled = self.began != i64::MIN && at >= self.began.saturating_add(self.half);
        if rolled {
            // After a pause of more than a window nothing old counts.
            let fresh = at < self.began.saturating_add(2 * self.half);
            self.before = if fresh { self.now } else { Self::NONE };
            self.now = Self::NONE;
        }
        if rolled || self.began == i64::MIN {
            self.began = at;
        }
        self.now = self.now.min(value);
        rolled
    }

    fn get(&self) -> Option<i64> {
        let lowest = self.before.min(self.now);
        (lowest != Self::NONE).then_some(lowest)
    }
}

/// Reorders packets and decides at each beat what is played. See the module's page.
pub struct JitterBuffer {
    slots: Box<[Slot]>,
    /// Sequence numbers last played, by slot, to tell a double from a late one.
    done: Box<[i64]>,
    config: Limits,
    counts: JitterCounts,
    /// Highest sequence number and its media time, extended. `None` before the first packet.
    highest: Option<(i64, i64)>,
    /// Next sequence number to play; older ones are late.
    expected: i64,
    /// Media time up to which sound has been handed out. `None` before the first.
    cursor: Option<i64>,
    playing: bool,
    /// Samples made up since the last packet.
    dry: i64,
    /// Samples of the latest packet.
    packet: i64,
    envelope: Lowest,
    /// Negated lateness.
    peak: Lowest,
    target: i64,
    /// The sequence number that would confirm a restart.
    suspect: Option<u16>,
    /// Lowest lag of the beats since `lag_beats` was zero.
    lag_low: i64,
    lag_beats: u32,
}

#[derive(Clone, Copy)]
struct Limits {
    start: i64,
    least: i64,
    most: i64,
    conceal: i64,
    sender: Duration,
}

impl JitterBuffer {
    /// An empty buffer. Allocates all it will ever need (about 125 kB).
    pub fn new(config: JitterConfig) -> Self {
        let samples = |d: Duration| HOUSE_RATE.samples_in(d.min(Duration::from_secs(2))) as i64;
        let config = Limits {
            start: samples(config.start),
            least: samples(config.least).min(samples(config.most)),
            most: samples(config.most),
            conceal: samples(config.conceal),
            sender: config.sender,
        };
        let slot = || Slot { seq: 0, rtp: 0, samples: 0, len: 0, full: false, payload: [0; MAX_PAYLOAD] };
        JitterBuffer {
            slots: (0..CAPACITY).map(|_| slot()).collect(),
            done: vec![i64::MIN; CAPACITY].into(),
            counts: JitterCounts::default(),
            highest: None,
            expected: 0,
            cursor: None,
            playing: false,
            dry: 0,
            packet: BEAT,
            envelope: Lowest::new(ENVELOPE_HALF),
            peak: Lowest::new(PEAK_HALF),
            target: config.start.clamp(config.least, config.most),
            suspect: None,
            lag_low: i64::MAX,
            lag_beats: 0,
            config,
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> JitterCounts {
        self.counts
    }

    /// Packets waiting; never more than [`CAPACITY`].
    pub fn waiting(&self) -> usize {
        self.slots.iter().filter(|slot| slot.full).count()
    }

    /// How much later than the quickest a packet may come and still be played.
    pub fn target(&self) -> Duration {
        HOUSE_RATE.duration_of(self.target as u64)
    }

    /// Media time (extended RTP timestamp) up to which sound has been handed out; zero before the first packet.
    pub fn position(&self) -> i64 {
        self.cursor.unwrap_or(0)
    }

    /// When the sample at media time `position` was captured, by the quickest packet of late, less that packet's own length
    /// and the sender's declared delay. Jitter does not move it; what the network takes at its best cannot be seen from here
    /// and stays in. `None` before the first packet.
    pub fn captured(&self, position: i64) -> Option<Stamp> {
        let at = position.checked_add(self.envelope.get()?)?.max(0);
        Some(Stamp::from_micros((at as u128 * 1_000 / 48) as u64).back(self.config.sender))
    }

    /// Takes a packet.
    pub fn push(&mut self, packet: Arrival<'_>) -> Taken {
        self.counts.received += 1;
        let len = packet.payload.len();
        if len == 0 || len > MAX_PAYLOAD || packet.samples == 0 || packet.samples > MAX_SAMPLES {
            self.counts.malformed += 1;
            return Taken::Malformed;
        }
        let samples = i64::from(packet.samples);
        let at = samples_of(packet.at);
        let Some((mut seq, mut rtp)) = self.place(&packet, at, samples) else {
            self.counts.jumped += 1;
            return Taken::Jump;
        };
        if self.highest.is_none() {
            // Far from the ends, so that neither a wrap backwards nor years of packets overflow.
            (seq, rtp) = (i64::from(packet.seq), i64::from(packet.rtp));
            self.expected = seq - CAPACITY as i64;
        }
        self.observe(at, at - rtp - samples);
        self.packet = samples;
        match self.highest {
            Some((highest, _)) if seq < highest => self.counts.reordered += 1,
            Some((highest, _)) if seq == highest => {}
            _ => self.highest = Some((seq, rtp)),
        }

        let index = seq.rem_euclid(CAPACITY as i64) as usize;
        let slot = &mut self.slots[index];
        if (slot.full && slot.seq == seq) || self.done[index] == seq {
            self.counts.duplicate += 1;
            return Taken::Duplicate;
        }
        if seq < self.expected || self.cursor.is_some_and(|cursor| rtp + samples <= cursor) || (slot.full && slot.seq > seq) {
            self.counts.late += 1;
            if self.playing {
                // It missed its turn, however little: what is played may be up to half a beat ahead of its place.
                self.target = (self.target + MARGIN).min(self.config.most);
            }
            return Taken::Late;
        }
        if slot.full {
            self.counts.overflowed += 1;
        }
        (slot.seq, slot.rtp, slot.samples, slot.len, slot.full) = (seq, rtp, samples, len, true);
        slot.payload[..len].copy_from_slice(packet.payload);
        Taken::Kept
    }

    /// Says what to play next; to be asked when what was handed out before is used up. [`JitterBuffer::position`] moves past it.
    pub fn next(&mut self, now: Stamp) -> Due<'_> {
        let Some(ideal) = self.ideal(now) else { return Due::Nothing };
        if !self.playing {
            let Some(first) = self.first(self.cursor.unwrap_or(i64::MIN)) else { return Due::Nothing };
            let start = self.slots[first].rtp;
            if start > ideal {
                return Due::Nothing;
            }
            self.playing = true;
            self.dry = 0;
            let cursor = self.cursor.unwrap_or(start).max(start);
            self.cursor = Some(cursor);
        }
        let mut cursor = self.cursor.unwrap_or(ideal);
        if ideal - cursor > SKIP {
            cursor = self.skip_to(ideal);
        } else if cursor - ideal > BEAT / 2 && self.dry < self.config.conceal {
            // Ahead of its place: the target has grown or the sender's clock is slow. Time is made, media time stands.
            self.counts.stretched += 1;
            self.dry += BEAT;
            return self.conceal(BEAT);
        }
        let Some(first) = self.first(cursor) else { return self.dry_up(BEAT) };
        let (start, samples, seq) = (self.slots[first].rtp, self.slots[first].samples, self.slots[first].seq);
        let missing = if self.started() { seq - self.expected } else { 0 };
        let gap = start - cursor;
        if gap < GRAIN {
            return self.hand_out(first, cursor.max(start), missing);
        }
        if missing > 0 && gap <= samples {
            // Only the packet right before this one is missing now, and this one carries a copy of it.
            self.cursor = Some(start);
            self.lose(missing, samples, gap < samples);
            self.expected = seq;
            self.counts.recovered += 1;
            self.dry = 0;
            let slot = &self.slots[first];
            return Due::Fec { payload: &slot.payload[..slot.len], samples: samples as usize, skip: (samples - gap) as usize };
        }
        let hole = if missing > 0 { gap - samples } else { gap };
        self.dry_up((hole.min(BEAT) / GRAIN * GRAIN).max(GRAIN))
    }

    /// Whether one beat should be merged into its neighbour because the buffer is behind its place, `held` samples of what was
    /// handed out being still unplayed. To be asked once a beat; a yes is counted and is expected to be obeyed.
    pub fn squeeze(&mut self, now: Stamp, held: usize) -> bool {
        let (Some(ideal), Some(cursor), true) = (self.ideal(now), self.cursor, self.playing) else {
            (self.lag_low, self.lag_beats) = (i64::MAX, 0);
            return false;
        };
        let lag = ideal - (cursor - held as i64);
        self.lag_low = self.lag_low.min(lag);
        self.lag_beats += 1;
        let due = self.lag_beats >= if self.lag_low > HURRY { 5 } else { 50 };
        if !due {
            return false;
        }
        let behind = self.lag_low > BEAT + GRAIN;
        (self.lag_low, self.lag_beats) = (i64::MAX, 0);
        self.counts.squeezed += u64::from(behind);
        behind
    }

    /// Where media time should be at `now`.
    fn ideal(&self, now: Stamp) -> Option<i64> {
        Some(samples_of(now) - self.envelope.get()? - self.packet - self.target)
    }

    /// The packet's extended sequence number and media time, or `None` when it does not belong to the stream (yet).
    fn place(&mut self, packet: &Arrival<'_>, at: i64, samples: i64) -> Option<(i64, i64)> {
        let Some((high_seq, high_rtp)) = self.highest else { return Some((0, 0)) };
        let seq = high_seq + i64::from(packet.seq.wrapping_sub(high_seq as u16) as i16);
        let rtp = high_rtp + i64::from(packet.rtp.wrapping_sub(high_rtp as u32) as i32);
        let envelope = self.envelope.get().unwrap_or(at - rtp - samples);
        let off = (at - rtp - samples) - envelope;
        if off.abs() <= JUMP && (seq - high_seq).abs() <= SEQ_JUMP {
            self.suspect = None;
            return Some((seq, rtp));
        }
        if self.suspect != Some(packet.seq) {
            self.suspect = Some(packet.seq.wrapping_add(1));
            return None;
        }
        // Two in a row: the sender has begun anew. Extended numbers go on from the old ones, so that order holds across it.
        self.suspect = None;
        self.counts.restarts += 1;
        for slot in &mut self.slots {
            self.counts.overflowed += u64::from(slot.full);
            slot.full = false;
        }
        let seq = next_congruent(high_seq.max(self.expected) + CAPACITY as i64, i64::from(packet.seq), 1 << 16);
        let rtp =
            next_congruent(high_rtp.max(self.cursor.unwrap_or(high_rtp)) + i64::from(MAX_SAMPLES), i64::from(packet.rtp), 1 << 32);
        self.expected = seq;
        self.cursor = None;
        self.playing = false;
        self.envelope = Lowest::new(ENVELOPE_HALF);
        self.peak = Lowest::new(PEAK_HALF);
        Some((seq, rtp))
    }

    /// Takes the offset of an arrival into envelope and target.
    fn observe(&mut self, at: i64, offset: i64) {
        let before = self.envelope.get();
        self.envelope.take(at, offset);
        let envelope = self.envelope.get().unwrap_or(offset);
        if let Some(before) = before
            && envelope > before
        {
            // The quickest way has become slower, or the sender's clock is: what is played stays where it is.
            self.target = (self.target - (envelope - before)).max(self.config.least);
        }
        self.need(at, offset - envelope);
    }

    /// A packet would have needed `lateness` at `at`.
    fn need(&mut self, at: i64, lateness: i64) {
        let rolled = self.peak.take(at, -lateness);
        let needed = (-self.peak.get().unwrap_or(0) + MARGIN).clamp(self.config.least, self.config.most);
        if lateness > self.target {
            if self.playing {
                self.target = needed.max(self.target);
            }
        } else if rolled && self.target > needed {
            let step = ((self.target - needed) / 4).max(MARGIN);
            self.target = (self.target - step).max(needed);
        }
    }

    fn started(&self) -> bool {
        self.counts.played > 0 && self.cursor.is_some()
    }

    /// Slot of the earliest packet that may still be played; drops those whose time has passed.
    fn first(&mut self, cursor: i64) -> Option<usize> {
        let (highest, _) = self.highest?;
        let from = self.expected.max(highest - CAPACITY as i64 + 1);
        for seq in from..=highest {
            let index = seq.rem_euclid(CAPACITY as i64) as usize;
            let slot = &mut self.slots[index];
            if !slot.full || slot.seq != seq {
                continue;
            }
            if slot.rtp.saturating_add(slot.samples) > cursor {
                return Some(index);
            }
            slot.full = false;
            self.counts.overflowed += 1;
        }
        None
    }

    fn hand_out(&mut self, index: usize, cursor: i64, missing: i64) -> Due<'_> {
        let slot = &mut self.slots[index];
        slot.full = false;
        let skip = (cursor - slot.rtp).clamp(0, slot.samples);
        let samples = slot.samples;
        self.done[index] = slot.seq;
        self.expected = slot.seq + 1;
        self.cursor = Some(slot.rtp + samples);
        self.counts.played += 1;
        self.dry = 0;
        self.lose(missing, samples, missing == 1);
        let slot = &self.slots[index];
        Due::Packet { seq: slot.seq, payload: &slot.payload[..slot.len], samples: samples as usize, skip: skip as usize }
    }

    /// Counts `missing` packets; when waiting for the copy of one would have helped (`waiting`), the target learns it.
    fn lose(&mut self, missing: i64, samples: i64, waiting: bool) {
        self.counts.lost += missing.max(0) as u64;
        if missing > 0 && waiting {
            self.peak.now = self.peak.now.min(-samples);
            self.target = self.target.max((samples + MARGIN).min(self.config.most));
        }
    }

    /// No packet for the next `samples`: made-up sound for a while, then silence.
    fn dry_up(&mut self, samples: i64) -> Due<'_> {
        if self.dry >= self.config.conceal {
            self.playing = false;
            return Due::Nothing;
        }
        self.dry += samples;
        self.cursor = self.cursor.map(|cursor| cursor + samples);
        self.conceal(samples)
    }

    fn conceal(&mut self, samples: i64) -> Due<'_> {
        self.counts.concealed += samples as u64;
        Due::Conceal { samples: samples as usize }
    }

    /// Far behind (the pump stood still): drops what should have sounded already.
    fn skip_to(&mut self, ideal: i64) -> i64 {
        // Looking for the first frees those that have passed.
        let _ = self.first(ideal);
        self.cursor = Some(ideal);
        ideal
    }
}

impl std::fmt::Debug for JitterBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JitterBuffer")
            .field("waiting", &self.waiting())
            .field("target", &self.target())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// A moment in samples of the house rate.
fn samples_of(at: Stamp) -> i64 {
    // Five thousand years of samples fit; later stamps saturate far below the edge so that sums cannot overflow.
    (u128::from(at.as_micros()) * 48 / 1_000).min(1 << 60) as i64
}

/// The least number not below `from` that is congruent to `value`.
fn next_congruent(from: i64, value: i64, modulus: i64) -> i64 {
    from + (value - from).rem_euclid(modulus)
}

#[cfg(test)]
#[path = "jitter_tests.rs"]
mod tests;
