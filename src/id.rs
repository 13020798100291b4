//! `id`: the names of things. Newtypes that read well in a log line and cannot be mistaken for each other.
//!
//! Layer 0. Imports nothing of ours.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! counted_id {
    ($(#[$doc:meta])* $name:ident, $form:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                $name(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $form, self.0)
            }
        }
    };
}

counted_id!(
    /// A turn: one intent of the user until its one terminal. Counted from 1 inside a session.
    TurnId, "turn#{}"
);
counted_id!(
    /// Epoch of output in a session; it only rises. 0 means *unset*, and unset is rejected at every door.
    Generation, "gen {}"
);
counted_id!(
    /// Place of a record in its session's log. Counted from 1, without holes.
    Seq, "seq {}"
);
counted_id!(
    /// A piece of running work: listening, generating, synthesizing.
    TaskId, "task#{}"
);
counted_id!(
    /// A tool call.
    CallId, "call#{}"
);
counted_id!(
    /// One stretch of user speech, from its onset to its end.
    UtteranceId, "utterance#{}"
);

impl Generation {
    /// No generation: rejected at every door.
    pub const UNSET: Generation = Generation(0);

    /// Whether a generation was ever given.
    pub const fn is_set(self) -> bool {
        self.0 != 0
    }
}

/// Sixteen random bytes, written as 32 hexadecimal digits.
fn random_128() -> u128 {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u128::from_be_bytes(bytes)
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// A fresh one that nobody can guess.
            #[allow(clippy::new_without_default, reason = "each call gives another value")]
            pub fn new() -> Self {
                $name(random_128())
            }

            /// The one with these bits, for tests and replays.
            pub const fn from_bits(bits: u128) -> Self {
                $name(bits)
            }

            /// Its bits.
            pub const fn bits(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:032x})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            /// Reads 32 hexadecimal digits; the hyphens of a UUID are allowed.
            fn from_str(text: &str) -> Result<Self, BadId> {
                let mut bits: u128 = 0;
                let mut digits = 0;
                for c in text.chars().filter(|c| *c != '-') {
                    let digit = c.to_digit(16).ok_or(BadId)?;
                    digits += 1;
                    if digits > 32 {
                        return Err(BadId);
                    }
                    bits = bits << 4 | u128::from(digit);
                }
                if digits == 32 { Ok($name(bits)) } else { Err(BadId) }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

random_id!(
    /// A conversation with its log; outlives links. Unguessable, so that its address is a capability.
    SessionId
);
random_id!(
    /// Names one request of a client, so that a request sent twice has one effect.
    RequestId
);

/// A text that is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is 32 hexadecimal digits, with or without the hyphens of a UUID")]
pub struct BadId;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_well_in_a_log() {
        assert_eq!(TurnId(12).to_string(), "turn#12");
        assert_eq!(Generation(8).to_string(), "gen 8");
        assert_eq!(CallId(3).next().to_string(), "call#4");
        assert!(!Generation::UNSET.is_set());
    }

    #[test]
    fn random_ids_survive_text_and_json() {
        let id = RequestId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        let json = serde_json::to_string(&id).expect("an id serialises");
        assert_eq!(serde_json::from_str::<RequestId>(&json).expect("and comes back"), id);
        assert_eq!("0000000000000000-0000000000000000ff"[2..].parse(), Ok(SessionId::from_bits(0xff)));
    }

    #[test]
    fn bad_ids_are_refused() {
        for bad in ["", "12", "zz000000000000000000000000000000", "000000000000000000000000000000001"] {
            assert_eq!(bad.parse::<SessionId>(), Err(BadId), "{bad:?}");
        }
    }
}
