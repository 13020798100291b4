//! Scripts do what they say, to the backend and to the session.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::{Gate, Phase};
use super::*;
use crate::event::{Cancellability, Checkpoint};
use crate::time::{Clock, RuntimeClock, Stamp};

const MS: Duration = Duration::from_millis(1);

fn tool(class: Cancellability, script: ToolScript) -> ScriptedTool {
    ScriptedTool::new(Declaration::new("book", class), [script])
}

fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey(name.into())
}

fn context(stop: &CancellationToken) -> TaskCx {
    TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, stop.clone())
}

type Called = JoinHandle<(Vec<String>, Result<Pii<String>, ProviderError>)>;

/// Calls the tool and answers it as a session does: leave is given unless `refuse`. Gives what it passed and when, in milliseconds.
fn call(tool: &ScriptedTool, name: &str, stop: &CancellationToken, refuse: bool) -> Called {
    let clock = RuntimeClock::start();
    let (cx, mut phases) = ToolCx::new(context(stop), key(name), 1);
    let (tool, key) = (tool.clone(), key(name));
    tokio::spawn(async move {
        let called = tokio::spawn(async move { tool.call(ToolCall { arguments: "{}".into(), key }, cx).await });
        let mut passed = Vec::new();
        while let Some(phase) = phases.recv().await {
            let at = clock.now().as_micros() / 1_000;
            match phase {
                Phase::Checkpoint(checkpoint) => passed.push(format!("{at} {checkpoint:?}")),
                Phase::Commit(grant) => {
                    passed.push(format!("{at} commit"));
                    grant.send(!refuse).expect("it waits for leave");
                }
            }
        }
        let end = called.await.unwrap_or_else(|error| match error.is_panic() {
            true => Err(ProviderError::Refused { why: "panicked".into() }),
            false => Err(ProviderError::Stopped),
        });
        (passed, end)
    })
}

/// Stops the call once `after` is over.
async fn stop_after(stop: &CancellationToken, after: Duration) {
    context(&CancellationToken::new()).rest(after).await.expect("nobody stops this");
    stop.cancel();
}

fn stopped<T>(end: &Result<T, ProviderError>) -> bool {
    matches!(end, Err(ProviderError::Stopped))
}

#[tokio::test(start_paused = true)]
async fn steps_come_at_their_times_and_change_the_backend_once() {
    let book = tool(Cancellability::Staged, ToolScript::changes(10 * MS, "booked"));
    let stop = CancellationToken::new();
    let (passed, end) = call(&book, "a", &stop, false).await.expect("no panic");
    assert_eq!(passed, ["10 AfterRead", "20 AfterStaging", "30 BeforePublish", "30 commit"]);
    assert_eq!(end.expect("it is done").reveal(), "booked");
    let backend = book.backend();
    assert_eq!((backend.published(), backend.staged(), backend.removed()), (vec![key("a")], 0, 0));
    // The same key again: the outside has it already.
    call(&book, "a", &stop, false).await.expect("no panic").1.expect("it is done");
    assert_eq!((backend.effects(), backend.duplicates(), book.sent(), book.calls(), book.running()), (1, 1, 2, 2, 0));
    assert_eq!(book.asked()[1].key, key("a"));
}

