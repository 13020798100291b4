//! The memory link: a world of two ends and a hand-turned beat.

use std::time::Duration;

use antiphon::id::{Generation, RequestId};
use antiphon::time::{BEAT, BLOCK_SAMPLES, SamplePos, Stamp};
use antiphon::transport::memory::{FarEnd, Heard, Net, page, pair};
use antiphon::transport::wire::{FromClient, ToClient};
use antiphon::transport::{Capability, Link, Mic, Outgoing};

type Block = [f32; BLOCK_SAMPLES];

struct World {
    link: Link,
    far: FarEnd,
    now: Stamp,
    mic: Vec<(Mic, Block)>,
    heard: Vec<Heard>,
}

fn world(net: Net, capability: Capability) -> World {
    let (link, far) = pair(net, capability);
    World { link, far, now: Stamp::from_millis(1_000), mic: vec![], heard: vec![] }
}

impl World {
    /// One beat: the far end, the microphone, then `sound` for the loudspeaker.
    fn beat(&mut self, generation: u64, until: u64, level: f32) {
        self.now += BEAT;
        self.heard.push(self.far.beat(self.now));
        let mut block = [9.0; BLOCK_SAMPLES];
        let mic = self.link.media_in.pull(self.now, &mut block);
        self.mic.push((mic, block));
        let samples = [level; BLOCK_SAMPLES];
        let (generation, until) = (Generation(generation), SamplePos(until));
        self.link.media_out.push(self.now, Outgoing { samples: &samples, generation, until, silent: level == 0.0 });
    }

    /// `beats` of silence of a generation that stands at `until`.
    fn silence(&mut self, generation: u64, until: u64, beats: usize) {
        for _ in 0..beats {
            self.beat(generation, until, 0.0);
        }
    }

    /// Blocks `from..to` of a generation, each at the level of its number in thousandths.
    fn play(&mut self, generation: u64, from: u64, to: u64) {
        for block in from..to {
            self.beat(generation, (block + 1) * BLOCK_SAMPLES as u64, (block + 1) as f32 / 1_000.0);
        }
    }

    fn tell(&self, message: ToClient) {
        self.link.to_client.try_send(message).expect("the queue has room");
    }

    fn told(&mut self) -> Vec<FromClient> {
        std::iter::from_fn(|| self.link.from_client.try_recv().ok()).collect()
    }

    /// Numbers of the blocks that sounded, by [`World::play`]'s levels.
    fn sounded(&self) -> Vec<u64> {
        self.heard.iter().filter(|h| h.sounds()).map(|h| (h.samples[0] * 1_000.0).round() as u64 - 1).collect()
    }
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i + 1) as f32 / n as f32).collect()
}

#[test]
fn a_perfect_network_carries_the_microphone_to_the_sample_and_the_microsecond() {
    let mut w = world(Net::perfect(), page());
    w.silence(0, 0, 3);
    let said = ramp(10 * BLOCK_SAMPLES);
    w.far.say(&said);
    let began = w.now;
    w.silence(0, 0, 10);
    let got: Vec<f32> = w.mic[3..].iter().flat_map(|(_, block)| *block).collect();
    assert_eq!(got, said);
    for (i, (mic, _)) in w.mic[3..].iter().enumerate() {
        assert_eq!(*mic, Mic::Sound { at: began + BEAT * i as u32 }, "block {i}");
    }
}

#[test]
fn a_closed_microphone_is_nothing_and_not_silence() {
    let mut w = world(Net::perfect(), page());
    w.silence(0, 0, 5);
    w.far.open_microphone(false);
    w.silence(0, 0, 30);
    assert!(matches!(w.mic[10].0, Mic::Concealed { .. }), "a hole is made up for a while");
    assert_eq!(w.mic[34].0, Mic::Nothing);
    w.far.open_microphone(true);
    w.silence(0, 0, 3);
    assert!(matches!(w.mic[36].0, Mic::Sound { at } if at == w.now.back(BEAT * 2)));
    assert_eq!(w.link.media_in.counts().lost, 0);
}

