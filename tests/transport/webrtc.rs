//! WebRTC over loopback, against a peer in this process. Nothing here asserts on how long anything takes.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon::audio::codec::OpusDecoder;
use antiphon::id::{Generation, RequestId, SessionId};
use antiphon::time::{BEAT, BLOCK_SAMPLES, Clock, RuntimeClock, SamplePos, Stamp};
use antiphon::transport::webrtc::{Accepted, Config, Host, MAX_OFFER, OfferError};
use antiphon::transport::wire::{FromClient, MAX_MESSAGE, ToClient, VERSION};
use antiphon::transport::{Link, Mic, Outgoing};

use assert_no_alloc::assert_no_alloc;

use crate::peer::{PAGE, Peer, Shape};

/// Fails rather than hangs.
#[allow(clippy::disallowed_methods, reason = "a watchdog: the wire is real, and a test must not hang")]
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(value) => value,
        Err(_) => panic!("it never came: {what}"),
    }
}

/// Waits until `is` holds, looking every beat.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let mut beat = tokio::time::interval(BEAT);
    within(what, async {
        while !is() {
            beat.tick().await;
        }
    })
    .await;
}

fn host() -> Host {
    Host::new(Config::default())
}

async fn accept(offer: &str) -> Result<Accepted, OfferError> {
    host().accept(offer, SessionId::new(), RuntimeClock::start()).await
}

/// A peer and a link that are connected, and greeted.
async fn connected(clock: RuntimeClock) -> (Peer, Link) {
    let mut peer = Peer::new(PAGE).await;
    let accepted = host().accept(&peer.offer, SessionId::new(), clock).await.expect("a good offer");
    within("the data channel", peer.connect(accepted.answer)).await;
    let mut link = accepted.link;
    peer.send(&FromClient::Hello { v: VERSION }).await;
    assert_eq!(within("the greeting", link.from_client.recv()).await, Some(FromClient::Hello { v: VERSION }));
    (peer, link)
}

