//! `turns`: the turn that is being answered, those that are stopping, and how the others ended.

use crate::event::{Pii, Stage};
use crate::id::{Generation, Seq, TaskId, TurnId};
use crate::time::{BLOCK_SAMPLES, Stamp};
use crate::turn::budget::Budget;
use crate::turn::inbox::Inbox;
use crate::turn::life::Life;
use crate::turn::memory::Endings;
use crate::turn::reply::Reply;
use crate::turn::tree::Tree;

/// Unplayed samples that may lie in a resampler or a half-filled block while more audio is expected.
const IN_THE_WORKS: u64 = 4 * BLOCK_SAMPLES as u64;
/// Unplayed samples that a rounding may leave when all audio is there.
const ROUNDING: u64 = BLOCK_SAMPLES as u64;

/// What kind of turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The model answers the person.
    Conversation,
    /// A fixed text is spoken.
    Announcement { interruptible: bool },
}

/// One turn with everything that is its own.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) id: TurnId,
    pub(super) parent: Option<TurnId>,
    pub(super) life: Life,
    pub(super) accepted_at: Stamp,
    /// The generation of its reply; unset until it runs.
    pub(super) generation: Generation,
    pub(super) input: Option<Pii<String>>,
    pub(super) kind: Kind,
    /// Questions put to the model so far.
    pub(super) requests: u32,
    /// Calls the model asked for so far.
    pub(super) calls: u32,
    /// Calls ended since the model was asked last, so it must be told.
    pub(super) news: bool,
    pub(super) inbox: Inbox,
    /// What was looked up for it.
    pub(super) found: Option<Pii<String>>,
    /// What its answer must heed.
    pub(super) constraints: Option<Pii<String>>,
    /// The present synthesizer was told that its text is complete.
    pub(super) text_over: bool,
    pub(super) tree: Tree,
    pub(super) budget: Budget,
    pub(super) reply: Reply,
    /// The record of the request that stops it.
    pub(super) stopped_by: Option<Seq>,
    /// When stopping must be over, if whoever asked said so.
    pub(super) stop_by: Option<Stamp>,
    /// The sink ran dry after the last audio was there: all of it was played.
    pub(super) ran_dry: bool,
    /// When the last audio was queued: a gap that began before says nothing about its end.
    pub(super) queued_at: Stamp,
}

impl Turn {
    pub(super) fn is_running(&self) -> bool {
        self.life == Life::Running
    }

    /// Whether a voice may interrupt it once it sounds, as far as the turn itself is concerned.
    pub(super) fn is_interruptible(&self) -> bool {
        match self.kind {
            Kind::Conversation => true,
            Kind::Announcement { interruptible } => interruptible,
        }
    }

    /// Whether something of this stage is at work.
    pub(super) fn works_on(&self, stage: Stage) -> bool {
        self.tree.all().any(|b| b.stage == stage && b.at_work())
    }

    /// The stage that is at work, the earliest first.
    pub(super) fn working_stage(&self) -> Stage {
        if self.life == Life::Accepted {
            return Stage::Listen;
        }
        let stages = [Stage::Retrieve, Stage::Generate, Stage::Tool, Stage::Synthesize];
        stages.into_iter().find(|stage| self.works_on(*stage)).unwrap_or(Stage::Play)
    }

    /// Whether all audio of the reply that will ever come is there, unless the model is asked again.
    pub(super) fn audio_complete(&self) -> bool {
        let stages = [Stage::Retrieve, Stage::Generate, Stage::Tool, Stage::Synthesize];
        !stages.into_iter().any(|stage| self.works_on(stage)) && !self.reply.has_unfed_words()
    }

    /// Whether as much of the queued audio was played as can have been: all of it when no more will come, all but what lies in the
    /// works otherwise.
    pub(super) fn is_played_out(&self) -> bool {
        let unplayed = self.reply.unplayed();
        if self.audio_complete() {
            self.ran_dry || unplayed == 0 || self.reply.sounded() && unplayed <= ROUNDING
        } else {
            unplayed <= IN_THE_WORKS
        }
    }
}

/// All turns of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// Accepted or running.
    pub(super) live: Option<Turn>,
    /// Stopping; each for no longer than the grace.
    pub(super) closing: Vec<Turn>,
    pub(super) endings: Endings,
    pub(super) last: TurnId,
}

impl Turns {
    /// The live turn, if it is running.
    pub(super) fn running(&mut self) -> Option<&mut Turn> {
        self.live.as_mut().filter(|t| t.is_running())
    }

    /// The turn without a terminal whose reply has this generation.
    pub(super) fn of_generation(&mut self, generation: Generation) -> Option<&mut Turn> {
        self.live.iter_mut().chain(self.closing.iter_mut()).find(|t| generation.is_set() && t.generation == generation)
    }

    /// The turn without a terminal that owns this task.
    pub(super) fn of_task(&mut self, task: TaskId) -> Option<&mut Turn> {
        self.live.iter_mut().chain(self.closing.iter_mut()).find(|t| t.tree.get(task).is_some())
    }
}
