//! The worlds of the search: what can happen in each, to which tool, under which policy.

use std::time::Duration;

use crate::event::{Cancellability, Declaration, OnBargeIn};
use crate::lab::check::Rules;
use crate::turn::{OnDisconnect, Policy};

/// How many worlds there are; the first byte of a path names one.
pub(super) const WORLDS: u8 = 8;

macro_rules! actions {
    ($($name:ident),* $(,)?) => {
        /// An event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Action { $($name),* }

        const ACTIONS: &[Action] = &[$(Action::$name),*];
    };
}

actions! {
    Say, Steer, SteerPast, Cancel, CancelAgain, CancelPast, VoiceHolds, VoiceTakesFloor, Words, NoWords,
    Text, CallTool, CallSame, ModelEnds, ModelFails, Sound, VoiceEnds, Heard, FallsSilent, Kept,
    AsksCommit, Result, ToolEnds, ToolFails, ToolUnknown, Stops, AbortedEnds,
    Happened, DidNotHappen, CannotTell, ProbeEnds, Allow, Refuse, LinkLost, LinkBack, TimerDue, Drain, Close, Dies,
}

impl Action {
    pub(super) fn of(byte: u8) -> Option<Action> {
        ACTIONS.get(byte as usize).copied()
    }
}

/// One world: what its tool is, what its policy is, and which events can happen in it. Few kinds of events can be followed far, all of
/// them only a little way; so there are both kinds of world.
pub(super) struct World {
    name: &'static str,
    class: Cancellability,
    keeps: bool,
    probes: bool,
    compensates: bool,
    approval: bool,
    on_disconnect: OnDisconnect,
    /// The store keeps at once.
    pub(super) keeps_at_once: bool,
    pub(super) menu: &'static [Action],
}

const PLAIN: World = World {
    name: "",
    class: Cancellability::ReadOnly,
    keeps: false,
    probes: true,
    compensates: false,
    approval: false,
    on_disconnect: OnDisconnect::GoOn,
    keeps_at_once: true,
    menu: ACTIONS,
};

const TOOLS: &[Action] = {
    use Action::*;
    &[
        Say,
        Cancel,
        CancelAgain,
        CallSame,
        ModelEnds,
        Kept,
        AsksCommit,
        Result,
        ToolEnds,
        ToolFails,
        ToolUnknown,
        Stops,
        AbortedEnds,
        Happened,
        DidNotHappen,
        CannotTell,
        ProbeEnds,
        Allow,
        Refuse,
        TimerDue,
        Dies,
        Close,
    ]
};

const KEPT: &[Action] = {
    use Action::*;
    &[
        Say,
        Cancel,
        VoiceTakesFloor,
        Words,
        NoWords,
        CallTool,
        CallSame,
        ModelEnds,
        AsksCommit,
        Result,
        ToolEnds,
        ToolUnknown,
        Stops,
        TimerDue,
    ]
};

const VOICES: &[Action] = {
    use Action::*;
    &[
        Say,
        Cancel,
        VoiceHolds,
        VoiceTakesFloor,
        Words,
        NoWords,
        Text,
        ModelEnds,
        Sound,
        VoiceEnds,
        Heard,
        FallsSilent,
        Stops,
        TimerDue,
        LinkLost,
        LinkBack,
    ]
};

const STEERING: &[Action] = {
    use Action::*;
    &[
        Say,
        Steer,
        SteerPast,
        Cancel,
        CancelAgain,
        CancelPast,
        Text,
        CallTool,
        ModelEnds,
        ModelFails,
        Result,
        ToolEnds,
        Sound,
        VoiceEnds,
        Heard,
        Stops,
        TimerDue,
        LinkLost,
        LinkBack,
        Drain,
        Close,
        Kept,
        Dies,
    ]
};

static WORLD: [World; WORLDS as usize] = [
    World { name: "irreversible tool", class: Cancellability::Irreversible, keeps_at_once: false, menu: TOOLS, ..PLAIN },
    World { name: "tool that takes back", class: Cancellability::RemoteCancel, menu: TOOLS, ..PLAIN },
    World { name: "staged tool, nobody to ask", class: Cancellability::Staged, probes: false, menu: TOOLS, ..PLAIN },
    World {
        name: "tool with approval that undoes",
        class: Cancellability::Irreversible,
        approval: true,
        compensates: true,
        menu: TOOLS,
        ..PLAIN
    },
    World { name: "calls kept over a barge-in", class: Cancellability::HumanProcess, keeps: true, menu: KEPT, ..PLAIN },
    World {
        name: "voices and a link that is waited for",
        on_disconnect: OnDisconnect::Hold(Duration::from_secs(2)),
        menu: VOICES,
        ..PLAIN
    },
    World {
        name: "steering and a link that is not",
        on_disconnect: OnDisconnect::CancelNow,
        keeps_at_once: false,
        menu: STEERING,
        ..PLAIN
    },
    World { name: "everything", class: Cancellability::Irreversible, keeps: true, keeps_at_once: false, ..PLAIN },
];

/// A world by its number; one that can do everything when there is none.
pub(super) fn world(world: u8) -> &'static World {
    WORLD.get(world as usize).unwrap_or(&PLAIN)
}

/// What a world is called.
pub(super) fn name(world: u8) -> &'static str {
    self::world(world).name
}

/// What holds in a world.
pub(super) fn rules(world: u8) -> Rules {
    let world = self::world(world);
    let mut tool = Declaration::new("act", world.class);
    tool.on_barge_in = if world.keeps { OnBargeIn::Keep } else { OnBargeIn::Cancel };
    tool.probes = world.probes;
    tool.compensates = world.compensates;
    tool.approval = world.approval;
    let mut policy = Policy::default();
    policy.budget.turn = Duration::from_secs(20);
    policy.budget.requests = 3;
    policy.budget.reconcile_attempts = 2;
    policy.on_disconnect = world.on_disconnect;
    Rules::new(policy, vec![tool])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_an_action_is_its_own() {
        for (i, action) in ACTIONS.iter().enumerate() {
            assert_eq!(*action as usize, i);
            assert_eq!(Action::of(i as u8), Some(*action));
        }
    }
}
