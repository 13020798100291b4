//! Who waits for the answer to which request, and how an answer is said on the wire.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::id::{RequestId, TurnId};
use crate::transport::wire::ToClient;
use crate::turn::{Answer, ApproveAnswer, CancelAnswer, Refusal, RequestKind, ResolveAnswer, SayAnswer, SubmitAnswer};

/// Requests of the client that wait for their answer, at most.
const CLIENT_REQUESTS: usize = 256;

/// One who waits. A handle that no longer waits is simply not told.
pub(super) enum Waiter {
    Handle(oneshot::Sender<Answer>),
    /// The client, with the turn it named.
    Client(Option<TurnId>),
    /// The engine itself, which needs no answer.
    Nobody,
}

/// All who wait. The same request asked twice has two who wait, answered in order; one id on two kinds of request is two requests.
#[derive(Default)]
pub(super) struct Waiters {
    by_request: HashMap<(RequestId, RequestKind), VecDeque<Waiter>>,
    clients: usize,
}

impl Waiters {
    /// Takes note of one; `false` when too many requests of the client wait already.
    pub(super) fn wait(&mut self, request: RequestId, kind: RequestKind, waiter: Waiter) -> bool {
        if matches!(waiter, Waiter::Client(_)) {
            if self.clients >= CLIENT_REQUESTS {
                return false;
            }
            self.clients += 1;
        }
        self.by_request.entry((request, kind)).or_default().push_back(waiter);
        true
    }

    /// Tells the one who waits; what the client is to be told comes back.
    pub(super) fn answer(&mut self, request: RequestId, kind: RequestKind, answer: Answer) -> Option<ToClient> {
        let waiting = self.by_request.get_mut(&(request, kind))?;
        let waiter = waiting.pop_front();
        if waiting.is_empty() {
            self.by_request.remove(&(request, kind));
        }
        match waiter? {
            Waiter::Handle(to) => drop(to.send(answer)),
            Waiter::Client(named) => {
                self.clients -= 1;
                let (word, turn) = in_words(&answer, named);
                return Some(ToClient::Answer { request, answer: word.to_owned(), turn });
            }
            Waiter::Nobody => {}
        }
        None
    }
}

/// An answer in the wire's fixed words, and the turn it speaks of. An input that was not taken is not sent back: its client has it.
fn in_words(answer: &Answer, named: Option<TurnId>) -> (&'static str, Option<TurnId>) {
    match answer {
        Answer::Say(SayAnswer::Started(turn)) | Answer::Submit(SubmitAnswer::Started(turn)) => ("started", Some(*turn)),
        Answer::Submit(SubmitAnswer::Steered(turn)) => ("steered", Some(*turn)),
        Answer::Say(SayAnswer::NotAccepted { refusal, .. }) | Answer::Submit(SubmitAnswer::NotSubmitted { refusal, .. }) => {
            refused(*refusal, named)
        }
        Answer::Approve(ApproveAnswer::Taken) => ("taken", named),
        Answer::Approve(ApproveAnswer::NotAsked) => ("not_asked", named),
        Answer::Approve(ApproveAnswer::NoSuchCall) => ("no_such_call", named),
        Answer::Resolve(ResolveAnswer::Settled) => ("settled", named),
        Answer::Resolve(ResolveAnswer::AlreadySettled(_)) => ("already_settled", named),
        Answer::Resolve(ResolveAnswer::NotOpen) => ("not_open", named),
        Answer::Cancel(CancelAnswer::Accepted) => ("accepted", named),
        Answer::Cancel(CancelAnswer::AlreadyTerminal(_)) => ("already_terminal", named),
        Answer::Cancel(CancelAnswer::ReconcileRequired(_)) => ("reconcile_required", named),
        Answer::Cancel(CancelAnswer::NoSuchTurn) => ("no_such_turn", named),
        Answer::Done => ("done", named),
    }
}

