//! People: what they say, type, press and break off, and what they know when they do.

use std::collections::BTreeMap;

use super::marks::{Mark, Marks};
use super::rng::Rng;
use super::shape::Shape;
use crate::event::{CancelCause, Event, Initiator, LateKind, Outcome, Record};
use crate::id::{CallId, Generation, RequestId, Seq, TaskId, TurnId};
use crate::time::{SamplePos, Stamp};
use crate::turn::{
    Answer, ApproveAnswer, CancelAnswer, Command, Handover, Input, LinkFact, Playout, Refusal, Report, ResolveAnswer, SayAnswer,
    SubmitAnswer, SubmitMode, Voice,
};

/// What a person wants to do next.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// Ask for something.
    Command(Command),
    /// Make a sound for so many blocks, with these words in it.
    Sound { blocks: u64, words: &'static str, weak: bool },
    /// Break or mend the link.
    Link(LinkFact),
    /// A fact that makes no sense.
    Nonsense(Input),
}

/// The people of a world, and what they were shown.
#[derive(Clone, Debug, Default)]
pub(super) struct People {
    requests: u128,
    /// The turn that they saw accepted last and not ended.
    looking_at: Option<TurnId>,
    last_turn: TurnId,
    /// Calls that they were shown and that may be answered or resolved.
    calls: Vec<CallId>,
    key_down: bool,
    link_up: bool,
    said: Vec<Command>,
    /// What each request was answered with.
    answers: BTreeMap<(RequestId, u8), Answer>,
    /// The present sound: its name, blocks left, since when, its words, whether it is weak.
    pub(super) sound: Option<Sounding>,
    pub(super) voices: u64,
}

/// A sound that somebody makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sounding {
    pub(super) voice: u64,
    pub(super) left: u64,
    pub(super) since: Stamp,
    pub(super) words: &'static str,
    pub(super) weak: bool,
}

impl Sounding {
    /// What the detectors make of one more block of it.
    pub(super) fn evidence(&self, rng: &mut Rng, now: Stamp) -> Voice {
        let (speech, weight) = if self.weak && rng.chance(400) { (0.3, 0.0) } else { (0.95, 1.0) };
        Voice { speech, weight, ..Voice::sure(now, self.since) }
    }
}

