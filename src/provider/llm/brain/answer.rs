//! From a conversation to an answer. Pure: the same conversation, moment and seed give the same answer, and nothing is remembered
//! between two.

use super::intent::{Intent, intent};
use super::lines::line;
use super::moment;
use super::story::{self, STORIES};
use super::words::{numbers, plain, spelled, words};
use super::{Speaker, Turn};
use crate::provider::pace::Pace;

/// What an answer is made from besides the conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Wall time in milliseconds since 1970.
    pub(super) unix_millis: u64,
    /// Minutes east of universal time, if known.
    pub(super) offset: Option<i32>,
    /// Chooses the first story and the first way to say things.
    pub(super) seed: usize,
}

/// Words of the person that are quoted at most.
const QUOTED: usize = 20;
/// Numbers counted in one answer at most.
const COUNTED: u32 = 200;

/// The answer to the last thing said, with its pace mark in front when the person asked for another pace.
pub(super) fn answer(conversation: &[Turn], facts: Facts) -> String {
    let mut text = capital(&Talk { turns: conversation, facts }.answer());
    let pace = pace_of(conversation);
    if pace != Pace::Usual || asked_for_pace(conversation) {
        text.insert(0, pace.mark());
    }
    text
}

/// The pace that the person has asked for, step by step.
fn pace_of(conversation: &[Turn]) -> Pace {
    users(conversation).fold(Pace::Usual, |pace, text| match intent(text) {
        Intent::Pace(0) => Pace::Usual,
        Intent::Pace(1) => pace.faster(),
        Intent::Pace(_) => pace.slower(),
        _ => pace,
    })
}

fn asked_for_pace(conversation: &[Turn]) -> bool {
    users(conversation).last().is_some_and(|text| matches!(intent(text), Intent::Pace(_)))
}

fn users(conversation: &[Turn]) -> impl Iterator<Item = &str> {
    conversation.iter().filter(|t| t.speaker == Speaker::User).map(|t| t.text.reveal().as_str())
}

/// A conversation up to the words to be answered, which are its last.
#[derive(Clone, Copy)]
struct Talk<'a> {
    turns: &'a [Turn],
    facts: Facts,
}

impl<'a> Talk<'a> {
    fn answer(self) -> String {
        let asked = users(self.turns).last().unwrap_or("");
        match intent(asked) {
            Intent::Story(words) => self.tell(&words),
            Intent::Count(from, to) => format!("{} {}", self.line("count_intro"), self.count(from, to)),
            Intent::Time => self.time(),
            Intent::Date => {
                let date = moment::date(self.local_minutes().div_euclid(24 * 60));
                self.in_zone(self.line("date").replace("{date}", &date))
            }
            Intent::Stop => self.line("stop").to_owned(),
            Intent::GoOn => match self.unfinished() {
                Unfinished::Rest(rest) => format!("{} {rest}", self.line("go_on")),
                Unfinished::Over(occasion) => self.line(occasion).to_owned(),
                Unfinished::Nothing => self.line("nothing_to_go_on").to_owned(),
            },
            Intent::Pace(step) => self.change_pace(step),
            Intent::Repeat => self.again(),
            Intent::Echo(words) => {
                if words.ends_with(['.', '!', '?']) {
                    words
                } else {
                    format!("{words}.")
                }
            }
            Intent::WhatDidISay => match users(self.turns).rev_nth(1) {
                Some(before) if !plain(before).is_empty() => self.line("heard_before").replace("{heard}", &quote(before)),
                _ => self.line("heard_nothing_before").to_owned(),
            },
            Intent::Yes if self.offered_a_story() => self.tell(&[]),
            Intent::Greeting => self.line("greeting").to_owned(),
            Intent::HowAreYou => self.line("how_are_you").to_owned(),
            Intent::Who => self.line("who").to_owned(),
            Intent::Help => self.line("help").to_owned(),
            Intent::Thanks => self.line("thanks").to_owned(),
            Intent::Joke => self.line("joke").to_owned(),
            Intent::Weather => self.line("weather").to_owned(),
            Intent::Yes => self.line("yes").to_owned(),
            Intent::No => self.line("no").to_owned(),
            Intent::Goodbye => self.line("goodbye").to_owned(),
            Intent::Nothing => self.line("nothing_heard").to_owned(),
            Intent::Other => self.line("other").replace("{heard}", &quote(asked)),
        }
    }

