//! What the built-in dialogue says to what.

use super::*;

const FACTS: Facts = Facts { unix_millis: 15 * 3_600_000 + 25 * 60_000, offset: None, seed: 0 };

/// A conversation in short: `("user", ..)`, `("heard", ..)` for a whole answer, `("cut", ..)` for an interrupted one.
fn talk(turns: &[(&str, &str)]) -> Vec<Turn> {
    turns
        .iter()
        .map(|(who, text)| Turn {
            speaker: if *who == "user" { Speaker::User } else { Speaker::Assistant },
            text: (*text).into(),
            interrupted: *who == "cut",
        })
        .collect()
}

fn reply(turns: &[(&str, &str)]) -> String {
    answer(&talk(turns), FACTS)
}

#[test]
fn a_story_goes_on_from_what_was_heard_even_when_it_is_cut_again_and_again() {
    let whole = reply(&[("user", "tell me a story")]);
    let text = &STORIES[0].text;
    assert!(whole.contains(text.as_str()));
    let heard = &whole[..whole.find("the baker").or(whole.find("The baker")).expect("it is told") + 30];
    let stop = reply(&[("user", "tell me a story"), ("cut", heard), ("user", "stop")]);
    assert!(plain(&stop).len() <= 3, "{stop}");
    let on = reply(&[("user", "tell me a story"), ("cut", heard), ("user", "stop"), ("heard", &stop), ("user", "go on")]);
    let from = on.find("The baker put").expect("from the sentence that was cut");
    assert!(from < 40 && text.ends_with(on[from..].strip_suffix(line_after(&on)).expect("the end").trim_end()), "{on}");
    let more = &on[..on.find("In a single night").expect("told") + 5];
    let last = reply(&[
        ("user", "tell me a story"),
        ("cut", heard),
        ("user", "what time is it"),
        ("heard", "It is noon."),
        ("user", "go on"),
        ("cut", more),
        ("user", "continue please"),
    ]);
    let begins = last.find("In a single night he climbed").expect("from the second cut");
    assert!(begins < 40, "{last}");
    let over = reply(&[("user", "tell me a story"), ("heard", &whole), ("user", "go on")]);
    assert!(over.contains("already finished"), "{over}");
}

fn line_after(told: &str) -> &str {
    let end = told.rfind(" And that is the end").expect("it closes");
    &told[end..]
}

#[test]
fn stories_take_turns_and_follow_what_is_asked_for() {
    let mut turns = Vec::new();
    let mut told = Vec::new();
    for _ in 0..STORIES.len() {
        turns.push(("user", "another story".to_owned()));
        let borrowed: Vec<(&str, &str)> = turns.iter().map(|(w, t)| (*w, t.as_str())).collect();
        let whole = reply(&borrowed);
        told.push(story::place(&whole).expect("a story").story);
        turns.push(("cut", whole[..whole.len() / 3].to_owned()));
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), STORIES.len(), "each once before any comes again");
    assert!(reply(&[("user", "tell me a story about a robot")]).contains("Rosa"));
    assert!(reply(&[("user", "a story about a train please")]).contains("Ada"));
    let yes = reply(&[("user", "tell me a story"), ("heard", "Would you like to hear another story?"), ("user", "yes")]);
    assert!(story::place(&yes).is_some());
}

#[test]
fn a_count_goes_on_from_the_last_number_that_was_heard() {
    let whole = reply(&[("user", "count to twenty")]);
    assert_eq!(numbers(&plain(&whole)), (1..=20).collect::<Vec<_>>());
    let go_on = |cuts: &[&str]| {
        let mut turns = vec![("user", "count to twenty")];
        for cut in cuts {
            turns.extend([("cut", *cut), ("user", "go on")]);
        }
        numbers(&plain(&reply(&turns)))
    };
    let cut_at = |what: &str| &whole[..whole.find(what).expect("counted") + what.len()];
    assert_eq!(go_on(&[cut_at("seven,")]), (8..=20).collect::<Vec<_>>());
    assert_eq!(go_on(&[cut_at("fifteen. Six")]), (16..=20).collect::<Vec<_>>(), "a cut sixteen is no six");
    assert_eq!(go_on(&[cut_at("seven,"), "Yes. Where were we? Eight, nine,"]), (10..=20).collect::<Vec<_>>());
    assert_eq!(go_on(&["All right."]), (1..=20).collect::<Vec<_>>());
    assert!(reply(&[("user", "count to three"), ("heard", "One, two, three."), ("user", "go on")]).contains("finished counting"));
    assert_eq!(numbers(&plain(&reply(&[("user", "count down from five")]))), [5, 4, 3, 2, 1, 0]);
    assert_eq!(numbers(&plain(&reply(&[("user", "count to 900000")]))).len(), COUNTED as usize);
}

