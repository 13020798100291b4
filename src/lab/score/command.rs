//! `lab::score::command`: `antiphon score`.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{Decided, Mix, Mixes, MixesError, Tally, group, listen, table};
use crate::audio::mic::VoiceEvidence;
use crate::lab::clip::{Clip, ClipError};
use crate::time::Stamp;
use crate::turn::FloorPolicy;

/// Cannot start as asked; what clap uses too.
const CANNOT_START: u8 = 2;

/// `antiphon score`.
#[derive(Debug, Args)]
pub struct ScoreArgs {
    /// The folder of labelled recordings, with its mixes.json
    #[arg(long, value_name = "DIR")]
    mixes: PathBuf,
    /// Write hold.jsonl and commit.jsonl there, as score_bargein.py reads them, and score.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write what was heard in every block there too, as JSON lines
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Only recordings with this in their names
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print a row for every level too
    #[arg(long)]
    levels: bool,
    /// Threads; default one per core
    #[arg(long)]
    threads: Option<usize>,
}

/// Why there is no score.
#[derive(Debug, thiserror::Error)]
enum ScoreError {
    #[error(transparent)]
    Mixes(#[from] MixesError),
    #[error(transparent)]
    Clip(#[from] ClipError),
    #[error("{}: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
}

/// What a decision is in the files.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    t_detect_s: f64,
}

/// What was heard in a block, in the file of evidence.
#[derive(Serialize)]
struct Heard<'a> {
    file: &'a str,
    t_s: f64,
    since_s: f64,
    speech: f32,
    quick: bool,
    level_dbfs: f32,
    noise_dbfs: f32,
    explained: f32,
    weight: f32,
}

/// One kind of recording, in the file of numbers.
#[derive(Serialize)]
struct Row<'a> {
    decision: &'a str,
    name: &'a str,
    #[serde(flatten)]
    tally: &'a Tally,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    false_per_hour: Option<f64>,
}

/// One recording and what came of it.
struct Done {
    decided: Decided,
    evidence: Vec<VoiceEvidence>,
}

/// Runs `antiphon score`: 0 scored, 2 cannot.
pub fn execute(args: &ScoreArgs) -> ExitCode {
    match score(args) {
        Ok(text) => {
            let _ = write!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("antiphon score: {error}");
            ExitCode::from(CANNOT_START)
        }
    }
}

fn score(args: &ScoreArgs) -> Result<String, ScoreError> {
    let mixes = Mixes::read(&args.mixes, &args.only)?;
    let all = listen_to_all(&mixes, args)?;
    if let Some(dir) = &args.out {
        write_decisions(dir, &mixes, &all)?;
    }
    if let Some(path) = &args.evidence {
        write_evidence(path, &mixes, &all)?;
    }
    let name = |mix: &Mix| if args.levels { mix.condition.clone() } else { group(&mix.condition) };
    let (mut holds, mut commits) = (BTreeMap::<String, Tally>::new(), BTreeMap::<String, Tally>::new());
    for (mix, done) in mixes.mixes.iter().zip(&all) {
        holds.entry(name(mix)).or_default().add(mix, &seconds(&done.decided.holds));
        commits.entry(name(mix)).or_default().add(mix, &seconds(&done.decided.commits));
    }
    if let Some(dir) = &args.out {
        write_numbers(&dir.join("score.json"), &holds, &commits)?;
    }
    let hours = mixes.mixes.iter().map(|mix| mix.duration_s).sum::<f64>() / 3_600.0;
    Ok(format!(
        "{}\n{}\n{}\n{} recordings, {hours:.2} h, agent speaking all the time; delays from the labelled onset to the end of the last sample \
         needed. Devices and networks come on top (antiphon tail).\n",
        table("hold", &holds),
        table("commit", &commits),
        inserted(&mixes, &all),
        mixes.mixes.len()
    ))
}

