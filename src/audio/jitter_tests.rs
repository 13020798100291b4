//! Tests of the jitter buffer: a sender, a network that is a list of arrivals, and a beat.

use proptest::prelude::*;

use super::*;

const PACKET: u32 = 960;

/// A sender of 20 ms packets whose payload is its number, and a receiver at the 10 ms beat.
struct World {
    buffer: JitterBuffer,
    /// Packets handed out, in order.
    played: Vec<i64>,
    /// What each beat was: `p` packet, `f` recovered, `c` made up, `.` nothing, `s` squeezed.
    story: String,
    held: i64,
    beat: u64,
}

fn world() -> World {
    World { buffer: JitterBuffer::new(JitterConfig::default()), played: vec![], story: String::new(), held: 0, beat: 0 }
}

/// Arrival of packet `n` (numbered from zero, its sound ending at `(n + 1) * 20` ms), `late` after that.
fn packet(n: u64, late: Duration, payload: &[u8]) -> Arrival<'_> {
    numbered(n, 0, 0, late, payload)
}

fn numbered(n: u64, seq0: u16, rtp0: u32, late: Duration, payload: &[u8]) -> Arrival<'_> {
    Arrival {
        seq: seq0.wrapping_add(n as u16),
        rtp: rtp0.wrapping_add((n as u32).wrapping_mul(PACKET)),
        samples: PACKET,
        at: Stamp::from_millis((n + 1) * 20) + late,
        payload,
    }
}

const NOW: Duration = Duration::ZERO;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl World {
    fn push(&mut self, arrival: Arrival<'_>) -> Taken {
        self.buffer.push(arrival)
    }

    /// One beat, as the uplink does it.
    fn pull(&mut self) {
        self.beat += 1;
        let now = Stamp::from_millis(self.beat * 10);
        let squeeze = self.buffer.squeeze(now, self.held.max(0) as usize);
        let want = if squeeze { 960 } else { 480 };
        let mut kind = '.';
        while self.held < want {
            match self.buffer.next(now) {
                Due::Packet { seq, payload, samples, skip } => {
                    assert!(!payload.is_empty() && skip <= samples);
                    self.played.push(seq);
                    self.held += (samples - skip) as i64;
                    kind = 'p';
                }
                Due::Fec { samples, skip, .. } => {
                    assert!(skip < samples, "a recovery of nothing");
                    self.held += (samples - skip) as i64;
                    kind = 'f';
                }
                Due::Conceal { samples } => {
                    assert!(samples > 0 && samples.is_multiple_of(120));
                    self.held += samples as i64;
                    kind = 'c';
                }
                Due::Nothing => break,
            }
        }
        self.held = (self.held - want).max(0);
        self.story.push(if squeeze { 's' } else { kind });
        assert!(self.buffer.waiting() <= CAPACITY);
    }

    /// Beats until `millis`.
    fn until(&mut self, millis: u64) {
        while self.beat * 10 < millis {
            self.pull();
        }
    }

    fn counts(&self) -> JitterCounts {
        self.buffer.counts()
    }

    fn in_order(&self) -> bool {
        self.played.is_sorted_by(|a, b| a < b)
    }
}

/// Runs packets `0..n`, each with its lateness (`None`: lost), in order of arrival.
fn run(n: u64, fate: impl Fn(u64) -> Option<Duration>) -> World {
    let mut w = world();
    let mut arrivals: Vec<_> = (0..n).filter_map(|i| fate(i).map(|late| packet(i, late, b"x"))).collect();
    arrivals.sort_by_key(|a| a.at);
    for arrival in arrivals {
        w.until(arrival.at.as_micros() / 1_000);
        w.push(arrival);
    }
    w.until((n + 30) * 20);
    w
}

#[test]
fn a_good_network_is_played_whole_with_a_small_delay() {
    let w = run(500, |_| Some(NOW));
    assert_eq!(w.played.len(), 500);
    assert!(w.in_order());
    let c = w.counts();
    assert_eq!((c.lost, c.late, c.stretched, c.overflowed), (0, 0, 0, 0), "{c:?}");
    // The target shrinks from 20 ms to its least, by merging beats.
    assert_eq!(w.buffer.target(), ms(10));
    assert!(c.squeezed <= 2, "{c:?}");
    // First packet arrives at 20 ms, plays 20 ms later: beats at 10, 20, 30 give nothing.
    assert!(w.story.starts_with("...p"), "{}", &w.story[..20]);
}

#[test]
fn a_single_loss_is_recovered_from_the_next_packet_once_the_buffer_has_learnt_to_wait() {
    let w = run(400, |n| (n % 40 != 20).then_some(NOW));
    let c = w.counts();
    assert_eq!(c.lost, 10);
    assert!(c.recovered >= 9, "{c:?}");
    assert!(w.buffer.target() >= ms(20), "it waits for the copy: {:?}", w.buffer.target());
    assert!(w.in_order());
}

