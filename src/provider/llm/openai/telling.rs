//! The events of an answer as pieces: text as it comes, calls when they are complete.
//!
//! A call comes in fragments: its name, then its arguments bit by bit, each fragment with the call's index. Some servers send a whole
//! call at once, give every call the same index, leave the index or the id out, repeat the name, send no arguments or the object
//! itself instead of its text, or words in between; all of that is understood.

use std::collections::VecDeque;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{broken, code};
use crate::event::Retry;
use crate::provider::{Piece, ProviderError};

/// Longest arguments of one call, bytes.
const ARGUMENTS: usize = 256 << 10;
/// Longest name of a tool, bytes.
const NAME: usize = 256;

/// What an answer has told so far.
#[derive(Debug, Default)]
pub(super) struct Telling {
    ready: VecDeque<Piece>,
    /// The call that is being told.
    call: Option<Call>,
    complete: bool,
    over: bool,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Fragment>>,
}

#[derive(Deserialize)]
struct Fragment {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Value>,
}

impl Call {
    /// Whether its arguments are complete, as far as one can see.
    fn is_whole(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }
}

impl Telling {
    /// Takes one event in.
    pub(super) fn read(&mut self, event: &str) -> Result<(), ProviderError> {
        match event.trim() {
            "[DONE]" => {
                self.over = true;
                return self.close_call();
            }
            "" => return Ok(()),
            _ => {}
        }
        let frame: Frame = serde_json::from_str(event).map_err(|_| broken("it sent an event that is not JSON as expected"))?;
        if let Some(error) = frame.error.filter(|e| !e.is_null()) {
            return Err(ProviderError::Broken { why: format!("the server reports {}", code(&error)), retry: Retry::Later });
        }
        // One answer is asked for; a usage report has none.
        let Some(choice) = frame.choices.into_iter().next() else { return Ok(()) };
        if choice.finish_reason.as_deref() == Some("content_filter") {
            return Err(ProviderError::Refused { why: "the server's content filter".into() });
        }
        if let Some(delta) = choice.delta.filter(|_| !self.complete) {
            let text = delta.content.filter(|c| !c.is_empty()).or(delta.refusal).unwrap_or_default();
            if !text.is_empty() {
                // Words in the middle of a call do not end it.
                if self.call.as_ref().is_some_and(Call::is_whole) {
                    self.close_call()?;
                }
                self.ready.push_back(text.into());
            }
            for fragment in delta.tool_calls.unwrap_or_default() {
                self.fragment(fragment)?;
            }
        }
        // Some say with every piece that there is no reason yet.
        if choice.finish_reason.is_some_and(|reason| !reason.is_empty()) {
            self.close_call()?;
            self.complete = true;
        }
        Ok(())
    }

    fn fragment(&mut self, fragment: Fragment) -> Result<(), ProviderError> {
        let Function { name, arguments } = fragment.function.unwrap_or(Function { name: None, arguments: None });
        let (name, id) = (name.unwrap_or_default(), fragment.id.filter(|id| !id.is_empty()));
        let none = matches!(&arguments, None | Some(Value::Null)) || arguments == Some(Value::String(String::new()));
        let same = self.call.as_ref().is_some_and(|call| match (&call.id, &id, call.index, fragment.index) {
            (Some(open), Some(id), ..) if open != id => false,
            (_, _, Some(open), Some(index)) if open != index => false,
            _ if name.is_empty() => true,
            // Some repeat the name; behind a call that is whole it begins the next one.
            (Some(_), Some(_), ..) => true,
            (.., Some(_), Some(_)) => !call.is_whole() || none && call.name == name,
            // Without an index a name begins the next call.
            _ => false,
        });
        if !same {
            self.close_call()?;
            self.call = Some(Call { index: fragment.index, id, name: String::new(), arguments: String::new() });
        }
        let Some(call) = &mut self.call else { return Ok(()) };
        if call.name != name {
            call.name.push_str(&name);
        }
        match arguments {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => call.arguments.push_str(&text),
            Some(object) => call.arguments.push_str(&object.to_string()),
        }
        if call.arguments.len() > ARGUMENTS || call.name.len() > NAME {
            return Err(broken("a call has no end"));
        }
        Ok(())
    }

    /// The call is complete.
    fn close_call(&mut self) -> Result<(), ProviderError> {
        let Some(Call { name, arguments, .. }) = self.call.take() else { return Ok(()) };
        if name.is_empty() {
            return Err(broken("it asks for a tool without a name"));
        }
        let arguments = if matches!(arguments.trim(), "" | "null") { "{}".to_owned() } else { arguments };
        if serde_json::from_str::<IgnoredAny>(&arguments).is_err() {
            return Err(broken("the arguments of a call are not JSON"));
        }
        self.ready.push_back(Piece::Call { tool: name, arguments: arguments.into() });
        Ok(())
    }

    /// The next piece that is complete.
    pub(super) fn next(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// Whether the answer is whole, though more events may come.
    pub(super) fn is_complete(&self) -> bool {
        self.complete || self.over
    }

    /// Whether no more events come.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(events: &[&str]) -> Result<Vec<Piece>, ProviderError> {
        let mut telling = Telling::default();
        let mut pieces = Vec::new();
        for event in events {
            telling.read(event)?;
            pieces.extend(std::iter::from_fn(|| telling.next()));
        }
        assert!(telling.is_complete() || telling.call.is_some() || pieces.is_empty());
        Ok(pieces)
    }

