//! The contract of a tool against wrong tools: each rule catches its fault.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::event::{Checkpoint, Pii};
use crate::provider::script::End;
use crate::provider::tool::{Probe, ScriptedTool, ToolScript};
use crate::provider::{TaskCx, ToolCall, ToolCx, ToolInfo};

/// What a tool does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    PublishesBeforeLeave,
    IgnoresStop,
    PassesUndeclared,
    NeverAsks,
    AsksTwice,
    Forgets,
    ProbeLies,
    Panics,
    Hangs,
}

#[derive(Clone)]
struct Shop {
    fault: Fault,
    class: Cancellability,
    sold: Arc<Mutex<Vec<IdempotencyKey>>>,
}

impl Shop {
    fn sell(&self, key: &IdempotencyKey) {
        self.sold.lock().expect("whole").push(key.clone());
    }
}

impl Tool for Shop {
    fn info(&self) -> ToolInfo {
        let declaration = Declaration {
            checkpoints: vec![Checkpoint::AfterRead],
            probes: true,
            compensates: self.class != Cancellability::ReadOnly,
            ..Declaration::new("shop", self.class)
        };
        ToolInfo { declaration, description: "Sells.".into(), parameters: serde_json::json!({ "type": "object" }) }
    }

    async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        match self.fault {
            Fault::Panics => panic!("on purpose"),
            Fault::Hangs => std::future::pending::<()>().await,
            Fault::PublishesBeforeLeave => self.sell(&call.key),
            _ => {}
        }
        let passed = cx.checkpoint(Checkpoint::AfterRead).await;
        if self.fault != Fault::IgnoresStop {
            passed?;
        }
        if self.fault == Fault::PassesUndeclared {
            cx.checkpoint(Checkpoint::BeforePublish).await?;
        }
        if self.class == Cancellability::ReadOnly && self.fault == Fault::None || self.fault == Fault::NeverAsks {
            return Ok("looked".into());
        }
        let leave = cx.commit().await;
        if self.fault == Fault::IgnoresStop {
            self.sell(&call.key);
            return Ok("sold".into());
        }
        let leave = leave?;
        if self.fault == Fault::AsksTwice {
            cx.commit().await?;
        }
        if self.fault != Fault::Forgets {
            self.sell(leave.key());
        }
        Ok("sold".into())
    }

    async fn probe(&self, key: IdempotencyKey, _: TaskCx) -> Result<Outside, ProviderError> {
        let sold = self.sold.lock().expect("whole").contains(&key) != (self.fault == Fault::ProbeLies);
        Ok(if sold { Outside::Happened } else { Outside::DidNotHappen })
    }

    async fn compensate(&self, key: IdempotencyKey, _: TaskCx) -> Result<(), ProviderError> {
        self.sold.lock().expect("whole").retain(|k| *k != key);
        Ok(())
    }
}

async fn find(fault: Fault, class: Cancellability) -> Vec<ToolFailure> {
    let shop = Shop { fault, class, sold: Arc::default() };
    let sold = shop.sold.clone();
    examine_tool(shop, "{}", move || sold.lock().expect("whole").len() as u64, &Terms::default()).await.failures
}