#[test]
fn a_burst_of_losses_is_made_up_then_silent_then_goes_on() {
    let w = run(200, |n| (!(100..115).contains(&n)).then_some(NOW));
    let c = w.counts();
    assert_eq!(c.lost, 15);
    assert_eq!(w.played.len(), 185);
    assert!(c.concealed >= 4_800, "100 ms are made up: {c:?}");
    assert!(w.story.trim_end_matches('.').trim_start_matches('.').contains("...."), "then silence: {}", w.story);
}

#[test]
fn reordered_packets_are_put_in_order() {
    // Every tenth is 25 ms late, so its successor overtakes it.
    let w = run(500, |n| Some(if n % 10 == 5 { ms(25) } else { NOW }));
    let c = w.counts();
    assert!(w.in_order());
    assert_eq!(c.reordered, 50);
    assert!(c.late <= 3, "the target has grown after the first few: {c:?}");
    assert!(w.buffer.target() >= ms(25));
}

#[test]
fn doubles_are_dropped_before_and_after_they_were_played() {
    let mut w = world();
    for n in 0..50 {
        let at = (n + 1) * 20;
        w.until(at);
        assert_eq!(w.push(packet(n, NOW, b"x")), Taken::Kept);
        assert_eq!(w.push(packet(n, NOW, b"x")), Taken::Duplicate);
        if n >= 10 {
            assert_eq!(w.push(packet(n - 8, ms(160), b"x")), Taken::Duplicate, "played long ago");
        }
    }
    w.until(2_000);
    assert_eq!(w.played.len(), 50);
    assert!(w.in_order());
}

#[test]
fn a_late_packet_is_refused_and_the_delay_grows_then_shrinks() {
    let mut w = run(300, |n| Some(if n == 100 { ms(90) } else { NOW }));
    assert_eq!(w.counts().late, 1);
    assert_eq!(w.played.len(), 299);
    let grown = w.buffer.target();
    assert!(w.counts().stretched > 0, "time was made: {:?}", w.counts());
    for n in 330..1_500 {
        w.until((n + 1) * 20);
        w.push(packet(n, NOW, b"x"));
    }
    assert!(w.buffer.target() < grown && w.buffer.target() <= ms(15), "{:?} of {grown:?}", w.buffer.target());
    assert!(w.counts().squeezed > 0, "and given back: {:?}", w.counts());
}

#[test]
fn numbers_wrap_without_a_seam() {
    let mut w = world();
    for n in 0..200u64 {
        w.until((n + 1) * 20);
        assert_eq!(w.push(numbered(n, 65_500, u32::MAX - 50_000, NOW, b"x")), Taken::Kept, "{n}");
    }
    w.until(5_000);
    assert_eq!(w.played.len(), 200);
    assert!(w.played.is_sorted_by(|a, b| a + 1 == *b));
    assert_eq!(w.counts().lost, 0);
}

#[test]
fn clock_drift_costs_a_beat_now_and_then_and_nothing_else() {
    for ppm in [-300i64, 300] {
        let mut w = world();
        let n = 15_000u64; // five minutes
        for i in 0..n {
            let micros = ((i + 1) * 20_000) as i64;
            let at = Stamp::from_micros((micros + micros * ppm / 1_000_000) as u64 + 3_000);
            w.until(at.as_micros() / 1_000);
            let arrival = Arrival { at, ..packet(i, NOW, b"x") };
            assert_eq!(w.push(arrival), Taken::Kept, "packet {i} at {ppm} ppm, {:?}", w.buffer);
            assert!(w.buffer.waiting() <= 4, "it must not pile up: {:?}", w.buffer);
        }
        w.until(n * 20 + 1_000);
        let c = w.counts();
        assert_eq!((w.played.len() as u64, c.lost), (n, 0), "{ppm} ppm: {c:?}");
        // 300 ppm of 300 s are 90 ms: nine beats, and one or two for the target to find its place.
        let moved = if ppm > 0 { c.stretched } else { c.squeezed };
        assert!((5..=14).contains(&moved), "{ppm} ppm: {c:?}");
    }
}

#[test]
fn capture_times_do_not_jitter() {
    let config = JitterConfig { sender: ms(16), ..JitterConfig::default() };
    let mut buffer = JitterBuffer::new(config);
    let mut last = None;
    for n in 0..400u64 {
        // 40 ms away at best, up to 30 ms of jitter, in order.
        let late = ms(40) + ms((n * 7919) % 31);
        buffer.push(packet(n, late, b"x"));
        let at = buffer.captured(i64::from(n as u32 * PACKET)).expect("mapped after the first");
        if n > 100 {
            // The sample was made at n * 20 ms; 40 ms of network cannot be seen, 16 ms of sender are taken off.
            assert_eq!(at, Stamp::from_millis(n * 20 + 40 - 16), "packet {n}");
        }
        assert!(last.is_none_or(|l| at > l) || n < 100);
        last = Some(at);
    }
}