/// What holds in vain cost, where nobody speaks.
fn inserted(mixes: &Mixes, all: &[Done]) -> String {
    let (mut seconds, mut holds, mut silence) = (0.0, 0, 0.0);
    for (mix, done) in mixes.mixes.iter().zip(all) {
        if mix.condition.starts_with("noise_only") && !mix.condition.contains("babble") {
            seconds += mix.duration_s;
            holds += done.decided.false_holds;
            silence += done.decided.inserted.as_secs_f64();
        }
    }
    if seconds == 0.0 {
        return String::new();
    }
    let hours = seconds / 3_600.0;
    format!(
        "noise without babble: {:.0} false holds and {:.2} s of inserted silence per hour of agent speech; every one resumed at its sample\n",
        f64::from(holds) / hours,
        silence / hours
    )
}

fn listen_to_all(mixes: &Mixes, args: &ScoreArgs) -> Result<Vec<Done>, ScoreError> {
    let bar = ProgressBar::new(mixes.mixes.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((n, mix)) = {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    mixes.mixes.get(n).map(|mix| (n, mix))
                } {
                    let one = listen_to(mixes, mix, args.evidence.is_some());
                    bar.set_message(mix.condition.clone());
                    bar.inc(1);
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((n, one));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, one)| one).collect()
}

fn listen_to(mixes: &Mixes, mix: &Mix, keep: bool) -> Result<Done, ScoreError> {
    let mic = Clip::read(&mixes.microphone(mix))?.mono();
    let played = mixes.reference(mix).map(|path| Clip::read(&path)).transpose()?.unwrap_or_default();
    let mut evidence = Vec::new();
    let decided = listen(&mic, &played.mono(), &FloorPolicy::default(), |voice| {
        if keep {
            evidence.push(*voice);
        }
    });
    Ok(Done { decided, evidence })
}

fn seconds(stamps: &[Stamp]) -> Vec<f64> {
    stamps.iter().map(|at| at.as_micros() as f64 / 1e6).collect()
}

fn write_decisions(dir: &Path, mixes: &Mixes, all: &[Done]) -> Result<(), ScoreError> {
    std::fs::create_dir_all(dir).map_err(|error| ScoreError::Write { path: dir.to_owned(), error })?;
    for (name, of) in [("hold.jsonl", (|d| &d.holds) as fn(&Decided) -> &Vec<Stamp>), ("commit.jsonl", |d| &d.commits)] {
        let lines =
            mixes.mixes.iter().zip(all).flat_map(|(mix, done)| {
                seconds(of(&done.decided)).into_iter().map(|t_detect_s| Line { file: &mix.id, t_detect_s })
            });
        write_lines(&dir.join(name), lines)?;
    }
    Ok(())
}

fn write_evidence(path: &Path, mixes: &Mixes, all: &[Done]) -> Result<(), ScoreError> {
    let seconds = |at: Stamp| at.as_micros() as f64 / 1e6;
    let lines = mixes.mixes.iter().zip(all).flat_map(|(mix, done)| {
        done.evidence.iter().map(|v| Heard {
            file: &mix.id,
            t_s: seconds(v.at),
            since_s: seconds(v.since),
            speech: v.speech,
            quick: v.quick,
            level_dbfs: v.level_dbfs,
            noise_dbfs: v.noise_dbfs,
            explained: v.explained,
            weight: v.weight,
        })
    });
    write_lines(path, lines)
}

fn write_numbers(path: &Path, holds: &BTreeMap<String, Tally>, commits: &BTreeMap<String, Tally>) -> Result<(), ScoreError> {
    let row = |decision, (name, tally): (&'_ String, &'_ Tally)| {
        serde_json::to_value(Row {
            decision,
            name,
            tally,
            p50_ms: tally.delay_ms(0.5),
            p95_ms: tally.delay_ms(0.95),
            false_per_hour: tally.false_per_hour(),
        })
    };
    let rows = holds.iter().map(|h| row("hold", h)).chain(commits.iter().map(|c| row("commit", c)));
    write_lines(path, rows.map(Result::ok))
}

fn write_lines<T: Serialize>(path: &Path, lines: impl Iterator<Item = T>) -> Result<(), ScoreError> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        for line in lines {
            serde_json::to_writer(&mut file, &line)?;
            writeln!(file)?;
        }
        file.flush()
    };
    write().map_err(|error| ScoreError::Write { path: path.to_owned(), error })
}
