//! `timer`: everything the machine waits for, as an enum and a table.
//!
//! The table is filled from the parts after every step, so a timer that outlived its reason cannot exist.

use crate::time::Stamp;

/// What the machine waits for, the more urgent first when several are due at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// A stopping task has had its grace.
    Grace,
    /// A turn reached the end of its budget.
    Deadline,
    /// A lookup for the model has had its time.
    Retrieve,
    /// The model has answered for as long as it may.
    Generate,
    /// A tool call exceeds its cap.
    Tool,
    /// Sound that held the answer has been gone long enough to have been a false alarm.
    Resume,
    /// The user has been silent long enough to have finished (or has spoken longer than anybody may).
    Endpoint,
    /// The recogniser owes its last word.
    FinalTranscript,
    /// The model owes its first token.
    FirstToken,
    /// The model's stream fell silent.
    GenerateIdle,
    /// The synthesizer has text and gives no audio.
    SynthesizeIdle,
    /// Audio is queued and the sink does not move.
    PlayoutStall,
    /// The link has been away for as long as the policy waits.
    Disconnect,
    /// The outside is to be asked about a call of which nobody knows, or has not answered in time.
    Reconcile,
    /// The closing session has waited for its store long enough.
    Closing,
}

impl Timer {
    /// All of them, in the order of urgency.
    pub const ALL: [Timer; 15] = [
        Timer::Grace,
        Timer::Deadline,
        Timer::Retrieve,
        Timer::Generate,
        Timer::Tool,
        Timer::Resume,
        Timer::Endpoint,
        Timer::FinalTranscript,
        Timer::FirstToken,
        Timer::GenerateIdle,
        Timer::SynthesizeIdle,
        Timer::PlayoutStall,
        Timer::Disconnect,
        Timer::Reconcile,
        Timer::Closing,
    ];
}

/// When each timer is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    due: [Option<Stamp>; Timer::ALL.len()],
}

impl Timers {
    /// Arms `timer` for `due`, or disarms it.
    pub(super) fn set(&mut self, timer: Timer, due: Option<Stamp>) {
        self.due[timer as usize] = due;
    }

    /// The next one due, the more urgent first on a tie.
    pub(super) fn soonest(&self) -> Option<(Stamp, Timer)> {
        let mut best: Option<(Stamp, Timer)> = None;
        for timer in Timer::ALL {
            if let Some(due) = self.due[timer as usize]
                && best.is_none_or(|(at, _)| due < at)
            {
                best = Some((due, timer));
            }
        }
        best
    }
}

/// The earlier of two moments that may not be set.
pub(super) fn earlier(a: Option<Stamp>, b: Option<Stamp>) -> Option<Stamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_has_its_own_place_in_the_table() {
        for (place, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, place, "{timer:?}");
        }
    }

    #[test]
    fn the_soonest_is_first_and_urgency_breaks_a_tie() {
        let mut timers = Timers::default();
        assert_eq!(timers.soonest(), None);
        timers.set(Timer::Closing, Some(Stamp::from_millis(5)));
        timers.set(Timer::Endpoint, Some(Stamp::from_millis(7)));
        assert_eq!(timers.soonest(), Some((Stamp::from_millis(5), Timer::Closing)));
        timers.set(Timer::Grace, Some(Stamp::from_millis(5)));
        assert_eq!(timers.soonest(), Some((Stamp::from_millis(5), Timer::Grace)));
        timers.set(Timer::Grace, None);
        timers.set(Timer::Closing, None);
        assert_eq!(timers.soonest(), Some((Stamp::from_millis(7), Timer::Endpoint)));
    }

    #[test]
    fn the_earlier_of_two_moments() {
        let (a, b) = (Some(Stamp::from_millis(1)), Some(Stamp::from_millis(2)));
        for (x, y, want) in [(a, b, a), (b, a, a), (a, None, a), (None, b, b), (None, None, None)] {
            assert_eq!(earlier(x, y), want);
        }
    }
}
