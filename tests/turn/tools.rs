//! Tools: what is asked for is started once, ended once, and told as it is.

use std::time::Duration;

use antiphon::event::{
    CallEnding, Cancellability, Checkpoint, Declaration, Event, OnBargeIn, OnTimeout, Outcome, Outside, Retry, Stage, TaskOutcome,
};
use antiphon::id::{CallId, RequestId, TurnId};
use antiphon::turn::*;

use crate::world::*;

fn look() -> Declaration {
    Declaration::new("look", Cancellability::ReadOnly)
}

fn reserve() -> Declaration {
    let checkpoints = vec![Checkpoint::AfterRead, Checkpoint::AfterStaging, Checkpoint::BeforePublish];
    Declaration { checkpoints, ..Declaration::new("reserve", Cancellability::Staged) }
}

fn pay() -> Declaration {
    Declaration { probes: true, ..Declaration::new("pay", Cancellability::Irreversible) }
}

fn all() -> Vec<Declaration> {
    vec![look(), reserve(), pay(), Declaration::new("order", Cancellability::RemoteCancel), ticket()]
}

fn ticket() -> Declaration {
    Declaration::new("ticket", Cancellability::HumanProcess)
}

fn world() -> World {
    World::tools(all())
}

/// A turn whose model has asked for this tool and is done.
fn asked(w: &mut World, tool: &str) -> (TurnId, CallId) {
    let turn = w.say("do it");
    let call = w.call(tool, "{}");
    w.model_done();
    (turn, call)
}

/// The same, and the tool has leave to commit.
fn committed(w: &mut World, tool: &str) -> (TurnId, CallId) {
    let (turn, call) = asked(w, tool);
    assert!(w.commit(call));
    (turn, call)
}

/// The person takes the floor from a running turn that has not sounded, or has.
fn barge_in(w: &mut World) -> TurnId {
    w.voice(300);
    w.live().expect("a new turn")
}

