//! `snapshot`: the authoritative state, as a client that (re)connects is told it before anything else.

use serde::Serialize;

use crate::event::{CancelCause, Pii, Stage, Terminal};
use crate::id::{Generation, Seq, TaskId, TurnId, UtteranceId};
use crate::time::Stamp;
use crate::turn::calls::CallView;
use crate::turn::life::Life;
use crate::turn::machine::{Counters, Machine};

/// The state of a session at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// The moment.
    pub at: Stamp,
    /// The current generation; older output is stale.
    pub generation: Generation,
    /// The last record written (it may still wait for the store).
    pub last_seq: Seq,
    /// Who is speaking.
    pub floor: FloorView,
    /// The turn that is accepted or being answered.
    pub turn: Option<TurnView>,
    /// Turns that were asked to stop, or failed, and have not ended yet.
    pub stopping: Vec<TurnView>,
    /// The turns that ended last, the oldest first; at most 16.
    pub ended: Vec<EndedView>,
    /// Calls that are open, and ended ones of which nobody knows whether they happened.
    pub calls: Vec<CallView>,
    /// Tasks that were aborted or left to themselves and are not over yet, as far as is known.
    pub zombies: Vec<ZombieView>,
    /// No new turns are taken.
    pub draining: bool,
    /// The session is over.
    pub over: bool,
    /// What was counted so far.
    pub counters: Counters,
}

/// Who has the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FloorView {
    /// Nobody.
    Quiet,
    /// The user speaks.
    User {
        /// The stretch of speech.
        utterance: UtteranceId,
        /// Its estimated first sound.
        onset: Stamp,
    },
    /// The agent thinks or speaks.
    Agent,
    /// The user makes a sound that may be speech, or speaks while an answer goes on.
    Overlap {
        /// The stretch of sound.
        utterance: UtteranceId,
        /// Its estimated first sound.
        onset: Stamp,
        /// Whether the answer is held for it.
        held: bool,
    },
}

/// How far a turn without a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LifeView {
    /// Its input is not complete.
    Accepted,
    /// It is being answered.
    Running,
    /// It was asked to stop and is stopping.
    CancelRequested {
        /// Why.
        cause: CancelCause,
    },
    /// It failed and is stopping.
    Failing,
}

/// A turn without a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnView {
    /// Which.
    pub turn: TurnId,
    /// The turn it interrupted or corrects.
    pub parent: Option<TurnId>,
    /// How far it is.
    pub life: LifeView,
    /// The generation of its reply; 0 while there is none.
    pub generation: Generation,
    /// Its absolute end.
    pub deadline: Stamp,
    /// What the user said or typed, when it is complete.
    pub input: Option<Pii<String>>,
    /// What the model has said so far.
    pub said: Pii<String>,
    /// The part of it that was heard.
    pub heard: Pii<String>,
    /// Whether its answer is held.
    pub held: bool,
}

/// A task that outlives its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZombieView {
    /// Which.
    pub task: TaskId,
    /// Which kind.
    pub stage: Stage,
    /// When its turn went on without it.
    pub since: Stamp,
    /// Whether it was not aborted because it had leave to commit.
    pub left: bool,
}

/// A turn with its terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedView {
    /// Which.
    pub turn: TurnId,
    /// The turn it interrupted or corrected.
    pub parent: Option<TurnId>,
    /// How it ended.
    pub terminal: Terminal,
    /// What the user said or typed, if it came so far.
    pub input: Option<Pii<String>>,
    /// The part of the answer that was heard.
    pub heard: Pii<String>,
    /// The part that was made and never heard.
    pub unheard: Pii<String>,
}

impl Machine {
    /// The authoritative state.
    pub fn snapshot(&self) -> Snapshot {
        let held = self.pause.is_held();
        let view = |turn: &super::turns::Turn, held: bool| TurnView {
            turn: turn.id,
            parent: turn.parent,
            life: match &turn.life {
                Life::Accepted => LifeView::Accepted,
                // An ended turn is in `ended`, never here.
                Life::Running | Life::Ended(_) => LifeView::Running,
                Life::CancelRequested { cause } => LifeView::CancelRequested { cause: *cause },
                Life::Failing { .. } => LifeView::Failing,
            },
            generation: turn.generation,
            deadline: turn.budget.deadline(),
            input: turn.input.clone(),
            said: turn.reply.said().into(),
            heard: turn.reply.heard().heard.into(),
            held,
        };
        let live = self.turns.live.as_ref();
        Snapshot {
            at: self.now,
            generation: self.gate.generation(),
            last_seq: self.gate.last(),
            floor: self.floor.view(live.is_some_and(|t| t.is_running())),
            turn: live.map(|t| view(t, held)),
            stopping: self.turns.closing.iter().map(|t| view(t, false)).collect(),
            ended: (self.turns.endings.recent())
                .map(|r| EndedView {
                    turn: r.turn,
                    parent: r.parent,
                    terminal: r.terminal.clone(),
                    input: r.input.clone(),
                    heard: r.heard.clone(),
                    unheard: r.unheard.clone(),
                })
                .collect(),
            calls: self.calls.all().filter(|c| c.is_open() || c.is_unknown()).map(CallView::from).collect(),
            zombies: (self.zombies.iter())
                .map(|(&task, &(stage, since))| ZombieView { task, stage, since, left: self.left.contains_key(&task) })
                .collect(),
            draining: self.draining,
            over: self.is_over(),
            counters: self.counters(),
        }
    }
}
