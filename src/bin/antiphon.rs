//! The `antiphon` program. `antiphon serve`, or `antiphon` alone, welcomes browsers; `antiphon lab` proves; `antiphon --help` tells the rest.
//!
//! Exit codes: 0 ended as told; 1 broke while serving; 2 cannot start as asked (flags, configuration, missing programs, port).

use std::io::Write;
use std::process::ExitCode;

use antiphon::server::config::Config;
use antiphon::server::flags::{Command as Serving, ServeFlags};
use antiphon::server::{Server, logs, providers};
use antiphon::transport::webrtc;
use clap::{Parser, Subcommand};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Cannot start as asked; what clap uses too.
const CANNOT_START: u8 = 2;

/// Real-time voice conversations that fall silent when somebody speaks.
#[derive(Debug, Parser)]
#[command(name = "antiphon", version, about, long_about = None, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Serving(Serving),
    /// Prove it: scenarios, faults and simulation on a virtual clock, without network
    #[cfg(feature = "lab")]
    Lab(Box<antiphon::lab::cli::LabArgs>),
    /// How soon and how surely a voice is heard: holds and commits over labelled recordings
    #[cfg(feature = "lab")]
    Score(antiphon::lab::score::command::ScoreArgs),
}

fn main() -> ExitCode {
    // The main job needs no word: `cargo run --release` alone opens the door, configured by the environment.
    let cli = if std::env::args_os().len() > 1 { Cli::parse() } else { Cli::parse_from(["antiphon", "serve"]) };
    match cli.command {
        Command::Serving(Serving::Serve(flags)) => serve(&flags),
        #[cfg(feature = "lab")]
        Command::Lab(args) => antiphon::lab::cli::run(*args),
        #[cfg(feature = "lab")]
        Command::Score(args) => antiphon::lab::score::command::execute(&args),
    }
}

fn serve(flags: &ServeFlags) -> ExitCode {
    let config = match flags.effective() {
        Ok(config) => config,
        Err(error) => return cannot_start(&error),
    };
    if flags.print_config {
        say(config.to_toml().trim_end());
        return ExitCode::SUCCESS;
    }
    if let Err(error) = logs::init(&config.log) {
        return cannot_start(&error);
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return cannot_start(&error),
    };
    let code = runtime.block_on(run(&config));
    // A provider that ignores its stop must not keep the program: it has had its grace.
    runtime.shutdown_background();
    code
}

async fn run(config: &Config) -> ExitCode {
    let engine = match providers::engine(config).await {
        Ok(engine) => engine,
        Err(error) => return cannot_start(&error),
    };
    let media = webrtc::Config { bind: (config.media_ip(), 0).into(), ..webrtc::Config::default() };
    if let Err(error) = media.probe() {
        let at = media.bind.ip();
        return cannot_start(&format!(
            "media cannot be sent from {at} ({error}); choose an address of this machine with --webrtc-bind"
        ));
    }
    let server = Server::new(engine)
        .webrtc(media)
        .metrics(config.metrics)
        .origins(config.origins.iter().cloned())
        .drain_within(config.drain());
    let listener = match Server::listen(config.listen).await {
        Ok(listener) => listener,
        Err(error) => return cannot_start(&error),
    };
    let (stop, now) = match signals() {
        Ok(signals) => signals,
        Err(error) => return cannot_start(&error),
    };
    announce(&listener, config);
    match server.hurry(now.cancelled_owned()).serve(listener, stop.cancelled_owned()).await {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("antiphon: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Tells where the page is. The one line on standard output.
fn announce(listener: &TcpListener, config: &Config) {
    let at = listener.local_addr().unwrap_or(config.listen);
    say(&format!("Antiphon listens on http://{at}/ (open it in a browser; Ctrl-C ends)"));
    if !at.ip().is_loopback() {
        tracing::warn!(
            "browsers give the microphone only to pages on https or localhost: put a TLS proxy in front, or open the page on this \
             machine by http://localhost:{}/",
            at.port()
        );
    }
}

/// The first SIGTERM or SIGINT, and the second.
fn signals() -> std::io::Result<(CancellationToken, CancellationToken)> {
    use tokio::signal::unix::{SignalKind, signal};
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let tokens = (first.clone(), second.clone());
    tokio::spawn(async move {
        for token in [first, second] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    });
    Ok(tokens)
}

/// Writes to standard output. Nobody reading it is no reason to end.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn cannot_start(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("antiphon: {error}");
    ExitCode::from(CANNOT_START)
}
