//! Side effects under a stop: what cannot be taken back is said honestly, asked after, and never sent twice.

use std::time::Duration;

use antiphon::engine::{Shows, Unreconciled};
use antiphon::event::{CallEnding, CancelCause, Cancellability, Checkpoint, Declaration, Event, Outcome, Outside, Terminal};
use antiphon::id::{CallId, RequestId, TurnId};
use antiphon::turn::{CancelAnswer, ResolveAnswer};

use super::bench::{Desk, Mind, Say, Step, well_formed};
use super::tools::world_hearing;
use super::world::World;

/// A tool that commits at 100 ms, and says so a second later or never.
fn irreversible(after: impl IntoIterator<Item = Step>) -> Desk {
    let steps = [Step::Rest(100), Step::Pass(Checkpoint::BeforePublish), Step::Commit].into_iter().chain(after);
    Desk::new("book", Cancellability::Irreversible, steps).declares(|d: &mut Declaration| {
        d.checkpoints = vec![Checkpoint::BeforePublish];
        d.probes = true;
    })
}

/// A world in which that tool has been given leave.
async fn committed(desk: &Desk) -> (World, Mind, TurnId) {
    let mind = Mind::new([vec![Say::Call("book", r#"{"seat":1}"#)]]);
    let mut world = world_hearing("unused", &mind, &[desk]);
    let turn = world.say("book it").await;
    world.until("its commit", |w| w.count(|e| matches!(e, Event::CommitSent { .. })) > 0).await;
    (world, mind, turn)
}

fn outcomes(world: &World) -> Vec<Outcome> {
    let outcome = |e: &Event| match e {
        Event::Reconciled { outcome, .. } => Some(*outcome),
        _ => None,
    };
    world.log.iter().filter_map(|r| outcome(&r.event)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_the_commit_is_not_dressed_up_as_cancelled() {
    for happens in [true, false] {
        let doubt = [Step::Deaf(300), Step::Doubt];
        let desk = irreversible(happens.then_some(Step::Happen).into_iter().chain(doubt));
        let (mut world, mind, turn) = committed(&desk).await;
        let intent = world.place(|e| matches!(e, Event::CommitIntent { .. })).expect("the intent");
        let sent = world.place(|e| matches!(e, Event::CommitSent { .. })).expect("the leave");
        let passed = world.place(|e| matches!(e, Event::CallCheckpoint { checkpoint: Checkpoint::BeforePublish, .. }));
        assert!(passed.expect("its checkpoint") < intent && intent < sent, "the intent is kept before anything leaves");
        assert_eq!(world.cancel(turn).await, CancelAnswer::Accepted);
        let call = CallId(1);
        assert_eq!(world.end_of(turn).await, Terminal::ReconcileRequired { calls: vec![call] });
        let open: Vec<Unreconciled> = world.engine.unreconciled();
        assert_eq!(open.len(), 1, "{open:?}");
        assert_eq!((open[0].turn, open[0].call, open[0].tool.as_str(), open[0].outcome), (turn, call, "book", None));

        world.until("what became of it", |w| !outcomes(w).is_empty()).await;
        let outcome = if happens { Outcome::Happened } else { Outcome::DidNotHappen };
        assert_eq!(outcomes(&world), [outcome]);
        assert_eq!(world.engine.unreconciled(), [], "settled");
        assert_eq!(world.terminal(turn), Some(Terminal::ReconcileRequired { calls: vec![call] }), "the terminal stays");
        assert!(desk.book().probed > 0);
        assert_eq!(desk.book().arguments.len(), 1, "asked after, never sent again");

        let next = world.say("well?").await;
        world.end_of(next).await;
        mind.asked().iter().for_each(|prompt| drop(well_formed(prompt)));
        let world = world.leave_nothing().await;
        let metrics = world.engine.metrics();
        assert_eq!((metrics.calls().open(), metrics.calls().confirmed().count()), (0, 1));
        assert_eq!(metrics.calls().side_effects_after_stop().found_out, u64::from(happens));
        assert_eq!(metrics.calls().side_effects_after_stop().let_through, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_confirmed_within_the_grace_after_the_stop_is_named_too() {
    let desk = irreversible([Step::Deaf(60), Step::Happen]);
    let (mut world, _, turn) = committed(&desk).await;
    world.cancel(turn).await;
    assert_eq!(world.end_of(turn).await, Terminal::ReconcileRequired { calls: vec![CallId(1)] });
    world.run(50).await;
    assert_eq!(world.count(|e| matches!(e, Event::CallEnded { ending: CallEnding::Done, .. })), 1, "it keeps its result");
    assert_eq!(outcomes(&world), [Outcome::Happened]);
    assert_eq!(world.engine.unreconciled(), []);
    let world = world.leave_nothing().await;
    assert_eq!(world.engine.metrics().calls().side_effects_after_stop().under_way, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_commit_leaves_nothing_outside() {
    for at in [0, 40, 90] {
        let desk = irreversible([Step::Happen]);
        let mind = Mind::new([vec![Say::Call("book", "{}")]]);
        let mut world = world_hearing("unused", &mind, &[&desk]);
        let turn = world.say("book it").await;
        super::world::wait_until(world.clock, world.clock_now() + Duration::from_millis(at)).await;
        world.cancel(turn).await;
        assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::User });
        world.run(500).await;
        assert!(desk.book().happened.is_empty(), "{at} ms");
        assert_eq!(world.count(|e| matches!(e, Event::CommitSent { .. })), 0);
        world.leave_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_with_leave_to_commit_is_in_doubt() {
    let desk = irreversible([Step::Happen, Step::Panic]);
    let (mut world, _, turn) = committed(&desk).await;
    world.until("its ending", |w| w.count(|e| matches!(e, Event::CallEnded { .. })) > 0).await;
    assert_eq!(world.count(|e| matches!(e, Event::CallEnded { ending: CallEnding::Unknown, .. })), 1);
    world.end_of(turn).await;
    world.until("what became of it", |w| !outcomes(w).is_empty()).await;
    assert_eq!(outcomes(&world), [Outcome::Happened], "nobody claimed that nothing was changed");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_in_vain_is_undone_by_a_tool_that_can() {
    let desk = irreversible([Step::Happen, Step::Deaf(300), Step::Doubt]).declares(|d| d.compensates = true);
    let (mut world, _, turn) = committed(&desk).await;
    world.cancel(turn).await;
    world.end_of(turn).await;
    world.until("what became of it", |w| outcomes(w).contains(&Outcome::Compensated)).await;
    assert_eq!(desk.book().happened, Vec::<String>::new());
    assert_eq!(desk.book().undone.len(), 1);
    assert_eq!(world.engine.unreconciled(), []);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn when_nobody_can_tell_a_person_has_to_look() {
    let desk = irreversible([Step::Happen, Step::Deaf(300), Step::Doubt]);
    desk.book().mute_probes = usize::MAX;
    let (mut world, _, turn) = committed(&desk).await;
    world.cancel(turn).await;
    world.end_of(turn).await;
    world.until("the last word", |w| outcomes(w) == [Outcome::NeedsPerson]).await;
    let open = world.engine.unreconciled();
    assert_eq!((open.len(), open[0].outcome), (1, Some(Outcome::NeedsPerson)), "it stays open");
    assert_eq!(world.session.resolve(CallId(1), Outcome::Happened).await, ResolveAnswer::Settled);
    assert_eq!(world.engine.unreconciled(), []);
    assert_eq!(world.session.resolve(CallId(9), Outcome::Happened).await, ResolveAnswer::NotOpen);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_closes_leaves_open_calls_listed_and_nothing_alive() {
    // It closes while the tool itself still works, and while the outside is being asked.
    for (mute, wait) in [(0, 0), (usize::MAX, 1_500)] {
        let desk = irreversible([Step::Deaf(60_000), Step::Happen]);
        desk.book().mute_probes = mute;
        let (mut world, _, turn) = committed(&desk).await;
        if wait > 0 {
            world.cancel(turn).await;
            world.end_of(turn).await;
            world.run(wait).await;
        }
        let began = world.clock_now();
        let world = world.leave_nothing().await;
        assert!(world.clock_now().since(began) < Duration::from_secs(3), "bounded");
        assert_eq!(world.terminal(turn), Some(Terminal::ReconcileRequired { calls: vec![CallId(1)] }));
        let open = world.engine.unreconciled();
        assert_eq!((open.len(), open[0].session), (1, world.session.id()), "{open:?}");
        assert_eq!(desk.book().running, 0);
        assert!(world.session.is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_link_does_not_keep_a_session_from_asking_after_its_calls() {
    let desk = irreversible([Step::Happen, Step::Deaf(300), Step::Doubt]);
    let (mut world, _, turn) = committed(&desk).await;
    world.far.leave();
    world.session.closed().await;
    world.collect().await;
    assert_eq!(world.terminal(turn), Some(Terminal::ReconcileRequired { calls: vec![CallId(1)] }));
    assert_eq!(outcomes(&world), [Outcome::Happened], "known before it ended");
    assert_eq!(world.engine.unreconciled(), []);
    assert_eq!(world.engine.counters().tasks_alive, 0);
}

#[tokio::test(start_paused = true)]
async fn s5_three_kinds_of_evidence_side_by_side() {
    let book = irreversible([Step::Happen, Step::Deaf(300), Step::Doubt]);
    // The outside does not answer in time about one, and cannot be asked about another.
    let slow = Desk::new("slow", Cancellability::ReadOnly, [Step::Rest(10)]);
    let mind = Mind::new([vec![Say::Call("slow", "{}"), Say::Call("book", r#"{"seat":1}"#)]]);
    let mut world = world_hearing("unused", &mind, &[&book, &slow]);
    let turn = world.say("book it").await;
    world.until("its commit", |w| w.count(|e| matches!(e, Event::CommitSent { .. })) > 0).await;
    world.cancel(turn).await;
    world.end_of(turn).await;
    world.until("what became of it", |w| !outcomes(w).is_empty()).await;

    let evidence = world.session.evidence(turn).await.expect("the log is kept");
    assert_eq!(evidence.asked.inputs.len(), 1);
    assert_eq!((evidence.asked.inputs[0].text.reveal().as_str(), evidence.asked.inputs[0].consumed_by), ("book it", Some(1)));
    let calls: Vec<&str> = evidence.asked.calls.iter().map(|call| call.tool.as_str()).collect();
    assert_eq!(calls, ["slow", "book"]);
    let returned = |n| evidence.returned.iter().find(|returned| returned.call == CallId(n)).expect("it ended");
    assert_eq!(
        (returned(1).ending, returned(1).result.as_ref().map(|r| r.reveal().as_str())),
        (CallEnding::Done, Some("it is four"))
    );
    assert_eq!((returned(2).ending, returned(2).outcome), (CallEnding::Unknown, Some(Outcome::Happened)));
    assert_eq!(evidence.is_now.len(), 1, "only one can be asked");
    assert_eq!((evidence.is_now[0].call, evidence.is_now[0].shows), (CallId(2), Shows::Says(Outside::Happened)));
    assert!(evidence.whole && evidence.terminal == world.terminal(turn));
    assert_eq!(world.session.evidence(TurnId(77)).await.expect("the log is kept").asked, Default::default());

    // The outside moved on, and the session is over: what is now is asked now.
    book.book().happened.clear();
    let session = world.session.clone();
    let _world = world.leave_nothing().await;
    let evidence = session.evidence(turn).await.expect("the log is kept");
    assert_eq!(evidence.is_now[0].shows, Shows::Says(Outside::DidNotHappen));
    assert_eq!(evidence.returned.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_with_a_deadline_is_over_by_then() {
    let mind = Mind::new([vec![Say::Call("look", "{}")]]);
    let desk =
        Desk::new("look", Cancellability::ReadOnly, [Step::Deaf(5_000)]).declares(|d| d.grace = Some(Duration::from_secs(2)));
    let mut world = world_hearing("unused", &mind, &[&desk]);
    let turn = world.say("go").await;
    world.until("its start", |w| w.count(|e| matches!(e, Event::CallStarted { .. })) > 0).await;
    let asked = world.clock_now();
    let by = asked + Duration::from_millis(50);
    let answer = world.session.cancel_by(turn, RequestId::from_bits(3), CancelCause::User, by).await;
    assert_eq!(answer, CancelAnswer::Accepted);
    world.session.ended(turn).await.expect("it ends");
    assert!(world.clock_now().since(asked) <= Duration::from_millis(60), "{:?}", world.clock_now().since(asked));
    world.leave_nothing().await;
}
