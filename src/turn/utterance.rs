//! `utterance`: stretches of user speech on their way to words, in the order they were spoken.
//!
//! An utterance is open from its first evidence until its words are known or given up. Words wait here until every older utterance
//! has its own, so that what was said first is read first.

use std::collections::VecDeque;

use crate::event::Retry;
use crate::id::{TaskId, UtteranceId};
use crate::time::Stamp;

/// Utterances without their last word, at most; one more gives up the oldest that is over.
pub(super) const OPEN: usize = 8;

/// One stretch of speech.
#[derive(Clone, Debug)]
pub(super) struct Utterance {
    pub(super) id: UtteranceId,
    /// The task that listens to it.
    pub(super) listen: TaskId,
    /// The words known so far.
    pub(super) text: String,
    /// When the user was done with it.
    pub(super) over: Option<Stamp>,
    /// The recogniser's word on it is final, or no more will come.
    pub(super) final_word: bool,
    /// The recogniser said its last word (a second one is late).
    pub(super) spoke: bool,
    /// The recogniser failed.
    pub(super) failed: Option<Retry>,
    /// Newer input is being answered: its words join the conversation and ask for no answer of their own.
    pub(super) aside: bool,
}

impl Utterance {
    fn settled(&self) -> bool {
        self.over.is_some() && self.final_word
    }
}

/// The words of all settled utterances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) text: String,
    /// A recogniser failed over one of them.
    pub(super) failed: Option<Retry>,
}

/// Utterances on their way to words.
#[derive(Clone, Debug, Default)]
pub(super) struct Utterances {
    open: VecDeque<Utterance>,
    ready: Words,
}

impl Utterances {
    /// Opens one.
    pub(super) fn open(&mut self, id: UtteranceId, listen: TaskId) {
        self.open.push_back(Utterance {
            id,
            listen,
            text: String::new(),
            over: None,
            final_word: false,
            spoke: false,
            failed: None,
            aside: false,
        });
    }

    /// The oldest one that is over, when there are too many.
    pub(super) fn surplus(&self) -> Option<UtteranceId> {
        if self.open.len() <= OPEN { None } else { self.open.iter().find(|u| u.over.is_some()).map(|u| u.id) }
    }

    pub(super) fn get(&mut self, id: UtteranceId) -> Option<&mut Utterance> {
        self.open.iter_mut().find(|u| u.id == id)
    }

    /// The one that `task` listens to.
    pub(super) fn heard_by(&mut self, task: TaskId) -> Option<&mut Utterance> {
        self.open.iter_mut().find(|u| u.listen == task)
    }

    /// Takes one out, unheard.
    pub(super) fn remove(&mut self, id: UtteranceId) -> Option<Utterance> {
        let place = self.open.iter().position(|u| u.id == id)?;
        self.open.remove(place)
    }

    /// Takes all out, and forgets the words that wait.
    pub(super) fn clear(&mut self) -> Vec<Utterance> {
        self.ready = Words::default();
        self.open.drain(..).collect()
    }

    /// Newer input came: what is over, or has words waiting, is only part of the conversation from now on. Returns the words.
    pub(super) fn set_aside(&mut self) -> Option<String> {
        for u in self.open.iter_mut().filter(|u| u.over.is_some()) {
            u.aside = true;
        }
        let words = std::mem::take(&mut self.ready).text;
        (!words.is_empty()).then_some(words)
    }

    /// Takes out the settled ones whose turn it is. What was set aside comes back; the rest waits for [`Utterances::take`].
    pub(super) fn settle(&mut self) -> (Vec<Utterance>, Vec<String>) {
        let (mut settled, mut asides) = (Vec::new(), Vec::new());
        let (mut kept, mut blocked) = (VecDeque::new(), false);
        for u in self.open.drain(..) {
            if !u.settled() || (blocked && !u.aside) {
                // An older one without its words keeps the newer ones waiting; one that was set aside keeps nobody.
                blocked |= !u.aside;
                kept.push_back(u);
                continue;
            }
            if u.aside {
                asides.push(u.text.clone());
            } else {
                self.ready.add(&u.text, u.failed);
            }
            settled.push(u);
        }
        self.open = kept;
        asides.retain(|text| !text.is_empty());
        (settled, asides)
    }

