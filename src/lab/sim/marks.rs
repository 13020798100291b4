//! Coverage marks: how often each interesting situation occurred. One that never does is a hole in the generator.

use crate::event::{
    CallEnding, CallFailure, CancelCause, Event, FailReason, LateKind, NotStarted, Outcome, Record, TaskOutcome, Terminal,
};

macro_rules! marks {
    ($($name:ident),* $(,)?) => {
        /// A situation worth meeting.
        #[allow(non_camel_case_types, reason = "the variants are the names that are printed")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Mark { $($name),* }

        /// The names of all marks, in their order.
        pub const MARKS: &[&str] = &[$(stringify!($name)),*];
    };
}

marks! {
    completed, cancelled_user, cancelled_barge_in, cancelled_superseded, cancelled_transport, cancelled_shutdown,
    failed_deadline, failed_first_token, failed_idle, failed_tool_timeout, failed_too_many_requests, failed_provider,
    failed_playout_stalled, failed_nothing_heard, failed_restarted, reconcile_required,
    barge_in, held, false_alarm, silenced, silenced_with_tail, underrun, audio_started,
    call_done, call_failed, call_timeout, call_cancelled, call_unknown, call_no_budget, call_unknown_tool, call_refused,
    call_not_started_cancelled, call_too_many, call_earlier_unknown, call_joined, call_kept, checkpoint,
    approval_asked, approval_granted, approval_refused, commit_intent, commit_sent,
    reconciled_happened, reconciled_did_not_happen, reconciled_compensated, reconciled_needs_person,
    input_queued, input_consumed, input_returned, second_request, handed_over, announced,
    task_aborted, task_left, task_failed, late_text, late_audio, late_transcript, late_result, late_report, odd,
    link_lost, link_up, store_full, store_stalled, ring_full, driver_stalled, restarted, restarted_with_open_commit,
    restarted_with_running_turn, torn_write, leave, refused_commit, arrived_outside, taken_back, undone,
    cancel_accepted, cancel_already_terminal, cancel_reconcile, cancel_no_such_turn, request_repeated,
    steered, steer_started, refused_draining, refused_no_turn, refused_mismatch, refused_not_steerable, refused_inbox_full,
    refused_empty, refused_no_such_turn, approve_not_asked, resolve_settled, resolve_already, resolve_not_open,
    closed_while_running, drained,
}

/// Counts of all marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks([u64; MARKS.len()]);

impl Default for Marks {
    fn default() -> Self {
        Marks([0; MARKS.len()])
    }
}

impl Marks {
    pub(super) fn hit(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Marks) {
        for (mine, other) in self.0.iter_mut().zip(&other.0) {
            *mine += other;
        }
    }

