//! Who waits for the answer to which request, and how an answer is said on the wire.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::id::{RequestId, TurnId};
use crate::transport::wire::ToClient;
use crate::turn::{Answer, CancelAnswer, Refusal, SayAnswer};

/// Requests of the client that wait for their answer, at most.
const CLIENT_REQUESTS: usize = 256;

/// One who waits. A handle that no longer waits is simply not told.
pub(super) enum Waiter {
    Say(oneshot::Sender<SayAnswer>),
    Cancel(oneshot::Sender<CancelAnswer>),
    Done(oneshot::Sender<()>),
    /// The client, with the turn it named.
    Client(Option<TurnId>),
    /// The engine itself, which needs no answer.
    Nobody,
}

/// All who wait. The same request asked twice has two who wait, answered in order.
#[derive(Default)]
pub(super) struct Waiters {
    by_request: HashMap<RequestId, VecDeque<Waiter>>,
    clients: usize,
}

impl Waiters {
    /// Takes note of one; `false` when too many requests of the client wait already.
    pub(super) fn wait(&mut self, request: RequestId, waiter: Waiter) -> bool {
        if matches!(waiter, Waiter::Client(_)) {
            if self.clients >= CLIENT_REQUESTS {
                return false;
            }
            self.clients += 1;
        }
        self.by_request.entry(request).or_default().push_back(waiter);
        true
    }

    /// Tells the one who waits; what the client is to be told comes back.
    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) -> Option<ToClient> {
        let waiting = self.by_request.get_mut(&request)?;
        let waiter = waiting.pop_front();
        if waiting.is_empty() {
            self.by_request.remove(&request);
        }
        match (waiter?, answer) {
            (Waiter::Say(to), Answer::Say(answer)) => drop(to.send(answer)),
            (Waiter::Cancel(to), Answer::Cancel(answer)) => drop(to.send(answer)),
            (Waiter::Done(to), _) => drop(to.send(())),
            (Waiter::Client(named), answer) => {
                self.clients -= 1;
                let (word, turn) = in_words(&answer, named);
                return Some(ToClient::Answer { request, answer: word.to_owned(), turn });
            }
            (Waiter::Nobody, _) => {}
            // The same request id was used for two different things: nobody can be told anything true.
            (Waiter::Say(_) | Waiter::Cancel(_), _) => tracing::warn!("a request id was used twice for different requests"),
        }
        None
    }
}

/// An answer in the wire's fixed words, and the turn it speaks of.
fn in_words(answer: &Answer, named: Option<TurnId>) -> (&'static str, Option<TurnId>) {
    match answer {
        Answer::Say(SayAnswer::Started(turn)) => ("started", Some(*turn)),
        Answer::Say(SayAnswer::NotAccepted { refusal: Refusal::Empty, .. }) => ("empty", None),
        Answer::Say(SayAnswer::NotAccepted { refusal: Refusal::Draining, .. }) => ("draining", None),
        Answer::Cancel(CancelAnswer::Accepted) => ("accepted", named),
        Answer::Cancel(CancelAnswer::AlreadyTerminal(_)) => ("already_terminal", named),
        Answer::Cancel(CancelAnswer::ReconcileRequired(_)) => ("reconcile_required", named),
        Answer::Cancel(CancelAnswer::NoSuchTurn) => ("no_such_turn", named),
        Answer::Done => ("done", named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_asked_twice_is_answered_twice() {
        let (mut waiters, request) = (Waiters::default(), RequestId::from_bits(7));
        let (to, mut heard) = oneshot::channel();
        assert!(waiters.wait(request, Waiter::Cancel(to)));
        assert!(waiters.wait(request, Waiter::Client(Some(TurnId(3)))));
        assert_eq!(waiters.answer(request, Answer::Cancel(CancelAnswer::Accepted)), None);
        assert_eq!(heard.try_recv(), Ok(CancelAnswer::Accepted));
        let said = waiters.answer(request, Answer::Cancel(CancelAnswer::Accepted));
        assert_eq!(said, Some(ToClient::Answer { request, answer: "accepted".into(), turn: Some(TurnId(3)) }));
        assert_eq!(waiters.answer(request, Answer::Done), None, "nobody waits any more");
    }

    #[test]
    fn a_client_cannot_make_the_engine_remember_without_bound() {
        let mut waiters = Waiters::default();
        let taken = (0..300).filter(|i| waiters.wait(RequestId::from_bits(*i), Waiter::Client(None))).count();
        assert_eq!(taken, CLIENT_REQUESTS);
        waiters.answer(RequestId::from_bits(0), Answer::Done);
        assert!(waiters.wait(RequestId::from_bits(999), Waiter::Client(None)));
    }
}
