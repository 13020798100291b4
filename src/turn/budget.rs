//! `budget`: how long a turn and its stages may take.
//!
//! One absolute end, of which a reserve is kept back for closing. Silence of a stream is told apart from back-pressure: while
//! sound is still moving out, or is paused, nobody is blamed for not making more.

use std::time::Duration;

use crate::time::Stamp;
use crate::turn::BudgetPolicy;

/// The time of one turn.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    caps: BudgetPolicy,
    deadline: Stamp,
    /// When the lookup for the model has had its time.
    retrieve: Option<Stamp>,
    /// When the model's present answer has had its time.
    generate: Option<Stamp>,
    first_token: Option<Stamp>,
    /// Last text of a model that has begun and not ended.
    text_at: Option<Stamp>,
    /// Since when the synthesizer owes audio (or its end).
    audio_owed: Option<Stamp>,
    /// When sound last moved, or was last free to.
    moved_at: Stamp,
}

impl Budget {
    /// The budget of a turn accepted at `now`.
    pub(super) fn new(now: Stamp, caps: &BudgetPolicy) -> Self {
        let deadline = now + caps.turn;
        Budget {
            caps: caps.clone(),
            deadline,
            retrieve: None,
            generate: None,
            first_token: None,
            text_at: None,
            audio_owed: None,
            moved_at: now,
        }
    }

    /// The absolute end.
    pub(super) fn deadline(&self) -> Stamp {
        self.deadline
    }

    /// The end of a stage that begins at `now`: its own cap, or what the turn has left less the closing reserve.
    pub(super) fn stage_deadline(&self, now: Stamp, cap: Option<Duration>) -> Stamp {
        let end = self.work_until();
        cap.map_or(end, |cap| end.min(now + cap))
    }

    /// When work must end so that the turn can close in time.
    pub(super) fn work_until(&self) -> Stamp {
        self.deadline.back(self.caps.closing_reserve)
    }

    /// What is left for work.
    pub(super) fn left(&self, now: Stamp) -> Duration {
        self.work_until().since(now)
    }

    /// Something is looked up for the model; the end of that stage.
    pub(super) fn looks_up(&mut self, now: Stamp) -> Stamp {
        let end = self.stage_deadline(now, Some(self.caps.retrieve));
        self.retrieve = Some(end);
        end
    }

    /// The lookup is over, or no longer waited for.
    pub(super) fn looked_up(&mut self) {
        self.retrieve = None;
    }

    /// When the lookup has had its time.
    pub(super) fn retrieve_due(&self) -> Option<Stamp> {
        self.retrieve
    }

    /// The model was asked; the end of that stage.
    pub(super) fn asked(&mut self, now: Stamp) -> Stamp {
        self.first_token = Some(now + self.caps.first_token);
        let end = self.stage_deadline(now, Some(self.caps.generate));
        self.generate = Some(end);
        end
    }

    /// When the model's present answer has had its time.
    pub(super) fn generate_due(&self) -> Option<Stamp> {
        self.generate
    }

    /// The model said something.
    pub(super) fn text(&mut self, now: Stamp) {
        self.first_token = None;
        self.text_at = Some(now);
    }

    /// The model is done.
    pub(super) fn text_done(&mut self) {
        self.generate = None;
        self.first_token = None;
        self.text_at = None;
    }

    /// The synthesizer was given text, or told that the text is complete.
    pub(super) fn fed(&mut self, now: Stamp) {
        self.audio_owed.get_or_insert(now);
    }

    /// The synthesizer gave audio, and owes `more` or not.
    pub(super) fn audio(&mut self, now: Stamp, more: bool, queue_was_empty: bool) {
        self.audio_owed = more.then_some(now);
        if queue_was_empty {
            self.moved_at = now;
        }
    }

    /// The synthesizer is done.
    pub(super) fn audio_done(&mut self) {
        self.audio_owed = None;
    }

    /// Sound moved, or may move again after a pause.
    pub(super) fn moved(&mut self, now: Stamp) {
        self.moved_at = self.moved_at.max(now);
    }

    /// When the model's first token is overdue.
    pub(super) fn first_token_due(&self) -> Option<Stamp> {
        self.first_token
    }

    /// When the model's stream counts as fallen silent; never while the answer is paused.
    pub(super) fn generate_idle_due(&self, paused: bool) -> Option<Stamp> {
        self.idle(self.text_at, paused)
    }

