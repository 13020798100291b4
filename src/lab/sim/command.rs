//! `antiphon lab sim`: many seeds, a progress bar, and at the first failure everything that is needed to see it again.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Batch, Marks, Run, Total, run, run_batch};
use crate::time::{Clock as _, SystemClock};
use crate::turn::Sabotage;

/// Cannot start as asked; what clap uses too.
const CANNOT_START: u8 = 2;
/// With this many seeds a situation that never occurred is a hole in the generator.
const ENOUGH: u64 = 10_000;

/// Flags of `antiphon lab sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// How many seeds
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0, value_name = "S")]
    pub from: u64,
    /// Threads [default: one per core]
    #[arg(long, value_name = "T")]
    pub threads: Option<usize>,
    /// Print one line of JSON for a program instead of the table
    #[arg(long)]
    pub agent: bool,
    /// Tell everything that happens in each seed
    #[arg(long)]
    pub verbose: bool,
    /// Print the trace hash of each seed, one line each
    #[arg(long)]
    pub hashes: bool,
    /// Run the seeds of this file, lines of seed and hash, and compare the hashes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "from"])]
    pub expect: Option<PathBuf>,
    /// Break a law of the machine on purpose, to see the checkers notice
    #[arg(long, value_enum, hide = true)]
    pub sabotage: Option<Law>,
}

/// Which law to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Law {
    /// The fence.
    Fence,
    /// The guard of the one terminal.
    TerminalGuard,
    /// Doing twice what was asked twice.
    Idempotence,
}

impl From<Law> for Sabotage {
    fn from(law: Law) -> Self {
        match law {
            Law::Fence => Sabotage::Fence,
            Law::TerminalGuard => Sabotage::TerminalGuard,
            Law::Idempotence => Sabotage::Idempotence,
        }
    }
}

/// Seeds and hashes as they stand in a file: a seed and sixteen hexadecimal digits a line; `#` begins a comment.
///
/// # Errors
/// The first line that is neither.
pub fn read_hashes(text: &str) -> Result<Vec<(u64, u64)>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (seed, hash) = line.split_once(' ').ok_or_else(|| format!("not a seed and a hash: {line}"))?;
            let seed = seed.parse().map_err(|_| format!("not a seed: {line}"))?;
            let hash = u64::from_str_radix(hash.trim(), 16).map_err(|_| format!("not a hash: {line}"))?;
            Ok((seed, hash))
        })
        .collect()
}

