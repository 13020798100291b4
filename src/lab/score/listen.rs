//! `lab::score::listen`: one recording through the production microphone chain and the production floor.

use std::time::Duration;

use crate::audio::mic::{MicChain, VoiceEvidence};
use crate::engine::as_heard;
use crate::id::UtteranceId;
use crate::time::{BEAT, BLOCK_SAMPLES, Stamp};
use crate::turn::{Floor, FloorPolicy, Scene, Verdict};

/// What was decided over one recording, on its own clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// When the answer would have been held.
    pub holds: Vec<Stamp>,
    /// When the floor would have been taken.
    pub commits: Vec<Stamp>,
    /// How long holds lasted that were in vain: silence inserted into an answer.
    pub inserted: Duration,
    /// How many they were.
    pub false_holds: u32,
}

/// Listens to `mic` while the agent speaks all the time and `played` is what it says (silence where that ends). Every decision has the time
/// of the end of the last sample it needed. `each` sees the evidence of every block.
pub fn listen(mic: &[f32], played: &[f32], policy: &FloorPolicy, mut each: impl FnMut(&VoiceEvidence)) -> Decided {
    let mut chain = MicChain::new();
    let mut floor = Floor::new(UtteranceId(0));
    let mut decided = Decided::default();
    let (mut heard, mut sounded) = ([0.0; BLOCK_SAMPLES], [0.0; BLOCK_SAMPLES]);
    let scene = Scene::Agent { interruptible: true };
    for n in 0..mic.len().div_ceil(BLOCK_SAMPLES) {
        fill(&mut heard, mic, n);
        fill(&mut sounded, played, n);
        let at = Stamp::ZERO + BEAT * n as u32;
        let now = at + BEAT;
        let voice = chain.process(at, &heard, &sounded).voice;
        let verdict = match voice {
            Some(evidence) => {
                each(&evidence);
                floor.hear(now, &as_heard(evidence), scene, policy)
            }
            None => floor.lapse(now, Duration::MAX, policy),
        };
        match verdict {
            Some(Verdict::Hold(_)) => decided.holds.push(now),
            Some(Verdict::Commit(_)) => decided.commits.push(now),
            Some(Verdict::FalseAlarm(_, held)) => {
                decided.false_holds += 1;
                decided.inserted += held.map_or(Duration::ZERO, |since| now.since(since));
            }
            Some(Verdict::Begin(_) | Verdict::Endpoint { .. }) | None => {}
        }
    }
    decided
}

fn fill(block: &mut [f32; BLOCK_SAMPLES], from: &[f32], n: usize) {
    let rest = from.get(n * BLOCK_SAMPLES..).unwrap_or_default();
    let len = rest.len().min(BLOCK_SAMPLES);
    block[..len].copy_from_slice(&rest[..len]);
    block[len..].fill(0.0);
}
