//! `floor`: who is speaking, and what a sound means.
//!
//! ```text
//!            hold_after                 commit_after (or words)
//! Silent ───────────────▶ Overlap ─────────────────────────────▶ User ── endpoint_after ──▶ Silent
//!    ▲  ▲                    │ resume_after of silence             ▲
//!    │  └────────────────────┘ (a false alarm)                     │
//!    └── nobody is answering: begin_after ─────────────────────────┘        Pressed: the key instead of the ear
//! ```
//! * Each block has a weight, its share of a sure voice. Weighted voiced time adds up over gaps, and the thresholds are on that sum.
//! * Silence is measured on the capture clock while blocks come, and by arrival when none come any more (no input means silence).
//! * The onset is the first sound, on the capture clock, and never so early that it could belong to what was said before.

use std::time::Duration;

use crate::event::{Evidence, duration_us};
use crate::id::UtteranceId;
use crate::time::{BEAT, Stamp};
use crate::turn::timer::Timer;
use crate::turn::{FloorPolicy, FloorView, Voice};

/// What the agent does while somebody makes a sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Nothing that could be interrupted.
    Idle,
    /// A turn is being answered, thinking or speaking.
    Agent {
        /// Whether a voice may interrupt it.
        interruptible: bool,
    },
}

/// What a sound, or its absence, means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The user speaks, and nothing is interrupted by it.
    Begin(Sound),
    /// Perhaps somebody speaks: hold the answer.
    Hold(Sound),
    /// The user takes the floor.
    Commit(Sound),
    /// It was nothing; the answer was held since then, if it was.
    FalseAlarm(Sound, Option<Stamp>),
    /// The user has finished; the last sound was at `end`.
    Endpoint { utterance: UtteranceId, end: Stamp },
}

/// A stretch of sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sound {
    pub(crate) utterance: UtteranceId,
    pub(crate) onset: Stamp,
    pub(crate) evidence: Evidence,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Speech {
    /// Nobody, as far as is known.
    Silent,
    /// Perhaps the user; the answer is held since `held`, unless that answer is gone.
    Overlap { utterance: UtteranceId, onset: Stamp, held: Option<Stamp> },
    /// The user.
    User { utterance: UtteranceId, onset: Stamp, since: Stamp },
    /// The user, by the key.
    Pressed { utterance: UtteranceId, onset: Stamp, since: Stamp },
}

/// Voice with gaps no longer than the policy allows.
#[derive(Clone, Copy, Debug)]
struct Run {
    onset: Stamp,
    /// Blocks with voice in them, however sure.
    voiced: Duration,
    /// The same, each block by its weight.
    weighted: Duration,
    /// Capture time of the last voiced block.
    last_at: Stamp,
    /// When that block arrived.
    last_seen: Stamp,
    evidence: Evidence,
}

/// Sound that began before this moment does not count.
#[derive(Clone, Copy, Debug)]
struct Deaf {
    since: Stamp,
    last: Stamp,
}

/// Who is speaking.
#[derive(Clone, Debug)]
pub(crate) struct Floor {
    speech: Speech,
    run: Option<Run>,
    deaf: Option<Deaf>,
    last_at: Option<Stamp>,
    not_before: Stamp,
    last: UtteranceId,
    /// Whether the key is down, whatever became of what was said.
    key: bool,
}

/// No block is heavier than this.
const HEAVIEST: u32 = 2;

/// A block of this weight in time.
fn weighted(weight: f32) -> Duration {
    // Saturates, and no number is none.
    Duration::from_micros((weight.max(0.0) * BEAT.as_micros() as f32).round() as u64)
}

/// The key went up and had not been down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotDown;

impl FloorPolicy {
    fn voiced(&self, v: &Voice) -> bool {
        v.weight >= self.voice_weight
    }
}

impl Floor {
    /// A silent floor whose last utterance was `last`.
    pub(crate) fn new(last: UtteranceId) -> Self {
        Floor { speech: Speech::Silent, run: None, deaf: None, last_at: None, not_before: Stamp::ZERO, last, key: false }
    }

    /// One block of sound.
    pub(crate) fn hear(&mut self, now: Stamp, voice: &Voice, scene: Scene, p: &FloorPolicy) -> Option<Verdict> {
        let at = voice.at.min(now).max(self.last_at.unwrap_or(Stamp::ZERO));
        let passed = self.last_at.map_or(BEAT, |last| at.since(last));
        self.last_at = Some(at);
        if !p.voiced(voice) || self.is_deaf(at, voice.since, p.gap) {
            return self.run.and_then(|run| self.silent(at.since(run.last_at), p));
        }
        let run = self.voiced(now, at, passed, voice, p);
        match (self.speech, scene) {
            (Speech::Pressed { .. } | Speech::User { .. }, _) => None,
            (Speech::Silent | Speech::Overlap { .. }, Scene::Agent { interruptible: true }) => {
                if run.weighted >= p.commit_after {
                    let sound = self.confirm(now);
                    return Some(Verdict::Commit(sound));
                }
                let may_hold = match self.speech {
                    Speech::Silent => run.weighted >= p.hold_after,
                    Speech::Overlap { held, .. } => held.is_none(),
                    Speech::User { .. } | Speech::Pressed { .. } => false,
                };
                may_hold.then(|| {
                    let (utterance, onset) = self.name();
                    self.speech = Speech::Overlap { utterance, onset, held: Some(now) };
                    Verdict::Hold(self.sound(utterance, onset))
                })
            }
            (Speech::Silent | Speech::Overlap { .. }, Scene::Idle | Scene::Agent { interruptible: false }) => {
                (run.weighted >= p.begin_after).then(|| Verdict::Begin(self.confirm(now)))
            }
        }
    }

