//! The laws of the playback ring, alone and across two threads.

use proptest::prelude::*;

use super::*;

/// The content of a generation, a function of the position alone, never near zero, so that every sample can be told from its
/// neighbours and from silence.
fn content(generation: Generation, position: u64) -> f32 {
    let sign = if generation.0.is_multiple_of(2) { -1.0 } else { 1.0 };
    let up_and_down = (position % 1_994).abs_diff(997);
    sign * (0.25 + up_and_down as f32 / 2_000.0)
}

fn block(generation: u64, position: u64, len: usize, last: bool) -> Block {
    let generation = Generation(generation);
    let samples: Vec<f32> = (0..len as u64).map(|i| content(generation, position + i)).collect();
    Block::new(generation, SamplePos(position), &samples, last)
}

/// A ring with `blocks` blocks of generation 1 in it.
fn ring_with(capacity: usize, blocks: u64) -> (Arc<Fence>, PlaybackWriter, PlaybackReader) {
    let fence = Fence::new();
    let (mut writer, reader) = playback_ring(capacity, fence.clone());
    fence.raise(Generation(1));
    for n in 0..blocks {
        writer.push(block(1, n * 480, 480, false)).expect("there is room");
    }
    (fence, writer, reader)
}

/// A buffer full of what must never be heard.
fn dirty<const N: usize>() -> [f32; N] {
    [77.0; N]
}

/// The largest step from one sample to the next.
fn steepest(samples: &[f32]) -> f32 {
    samples.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max)
}

#[test]
fn the_writer_refuses_what_is_not_current_and_hands_it_back() {
    let fence = Fence::new();
    let (mut writer, _reader) = playback_ring(1, fence.clone());
    for generation in [0, 1] {
        let refused = block(generation, 0, 480, false);
        assert_eq!(writer.push(refused), Err(PushError::Stale(refused)), "nothing is current yet");
    }
    fence.raise(Generation(2));
    for generation in [0, 1, 3] {
        let refused = block(generation, 0, 10, true);
        assert_eq!(writer.push(refused), Err(PushError::Stale(refused)));
    }
    assert_eq!((writer.push(block(2, 0, 480, false)), writer.vacant()), (Ok(()), 0));
    let refused = block(2, 480, 480, false);
    assert_eq!(writer.push(refused), Err(PushError::Full(refused)));
    assert_eq!(writer.ledger(), Ledger { produced: 480, played: 0, dropped: 0, resident: 480 }, "the refused are not produced");
}

#[test]
fn a_start_and_an_end_are_ramps() {
    let (_fence, mut writer, mut reader) = ring_with(4, 1);
    writer.push(block(1, 480, 300, true)).expect("there is room");
    let mut heard = [dirty::<480>(), dirty(), dirty(), dirty()];
    let pulled: Vec<_> = heard.iter_mut().map(|out| reader.pull(out)).collect();
    assert_eq!(
        pulled.iter().map(|p| (p.sounding, p.position.0, p.ended)).collect::<Vec<_>>(),
        [(480, 480, false), (300, 780, true), (0, 780, false), (0, 780, false)]
    );
    assert!(pulled.iter().all(|p| !p.underrun && p.quiet.is_none()), "an end is no underrun");
    assert_eq!(pulled.iter().map(|p| p.silent).collect::<Vec<_>>(), [false, false, false, true]);
    let heard = heard.concat();
    assert!(heard[0].abs() < 0.01);
    for (i, x) in heard.iter().enumerate().take(780).skip(240) {
        assert_eq!(*x, content(Generation(1), i as u64), "sample {i} is untouched");
    }
    assert!(steepest(&heard[..240]) < 0.01 && steepest(&heard[779..]) < 0.01);
    assert!(heard[780 + RAMP_SAMPLES..].iter().all(|x| *x == 0.0));
}

#[test]
fn an_end_that_is_known_late_is_an_empty_block() {
    let (_fence, mut writer, mut reader) = ring_with(4, 1);
    let mut out = dirty::<480>();
    writer.push(block(1, 480, 0, true)).expect("there is room");
    let pulled = reader.pull(&mut out);
    assert_eq!((pulled.sounding, pulled.ended, pulled.position), (480, true, SamplePos(480)), "with the sample before it");
}

#[test]
fn an_answer_of_several_stretches_is_late_in_none_of_the_pauses_and_in_each_of_the_stretches() {
    let (_fence, mut writer, mut reader) = ring_with(8, 0);
    let mut out = dirty::<480>();
    let mut pull = || {
        let pulled = reader.pull(&mut out);
        (pulled.position.0, pulled.ended, pulled.underrun)
    };
    writer.push(block(1, 0, 480, true)).expect("there is room");
    assert_eq!((pull(), pull()), ((480, true, false), (480, false, false)), "a pause is no underrun");
    writer.push(block(1, 480, 480, false)).expect("there is room");
    assert_eq!((pull(), pull()), ((960, false, false), (960, false, true)), "a gap in the second stretch is one");
    writer.push(block(1, 960, 240, true)).expect("there is room");
    writer.push(block(1, 1_200, 240, true)).expect("there is room");
    assert_eq!((pull(), pull()), ((1_440, true, false), (1_440, false, false)), "two ends in one pull are one");
}

