//! Many seeds, on several threads, until the first that breaks a law.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Marks, Run, run};
use crate::turn::Sabotage;

/// Which seeds are run, and how.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The first seed.
    pub from: u64,
    /// How many seeds.
    pub seeds: u64,
    /// Threads, at least one.
    pub threads: usize,
    /// A law to break on purpose.
    pub sabotage: Option<Sabotage>,
}

/// What came of a batch.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// Seeds that were run.
    pub seeds: u64,
    /// Session time that passed in them.
    pub simulated: Duration,
    /// Inputs that their machines took.
    pub steps: u64,
    /// Records that they kept.
    pub records: u64,
    /// Which situations were met.
    pub marks: Marks,
    /// Seed and hash of each run, by seed.
    pub hashes: Vec<(u64, u64)>,
    /// The first run that broke a law, by seed, among those that were run.
    pub failed: Option<Run>,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Seeds that were run.
    pub seeds: u64,
    /// Session time that passed in them.
    pub simulated: Duration,
}

impl Total {
    fn take(&mut self, run: Run) {
        self.seeds += 1;
        self.simulated += run.simulated;
        self.steps += run.steps;
        self.records += run.records;
        self.marks.add(&run.marks);
        self.hashes.push((run.seed, run.hash));
        if !run.violations.is_empty() && self.failed.as_ref().is_none_or(|failed| run.seed < failed.seed) {
            self.failed = Some(run);
        }
    }
}

/// Runs a batch and stops at the first failing seed. `watch` is called now and then.
pub fn run_batch(batch: Batch, watch: &(dyn Fn(Progress) + Sync)) -> Total {
    let total = Mutex::new(Total::default());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..batch.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= batch.seeds {
                        return;
                    }
                    let run = run(batch.from + nth, batch.sabotage, false);
                    let failed = !run.violations.is_empty();
                    let mut total = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    total.take(run);
                    if failed {
                        next.store(batch.seeds, Ordering::Relaxed);
                    }
                    watch(Progress { seeds: total.seeds, simulated: total.simulated });
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    total.hashes.sort_unstable();
    total
}
