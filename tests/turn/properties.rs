//! Random worlds: whatever comes, in whatever order, the laws hold. `World` checks those of every step; these check the whole.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use antiphon::event::{
    CallEnding, CancelCause, Cancellability, Checkpoint, Declaration, Event, Initiator, LateKind, OnBargeIn, OnTimeout, Outcome,
    Outside, Record, Retry, Stage, TaskOutcome, Timing,
};
use antiphon::id::{CallId, Generation, RequestId, Seq, TaskId, TurnId};
use antiphon::time::Stamp;
use antiphon::turn::*;

use crate::world::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Act {
    Wait(u64),
    Voice(u64),
    RawVoice { at: u64, since: u64, speech: bool },
    Say(u128, bool),
    Cancel(u128, u64),
    Key(bool),
    Link(bool),
    Words(u64, bool, bool),
    Text(u64),
    Audio(u64, u64, usize),
    End(u64, u8),
    Progress(u64, u64),
    Quiet(u64, bool),
    Underrun(u64),
    Late(u64),
    Call { back: u64, tool: u8, arguments: u8, key: Option<u8> },
    Found(u64),
    Check(u64),
    Commit(u64),
    Result(u64),
    Probe(u64, u8),
    Unknown(u64),
    Submit { request: u128, mode: u8, turn: u64 },
    Announce { request: u128, interruptible: bool },
    HandOver { request: u128, stop: u64, keep: u64 },
    Approve { call: u64, granted: bool },
    Resolve { call: u64, outcome: u8 },
    Appended(u64),
    Drain,
    Manners { polite: bool, sink: bool, stores: bool },
}