#[test]
fn a1_sixty_seconds_of_old_audio_are_gone_after_one_device_block() {
    for device in [64, 240, 480, 1024] {
        let (fence, mut writer, mut reader) = ring_with(6_000, 6_000);
        let mut out = vec![77.0; device];
        reader.pull(&mut out);
        let before = reader.pull(&mut out).position;

        fence.raise(Generation(2));
        let cut = reader.pull(&mut out);
        let ramp = RAMP_SAMPLES.min(device);
        let quiet = Quiet { generation: Generation(1), held: false, last: before + ramp as u64, at_sample: ramp };
        assert_eq!((cut.quiet, cut.stale, cut.generation, cut.position), (Some(quiet), ramp, Generation(2), SamplePos::ZERO));
        assert!(out[ramp..].iter().all(|x| *x == 0.0));
        assert_eq!(out[ramp - 1], 0.0, "the ramp has ended inside the pull");
        for _ in 0..100 {
            out.fill(77.0);
            assert!(reader.pull(&mut out).silent);
            assert!(out.iter().all(|x| *x == 0.0), "no old sample in any later pull");
        }
        let played = before.0 + ramp as u64;
        let total = 6_000 * 480;
        assert_eq!(writer.ledger(), Ledger { produced: total, played, dropped: total - played, resident: 0 });
        assert_eq!(writer.vacant(), 6_000);
        assert!(writer.push(block(2, 0, 480, false)).is_ok(), "and the new generation has all the room");
    }
}

#[test]
fn a2_a_cut_in_mid_syllable_is_one_short_ramp_and_no_click() {
    let (fence, mut writer, mut reader) = ring_with(40, 20);
    let mut first = dirty::<480>();
    reader.pull(&mut first);
    fence.raise(Generation(2));
    writer.push(block(2, 0, 480, false)).expect("there is room");
    let mut out = dirty::<480>();
    let pulled = reader.pull(&mut out);
    assert_eq!((pulled.stale, pulled.sounding, pulled.position), (240, 240, SamplePos(240)), "the new one begins after the ramp");
    let mut heard = vec![first[479]];
    heard.extend(out);
    assert!(steepest(&heard) < 0.01, "{}", steepest(&heard));
    assert!(out[240..].iter().all(|x| *x <= 0.0), "even generations are negative");
}

#[test]
fn a19_where_nothing_is_silence_is_never_stale_memory() {
    let (_fence, mut writer, mut reader) = ring_with(4, 0);
    let mut out = dirty::<480>();
    let pulled = reader.pull(&mut out);
    assert_eq!(out, [0.0; 480]);
    assert_eq!((pulled.silent, pulled.underrun), (true, false), "what has not begun cannot be late");

    writer.push(block(1, 0, 100, false)).expect("there is room");
    out = dirty();
    let pulled = reader.pull(&mut out);
    assert_eq!((pulled.sounding, pulled.underrun, pulled.missing), (100, true, 380));
    assert!(steepest(&out[99..]) < 0.01, "the stop is a ramp of what stopped");
    assert!(out[100 + RAMP_SAMPLES..].iter().all(|x| *x == 0.0));

    out = dirty();
    assert_eq!((reader.pull(&mut out).missing, out), (480, [0.0; 480]));

    writer.push(block(1, 100, 480, true)).expect("there is room");
    out = dirty();
    let pulled = reader.pull(&mut out);
    assert_eq!((pulled.sounding, pulled.position, pulled.underrun, pulled.ended), (480, SamplePos(580), false, true));
    assert!(out[0].abs() < 0.01 && steepest(&out) < 0.01, "the end of an underrun is a ramp");
    assert_eq!(reader.pull(&mut out).missing, 0, "after the end nothing is missing");
}

#[test]
fn a_hold_is_exact_reversible_and_reported_once() {
    let (fence, _writer, mut reader) = ring_with(40, 40);
    let mut out = dirty::<480>();
    reader.pull(&mut out);
    fence.set_mode(Generation(1), Mode::Hold);
    let held = reader.pull(&mut out);
    let quiet = Quiet { generation: Generation(1), held: true, last: SamplePos(720), at_sample: 240 };
    assert_eq!((held.quiet, held.sounding, held.stale), (Some(quiet), 240, 0));
    for _ in 0..5 {
        out = dirty();
        let pulled = reader.pull(&mut out);
        assert_eq!((pulled.quiet, pulled.underrun, pulled.position, pulled.silent), (None, false, SamplePos(720), true));
    }
    fence.set_mode(Generation(1), Mode::Play);
    let resumed = reader.pull(&mut out);
    assert_eq!((resumed.sounding, resumed.position), (480, SamplePos(1_200)));
    assert_eq!(out[300], content(Generation(1), 1_020), "goes on at the very next sample");
    assert!(out[0].abs() < 0.01 && steepest(&out[..240]) < 0.01);
}