    /// Time passed without a block.
    pub(crate) fn lapse(&mut self, now: Stamp, longest: Duration, p: &FloorPolicy) -> Option<Verdict> {
        let since = match self.speech {
            Speech::Silent | Speech::Overlap { .. } => None,
            Speech::User { since, .. } | Speech::Pressed { since, .. } => Some(since),
        };
        if since.is_some_and(|since| since + longest <= now) {
            return self.endpoint(now);
        }
        let silent = self.run.map_or(Duration::MAX, |run| now.since(run.last_seen));
        self.silent(silent, p)
    }

    /// When [`Floor::lapse`] will have something to say.
    pub(super) fn due(&self, longest: Duration, p: &FloorPolicy) -> Option<(Stamp, Timer)> {
        let seen = self.run.map_or(Stamp::ZERO, |run| run.last_seen);
        match self.speech {
            Speech::Silent => None,
            Speech::Overlap { .. } => Some((seen + p.resume_after, Timer::Resume)),
            Speech::User { since, .. } => Some(((seen + p.endpoint_after).min(since + longest), Timer::Endpoint)),
            Speech::Pressed { since, .. } => Some((since + longest, Timer::Endpoint)),
        }
    }

    /// The key went down: the floor is the user's. Returns the sound and whether the user was speaking already; `None` when the key
    /// was down.
    pub(super) fn press(&mut self, now: Stamp) -> Option<(Sound, bool)> {
        let (utterance, onset, speaking) = match self.speech {
            Speech::Pressed { .. } => return None,
            Speech::User { utterance, onset, .. } => (utterance, onset, true),
            Speech::Overlap { utterance, onset, .. } => (utterance, onset, false),
            Speech::Silent => {
                self.last = self.last.next();
                (self.last, now, false)
            }
        };
        self.key = true;
        self.speech = Speech::Pressed { utterance, onset, since: now };
        Some((self.sound(utterance, onset), speaking))
    }

    /// The key went up: the utterance is over, and what still sounds belongs to it. Nothing follows when what was said
    /// under it was over before.
    pub(super) fn release(&mut self, now: Stamp) -> Result<Option<Verdict>, NotDown> {
        if !std::mem::replace(&mut self.key, false) {
            return Err(NotDown);
        }
        let Speech::Pressed { .. } = self.speech else { return Ok(None) };
        let verdict = self.endpoint(now);
        self.ignore_present_sound(now);
        Ok(verdict)
    }

    /// Words of `utterance` were made out: it was speech. `None` when that is known, or it is another one.
    pub(super) fn words(&mut self, now: Stamp, words: u32, of: UtteranceId) -> Option<Sound> {
        match self.speech {
            Speech::Overlap { utterance, .. } if utterance == of => {
                if let Some(run) = &mut self.run {
                    run.evidence.words = words;
                }
                Some(self.confirm(now))
            }
            Speech::Overlap { .. } | Speech::Silent | Speech::User { .. } | Speech::Pressed { .. } => None,
        }
    }

    /// The answer that was held, if one was, is gone.
    pub(super) fn agent_gone(&mut self) {
        if let Speech::Overlap { held, .. } = &mut self.speech {
            *held = None;
        }
    }

    /// Newer input came by another way: what was being said is over, or was nothing.
    pub(super) fn yield_to_text(&mut self, now: Stamp) -> Option<Verdict> {
        match self.speech {
            Speech::Silent => {
                self.run = None;
                None
            }
            Speech::Overlap { utterance, onset, .. } => {
                let sound = self.sound(utterance, onset);
                self.rest();
                Some(Verdict::FalseAlarm(sound, None))
            }
            Speech::User { .. } | Speech::Pressed { .. } => self.endpoint(now),
        }
    }

    /// What is being said does not count.
    pub(super) fn dismiss(&mut self, now: Stamp) {
        self.rest();
        self.ignore_present_sound(now);
    }

    /// Whether somebody speaks or may be speaking.
    pub(super) fn view(&self, agent: bool) -> FloorView {
        match self.speech {
            Speech::Silent if agent => FloorView::Agent,
            Speech::Silent => FloorView::Quiet,
            Speech::Overlap { utterance, onset, held } => FloorView::Overlap { utterance, onset, held: held.is_some() },
            Speech::User { utterance, onset, .. } | Speech::Pressed { utterance, onset, .. } if agent => {
                FloorView::Overlap { utterance, onset, held: false }
            }
            Speech::User { utterance, onset, .. } | Speech::Pressed { utterance, onset, .. } => {
                FloorView::User { utterance, onset }
            }
        }
    }