#[test]
fn the_time_is_told_in_the_zone_that_is_known() {
    let utc = reply(&[("user", "what time is it")]);
    assert!(utc.contains("twenty-five past three in the afternoon") && utc.contains("universal time"), "{utc}");
    let east = answer(&talk(&[("user", "what time is it")]), Facts { offset: Some(570), ..FACTS });
    assert_eq!(east, "It is five to one in the morning.");
    let day = answer(&talk(&[("user", "what day is it today")]), Facts { offset: Some(570), ..FACTS });
    assert!(day.contains("Friday, the 2nd of January, 1970"), "the day changes with the zone: {day}");
}

#[test]
fn a_pace_is_kept_until_it_is_changed_and_what_was_cut_goes_on_in_it() {
    let whole = reply(&[("user", "tell me a story")]);
    let cut = &whole[..200];
    let slow = reply(&[("user", "tell me a story"), ("cut", cut), ("user", "slower")]);
    assert!(slow.starts_with(Pace::Slow.mark()) && story::place(&slow).is_some(), "{slow}");
    let later = reply(&[("user", "slower"), ("heard", "All right."), ("user", "slower please"), ("heard", "x"), ("user", "hello")]);
    assert!(later.starts_with(Pace::Slower.mark()));
    let usual = reply(&[("user", "slower"), ("heard", "All right."), ("user", "speak at normal speed")]);
    assert!(usual.starts_with(Pace::Usual.mark()));
    assert!(Pace::from_mark(reply(&[("user", "hello")]).chars().next().expect("words")).is_none());
    let again = reply(&[("user", "slower"), ("heard", &slow), ("user", "repeat that")]);
    assert_eq!(again.chars().filter(|&c| Pace::from_mark(c).is_some()).count(), 1);
}

#[test]
fn what_was_said_is_repeated_by_either_side() {
    assert_eq!(reply(&[("user", "Repeat after me: the Moon is round")]), "The Moon is round.");
    assert!(reply(&[("user", "blue cheese"), ("heard", "Hm."), ("user", "what did I say")]).contains("blue cheese"));
    assert!(reply(&[("user", "what did I say")]).contains("not said anything"));
    assert!(
        reply(&[("user", "hello"), ("heard", "Hello! It is good to hear you."), ("user", "repeat that")])
            .ends_with("It is good to hear you.")
    );
    assert!(reply(&[("user", "say that again")]).contains("not said anything"));
}

#[test]
fn anything_else_is_answered_at_length_with_what_was_heard_and_in_several_ways() {
    let asked = "why is the sky so blue in the morning and so red in the evening over there";
    let mut ways = Vec::new();
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(("user", asked.to_owned()));
        let borrowed: Vec<(&str, &str)> = turns.iter().map(|(w, t)| (*w, t.as_str())).collect();
        let text = reply(&borrowed);
        assert!(text.to_lowercase().contains("why is the sky so blue in the morning and so red in the evening"), "{text}");
        assert!(!text.contains('{') && plain(&text).len() >= 35);
        turns.push(("heard", text.clone()));
        ways.push(text);
    }
    ways.sort();
    ways.dedup();
    assert_eq!(ways.len(), 4);
}

#[test]
fn an_interrupted_answer_of_any_kind_can_be_continued() {
    let who = reply(&[("user", "who are you")]);
    let cut = &who[..who.find("But I can tell").expect("said") + 8];
    let rest = reply(&[("user", "who are you"), ("cut", cut), ("user", "go on")]);
    assert!(rest.contains("But I can tell long stories") && !rest.contains("Antiphon"), "{rest}");
    assert!(reply(&[("user", "go on")]).contains("nothing"));
}

#[test]
fn nothing_at_all_is_answered_too() {
    for turns in [vec![], talk(&[("user", "")]), talk(&[("heard", "hello")])] {
        assert!(answer(&turns, FACTS).contains("did not catch"));
    }
    let mut odd = talk(&[("user", "🙂 你好 ¿qué?")]);
    odd.insert(0, Turn { speaker: Speaker::System, text: "Be brief.".into(), interrupted: false });
    assert!(answer(&odd, FACTS).contains("你好 ¿qué"));
}