fn power(samples: &[f32]) -> f32 {
    samples.iter().map(|s| s * s).sum::<f32>() / samples.len() as f32
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sound_and_messages_go_both_ways() {
    let clock = RuntimeClock::start();
    let (mut peer, mut link) = connected(clock).await;
    let mut beat = tokio::time::interval(BEAT);
    let mut decoder = OpusDecoder::new().expect("a decoder");
    let mut stamps: Vec<Stamp> = vec![];
    let mut loud = 0;
    let mut packets = vec![];
    let mut marks = vec![];
    let mut position = 0;
    within("a second of sound both ways", async {
        for n in 0u64.. {
            beat.tick().await;
            if n.is_multiple_of(2) {
                peer.say().await;
            }
            let mut block = [0.0; BLOCK_SAMPLES];
            let now = clock.now();
            if let Mic::Sound { at } = assert_no_alloc(|| link.media_in.pull(now, &mut block)) {
                assert!(at < now, "sound is captured before it is heard");
                stamps.push(at);
                loud += u32::from((0.1..0.15).contains(&power(&block)));
            }
            // Generation 1 for a while, cut in the middle of a packet, then generation 2.
            let generation = if n < 41 { 1 } else { 2 };
            position = if n == 41 { 0 } else { position + 480 };
            let samples = std::array::from_fn(|i| ((n as usize * 480 + i) as f32 * 0.05).sin() * 0.4);
            let (generation, until) = (Generation(generation), SamplePos(position));
            let silent = n == 41;
            let samples = if silent { [0.0; BLOCK_SAMPLES] } else { samples };
            link.media_out.push(now, Outgoing { samples: &samples, generation, until, silent });
            while let Ok(packet) = peer.packets.try_recv() {
                packets.push(packet);
            }
            while let Ok(message) = peer.messages.try_recv() {
                marks.push(message);
            }
            if loud >= 50 && packets.len() >= 50 && marks.len() >= 2 {
                break;
            }
        }
    })
    .await;

    assert!(stamps.is_sorted(), "capture times never fall");
    assert!(packets.is_sorted_by_key(|p| p.header.timestamp), "and packets come as they were sent");
    let mut out = [0.0; 5_760];
    let mut heard = 0;
    for packet in &packets {
        let n = decoder.decode(&packet.payload, &mut out).expect("Opus");
        assert_eq!(n, 960);
        heard += u32::from(power(&out[..n]) > 0.05);
    }
    assert!(heard >= 40, "{heard} of {} packets sound", packets.len());
    // The marks name the first packet of each generation, and the trail agrees with them.
    let [
        ToClient::Media { rtp: first, generation: Generation(1), .. },
        ToClient::Media { rtp: second, generation: Generation(2), .. },
    ] = marks[..]
    else {
        panic!("{marks:?}");
    };
    assert_eq!(first, packets[0].header.timestamp);
    assert!(packets.iter().any(|p| p.header.timestamp == second), "a generation begins with a packet of its own");
    assert_eq!(link.media_out.locate(second).map(|(generation, _)| generation), Some(Generation(2)));
    assert_eq!(link.media_out.locate(second.wrapping_sub(1)).map(|(generation, _)| generation), Some(Generation(1)));
    peer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_cannot_be_taken_are_answered_and_the_link_goes_on() {
    let mut peer = Peer::new(PAGE).await;
    let accepted = accept(&peer.offer).await.expect("a good offer");
    within("the data channel", peer.connect(accepted.answer)).await;
    let mut link = accepted.link;
    let text = FromClient::Text { request: RequestId::from_bits(7), text: "a secret".to_owned().into() };

    peer.send(&text).await;
    peer.send_text("{\"type\":\"text\",\"secret\"").await;
    peer.send_text("{\"type\":\"text\",\"request\":\"secret\"}").await;
    // The longest that fits; longer ones the client's own stack refuses, since the answer says so.
    peer.send_text(&"x".repeat(MAX_MESSAGE)).await;
    for word in ["begin with `hello`", "not JSON", "not a message", "not JSON"] {
        let problem = within(word, peer.messages.recv()).await;
        let Some(ToClient::Problem { detail }) = &problem else { panic!("{problem:?}") };
        assert!(detail.contains(word) && !detail.contains("secret"), "{detail}");
    }
    peer.send(&FromClient::Hello { v: VERSION }).await;
    peer.send_text("{\"type\":\"dance\"}").await;
    peer.send(&text).await;
    for expected in [FromClient::Hello { v: VERSION }, FromClient::Unknown, text] {
        assert_eq!(within("a message", link.from_client.recv()).await, Some(expected));
    }
    let hold = ToClient::Hold { generation: Generation(3) };
    link.to_client.send(hold.clone()).await.expect("the link lives");
    assert_eq!(within("the hold", peer.messages.recv()).await, Some(hold));
    peer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_version_is_told_so_and_sent_away() {
    let mut peer = Peer::new(PAGE).await;
    let accepted = accept(&peer.offer).await.expect("a good offer");
    within("the data channel", peer.connect(accepted.answer)).await;
    peer.send(&FromClient::Hello { v: VERSION + 1 }).await;
    assert!(matches!(within("why", peer.messages.recv()).await, Some(ToClient::Problem { .. })));
    assert_eq!(within("the farewell", peer.messages.recv()).await, Some(ToClient::Bye { reason: "version".to_owned() }));
    within("the end", accepted.link.closed.cancelled()).await;
    peer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_ends_the_link() {
    let (peer, link) = connected(RuntimeClock::start()).await;
    peer.close_channel().await;
    within("the end", link.closed.cancelled()).await;
    peer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_messages_of_the_engine_arrive_before_the_end() {
    let (mut peer, link) = connected(RuntimeClock::start()).await;
    for n in 0..200 {
        link.to_client.try_send(ToClient::Pong { mark: f64::from(n), at: Stamp::ZERO }).expect("room");
    }
    link.to_client.try_send(ToClient::Bye { reason: "draining".to_owned() }).expect("room");
    link.closed.cancel();
    let mut got = 0;
    loop {
        match within("what was said before the end", peer.messages.recv()).await {
            Some(ToClient::Bye { reason }) => break assert_eq!(reason, "draining"),
            Some(ToClient::Pong { mark, .. }) => {
                assert_eq!(mark, f64::from(got));
                got += 1;
            }
            other => panic!("{other:?} after {got}"),
        }
    }
    assert_eq!(got, 200);
    peer.close().await;
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// UDP ports that the answer names.
fn ports(answer: &str) -> Vec<SocketAddr> {
    answer
        .lines()
        .filter(|line| line.starts_with("a=candidate:"))
        .filter_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            format!("{}:{}", words.get(4)?, words.get(5)?).parse().ok()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_link_however_it_ends() {
    let before = tasks();
    type End = fn(Link);
    let ends: [(&str, End); 4] = [
        ("cancelled", |link| link.closed.cancel()),
        ("dropped", drop),
        ("the microphone half dropped", |link| drop(link.media_in)),
        ("the loudspeaker half dropped", |link| drop(link.media_out)),
    ];
    for (how, end) in ends {
        let mut peer = Peer::new(PAGE).await;
        let accepted = accept(&peer.offer).await.expect("a good offer");
        let ports = ports(&accepted.answer);
        assert!(!ports.is_empty(), "{}", accepted.answer);
        within("the data channel", peer.connect(accepted.answer)).await;
        let closed = accepted.link.closed.clone();
        end(accepted.link);
        within(how, closed.cancelled()).await;
        peer.close().await;
        until(how, || tasks() <= before).await;
        for port in ports {
            assert!(std::net::UdpSocket::bind(port).is_ok(), "{how}: the socket at {port} is free again");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_comes_is_given_up() {
    let before = tasks();
    let host = Host::new(Config { connect_within: Duration::from_millis(100), ..Config::default() });
    let peer = Peer::new(PAGE).await;
    let accepted = host.accept(&peer.offer, SessionId::new(), RuntimeClock::start()).await.expect("a good offer");
    within("giving up", accepted.link.closed.cancelled()).await;
    peer.close().await;
    until("its tasks end", || tasks() <= before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_without_a_word_is_given_up() {
    let host = Host::new(Config { gone_after: Duration::ZERO, ..Config::default() });
    // The client lives in a runtime of its own, so that it can be taken away as a crash would.
    let theirs = tokio::runtime::Runtime::new().expect("a second runtime");
    let mut peer = theirs.spawn(Peer::new(PAGE)).await.expect("a peer");
    let before = tasks();
    let accepted = host.accept(&peer.offer, SessionId::new(), RuntimeClock::start()).await.expect("a good offer");
    let connected = theirs.spawn(async move {
        peer.connect(accepted.answer).await;
        peer
    });
    let peer = within("the data channel", connected).await.expect("it connects");
    assert!(!accepted.link.closed.is_cancelled());
    theirs.shutdown_background();
    within("giving up", accepted.link.closed.cancelled()).await;
    until("its tasks end", || tasks() <= before).await;
    drop(peer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_waits_for_leaves_nothing() {
    let peer = Peer::new(PAGE).await;
    let before = tasks();
    for polls in 1..12 {
        let mut accepting = Box::pin(accept(&peer.offer));
        for _ in 0..polls {
            if futures_util::poll!(&mut accepting).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(accepting);
        until("its tasks end", || tasks() <= before).await;
    }
    peer.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offers_that_cannot_be_used_are_refused_with_the_reason() {
    let before = tasks();
    for (shape, expected) in
        [(Shape { audio: false, ..PAGE }, OfferError::NoAudio), (Shape { channel: None, ..PAGE }, OfferError::NoChannel)]
    {
        let peer = Peer::new(shape).await;
        assert_eq!(accept(&peer.offer).await.err(), Some(expected));
        peer.close().await;
    }
    let peer = Peer::new(PAGE).await;
    let good = peer.offer.clone();
    peer.close().await;
    for (bad, expected) in [
        (good.replace("opus", "speex"), OfferError::NoOpus),
        (good.replace("m=audio", "m=video"), OfferError::NoAudio),
        (good.replace("a=sendrecv", "a=sendonly"), OfferError::NoAudio),
        (good.replace("a=sendrecv", "a=inactive"), OfferError::NoAudio),
    ] {
        assert_eq!(accept(&bad).await.err(), Some(expected), "{bad}");
    }
    let long = format!("v=0\r\n{}", "a=x\r\n".repeat(MAX_OFFER / 4));
    for bad in ["", "hello", "{\"sdp\":\"v=0\"}", "v=0", "v=0\r\n", "v=0\r\no=\r\n", "v=0\u{0}\r\n", &long, &good[..good.len() / 2]]
    {
        let error = accept(bad).await.err();
        let refused = matches!(error, Some(OfferError::Malformed { .. } | OfferError::NoAudio | OfferError::NoChannel));
        assert!(refused, "{error:?} for {:?}", &bad[..bad.len().min(40)]);
    }
    for missing in ["ice-ufrag", "ice-pwd", "fingerprint"] {
        let bad: String = good.lines().filter(|l| !l.contains(missing)).flat_map(|l| [l, "\r\n"]).collect();
        let error = accept(&bad).await.err();
        assert!(matches!(&error, Some(OfferError::Malformed { detail }) if detail.contains(missing)), "{error:?}");
    }
    until("nothing is left of them", || tasks() <= before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_offer_is_taken_or_refused_but_never_a_panic() {
    let peer = Peer::new(PAGE).await;
    let good = peer.offer.clone();
    peer.close().await;
    let before = tasks();
    let lines: Vec<&str> = good.lines().collect();
    for i in 0..lines.len() {
        let line = lines[i];
        let cut = &line[..line.len() / 2];
        let value = line.find(':').map_or(line, |at| &line[..=at]);
        for other in ["", cut, value, "m=audio 9 UDP/TLS/RTP/SAVPF 300", "a=rtpmap:999 opus/48000/2", "a=setup:nobody"] {
            let damaged: String = lines.iter().enumerate().flat_map(|(k, l)| [if k == i { other } else { *l }, "\r\n"]).collect();
            // Whatever it says: it is a value or an error of ours, and it is over when dropped.
            drop(accept(&damaged).await);
        }
    }
    until("nothing is left of them", || tasks() <= before).await;
}
