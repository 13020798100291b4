//! `inbox`: what was said to a running turn and not shown to the model yet. Tied to one turn; nothing of it is lost.

use std::collections::VecDeque;

use crate::event::Pii;
use crate::id::RequestId;

/// One input.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Queued {
    /// The request that brought it, which is the client's name of it.
    pub(super) input: RequestId,
    pub(super) text: Pii<String>,
}

/// Inputs in the order they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    queued: VecDeque<Queued>,
}

impl Inbox {
    /// Takes one in, unless `most` wait already: then it comes back.
    pub(super) fn put(&mut self, queued: Queued, most: u32) -> Result<(), Queued> {
        if self.queued.len() >= most as usize {
            return Err(queued);
        }
        self.queued.push_back(queued);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// The oldest.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        self.queued.pop_front()
    }

    /// Takes all out.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Queued> + use<> {
        std::mem::take(&mut self.queued).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(n: u128) -> Queued {
        Queued { input: RequestId::from_bits(n), text: "go left".into() }
    }

    #[test]
    fn a_full_inbox_gives_the_input_back_and_keeps_the_order_of_the_rest() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.put(queued(1), 2), Ok(()));
        assert_eq!(inbox.put(queued(2), 2), Ok(()));
        assert_eq!(inbox.put(queued(3), 2), Err(queued(3)));
        assert_eq!(inbox.pop(), Some(queued(1)));
        assert_eq!(inbox.put(queued(3), 2), Ok(()));
        assert_eq!(inbox.take().collect::<Vec<_>>(), [queued(2), queued(3)]);
        assert!(inbox.is_empty());
    }
}