    fn delta(fragments: &str) -> String {
        format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{fragments}]}}}}]}}"#)
    }

    fn call(tool: &str, arguments: &str) -> Piece {
        Piece::Call { tool: tool.into(), arguments: arguments.into() }
    }

    const END: &str = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;

    #[test]
    fn calls_are_put_together_from_their_fragments() {
        let events = [
            r#"{"choices":[{"delta":{"content":"One moment."}}]}"#.to_owned(),
            delta(r#"{"index":0,"id":"a","type":"function","function":{"name":"clock","arguments":""}}"#),
            delta(r#"{"index":0,"function":{"arguments":"{\"zone\":"}}"#),
            delta(r#"{"index":0,"function":{"arguments":"1}"}}"#),
            delta(r#"{"index":1,"id":"b","function":{"name":"place"}}"#),
            END.to_owned(),
            "[DONE]".to_owned(),
        ];
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let want = [Piece::from("One moment."), call("clock", r#"{"zone":1}"#), call("place", "{}")];
        assert_eq!(told(&events).expect("understood"), want);
    }

    #[test]
    fn whole_calls_at_once_and_without_an_index_are_understood() {
        let both = delta(r#"{"function":{"name":"a","arguments":"{}"}},{"function":{"name":"b","arguments":"[1]"}}"#);
        assert_eq!(told(&[&both, END]).expect("understood"), [call("a", "{}"), call("b", "[1]")]);
        let parts = [delta(r#"{"function":{"name":"a"}}"#), delta(r#"{"function":{"arguments":"{}"}}"#)];
        assert_eq!(told(&[&parts[0], &parts[1], "[DONE]"]).expect("understood"), [call("a", "{}")]);
    }

    #[test]
    fn the_habits_of_other_servers_are_understood() {
        let (a, b) = (call("a", r#"{"x":1}"#), call("b", "{}"));
        // Every call whole, and every index the same; with ids, and without.
        for (one, two) in [(r#""id":"1","#, r#""id":"2","#), ("", "")] {
            let first = delta(&format!(r#"{{"index":0,{one}"function":{{"name":"a","arguments":"{{\"x\":1}}"}}}}"#));
            let second = delta(&format!(r#"{{"index":0,{two}"function":{{"name":"b","arguments":"{{}}"}}}}"#));
            assert_eq!(told(&[&first, &second, END]).expect("understood"), [a.clone(), b.clone()]);
        }
        // The name again with every fragment, and words in the middle.
        let parts = [
            delta(r#"{"index":0,"id":"1","function":{"name":"a","arguments":"{\"x\""}}"#),
            r#"{"choices":[{"delta":{"content":"Hm. "},"finish_reason":""}]}"#.to_owned(),
            delta(r#"{"index":0,"id":"1","function":{"name":"a","arguments":":1}"}}"#),
            r#"{"choices":[{"delta":{"content":"So."}}]}"#.to_owned(),
        ];
        let [p, q, r, s] = parts.each_ref().map(String::as_str);
        assert_eq!(told(&[p, q, r, s, END]).expect("understood"), ["Hm. ".into(), a.clone(), "So.".into()]);
        // And once more when there is nothing left to say.
        let again = delta(r#"{"index":0,"function":{"name":"b","arguments":""}}"#);
        let whole = delta(r#"{"index":0,"function":{"name":"b","arguments":"{}"}}"#);
        assert_eq!(told(&[&whole, &again, END]).expect("understood"), std::slice::from_ref(&b));
        // The object itself, nothing at all, and no arguments in a word.
        let object = delta(r#"{"index":0,"function":{"name":"a","arguments":{"x":1}}}"#);
        assert_eq!(told(&[&object, END]).expect("understood"), [a]);
        for nothing in [r#""null""#, "null", r#"" ""#] {
            let empty = delta(&format!(r#"{{"index":0,"function":{{"name":"b","arguments":{nothing}}}}}"#));
            assert_eq!(told(&[&empty, END]).expect("understood"), std::slice::from_ref(&b), "{nothing}");
        }
    }

    #[test]
    fn a_torn_call_is_broken() {
        let torn = delta(r#"{"index":0,"function":{"name":"a","arguments":"{\"x\":"}}"#);
        assert!(matches!(told(&[&torn, END]), Err(ProviderError::Broken { .. })));
        let nameless = delta(r#"{"index":0,"function":{"arguments":"{}"}}"#);
        assert!(matches!(told(&[&nameless, END]), Err(ProviderError::Broken { .. })));
        let endless = delta(&format!(r#"{{"index":0,"function":{{"name":"a","arguments":"{}"}}}}"#, "x".repeat(ARGUMENTS + 1)));
        assert!(matches!(told(&[&endless]), Err(ProviderError::Broken { .. })));
        let named = delta(&format!(r#"{{"index":0,"function":{{"name":"{}"}}}}"#, "x".repeat(NAME + 1)));
        assert!(matches!(told(&[&named]), Err(ProviderError::Broken { .. })));
    }
}
