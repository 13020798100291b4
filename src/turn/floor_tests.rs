//! The floor by itself: one microphone, a scene, and the verdicts that follow.

use proptest::prelude::*;

use super::*;

const IDLE: Scene = Scene::Idle;
const AGENT: Scene = Scene::Agent { interruptible: true };
const DEAF_AGENT: Scene = Scene::Agent { interruptible: false };
const LONGEST: Duration = Duration::from_secs(60);

/// A microphone before a floor, one block at a time.
struct Mic {
    floor: Floor,
    policy: FloorPolicy,
    now: u64,
    since: u64,
}

impl Mic {
    fn new() -> Self {
        Mic { floor: Floor::new(UtteranceId(0)), policy: FloorPolicy::default(), now: 1_000, since: 1_000 }
    }

    fn block(&mut self, weight: f32, scene: Scene) -> Option<Verdict> {
        self.now += 10;
        let voice = Voice { weight, ..Voice::sure(Stamp::from_millis(self.now), Stamp::from_millis(self.since)) };
        self.floor.hear(Stamp::from_millis(self.now), &voice, scene, &self.policy)
    }

    /// `ms` of voice; the verdicts with the time since `begin` at which they came.
    fn speak(&mut self, ms: u64, scene: Scene) -> Vec<(u64, &'static str)> {
        let begin = self.now;
        self.since = begin;
        (0..ms / 10).filter_map(|_| self.block(1.0, scene).map(|v| (self.now - begin, word(&v)))).collect()
    }

    /// `ms` without any block; the timer's verdicts.
    fn silence(&mut self, ms: u64) -> Vec<(u64, &'static str)> {
        let (begin, mut said) = (self.now, Vec::new());
        for _ in 0..ms / 10 {
            self.now += 10;
            said.extend(self.lapse().map(|v| (self.now - begin, word(&v))));
        }
        said
    }

    fn lapse(&mut self) -> Option<Verdict> {
        let now = Stamp::from_millis(self.now);
        let (due, _) = self.floor.due(LONGEST, &self.policy)?;
        if due <= now { self.floor.lapse(now, LONGEST, &self.policy) } else { None }
    }
}

fn word(v: &Verdict) -> &'static str {
    match v {
        Verdict::Begin(_) => "begin",
        Verdict::Hold(_) => "hold",
        Verdict::Commit(_) => "commit",
        Verdict::FalseAlarm(..) => "false alarm",
        Verdict::Endpoint { .. } => "endpoint",
    }
}

#[test]
fn g1_each_scene_has_its_own_thresholds() {
    for (scene, want) in
        [(IDLE, vec![(100, "begin")]), (AGENT, vec![(40, "hold"), (160, "commit")]), (DEAF_AGENT, vec![(100, "begin")])]
    {
        let mut mic = Mic::new();
        assert_eq!(mic.speak(400, scene), want, "{scene:?}");
        assert_eq!(mic.silence(800), [(600, "endpoint")], "{scene:?}");
    }
}

#[test]
fn g8_a_click_holds_at_most_and_is_taken_back() {
    let mut mic = Mic::new();
    assert_eq!(mic.speak(30, AGENT), []);
    assert_eq!(mic.silence(1_000), []);
    assert_eq!(mic.speak(60, AGENT), [(40, "hold")]);
    assert_eq!(mic.silence(1_000), [(250, "false alarm")]);
}

#[test]
fn voiced_time_adds_up_over_short_gaps_only() {
    let mut mic = Mic::new();
    mic.speak(80, AGENT);
    mic.silence(150);
    assert_eq!(mic.speak(100, AGENT), [(80, "commit")], "80 ms before the gap and 80 after it");
    let mut mic = Mic::new();
    mic.speak(30, AGENT);
    mic.silence(300);
    assert_eq!(mic.speak(30, AGENT), [], "after a long gap the count begins anew");
}

