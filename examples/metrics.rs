//! Interrupts an answer again and again and prints what it cost. Needs no hardware, no network and no key.
//!
//! The model is the built-in dialogue brain, the synthesizer and the recogniser are scripted, and the person who interrupts is a recorded
//! voice over a network of 30 ms each way. What you see: one line per barge-in with its audible tail, the distribution, and the counters
//! of the queues. It runs in real time, about four seconds a barge-in.
//!
//! ```text
//! cargo run --example metrics [BARGE_INS]
//! ```

use std::time::Duration;

use antiphon::observe::TailPart;
use antiphon::provider::llm::Brain;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, Sound, TtsScript};
use antiphon::time::{BEAT, Clock, SampleRate};
use antiphon::transport::memory::{FarEnd, Net, page, pair};
use antiphon::{CancelCause, Engine, Event, RuntimeClock, SessionId};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The person: a far end and its beat.
struct Person {
    far: FarEnd,
    clock: RuntimeClock,
    beat: Interval,
    sounding: bool,
}

impl Person {
    async fn listen(&mut self, time: Duration) {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.beat.tick().await;
            self.sounding = self.far.beat(self.clock.now()).sounds();
        }
    }

    /// Listens until the answer sounds; `false` when it does not within ten seconds.
    async fn hear(&mut self) -> bool {
        let until = self.clock.now() + Duration::from_secs(10);
        while self.clock.now() < until {
            self.listen(BEAT).await;
            if self.sounding {
                return true;
            }
        }
        false
    }
}

/// A recorded voice, 48 kHz.
fn voice() -> Vec<f32> {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/audio/ls_412_126975_0000.wav");
    let mut reader = hound::WavReader::open(clip).expect("the clip is in the repository");
    assert_eq!(reader.spec().sample_rate, SampleRate::HZ_16000.hz(), "the clips are 16 kHz");
    let samples: Vec<f32> = reader.samples::<i16>().map(|s| f32::from(s.expect("a whole file")) / 32_768.0).collect();
    // Three samples for one, on a line between neighbours: good enough for a voice.
    let next = samples.iter().skip(1).chain(samples.last());
    samples.iter().zip(next).flat_map(|(a, b)| [*a, a + (b - a) / 3.0, a + (b - a) * 2.0 / 3.0]).collect()
}

#[tokio::main]
async fn main() -> Result<(), antiphon::Error> {
    let barge_ins: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(6);
    let voice = voice();
    let tts = ScriptedTts::new([TtsScript::new().sound(Sound::Tone { hz: 220.0, level: 0.3 }).real_time(0.3)]);
    let engine = Engine::builder(ScriptedStt::hearing("tell me a long story"), Brain::new(), tts).build();
    let clock = RuntimeClock::start();
    let net = Net {
        delay: Duration::from_millis(30),
        jitter: Duration::from_millis(6),
        far_buffer: Duration::from_millis(40),
        ..Net::perfect()
    };
    let (link, far) = pair(net, page());
    let session = engine.open(SessionId::new(), clock, link)?;
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut person = Person { far, clock, beat, sounding: false };

    println!("{barge_ins} barge-ins; times in milliseconds\n");
    println!("  nr   tail  detect  decide  flush  downstream  to hold  to cut");
    let mut records = session.records();
    session.say("tell me a long story").await;
    for nr in 1..=barge_ins {
        if !person.hear().await {
            println!("{nr:>4}   no answer came");
            break;
        }
        person.listen(Duration::from_millis(1_200)).await;
        person.far.say(&voice[..voice.len().min(48 * 1_200)]);
        let deadline = clock.now() + Duration::from_secs(3);
        let ms = |us: u64| us as f64 / 1_000.0;
        let mut tail = None;
        while tail.is_none() && clock.now() < deadline {
            tokio::select! {
                biased;
                record = records.next() => match record.as_deref().map(|record| &record.event) {
                    Some(Event::Silenced { tail: found, .. }) => tail = *found,
                    Some(_) => {}
                    None => return Ok(()),
                },
                () = person.listen(BEAT) => {}
            }
        }
        match tail {
            Some(t) => println!(
                "{nr:>4} {:>6.1} {:>7.1} {:>7.1} {:>6.1} {:>11.1} {:>8} {:>7.1}",
                ms(t.to_silence_us),
                ms(t.detect_us),
                ms(t.decide_us),
                ms(t.flush_us),
                ms(t.downstream_us),
                t.to_hold_us.map_or_else(|| "-".to_owned(), |us| format!("{:.1}", ms(us))),
                ms(t.to_cut_us),
            ),
            None => println!("{nr:>4}   missed"),
        }
        // Let the person finish, so that the next answer can begin.
        while person.far.unsaid() > 0 {
            person.listen(BEAT).await;
        }
    }
    session.close(CancelCause::User).await;

    let metrics = engine.metrics();
    println!("\naudible tail and its parts (count, p50, p95, max)");
    let parts = [
        ("detect", TailPart::Detect),
        ("decide", TailPart::Decide),
        ("flush", TailPart::Flush),
        ("downstream", TailPart::Downstream),
    ];
    let line = |name: &str, h: &antiphon::observe::Histogram| {
        println!(
            "  {name:<12} {:>3}  {:?}  {:?}  {:?}",
            h.count(),
            h.p(50.0).unwrap_or_default(),
            h.p(95.0).unwrap_or_default(),
            h.max()
        );
    };
    line("tail", metrics.audible_tail());
    for (name, part) in parts {
        line(name, metrics.tail(part));
    }
    line("first audio", metrics.ttfa());
    line("cancel", metrics.cancel_propagation());
    println!("\nlate output {:?}, terminal conflicts {}", metrics.late_events(), metrics.terminal_conflicts());
    println!("{}", serde_json::to_string_pretty(&engine.counters()).expect("counters serialise"));
    assert_eq!(metrics.late_events().delivered, 0, "zero for ever");
    Ok(())
}
