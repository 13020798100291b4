//! Sixth chapter of the machine: input for a turn that runs, and turns that the application begins.

use crate::event::{CancelCause, Event, FailReason, Initiator, NotStarted, Pii, Stage};
use crate::id::{CallId, RequestId, TurnId};
use crate::turn::acting::Keep;
use crate::turn::calls::State;
use crate::turn::inbox::Queued;
use crate::turn::life::Life;
use crate::turn::machine::Machine;
use crate::turn::stopping::Cancel;
use crate::turn::turns::Kind;
use crate::turn::{ApproveAnswer, Handover, Refusal, SubmitAnswer, SubmitMode, TaskSpec};

impl Machine {
    /// Input that may steer the running turn.
    pub(super) fn submit(&mut self, request: RequestId, text: Pii<String>, mode: SubmitMode) -> SubmitAnswer {
        let refused = |refusal, text| SubmitAnswer::NotSubmitted { refusal, text };
        if let Some(refusal) = self.refusal(&text) {
            return refused(refusal, text);
        }
        let live = self.turns.live.as_ref().map(|t| t.id);
        match (mode, live) {
            (SubmitMode::StartOrSteer | SubmitMode::StartIfIdle, None) => SubmitAnswer::Started(self.start_by_text(request, text)),
            (SubmitMode::Steer { .. }, None) => refused(Refusal::NoActiveTurn, text),
            (SubmitMode::StartIfIdle, Some(actual)) => refused(Refusal::ExpectedTurnMismatch { actual }, text),
            (SubmitMode::Steer { expected }, Some(actual)) if expected != actual => {
                refused(Refusal::ExpectedTurnMismatch { actual }, text)
            }
            (SubmitMode::StartOrSteer | SubmitMode::Steer { .. }, Some(_)) => self.steer(request, text),
        }
    }

    /// Why no input is taken at all.
    pub(super) fn refusal(&self, text: &Pii<String>) -> Option<Refusal> {
        if self.draining || self.is_closing() {
            Some(Refusal::Draining)
        } else if text.reveal().trim().is_empty() {
            Some(Refusal::Empty)
        } else {
            None
        }
    }

    fn steer(&mut self, input: RequestId, text: Pii<String>) -> SubmitAnswer {
        let most = self.policy.budget.inbox;
        let Some(turn) = &mut self.turns.live else { return SubmitAnswer::NotSubmitted { refusal: Refusal::NoActiveTurn, text } };
        let id = turn.id;
        if turn.kind != Kind::Conversation {
            return SubmitAnswer::NotSubmitted { refusal: Refusal::NotSteerable { turn: id }, text };
        }
        if let Err(Queued { text, .. }) = turn.inbox.put(Queued { input, text: text.clone() }, most) {
            return SubmitAnswer::NotSubmitted { refusal: Refusal::InboxFull { turn: id }, text };
        }
        self.write(Some(id), Event::InputQueued { input, text });
        SubmitAnswer::Steered(id)
    }

    /// A turn that was typed begins; newer than anything being said.
    pub(super) fn start_by_text(&mut self, request: RequestId, text: Pii<String>) -> TurnId {
        let parent = self.make_room(Initiator::Client, request, Keep::ByPolicy);
        let turn = self.accept(parent);
        self.start(text);
        turn
    }

    /// What is being said is over, and what runs is superseded. Returns the turn that was live.
    pub(super) fn make_room(&mut self, initiator: Initiator, request: RequestId, keep: Keep<'_>) -> Option<TurnId> {
        let verdict = self.floor.yield_to_text(self.now);
        self.obey(verdict);
        self.collect_words();
        if let Some(words) = self.utterances.set_aside() {
            self.history.user(None, &words);
        }
        let live = self.turns.live.as_ref().map(|t| t.id);
        self.cancel_live(Cancel { cause: CancelCause::Superseded, initiator, request, onset: None, keep, by: None });
        live
    }

    /// A fixed text is spoken, whatever was being answered.
    pub(super) fn announce(&mut self, request: RequestId, text: Pii<String>, interruptible: bool) -> SubmitAnswer {
        if let Some(refusal) = self.refusal(&text) {
            return SubmitAnswer::NotSubmitted { refusal, text };
        }
        let parent = self.make_room(Initiator::Application, request, Keep::ByPolicy);
        let id = self.accept(parent);
        if let Some(turn) = &mut self.turns.live {
            turn.kind = Kind::Announcement { interruptible };
        }
        if self.begin_running(None) {
            self.history.announcement(id);
            self.write(Some(id), Event::Announced { text: text.clone() });
            self.hold_for_link();
            self.say_all(text);
        }
        SubmitAnswer::Started(id)
    }