#[test]
fn a_cut_after_a_hold_adds_no_stale_sample() {
    let (fence, _writer, mut reader) = ring_with(40, 40);
    let mut out = dirty::<480>();
    reader.pull(&mut out);
    fence.set_mode(Generation(1), Mode::Hold);
    reader.pull(&mut out);
    fence.raise(Generation(2));
    out = dirty();
    let cut = reader.pull(&mut out);
    let quiet = Quiet { generation: Generation(1), held: false, last: SamplePos(720), at_sample: 0 };
    assert_eq!((cut.quiet, cut.stale, out), (Some(quiet), 0, [0.0; 480]));
}

#[test]
fn a_hold_seen_together_with_the_raise_is_reported_by_the_next_pull() {
    let (fence, mut writer, mut reader) = ring_with(40, 4);
    let mut out = dirty::<480>();
    reader.pull(&mut out);
    fence.raise(Generation(2));
    fence.set_mode(Generation(2), Mode::Hold);
    writer.push(block(2, 0, 480, false)).expect("there is room");
    assert!(reader.pull(&mut out).quiet.is_some_and(|quiet| !quiet.held));
    let next = reader.pull(&mut out);
    let quiet = Quiet { generation: Generation(2), held: true, last: SamplePos::ZERO, at_sample: 0 };
    assert_eq!((next.quiet, next.silent), (Some(quiet), true));
}

#[test]
fn ducking_lowers_by_15_db_and_comes_back() {
    let (fence, _writer, mut reader) = ring_with(40, 40);
    let mut heard = Vec::new();
    for mode in [Mode::Play, Mode::Duck, Mode::Duck, Mode::Play, Mode::Play] {
        fence.set_mode(Generation(1), mode);
        let mut out = dirty::<480>();
        assert_eq!(reader.pull(&mut out).quiet, None);
        heard.extend(out);
    }
    for (i, x) in heard.iter().enumerate().skip(240) {
        let gain = x / content(Generation(1), i as u64);
        match i {
            720..1440 => assert!((gain - DUCK_GAIN).abs() < 1e-4),
            0..480 | 1680.. => assert!((gain - 1.0).abs() < 1e-4),
            _ => assert!((DUCK_GAIN - 1e-3..=1.001).contains(&gain)),
        }
    }
}