#[test]
fn the_model_is_asked_again_with_the_result_and_both_answers_are_spoken_in_order() {
    let mut w = world();
    let turn = w.say("how late is it");
    w.model("One moment.");
    let call = w.call("look", r#"{"at":"clock"}"#);
    w.model_done();
    assert!(w.job(Stage::Synthesize).fed_all, "the first words are complete");
    w.audio(500, 11);
    w.audio_done();
    w.wait(500);
    w.played(500);
    assert_eq!(w.end(turn), "-", "the call is open");
    w.tool_done(call, "noon");
    assert_eq!(w.context(), ["u:how late is it", "a:One moment.", r#"c1:look({"at":"clock"})"#, "r1:done noon"]);
    w.model("It is noon.");
    assert_eq!((w.count(Stage::Synthesize), w.job(Stage::Synthesize).fed.as_str()), (2, " It is noon."));
    w.model_done();
    w.audio(400, 12);
    w.audio_done();
    w.wait(400);
    w.played(900);
    assert_eq!((w.end(turn), w.ending(call)), ("COMPLETED".into(), "done".into()));
    assert_eq!(w.heard(turn).0, "One moment. It is noon.");
    assert_eq!(w.how_many("model_requested"), 2);
    assert_eq!(w.how_many("reply_done"), 1, "the answer was complete once");
}

#[test]
fn a_second_answer_waits_for_the_voice_of_the_first() {
    let mut w = world();
    let turn = w.say("?");
    w.model("A long beginning.");
    let call = w.call("look", "{}");
    w.model_done();
    w.tool_done(call, "x");
    w.model("And its end.");
    w.model_done();
    assert_eq!((w.count(Stage::Synthesize), w.job(Stage::Synthesize).fed.as_str()), (1, "A long beginning."));
    w.audio(800, 17);
    w.audio_done();
    let job = w.job(Stage::Synthesize);
    assert_eq!((w.count(Stage::Synthesize), job.fed.as_str(), job.fed_all), (2, " And its end.", true));
    w.audio(700, 13);
    w.audio_done();
    w.played(800 + 300);
    w.cancel(turn);
    assert_eq!(w.heard(turn).0, "A long beginning. And ");
    w.say("go on");
    let context = w.context();
    assert_eq!(context[1..], ["a:A long beginning.", "c1:look({})", "r1:done x", "a:And/", "u:go on"]);
}

#[test]
fn no_tool_starts_without_budget() {
    let mut slow = look();
    slow.minimum_budget = Duration::from_millis(500);
    let mut w = World::begin(Machine::new(budget(1_000)).with_tools([slow]));
    let turn = w.say("?");
    w.wait(400);
    let call = w.call("look", "{}");
    assert_eq!((w.ending(call), w.count(Stage::Tool)), ("not_started(no_budget)".into(), 0));
    w.model_done();
    assert_eq!(w.context().last().map(String::as_str), Some("r1:not_started(no_budget)"), "and the model is told");
    w.wait(600);
    assert_eq!(w.end(turn), "FAILED(deadline_exceeded in generate)");
}

fn budget(turn_ms: u64) -> Policy {
    let mut policy = Policy::default();
    policy.budget.turn = Duration::from_millis(turn_ms);
    policy
}

#[test]
fn what_cannot_be_called_is_told_and_the_answer_goes_on() {
    let mut policy = Policy::default();
    policy.budget.calls = 2;
    let mut w = World::begin(Machine::new(policy).with_tools(all()));
    w.say("?");
    let unknown = w.call("fly", "{}");
    let known = w.call("look", "{}");
    let surplus = w.call("look", "{\"again\":1}");
    assert_eq!([w.ending(unknown), w.ending(surplus)], ["not_started(unknown_tool)", "not_started(too_many)"]);
    w.model_done();
    w.tool_done(known, "here");
    assert_eq!(
        w.context()[1..],
        [
            "c1:fly({})",
            "r1:not_started(unknown_tool)",
            "c2:look({})",
            "r2:done here",
            "c3:look({\"again\":1})",
            "r3:not_started(too_many)"
        ]
    );
}

#[test]
fn a_model_that_only_calls_tools_comes_to_an_end() {
    let mut w = world();
    let turn = w.say("?");
    for i in 0..Policy::default().budget.requests {
        let call = w.call("look", &format!("{{\"i\":{i}}}"));
        w.tool_done(call, "x");
        w.model_done();
    }
    assert_eq!(w.end(turn), "FAILED(too_many_requests)");
}

#[test]
fn an_equal_call_in_flight_is_joined_and_both_end() {
    let mut w = world();
    w.say("?");
    let first = w.call("look", r#"{"a":1}"#);
    let second = w.call("look", r#"{"a":1}"#);
    let other = w.call("look", r#"{"a":2}"#);
    w.model_done();
    assert_eq!(w.count(Stage::Tool), 2, "the equal one is not started");
    w.tool_done(first, "one");
    w.tool_done(other, "two");
    assert_eq!([w.ending(first), w.ending(second), w.ending(other)], ["done", "done", "done"]);
    assert_eq!(
        w.context()[1..],
        [r#"c1:look({"a":1})"#, "r1:done one", r#"c2:look({"a":1})"#, "r2:done one", r#"c3:look({"a":2})"#, "r3:done two"]
    );
}

#[test]
fn a_failed_tool_is_told_to_the_model() {
    let mut w = world();
    let (turn, call) = asked(&mut w, "look");
    w.tool(call, Report::Ended(Ended::Failed(Retry::Later)));
    assert_eq!((w.ending(call), w.context().last().map(String::as_str)), ("failed".into(), Some("r1:failed")));
    assert_eq!(w.end(turn), "-");
    let (_, call) = asked(&mut w, "look");
    w.tool(call, Report::Ended(Ended::Finished));
    assert_eq!(w.ending(call), "failed", "finished without a result is no success");
}

// Commits.

#[test]
fn leave_is_given_only_when_the_intent_is_kept() {
    let mut w = world();
    let (_, call) = asked(&mut w, "reserve");
    w.stores = false;
    assert!(!w.commit(call));
    assert!(w.has("commit_intent") && !w.has("commit_sent"));
    let intent = w.records.iter().find(|r| name(&r.event) == "commit_intent").expect("recorded").seq;
    w.step(Input::Appended { seq: antiphon::id::Seq(intent.0 - 1) });
    assert!(!w.has("commit_sent"));
    w.step(Input::Appended { seq: intent });
    assert!(w.has("commit_sent") && w.tasks[&w.tool_task(call)].leave);
    w.stores = true;
    w.tool_done(call, "booked");
    assert_eq!(w.ending(call), "done");
}

#[test]
fn who_may_never_commit_is_refused() {
    let mut w = world();
    let (_, call) = asked(&mut w, "look");
    assert!(!w.commit(call));
    assert_eq!(w.told().last().map(String::as_str), Some("refuse commit"));
    assert!(!w.has("commit_intent") && w.m.counters().odd == 1);
    let (_, call) = committed(&mut w, "reserve");
    w.tool(call, Report::CommitAsked);
    assert_eq!(w.m.counters().odd, 2, "leave is given once");
}

#[test]
fn a_stop_before_leave_leaves_nothing() {
    let mut w = world();
    let (turn, call) = asked(&mut w, "reserve");
    w.tool(call, Report::Checkpoint { checkpoint: Checkpoint::AfterStaging });
    w.stores = false;
    w.commit(call);
    w.polite = false;
    w.cancel(turn);
    assert!(w.told().contains(&"refuse commit".into()) && w.told().contains(&"stop tool".into()));
    let last = w.records.last().expect("some").seq;
    w.step(Input::Appended { seq: last });
    assert!(!w.has("commit_sent"), "the intent that is kept now is too late");
    w.stores = true;
    w.tool(call, Report::Ended(Ended::Stopped));
    w.step(Input::Appended { seq: w.records.last().expect("some").seq });
    w.wait(200);
    assert_eq!((w.ending(call), w.end(turn)), ("cancelled".into(), "CANCELLED(user)".into()));
}

#[test]
fn checkpoints_are_recorded_and_undeclared_ones_are_odd() {
    let mut w = world();
    let (_, call) = asked(&mut w, "reserve");
    w.tool(call, Report::Checkpoint { checkpoint: Checkpoint::AfterRead });
    assert_eq!((w.how_many("call_checkpoint"), w.m.counters().odd), (1, 0));
    let (_, call) = asked(&mut w, "look");
    w.tool(call, Report::Checkpoint { checkpoint: Checkpoint::AfterRead });
    assert_eq!((w.how_many("call_checkpoint"), w.m.counters().odd), (1, 1));
}

#[test]
fn an_irreversible_call_is_not_disturbed_and_told_as_it_is() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    let task = w.tool_task(call);
    w.cancel(turn);
    assert!(!w.tasks[&task].told, "it is not told to stop");
    assert_eq!(w.end(turn), "-", "the turn waits for it");
    w.wait(99);
    assert_eq!(w.end(turn), "-");
    w.wait(1);
    assert_eq!((w.ending(call), w.end(turn)), ("unknown".into(), "RECONCILE_REQUIRED(1 calls)".into()));
    assert_eq!(outcome(&w, Stage::Tool), Some(TaskOutcome::Left));
    assert_eq!(w.m.unreconciled().iter().map(|c| c.call).collect::<Vec<_>>(), [call]);
    let zombies = w.m.snapshot().zombies;
    assert_eq!((zombies.len(), zombies[0].task, zombies[0].left), (1, task, true));
    // The outside is asked by the key, never again with the intent.
    let TaskSpec::Reconcile { key, .. } = &w.job(Stage::Reconcile).spec else { panic!("asked by the key") };
    assert!(key.0.ends_with("-1") && w.count(Stage::Tool) == 1);
    let errand = w.task(Stage::Reconcile);
    w.report(errand, Report::Probed { outside: Outside::Happened });
    w.report(errand, Report::Ended(Ended::Finished));
    assert_eq!(w.outcomes(call), [Outcome::Happened]);
    assert!(w.m.unreconciled().is_empty());
    w.report(task, Report::Result { text: text("paid") });
    w.report(task, Report::Ended(Ended::Finished));
    assert_eq!((w.outcomes(call).len(), w.end(turn)), (1, "RECONCILE_REQUIRED(1 calls)".into()), "the first word stands");
    assert!(w.m.snapshot().zombies.is_empty());
}

#[test]
fn a_commit_confirmed_after_the_stop_is_never_dressed_up_as_cancelled() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.cancel(turn);
    w.wait(40);
    w.tool_done(call, "paid");
    assert_eq!((w.ending(call), w.end(turn)), ("done".into(), "RECONCILE_REQUIRED(1 calls)".into()));
    assert_eq!(w.outcomes(call), [Outcome::Happened]);
    let names: Vec<String> = w.records.iter().map(|r| name(&r.event)).collect();
    let at = |n: &str| names.iter().position(|x| x == n).unwrap_or_else(|| panic!("{n} in {names:?}"));
    assert!(
        at("cancel_requested") < at("call_ended") && at("call_ended") < at("turn_ended") && at("turn_ended") < at("reconciled")
    );
    assert!(w.m.unreconciled().is_empty());
}

#[test]
fn a_commit_confirmed_before_the_stop_stays_and_the_turn_is_cancelled() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.tool_done(call, "paid");
    w.cancel(turn);
    assert_eq!((w.ending(call), w.end(turn)), ("done".into(), "CANCELLED(user)".into()));
    assert!(w.outcomes(call).is_empty());
    w.say("did you pay");
    assert!(w.context().contains(&"r1:done paid".into()));
}

#[test]
fn what_can_be_undone_is_undone_when_nobody_wants_it() {
    let refund = Declaration { compensates: true, ..pay() };
    for (how, want) in [(Ended::Finished, Outcome::Compensated), (Ended::Failed(Retry::Never), Outcome::NeedsPerson)] {
        let mut w = World::tools([refund.clone()]);
        let (turn, call) = committed(&mut w, "pay");
        w.cancel(turn);
        w.tool_done(call, "paid");
        assert_eq!(w.end(turn), "RECONCILE_REQUIRED(1 calls)");
        assert!(matches!(w.job(Stage::Reconcile).spec, TaskSpec::Compensate { .. }) && w.outcomes(call).is_empty());
        let errand = w.task(Stage::Reconcile);
        w.report(errand, Report::Ended(how));
        assert_eq!(w.outcomes(call), [want]);
    }
}

#[test]
fn the_outside_is_asked_again_with_growing_pauses_and_then_a_person() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.cancel(turn);
    w.wait(100);
    assert_eq!(w.end(turn), "RECONCILE_REQUIRED(1 calls)");
    let mut asked_at = vec![w.now];
    for attempt in 1..=Policy::default().budget.reconcile_attempts {
        assert_eq!(w.count(Stage::Reconcile), attempt as usize);
        let errand = w.task(Stage::Reconcile);
        w.report(errand, Report::Probed { outside: Outside::Unknown });
        w.report(errand, Report::Ended(Ended::Finished));
        let (due, timer) = w.m.deadline().expect("it is asked again");
        assert_eq!(timer, Timer::Reconcile);
        w.until(due);
        asked_at.push(due);
    }
    let pauses: Vec<u128> = asked_at.windows(2).map(|w| w[1].since(w[0]).as_millis()).collect();
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000]);
    assert_eq!(w.outcomes(call), [Outcome::NeedsPerson]);
    assert_eq!(w.m.unreconciled().len(), 1, "it stays open");
    let resolve = |w: &mut World, outcome| {
        let request = w.request();
        w.step(Input::Command(Command::Resolve { request, call, outcome }));
        w.answer(request)
    };
    assert_eq!(resolve(&mut w, Outcome::DidNotHappen), Some(Answer::Resolve(ResolveAnswer::Settled)));
    let again = Answer::Resolve(ResolveAnswer::AlreadySettled(Outcome::DidNotHappen));
    assert_eq!(resolve(&mut w, Outcome::Happened), Some(again));
    assert_eq!(w.outcomes(call), [Outcome::NeedsPerson, Outcome::DidNotHappen]);
    assert!(w.m.unreconciled().is_empty());
}

#[test]
fn a_probe_that_does_not_answer_counts_as_one_that_cannot_tell() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.cancel(turn);
    w.wait(100);
    let first = w.task(Stage::Reconcile);
    w.polite = false;
    w.wait(30_000);
    assert!(w.tasks[&first].told);
    w.wait(1_000);
    assert_eq!(w.count(Stage::Reconcile), 2);
    assert_eq!(outcome(&w, Stage::Reconcile), Some(TaskOutcome::Aborted));
    w.report(w.task(Stage::Reconcile), Report::Probed { outside: Outside::DidNotHappen });
    assert_eq!(w.outcomes(call), [Outcome::DidNotHappen]);
    w.report(first, Report::Probed { outside: Outside::Happened });
    assert_eq!(w.outcomes(call).len(), 1, "late");
}

