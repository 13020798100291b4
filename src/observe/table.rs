//! `table`: every measured number once, with its name and what it counts. Whoever writes them out, for whatever reader, reads this.

use super::{Histogram, Metrics, TailPart};

/// Counts that only rise, told apart by a label if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Without a prefix or a suffix.
    pub(crate) name: &'static str,
    /// What is counted, without a full stop.
    pub(crate) help: &'static str,
    /// What the values of the label say; empty for a single count.
    pub(crate) label: &'static str,
    /// By the label's value.
    pub(crate) values: Vec<(&'static str, u64)>,
}

/// Times, told apart by a label if there is one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times<'a> {
    /// Without a prefix or a suffix.
    pub(crate) name: &'static str,
    /// From what to what, without a full stop.
    pub(crate) help: &'static str,
    /// What the values of the label say; empty for a single histogram.
    pub(crate) label: &'static str,
    /// By the label's value.
    pub(crate) values: Vec<(&'static str, &'a Histogram)>,
}

impl Metrics {
    /// Every count but gauges.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        let one = |name, help, value| Counts { name, help, label: "", values: vec![("", value)] };
        let some = |name, help, label, values: &[_]| Counts { name, help, label, values: values.to_vec() };
        let (late, ended, tails) = (self.late_events(), self.turns_by_terminal(), self.tails());
        let (calls, steering) = (self.calls(), self.steering());
        let (endings, effects, outcomes) = (calls.by_ending(), calls.side_effects_after_stop(), calls.reconciled());
        vec![
            some(
                "late_events",
                "Output that came too late, by what became of it",
                "outcome",
                &[("dropped", late.dropped), ("delivered", late.delivered)],
            ),
            some(
                "turns",
                "Turns that ended, by how",
                "terminal",
                &[
                    ("completed", ended.completed),
                    ("cancelled", ended.cancelled),
                    ("failed", ended.failed),
                    ("reconcile_required", ended.reconcile_required),
                ],
            ),
            some(
                "audible_tails",
                "Audible tails, by how their downstream part is known",
                "downstream",
                &[("measured", tails.measured()), ("declared", self.audible_tail().count() - tails.measured())],
            ),
            some(
                "calls",
                "Calls of tools that ended, by how",
                "ending",
                &[
                    ("done", endings.done),
                    ("failed", endings.failed),
                    ("cancelled", endings.cancelled),
                    ("unknown", endings.unknown),
                    ("not_started", endings.not_started),
                ],
            ),
            some(
                "side_effects_after_stop",
                "Changes outside that a stop came too late for, by why; let_through must stay zero",
                "reason",
                &[("under_way", effects.under_way), ("found_out", effects.found_out), ("let_through", effects.let_through)],
            ),
            some(
                "reconciled",
                "What was found out about calls of unknown outcome",
                "outcome",
                &[
                    ("happened", outcomes.happened),
                    ("did_not_happen", outcomes.did_not_happen),
                    ("compensated", outcomes.compensated),
                    ("needs_person", outcomes.needs_person),
                ],
            ),
            some(
                "steering_inputs",
                "Inputs that were to steer a running turn, by what became of them",
                "state",
                &[("queued", steering.queued), ("consumed", steering.consumed), ("returned", steering.returned)],
            ),
            one("call_conflicts", "Second endings of a call", calls.conflicts()),
            one("stop_work_aborted", "Stopped turns in which a task did not stop by itself", self.objectives().work_aborted()),
            one("late_texts", "Pieces of text made after their answer was stopped", self.late_texts()),
            one("audible_tail_broken_sums", "Tails whose parts do not sum up to the whole", tails.broken_sums()),
            one("barge_ins", "Times that a person took the floor from the agent", self.barge_ins()),
            one("holds", "Answers paused on weak evidence", self.holds()),
            one("false_interruptions", "Holds that turned out not to be a barge-in", self.false_interruptions()),
            one("playback_underrun", "Times that the loudspeaker ran dry in an answer", self.underruns()),
            one("terminal_conflicts", "Second terminals of a turn", self.terminal_conflicts()),
            one("duplicate_cancel_effects", "Second effects of a cancel on one turn", self.duplicate_cancel_effects()),
            one("odd_inputs", "Inputs that made no sense in the state they met", self.odd_inputs()),
            one("unheard_characters", "Characters of answers that were made and never heard", self.unheard_chars()),
        ]
    }

    /// Every histogram.
    pub(crate) fn times(&self) -> Vec<Times<'_>> {
        let one = |name, help, value| Times { name, help, label: "", values: vec![("", value)] };
        let parts = TailPart::ALL.map(|part| (part.label(), self.tail(part)));
        vec![
            Times {
                name: "audible_tail",
                help: "Onset of a barge-in to the last stale sample at the loudspeaker (to_silence), its parts and its other endpoints",
                label: "stage",
                values: [("to_silence", self.audible_tail())].into_iter().chain(parts).collect(),
            },
            one("turn_ttft", "Turn started to the first text of its answer", self.ttft()),
            one("turn_ttfa", "End of the user's speech, or typed text, to the first sample played", self.ttfa()),
            one("turn_e2e", "Turn accepted to its terminal", self.e2e()),
            one("cancel_propagation", "Cancel accepted or barge-in to the last task of the turn ended", self.cancel_propagation()),
            one(
                "stop_delivery",
                "Turn asked to stop to the record that its last sample is out",
                self.objectives().delivery_stopped(),
            ),
            one("stop_work", "Turn asked to stop to its last task having stopped by itself", self.objectives().work_stopped()),
            one("stop_confirmed", "Turn asked to stop to a call of it of unknown outcome being settled", self.calls().confirmed()),
        ]
    }
}