impl People {
    pub(super) fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId::from_bits(self.requests)
    }

    /// Whether they wait for an answer.
    pub(super) fn is_looking(&self) -> bool {
        self.looking_at.is_some()
    }

    fn some_turn(&self, rng: &mut Rng) -> TurnId {
        match self.looking_at {
            Some(turn) if rng.chance(700) => turn,
            _ => TurnId(rng.range(0, self.last_turn.0 + 1)),
        }
    }

    fn some_call(&self, rng: &mut Rng) -> CallId {
        // Mostly the newest.
        let newest = self.calls.len().saturating_sub(4);
        self.calls.get(newest..).and_then(|new| rng.pick(new)).copied().unwrap_or(CallId(rng.range(0, 40)))
    }

    /// What somebody does next.
    pub(super) fn wish(&mut self, rng: &mut Rng, shape: &Shape, now: Stamp) -> Wish {
        let request = self.request();
        let text = *rng.pick(&["tell me", "and then?", "no, the other one"]).unwrap_or(&"tell me");
        let submit = |mode| Command::Submit { request, text: text.into(), mode };
        let cancel = |turn, deadline| {
            let (cause, initiator) = (CancelCause::User, Initiator::Client);
            Command::Cancel { request, turn, cause, initiator, deadline }
        };
        let command = match rng.weighed(&shape.wishes) {
            0 => Command::Say { request, text: text.into() },
            1 | 2 => return Wish::Sound { blocks: rng.range(15, 250), words: "what about this", weak: rng.chance(200) },
            3 => return Wish::Sound { blocks: rng.range(1, 9), words: "", weak: rng.chance(300) },
            4 => return Wish::Sound { blocks: rng.range(8, 40), words: "", weak: rng.chance(600) },
            5 => submit(SubmitMode::StartOrSteer),
            6 => submit(SubmitMode::StartIfIdle),
            7 => submit(SubmitMode::Steer { expected: self.some_turn(rng) }),
            8 => cancel(self.some_turn(rng), None),
            9 => cancel(self.some_turn(rng), Some(now + rng.ms(0, 200))),
            10 => Command::Announce { request, text: "the door is open".into(), interruptible: rng.chance(500) },
            11 => {
                let keep = self.calls.iter().rev().take(rng.below(4) as usize).copied().collect();
                let constraints = if rng.chance(500) { "be brief" } else { "" };
                let handover = Handover { stop: self.some_turn(rng), keep, next: text.into(), constraints: constraints.into() };
                Command::Handover { request, handover }
            }
            12 => Command::Approve { request, call: self.some_call(rng), granted: rng.chance(700) },
            13 => {
                let outcome = Outcome::NeedsPerson;
                Command::Resolve { request, call: self.some_call(rng), outcome }
            }
            14 => {
                self.key_down = !self.key_down;
                Command::PushToTalk { request, down: self.key_down }
            }
            15 => {
                self.link_up = !self.link_up;
                return Wish::Link(if self.link_up { LinkFact::Up } else { LinkFact::Lost });
            }
            16 => Command::Say { request, text: if rng.chance(500) { "" } else { "  " }.into() },
            17 | 18 => match rng.pick(&self.said) {
                // Sent again, as after a reconnect.
                Some(again) => again.clone(),
                None => submit(SubmitMode::StartOrSteer),
            },
            _ if rng.chance(shape.faults.rogue.saturating_mul(5).min(1_000)) => return Wish::Nonsense(self.nonsense(rng, now)),
            _ => submit(SubmitMode::StartOrSteer),
        };
        self.remember(&command);
        Wish::Command(command)
    }

    pub(super) fn remember(&mut self, command: &Command) {
        if self.said.len() >= 12 {
            self.said.remove(0);
        }
        self.said.push(command.clone());
    }

    fn nonsense(&self, rng: &mut Rng, now: Stamp) -> Input {
        let task = TaskId(rng.range(0, 60));
        match rng.below(9) {
            0 => Input::Appended { seq: Seq(1_000_000) },
            1 => Input::Late { kind: LateKind::Audio, generation: Generation(rng.range(0, 40)) },
            2 => {
                let (generation, position) = (Generation(rng.range(0, 60)), SamplePos(rng.range(0, 100_000)));
                Input::Playout(Playout::Progress { generation, position, at: now })
            }
            3 => Input::Task { task, report: Report::CommitAsked },
            4 => Input::Task { task, report: Report::Text { delta: "ghost ".into() } },
            5 => Input::Task { task, report: Report::Result { text: "ghost".into() } },
            6 => Input::Tick,
            7 => Input::Voice(Voice { at: Stamp::ZERO, since: now, speech: 1.0, ..Voice::default() }),
            _ => Input::Playout(Playout::Underrun { generation: Generation(rng.range(0, 9)), at: now, gap_us: 10 }),
        }
    }

    /// They are shown a record. Returns a call that somebody is asked about.
    pub(super) fn shown(&mut self, record: &Record) -> Option<CallId> {
        match &record.event {
            Event::TurnAccepted { .. } => {
                self.looking_at = record.turn;
                self.last_turn = self.last_turn.max(record.turn.unwrap_or_default());
            }
            Event::TurnEnded { .. } if self.looking_at == record.turn => self.looking_at = None,
            Event::CallRequested { call, .. } => {
                if self.calls.len() >= 32 {
                    self.calls.remove(0);
                }
                self.calls.push(*call);
            }
            Event::ApprovalAsked { call } => return Some(*call),
            _ => {}
        }
        None
    }

    /// A request is answered. Says what is wrong with it: an answer, once given, is the answer.
    pub(super) fn answered(&mut self, request: RequestId, kind: u8, answer: &Answer, marks: &mut Marks) -> Option<String> {
        marks.hit(match answer {
            Answer::Cancel(CancelAnswer::Accepted) => Mark::cancel_accepted,
            Answer::Cancel(CancelAnswer::AlreadyTerminal(_)) => Mark::cancel_already_terminal,
            Answer::Cancel(CancelAnswer::ReconcileRequired(_)) => Mark::cancel_reconcile,
            Answer::Cancel(CancelAnswer::NoSuchTurn) => Mark::cancel_no_such_turn,
            Answer::Submit(SubmitAnswer::Steered(_)) => Mark::steered,
            Answer::Submit(SubmitAnswer::Started(_)) | Answer::Say(SayAnswer::Started(_)) => Mark::steer_started,
            Answer::Submit(SubmitAnswer::NotSubmitted { refusal, .. }) | Answer::Say(SayAnswer::NotAccepted { refusal, .. }) => {
                match refusal {
                    Refusal::Empty => Mark::refused_empty,
                    Refusal::Draining => Mark::refused_draining,
                    Refusal::NoActiveTurn => Mark::refused_no_turn,
                    Refusal::ExpectedTurnMismatch { .. } => Mark::refused_mismatch,
                    Refusal::NotSteerable { .. } => Mark::refused_not_steerable,
                    Refusal::InboxFull { .. } => Mark::refused_inbox_full,
                    Refusal::NoSuchTurn => Mark::refused_no_such_turn,
                }
            }
            Answer::Approve(ApproveAnswer::Taken) => Mark::approval_granted,
            Answer::Approve(_) => Mark::approve_not_asked,
            Answer::Resolve(ResolveAnswer::Settled) => Mark::resolve_settled,
            Answer::Resolve(ResolveAnswer::AlreadySettled(_)) => Mark::resolve_already,
            Answer::Resolve(ResolveAnswer::NotOpen) => Mark::resolve_not_open,
            Answer::Done => Mark::drained,
        });
        match self.answers.insert((request, kind), answer.clone()) {
            Some(first) => {
                marks.hit(Mark::request_repeated);
                (first != *answer).then(|| format!("request {request} was answered {first:?} and now {answer:?}"))
            }
            None => None,
        }
    }

    /// The session forgot what it had answered and not kept.
    pub(super) fn restarted(&mut self) {
        self.answers.clear();
        self.key_down = false;
        self.link_up = false;
        self.looking_at = None;
    }
}