    /// One turn stops, and another follows it.
    pub(super) fn hand_over(&mut self, request: RequestId, handover: Handover) -> SubmitAnswer {
        let Handover { stop, keep, next, constraints } = handover;
        let refused = |refusal, text| SubmitAnswer::NotSubmitted { refusal, text };
        if let Some(refusal) = self.refusal(&next) {
            return refused(refusal, next);
        }
        match self.turns.live.as_ref().map(|t| t.id) {
            Some(actual) if actual != stop => return refused(Refusal::ExpectedTurnMismatch { actual }, next),
            Some(_) => {}
            None if stop == TurnId(0) || stop > self.turns.last => return refused(Refusal::NoSuchTurn, next),
            None => {}
        }
        self.make_room(Initiator::Application, request, Keep::These(&keep));
        let kept: Vec<CallId> = self.kept.iter().map(|kept| kept.call).collect();
        let id = self.accept(Some(stop));
        self.write(Some(id), Event::HandedOver { from: stop, keep: kept, constraints: constraints.clone() });
        if let Some(turn) = &mut self.turns.live {
            turn.constraints = (!constraints.reveal().trim().is_empty()).then_some(constraints);
        }
        self.start(next);
        SubmitAnswer::Started(id)
    }

    /// A person answers about a call.
    pub(super) fn approve(&mut self, request: RequestId, id: CallId, granted: bool) -> ApproveAnswer {
        let Some(call) = self.calls.get(id) else { return ApproveAnswer::NoSuchCall };
        let turn = call.turn;
        if call.state != State::Asked || self.turns.running().is_none_or(|t| t.id != turn) {
            return ApproveAnswer::NotAsked;
        }
        self.write(Some(turn), Event::ApprovalGiven { call: id, granted, request });
        if granted {
            self.try_to_start(id, true);
        } else {
            self.refuse_call(id, NotStarted::Refused);
        }
        ApproveAnswer::Taken
    }

    /// The safe point: nothing is asked, nothing is being called, and there is something to tell the model.
    pub(super) fn go_on(&mut self) {
        let Some(turn) = self.turns.live.as_ref().filter(|t| t.life == Life::Running && t.kind == Kind::Conversation) else {
            return;
        };
        if turn.works_on(Stage::Retrieve) || turn.works_on(Stage::Generate) {
            return;
        }
        let open = || self.calls.of_turn(turn.id).any(|c| c.is_open());
        let nothing_said = turn.input.as_ref().is_none_or(|input| input.reveal().is_empty());
        let asks = if turn.requests == 0 {
            // Words are answered at once; without any, only what was kept is worth a word.
            !nothing_said || !turn.inbox.is_empty() || !open()
        } else {
            (turn.news || !turn.inbox.is_empty()) && !open()
        };
        if asks {
            self.ask_model();
        }
    }

    /// Puts the conversation to the model.
    fn ask_model(&mut self) {
        let now = self.now;
        let most = self.policy.budget.requests;
        let Some(turn) = self.turns.running() else { return };
        if turn.requests >= most {
            self.fail_live(FailReason::TooManyRequests);
            return;
        }
        if turn.budget.left(now).is_zero() {
            self.fail_live(FailReason::DeadlineExceeded { stage: Stage::Generate });
            return;
        }
        turn.requests += 1;
        turn.news = false;
        let (id, request) = (turn.id, turn.requests);
        self.history.words(id, turn.reply.by_request(turn.reply.said()), false);
        turn.reply.next_request(request);
        let (found, constraints) = (turn.found.clone(), turn.constraints.clone());
        for Queued { input, text } in turn.inbox.take() {
            self.history.further(id, request, text.reveal());
            self.write(Some(id), Event::InputConsumed { input, request });
        }
        self.write(Some(id), Event::ModelRequested { request });
        let context = self.history.context();
        let Some(turn) = self.turns.running() else { return };
        let deadline = turn.budget.asked(now);
        self.start_task(Stage::Generate, TaskSpec::Generate { turn: id, request, context, found, constraints }, deadline);
    }
}
