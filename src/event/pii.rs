//! `Pii<T>`: personal content, wrapped from the moment it enters, so that no log line can carry it by accident.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Words, prompts, tool payloads: what a person said or is told.
///
/// It is stored and sent to its owner whole, so it serialises as `T` itself; `Debug` and `Display` show only that it is there.
/// There is no `Deref`: whoever reads it says so with [`Pii::reveal`].
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pii<T>(T);

impl<T> Pii<T> {
    /// Wraps personal content.
    pub const fn new(value: T) -> Self {
        Pii(value)
    }

    /// The content, for the one who may see it. Never for a log or a trace.
    pub const fn reveal(&self) -> &T {
        &self.0
    }

    /// The content by value, for the one who may see it.
    pub fn into_revealed(self) -> T {
        self.0
    }
}

impl<T> From<T> for Pii<T> {
    fn from(value: T) -> Self {
        Pii(value)
    }
}

impl From<&str> for Pii<String> {
    fn from(value: &str) -> Self {
        Pii(value.to_owned())
    }
}

impl<T> fmt::Debug for Pii<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<personal>")
    }
}

impl<T> fmt::Display for Pii<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<personal>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_content_is_stored_whole_and_logged_never() {
        let said: Pii<String> = "my card is 4711".into();
        assert_eq!(format!("{said} {said:?} {:#?}", Some(&said)).matches("4711").count(), 0);
        let json = serde_json::to_string(&said).expect("it serialises");
        assert_eq!(json, "\"my card is 4711\"");
        assert_eq!(serde_json::from_str::<Pii<String>>(&json).expect("and comes back"), said);
    }
}