/// Why an input was not taken, and the turn that is in its way.
fn refused(refusal: Refusal, named: Option<TurnId>) -> (&'static str, Option<TurnId>) {
    match refusal {
        Refusal::Empty => ("empty", None),
        Refusal::Draining => ("draining", None),
        Refusal::NoActiveTurn => ("no_active_turn", named),
        Refusal::ExpectedTurnMismatch { actual } => ("expected_turn_mismatch", Some(actual)),
        Refusal::NotSteerable { turn } => ("not_steerable", Some(turn)),
        Refusal::InboxFull { turn } => ("inbox_full", Some(turn)),
        Refusal::NoSuchTurn => ("no_such_turn", named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_asked_twice_is_answered_twice() {
        let (mut waiters, request) = (Waiters::default(), RequestId::from_bits(7));
        let (to, mut heard) = oneshot::channel();
        assert!(waiters.wait(request, RequestKind::Cancel, Waiter::Handle(to)));
        assert!(waiters.wait(request, RequestKind::Cancel, Waiter::Client(Some(TurnId(3)))));
        assert_eq!(waiters.answer(request, RequestKind::Cancel, Answer::Cancel(CancelAnswer::Accepted)), None);
        assert_eq!(heard.try_recv(), Ok(Answer::Cancel(CancelAnswer::Accepted)));
        let said = waiters.answer(request, RequestKind::Cancel, Answer::Cancel(CancelAnswer::Accepted));
        assert_eq!(said, Some(ToClient::Answer { request, answer: "accepted".into(), turn: Some(TurnId(3)) }));
        assert_eq!(waiters.answer(request, RequestKind::Cancel, Answer::Done), None, "nobody waits any more");
    }

    #[test]
    fn one_id_on_two_kinds_of_request_is_two_requests() {
        let (mut waiters, request) = (Waiters::default(), RequestId::from_bits(7));
        let (to, mut heard) = oneshot::channel();
        assert!(waiters.wait(request, RequestKind::Cancel, Waiter::Handle(to)));
        assert!(waiters.wait(request, RequestKind::Say, Waiter::Client(None)));
        let said = waiters.answer(request, RequestKind::Say, Answer::Say(SayAnswer::Started(TurnId(4))));
        assert_eq!(said, Some(ToClient::Answer { request, answer: "started".into(), turn: Some(TurnId(4)) }));
        assert!(heard.try_recv().is_err(), "the cancel still waits for its own answer");
        assert_eq!(waiters.answer(request, RequestKind::Cancel, Answer::Cancel(CancelAnswer::Accepted)), None);
        assert_eq!(heard.try_recv(), Ok(Answer::Cancel(CancelAnswer::Accepted)));
    }

    #[test]
    fn two_kinds_with_one_sort_of_answer_are_told_apart_too() {
        let (mut waiters, request) = (Waiters::default(), RequestId::from_bits(7));
        let (to, mut submitted) = oneshot::channel();
        let (also_to, mut announced) = oneshot::channel();
        assert!(waiters.wait(request, RequestKind::Submit, Waiter::Handle(to)));
        assert!(waiters.wait(request, RequestKind::Announce, Waiter::Handle(also_to)));
        let answer = |turn| Answer::Submit(SubmitAnswer::Started(TurnId(turn)));
        waiters.answer(request, RequestKind::Announce, answer(2));
        assert!(submitted.try_recv().is_err());
        assert_eq!(announced.try_recv(), Ok(answer(2)));
        waiters.answer(request, RequestKind::Submit, answer(1));
        assert_eq!(submitted.try_recv(), Ok(answer(1)));
    }

    #[test]
    fn a_client_cannot_make_the_engine_remember_without_bound() {
        let mut waiters = Waiters::default();
        let taken = (0..300).filter(|i| waiters.wait(RequestId::from_bits(*i), RequestKind::KeyDown, Waiter::Client(None))).count();
        assert_eq!(taken, CLIENT_REQUESTS);
        waiters.answer(RequestId::from_bits(0), RequestKind::KeyDown, Answer::Done);
        assert!(waiters.wait(RequestId::from_bits(999), RequestKind::KeyDown, Waiter::Client(None)));
    }

    #[test]
    fn a_refused_input_names_the_turn_in_its_way_and_is_not_sent_back() {
        let (mut waiters, request) = (Waiters::default(), RequestId::from_bits(7));
        let mut said = |refusal| {
            assert!(waiters.wait(request, RequestKind::Submit, Waiter::Client(Some(TurnId(2)))));
            let answer = SubmitAnswer::NotSubmitted { refusal, text: "a secret".into() };
            match waiters.answer(request, RequestKind::Submit, Answer::Submit(answer)) {
                Some(ToClient::Answer { answer, turn, .. }) => (answer, turn),
                other => panic!("not an answer: {other:?}"),
            }
        };
        let turn = TurnId(5);
        assert_eq!(said(Refusal::ExpectedTurnMismatch { actual: turn }), ("expected_turn_mismatch".into(), Some(turn)));
        assert_eq!(said(Refusal::NotSteerable { turn }), ("not_steerable".into(), Some(turn)));
        assert_eq!(said(Refusal::InboxFull { turn }), ("inbox_full".into(), Some(turn)));
        assert_eq!(said(Refusal::NoActiveTurn), ("no_active_turn".into(), Some(TurnId(2))));
    }
}