#[test]
fn a_late_answer_settles_what_was_left_to_itself() {
    for (report, want) in [
        (Report::Result { text: text("opened") }, Outcome::Happened),
        (Report::Ended(Ended::Failed(Retry::Never)), Outcome::DidNotHappen),
        (Report::Ended(Ended::Unknown), Outcome::NeedsPerson),
    ] {
        let mut w = world();
        let (turn, call) = committed(&mut w, "ticket");
        w.cancel(turn);
        w.wait(0);
        assert_eq!(
            (w.ending(call), w.end(turn)),
            ("unknown".into(), "RECONCILE_REQUIRED(1 calls)".into()),
            "people are not waited for"
        );
        assert!(w.outcomes(call).is_empty(), "its own answer is waited for");
        w.wait(3_600_000);
        let task = w.tool_task(call);
        w.report(task, report);
        assert_eq!(w.outcomes(call), [want]);
        assert_eq!(w.end(turn), "RECONCILE_REQUIRED(1 calls)");
    }
}

#[test]
fn what_can_be_taken_back_is_told_to_stop_even_after_its_commit() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "order");
    w.cancel(turn);
    assert!(w.tasks[&w.tool_task(call)].told);
    assert_eq!((w.ending(call), w.end(turn)), ("cancelled".into(), "CANCELLED(user)".into()), "the other side confirmed");
    w.polite = false;
    let (turn, call) = committed(&mut w, "order");
    w.cancel(turn);
    w.wait(100);
    assert_eq!((w.ending(call), w.end(turn)), ("unknown".into(), "RECONCILE_REQUIRED(1 calls)".into()), "it said nothing");
    assert_eq!(w.outcomes(call), [Outcome::NeedsPerson], "and cannot be asked");
}

