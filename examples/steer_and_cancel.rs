//! Steers a running answer, then stops it in the one moment when a stop comes too late. Needs no hardware, no network and no key.
//!
//! What you would hear: "Let me see what is free.", a pause while a tool looks, "There is a table at eight. I am booking it.", and
//! silence in the middle of the next sentence. What you see, in about six seconds:
//!
//! 1. "For four people, please" is said while the tool works. It is *steered* into the turn, waits, and is *consumed* by the second
//!    question to the model: two facts, not one.
//! 2. The stop comes when the booking has been sent and not confirmed. The answer falls silent at once, and the turn ends in
//!    `RECONCILE_REQUIRED`, never in `CANCELLED`: nobody knows yet.
//! 3. The engine asks the outside by the call's key, and nothing is sent twice. The booking happened: it says so, and the list of open
//!    calls is empty again. Last, the evidence: what was asked, what tools returned, what the outside shows now.
//!
//! ```text
//! cargo run --example steer_and_cancel
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::event::{Cancellability, Checkpoint, Declaration, IdempotencyKey, Outside};
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::provider::{Info, Llm, Message, Piece, Prompt, ProviderError, Sink, TaskCx, Tool, ToolCall, ToolCx, ToolInfo};
use antiphon::time::{BEAT, Clock};
use antiphon::transport::memory::{FarEnd, Net, page, pair};
use antiphon::turn::{SayAnswer, SubmitMode};
use antiphon::{CancelCause, Engine, Event, Pii, Record, RequestId, RuntimeClock, SessionId};
use tokio::time::{MissedTickBehavior, interval};

/// A model that looks first, then books, and says what it does.
struct Waiter;

