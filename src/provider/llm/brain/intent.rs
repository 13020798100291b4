//! What the person wants, guessed from words that a recogniser may have got wrong. Pure.

use super::words::{alike, number, plain};

/// What the person wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// Words, of which some may name what the story shall be about.
    Story(Vec<String>),
    /// From, to, both counted.
    Count(u32, u32),
    Time,
    Date,
    Stop,
    GoOn,
    /// -1 slower, 1 faster, 0 the usual pace again.
    Pace(i8),
    /// Say the last answer again.
    Repeat,
    /// Say this.
    Echo(String),
    /// What did I say?
    WhatDidISay,
    Greeting,
    HowAreYou,
    Who,
    Help,
    Thanks,
    Joke,
    Weather,
    Yes,
    No,
    Goodbye,
    /// No words at all.
    Nothing,
    Other,
}

/// A list of words to look into.
struct Said<'a>(&'a [String]);

impl Said<'_> {
    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|w| alike(w, key))
    }
    fn any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|k| self.has(k))
    }
    /// Whether `keys` stand in it in a row.
    fn row(&self, keys: &str) -> bool {
        let keys: Vec<&str> = keys.split(' ').collect();
        self.0.windows(keys.len()).any(|w| w.iter().zip(&keys).all(|(w, k)| alike(w, k)))
    }
    fn any_row(&self, rows: &[&str]) -> bool {
        rows.iter().any(|r| self.row(r))
    }
    fn short(&self, most: usize) -> bool {
        self.0.len() <= most
    }
}

/// The intent of `text`.
pub(super) fn intent(text: &str) -> Intent {
    let words = plain(text);
    let said = Said(&words);
    if words.is_empty() {
        return Intent::Nothing;
    }
    if let Some(echo) = echo(text, &words) {
        return Intent::Echo(echo);
    }
    // The shortest and most urgent first.
    if said.any_row(&["dont stop", "do not stop", "go on", "carry on", "keep going", "go ahead", "keep talking"])
        || (said.has("continue") && said.short(6))
    {
        return Intent::GoOn;
    }
    let enough = said.any(&["stop", "quiet", "enough", "cancel", "silence", "halt"])
        || said.any_row(&["shut up", "hold on", "never mind", "wait"]);
    if enough && said.short(4) {
        return Intent::Stop;
    }
    if let Some(pace) = pace(&said) {
        return Intent::Pace(pace);
    }
    if let Some((from, to)) = count(&words, &said) {
        return Intent::Count(from, to);
    }
    if said.any_row(&["what did i say", "what have i said", "what did you hear", "what i said", "did you hear me"]) {
        return Intent::WhatDidISay;
    }
    if said.any_row(&["repeat", "say that again", "say it again", "once again", "what did you say", "come again", "one more time"])
        || (said.short(2) && said.any(&["again", "pardon", "what"]))
    {
        return Intent::Repeat;
    }
    if said.has("joke") || said.row("make me laugh") {
        return Intent::Joke;
    }
    if said.any(&["story", "stories", "tale"]) || (said.any_row(&["tell me a", "another one"]) && said.short(6)) {
        return Intent::Story(words);
    }
    if said.any(&["date"]) || said.any_row(&["what day", "which day", "what is today"]) {
        return Intent::Date;
    }
    if said.has("time") && (said.any(&["what", "whats", "tell", "which", "current"]) || said.short(3)) || said.has("oclock") {
        return Intent::Time;
    }
    if said.any(&["weather", "temperature", "raining", "sunny"]) {
        return Intent::Weather;
    }
    if said.any_row(&["how are you", "how do you do", "how is it going", "how are things"]) {
        return Intent::HowAreYou;
    }
    if said.any_row(&["who are you", "what are you", "your name", "about yourself"]) {
        return Intent::Who;
    }
    if said.has("help") || said.any_row(&["what can you do", "what can i say", "what can i ask", "what else"]) {
        return Intent::Help;
    }
    if said.any(&["thank", "thanks"]) {
        return Intent::Thanks;
    }
    if said.any(&["goodbye", "bye"]) || said.any_row(&["good night", "see you"]) {
        return Intent::Goodbye;
    }
    if said.any(&["hello", "hi", "hey"]) && said.short(5) || said.any_row(&["good morning", "good evening", "good afternoon"]) {
        return Intent::Greeting;
    }
    if said.short(4) && said.any(&["yes", "yeah", "yep", "sure", "okay", "ok", "please"]) {
        return Intent::Yes;
    }
    if said.short(4) && said.any(&["no", "nope", "nothing"]) {
        return Intent::No;
    }
    Intent::Other
}