#[test]
fn nobody_sends_again_what_may_have_happened() {
    let mut w = world();
    let turn = w.say("pay him");
    let first = w.call_as("pay", "{}", Some("invoice-7"));
    w.model_done();
    assert!(w.commit(first));
    w.cancel(turn);
    let next = w.say("pay him, I said");
    let early = w.call_as("pay", "{}", Some("invoice-7"));
    assert_eq!(w.ending(early), "not_started(earlier_unknown)", "while it is in flight");
    w.wait(100);
    assert_eq!(w.end(turn), "RECONCILE_REQUIRED(1 calls)");
    let again = w.call_as("pay", "{ }", Some("invoice-7"));
    assert_eq!(w.ending(again), "not_started(earlier_unknown)");
    let other = w.call_as("pay", "{}", Some("invoice-8"));
    assert_eq!(w.ending(other), "-", "another intent is another matter");
    w.report(w.task(Stage::Reconcile), Report::Probed { outside: Outside::DidNotHappen });
    let now = w.call_as("pay", "{}", Some("invoice-7"));
    assert_eq!((w.ending(now), w.count(Stage::Tool)), ("-".into(), 3), "it is known not to have happened");
    w.cancel(next);
}

#[test]
fn d1_a_finished_tool_keeps_its_result_and_is_not_called_again_for_the_same_key() {
    let mut w = world();
    w.say("book a table");
    let first = w.call_as("reserve", "{}", Some("table-19h"));
    w.model_done();
    assert!(w.commit(first));
    w.tool_done(first, "booked");
    w.wait(1);
    w.voice(300);
    w.wait(650);
    w.final_words("for four");
    assert_eq!(w.context(), ["u:book a table", "c1:reserve({})", "r1:done booked", "u:for four"]);
    let second = w.call_as("reserve", "{}", Some("table-19h"));
    assert_eq!((w.ending(second), w.count(Stage::Tool)), ("done".into(), 1));
    w.model_done();
    assert_eq!(w.context().last().map(String::as_str), Some("r2:done booked"));
}

#[test]
fn a_lookup_under_one_key_is_made_again() {
    let mut w = world();
    w.say("?");
    let first = w.call_as("look", "{}", Some("clock"));
    w.tool_done(first, "noon");
    let second = w.call_as("look", "{}", Some("clock"));
    assert_eq!((w.ending(second), w.count(Stage::Tool)), ("-".into(), 2), "time goes by");
}

/// Every point of a tool round at which a person can interrupt.
#[test]
fn d2_the_history_is_well_formed_wherever_a_tool_round_is_cut() {
    type Step = fn(&mut World, &mut Option<CallId>);
    fn tool(w: &mut World, call: &Option<CallId>, report: Report) {
        w.tool(call.expect("called"), report);
    }
    let steps: [Step; 9] = [
        |w, _| w.model("One moment."),
        |w, call| *call = Some(w.call("reserve", "{}")),
        |w, _| w.model_done(),
        |w, call| tool(w, call, Report::Checkpoint { checkpoint: Checkpoint::AfterRead }),
        |w, call| tool(w, call, Report::CommitAsked),
        |w, call| tool(w, call, Report::Result { text: text("booked") }),
        |w, call| tool(w, call, Report::Ended(Ended::Finished)),
        |w, _| w.model("Booked."),
        |w, _| w.model_done(),
    ];
    for polite in [true, false] {
        for cut in 0..=steps.len() {
            let mut w = world();
            w.polite = polite;
            let turn = w.say("book it");
            let mut call = None;
            for step in &steps[..cut] {
                step(&mut w, &mut call);
            }
            w.cancel(turn);
            w.say("and now");
            well_formed(&w.context(), cut);
            w.wait(500);
            assert_ne!(w.end(turn), "-", "cut at {cut}");
            w.say("and now again");
            let context = w.context();
            well_formed(&context, cut);
            assert!(!context.iter().any(|line| line.ends_with(":running")), "cut at {cut}: {context:?}");
            if let Some(call) = call {
                assert_ne!(w.ending(call), "-", "d3: every call gets one answer; cut at {cut}");
            }
        }
    }
}

fn well_formed(context: &[String], cut: usize) {
    let mut i = 0;
    while i < context.len() {
        let line = &context[i];
        if let Some(call) = line.strip_prefix('c').filter(|l| l.starts_with(char::is_numeric)) {
            let id = call.split(':').next().expect("an id");
            let next = context.get(i + 1).map(String::as_str).unwrap_or("");
            assert!(next.starts_with(&format!("r{id}:")), "cut at {cut}: {context:?}");
            i += 1;
        } else {
            assert!(line.starts_with("u:") || line.starts_with("a:"), "cut at {cut}: a result without its call: {context:?}");
        }
        i += 1;
    }
}

