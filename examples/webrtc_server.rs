//! The voice server inside a program of your own, with providers of your own.
//!
//! ```text
//! cargo run --example webrtc_server -- --listen 127.0.0.1:7881   # open http://127.0.0.1:7881/, make a sound, hear bells
//! cargo run --example webrtc_server                              # no hardware: checks itself over HTTP and exits
//! ```
//!
//! What you will hear: each time you fall silent, one bell for every word of the answer, which tells how long your sound was. Make
//! another sound while the bells ring, and they stop.

use std::f32::consts::TAU;
use std::net::SocketAddr;

use antiphon::engine::{Engine, Limits};
use antiphon::event::Timing;
use antiphon::provider::{
    AudioStream, Chunk, Info, Llm, Message, Piece, Prompt, ProviderError, Sink, Stt, TaskCx, Transcript, Tts, Words,
};
use antiphon::server::{Ending, Server};
use antiphon::time::SampleRate;
use antiphon::transport::webrtc;
use tokio_util::sync::CancellationToken;

/// Hears no words, but how long somebody made a sound.
struct Stopwatch;

impl Stt for Stopwatch {
    fn info(&self) -> Info {
        Info::new("stopwatch")
    }

    async fn listen(&self, mut audio: AudioStream, out: Sink<Transcript>, cx: TaskCx) -> Result<(), ProviderError> {
        let mut samples = 0;
        while let Some(heard) = cx.until_stopped(audio.next()).await? {
            samples += heard.samples.len() as u64 + heard.gap;
        }
        let length = self.info().rate.duration_of(samples);
        let text = format!("a sound of {:.1} seconds", length.as_secs_f32());
        out.send(Transcript { text: text.into(), is_final: true }).await
    }
}

/// Says back what it was told.
struct Parrot;

impl Llm for Parrot {
    fn info(&self) -> Info {
        Info::new("parrot")
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> Result<(), ProviderError> {
        let heard = prompt.conversation.iter().rev().find_map(|message| match message {
            Message::User { text } => Some(text.reveal().as_str()),
            _ => None,
        });
        let heard = heard.unwrap_or("nothing");
        for word in format!("You made {heard}.").split_inclusive(' ') {
            cx.until_stopped(out.send(word.to_owned().into())).await??;
        }
        Ok(())
    }
}

/// Rings a bell for every word.
struct Bells;

impl Bells {
    /// A decaying tone of 300 ms; longer words ring deeper.
    fn ring(word: &str) -> Vec<f32> {
        let rate = SampleRate::HZ_24000.hz() as f32;
        let pitch = 1_200.0 / (1.0 + word.len() as f32 / 6.0);
        (0..7_200).map(|n| n as f32 / rate).map(|t| 0.4 * (-8.0 * t).exp() * (TAU * pitch * t).sin()).collect()
    }
}

impl Tts for Bells {
    fn info(&self) -> Info {
        Info::new("bells").at(SampleRate::HZ_24000)
    }

    async fn speak(&self, mut text: Words, out: Sink<Chunk>, cx: TaskCx) -> Result<(), ProviderError> {
        while let Some(piece) = cx.until_stopped(text.next()).await? {
            for word in piece.reveal().split_inclusive(' ') {
                let chunk = Chunk { samples: Self::ring(word), chars: word.chars().count(), timing: Timing::Exact };
                cx.until_stopped(out.send(chunk)).await??;
            }
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::builder(Stopwatch, Parrot, Bells).limits(Limits { sessions: 8, ..Limits::default() }).build();
    let server = Server::new(engine).webrtc(webrtc::Config::default());
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("--listen"), Some(at)) => {
            let at: SocketAddr = at.parse()?;
            println!("open http://{at}/ and make a sound; Ctrl-C ends");
            server.run(at, async { drop(tokio::signal::ctrl_c().await) }).await?;
        }
        (None | Some("--synthetic"), None) => check(server).await?,
        _ => return Err("use: webrtc_server [--synthetic | --listen IP:PORT]".into()),
    }
    Ok(())
}

/// Opens and ends a session as a browser does, and prints what came back. Fails when anything is not as it should be.
async fn check(server: Server) -> Result<(), Box<dyn std::error::Error>> {
    // Plain HTTP on loopback; the client wants to know its TLS all the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = Server::listen(([127, 0, 0, 1], 0).into()).await?;
    let base = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let served = tokio::spawn(server.serve(listener, stop.clone().cancelled_owned()));
    let http = reqwest::Client::new();

    let page = http.get(format!("{base}/")).send().await?.error_for_status()?.text().await?;
    println!("page      {} bytes", page.len());
    let offered = http.post(format!("{base}/whip")).header("content-type", "application/sdp").body(OFFER).send().await?;
    let offered = offered.error_for_status()?;
    let location = offered.headers()["location"].to_str()?.to_owned();
    println!("offer     {} and an answer of {} bytes", offered.status(), offered.text().await?.len());
    let health: serde_json::Value = http.get(format!("{base}/healthz")).send().await?.error_for_status()?.json().await?;
    println!("health    {health}");
    if health["sessions"] != 1 {
        return Err("one session should be at work".into());
    }
    println!("delete    {}", http.delete(format!("{base}{location}")).send().await?.error_for_status()?.status());
    let metrics = http.get(format!("{base}/metrics")).send().await?.error_for_status()?.text().await?;
    println!("metrics   {} lines", metrics.lines().count());
    stop.cancel();
    let ending = served.await??;
    println!("ended     {ending:?}");
    if ending == Ending::Drained { Ok(()) } else { Err("the drain should be over at once".into()) }
}

/// What a browser offers: a microphone and a data channel.
const OFFER: &str = include_str!("../tests/support/offer.sdp");
