//! A tool of your own: it holds a table aside, then books it. Needs no hardware, no network and no key.
//!
//! ```text
//! cargo run --example custom_tool
//! ```
//!
//! What you see, in about ten seconds (six of them are the suite):
//!
//! 1. The contract suite finds nothing wrong with it. Take that into your own tests.
//! 2. Asked for a table, the engine runs it: three checkpoints, the intent kept, leave to commit, the result.
//! 3. Told to stop when the table is held and not yet booked, it lets go of it: the house is as it was before.
//! 4. Told to stop when the booking is sent and not confirmed, nobody knows. The engine asks by the key, learns that it happened, and has
//!    it undone, since nobody wants it any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use antiphon::event::{Cancellability, Checkpoint, Declaration, IdempotencyKey, Outside};
use antiphon::provider::llm::{LlmScript, ScriptedLlm};
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::provider::{Message, ProviderError, TaskCx, Tool, ToolCall, ToolCx, ToolInfo, check};
use antiphon::time::{BEAT, Clock};
use antiphon::transport::memory::{FarEnd, Net, page, pair};
use antiphon::turn::SayAnswer;
use antiphon::{CancelCause, Engine, Event, Pii, Record, RequestId, RuntimeClock, SessionId};
use tokio::time::{MissedTickBehavior, interval};

/// A restaurant of six tables: the world outside, which remembers under which key it was asked for what.
#[derive(Clone, Default)]
struct House(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    held: Vec<u32>,
    booked: BTreeMap<IdempotencyKey, u32>,
}

impl House {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().expect("nobody panics here")
    }

    /// Holds a free table until the hold is dropped: by return, by `?`, by an abort. This is the whole clean-up.
    fn hold(&self) -> Option<Hold> {
        let mut tables = self.tables();
        let free = (1..=6).find(|n| !tables.held.contains(n) && !tables.booked.values().any(|booked| booked == n))?;
        tables.held.push(free);
        Some(Hold { house: self.clone(), table: free })
    }
}

struct Hold {
    house: House,
    table: u32,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.house.tables().held.retain(|n| *n != self.table);
    }
}

struct Reserve {
    house: House,
}

impl Reserve {
    /// What a model wrote, if it is what the schema asks for.
    fn read(arguments: &str) -> Option<(String, u64)> {
        let read: serde_json::Value = serde_json::from_str(arguments).ok()?;
        Some((read.get("at")?.as_str()?.to_owned(), read.get("people")?.as_u64()?))
    }
}

impl Tool for Reserve {
    fn info(&self) -> ToolInfo {
        ToolInfo {
            declaration: Declaration {
                checkpoints: vec![Checkpoint::AfterRead, Checkpoint::AfterStaging, Checkpoint::BeforePublish],
                minimum_budget: Duration::from_secs(1),
                probes: true,
                compensates: true,
                ..Declaration::new("reserve", Cancellability::Staged)
            },
            description: "Reserves a table for tonight.".into(),
            parameters: serde_json::json!({
                "type": "object",
                "properties": { "at": { "type": "string" }, "people": { "type": "integer" } },
                "required": ["at", "people"],
            }),
        }
    }

    /// The same evening for the same people is the same intent: said twice, it is booked once.
    fn key(&self, arguments: &str) -> Option<String> {
        Self::read(arguments).map(|(at, people)| format!("table for {people} at {at}"))
    }

    async fn call(&self, call: ToolCall, cx: ToolCx) -> Result<Pii<String>, ProviderError> {
        // The model wrote them, so they may be anything.
        let Some((at, people)) = Self::read(call.arguments.reveal()) else {
            return Err(ProviderError::Refused { why: "it takes a time and a number of people".into() });
        };
        // Every wait can be stopped, and `?` ends the call. So far there is nothing to clean up.
        cx.task().rest(Duration::from_millis(400)).await?;
        cx.checkpoint(Checkpoint::AfterRead).await?;

        let Some(hold) = self.house.hold() else { return Ok("no table is free".into()) };
        cx.task().rest(Duration::from_millis(400)).await?;
        cx.checkpoint(Checkpoint::AfterStaging).await?;

        cx.checkpoint(Checkpoint::BeforePublish).await?;
        let leave = cx.commit().await?;
        // From here on it is seen outside. Sent twice, it would be booked once: the house knows the key.
        self.house.tables().booked.entry(leave.key().clone()).or_insert(hold.table);
        // A stop now is too late for "nothing was changed", and it would be a lie. Whoever does not wait for the answer does not know.
        let confirmed = cx.task().rest(Duration::from_millis(800)).await;
        confirmed.map_err(|_| ProviderError::Unknown { why: "it was not waited for the confirmation".into() })?;
        Ok(format!("table {} for {people} at {at}", hold.table).into())
    }

