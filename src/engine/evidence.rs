//! What can be shown of a turn: what was asked, what tools returned, and what the outside shows now, side by side (mission S5).
//!
//! The first two come from the log, the third from the tools themselves, asked now. None stands for another: a result is not the
//! outside, and the outside may have moved on. Runs in the asker's task, bounded; the session's driver is not disturbed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handle::Session;
use super::session::within;
use super::tasks::Alive;
use crate::event::{CallEnding, Event, IdempotencyKey, Outcome, Outside, Pii, Record, Terminal};
use crate::id::{CallId, RequestId, TurnId};
use crate::provider::TaskCx;
use crate::store::StoreError;
use crate::time::{Clock as _, Stamp};

/// Longest wait for the outside, and for the store to have the newest records, each.
const BOUND: Duration = Duration::from_secs(2);

/// Three kinds of evidence about a turn, side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnEvidence {
    /// Which turn.
    pub turn: TurnId,
    /// How it ended, if it has.
    pub terminal: Option<Terminal>,
    /// What was asked, from the conversation's record.
    pub asked: Asked,
    /// What became of its calls, from the record: at most one entry a call. A call without one is still open.
    pub returned: Vec<Returned>,
    /// What the outside shows now, for each call whose tool can be asked.
    pub is_now: Vec<IsNow>,
    /// Whether the log was whole. If not, its oldest records are no longer kept and something may be missing here.
    pub whole: bool,
}

/// What was asked in a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// By the person.
    pub inputs: Vec<AskedInput>,
    /// By the model, of tools.
    pub calls: Vec<AskedCall>,
}

/// An input of the person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedInput {
    /// When it was accepted.
    pub at: Stamp,
    /// The request that steered by it; `None` for the input that began the turn.
    pub request: Option<RequestId>,
    /// What was said or typed.
    pub text: Pii<String>,
    /// Which question to the model showed it to the model, if any did.
    pub consumed_by: Option<u32>,
}

/// A call that the model asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedCall {
    /// Which.
    pub call: CallId,
    /// When.
    pub at: Stamp,
    /// Of which tool.
    pub tool: String,
    /// What it was asked.
    pub arguments: Pii<String>,
    /// Under which key it would change something outside.
    pub key: IdempotencyKey,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Returned {
    /// Which.
    pub call: CallId,
    /// When it ended.
    pub at: Stamp,
    /// How.
    pub ending: CallEnding,
    /// What it brought, when it is done.
    pub result: Option<Pii<String>>,
    /// What was found out after its turn was over.
    pub outcome: Option<Outcome>,
}

/// What the outside shows of a call, now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IsNow {
    /// Which call.
    pub call: CallId,
    /// When it was asked (session time).
    pub at: Stamp,
    /// What it shows.
    pub shows: Shows,
}

/// What a live probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "probe", content = "outside")]
pub enum Shows {
    /// The outside says this.
    Says(Outside),
    /// It could not be asked.
    Failed,
    /// It did not answer within two seconds.
    TooLate,
}

impl Session {
    /// What can be shown of `turn`: what was asked, what tools returned, and what the outside shows now. Takes two seconds at most for
    /// the outside, which is asked about all calls at once, and never disturbs the session. Works after the session's end as long as its
    /// log is kept; of a turn that never was it shows nothing.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn evidence(&self, turn: TurnId) -> Result<TurnEvidence, StoreError> {
        let delivered = self.inner.last_delivered();
        let mut stored = self.inner.stored.clone();
        // A store that is gone, or does not keep up, still tells what it has.
        let _kept = within(BOUND, stored.wait_for(|seq| *seq >= delivered)).await;
        let mut evidence =
            TurnEvidence { turn, terminal: None, asked: Asked::default(), returned: Vec::new(), is_now: Vec::new(), whole: true };
        let whole = self.visit(|record| {
            evidence.absorb(record);
            ControlFlow::Continue(())
        });
        evidence.whole = whole.await?;
        evidence.is_now = self.ask_outside(&evidence.asked.calls).await;
        Ok(evidence)
    }

    /// Asks about all calls at once; whoever does not answer in time is stopped and aborted.
    async fn ask_outside(&self, calls: &[AskedCall]) -> Vec<IsNow> {
        let at = self.inner.clock.now();
        let stop = CancellationToken::new();
        let mut probes = JoinSet::new();
        let mut now = Vec::new();
        for asked in calls {
            let Some(tool) = self.inner.tools.get(&asked.tool).filter(|tool| tool.info().declaration.probes) else { continue };
            let place = now.len();
            now.push(IsNow { call: asked.call, at, shows: Shows::Failed });
            let cx = TaskCx::new(Arc::new(self.inner.clock), at + BOUND, stop.clone());
            let (key, alive) = (asked.key.clone(), Alive::new(self.inner.tally.clone()));
            probes.spawn(async move {
                let _alive = alive;
                (place, tool.probe(key, cx).await)
            });
        }
        let mut told = vec![false; now.len()];
        let all = within(BOUND, async {
            while let Some(probe) = probes.join_next().await {
                // One that panicked stays as failed; which it was is not known before all are in.
                if let Ok((place, said)) = probe {
                    told[place] = true;
                    match said {
                        Ok(outside) => now[place].shows = Shows::Says(outside),
                        Err(error) => tracing::warn!(%error, "the outside could not be asked about a call"),
                    }
                }
            }
        });
        if all.await.is_none() {
            stop.cancel();
            for (now, _) in now.iter_mut().zip(&told).filter(|(_, told)| !**told) {
                now.shows = Shows::TooLate;
            }
            probes.shutdown().await;
        }
        now
    }
}

impl TurnEvidence {
    fn absorb(&mut self, record: &Record) {
        let here = record.turn == Some(self.turn);
        match &record.event {
            Event::TurnStarted { input } if here => {
                let text = input.clone();
                self.asked.inputs.push(AskedInput { at: record.at, request: None, text, consumed_by: None });
            }
            Event::ModelRequested { request } if here => {
                for input in self.asked.inputs.iter_mut().filter(|input| input.request.is_none()) {
                    input.consumed_by.get_or_insert(*request);
                }
            }
            Event::InputQueued { input, text } if here => {
                let (at, text) = (record.at, text.clone());
                self.asked.inputs.push(AskedInput { at, request: Some(*input), text, consumed_by: None });
            }
            Event::InputConsumed { input: request, request: n } if here => {
                for input in self.asked.inputs.iter_mut().filter(|input| input.request == Some(*request)) {
                    input.consumed_by = Some(*n);
                }
            }
            Event::CallRequested { call, tool, arguments, key } if here => self.asked.calls.push(AskedCall {
                call: *call,
                at: record.at,
                tool: tool.clone(),
                arguments: arguments.clone(),
                key: key.clone(),
            }),
            // A kept call may end in another turn.
            Event::CallEnded { call, ending, result } if self.asks(*call) => {
                let (call, ending, result) = (*call, *ending, result.clone());
                self.returned.push(Returned { call, at: record.at, ending, result, outcome: None });
            }
            Event::Reconciled { call, outcome } => {
                for returned in self.returned.iter_mut().filter(|returned| returned.call == *call) {
                    returned.outcome = Some(*outcome);
                }
            }
            Event::TurnEnded { terminal, .. } if here => self.terminal = Some(terminal.clone()),
            _ => {}
        }
    }

    fn asks(&self, call: CallId) -> bool {
        self.asked.calls.iter().any(|asked| asked.call == call)
    }
}