    /// Whether one is open that shall be answered.
    pub(super) fn any_open(&self) -> bool {
        self.open.iter().any(|u| !u.aside)
    }

    /// Whether words wait to be answered.
    pub(super) fn any_ready(&self) -> bool {
        !self.ready.text.is_empty()
    }

    /// The words that wait.
    pub(super) fn take(&mut self) -> Words {
        std::mem::take(&mut self.ready)
    }

    /// When the first recogniser is overdue with its last word.
    pub(super) fn due(&self, patience: std::time::Duration) -> Option<Stamp> {
        self.open.iter().filter(|u| !u.final_word).filter_map(|u| u.over).min().map(|over| over + patience)
    }

    /// Those overdue at `now`.
    pub(super) fn overdue(&self, now: Stamp, patience: std::time::Duration) -> Vec<UtteranceId> {
        let late = |u: &&Utterance| !u.final_word && u.over.is_some_and(|over| over + patience <= now);
        self.open.iter().filter(late).map(|u| u.id).collect()
    }
}

impl Words {
    fn add(&mut self, text: &str, failed: Option<Retry>) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(text);
        self.failed = self.failed.or(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const A: UtteranceId = UtteranceId(1);
    const B: UtteranceId = UtteranceId(2);

    fn two() -> Utterances {
        let mut all = Utterances::default();
        all.open(A, TaskId(1));
        all.open(B, TaskId(2));
        all
    }

    fn over(all: &mut Utterances, id: UtteranceId, at: u64, words: Option<&str>) {
        let u = all.get(id).expect("it is open");
        u.over = Some(Stamp::from_millis(at));
        if let Some(words) = words {
            u.text = words.into();
            u.final_word = true;
        }
    }

    #[test]
    fn what_was_said_first_is_read_first() {
        let mut all = two();
        over(&mut all, B, 20, Some("world"));
        assert!(all.settle().0.is_empty());
        over(&mut all, A, 10, Some("hello"));
        assert_eq!(all.settle().0.len(), 2);
        assert!(!all.any_open());
        assert_eq!(all.take(), Words { text: "hello world".into(), failed: None });
        assert_eq!(all.take(), Words::default());
    }

    #[test]
    fn what_was_set_aside_keeps_nobody_waiting() {
        let mut all = two();
        over(&mut all, A, 10, None);
        assert_eq!(all.set_aside(), None);
        assert!(all.any_open(), "the second is still being spoken");
        over(&mut all, B, 20, Some("newer"));
        assert_eq!(all.settle().0.len(), 1);
        assert_eq!(all.take().text, "newer");
        over(&mut all, A, 10, Some("older"));
        assert_eq!(all.settle().1, ["older"]);
        assert_eq!(all.take().text, "");
    }

    #[test]
    fn the_recogniser_is_waited_for_from_the_end_of_the_utterance_on() {
        let mut all = two();
        let patience = Duration::from_millis(100);
        assert_eq!(all.due(patience), None, "still speaking");
        over(&mut all, A, 10, None);
        assert_eq!(all.due(patience), Some(Stamp::from_millis(110)));
        assert_eq!(all.overdue(Stamp::from_millis(109), patience), []);
        assert_eq!(all.overdue(Stamp::from_millis(110), patience), [A]);
    }

    #[test]
    fn too_many_give_up_the_oldest_that_is_over() {
        let mut all = two();
        for i in 3..=OPEN as u64 {
            all.open(UtteranceId(i), TaskId(i));
        }
        over(&mut all, B, 5, None);
        assert_eq!(all.surplus(), None);
        all.open(UtteranceId(99), TaskId(99));
        assert_eq!(all.surplus(), Some(B));
    }
}