    /// Each mark's name and how often it was met.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        MARKS.iter().copied().zip(self.0)
    }

    /// The situations that were never met.
    pub fn holes(&self) -> Vec<&'static str> {
        self.all().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }

    /// Looks at a record.
    pub(super) fn record(&mut self, record: &Record) {
        let mark = match &record.event {
            Event::TurnEnded { terminal, .. } => of_terminal(terminal),
            Event::CallEnded { ending, .. } => of_ending(*ending),
            Event::BargeIn { .. } => Mark::barge_in,
            Event::Held { .. } => Mark::held,
            Event::FalseInterruption { .. } => Mark::false_alarm,
            Event::Silenced { tail: None, .. } => Mark::silenced,
            Event::Silenced { tail: Some(_), .. } => Mark::silenced_with_tail,
            Event::Underrun { .. } => Mark::underrun,
            Event::AudioStarted => Mark::audio_started,
            Event::CallJoined { .. } => Mark::call_joined,
            Event::CallKept { .. } => Mark::call_kept,
            Event::CallCheckpoint { .. } => Mark::checkpoint,
            Event::ApprovalAsked { .. } => Mark::approval_asked,
            Event::ApprovalGiven { granted: true, .. } => Mark::approval_granted,
            Event::ApprovalGiven { granted: false, .. } => Mark::approval_refused,
            Event::CommitIntent { .. } => Mark::commit_intent,
            Event::CommitSent { .. } => Mark::commit_sent,
            Event::Reconciled { outcome: Outcome::Happened, .. } => Mark::reconciled_happened,
            Event::Reconciled { outcome: Outcome::DidNotHappen, .. } => Mark::reconciled_did_not_happen,
            Event::Reconciled { outcome: Outcome::Compensated, .. } => Mark::reconciled_compensated,
            Event::Reconciled { outcome: Outcome::NeedsPerson, .. } => Mark::reconciled_needs_person,
            Event::InputQueued { .. } => Mark::input_queued,
            Event::InputConsumed { .. } => Mark::input_consumed,
            Event::InputReturned { .. } => Mark::input_returned,
            Event::ModelRequested { request } if *request > 1 => Mark::second_request,
            Event::HandedOver { .. } => Mark::handed_over,
            Event::Announced { .. } => Mark::announced,
            Event::TaskEnded { outcome: TaskOutcome::Aborted, .. } => Mark::task_aborted,
            Event::TaskEnded { outcome: TaskOutcome::Left, .. } => Mark::task_left,
            Event::TaskEnded { outcome: TaskOutcome::Failed, .. } => Mark::task_failed,
            Event::LateDropped { kind: LateKind::Text, .. } => Mark::late_text,
            Event::LateDropped { kind: LateKind::Audio, .. } => Mark::late_audio,
            Event::LateDropped { kind: LateKind::Transcript, .. } => Mark::late_transcript,
            Event::LateDropped { kind: LateKind::Result, .. } => Mark::late_result,
            Event::LateDropped { kind: LateKind::Report, .. } => Mark::late_report,
            Event::Odd { .. } => Mark::odd,
            Event::LinkLost => Mark::link_lost,
            Event::LinkUp => Mark::link_up,
            _ => return,
        };
        self.hit(mark);
    }
}

fn of_terminal(terminal: &Terminal) -> Mark {
    match terminal {
        Terminal::Completed => Mark::completed,
        Terminal::Cancelled { cause: CancelCause::User } => Mark::cancelled_user,
        Terminal::Cancelled { cause: CancelCause::BargeIn } => Mark::cancelled_barge_in,
        Terminal::Cancelled { cause: CancelCause::Superseded } => Mark::cancelled_superseded,
        Terminal::Cancelled { cause: CancelCause::Transport } => Mark::cancelled_transport,
        Terminal::Cancelled { cause: CancelCause::Shutdown } => Mark::cancelled_shutdown,
        Terminal::ReconcileRequired { .. } => Mark::reconcile_required,
        Terminal::Failed { reason } => match reason {
            FailReason::DeadlineExceeded { .. } => Mark::failed_deadline,
            FailReason::FirstTokenTimeout => Mark::failed_first_token,
            FailReason::IdleTimeout { .. } => Mark::failed_idle,
            FailReason::ToolTimeout => Mark::failed_tool_timeout,
            FailReason::TooManyRequests => Mark::failed_too_many_requests,
            FailReason::Provider { .. } => Mark::failed_provider,
            FailReason::PlayoutStalled => Mark::failed_playout_stalled,
            FailReason::NothingHeard => Mark::failed_nothing_heard,
            FailReason::Restarted => Mark::failed_restarted,
        },
    }
}

fn of_ending(ending: CallEnding) -> Mark {
    match ending {
        CallEnding::Done => Mark::call_done,
        CallEnding::Failed { failure: CallFailure::Timeout } => Mark::call_timeout,
        CallEnding::Failed { failure: CallFailure::Tool { .. } } => Mark::call_failed,
        CallEnding::Cancelled => Mark::call_cancelled,
        CallEnding::Unknown => Mark::call_unknown,
        CallEnding::NotStarted { why } => match why {
            NotStarted::NoBudget => Mark::call_no_budget,
            NotStarted::UnknownTool => Mark::call_unknown_tool,
            NotStarted::Refused => Mark::call_refused,
            NotStarted::Cancelled => Mark::call_not_started_cancelled,
            NotStarted::TooMany => Mark::call_too_many,
            NotStarted::EarlierUnknown => Mark::call_earlier_unknown,
        },
    }
}