fn act() -> impl Strategy<Value = Act> {
    // Tasks and generations are named from the end, so that most inputs mean something and some do not.
    prop_oneof![
        4 => (0u64..900).prop_map(Act::Wait),
        1 => (0u64..400_000).prop_map(Act::Wait),
        4 => (1u64..40).prop_map(|b| Act::Voice(b * 10)),
        1 => (0u64..20_000, 0u64..20_000, any::<bool>()).prop_map(|(at, since, speech)| Act::RawVoice { at, since, speech }),
        3 => (0u128..20, any::<bool>()).prop_map(|(r, empty)| Act::Say(1_000 + r, empty)),
        2 => (0u128..20, 0u64..12).prop_map(|(r, t)| Act::Cancel(2_000 + r, t)),
        2 => any::<bool>().prop_map(Act::Key),
        1 => any::<bool>().prop_map(Act::Link),
        4 => (0u64..3, any::<bool>(), any::<bool>()).prop_map(|(t, some, is_final)| Act::Words(t, some, is_final)),
        5 => (0u64..3).prop_map(Act::Text),
        5 => (0u64..3, 0u64..1_000, 0usize..12).prop_map(|(t, ms, chars)| Act::Audio(t, ms, chars)),
        5 => (0u64..5, 0u8..5).prop_map(|(t, how)| Act::End(t, how)),
        4 => (0u64..3, 0u64..3_000).prop_map(|(g, ms)| Act::Progress(g, ms)),
        2 => (0u64..3, any::<bool>()).prop_map(|(g, held)| Act::Quiet(g, held)),
        1 => (0u64..3).prop_map(Act::Underrun),
        1 => (0u64..3).prop_map(Act::Late),
        6 => (0u64..2, 0u8..7, 0u8..3, prop::option::of(0u8..3))
            .prop_map(|(back, tool, arguments, key)| Act::Call { back, tool, arguments, key }),
        1 => (0u64..2).prop_map(Act::Found),
        2 => (0u64..4).prop_map(Act::Check),
        5 => (0u64..4).prop_map(Act::Commit),
        4 => (0u64..4).prop_map(Act::Result),
        2 => (0u64..3, 0u8..3).prop_map(|(t, o)| Act::Probe(t, o)),
        1 => (0u64..4).prop_map(Act::Unknown),
        4 => (0u128..20, 0u8..3, 0u64..8).prop_map(|(r, mode, turn)| Act::Submit { request: 3_000 + r, mode, turn }),
        1 => (0u128..20, any::<bool>()).prop_map(|(r, interruptible)| Act::Announce { request: 4_000 + r, interruptible }),
        1 => (0u128..20, 0u64..8, 0u64..6).prop_map(|(r, stop, keep)| Act::HandOver { request: 5_000 + r, stop, keep }),
        2 => (0u64..6, any::<bool>()).prop_map(|(call, granted)| Act::Approve { call, granted }),
        1 => (0u64..6, 0u8..4).prop_map(|(call, outcome)| Act::Resolve { call, outcome }),
        1 => (0u64..3).prop_map(Act::Appended),
        1 => Just(Act::Drain),
        2 => (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(polite, sink, stores)| Act::Manners { polite, sink, stores }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    (any::<bool>(), 0u8..3, prop::sample::select(vec![0u64, 150, 3_000, 300_000]), 0u64..500).prop_map(
        |(voice, link, turn, grace)| {
            let mut p = Policy::default();
            p.floor.interruptible = voice;
            p.budget.turn = std::time::Duration::from_millis(turn);
            p.budget.grace = std::time::Duration::from_millis(grace);
            // Small bounds are met more often.
            (p.budget.requests, p.budget.calls, p.budget.inbox, p.budget.reconcile_attempts) = (4, 5, 2, 2);
            p.on_disconnect = match link {
                0 => OnDisconnect::GoOn,
                1 => OnDisconnect::CancelNow,
                _ => OnDisconnect::Hold(std::time::Duration::from_millis(700)),
            };
            p
        },
    )
}

/// One tool of each kind.
fn tools() -> Vec<Declaration> {
    let tool = |name: &str, class| Declaration::new(name, class);
    vec![
        Declaration { on_barge_in: OnBargeIn::Keep, ..tool("t0", Cancellability::ReadOnly) },
        Declaration {
            checkpoints: vec![Checkpoint::AfterRead],
            on_barge_in: OnBargeIn::Keep,
            ..tool("t1", Cancellability::Staged)
        },
        Declaration { probes: true, compensates: true, ..tool("t2", Cancellability::RemoteCancel) },
        Declaration { probes: true, compensates: true, ..tool("t3", Cancellability::Irreversible) },
        Declaration { on_barge_in: OnBargeIn::Keep, ..tool("t4", Cancellability::HumanProcess) },
        Declaration {
            approval: true,
            cap: Some(std::time::Duration::from_millis(400)),
            on_timeout: OnTimeout::FailTurn,
            ..tool("t5", Cancellability::Irreversible)
        },
    ]
}

fn world(policy: Policy, retrieves: bool) -> World {
    World::begin(Machine::new(policy).with_tools(tools()).with_retrieval(retrieves))
}

/// The task that was started `back` tasks before the last.
fn task(w: &World, stage: Option<Stage>, back: u64) -> Option<TaskId> {
    w.tasks.iter().rev().filter(|(_, job)| stage.is_none_or(|s| s == job.stage())).nth(back as usize).map(|(task, _)| *task)
}

fn happen(w: &mut World, act: Act) {
    let generation = |w: &World, back: u64| Generation(w.fence.0.saturating_sub(back));
    match act {
        Act::Wait(ms) => w.wait(ms),
        Act::Voice(ms) => w.voice(ms),
        Act::RawVoice { at, since, speech } => {
            let (at, since) = (Stamp::from_millis(at), Stamp::from_millis(since));
            let speech = if speech { f32::NAN } else { 1.0 };
            w.step(Input::Voice(Voice { speech, weight: speech, ..Voice::sure(at, since) }));
        }
        Act::Say(request, empty) => {
            let request = RequestId::from_bits(request);
            let text = if empty { text(" ") } else { text("a question") };
            w.step(Input::Command(Command::Say { request, text }));
        }
        Act::Cancel(request, turn) => {
            let (request, turn) = (RequestId::from_bits(request), TurnId(turn));
            let (cause, initiator) = (CancelCause::User, Initiator::Client);
            w.step(Input::Command(Command::Cancel { request, turn, cause, initiator, deadline: None }));
        }
        Act::Key(down) => w.key(down),
        Act::Link(up) => drop(w.step(Input::Link(if up { LinkFact::Up } else { LinkFact::Lost })).len()),
        Act::Words(back, some, is_final) => {
            if let Some(task) = task(w, Some(Stage::Listen), back) {
                let text = text(if some { "some words" } else { "" });
                w.step(Input::Task { task, report: Report::Transcript { text, is_final } });
            }
        }
        Act::Text(back) => {
            if let Some(task) = task(w, Some(Stage::Generate), back) {
                w.step(Input::Task { task, report: Report::Text { delta: text("more of it ") } });
            }
        }
        Act::Audio(back, ms, chars) => {
            if let Some(task) = task(w, Some(Stage::Synthesize), back) {
                w.step(Input::Task { task, report: Report::Audio { samples: ms * MS, chars, timing: Timing::Exact } });
            }
        }
        Act::End(back, how) => {
            if let Some(task) = task(w, None, back) {
                let ended = match how {
                    0 => Ended::Stopped,
                    1 => Ended::Aborted,
                    2 => Ended::Failed(Retry::Later),
                    _ => Ended::Finished,
                };
                w.report(task, Report::Ended(ended));
            }
        }
        Act::Progress(back, ms) => w.played_of(generation(w, back), ms),
        Act::Quiet(back, held) => {
            let by = if held { QuietBy::Hold } else { QuietBy::Cut };
            w.go_quiet(generation(w, back), by);
        }
        Act::Underrun(back) => {
            let (generation, at) = (generation(w, back), w.now);
            w.step(Input::Playout(Playout::Underrun { generation, at, gap_us: 10_000 }));
        }
        Act::Late(back) => {
            let generation = generation(w, back);
            w.step(Input::Late { kind: LateKind::Audio, generation });
        }
        Act::Call { back, tool, arguments, key } => {
            if let Some(task) = task(w, Some(Stage::Generate), back) {
                let (arguments, key) = (format!("{{{arguments}}}").into(), key.map(|k| k.to_string()));
                w.step(Input::Task { task, report: Report::Call { tool: format!("t{tool}"), arguments, key } });
            }
        }
        Act::Found(back) => tell(w, Stage::Retrieve, back, Report::Found { text: text("facts") }),
        Act::Check(back) => tell(w, Stage::Tool, back, Report::Checkpoint { checkpoint: Checkpoint::AfterRead }),
        Act::Commit(back) => tell(w, Stage::Tool, back, Report::CommitAsked),
        Act::Result(back) => tell(w, Stage::Tool, back, Report::Result { text: text("a result") }),
        Act::Unknown(back) => tell(w, Stage::Tool, back, Report::Ended(Ended::Unknown)),
        Act::Probe(back, how) => {
            let outside = [Outside::Happened, Outside::DidNotHappen, Outside::Unknown][how as usize];
            tell(w, Stage::Reconcile, back, Report::Probed { outside });
        }
        Act::Submit { request, mode, turn } => {
            let expected = TurnId(turn);
            let mode = [SubmitMode::StartOrSteer, SubmitMode::StartIfIdle, SubmitMode::Steer { expected }][mode as usize];
            w.step(Input::Command(Command::Submit { request: RequestId::from_bits(request), text: text("further"), mode }));
        }
        Act::Announce { request, interruptible } => {
            let (request, text) = (RequestId::from_bits(request), text("hear this"));
            w.step(Input::Command(Command::Announce { request, text, interruptible }));
        }
        Act::HandOver { request, stop, keep } => {
            let (next, constraints) = (text("go on"), text(""));
            let handover = Handover { stop: TurnId(stop), keep: vec![CallId(keep)], next, constraints };
            w.step(Input::Command(Command::Handover { request: RequestId::from_bits(request), handover }));
        }
        Act::Approve { call, granted } => {
            let request = w.request();
            w.step(Input::Command(Command::Approve { request, call: CallId(call), granted }));
        }
        Act::Resolve { call, outcome } => {
            let all = [Outcome::Happened, Outcome::DidNotHappen, Outcome::Compensated, Outcome::NeedsPerson];
            let request = w.request();
            w.step(Input::Command(Command::Resolve { request, call: CallId(call), outcome: all[outcome as usize] }));
        }
        Act::Appended(back) => {
            let last = w.records.last().map_or(0, |r| r.seq.0);
            w.step(Input::Appended { seq: Seq(last + 1 - back.min(last)) });
        }
        Act::Drain => {
            let request = w.request();
            w.step(Input::Command(Command::Drain { request }));
        }
        Act::Manners { polite, sink, stores } => (w.polite, w.sink_reports, w.stores) = (polite, sink, stores),
    }
}

/// A task of this stage reports, if there is one.
fn tell(w: &mut World, stage: Stage, back: u64, report: Report) {
    if let Some(task) = task(w, Some(stage), back) {
        w.report(task, report);
    }
}

/// What must hold of a whole log, whatever happened.
fn check(records: &[Record]) {
    let (mut accepted, mut ended) = (BTreeSet::new(), BTreeMap::new());
    let (mut started, mut stopped, mut kinds) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let (mut calls, mut inputs, mut settled) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let mut runs: BTreeMap<CallId, TaskId> = BTreeMap::new();
    for record in records {
        let turn = record.turn;
        if let Some(terminal) = turn.and_then(|t| ended.get(&t)) {
            // Facts about the loudspeaker may come after a terminal; work and words may not.
            let reconciles = Stage::Reconcile;
            let fact = match &record.event {
                Event::Silenced { .. } | Event::Reconciled { .. } => true,
                Event::TaskStarted { stage, .. } | Event::TaskEnded { stage, .. } => *stage == reconciles,
                _ => false,
            };
            assert!(fact, "{:?} after {terminal:?}", record.event);
        }
        match &record.event {
            Event::TurnAccepted { .. } => {
                assert!(accepted.insert(turn), "{turn:?} accepted twice");
            }
            Event::TurnEnded { terminal, heard, unheard, .. } => {
                assert!(accepted.contains(&turn));
                ended.insert(turn.expect("it has a turn"), terminal.clone());
                let said: String = said(records, turn.expect("it has a turn"));
                assert_eq!(format!("{}{}", heard.reveal(), unheard.reveal()), said, "heard and unheard are what was said");
                let ours = |t: &TaskId| kinds.get(t) != Some(&Stage::Reconcile);
                let left: Vec<_> = started.iter().filter(|(t, of)| **of == turn && !stopped.contains(*t) && ours(t)).collect();
                assert!(left.is_empty(), "{turn:?} outlived by {left:?}");
            }
            Event::TaskStarted { task, stage } => {
                kinds.insert(*task, *stage);
                assert!(started.insert(*task, turn).is_none(), "{task} started twice");
            }
            Event::TaskEnded { task, .. } => {
                assert!(started.contains_key(task) && stopped.insert(*task), "{task} ended twice, or never began");
            }
            Event::CallRequested { call, key, .. } => {
                assert!(calls.insert(*call, (key.0.clone(), None, false)).is_none(), "{call} is asked once");
            }
            Event::CallStarted { call, task } => drop(runs.insert(*call, *task)),
            Event::CallKept { call, from } => {
                // One that was joined to another has no task.
                if let Some(of) = runs.get(call).and_then(|task| started.get_mut(task)) {
                    assert_eq!(std::mem::replace(of, turn), Some(*from));
                }
            }
            Event::CommitSent { call } => {
                let (_, ending, sent) = calls.get_mut(call).expect("asked before");
                assert!(ending.is_none() && !std::mem::replace(sent, true), "{call} has leave once, while it is open");
            }
            Event::CallEnded { call, ending, .. } => {
                let (_, before, sent) = calls.get_mut(call).expect("asked before");
                assert_eq!(before.replace(*ending), None, "{call} ends once");
                let quiet = matches!(ending, CallEnding::Cancelled | CallEnding::NotStarted { .. });
                assert!(!(quiet && *sent) || matches!(ending, CallEnding::Cancelled), "{call} {ending} had leave");
            }
            Event::Reconciled { call, outcome } => {
                let (_, ending, _) = calls[call].clone();
                assert!(matches!(ending, Some(CallEnding::Unknown | CallEnding::Done)), "{call} {ending:?} needs no outcome");
                assert!(!settled.contains(call), "{call} is settled");
                if outcome.is_settled() {
                    settled.insert(*call);
                }
            }
            Event::InputQueued { input, .. } => assert!(inputs.insert(*input, 0).is_none(), "taken once"),
            Event::InputConsumed { input, .. } | Event::InputReturned { input, .. } => {
                *inputs.get_mut(input).expect("queued before") += 1;
            }
            Event::Silenced { tail: Some(t), .. } => {
                assert_eq!(t.detect_us + t.decide_us + t.flush_us + t.downstream_us, t.to_silence_us);
            }
            _ => {}
        }
    }
    assert_eq!(accepted.len(), ended.len(), "every accepted turn ended");
    assert_eq!(started.len(), stopped.len(), "every task ended");
    assert!(calls.values().all(|(_, ending, _)| ending.is_some()), "every call ended: {calls:?}");
    assert!(inputs.values().all(|n| *n == 1), "every input was shown or handed back, once: {inputs:?}");
}

fn said(records: &[Record], turn: TurnId) -> String {
    let of = records.iter().filter(|r| r.turn == Some(turn));
    of.filter_map(|r| if let Event::ReplyText { delta } = &r.event { Some(delta.reveal().as_str()) } else { None }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_in_every_world(policy in policy(), retrieves: bool, acts in prop::collection::vec(act(), 0..120)) {
        let mut w = world(policy, retrieves);
        for act in acts {
            happen(&mut w, act);
            prop_assert_eq!(w.m.counters().terminal_conflicts, 0);
            prop_assert!(w.m.snapshot().stopping.len() <= 200);
        }
        // It can always be closed, and then everything is over within the grace and the store's patience.
        let asked = w.now;
        w.close();
        w.wait(3_000);
        prop_assert!(w.finished);
        prop_assert_eq!(w.m.deadline(), None);
        check(&w.records);
        for (task, job) in &w.tasks {
            let given_up = |o: &TaskOutcome| matches!(o, TaskOutcome::Aborted | TaskOutcome::Left);
            let aborted = w.events().any(|e| matches!(e, Event::TaskEnded { task: t, outcome, .. } if t == task && given_up(outcome)));
            prop_assert!(job.over || aborted, "{} was forgotten", task);
        }
        let end = w.records.last().expect("some").at;
        prop_assert!(end.since(asked) <= std::time::Duration::from_millis(500));
    }

    /// However it came there, the next question is answered.
    #[test]
    fn no_history_wedges_the_next_turn(acts in prop::collection::vec(act(), 0..80)) {
        // What is kept for the next turn is waited for by it, which is no wedge.
        let stops = tools().into_iter().map(|tool| Declaration { on_barge_in: OnBargeIn::Cancel, ..tool });
        let mut w = World::begin(Machine::new(Policy::default()).with_tools(stops));
        for act in acts.into_iter().filter(|a| !matches!(a, Act::Drain)) {
            happen(&mut w, act);
        }
        (w.polite, w.sink_reports, w.stores) = (true, true, true);
        w.step(Input::Link(LinkFact::Up));
        w.wait(5_000);
        let turn = w.answer_made("hello", 100);
        w.played(100);
        prop_assert_eq!(w.end(turn), "COMPLETED");
        prop_assert_eq!(w.heard(turn).0, "hello");
        w.wait(5_000);
        w.speak("and this one");
        prop_assert_eq!(w.context().last().cloned(), Some("u:and this one".to_owned()));
    }

    /// A crash at any moment: every turn has one terminal, the generation is above the highest, seq goes on.
    #[test]
    fn a_crash_at_any_moment_loses_nothing_that_was_told(acts in prop::collection::vec(act(), 0..60)) {
        let mut w = world(Policy::default(), false);
        for act in acts {
            happen(&mut w, act);
        }
        let highest = w.records.iter().map(|r| r.generation).max().expect("some");
        let mut next = World::around(Machine::restore(Policy::default(), w.records.clone(), w.now).with_tools(tools()));
        next.now = w.now;
        next.records = w.records.clone();
        next.delivered = w.records.iter().map(|r| r.seq).collect();
        next.step(Input::Tick);
        prop_assert!(next.m.generation() > highest);
        next.close();
        next.wait(3_000);
        check(&next.records);
        prop_assert!(next.m.snapshot().turn.is_none());
    }

    #[test]
    fn e5_what_was_heard_never_exceeds_what_was_queued(
        chunks in prop::collection::vec((0u64..400, 0usize..10), 0..8),
        played in prop::collection::vec(0u64..4_000, 0..6),
    ) {
        let mut w = World::new();
        let turn = w.answer_begun("some words that are spoken in several chunks");
        let mut spoken = 0;
        for (ms, chars) in chunks {
            w.audio(ms, chars);
            spoken += chars;
        }
        for ms in played {
            w.played(ms);
        }
        w.cancel(turn);
        prop_assert!(w.heard(turn).0.chars().count() <= spoken);
    }
}