#[test]
fn a_doubtful_voice_counts_by_its_weight_and_next_to_nothing_is_silence() {
    for (weight, want) in [
        (1.0, vec![(40, "hold"), (160, "commit")]),
        (0.5, vec![(80, "hold"), (320, "commit")]),
        (1.25, vec![(40, "hold"), (130, "commit")]),
        (0.1, vec![(400, "hold")]),
        (0.09, vec![]),
        (0.0, vec![]),
        (-1.0, vec![]),
        (f32::NAN, vec![]),
    ] {
        let mut mic = Mic::new();
        let begin = mic.now;
        let said: Vec<_> = (0..40).filter_map(|_| mic.block(weight, AGENT).map(|v| (mic.now - begin, word(&v)))).collect();
        assert_eq!(said, want, "weight {weight}");
    }
}

#[test]
fn merged_blocks_bring_all_their_voice_but_no_more_than_the_time_they_took() {
    let mut mic = Mic::new();
    mic.block(0.0, AGENT);
    mic.now += 190;
    assert!(matches!(mic.block(16.0, AGENT), Some(Verdict::Commit(_))), "twenty blocks as one, sixteen of them voice");
    let mut mic = Mic::new();
    mic.block(0.0, AGENT);
    assert!(mic.block(f32::INFINITY, AGENT).is_none(), "10 ms are never more than 20 weighted ones");
}

#[test]
fn the_onset_is_the_first_sound_and_never_part_of_what_was_before() {
    let mut mic = Mic::new();
    mic.since = 990;
    let onset = |v: Option<Verdict>| match v {
        Some(Verdict::Begin(s) | Verdict::Hold(s) | Verdict::Commit(s)) => Some(s.onset),
        Some(Verdict::FalseAlarm(..) | Verdict::Endpoint { .. }) | None => None,
    };
    let first = (0..40).find_map(|_| onset(mic.block(1.0, IDLE)));
    assert_eq!(first, Some(Stamp::from_millis(990)), "as the detector estimates it");
    let spoken_until = mic.now;
    mic.silence(700);
    // A hum that began long ago: the onset cannot lie before what was said last, nor more than the pre-roll before the voice.
    mic.since = 0;
    let second = (0..40).find_map(|_| onset(mic.block(1.0, IDLE))).expect("it begins");
    assert!(second >= Stamp::from_millis(spoken_until), "{second}");
    assert_eq!(second, Stamp::from_millis(spoken_until + 700 - 300));
}

#[test]
fn blocks_from_the_future_or_the_past_do_no_harm() {
    let mut mic = Mic::new();
    mic.now = 5_000;
    mic.since = u64::MAX / 2_000;
    assert_eq!(mic.block(1.0, AGENT), None);
    mic.now = 4_000;
    for _ in 0..50 {
        assert_eq!(mic.block(1.0, AGENT), None, "time that does not pass adds nothing");
    }
}

#[test]
fn a_detector_that_repeats_a_block_for_ever_keeps_nobody_waiting() {
    let mut mic = Mic::new();
    mic.speak(60, AGENT);
    let (stuck, voice_at) = (mic.now, Stamp::from_millis(mic.now));
    let voice = Voice::sure(voice_at, voice_at);
    for _ in 0..24 {
        mic.now += 10;
        assert_eq!(mic.floor.hear(Stamp::from_millis(mic.now), &voice, AGENT, &mic.policy), None);
    }
    mic.now = stuck + 250;
    assert!(matches!(mic.lapse(), Some(Verdict::FalseAlarm(_, Some(_)))));
}

