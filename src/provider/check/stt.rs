//! The contract of a recogniser as a suite. Layer 2.

use std::time::Duration;

use super::run::{Interrupt, Run, run};
use super::{Failure, Part, Report, Terms};
use crate::provider::{AnyStt, AudioStream, Heard, Stt, Transcript};
use crate::time::SampleRate;

/// Runs the suite on a recogniser and reports.
pub async fn examine_stt(provider: impl Stt, terms: &Terms) -> Report {
    let provider = AnyStt::new(provider);
    let info = provider.info();
    let mut report = Report { name: info.name, failures: Vec::new(), first: None };
    let sound = terms.utterance.clone().unwrap_or_else(|| tone(info.rate));
    report.first = listen(&provider, terms, Part::Plain, &sound, info.rate, &mut report.failures).await;
    listen(&provider, terms, Part::Empty, &[], info.rate, &mut report.failures).await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    tokio::join!(
        listen(&provider, terms, Part::TwoAtOnce, &sound, info.rate, &mut one),
        listen(&provider, terms, Part::TwoAtOnce, &sound, info.rate, &mut two)
    );
    report.failures.extend(one.into_iter().chain(two));
    for (part, interrupt) in [(Part::StoppedAtOnce, Interrupt::AtOnce), (Part::HungUp, Interrupt::HangUpAtOnce)] {
        let (mic, audio) = AudioStream::new(1_024);
        for piece in pieces(&sound, info.rate) {
            mic.try_send(piece).expect("room for the utterance");
        }
        // The utterance goes on when it is stopped; when nobody listens it ends, and the final transcript has nowhere to go.
        let open = (interrupt == Interrupt::AtOnce).then_some(mic);
        let provider = provider.clone();
        let done: Run<Transcript> =
            run(terms, interrupt, move |out, cx| async move { provider.listen(audio, out, cx).await }).await;
        drop(open);
        done.stopped(part, terms, interrupt, interrupt == Interrupt::AtOnce, &mut report.failures);
    }
    listen(&provider, terms, Part::Again, &sound, info.rate, &mut report.failures).await;
    report
}

async fn listen(
    provider: &AnyStt,
    terms: &Terms,
    part: Part,
    sound: &[f32],
    rate: SampleRate,
    failures: &mut Vec<Failure>,
) -> Option<Duration> {
    let (mic, audio) = AudioStream::new(8);
    let provider = provider.clone();
    let speaking = async {
        for piece in pieces(sound, rate) {
            if mic.send(piece).await.is_err() {
                break;
            }
        }
        drop(mic);
    };
    let running =
        run::<Transcript, _>(terms, Interrupt::Never, move |out, cx| async move { provider.listen(audio, out, cx).await });
    let (done, ()) = tokio::join!(running, speaking);
    if done.completed(part, terms, true, failures) {
        let finals = done.items.iter().filter(|i| i.1.is_final).count();
        if finals != 1 {
            failures.push(Failure::Finals(part, finals));
        }
        if finals > 0 && done.items.last().is_some_and(|i| !i.1.is_final) {
            failures.push(Failure::AfterFinal(part));
        }
    }
    done.first()
}

/// The utterance in pieces of 10 ms, with a hole in the middle as a full queue makes one.
fn pieces(sound: &[f32], rate: SampleRate) -> impl Iterator<Item = Heard> {
    let size = rate.samples_in(crate::time::BEAT) as usize;
    let hole = sound.len() / size / 2;
    sound
        .chunks(size)
        .enumerate()
        .map(move |(k, piece)| Heard { samples: piece.to_vec(), gap: if k == hole && k > 0 { size as u64 } else { 0 } })
}

fn tone(rate: SampleRate) -> Vec<f32> {
    let hz = f64::from(rate.hz());
    (0..rate.samples_in(Duration::from_millis(1_500)))
        .map(|k| {
            let t = k as f64 / hz;
            ((t * 180.0 * std::f64::consts::TAU).sin() * (t * 4.0 * std::f64::consts::TAU).sin().max(0.0) * 0.4) as f32
        })
        .collect()
}