#[test]
fn d5_nothing_is_left_running_however_start_and_cancel_meet() {
    for polite in [true, false] {
        let mut w = world();
        w.polite = polite;
        let turn = w.say("?");
        w.cancel(turn);
        let task = w.task(Stage::Generate);
        let before = w.how_many("call_requested");
        w.report(task, Report::Call { tool: "look".into(), arguments: "{}".into(), key: None });
        assert_eq!((w.how_many("call_requested"), w.count(Stage::Tool)), (before, 0), "a call after the cancel is late");
        let (turn, call) = asked(&mut w, "look");
        w.cancel(turn);
        w.wait(200);
        assert!(w.m.snapshot().calls.is_empty());
        assert_eq!((w.ending(call), w.end(turn)), ("cancelled".into(), "CANCELLED(user)".into()));
    }
}

#[test]
fn d6_a_lookup_goes_on_when_the_person_adds_a_sentence() {
    let keep = Declaration { on_barge_in: OnBargeIn::Keep, ..look() };
    let mut w = World::tools([keep]);
    let first = w.say("is my parcel there");
    w.model("Let me see.");
    let call = w.call("look", "{}");
    w.model_done();
    w.audio(2_000, 11);
    w.played(1_000);
    let second = barge_in(&mut w);
    assert!(!w.tasks[&w.tool_task(call)].told, "the lookup goes on");
    assert_eq!(w.end(first), "CANCELLED(barge_in)");
    w.wait(650);
    w.final_words("the blue one");
    assert_eq!(w.context(), ["u:is my parcel there", "a:Let/", "c1:look({})", "r1:running", "u:the blue one"]);
    w.model("Still looking.");
    w.model_done();
    w.audio(300, 14);
    w.audio_done();
    w.played(300);
    assert_eq!(w.end(second), "-", "the answer waits for what was kept for it");
    w.tool_done(call, "it is there");
    assert_eq!(w.context()[3], "r1:done it is there");
    w.model("It is there.");
    w.model_done();
    w.audio(300, 13);
    w.audio_done();
    w.played(600);
    assert_eq!(w.end(second), "COMPLETED");
    let ended = w.records.iter().find(|r| matches!(r.event, Event::CallEnded { .. })).expect("once");
    assert_eq!(ended.turn, Some(second));
}

#[test]
fn what_was_kept_is_told_even_when_no_words_followed() {
    let keep = Declaration { on_barge_in: OnBargeIn::Keep, ..look() };
    let mut w = World::tools([keep]);
    w.say("is my parcel there");
    let call = w.call("look", "{}");
    w.model_done();
    let second = barge_in(&mut w);
    w.wait(650);
    w.final_words("");
    assert_eq!((w.end(second), w.count(Stage::Generate)), ("-".into(), 1), "it waits");
    w.tool_done(call, "it is there");
    assert_eq!(w.context(), ["u:is my parcel there", "c1:look({})", "r1:done it is there"]);
    w.model("It is there.");
    w.model_done();
    w.audio(300, 12);
    w.audio_done();
    w.played(300);
    assert_eq!((w.end(second), w.heard(second).0), ("COMPLETED".into(), "It is there.".into()));
}

#[test]
fn a_button_stops_what_a_voice_would_keep() {
    let keep = Declaration { on_barge_in: OnBargeIn::Keep, ..look() };
    let mut w = World::tools([keep]);
    let (turn, call) = asked(&mut w, "look");
    w.cancel(turn);
    assert_eq!((w.ending(call), w.end(turn)), ("cancelled".into(), "CANCELLED(user)".into()));
}

#[test]
fn s4_a_result_that_comes_while_stopping_is_kept() {
    let mut w = world();
    let (turn, call) = asked(&mut w, "look");
    w.polite = false;
    w.cancel(turn);
    w.wait(30);
    w.tool_done(call, "found");
    assert_eq!((w.ending(call), w.end(turn)), ("done".into(), "CANCELLED(user)".into()), "a read-only result changes nothing");
    w.say("what was it");
    assert!(w.context().contains(&"r1:done found".into()));
}

#[test]
fn what_a_tool_says_after_its_end_is_late() {
    let mut w = world();
    let (turn, call) = asked(&mut w, "look");
    w.polite = false;
    w.cancel(turn);
    w.wait(100);
    assert_eq!((w.ending(call), outcome(&w, Stage::Tool)), ("cancelled".into(), Some(TaskOutcome::Aborted)));
    w.tool(call, Report::Result { text: text("too late") });
    assert_eq!((w.ending(call), w.how_many("late_dropped")), ("cancelled".into(), 1));
    assert_eq!(w.m.counters().zombies, 1);
    w.tool(call, Report::Ended(Ended::Finished));
    assert_eq!(w.m.counters().zombies, 0);
    w.say("?");
    assert!(!w.context().join(" ").contains("too late"));
}

// Time.

#[test]
fn a_tool_that_takes_too_long_is_stopped_and_the_model_told() {
    let slow = Declaration { cap: Some(Duration::from_secs(2)), ..look() };
    for polite in [true, false] {
        let mut w = World::tools([slow.clone()]);
        w.polite = polite;
        let (turn, call) = asked(&mut w, "look");
        w.wait(2_000);
        assert!(w.tasks[&w.tool_task(call)].told);
        w.wait(100);
        assert_eq!((w.ending(call), w.end(turn)), ("failed(timeout)".into(), "-".into()));
        assert_eq!(w.context().last().map(String::as_str), Some("r1:failed(timeout)"));
    }
}

#[test]
fn a_tool_that_takes_too_long_fails_its_turn_when_it_says_so() {
    let slow = Declaration { cap: Some(Duration::from_secs(2)), on_timeout: OnTimeout::FailTurn, ..look() };
    let mut w = World::tools([slow]);
    let (turn, call) = asked(&mut w, "look");
    w.wait(2_000);
    assert_eq!((w.ending(call), w.end(turn)), ("failed(timeout)".into(), "FAILED(tool_timeout)".into()));
}