#[test]
fn a_gap_without_lost_numbers_is_silence_and_not_loss() {
    // Discontinuous transmission: the numbers go on, media time jumps 400 ms.
    let mut w = world();
    for n in 0..20u64 {
        let sound = n * 20;
        let arrival =
            Arrival { seq: n as u16, rtp: sound as u32 * PACKET, at: Stamp::from_millis((sound + 1) * 20), ..packet(0, NOW, b"x") };
        w.until(arrival.at.as_micros() / 1_000);
        assert_eq!(w.push(arrival), Taken::Kept);
    }
    w.until(9_000);
    let c = w.counts();
    assert_eq!((w.played.len(), c.lost, c.late), (20, 0, 0), "{c:?}");
}

#[test]
fn a_sender_that_begins_anew_is_followed_after_two_packets() {
    let mut w = run(100, |_| Some(NOW));
    for n in 130..230u64 {
        w.until((n + 1) * 20);
        let taken = w.push(numbered(n, 40_000, 0x9000_0000, NOW, b"x"));
        assert_eq!(taken, if n == 130 { Taken::Jump } else { Taken::Kept }, "{n}");
    }
    w.until(6_000);
    assert_eq!(w.played.len(), 199);
    assert!(w.in_order(), "order holds across the restart");
    assert_eq!(w.counts().restarts, 1);
}

#[test]
fn one_odd_packet_changes_nothing() {
    let mut w = run(50, |_| Some(NOW));
    for n in 80..120u64 {
        w.until((n + 1) * 20);
        w.push(packet(n, NOW, b"x"));
        assert_eq!(w.push(numbered(n, 7_777 + 13 * n as u16, 0x7000_0000, NOW, b"x")), Taken::Jump);
    }
    w.until(4_000);
    assert_eq!((w.played.len(), w.counts().restarts), (90, 0));
}

#[test]
fn what_cannot_be_a_packet_is_refused() {
    let mut w = world();
    let large = [0u8; MAX_PAYLOAD + 1];
    for bad in [
        Arrival { payload: &[], ..packet(0, NOW, b"x") },
        Arrival { payload: &large, ..packet(0, NOW, b"x") },
        Arrival { samples: 0, ..packet(0, NOW, b"x") },
        Arrival { samples: MAX_SAMPLES + 1, ..packet(0, NOW, b"x") },
    ] {
        assert_eq!(w.push(bad), Taken::Malformed);
    }
    assert_eq!(w.counts().malformed, 4);
    w.until(100);
    assert_eq!(w.story, "..........");
}

#[test]
fn a_pump_that_stood_still_skips_to_the_present() {
    let mut w = run(50, |_| Some(NOW));
    // Half a second of packets arrive while nobody pulls.
    let from = w.beat / 2;
    for n in from..from + 25 {
        w.push(packet(n, NOW, b"x"));
    }
    w.beat += 50;
    for n in from + 25..from + 125 {
        w.until((n + 1) * 20);
        w.push(packet(n, NOW, b"x"));
    }
    w.until((from + 130) * 20);
    assert!(w.in_order());
    assert!(w.counts().overflowed > 15, "old ones are let go: {:?}", w.counts());
    assert!(w.played.len() >= 50 + 100, "new ones are not: {}", w.played.len());
}

#[test]
fn too_many_packets_push_out_the_oldest() {
    let mut w = world();
    for n in 0..200u64 {
        w.push(Arrival { at: Stamp::from_millis(20), ..packet(n, NOW, b"x") });
        assert!(w.buffer.waiting() <= CAPACITY);
    }
    assert!(w.counts().overflowed + w.counts().jumped + w.counts().late > 0, "{:?}", w.counts());
}

proptest! {
    #[test]
    fn whatever_comes_goes_out_in_order_and_once(
        packets in prop::collection::vec((any::<u16>(), 0u32..200_000, 1u32..6_000, 0u64..40, 0usize..2_000), 0..300),
        near in any::<bool>(),
    ) {
        let mut w = world();
        let payload = [7u8; 2_000];
        for (i, (seq, rtp, samples, wait, len)) in packets.into_iter().enumerate() {
            // Either anything at all, or a plausible stream with its numbers shaken.
            let (seq, rtp, samples) = if near {
                let n = (i as u32 + u32::from(seq % 5)).saturating_sub(2);
                (n as u16, n * PACKET, PACKET)
            } else {
                (seq, rtp.wrapping_mul(31_337), samples)
            };
            let at = Stamp::from_millis(w.beat * 10 + wait);
            w.push(Arrival { seq, rtp, samples, at, payload: &payload[..len] });
            w.pull();
        }
        for _ in 0..200 {
            w.pull();
        }
        prop_assert!(w.in_order(), "{:?}", w.played);
        prop_assert_eq!(w.buffer.waiting(), 0);
    }

    #[test]
    fn counts_balance(losses in prop::collection::vec(any::<Option<u8>>(), 50..400)) {
        let n = losses.len() as u64;
        let w = run(n, |i| losses[i as usize].map(|late| ms(u64::from(late) / 4)));
        let c = w.counts();
        prop_assert_eq!(c.received, c.played + c.late + c.duplicate + c.jumped + c.malformed + c.overflowed);
        prop_assert!(w.in_order());
    }
}
