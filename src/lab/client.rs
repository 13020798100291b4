//! `lab::client`: a client program as far as records go: it shows some of them, counts those, acknowledges, and ignores what it has.
//!
//! Layer 4. The engine numbers every record; a person sees only some of them. The client counts the ones it shows, and a story that
//! speaks of "the fifth" speaks of that count.

use super::evidence::Shown;
use crate::event::{Event, Record};
use crate::id::Seq;

/// A client program.
#[derive(Debug)]
pub(super) struct Client {
    shows: Vec<String>,
    /// The seq behind each of its numbers, from 1.
    numbers: Vec<Seq>,
    /// The last record it was given in order.
    last: Seq,
    resuming: bool,
    shown: Shown,
}

impl Client {
    /// One that shows these events.
    pub(super) fn showing(shows: &[String]) -> Self {
        Client { shows: shows.to_vec(), numbers: Vec::new(), last: Seq(0), resuming: false, shown: Shown::default() }
    }

    /// The record behind one of its numbers.
    pub(super) fn seq(&self, number: u64) -> Option<Seq> {
        self.numbers.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// From here on it counts what it is given as resumed.
    pub(super) fn resumes(&mut self) {
        self.resuming = true;
    }

    /// A record arrives.
    pub(super) fn take(&mut self, record: &Record) {
        let event = serde_json::to_value(&record.event).expect("an event serialises");
        if !self.shows.iter().any(|name| event["type"] == name.as_str()) {
            self.last = self.last.max(record.seq);
            return;
        }
        if record.seq <= self.last {
            let known = self.numbers.iter().position(|seq| *seq == record.seq);
            self.shown.ignored.push(known.map_or(0, |at| at as u64 + 1));
            return;
        }
        self.last = record.seq;
        self.numbers.push(record.seq);
        if self.resuming {
            self.shown.resumed.push(self.numbers.len() as u64);
        }
        if let Event::ReplyText { delta } = &record.event {
            self.shown.text.push_str(delta.reveal());
        }
    }

    /// What came of it.
    pub(super) fn into_shown(self) -> Shown {
        self.shown
    }
}
