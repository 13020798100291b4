//! `pause`: why the answer is held. It sounds again when no reason is left.
//!
//! A pause belongs to a generation: a raised fence makes it void, and nothing of it carries over to the next reply.

use crate::id::Generation;
use crate::turn::Effect;

/// The reasons to hold the present reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pause {
    generation: Generation,
    voice: bool,
    link: bool,
}

/// One reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Somebody may be speaking.
    Voice,
    /// Nobody is there to hear it.
    Link,
}

impl Pause {
    /// Whether anything is held.
    pub(super) fn is_held(&self) -> bool {
        self.voice || self.link
    }

    /// Another reply: whatever was held is void.
    pub(super) fn renew(&mut self, generation: Generation) {
        *self = Pause { generation, voice: false, link: false };
    }

    /// Adds a reason; the effect, if it is the first.
    pub(super) fn hold(&mut self, reason: Reason) -> Option<Effect> {
        let was = self.is_held();
        *self.of(reason) = true;
        (!was).then_some(Effect::Hold { generation: self.generation })
    }

    /// Takes a reason away; the effect, if it was the last.
    pub(super) fn release(&mut self, reason: Reason) -> Option<Effect> {
        let was = self.is_held();
        *self.of(reason) = false;
        (was && !self.is_held()).then_some(Effect::Resume { generation: self.generation })
    }

    fn of(&mut self, reason: Reason) -> &mut bool {
        match reason {
            Reason::Voice => &mut self.voice,
            Reason::Link => &mut self.link,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sounds_again_when_no_reason_is_left() {
        let mut pause = Pause::default();
        pause.renew(Generation(3));
        assert_eq!(pause.release(Reason::Voice), None, "nothing was held");
        assert_eq!(pause.hold(Reason::Voice), Some(Effect::Hold { generation: Generation(3) }));
        assert_eq!(pause.hold(Reason::Link), None);
        assert_eq!(pause.release(Reason::Voice), None);
        assert!(pause.is_held());
        assert_eq!(pause.release(Reason::Link), Some(Effect::Resume { generation: Generation(3) }));
        pause.hold(Reason::Voice);
        pause.renew(Generation(4));
        assert!(!pause.is_held(), "a raised fence makes the hold void");
        assert_eq!(pause.release(Reason::Voice), None);
    }
}