    /// When the synthesizer's stream counts as fallen silent; never while the answer is paused.
    pub(super) fn synthesize_idle_due(&self, paused: bool) -> Option<Stamp> {
        self.idle(self.audio_owed, paused)
    }

    fn idle(&self, since: Option<Stamp>, paused: bool) -> Option<Stamp> {
        if paused { None } else { since.map(|since| since.max(self.moved_at) + self.caps.idle) }
    }

    /// When the sink counts as stalled: sound is queued, not paused, and does not move.
    pub(super) fn stall_due(&self, queued: bool, paused: bool) -> Option<Stamp> {
        (queued && !paused).then(|| self.moved_at + self.caps.playout_stall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Stamp {
        Stamp::from_millis(millis)
    }

    fn budget() -> Budget {
        let caps = BudgetPolicy {
            turn: Duration::from_secs(60),
            closing_reserve: Duration::from_secs(1),
            first_token: Duration::from_secs(5),
            idle: Duration::from_secs(4),
            grace: Duration::from_millis(100),
            playout_stall: Duration::from_secs(3),
            retrieve: Duration::from_secs(2),
            generate: Duration::from_secs(30),
            ..BudgetPolicy::default()
        };
        Budget::new(ms(1_000), &caps)
    }

    #[test]
    fn a_stage_gets_its_cap_or_what_is_left() {
        let b = budget();
        assert_eq!(b.deadline(), ms(61_000));
        assert_eq!(b.stage_deadline(ms(1_000), None), ms(60_000));
        assert_eq!(b.stage_deadline(ms(1_000), Some(Duration::from_secs(9))), ms(10_000));
        assert_eq!(b.stage_deadline(ms(59_000), Some(Duration::from_secs(9))), ms(60_000));
    }

    #[test]
    fn a_lookup_and_an_answer_have_their_own_share_of_what_is_left() {
        let mut b = budget();
        assert_eq!(b.left(ms(59_500)), Duration::from_millis(500));
        assert_eq!(b.left(ms(60_500)), Duration::ZERO);
        assert_eq!(b.looks_up(ms(1_000)), ms(3_000));
        assert_eq!(b.retrieve_due(), Some(ms(3_000)));
        b.looked_up();
        assert_eq!(b.retrieve_due(), None);
        assert_eq!(b.asked(ms(2_000)), ms(32_000));
        assert_eq!(b.generate_due(), Some(ms(32_000)));
        assert_eq!(b.asked(ms(40_000)), ms(60_000), "never into the reserve");
        b.text_done();
        assert_eq!(b.generate_due(), None);
    }

    #[test]
    fn the_first_token_and_the_stream_after_it_have_their_own_timers() {
        let mut b = budget();
        b.asked(ms(1_000));
        assert_eq!((b.first_token_due(), b.generate_idle_due(false)), (Some(ms(6_000)), None));
        b.text(ms(2_000));
        assert_eq!((b.first_token_due(), b.generate_idle_due(false)), (None, Some(ms(6_000))));
        assert_eq!(b.generate_idle_due(true), None, "a paused answer blames nobody");
        b.moved(ms(3_000));
        assert_eq!(b.generate_idle_due(false), Some(ms(7_000)), "sound still moves: back-pressure");
        b.text_done();
        assert_eq!(b.generate_idle_due(false), None);
    }

    #[test]
    fn a_synthesizer_owes_audio_from_the_first_unanswered_text_on() {
        let mut b = budget();
        assert_eq!(b.synthesize_idle_due(false), None);
        b.fed(ms(2_000));
        b.fed(ms(3_000));
        assert_eq!(b.synthesize_idle_due(false), Some(ms(6_000)));
        b.audio(ms(4_000), true, true);
        assert_eq!(b.synthesize_idle_due(false), Some(ms(8_000)));
        b.audio(ms(5_000), false, false);
        assert_eq!(b.synthesize_idle_due(false), None);
    }

    #[test]
    fn a_sink_stalls_only_with_sound_to_play() {
        let mut b = budget();
        b.audio(ms(4_000), true, true);
        assert_eq!(b.stall_due(true, false), Some(ms(7_000)));
        assert_eq!(b.stall_due(true, true), None, "held");
        assert_eq!(b.stall_due(false, false), None);
        b.moved(ms(5_000));
        b.audio(ms(6_000), true, false);
        assert_eq!(b.stall_due(true, false), Some(ms(8_000)), "more audio is no movement");
    }
}
