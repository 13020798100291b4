//! What a call may count on from its context.

use super::*;
use crate::time::{RuntimeClock, Stamp};
use tokio_util::sync::CancellationToken;

fn cx() -> (ToolCx, mpsc::Receiver<Phase>, CancellationToken) {
    let stop = CancellationToken::new();
    let task = TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, stop.clone());
    let (cx, phases) = ToolCx::new(task, IdempotencyKey("k".into()), 1);
    (cx, phases, stop)
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_ends_a_call_that_was_stopped() {
    let (cx, mut phases, stop) = cx();
    cx.checkpoint(Checkpoint::AfterRead).await.expect("nobody stopped it");
    assert!(matches!(phases.recv().await, Some(Phase::Checkpoint(Checkpoint::AfterRead))));
    stop.cancel();
    assert!(matches!(cx.checkpoint(Checkpoint::AfterStaging).await, Err(ProviderError::Stopped)));
    assert!(matches!(cx.commit().await, Err(ProviderError::Stopped)));
    assert!(phases.try_recv().is_err(), "and it says nothing more");
}

#[tokio::test(start_paused = true)]
async fn leave_is_granted_refused_or_gone() {
    for (answer, granted) in [(Some(true), true), (Some(false), false), (None, false)] {
        let (cx, mut phases, _stop) = cx();
        let (leave, ()) = tokio::join!(cx.commit(), async {
            let Some(Phase::Commit(grant)) = phases.recv().await else { panic!("it asks for leave") };
            if let Some(answer) = answer {
                grant.send(answer).expect("it waits");
            }
        });
        assert_eq!(leave.is_ok_and(|leave| leave.key().0 == "k"), granted, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_was_granted_leave_has_it_even_if_a_stop_came_meanwhile() {
    let (cx, mut phases, stop) = cx();
    let (leave, ()) = tokio::join!(cx.commit(), async {
        let Some(Phase::Commit(grant)) = phases.recv().await else { panic!("it asks for leave") };
        stop.cancel();
        tokio::task::yield_now().await;
        grant.send(true).expect("it still waits: only the session knows which came first");
    });
    assert!(leave.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_for_room_and_a_session_that_is_gone_ends_the_call() {
    let (cx, phases, stop) = cx();
    cx.checkpoint(Checkpoint::AfterRead).await.expect("there is room for one");
    let (second, ()) = tokio::join!(cx.commit(), async {
        tokio::task::yield_now().await;
        stop.cancel();
    });
    assert!(matches!(second, Err(ProviderError::Stopped)), "nobody took the first");
    drop(phases);
    let (cx, phases, _stop) = self::cx();
    drop(phases);
    assert!(matches!(cx.checkpoint(Checkpoint::AfterRead).await, Err(ProviderError::Stopped)));
    assert!(matches!(cx.commit().await, Err(ProviderError::Stopped)));
}