impl Llm for Waiter {
    fn info(&self) -> Info {
        Info::new("waiter")
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, _: TaskCx) -> Result<(), ProviderError> {
        let looked = prompt.conversation.iter().any(|message| matches!(message, Message::Result { .. }));
        if looked {
            out.send("There is a table at eight. I am booking it. You will get a message when they have confirmed it.".into())
                .await?;
            out.send(Piece::Call { tool: "book".into(), arguments: r#"{"at":"20:00","people":4}"#.into() }).await
        } else {
            out.send("Let me see what is free. ".into()).await?;
            out.send(Piece::Call { tool: "look".into(), arguments: r#"{"day":"today"}"#.into() }).await
        }
    }
}

/// Looks for free tables. It changes nothing: it may be stopped anywhere.
struct Look;

impl Tool for Look {
    fn info(&self) -> ToolInfo {
        ToolInfo {
            declaration: Declaration::new("look", Cancellability::ReadOnly),
            description: "Which tables are free on a day.".into(),
            parameters: serde_json::json!({"type": "object", "properties": {"day": {"type": "string"}}}),
        }
    }

    async fn call(&self, _: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        cx.task().rest(Duration::from_millis(2_000)).await?;
        Ok("one table, at eight".into())
    }
}

/// Books a table. Once sent, it cannot be taken back; the restaurant can be asked later whether it has the booking.
#[derive(Clone, Default)]
struct Book {
    restaurant: Arc<Mutex<Vec<IdempotencyKey>>>,
}

impl Tool for Book {
    fn info(&self) -> ToolInfo {
        let mut declaration = Declaration::new("book", Cancellability::Irreversible);
        declaration.checkpoints = vec![Checkpoint::BeforePublish];
        declaration.probes = true;
        ToolInfo {
            declaration,
            description: "Books a table.".into(),
            parameters: serde_json::json!({"type": "object", "properties": {"at": {"type": "string"}, "people": {"type": "integer"}}}),
        }
    }

    fn key(&self, arguments: &str) -> Option<String> {
        Some(format!("booking {arguments}"))
    }

    async fn call(&self, _: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        // The restaurant picks up the phone; until here a stop leaves nothing behind.
        cx.task().rest(Duration::from_millis(3_500)).await?;
        cx.checkpoint(Checkpoint::BeforePublish).await?;
        let leave = cx.commit().await?;
        self.restaurant.lock().expect("no panic").push(leave.key().clone());
        // The restaurant takes its time, and then the line is dead.
        cx.task().rest(Duration::from_millis(2_500)).await?;
        Err(ProviderError::Unknown { why: "the line went dead".into() })
    }

    async fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Result<Outside, ProviderError> {
        cx.rest(Duration::from_millis(300)).await?;
        let known = self.restaurant.lock().expect("no panic").contains(&key);
        Ok(if known { Outside::Happened } else { Outside::DidNotHappen })
    }
}

/// Turns the far end's beat: the person listens.
async fn listen(mut far: FarEnd, clock: RuntimeClock) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sounding = false;
    loop {
        beat.tick().await;
        let sounds = far.beat(clock.now()).sounds();
        if sounds != std::mem::replace(&mut sounding, sounds) {
            println!("{:>8}   {}", clock.now().to_string(), if sounds { "~~~~ sound" } else { "     silence" });
        }
    }
}

/// A record in one line, if there is something to see.
fn line(record: &Record) -> Option<String> {
    Some(match &record.event {
        Event::TurnAccepted { .. } => format!("{} accepted", record.turn?),
        Event::ModelRequested { request } => format!("model asked, time {request}"),
        Event::CallRequested { call, tool, .. } => format!("{call} asked for: {tool}"),
        Event::InputQueued { .. } => "input queued (the model has not seen it)".into(),
        Event::InputConsumed { request, .. } => format!("input consumed by question {request}"),
        Event::CommitIntent { call, .. } => format!("{call} intends to commit: kept before it leaves"),
        Event::CommitSent { call } => format!("{call} has leave to commit: from here on nobody knows"),
        Event::CallEnded { call, ending, .. } => format!("{call} ended: {ending}"),
        Event::CancelRequested { cause, .. } => format!("stop requested ({cause}); requested is not stopped"),
        Event::TurnEnded { terminal, heard, .. } => format!("ended: {terminal}, heard: {:?}", heard.reveal()),
        Event::Reconciled { call, outcome } => format!("{call} reconciled: {outcome:?}"),
        _ => return None,
    })
}

#[tokio::main]
async fn main() -> Result<(), antiphon::Error> {
    let tts = ScriptedTts::new([TtsScript::new().a_char(Duration::from_millis(50))]);
    let engine = Engine::builder(ScriptedStt::hearing("unused"), Waiter, tts).tool(Look).tool(Book::default()).build();
    let clock = RuntimeClock::start();
    let (link, far) = pair(Net::perfect(), page());
    let session = engine.open(SessionId::new(), clock, link)?;
    let listening = tokio::spawn(listen(far, clock));

    let mut records = session.records();
    let SayAnswer::Started(turn) = session.say("book me a table for tonight").await else { panic!("a fresh session takes it") };
    while let Some(record) = records.next().await {
        if let Some(line) = line(&record) {
            println!("{:>8}   {line}", record.at.to_string());
        }
        match &record.event {
            Event::CallRequested { tool, .. } if tool == "look" => {
                let answer = session.submit("for four people, please", SubmitMode::Steer { expected: turn }).await;
                println!("{:>8} > \"for four people, please\": {answer:?}", clock.now().to_string());
            }
            Event::CommitSent { .. } => {
                let answer = session.cancel(turn, RequestId::new(), CancelCause::User).await;
                println!("{:>8} > \"stop\": {answer:?}", clock.now().to_string());
            }
            Event::TurnEnded { .. } => {
                for open in engine.unreconciled() {
                    println!("{:>8} > open: {} {} under {}", clock.now().to_string(), open.call, open.tool, open.key);
                }
            }
            Event::Reconciled { .. } => break,
            _ => {}
        }
    }
    println!("         > open calls: {}", engine.unreconciled().len());

    let evidence = session.evidence(turn).await?;
    println!("\nWhat was asked");
    for input in &evidence.asked.inputs {
        println!("  {:?}, seen by the model in question {:?}", input.text.reveal(), input.consumed_by);
    }
    for call in &evidence.asked.calls {
        println!("  {} {}{}", call.call, call.tool, call.arguments.reveal());
    }
    println!("What tools returned");
    for returned in &evidence.returned {
        println!(
            "  {} {}, {:?}, later: {:?}",
            returned.call,
            returned.ending,
            returned.result.as_ref().map(Pii::reveal),
            returned.outcome
        );
    }
    println!("What the outside shows now");
    for now in &evidence.is_now {
        println!("  {} {:?}", now.call, now.shows);
    }
    session.close(CancelCause::User).await;
    listening.abort();
    Ok(())
}