#[test]
fn a_commit_that_takes_too_long_is_asked_after() {
    let slow = Declaration { cap: Some(Duration::from_secs(2)), ..pay() };
    let mut w = World::tools([slow]);
    let (turn, call) = committed(&mut w, "pay");
    w.wait(2_100);
    assert_eq!((w.ending(call), w.end(turn)), ("unknown".into(), "RECONCILE_REQUIRED(1 calls)".into()));
    assert_eq!(w.count(Stage::Reconcile), 1);
}

#[test]
fn each_tool_has_its_own_grace_and_whoever_stops_may_want_it_sooner() {
    let patient = Declaration { grace: Some(Duration::from_millis(400)), ..look() };
    let mut w = World::tools([patient.clone()]);
    w.polite = false;
    let (turn, _) = asked(&mut w, "look");
    w.cancel(turn);
    w.wait(399);
    assert_eq!(w.end(turn), "-");
    w.wait(1);
    assert_eq!(w.end(turn), "CANCELLED(user)");
    let mut w = World::tools([patient]);
    w.polite = false;
    let (turn, _) = asked(&mut w, "look");
    let (request, deadline) = (w.request(), Some(w.now + Duration::from_millis(20)));
    let (cause, initiator) = (antiphon::event::CancelCause::User, antiphon::event::Initiator::Client);
    w.step(Input::Command(Command::Cancel { request, turn, cause, initiator, deadline }));
    w.wait(20);
    assert_eq!(w.end(turn), "CANCELLED(user)");
}

#[test]
fn an_unknown_outcome_in_an_answer_that_goes_on_is_asked_after_at_once() {
    for (outside, want) in [(Outside::Happened, "COMPLETED"), (Outside::Unknown, "RECONCILE_REQUIRED(1 calls)")] {
        let mut w = world();
        let (turn, call) = committed(&mut w, "pay");
        w.tool(call, Report::Ended(Ended::Unknown));
        assert_eq!((w.ending(call), w.count(Stage::Reconcile)), ("unknown".into(), 1));
        assert_eq!(w.context().last().map(String::as_str), Some("r1:unknown"), "and the model is told what is known");
        w.report(w.task(Stage::Reconcile), Report::Probed { outside });
        w.model("I am not sure.");
        w.model_done();
        w.audio(300, 14);
        w.audio_done();
        w.played(300);
        assert_eq!(w.end(turn), want);
        assert_eq!(w.heard(turn).0, "I am not sure.", "it was heard to its end");
    }
}

// Approval.

fn allowed() -> Declaration {
    Declaration { approval: true, ..pay() }
}

fn approve(w: &mut World, call: CallId, granted: bool) -> Answer {
    let request = w.request();
    w.step(Input::Command(Command::Approve { request, call, granted }));
    w.answer(request).expect("answered at once")
}

#[test]
fn a_call_waits_for_a_person() {
    let mut w = World::tools([allowed()]);
    let (turn, call) = asked(&mut w, "pay");
    assert_eq!((w.how_many("approval_asked"), w.count(Stage::Tool)), (1, 0));
    w.wait(60_000);
    assert_eq!(w.end(turn), "-");
    assert_eq!(approve(&mut w, call, true), Answer::Approve(ApproveAnswer::Taken));
    assert_eq!(w.count(Stage::Tool), 1);
    assert_eq!(approve(&mut w, call, false), Answer::Approve(ApproveAnswer::NotAsked), "it was answered");
    assert_eq!(approve(&mut w, CallId(9), true), Answer::Approve(ApproveAnswer::NoSuchCall));
    let (_, call) = asked(&mut w, "pay");
    approve(&mut w, call, false);
    assert_eq!(
        (w.ending(call), w.context().last().map(String::as_str)),
        ("not_started(refused)".into(), Some("r2:not_started(refused)"))
    );
}

#[test]
fn s3_an_unanswered_approval_is_never_a_refusal() {
    let mut w = World::tools([allowed(), look()]);
    let turn = w.say("pay");
    let asked = w.call("pay", "{}");
    let running = w.call("look", "{}");
    w.model_done();
    w.polite = false;
    w.cancel(turn);
    assert_eq!(w.ending(asked), "-", "not before the tasks have seen the cancel");
    assert_eq!(approve(&mut w, asked, false), Answer::Approve(ApproveAnswer::NotAsked), "nobody asks any more");
    w.tool(running, Report::Ended(Ended::Stopped));
    assert_eq!([w.ending(asked), w.ending(running)], ["not_started(cancelled)", "cancelled"]);
    assert_eq!(w.how_many("approval_given"), 0);
    let names: Vec<String> = w.of(turn).map(name).collect();
    assert_eq!(names.last().map(String::as_str), Some("turn_ended"));
}

// Looking things up.

#[test]
fn what_was_found_is_shown_to_the_model() {
    let mut w = World::begin(Machine::new(Policy::default()).with_retrieval(true));
    let turn = w.say("?");
    assert_eq!((w.count(Stage::Retrieve), w.count(Stage::Generate)), (1, 0));
    let task = w.task(Stage::Retrieve);
    w.report(task, Report::Found { text: text("facts") });
    w.report(task, Report::Ended(Ended::Finished));
    let TaskSpec::Generate { found, .. } = &w.job(Stage::Generate).spec else { panic!("a model") };
    assert_eq!(found.as_ref().map(|t| t.reveal().as_str()), Some("facts"));
    w.cancel(turn);
    assert_eq!(w.end(turn), "CANCELLED(user)");
}

#[test]
fn a_lookup_that_is_slow_or_fails_is_not_waited_for() {
    for polite in [true, false] {
        let mut w = World::begin(Machine::new(Policy::default()).with_retrieval(true));
        w.polite = polite;
        let turn = w.say("?");
        w.wait(1_999);
        assert_eq!(w.count(Stage::Generate), 0);
        w.wait(1);
        let late = w.task(Stage::Retrieve);
        assert_eq!((w.count(Stage::Generate), w.tasks[&late].told), (1, true));
        w.report(late, Report::Found { text: text("too late") });
        w.wait(100);
        assert_eq!(w.end(turn), "-");
        assert!(w.has("late_dropped"));
    }
    let mut w = World::begin(Machine::new(Policy::default()).with_retrieval(true));
    w.say("?");
    w.report(w.task(Stage::Retrieve), Report::Ended(Ended::Failed(Retry::Never)));
    let TaskSpec::Generate { found, .. } = &w.job(Stage::Generate).spec else { panic!("a model") };
    assert_eq!(found, &None);
}