#[tokio::test(start_paused = true)]
async fn stopped_anywhere_before_its_commit_it_leaves_nothing() {
    for at in 0..30 {
        let book = tool(Cancellability::Staged, ToolScript::changes(10 * MS, "booked"));
        let stop = CancellationToken::new();
        let called = call(&book, "a", &stop, false);
        // Between two milliseconds, so that no two things happen at once.
        stop_after(&stop, at * MS + MS / 2).await;
        assert!(stopped(&called.await.expect("no panic").1), "at {at}");
        assert_eq!((book.backend().changes(), book.backend().removed()), (0, usize::from(at >= 10)), "at {at}");
    }
    let book = tool(Cancellability::Staged, ToolScript::changes(10 * MS, "booked"));
    assert!(stopped(&call(&book, "a", &CancellationToken::new(), true).await.expect("no panic").1), "leave was refused");
    assert_eq!((book.backend().changes(), book.backend().removed(), book.sent()), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn after_it_has_sent_a_stop_disturbs_only_what_takes_back() {
    let sends = ToolScript::brings("booked").commit().send().rest(100 * MS);
    let (book, stop) = (tool(Cancellability::Irreversible, sends.clone()), CancellationToken::new());
    let (called, ()) = tokio::join!(call(&book, "a", &stop, false), stop_after(&stop, 50 * MS));
    assert!(called.expect("no panic").1.is_ok() && book.backend().effects() == 1, "it is confirmed all the same");

    let (book, stop) = (tool(Cancellability::RemoteCancel, sends.takes_back()), CancellationToken::new());
    let (called, ()) = tokio::join!(call(&book, "a", &stop, false), stop_after(&stop, 50 * MS));
    assert!(stopped(&called.expect("no panic").1));
    assert_eq!((book.backend().effects(), book.backend().undone()), (0, vec![key("a")]));
}

#[tokio::test(start_paused = true)]
async fn one_that_never_confirms_is_running_until_it_is_dropped() {
    for script in [
        ToolScript::brings("").commit().send().then(End::Hang),
        ToolScript::brings("").stage().commit().send_lost().then(End::Hang),
    ] {
        let (book, stop) = (tool(Cancellability::Irreversible, script), CancellationToken::new());
        let (cx, mut phases) = ToolCx::new(context(&stop), key("a"), 1);
        let called = tokio::spawn({
            let book = book.clone();
            async move { book.call(ToolCall { arguments: "{}".into(), key: key("a") }, cx).await }
        });
        let Some(Phase::Commit(grant)) = phases.recv().await else { panic!("it asks for leave") };
        grant.send(true).expect("it waits");
        stop_after(&stop, 10 * MS).await;
        tokio::task::yield_now().await;
        assert_eq!(book.running(), 1);
        called.abort();
        assert!(called.await.expect_err("aborted").is_cancelled());
        let backend = book.backend();
        assert_eq!((book.running(), backend.staged(), backend.effects() + backend.lost()), (0, 0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn each_misbehaviour_is_what_it_says() {
    let run = async |script: ToolScript, refuse| {
        let book = tool(Cancellability::Staged, script);
        let end = call(&book, "a", &CancellationToken::new(), refuse).await.expect("no panic").1;
        (end, book.backend().clone())
    };
    let (end, backend) = run(ToolScript::brings("").commit().send().then(End::Unknown), false).await;
    assert!(matches!(end, Err(ProviderError::Unknown { .. })) && backend.effects() == 1);
    let (end, backend) = run(ToolScript::brings("").commit().send_lost().then(End::Unknown), false).await;
    assert!(matches!(end, Err(ProviderError::Unknown { .. })));
    assert_eq!((backend.effects(), backend.lost(), backend.shows(&key("a"))), (0, 1, Outside::DidNotHappen));
    let (end, backend) = run(ToolScript::brings("").stage().then(End::Panic), false).await;
    assert!(matches!(end, Err(ProviderError::Refused { why }) if why == "panicked") && backend.removed() == 1);
    let (end, backend) = run(ToolScript::brings("").stage().commit().untidy(), true).await;
    assert!(stopped(&end) && backend.staged() == 1);
    let (end, backend) = run(ToolScript::brings("").commit().send().rogue(), true).await;
    assert!(end.is_ok() && backend.effects() == 1, "it had no leave");

    let deaf = ToolScript::reads(100 * MS, "read").rest(100 * MS).deaf();
    let (book, stop) = (tool(Cancellability::ReadOnly, deaf), CancellationToken::new());
    let (called, ()) = tokio::join!(call(&book, "a", &stop, false), stop_after(&stop, 50 * MS));
    let (passed, end) = called.expect("no panic");
    assert!(passed.is_empty() && end.is_ok(), "it works on, and no checkpoint counts after the stop: {passed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_blocks_its_thread_sees_no_stop_until_its_gate_opens() {
    let gate = Gate::new();
    let script = ToolScript::brings("").block(&gate).checkpoint(Checkpoint::AfterRead);
    let (book, stop) = (tool(Cancellability::ReadOnly, script), CancellationToken::new());
    let called = call(&book, "a", &stop, false);
    while book.running() == 0 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    assert_eq!(book.running(), 1);
    gate.open();
    assert!(stopped(&called.await.expect("no panic").1));
}

#[tokio::test(start_paused = true)]
async fn probes_and_compensations_answer_as_told() {
    let book = tool(Cancellability::Irreversible, ToolScript::brings("").commit().send())
        .keyed(|arguments| Some(format!("book {arguments}")))
        .probing([Probe::Ends(End::Absent), Probe::Says(Outside::Unknown), Probe::Truth])
        .undoing([End::Refuse, End::Complete])
        .later_takes(20 * MS);
    assert_eq!(Tool::key(&book, "{}").as_deref(), Some("book {}"));
    let stop = CancellationToken::new();
    call(&book, "a", &stop, false).await.expect("no panic").1.expect("it is done");
    let probe = async |name| book.probe(key(name), context(&stop)).await;
    assert!(matches!(probe("a").await, Err(ProviderError::Unavailable { .. })));
    assert!(matches!(probe("a").await, Ok(Outside::Unknown)));
    assert!(matches!(probe("a").await, Ok(Outside::Happened)));
    assert!(matches!(probe("b").await, Ok(Outside::DidNotHappen)));
    assert_eq!((book.backend().probed().len(), book.backend().effects()), (4, 1), "asking changes nothing");
    assert!(matches!(book.compensate(key("a"), context(&stop)).await, Err(ProviderError::Refused { .. })));
    assert_eq!(book.backend().effects(), 1);
    book.compensate(key("a"), context(&stop)).await.expect("the second works");
    assert_eq!((book.backend().undone(), book.backend().effects(), book.undo_calls()), (vec![key("a")], 0, 2));
    stop.cancel();
    assert!(stopped(&probe("a").await) && stopped(&book.compensate(key("a"), context(&stop)).await));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_times_and_another_other_ones() {
    let run = async |seed| {
        let book = tool(Cancellability::Staged, ToolScript::changes(10 * MS, "booked").jitter(100 * MS, seed));
        call(&book, "a", &CancellationToken::new(), false).await.expect("no panic").0
    };
    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await, run(8).await);
}