/// Runs the command. Exit codes: 0 every seed passed, 1 one did not, 2 it cannot start so.
pub fn execute(args: &SimArgs) -> ExitCode {
    if let Some(file) = &args.expect {
        return compare(file);
    }
    let sabotage = args.sabotage.map(Sabotage::from);
    if args.verbose {
        let runs = (args.from..args.from + args.seeds).map(|seed| run(seed, sabotage, true));
        let Some(failed) = runs.into_iter().find(|run| !run.violations.is_empty()) else { return ExitCode::SUCCESS };
        eprint!("{}", failure(&failed));
        return ExitCode::FAILURE;
    }
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let batch = Batch { from: args.from, seeds: args.seeds, threads, sabotage };
    let clock = SystemClock::start();
    let bar = ProgressBar::new(args.seeds);
    if args.agent {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds  {msg}  {eta} left") {
        bar.set_style(style);
    }
    let total = run_batch(batch, &|progress| {
        if progress.seeds % 64 == 0 {
            bar.set_position(progress.seeds);
            let wall = clock.now().as_micros().max(1) as f64 / 1e6;
            bar.set_message(format!("{:.0} x real time", progress.simulated.as_secs_f64() / wall));
        }
    });
    bar.finish_and_clear();
    let wall = Duration::from_micros(clock.now().as_micros());
    let cpu = cpu_time().unwrap_or(wall.saturating_mul(threads as u32));
    if args.hashes {
        for (seed, hash) in &total.hashes {
            println!("{seed} {hash:016x}");
        }
    } else if args.agent {
        println!("{}", for_a_program(&total, wall, cpu));
    } else {
        print!("{}", table(&total, wall, cpu, args.seeds));
    }
    match &total.failed {
        Some(failed) => {
            eprint!("{}", failure(failed));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn compare(file: &std::path::Path) -> ExitCode {
    let wanted = match std::fs::read_to_string(file).map_err(|error| error.to_string()).and_then(|text| read_hashes(&text)) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("antiphon: {}: {error}", file.display());
            return ExitCode::from(CANNOT_START);
        }
    };
    let mut wrong = 0;
    for (seed, hash) in &wanted {
        let run = run(*seed, None, false);
        if run.hash != *hash || !run.violations.is_empty() {
            wrong += 1;
            eprintln!("seed {seed}: {:016x}, expected {hash:016x}", run.hash);
        }
    }
    println!("{} of {} hashes as expected", wanted.len() - wrong, wanted.len());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Processor time of this process, where the system tells it.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name in parentheses; in hundredths of a second, on every Linux.
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

fn rates(total: &Total, wall: Duration, cpu: Duration) -> (f64, f64) {
    let simulated = total.simulated.as_secs_f64();
    (simulated / wall.as_secs_f64().max(1e-6), simulated / 3_600.0 / cpu.as_secs_f64().max(1e-2))
}

fn table(total: &Total, wall: Duration, cpu: Duration, seeds: u64) -> String {
    let mut text = String::new();
    let (real, hours) = rates(total, wall, cpu);
    // Writing into a string never fails.
    let mut line = |words: String| {
        let _never = writeln!(text, "{words}");
    };
    let mut row = Vec::new();
    for (name, count) in total.marks.all() {
        row.push(format!("{name:<28}{count:>10}"));
        if row.len() == 3 {
            line(row.join("   "));
            row.clear();
        }
    }
    line(row.join("   "));
    let holes = total.marks.holes();
    if !holes.is_empty() {
        let weight = if seeds >= ENOUGH { "holes in the generator" } else { "never met, so far" };
        line(format!("{weight}: {}", holes.join(", ")));
    }
    line(format!(
        "{} seeds, {:.1} h of sessions, {} records, {} inputs in {:.1} s: {real:.0} x real time, {hours:.2} simulated hours per CPU second",
        total.seeds,
        total.simulated.as_secs_f64() / 3_600.0,
        total.records,
        total.steps,
        wall.as_secs_f64(),
    ));
    line(match &total.failed {
        None => "PASS".to_owned(),
        Some(run) => format!("FAIL at seed {}", run.seed),
    });
    text
}

fn for_a_program(total: &Total, wall: Duration, cpu: Duration) -> serde_json::Value {
    let (real, hours) = rates(total, wall, cpu);
    let marks = |marks: &Marks| marks.all().map(|(name, count)| (name.to_owned(), count.into())).collect();
    serde_json::json!({
        "result": if total.failed.is_none() { "PASS" } else { "FAIL" },
        "seeds": total.seeds,
        "simulated_s": total.simulated.as_secs(),
        "wall_s": (wall.as_secs_f64() * 10.0).round() / 10.0,
        "times_real_time": real.round(),
        "simulated_hours_per_cpu_second": (hours * 100.0).round() / 100.0,
        "records": total.records,
        "inputs": total.steps,
        "failed": total.failed.as_ref().map(|run| serde_json::json!({
            "seed": run.seed, "violations": run.violations, "rerun": rerun(run.seed),
        })),
        "marks": serde_json::Value::Object(marks(&total.marks)),
        "holes": total.marks.holes(),
    })
}

fn rerun(seed: u64) -> String {
    format!("antiphon lab sim --seeds 1 --from {seed} --verbose")
}

fn failure(run: &Run) -> String {
    let mut text = String::new();
    for record in &run.tail {
        let _never = writeln!(text, "{record}");
    }
    for violation in &run.violations {
        let _never = writeln!(text, "seed {}: {violation}", run.seed);
    }
    let _never = writeln!(text, "see it again: {}", rerun(run.seed));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_read_and_nonsense_is_not() {
        assert_eq!(read_hashes("# a table\n3 00ff\n\n4 1 # two\n"), Ok(vec![(3, 255), (4, 1)]));
        assert!(read_hashes("3").is_err() && read_hashes("x 1").is_err() && read_hashes("1 xyz").is_err());
    }
}
