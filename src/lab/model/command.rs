//! `antiphon lab model`: the big search, with a progress bar, and every law it held listed.

use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Bound, LAWS, search};
use crate::lab::check::CHECKERS;
use crate::time::{Clock as _, SystemClock};

/// Flags of `antiphon lab model`.
#[derive(Clone, Debug, Args)]
pub struct ModelArgs {
    /// Distinct states after which the search stops
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub states: u64,
    /// Events in a row, at most
    #[arg(long, default_value_t = 40, value_name = "N")]
    pub depth: usize,
    /// Threads [default: one per core]
    #[arg(long, value_name = "T")]
    pub threads: Option<usize>,
    /// Print one line of JSON for a program instead of the table
    #[arg(long)]
    pub agent: bool,
}

/// Runs the command. Exit codes: 0 nothing broke, 1 something did.
pub fn execute(args: &ModelArgs) -> ExitCode {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let bar = ProgressBar::new(args.states);
    if args.agent {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} states  {msg}  {per_sec}") {
        bar.set_style(style);
    }
    let clock = SystemClock::start();
    let bound = Bound { states: args.states, depth: args.depth, threads, sabotage: None };
    let found = search(bound, &|states, depth| {
        bar.set_position(states);
        bar.set_message(format!("{depth} events deep"));
    });
    bar.finish_and_clear();
    let wall = clock.now().as_micros() as f64 / 1e6;
    let laws = || CHECKERS.iter().map(|c| (c.name, c.law)).chain(LAWS.iter().copied());
    let passed = found.broken.is_none();
    if args.agent {
        let report = serde_json::json!({
            "result": if passed { "PASS" } else { "FAIL" },
            "states": found.states,
            "transitions": found.transitions,
            "worlds": found.worlds,
            "wall_s": (wall * 10.0).round() / 10.0,
            "invariants": laws().map(|(name, _)| name).collect::<Vec<_>>(),
            "broken": found.broken.as_ref().map(|(events, violation)| serde_json::json!({"events": events, "violation": violation})),
        });
        println!("{report}");
    } else {
        for (name, law) in laws() {
            println!("{name:<30}{law}");
        }
        println!();
        for world in &found.worlds {
            let all = if world.complete { ", all there are" } else { "" };
            println!("{:<40}{:>10} states, {} events deep{all}", world.name, world.states, world.depth);
        }
        println!(
            "{} distinct states, {} transitions in {wall:.1} s, {} invariants, {} violations",
            found.states,
            found.transitions,
            laws().count(),
            u32::from(!passed),
        );
    }
    match found.broken {
        None => ExitCode::SUCCESS,
        Some((events, violation)) => {
            for event in events {
                eprintln!("  {event}");
            }
            eprintln!("{violation}");
            ExitCode::FAILURE
        }
    }
}
