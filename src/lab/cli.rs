//! `lab::cli`: the command line of `antiphon lab`, and its exit codes: 0 everything passed, 1 something did not, 2 it cannot start so.
//!
//! Layer 4. The program closes its own door to the network before anything runs.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::report::Report;
use super::run::{Lab, faults, names, scenarios};
use super::seal::{seal, try_sockets};
use super::sim::command::{SimArgs, execute};
use crate::time::{Clock as _, SystemClock};
use crate::turn::Sabotage;

/// Cannot start as asked; what clap uses too.
const CANNOT_START: u8 = 2;

/// `antiphon lab`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LabArgs {
    /// What to run, instead of the scenarios.
    #[command(subcommand)]
    command: Option<LabCommand>,
    #[command(flatten)]
    run: RunArgs,
}

/// What the lab can do besides the scenarios.
#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Inject the ten faults
    Faults(RunArgs),
    /// Live whole random sessions, from a seed
    Sim(SimArgs),
    /// Try every order of a bounded set of events on the machine itself
    Model(super::model::command::ModelArgs),
    /// Try to open sockets, sealed as every run is, and tell what came of it
    #[command(hide = true)]
    TrySockets,
}

/// How a run is told and kept.
#[derive(Clone, Debug, Default, Args)]
struct RunArgs {
    /// Print one line of JSON for a program instead of the table
    #[arg(long)]
    agent: bool,
    /// Write a log per scenario, events.jsonl, metrics.json and report.json there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only this one
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Play this scenario file instead of the built-in ones
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    file: Option<PathBuf>,
    /// List the names and exit
    #[arg(long)]
    list: bool,
    /// Break a law of the machine on purpose, to see the lab notice
    #[arg(long, value_enum, hide = true)]
    sabotage: Option<Broken>,
}

/// Which law to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Broken {
    Fence,
    TerminalGuard,
    Idempotence,
}

impl From<Broken> for Sabotage {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Fence => Sabotage::Fence,
            Broken::TerminalGuard => Sabotage::TerminalGuard,
            Broken::Idempotence => Sabotage::Idempotence,
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Scenarios,
    Faults,
}

/// Runs `antiphon lab`.
pub fn run(args: LabArgs) -> ExitCode {
    let sealed = match seal() {
        Ok(sealed) => sealed,
        Err(error) => return cannot_start(&error),
    };
    match args.command {
        None => play(What::Scenarios, &args.run, sealed),
        Some(LabCommand::Faults(run)) => play(What::Faults, &run, sealed),
        Some(LabCommand::Sim(sim)) => execute(&sim),
        Some(LabCommand::Model(model)) => super::model::command::execute(&model),
        Some(LabCommand::TrySockets) => {
            // In a thread of its own too: the seal holds for all of them.
            let elsewhere = std::thread::spawn(try_sockets).join().unwrap_or([("thread", true); 4]);
            let opened: Vec<&str> =
                try_sockets().into_iter().chain(elsewhere).filter(|(_, open)| *open).map(|(what, _)| what).collect();
            say(&serde_json::json!({"sealed": sealed, "opened": opened}).to_string());
            ExitCode::from(u8::from(!opened.is_empty()))
        }
    }
}

fn play(what: What, args: &RunArgs, sealed: bool) -> ExitCode {
    let (stories, families) = names();
    let all = if what == What::Scenarios { stories } else { families };
    if args.list {
        say(&all.join("\n"));
        return ExitCode::SUCCESS;
    }
    let lab = Lab {
        only: args.only.clone(),
        file: args.file.clone(),
        network_refused: Some(sealed),
        sabotage: args.sabotage.map(Sabotage::from),
    };
    let clock = SystemClock::start();
    // Shown on a terminal only, and never to a program.
    let bar =
        if args.agent { ProgressBar::hidden() } else { ProgressBar::new(if lab.only.is_some() { 1 } else { all.len() as u64 }) };
    bar.set_style(ProgressStyle::with_template("{pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    let progress = |name: &str| {
        bar.set_message(name.to_owned());
        bar.inc(1);
    };
    let played = match what {
        What::Scenarios => scenarios(&lab, progress),
        What::Faults => faults(&lab, progress),
    };
    bar.finish_and_clear();
    match played {
        Ok(report) => tell(&report, args, clock.now().as_micros() / 1_000),
        Err(error) => cannot_start(&error),
    }
}

fn tell(report: &Report, args: &RunArgs, wall_ms: u64) -> ExitCode {
    if let Some(dir) = &args.out
        && let Err(error) = report.write(dir)
    {
        return cannot_start(&format!("{}: {error}", dir.display()));
    }
    say(if args.agent { report.agent_json() } else { report.table(u128::from(wall_ms)) }.trim_end());
    if report.pass { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes to standard output. Nobody reading it is no reason to end.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn cannot_start(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("antiphon lab: {error}");
    ExitCode::from(CANNOT_START)
}