#[tokio::test(start_paused = true)]
async fn a_good_tool_of_each_class_passes() {
    use Cancellability::*;
    for class in [ReadOnly, Staged, RemoteCancel, Irreversible, HumanProcess] {
        assert_eq!(find(Fault::None, class).await, [], "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_rule_catches_a_tool_made_to_break_it() {
    use ToolFailure::*;
    let staged = Cancellability::Staged;
    let found = find(Fault::PublishesBeforeLeave, staged).await;
    assert!(found.contains(&Changed(ToolPart::Refused, 1)) && found.contains(&Changed(ToolPart::StoppedAtOnce, 1)), "{found:?}");
    let found = find(Fault::IgnoresStop, staged).await;
    assert!(found.iter().any(|f| matches!(f, NotPolite(ToolPart::StoppedAt(0), _))), "{found:?}");
    assert!(found.contains(&Changed(ToolPart::Refused, 1)), "{found:?}");
    let plain = ToolPart::Plain;
    for (fault, want) in [
        (Fault::PassesUndeclared, Undeclared(plain, Checkpoint::BeforePublish)),
        (Fault::NeverAsks, NeverAsks(plain)),
        (Fault::AsksTwice, AsksAgain(plain)),
        (Fault::Forgets, NothingChanged(plain)),
        (Fault::ProbeLies, ProbeWrong { part: ToolPart::Probe, said: Outside::DidNotHappen }),
        (Fault::Panics, Panicked(plain)),
        (Fault::Hangs, NeverEnded(plain, Terms::default().whole)),
    ] {
        let found = find(fault, staged).await;
        assert!(found.contains(&want), "{fault:?}: {found:?}");
    }
    let found = find(Fault::Forgets, Cancellability::ReadOnly).await;
    assert!(found.contains(&ReaderCommits(plain)), "{found:?}");
}

const MS: Duration = Duration::from_millis(1);
const ALL: [Checkpoint; 3] = [Checkpoint::AfterRead, Checkpoint::AfterStaging, Checkpoint::BeforePublish];

/// A scripted tool that declares everything it can do.
fn scripted(class: Cancellability, checkpoints: &[Checkpoint], script: ToolScript) -> ScriptedTool {
    let declaration = Declaration {
        checkpoints: checkpoints.to_vec(),
        probes: true,
        compensates: class != Cancellability::ReadOnly,
        ..Declaration::new("scripted", class)
    };
    ScriptedTool::new(declaration, [script])
}

async fn examine(tool: ScriptedTool) -> Vec<ToolFailure> {
    let backend = tool.backend().clone();
    examine_tool(tool, "{}", move || backend.changes(), &Terms::default()).await.failures
}

#[tokio::test(start_paused = true)]
async fn a_scripted_tool_of_each_class_passes() {
    use Cancellability::*;
    let read = scripted(ReadOnly, &ALL[..1], ToolScript::reads(10 * MS, "read"));
    let backend = read.backend().clone();
    tool(read, "{}", move || backend.changes()).await;
    for class in [Staged, RemoteCancel, Irreversible, HumanProcess] {
        let script = ToolScript::changes(10 * MS, "changed");
        assert_eq!(examine(scripted(class, &ALL, script.clone())).await, [], "{class:?}");
        assert_eq!(examine(scripted(class, &ALL, script.takes_back())).await, [], "{class:?} that takes back");
    }
}

#[tokio::test(start_paused = true)]
async fn every_misbehaviour_of_a_script_is_found() {
    use ToolFailure::*;
    let plain = ToolPart::Plain;
    let staged = |script| scripted(Cancellability::Staged, &ALL, script);
    let good = || ToolScript::changes(10 * MS, "changed");
    let grace = Terms::default().grace;
    let slow = ToolScript::reads(2 * grace, "read").deaf();
    let found = examine(scripted(Cancellability::ReadOnly, &ALL[..1], slow)).await;
    assert_eq!(found, [NeverEnded(ToolPart::StoppedAtOnce, grace)]);
    // Deaf and quick: it does what it may not, leave or no leave.
    let found = examine(staged(good().deaf().rogue())).await;
    for part in [ToolPart::StoppedAtOnce, ToolPart::StoppedAt(0), ToolPart::StoppedAt(2), ToolPart::StoppedBeforeLeave] {
        assert!(found.contains(&Changed(part, 1)) && found.contains(&NotPolite(part, "a result".into())), "{part:?}: {found:?}");
    }
    let found = examine(staged(good().rogue())).await;
    assert!(found.contains(&Changed(ToolPart::Refused, 1)), "{found:?}");
    assert!(found.contains(&Changed(ToolPart::OddArguments, 1)), "{found:?}");
    let found = examine(staged(good().untidy())).await;
    for part in [ToolPart::StoppedAt(1), ToolPart::StoppedAt(2), ToolPart::StoppedBeforeLeave, ToolPart::Refused] {
        assert!(found.contains(&Changed(part, 1)), "{part:?}: {found:?}");
    }
    assert!(!found.contains(&Changed(ToolPart::StoppedAtOnce, 1)), "nothing lay aside then: {found:?}");
    for (script, want) in [
        (good().then(End::Panic), Panicked(plain)),
        (good().then(End::Hang), NeverEnded(plain, Terms::default().whole)),
        (good().then(End::Unknown), Failed(plain, "not known whether it happened: the script says so".into())),
        (good().checkpoint(Checkpoint::BeforePublish), LateCheckpoint(plain, Checkpoint::BeforePublish)),
        (ToolScript::reads(MS, "").commit().send(), NotPassed(plain, Checkpoint::AfterStaging)),
        (ToolScript::brings("").commit().send_lost(), NothingChanged(plain)),
    ] {
        let found = examine(staged(script)).await;
        assert!(found.contains(&want), "{want:?} in {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_a_call_is_under_watch_too() {
    use ToolFailure::*;
    let good = || scripted(Cancellability::Irreversible, &ALL, ToolScript::changes(MS, ""));
    let (whole, at) = (Terms::default().whole, ToolPart::Probe);
    for (answer, want) in [
        (Probe::Ends(End::Hang), NeverEnded(at, whole)),
        (Probe::Ends(End::Panic), Panicked(at)),
        (Probe::Says(Outside::DidNotHappen), ProbeWrong { part: at, said: Outside::DidNotHappen }),
    ] {
        let found = examine(good().probing([Probe::Truth, answer])).await;
        assert!(found.contains(&want), "{want:?} in {found:?}");
    }
    let honest = examine(good().probing([Probe::Says(Outside::Unknown)])).await;
    assert_eq!(honest, [], "not to know is no lie");
    let found = examine(good().undoing([End::Refuse])).await;
    assert_eq!(found, [Failed(ToolPart::Compensate, "refused: the script says so".into())]);
}

/// A tool with one fault that no script has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Odd {
    ReadsWithoutLooking,
    KeyPanics,
    KeyChanges,
    SaysItTookBack,
    ProbeSends,
}

struct Remote {
    odd: Odd,
    sent: Arc<AtomicU32>,
    keys: AtomicU32,
}

impl Remote {
    fn send(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
    }
}

impl Tool for Remote {
    fn info(&self) -> ToolInfo {
        let declaration = Declaration { probes: true, ..Declaration::new("remote", Cancellability::RemoteCancel) };
        ToolInfo { declaration, description: "Sends.".into(), parameters: serde_json::json!({}) }
    }

    fn key(&self, arguments: &str) -> Option<String> {
        match self.odd {
            Odd::KeyPanics => Some(arguments[..2].to_owned()),
            Odd::KeyChanges => Some(self.keys.fetch_add(1, Ordering::SeqCst).to_string()),
            _ => None,
        }
    }

    async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        if self.odd == Odd::ReadsWithoutLooking {
            let read: serde_json::Value = serde_json::from_str(call.arguments.reveal()).expect("a model writes JSON");
            assert!(read.is_object(), "as the schema says");
        }
        cx.commit().await?;
        self.send();
        let answered = cx.task().rest(MS).await;
        if self.odd != Odd::SaysItTookBack {
            return Ok("sent".into());
        }
        answered.map(|()| "sent".into())
    }

    async fn probe(&self, _: IdempotencyKey, _: TaskCx) -> Result<Outside, ProviderError> {
        if self.odd == Odd::ProbeSends {
            self.send();
        }
        Ok(Outside::Unknown)
    }
}

#[tokio::test(start_paused = true)]
async fn each_rule_about_arguments_keys_and_taking_back_catches_its_fault() {
    use ToolFailure::*;
    for (odd, want) in [
        (Odd::ReadsWithoutLooking, Panicked(ToolPart::OddArguments)),
        (Odd::KeyPanics, KeyPanics),
        (Odd::KeyChanges, KeyChanges),
        (Odd::SaysItTookBack, NotTakenBack(ToolPart::StoppedAfterLeave, 1)),
        (Odd::ProbeSends, Changed(ToolPart::ProbeOfNothing, 1)),
    ] {
        let sent = Arc::new(AtomicU32::new(0));
        let remote = Remote { odd, sent: sent.clone(), keys: AtomicU32::new(0) };
        let count = move || u64::from(sent.load(Ordering::SeqCst));
        let found = examine_tool(remote, "{}", count, &Terms::default()).await.failures;
        assert!(found.contains(&want), "{odd:?}: {found:?}");
    }
}