// The end of a session, and a new process.

#[test]
fn a_session_that_closes_leaves_nothing_running_and_claims_nothing() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.close();
    w.wait(100);
    assert_eq!((w.ending(call), w.end(turn)), ("unknown".into(), "RECONCILE_REQUIRED(1 calls)".into()));
    assert!(w.finished && w.outcomes(call).is_empty() && w.count(Stage::Reconcile) == 0);
    assert!(w.told().iter().any(|e| e == "abort tool") || w.last.is_empty(), "{:?}", w.told());
    assert_eq!(w.m.unreconciled().len(), 1);
}

#[test]
fn after_a_crash_an_intent_that_was_kept_is_asked_after() {
    let mut w = world();
    let turn = w.say("pay");
    let paid = w.call("pay", "{}");
    let looked = w.call("look", "{}");
    w.model_done();
    w.commit(paid);
    let input = w.request();
    w.submit_as(input, "and hurry", SubmitMode::StartOrSteer);
    // The records of leave need not have been kept: cut the log right behind the intent.
    for cut in ["commit_intent", "input_queued"] {
        let upto = w.records.iter().position(|r| name(&r.event) == cut).expect("recorded") + 1;
        let log = w.records[..upto].to_vec();
        let m = Machine::restore(Policy::default(), log.clone(), w.now).with_tools(all());
        let mut v = World::around(m);
        v.records = log;
        v.step(Input::Begin { session: SESSION, wall_unix_ms: 9 });
        assert_eq!((v.ending(paid), v.ending(looked)), ("unknown".into(), "cancelled".into()), "{cut}");
        assert_eq!(v.end(turn), "RECONCILE_REQUIRED(1 calls)");
        assert_eq!(v.has("input_returned"), cut == "input_queued");
        let TaskSpec::Reconcile { call, .. } = v.job(Stage::Reconcile).spec else { panic!("the outside is asked") };
        assert_eq!(call, paid);
        v.report(v.task(Stage::Reconcile), Report::Probed { outside: Outside::Happened });
        assert_eq!(v.outcomes(paid), [Outcome::Happened]);
        v.say("did you");
        assert_eq!(v.context(), ["u:pay", "c1:pay({})", "r1:done", "c2:look({})", "r2:cancelled", "u:did you"]);
        if cut == "input_queued" {
            let again = v.submit_as(input, "and hurry", SubmitMode::StartOrSteer);
            assert_eq!(again, SubmitAnswer::Steered(turn), "sent again, it has no second effect");
        }
    }
}

#[test]
fn after_a_crash_what_was_open_before_is_still_open() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.cancel(turn);
    w.wait(100);
    let log = w.records.clone();
    let mut v = World::around(Machine::restore(Policy::default(), log.clone(), w.now).with_tools(all()));
    v.records = log;
    v.step(Input::Begin { session: SESSION, wall_unix_ms: 9 });
    assert_eq!(v.m.unreconciled().len(), 1);
    assert_eq!(v.end(turn), "RECONCILE_REQUIRED(1 calls)");
    v.report(v.task(Stage::Reconcile), Report::Probed { outside: Outside::DidNotHappen });
    assert_eq!(v.outcomes(call), [Outcome::DidNotHappen]);
    let request = RequestId::from_bits(0xabc);
    let (cause, initiator) = (antiphon::event::CancelCause::User, antiphon::event::Initiator::Client);
    v.step(Input::Command(Command::Cancel { request, turn, cause, initiator, deadline: None }));
    assert_eq!(v.answer(request), Some(Answer::Cancel(CancelAnswer::ReconcileRequired(vec![call]))));
}

#[test]
fn every_call_has_one_ending_in_log_and_history() {
    let mut w = world();
    let (turn, call) = asked(&mut w, "look");
    w.tool_done(call, "x");
    w.tool(call, Report::Result { text: text("y") });
    assert_eq!(w.m.calls(turn).len(), 1);
    let view = &w.m.calls(turn)[0];
    assert_eq!((view.ending, view.result.reveal().as_str()), (Some(CallEnding::Done), "x"), "a result is never rewritten");
}

// One intent, one effect (each found by the simulation).

/// A turn whose model pays under this key, up to the leave.
fn pays(w: &mut World, key: &str) -> (TurnId, CallId) {
    let turn = w.say("pay");
    let call = w.call_as("pay", "{}", Some(key));
    w.model_done();
    assert!(w.commit(call));
    (turn, call)
}

#[test]
fn what_was_found_out_to_have_happened_is_not_sent_again() {
    let mut w = world();
    let (turn, call) = pays(&mut w, "invoice-7");
    w.cancel(turn);
    w.wait(100);
    w.report(w.task(Stage::Reconcile), Report::Probed { outside: Outside::Happened });
    assert_eq!(w.outcomes(call), [Outcome::Happened]);
    w.say("pay again");
    let again = w.call_as("pay", "{}", Some("invoice-7"));
    assert_eq!((w.ending(again), w.count(Stage::Tool)), ("done".into(), 1));
}

#[test]
fn what_was_done_before_a_restart_is_not_sent_again_after_it() {
    let mut w = world();
    let (_, call) = pays(&mut w, "invoice-7");
    w.tool_done(call, "paid");
    let log = w.records.clone();
    let mut v = World::around(Machine::restore(Policy::default(), log.clone(), w.now).with_tools(all()));
    v.records = log;
    v.step(Input::Begin { session: SESSION, wall_unix_ms: 9 });
    v.say("pay");
    let again = v.call_as("pay", "{}", Some("invoice-7"));
    assert_eq!((v.ending(again), v.count(Stage::Tool)), ("done".into(), 0));
    let own = v.call("pay", "{}");
    assert_eq!(v.ending(own), "-", "a key of the engine's own names one call only");
}