#[test]
fn what_is_sent_is_heard_once_in_order_with_its_generation_and_its_place() {
    let mut w = world(Net::perfect(), page());
    w.silence(1, 0, 2);
    w.play(1, 0, 20);
    w.play(2, 0, 5);
    w.silence(2, 2_400, 2);
    assert_eq!(w.sounded(), (0..20).chain(0..5).collect::<Vec<_>>());
    let fifth = &w.heard[2 + 5];
    assert_eq!((fifth.generation, fifth.from, fifth.until), (Generation(1), SamplePos(4 * 480), SamplePos(5 * 480)));
    let rtp = fifth.rtp.expect("it arrived");
    assert_eq!(w.link.media_out.locate(rtp + 7), Some((Generation(1), SamplePos(4 * 480 + 7))));
    let marks: Vec<_> = w.far.messages().collect();
    let media = |rtp, generation| ToClient::Media { rtp, generation: Generation(generation), position: SamplePos(0) };
    assert_eq!(marks, [media(0, 1), media(22 * 480, 2)]);
}

#[test]
fn playing_is_reported_and_can_be_located() {
    let mut w = world(Net::perfect(), page());
    w.play(1, 0, 35);
    w.silence(1, 35 * 480, 5);
    let places: Vec<_> = w
        .told()
        .into_iter()
        .map(|message| match message {
            FromClient::Playout { rtp, .. } => w.link.media_out.locate(rtp).expect("sent a moment ago").1,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(places, [0, 10, 20, 30, 35].map(|block| SamplePos(block * 480)), "each 100 ms, and at the end");
}

#[test]
fn a_hold_mutes_and_resume_goes_on() {
    let mut w = world(Net::perfect(), page());
    w.play(1, 0, 10);
    w.tell(ToClient::Hold { generation: Generation(1) });
    w.play(1, 10, 15);
    w.tell(ToClient::Resume { generation: Generation(1) });
    w.play(1, 15, 20);
    w.silence(1, 20 * 480, 1);
    assert_eq!(w.sounded(), (0..9).chain(14..20).collect::<Vec<_>>());
    assert_eq!(w.heard.iter().filter(|h| h.muted).count(), 5);
    let silenced = w.told().into_iter().find(|m| matches!(m, FromClient::Silenced { .. }));
    // Block 9 was pushed at the beat before the hold arrived and would have sounded next; block 8 was the last.
    let at = w.heard[10].at;
    assert_eq!(silenced, Some(FromClient::Silenced { generation: Generation(1), held: true, rtp: Some(8 * 480), at }));
}

#[test]
fn a_clear_mutes_the_old_generation_for_ever_and_says_where() {
    let net = Net { delay: Duration::from_millis(50), ..Net::perfect() };
    let mut w = world(net, page());
    w.play(1, 0, 20);
    w.tell(ToClient::Clear { generation: Generation(1), next: Generation(2) });
    w.silence(2, 0, 10);
    w.play(2, 0, 5);
    // A server that forgets itself: stale sound after the cut.
    w.beat(1, 20 * 480, 0.5);
    w.silence(2, 5 * 480, 20);
    assert!(!w.heard.iter().any(|h| h.generation == Generation(1) && h.sounds() && h.samples[0] == 0.5));
    let muted = w.heard.iter().filter(|h| h.muted).count();
    assert!(muted >= 1, "the forgotten block");
    let told = w.told();
    let Some(FromClient::Silenced { generation, held, rtp: Some(rtp), .. }) =
        told.iter().find(|m| matches!(m, FromClient::Silenced { .. }))
    else {
        panic!("{told:?}");
    };
    assert_eq!((*generation, *held), (Generation(1), false));
    let last = *w.sounded().iter().rev().find(|block| **block > 5).expect("the first answer sounded");
    assert_eq!(w.link.media_out.locate(*rtp), Some((Generation(1), SamplePos(last * 480))));
}

#[test]
fn a_far_end_that_cannot_clear_plays_on_and_one_that_reports_nothing_is_quiet() {
    let mut w = world(Net::perfect(), Capability { can_clear: false, reports_position: false, ..page() });
    w.play(1, 0, 5);
    w.tell(ToClient::Clear { generation: Generation(1), next: Generation(2) });
    w.play(1, 5, 10);
    w.silence(2, 0, 1);
    assert_eq!(w.sounded().len(), 10);
    assert_eq!(w.told(), []);
}

#[test]
fn messages_take_the_delay_of_the_network_and_keep_their_order() {
    let mut w = world(Net { delay: Duration::from_millis(30), ..Net::perfect() }, page());
    w.silence(0, 0, 1);
    let sent = w.now;
    w.far.send(sent, FromClient::Ping { mark: 1.0 });
    w.far.send(sent, FromClient::Text { request: RequestId::from_bits(1), text: "hello".to_owned().into() });
    w.silence(0, 0, 2);
    assert_eq!(w.told(), []);
    w.silence(0, 0, 1);
    let told = w.told();
    assert!(matches!(told[..], [FromClient::Ping { .. }, FromClient::Text { .. }]), "{told:?}");

    w.tell(ToClient::Pong { mark: 1.0, at: sent });
    w.silence(0, 0, 3);
    assert_eq!(w.far.messages().count(), 0);
    w.silence(0, 0, 1);
    assert_eq!(w.far.messages().count(), 1);
}

/// Ten seconds of ramp-marked speech through a poor network.
fn poor(seed: u64) -> World {
    let mut w = world(Net::poor(seed), page());
    w.far.say(&vec![0.25; 1_000 * BLOCK_SAMPLES]);
    w.silence(1, 0, 20);
    w.play(1, 0, 900);
    w.silence(1, 900 * 480, 80);
    w
}

#[test]
fn a_poor_network_is_the_same_for_the_same_seed() {
    let (a, b, other) = (poor(5), poor(5), poor(6));
    assert_eq!(a.mic, b.mic);
    assert_eq!(a.heard, b.heard);
    assert_ne!(a.mic, other.mic);
}

#[test]
fn over_a_poor_network_sound_stays_in_order_and_in_time() {
    for seed in 0..8 {
        let w = poor(seed);
        let sounded = w.sounded();
        assert!(sounded.is_sorted_by(|a, b| a < b), "seed {seed}: each block once, in order");
        assert!(sounded.len() > 780, "seed {seed}: {} of 900 were heard", sounded.len());

        let counts = w.link.media_in.counts();
        assert!(counts.lost > 10 && counts.played > 850, "seed {seed}: {counts:?}");
        let stamps: Vec<_> = w
            .mic
            .iter()
            .filter_map(|(mic, _)| match mic {
                Mic::Sound { at } | Mic::Concealed { at } => Some(*at),
                Mic::Nothing => None,
            })
            .collect();
        assert!(stamps.is_sorted(), "seed {seed}: capture times never fall");
        // The speech begins with the first beat; the network's best is 40 ms, and that cannot be seen from here.
        let lag = w.now.since(*stamps.last().expect("there was sound"));
        assert!(lag < Duration::from_millis(120), "seed {seed}: the last block was captured {lag:?} ago");
    }
}

#[test]
fn whoever_goes_ends_the_link() {
    let ends: [fn(Link, FarEnd) -> Option<Link>; 5] = [
        |link, far| {
            drop(far);
            Some(link)
        },
        |link, far| {
            far.leave();
            Some(link)
        },
        |link, far| {
            let closed = link.closed.clone();
            drop(link);
            assert!(closed.is_cancelled());
            assert!(far.is_closed());
            None
        },
        |link, far| {
            drop(link.media_in);
            assert!(far.is_closed());
            None
        },
        |link, far| {
            link.closed.cancel();
            assert!(far.is_closed());
            None
        },
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let (link, far) = pair(Net::perfect(), page());
        if let Some(link) = end(link, far) {
            assert!(link.closed.is_cancelled(), "case {i}");
        }
    }
}

#[test]
fn a_client_that_does_not_read_fills_its_queue_and_no_more() {
    let (mut link, _far) = pair(Net::perfect(), page());
    let pong = ToClient::Pong { mark: 0.0, at: Stamp::ZERO };
    let taken = (0..1_000).take_while(|_| link.to_client.try_send(pong.clone()).is_ok()).count();
    assert_eq!(taken, antiphon::transport::TO_CLIENT);
    assert!(!link.closed.is_cancelled());
    let samples = [0.1; BLOCK_SAMPLES];
    let sound = Outgoing { samples: &samples, generation: Generation(1), until: SamplePos(480), silent: false };
    link.media_out.push(Stamp::ZERO, sound);
    assert!(link.closed.is_cancelled(), "the mark of a new generation found no room");
}
