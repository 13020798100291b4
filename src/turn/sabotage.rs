//! `sabotage`: breaks one law on purpose, so that tests can show that the lab notices. Without the feature `lab` there is nothing to
//! break.

use super::Machine;

/// A law that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sabotage {
    /// The fence is not raised.
    Fence,
    /// A turn that was stopped completes when its model does.
    TerminalGuard,
    /// A request that is asked again takes effect again.
    Idempotence,
}

#[cfg(feature = "lab")]
impl Machine {
    /// Breaks a law from here on.
    #[doc(hidden)]
    pub fn sabotage(&mut self, law: Sabotage) {
        self.sabotage = Some(law);
    }

    pub(super) fn breaks(&self, law: Sabotage) -> bool {
        self.sabotage == Some(law)
    }
}

#[cfg(not(feature = "lab"))]
impl Machine {
    pub(super) fn breaks(&self, _: Sabotage) -> bool {
        false
    }
}