    /// Asks, and never sends.
    async fn probe(&self, key: IdempotencyKey, cx: TaskCx) -> Result<Outside, ProviderError> {
        cx.rest(Duration::from_millis(200)).await?;
        Ok(if self.house.tables().booked.contains_key(&key) { Outside::Happened } else { Outside::DidNotHappen })
    }

    async fn compensate(&self, key: IdempotencyKey, cx: TaskCx) -> Result<(), ProviderError> {
        cx.rest(Duration::from_millis(200)).await?;
        self.house.tables().booked.remove(&key);
        Ok(())
    }
}

/// When the second and third turn are told to stop.
#[derive(Clone, Copy, PartialEq)]
enum Stop {
    Never,
    WhenHeld,
    WhenSent,
}

impl Stop {
    fn is_now(self, event: &Event) -> bool {
        match event {
            Event::CallCheckpoint { checkpoint: Checkpoint::AfterRead, .. } => self == Stop::WhenHeld,
            Event::CommitSent { .. } => self == Stop::WhenSent,
            _ => false,
        }
    }
}

/// A record in one line, if there is something to see.
fn line(record: &Record) -> Option<String> {
    Some(match &record.event {
        Event::CallStarted { call, .. } => format!("{call} started"),
        Event::CallCheckpoint { checkpoint, .. } => format!("  passed {checkpoint:?}"),
        Event::CommitIntent { key, .. } => format!("  intends to commit, under the key {key}"),
        Event::CommitSent { .. } => "  has leave".into(),
        Event::CancelRequested { .. } => "stop requested".into(),
        Event::CallEnded { call, ending, .. } => format!("{call} ended: {ending}"),
        Event::TurnEnded { terminal, .. } => format!("turn ended: {terminal}"),
        Event::Reconciled { call, outcome } => format!("{call} reconciled: {outcome:?}"),
        _ => return None,
    })
}

/// Turns the far end's beat, as a browser would: somebody listens.
async fn listen(mut far: FarEnd, clock: RuntimeClock) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        beat.tick().await;
        far.beat(clock.now());
    }
}

#[tokio::main]
async fn main() -> Result<(), antiphon::Error> {
    // An outside of its own, so that the suite's tables are nobody else's. It panics with what is wrong.
    let house = House::default();
    let outside = house.clone();
    let changes = move || {
        let tables = outside.tables();
        (tables.held.len() + tables.booked.len()) as u64
    };
    check::tool(Reserve { house }, r#"{"at":"20:00","people":2}"#, changes).await;
    println!("reserve keeps the contract of a tool\n");

    let model = ScriptedLlm::choosing(|prompt| match prompt.conversation.last() {
        Some(Message::Result { text, .. }) => LlmScript::says(&format!("You have {}.", text.reveal())),
        Some(Message::User { text }) => LlmScript::says("One moment.").calls("reserve", text.reveal()),
        _ => LlmScript::says("Yes?"),
    });
    let house = House::default();
    let tts = ScriptedTts::new([TtsScript::new().a_char(Duration::from_millis(30))]);
    let engine = Engine::builder(ScriptedStt::hearing("unused"), model, tts).tool(Reserve { house: house.clone() }).build();
    let clock = RuntimeClock::start();
    let (link, far) = pair(Net::perfect(), page());
    let session = engine.open(SessionId::new(), clock, link)?;
    let listening = tokio::spawn(listen(far, clock));
    let mut records = session.records();

    for (at, stop) in [("19:00", Stop::Never), ("20:00", Stop::WhenHeld), ("21:00", Stop::WhenSent)] {
        // What is typed goes to the model as it is, and this model hands it on: a table for two.
        let SayAnswer::Started(turn) = session.say(format!(r#"{{"at":"{at}","people":2}}"#)).await else {
            panic!("nothing else is going on")
        };
        println!("a table at {at}, please");
        while let Some(record) = records.next().await {
            if let Some(line) = line(&record) {
                println!("{:>10}  {line}", record.at.to_string());
            }
            if stop.is_now(&record.event) {
                session.cancel(turn, RequestId::new(), CancelCause::User).await;
            }
            let open = engine.unreconciled().len();
            if matches!(record.event, Event::TurnEnded { .. } | Event::Reconciled { .. }) && open == 0 {
                break;
            }
        }
        let tables = house.tables();
        println!("            the house: {} held, {} booked\n", tables.held.len(), tables.booked.len());
    }
    session.close(CancelCause::User).await;
    listening.abort();
    Ok(())
}