/// "repeat after me X", "say X": X as it was said.
fn echo(text: &str, words: &[String]) -> Option<String> {
    const AGAIN: [&str; 6] = ["that", "it", "again", "something", "what", "this"];
    let begins = |lead: &[&str]| words.len() > lead.len() && words.iter().zip(lead).all(|(w, l)| alike(w, l));
    let skip = if begins(&["repeat", "after", "me"]) {
        3
    } else if begins(&["please", "say"]) {
        2
    } else if begins(&["say"]) || begins(&["repeat"]) {
        1
    } else {
        return None;
    };
    if skip < 3 && AGAIN.contains(&words[skip].as_str()) {
        return None;
    }
    let from = super::words::words(text)[skip].from;
    Some(text[from..].trim().to_owned())
}

fn pace(said: &Said<'_>) -> Option<i8> {
    let spoken = said.any(&["speak", "talk", "read", "tell", "go", "please", "bit", "little", "more", "much", "too", "can"])
        || said.short(3);
    if !spoken || !said.short(9) {
        return None;
    }
    if said.any_row(&["normal speed", "usual speed", "normal pace", "usual pace"]) {
        return Some(0);
    }
    if said.any(&["slower", "slowly"]) || said.any_row(&["slow down", "too fast", "too quickly"]) {
        return Some(-1);
    }
    if said.any(&["faster", "quicker", "quickly"]) || said.any_row(&["speed up", "hurry up", "too slow", "too slowly"]) {
        return Some(1);
    }
    None
}

/// "count to twenty", "count from three to nine", "count down from ten", "count".
fn count(words: &[String], said: &Said<'_>) -> Option<(u32, u32)> {
    let at = words.iter().position(|w| alike(w, "count") || alike(w, "counting"))?;
    let mut rest = &words[at + 1..];
    let down = said.any(&["down", "backwards", "backward"]);
    // "count to twenty" is often heard as "count two twenty".
    while rest.len() > 1 && (number(rest).is_none() || number(rest) == Some((2, 1)) && number(&rest[1..]).is_some()) {
        rest = &rest[1..];
    }
    let found = super::words::numbers(rest);
    match (found.as_slice(), down) {
        ([], true) => Some((10, 0)),
        // A bare "count" is meant only in a short sentence.
        ([], false) => said.short(5).then_some((1, 20)),
        ([one], true) => Some((*one, 0)),
        ([one], false) if said.has("from") && !said.any(&["to", "until"]) => Some((*one, one.saturating_add(20))),
        ([one], false) => Some((1.min(*one), *one)),
        ([a, .., b], true) => Some((*a.max(b), *a.min(b))),
        ([a, .., b], false) => Some((*a, *b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_clearly_and_what_is_misheard_mean_the_same() {
        use Intent::*;
        let table: &[(&str, Intent)] = &[
            ("Stop.", Stop),
            ("please stop it", Stop),
            ("be quiet", Stop),
            ("wait", Stop),
            ("don't stop", GoOn),
            ("go on", GoOn),
            ("continue please", GoOn),
            ("slower", Pace(-1)),
            ("Could you speak a bit slower?", Pace(-1)),
            ("lower please", Pace(-1)),
            ("you talk too fast", Pace(-1)),
            ("speed up", Pace(1)),
            ("faster", Pace(1)),
            ("speak at normal speed", Pace(0)),
            ("count to twenty", Count(1, 20)),
            ("count two twenty", Count(1, 20)),
            ("count to two hundred", Count(1, 200)),
            ("Can you count from five to ten?", Count(5, 10)),
            ("count down from ten", Count(10, 0)),
            ("count backwards from twenty to ten", Count(20, 10)),
            ("count to 7", Count(1, 7)),
            ("count", Count(1, 20)),
            ("count to two", Count(1, 2)),
            ("what time is it", Time),
            ("What's the time?", Time),
            ("what day is it", Date),
            ("repeat that", Repeat),
            ("say that again", Repeat),
            ("what did you say", Repeat),
            ("what did I say", WhatDidISay),
            ("Repeat after me: the Moon is round", Echo("the Moon is round".into())),
            ("say hello world", Echo("hello world".into())),
            ("tell me a joke", Joke),
            ("hello", Greeting),
            ("how are you", HowAreYou),
            ("hello how are you today", HowAreYou),
            ("who are you", Who),
            ("thank you", Thanks),
            ("what can you do", Help),
            ("what is the weather like", Weather),
            ("yes please", Yes),
            ("no", No),
            ("good bye", Goodbye),
            ("  ... ", Nothing),
            ("where is the bus stop near the old station", Other),
            ("the quick brown fox", Other),
        ];
        for (text, want) in table {
            assert_eq!(intent(text), *want, "{text}");
        }
        for text in
            ["tell me a story", "tell me the store", "Another story!", "tell me a", "a story about the sea", "telling stories"]
        {
            assert!(matches!(intent(text), Story(_)), "{text}");
        }
    }
}