#[test]
fn what_is_being_undone_or_waits_for_a_person_holds_its_key() {
    let refund = Declaration { compensates: true, ..pay() };
    let mut w = World::tools([refund]);
    let (turn, call) = pays(&mut w, "invoice-7");
    w.cancel(turn);
    w.tool_done(call, "paid");
    let undoing = w.task(Stage::Reconcile);
    w.say("pay");
    let early = w.call_as("pay", "{}", Some("invoice-7"));
    assert_eq!(w.ending(early), "not_started(earlier_unknown)");
    w.report(undoing, Report::Ended(Ended::Failed(Retry::Never)));
    assert_eq!(w.outcomes(call), [Outcome::NeedsPerson]);
    let late = w.call_as("pay", "{}", Some("invoice-7"));
    assert_eq!((w.ending(late), w.count(Stage::Tool)), ("not_started(earlier_unknown)".into(), 1));
}

#[test]
fn nothing_is_written_behind_the_last_record() {
    let mut w = world();
    let (_, call) = pays(&mut w, "invoice-7");
    w.stores = false;
    w.close();
    w.wait(100);
    assert!(w.has("session_ended") && !w.finished, "the last record waits for the store");
    let written = w.records.len();
    let request = w.request();
    w.step(Input::Command(Command::Resolve { request, call, outcome: Outcome::Happened }));
    assert_eq!((w.answer(request), w.records.len()), (Some(Answer::Resolve(ResolveAnswer::NotOpen)), written));
}

#[test]
fn an_undoing_that_takes_too_long_may_still_succeed_until_it_is_over() {
    let refund = Declaration { compensates: true, ..pay() };
    for (last, want) in [(Some(Ended::Finished), Outcome::Compensated), (None, Outcome::NeedsPerson)] {
        let mut w = World::tools([refund.clone()]);
        let (turn, call) = committed(&mut w, "pay");
        w.cancel(turn);
        w.tool_done(call, "paid");
        let undoing = w.task(Stage::Reconcile);
        w.polite = false;
        w.wait(30_000);
        assert!(w.tasks[&undoing].told && w.outcomes(call).is_empty(), "nothing is said while it may still succeed");
        match last {
            Some(ended) => drop(w.report(undoing, Report::Ended(ended)).to_vec()),
            None => w.wait(100),
        }
        assert_eq!(w.outcomes(call), [want]);
        assert!(w.m.deadline().is_none_or(|(_, timer)| timer != Timer::Reconcile), "and nothing more is waited for");
    }
}

#[test]
fn a_tool_with_leave_that_ends_without_a_word_may_have_done_it() {
    for ended in [Ended::Aborted, Ended::Finished, Ended::Stopped] {
        let mut w = world();
        let (_, call) = committed(&mut w, "pay");
        w.tool(call, Report::Ended(ended));
        assert_eq!(w.ending(call), "unknown", "{ended:?}");
    }
}

#[test]
fn the_earliest_stage_at_work_is_named_when_time_runs_out() {
    let mut w = World::begin(Machine::new(budget(1_000)).with_tools(all()));
    let turn = w.say("?");
    w.model("One moment.");
    w.call("look", "{}");
    w.model_done();
    w.polite = false;
    w.wait(1_000);
    assert_eq!(w.end(turn), "FAILED(deadline_exceeded in tool)", "not the voice that also works");
}

#[test]
fn a_voice_that_owes_audio_for_the_words_it_was_given_is_told_from_a_model_that_works() {
    let mut w = world();
    let turn = w.say("?");
    w.model("One two three four");
    w.wait(1_000);
    w.audio(400, 4);
    w.wait(400);
    w.played(400);
    w.wait(4_000);
    w.call("look", "{}");
    w.wait(6_100);
    assert_eq!(w.end(turn), "FAILED(idle_timeout in synthesize)");
}

#[test]
fn the_first_settled_word_stands_whatever_the_call_says_later() {
    let mut w = world();
    let (turn, call) = committed(&mut w, "pay");
    w.cancel(turn);
    w.wait(100);
    w.report(w.task(Stage::Reconcile), Report::Probed { outside: Outside::Happened });
    w.tool(call, Report::Ended(Ended::Failed(Retry::Never)));
    assert_eq!(w.outcomes(call), [Outcome::Happened]);
}

#[test]
fn who_undoes_is_not_asked_what_is_so() {
    let refund = Declaration { compensates: true, ..pay() };
    let mut w = World::tools([refund]);
    let (turn, call) = committed(&mut w, "pay");
    w.cancel(turn);
    w.tool_done(call, "paid");
    let undoing = w.task(Stage::Reconcile);
    w.report(undoing, Report::Probed { outside: Outside::DidNotHappen });
    assert!(w.outcomes(call).is_empty() && w.has("late_dropped"), "what is done is never said not to have happened");
    w.report(undoing, Report::Ended(Ended::Finished));
    assert_eq!(w.outcomes(call), [Outcome::Compensated]);
}

#[test]
fn a_call_of_a_turn_that_stops_never_fails_the_next_one() {
    for (tool, on_timeout) in [(pay(), OnTimeout::TellModel), (look(), OnTimeout::FailTurn)] {
        let name = tool.name.clone();
        let mut w = World::tools([Declaration { cap: Some(Duration::from_secs(2)), on_timeout, ..tool }]);
        w.polite = false;
        let (old, call) = asked(&mut w, &name);
        w.commit(call);
        w.wait(1_950);
        let next = w.say("something else");
        w.wait(300);
        assert_ne!(w.end(old), "-");
        assert_eq!(w.end(next), "-", "its cap ran out while its own turn was stopping");
    }
}