#[test]
fn the_key_is_an_utterance_whatever_is_heard() {
    let mut mic = Mic::new();
    let (sound, speaking) = mic.floor.press(Stamp::from_millis(1_000)).expect("it went down");
    assert!(!speaking && sound.evidence.push_to_talk);
    assert_eq!(sound.onset, Stamp::from_millis(1_000));
    assert_eq!(mic.floor.press(Stamp::from_millis(1_010)), None, "down twice");
    assert_eq!(mic.silence(5_000), [], "silence does not end it");
    assert_eq!(mic.speak(1_000, IDLE), []);
    let up = mic.floor.release(Stamp::from_millis(mic.now));
    assert!(matches!(up, Ok(Some(Verdict::Endpoint { utterance: UtteranceId(1), .. }))), "{up:?}");
    assert_eq!(mic.floor.release(Stamp::from_millis(mic.now)), Err(NotDown));
    // The word that was still on the tongue belongs to the key's utterance.
    let since = mic.since;
    let tongue: Vec<_> = (0..40)
        .filter_map(|_| {
            mic.since = since;
            mic.block(1.0, IDLE)
        })
        .collect();
    assert_eq!(tongue, []);
    mic.silence(300);
    assert_eq!(mic.speak(200, IDLE), [(100, "begin")], "but the next sound is new");
}

#[test]
fn a_key_that_never_comes_up_is_let_go_in_the_end() {
    let mut mic = Mic::new();
    mic.floor.press(Stamp::from_millis(1_000));
    assert_eq!(mic.floor.due(LONGEST, &mic.policy), Some((Stamp::from_millis(61_000), Timer::Endpoint)));
    mic.now = 61_000;
    assert!(matches!(mic.lapse(), Some(Verdict::Endpoint { .. })));
    assert!(mic.floor.press(Stamp::from_millis(61_010)).is_some());
}

#[test]
fn b4_a_hold_of_a_gone_answer_neither_resumes_nor_commits_another() {
    let mut mic = Mic::new();
    mic.speak(60, AGENT);
    mic.floor.agent_gone();
    assert!(matches!(mic.floor.view(false), FloorView::Overlap { held: false, .. }));
    let said: Vec<_> = (0..30).filter_map(|_| mic.block(1.0, IDLE)).map(|v| word(&v)).collect();
    assert_eq!(said, ["begin"]);
    let mut mic = Mic::new();
    mic.speak(60, AGENT);
    mic.floor.agent_gone();
    mic.now += 250;
    assert!(matches!(mic.lapse(), Some(Verdict::FalseAlarm(_, None))));
}

#[test]
fn words_confirm_what_the_ear_only_suspects() {
    let mut mic = Mic::new();
    mic.speak(60, AGENT);
    assert_eq!(mic.floor.words(Stamp::from_millis(mic.now), 1, UtteranceId(7)), None, "another utterance");
    let sound = mic.floor.words(Stamp::from_millis(mic.now), 2, UtteranceId(1)).expect("it was in doubt");
    assert_eq!(sound.evidence.words, 2);
    assert_eq!(mic.floor.words(Stamp::from_millis(mic.now), 2, UtteranceId(1)), None, "once");
    assert_eq!(mic.silence(800), [(600, "endpoint")]);
}

#[test]
fn who_has_the_floor() {
    let mut mic = Mic::new();
    assert_eq!((mic.floor.view(false), mic.floor.view(true)), (FloorView::Quiet, FloorView::Agent));
    mic.speak(60, AGENT);
    assert!(matches!(mic.floor.view(true), FloorView::Overlap { held: true, .. }));
    mic.speak(200, AGENT);
    assert!(matches!(mic.floor.view(false), FloorView::User { .. }));
    assert!(matches!(mic.floor.view(true), FloorView::Overlap { held: false, .. }));
}

proptest! {
    /// Whatever is heard, silence brings the floor back to quiet, and every wait has a timer.
    #[test]
    fn silence_always_ends_it(blocks in prop::collection::vec((0u8..4, 0u64..300, 0u8..3), 0..80)) {
        let mut mic = Mic::new();
        for (kind, wait, scene) in blocks {
            mic.now += wait;
            let scene = [IDLE, AGENT, DEAF_AGENT][usize::from(scene)];
            match kind {
                0 => drop(mic.lapse()),
                1 => drop(mic.block(0.0, scene)),
                2 => mic.floor.agent_gone(),
                _ => drop(mic.speak(20, scene)),
            }
        }
        mic.silence(700);
        prop_assert_eq!(mic.floor.view(false), FloorView::Quiet);
        prop_assert_eq!(mic.floor.due(LONGEST, &mic.policy), None);
    }
}
