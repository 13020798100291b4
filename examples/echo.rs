//! Says what it hears: the two halves of a link, turned by hand. Needs no hardware and no network.
//!
//! A person in the same process says three notes; everything that reaches the near end's microphone is sent back to the person's
//! loudspeaker half a second later. In the middle of the third note the person says stop: the generation rises, and what is
//! still on its way is muted.
//!
//! ```text
//! cargo run --example echo
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use antiphon::id::Generation;
use antiphon::time::{BEAT, BLOCK_SAMPLES, SamplePos, Stamp};
use antiphon::transport::memory::{Net, page, pair};
use antiphon::transport::wire::{FromClient, ToClient};
use antiphon::transport::{Mic, Outgoing};

/// The echo comes this much later.
const ECHO: Duration = Duration::from_millis(500);
/// The person says stop here.
const STOP: Duration = Duration::from_millis(1_750);

fn note(hz: f32, millis: usize) -> Vec<f32> {
    let n = millis * 48;
    (0..n)
        .map(|i| (i as f32 / 48_000.0 * hz * std::f32::consts::TAU).sin() * 0.5 * (i.min(n - i) as f32 / 480.0).min(1.0))
        .collect()
}

/// What a block sounds like, from its zero crossings.
fn pitch(samples: &[f32]) -> u32 {
    let crossings = samples.windows(2).filter(|w| w[0] <= 0.0 && w[1] > 0.0).count();
    crossings as u32 * 100
}

fn main() {
    println!("You will hear: three rising notes, each again half a second after it was said;");
    println!("the echo of the third is cut off by `stop` and does not come back.\n");

    // 30 ms away, with a little jitter, as over a home network.
    let net = Net { seed: 1, delay: Duration::from_millis(30), jitter: Duration::from_millis(8), ..Net::perfect() };
    let (mut link, mut far) = pair(net, page());
    for hz in [300.0, 400.0, 500.0] {
        far.say(&note(hz, 300));
        far.say(&[0.0; 48 * 200]);
    }

    let mut delay: VecDeque<[f32; BLOCK_SAMPLES]> = VecDeque::new();
    let mut generation = Generation(1);
    let mut position = SamplePos::ZERO;
    let mut sounding = None;
    let mut heard_of_echo = 0;
    let mut now = Stamp::ZERO;
    while now < Stamp::from_millis(3_000) {
        now += BEAT;
        // The person's end.
        let heard = far.beat(now);
        let sound = heard.sounds().then(|| pitch(&heard.samples)).filter(|hz| *hz > 0);
        if heard.sounds() {
            heard_of_echo += 1;
        }
        if sound.is_some() != sounding.is_some() {
            match sound {
                Some(hz) => println!("{now}  the loudspeaker begins: about {hz} Hz, {}", heard.generation),
                None => println!("{now}  the loudspeaker is silent"),
            }
            sounding = sound;
        }
        // Our end: microphone in, loudspeaker out.
        let mut block = [0.0; BLOCK_SAMPLES];
        if link.media_in.pull(now, &mut block) == Mic::Nothing {
            block.fill(0.0);
        }
        delay.push_back(block);
        if now == Stamp::ZERO + STOP {
            let next = generation.next();
            println!("{now}  stop: {generation} is cut, {next} begins");
            // The fence first, then the news of it.
            delay.clear();
            let clear = ToClient::Clear { generation, next };
            if link.to_client.try_send(clear).is_err() {
                println!("{now}  the client does not read; the link ends");
                break;
            }
            (generation, position) = (next, SamplePos::ZERO);
        }
        let late = delay.len() as u32 > ECHO.as_millis() as u32 / 10;
        let samples = if late { delay.pop_front().unwrap_or([0.0; BLOCK_SAMPLES]) } else { [0.0; BLOCK_SAMPLES] };
        let silent = samples.iter().all(|s| *s == 0.0);
        if !silent {
            position = position + BLOCK_SAMPLES as u64;
        }
        link.media_out.push(now, Outgoing { samples: &samples, generation, until: position, silent });
        while let Ok(message) = link.from_client.try_recv() {
            if let FromClient::Silenced { generation, rtp: Some(rtp), at, .. } = message {
                let place = link.media_out.locate(rtp).map_or(0, |(_, place)| place.0 / 48);
                println!("{now}  reported: {generation} fell silent at {at}, {place} ms into its sound");
            }
        }
    }
    let counts = link.media_in.counts();
    println!(
        "\n{} ms of echo were heard; {} of {} microphone packets were played.",
        heard_of_echo * 10,
        counts.played,
        counts.received
    );
    assert!(heard_of_echo > 0, "an echo that nobody hears is none");
}