    fn is_deaf(&mut self, at: Stamp, since: Stamp, gap: Duration) -> bool {
        let Some(deaf) = &mut self.deaf else { return false };
        if since > deaf.since || at.since(deaf.last) > gap {
            self.deaf = None;
            return false;
        }
        deaf.last = deaf.last.max(at);
        true
    }

    /// A voiced block: the run it continues or begins.
    fn voiced(&mut self, now: Stamp, at: Stamp, passed: Duration, v: &Voice, p: &FloorPolicy) -> Run {
        let goes_on = self.run.filter(|run| at.since(run.last_at) <= p.gap + BEAT);
        let began = at.back(BEAT);
        // A sound may have been there before it became voice, but not for longer than the recogniser is given.
        let onset = v.since.max(began.back(p.preroll)).max(self.not_before).min(began.max(self.not_before));
        let evidence = Evidence { speech: 0.0, level_dbfs: f32::NEG_INFINITY, explained: 1.0, ..Evidence::default() };
        let mut run = goes_on.unwrap_or(Run {
            onset,
            voiced: Duration::ZERO,
            weighted: Duration::ZERO,
            last_at: at,
            last_seen: now,
            evidence,
        });
        let fresh = passed.min(BEAT);
        run.voiced += fresh;
        // Merged blocks bring the sum of their weights; no more than the time that has passed for them allows.
        run.weighted += weighted(v.weight).min(passed * HEAVIEST);
        run.last_at = at;
        // A detector that repeats one block for ever must not keep anybody waiting for ever.
        if !fresh.is_zero() {
            run.last_seen = now;
        }
        run.evidence = Evidence {
            voiced_us: duration_us(run.voiced),
            quick_us: run.evidence.quick_us + if v.quick { duration_us(fresh) } else { 0 },
            speech: run.evidence.speech.max(v.speech),
            level_dbfs: run.evidence.level_dbfs.max(v.level_dbfs),
            noise_dbfs: v.noise_dbfs,
            explained: run.evidence.explained.min(v.explained),
            ..run.evidence
        };
        self.run = Some(run);
        run
    }

    /// Nothing was heard for `silent`.
    fn silent(&mut self, silent: Duration, p: &FloorPolicy) -> Option<Verdict> {
        match self.speech {
            Speech::Silent | Speech::Pressed { .. } => None,
            Speech::Overlap { utterance, onset, held } => (silent >= p.resume_after).then(|| {
                let sound = self.sound(utterance, onset);
                self.rest();
                Verdict::FalseAlarm(sound, held)
            }),
            Speech::User { onset, .. } => {
                if silent < p.endpoint_after {
                    return None;
                }
                let end = self.run.map_or(onset, |run| run.last_at);
                self.endpoint(end)
            }
        }
    }

    fn endpoint(&mut self, end: Stamp) -> Option<Verdict> {
        let utterance = match self.speech {
            Speech::Silent | Speech::Overlap { .. } => return None,
            Speech::User { utterance, .. } | Speech::Pressed { utterance, .. } => utterance,
        };
        self.rest();
        Some(Verdict::Endpoint { utterance, end })
    }

    /// The name and onset of what is being said, new if nothing was.
    fn name(&mut self) -> (UtteranceId, Stamp) {
        match self.speech {
            Speech::Overlap { utterance, onset, .. }
            | Speech::User { utterance, onset, .. }
            | Speech::Pressed { utterance, onset, .. } => (utterance, onset),
            Speech::Silent => {
                self.last = self.last.next();
                (self.last, self.run.map_or(self.not_before, |run| run.onset))
            }
        }
    }

    fn confirm(&mut self, now: Stamp) -> Sound {
        let (utterance, onset) = self.name();
        self.speech = Speech::User { utterance, onset, since: now };
        self.sound(utterance, onset)
    }

    fn sound(&self, utterance: UtteranceId, onset: Stamp) -> Sound {
        let evidence = self.run.map_or(Evidence::default(), |run| run.evidence);
        let push_to_talk = matches!(self.speech, Speech::Pressed { .. });
        Sound { utterance, onset, evidence: Evidence { push_to_talk, ..evidence } }
    }

    fn rest(&mut self) {
        if let Some(run) = self.run.take() {
            self.not_before = self.not_before.max(run.last_at);
        }
        self.speech = Speech::Silent;
    }

    fn ignore_present_sound(&mut self, now: Stamp) {
        self.deaf = Some(Deaf { since: now, last: now });
        self.not_before = self.not_before.max(self.last_at.unwrap_or(Stamp::ZERO));
    }
}

#[cfg(test)]
#[path = "floor_tests.rs"]
mod tests;