/// One thing that can happen.
#[derive(Clone, Debug)]
enum Step {
    Push { len: usize, last: bool },
    PushStale,
    Pull { len: usize },
    Raise { by: u64 },
    Mode(Mode),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (prop_oneof![Just(480usize), 0..=480usize], prop::bool::weighted(0.05)).prop_map(|(len, last)| Step::Push { len, last }),
        1 => Just(Step::PushStale),
        6 => prop_oneof![Just(480usize), Just(64), 0..1500usize].prop_map(|len| Step::Pull { len }),
        1 => (1..3u64).prop_map(|by| Step::Raise { by }),
        2 => prop_oneof![Just(Mode::Play), Just(Mode::Duck), Just(Mode::Hold)].prop_map(Step::Mode),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order: the ledger balances against a count of the ring itself, positions are exact, the content
    /// comes in order without a hole, and nothing old is heard after the pull that saw the raise.
    #[test]
    fn the_laws_hold_in_any_order(steps in steps()) {
        let fence = Fence::new();
        let (mut writer, mut reader) = playback_ring(12, fence.clone());
        let mut generation = 1;
        fence.raise(Generation(generation));
        let (mut written, mut heard, mut previous) = (0u64, 0u64, 0.0f32);
        for step in steps {
            match step {
                Step::Push { len, last } => {
                    if writer.push(block(generation, written, len, last)).is_ok() {
                        written += len as u64;
                    }
                }
                Step::PushStale => {
                    let refused = writer.push(block(generation - 1, 0, 480, false));
                    prop_assert!(matches!(refused, Err(PushError::Stale(_))));
                }
                Step::Raise { by } => {
                    generation += by;
                    fence.raise(Generation(generation));
                    written = 0;
                }
                Step::Mode(mode) => {
                    fence.set_mode(Generation(generation), mode);
                }
                Step::Pull { len } => {
                    let seen = reader.current.0;
                    let mut out = vec![77.0; len];
                    let pulled = reader.pull(&mut out);
                    if len == 0 {
                        continue;
                    }
                    if seen != generation {
                        heard = 0;
                    }
                    prop_assert_eq!(pulled.generation, Generation(generation));
                    prop_assert!(pulled.stale <= RAMP_SAMPLES.min(len));
                    prop_assert!(pulled.stale == 0 || seen != generation, "only the pull that saw the raise has anything old");
                    // The content of this generation, sample by sample, at a gain between 0 and 1; what else is there is
                    // the end of a ramp, and small.
                    let fresh = &out[pulled.stale..pulled.stale + pulled.sounding];
                    for (i, x) in fresh.iter().enumerate().skip(RAMP_SAMPLES) {
                        let gain = x / content(Generation(generation), heard + i as u64);
                        prop_assert!((-1e-4..=1.0001).contains(&gain), "sample {} at gain {}", i, gain);
                        if (gain - 1.0).abs() < 1e-6 {
                            prop_assert_eq!(*x, content(Generation(generation), heard + i as u64));
                        }
                    }
                    heard += pulled.sounding as u64;
                    prop_assert_eq!(pulled.position, SamplePos(heard));
                    prop_assert!(heard <= written);
                    // No click: ramps over 5 ms are flat, ramps over a short pull are as flat as it lets them.
                    let ramp = if pulled.quiet.is_some() { RAMP_SAMPLES.min(len) } else { RAMP_SAMPLES };
                    let mut joined = vec![previous];
                    joined.extend(&out);
                    for (i, w) in joined.windows(2).enumerate() {
                        let step = (w[1] - w[0]).abs();
                        prop_assert!(step < 4.0 / ramp as f32 + 0.002, "a click of {} at {} of {}", step, i, len);
                    }
                    previous = *out.last().expect("it is not empty");
                }
            }
            let resident: usize = reader.ring.iter().map(|block| block.sound().len()).sum();
            let ledger = writer.ledger();
            prop_assert_eq!(ledger.resident, (resident - reader.offset) as u64, "the ledger says what is there");
            prop_assert_eq!(ledger.produced, ledger.played + ledger.dropped + ledger.resident);
            prop_assert_eq!(ledger, reader.ledger());
        }
    }
}

#[test]
fn the_laws_hold_across_two_threads() {
    const GENERATIONS: u64 = 300;
    let fence = Fence::new();
    let (mut writer, mut reader) = playback_ring(16, fence.clone());
    let done = Arc::new(AtomicU64::new(0));
    let over = done.clone();
    let session = std::thread::spawn(move || {
        let mut state = 12_345u64;
        for generation in 1..=GENERATIONS {
            fence.raise(Generation(generation));
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (mut position, blocks) = (0, state >> 59);
            for n in 0..blocks {
                let mut next = block(generation, position, 480, n + 1 == blocks);
                while let Err(PushError::Full(back)) = writer.push(next) {
                    next = back;
                    std::thread::yield_now();
                }
                position += 480;
                let ledger = writer.ledger();
                assert_eq!(ledger.produced, ledger.played + ledger.dropped + ledger.resident);
                // A pull counts what it took at its end, and what it took is refilled meanwhile.
                assert!(ledger.resident <= 2 * 16 * 480);
            }
            if state.is_multiple_of(3) {
                fence.set_mode(Generation(generation), Mode::Hold);
            }
        }
        // A last one that ends the show.
        fence.raise(Generation(GENERATIONS + 1));
        over.store(1, Ordering::Release);
        writer
    });
    let mut out = [0.0; 480];
    let (mut generation, mut played) = (0, 0);
    loop {
        let finished = done.load(Ordering::Acquire) == 1;
        let pulled = reader.pull(&mut out);
        assert!(pulled.generation.0 >= generation, "the fence never falls");
        assert!(pulled.stale == 0 || pulled.generation.0 > generation);
        generation = pulled.generation.0;
        played += pulled.sounding as u64 + pulled.quiet.filter(|quiet| !quiet.held).map_or(0, |quiet| quiet.at_sample as u64);
        for x in &out[pulled.stale..pulled.stale + pulled.sounding] {
            let wrong_sign = if generation % 2 == 0 { *x > 0.0 } else { *x < 0.0 };
            assert!(!wrong_sign, "a sample of another generation in {generation}");
        }
        let failed = !finished && session.is_finished() && done.load(Ordering::Acquire) == 0;
        if failed || finished && pulled.generation.0 == GENERATIONS + 1 {
            break;
        }
    }
    let writer = session.join().expect("the session does not panic");
    reader.pull(&mut out);
    let ledger = writer.ledger();
    assert_eq!((ledger.resident, ledger.produced), (0, ledger.played + ledger.dropped));
    assert!(played > 0 && ledger.played <= played, "every sample counted as played was in some pull");
}