    /// A way to speak at `occasion`: the next one at each answer.
    fn line(self, occasion: &str) -> &'static str {
        line(occasion, self.facts.seed + self.said().count())
    }

    /// What was heard of the answers, in order.
    fn said(self) -> impl DoubleEndedIterator<Item = &'a Turn> {
        self.turns.iter().filter(|t| t.speaker == Speaker::Assistant)
    }

    fn tell(self, asked: &[String]) -> String {
        let story = &STORIES[self.choose(asked)];
        let intro = self.line("story_intro").replace("{title}", &story.title);
        format!("{intro} {} {}", story.text, self.line("story_end"))
    }

    /// The story to tell: about what was asked, not yet told, in turn.
    fn choose(self, asked: &[String]) -> usize {
        let told: Vec<usize> = self.said().filter_map(|t| story::place(t.text.reveal())).map(|p| p.story).collect();
        let first = self.facts.seed + told.last().map_or(0, |last| last + 1 + STORIES.len() - self.facts.seed % STORIES.len());
        let order = || (0..STORIES.len()).map(|k| (first + k) % STORIES.len());
        order()
            .find(|&k| STORIES[k].is_about(asked) && !told.contains(&k))
            .or_else(|| order().find(|&k| STORIES[k].is_about(asked)))
            .or_else(|| order().find(|k| !told.contains(k)))
            .unwrap_or(first % STORIES.len())
    }

    /// The numbers from `from` to `to`, both said, and how it closes.
    fn count(self, from: u32, to: u32) -> String {
        let far = from.abs_diff(to) >= COUNTED;
        let some: Vec<u32> = if from <= to {
            (from..=to).take(COUNTED as usize).collect()
        } else {
            (to..=from).rev().take(COUNTED as usize).collect()
        };
        let said: Vec<String> =
            some.chunks(5).map(|five| capital(&five.iter().map(|&n| spelled(n)).collect::<Vec<_>>().join(", ")) + ".").collect();
        format!("{} {}", said.join(" "), self.line(if far { "count_far" } else { "count_end" }))
    }

    fn local_minutes(self) -> i64 {
        (self.facts.unix_millis / 60_000) as i64 + i64::from(self.facts.offset.unwrap_or(0))
    }

    fn time(self) -> String {
        let time = moment::time_of_day(self.local_minutes().rem_euclid(24 * 60) as u32);
        self.in_zone(self.line("time").replace("{time}", &time))
    }

    fn in_zone(self, text: String) -> String {
        match self.facts.offset {
            Some(_) => text,
            None => format!("{text} {}", self.line("universal_time")),
        }
    }

    fn change_pace(self, step: i8) -> String {
        let before = pace_of(&self.turns[..self.turns.iter().rposition(|t| t.speaker == Speaker::User).unwrap_or(0)]);
        let text = self.line(match (step, before) {
            (-1, Pace::Slowest) => "slowest",
            (1, Pace::Fastest) => "fastest",
            (-1, _) => "slower",
            (1, _) => "faster",
            (_, before) if before > Pace::Usual => "slower",
            _ => "faster",
        });
        // Asked in the middle of something: that goes on, at the new pace.
        let cut = self.said().next_back().is_some_and(|t| t.interrupted);
        match self.unfinished() {
            Unfinished::Rest(rest) if cut => format!("{text} {rest}"),
            _ => text.to_owned(),
        }
    }

    /// The last thing said, or its last sentences when it was long.
    fn again(self) -> String {
        const SENTENCES: usize = 3;
        let Some(last) = self.said().map(|t| t.text.reveal().trim()).rfind(|t| plain(t).len() > 2) else {
            return self.line("nothing_said").to_owned();
        };
        let last = last.trim_matches(|c| Pace::from_mark(c).is_some());
        let ends: Vec<usize> = last.match_indices(". ").map(|(at, _)| at + 2).collect();
        let from = if ends.len() > SENTENCES { ends[ends.len() - SENTENCES] } else { 0 };
        self.line("repeat").replace("{said}", &last[from..])
    }

    fn offered_a_story(self) -> bool {
        self.said().next_back().is_some_and(|t| {
            let text = t.text.reveal().trim_end();
            text.ends_with('?') && text.rsplit(['.', '!']).next().is_some_and(|last| last.contains("story"))
        })
    }

    /// What was begun and cut, the latest first.
    fn unfinished(self) -> Unfinished {
        let asked_now = self.turns.iter().rposition(|t| t.speaker == Speaker::User).unwrap_or(0);
        for at in (0..asked_now).rev() {
            let turn = &self.turns[at];
            let text = turn.text.reveal();
            match turn.speaker {
                Speaker::System => {}
                Speaker::Assistant => {
                    if let Some(place) = story::place(text) {
                        return match STORIES[place.story].rest(place.heard) {
                            "" => Unfinished::Over("story_over"),
                            rest => Unfinished::Rest(format!("{rest} {}", self.line("story_end"))),
                        };
                    }
                    if let Some(rest) = turn.interrupted.then(|| self.rest_of(at)).flatten() {
                        return Unfinished::Rest(rest);
                    }
                }
                Speaker::User => match intent(text) {
                    Intent::Count(from, to) => return self.rest_of_count(at, from, to),
                    // Cut before a word of it was heard.
                    Intent::Story(words) => {
                        return Unfinished::Rest(Talk { turns: &self.turns[..=at], ..self }.tell(&words));
                    }
                    _ => {}
                },
            }
        }
        Unfinished::Nothing
    }

    /// The numbers that were not heard of the count asked for at `request`.
    fn rest_of_count(self, request: usize, from: u32, to: u32) -> Unfinished {
        let up = from <= to;
        let mut next = Some(from);
        for turn in self.turns[request..].iter().filter(|t| t.speaker == Speaker::Assistant) {
            for n in numbers(&plain(turn.text.reveal())) {
                if Some(n) == next {
                    next = if n == to {
                        None
                    } else if up {
                        Some(n + 1)
                    } else {
                        Some(n - 1)
                    };
                }
            }
        }
        match next {
            Some(next) => Unfinished::Rest(self.count(next, to)),
            None => Unfinished::Over("count_over"),
        }
    }

    /// What was not heard of the interrupted answer at `at`: the answer is made again, and what was heard must be its beginning.
    fn rest_of(self, at: usize) -> Option<String> {
        let before = &self.turns[..at];
        // These are found in other ways, would look back in their turn, or change with the clock.
        match intent(users(before).last()?) {
            Intent::Story(_) | Intent::Count(..) => return None,
            Intent::GoOn | Intent::Repeat | Intent::Pace(_) | Intent::Stop | Intent::Time | Intent::Date => return None,
            _ => {}
        }
        let whole = Talk { turns: before, ..self }.answer();
        let (all, heard) = (words(&whole), plain(self.turns[at].text.reveal()));
        let same = all.iter().zip(&heard).take_while(|(a, h)| a.text == **h).count();
        // One word may be cut in the middle.
        if heard.is_empty() || same + 1 < heard.len() || same == all.len() {
            return None;
        }
        let next = all[same].from;
        let begin = whole[..next].rfind(['.', '?', '!', ':']).map_or(0, |end| end + 1);
        Some(capital(whole[begin..].trim_start()))
    }
}

/// What there is to go on with.
enum Unfinished {
    /// This is left.
    Rest(String),
    /// It was finished; what to say then.
    Over(&'static str),
    /// Nothing was begun.
    Nothing,
}

/// The first words of what was said, without marks at the edges.
fn quote(text: &str) -> String {
    let words = words(text);
    let Some(last) = words.get(words.len().min(QUOTED).wrapping_sub(1)) else { return String::new() };
    text[words[0].from..last.to].to_owned()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The n-th item from the end.
trait RevNth: Iterator + Sized {
    fn rev_nth(self, n: usize) -> Option<Self::Item> {
        let mut items: Vec<Self::Item> = self.collect();
        let at = items.len().checked_sub(n + 1)?;
        Some(items.swap_remove(at))
    }
}

impl<I: Iterator> RevNth for I {}

#[cfg(test)]
mod tests;
