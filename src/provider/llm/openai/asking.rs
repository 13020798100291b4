//! A prompt in the words of the protocol: messages, calls with their results, tools.

use serde_json::{Value, json};

use crate::id::CallId;
use crate::provider::{Message, ToolInfo};

/// Calls that follow each other, and what became of them.
#[derive(Default)]
struct Round<'a> {
    calls: Vec<(CallId, &'a str, &'a str)>,
    results: Vec<(CallId, String)>,
}

/// The conversation. Calls that follow each other are one message of the assistant, joined to its words before them. Behind it stands
/// one result for each, in their order: servers refuse anything else, so a call without one counts as running, and a result without
/// its call is left out.
pub(super) fn messages(conversation: &[Message]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    let mut round = Round::default();
    for message in conversation {
        match message {
            Message::Call { call, tool, arguments } => round.calls.push((*call, tool, arguments.reveal())),
            Message::Result { call, ending, text } => {
                round.results.push((*call, Message::result_in_words(*ending, text.reveal())));
            }
            Message::System { .. } | Message::User { .. } | Message::Assistant { .. } => {
                std::mem::take(&mut round).close(&mut out);
                out.extend(said(message));
            }
        }
    }
    round.close(&mut out);
    out
}

impl Round<'_> {
    fn close(self, out: &mut Vec<Value>) {
        if self.calls.is_empty() {
            return;
        }
        let id = |call: CallId| format!("call_{}", call.0);
        let calls = self.calls.iter().map(|&(call, tool, arguments)| {
            json!({ "id": id(call), "type": "function", "function": { "name": tool, "arguments": arguments } })
        });
        let calls: Value = calls.collect();
        match out.last_mut().filter(|last| last["role"] == "assistant" && last["tool_calls"].is_null()) {
            Some(last) => last["tool_calls"] = calls,
            None => out.push(json!({ "role": "assistant", "content": null, "tool_calls": calls })),
        }
        for (call, ..) in self.calls {
            let known = self.results.iter().rfind(|(of, _)| *of == call).map(|(_, words)| words.clone());
            let content = known.unwrap_or_else(|| Message::result_in_words(None, ""));
            out.push(json!({ "role": "tool", "tool_call_id": id(call), "content": content }));
        }
    }
}

fn said(message: &Message) -> Option<Value> {
    let (role, text, interrupted) = match message {
        Message::System { text } => ("system", text, false),
        Message::User { text } => ("user", text, false),
        Message::Assistant { text, interrupted } => ("assistant", text, *interrupted),
        Message::Call { .. } | Message::Result { .. } => return None,
    };
    let text = text.reveal();
    if text.trim().is_empty() {
        return None;
    }
    // A dash tells a model what it tells a reader: here the speaker was interrupted.
    let content = if interrupted { format!("{} —", text.trim_end()) } else { text.clone() };
    Some(json!({ "role": role, "content": content }))
}

/// A tool as the model is told of it.
pub(super) fn tool(info: &ToolInfo) -> Value {
    let function = json!({ "name": info.declaration.name, "description": info.description, "parameters": info.parameters });
    json!({ "type": "function", "function": function })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CallEnding, Cancellability, Declaration};
    use crate::id::CallId;

    fn call(id: u64, tool: &str) -> Message {
        Message::Call { call: CallId(id), tool: tool.into(), arguments: r#"{"a":1}"#.into() }
    }

    fn result(id: u64, ending: Option<CallEnding>, text: &str) -> Message {
        Message::Result { call: CallId(id), ending, text: text.into() }
    }

    #[test]
    fn a_round_of_calls_is_one_message_with_its_results_behind_it() {
        let talk = [
            Message::user("how late is it, and where"),
            Message::assistant("One moment."),
            call(1, "clock"),
            result(1, Some(CallEnding::Done), "noon"),
            call(2, "place"),
            result(2, None, ""),
            Message::user("hurry"),
            call(3, "clock"),
            result(3, Some(CallEnding::Unknown), ""),
        ];
        let sent = messages(&talk);
        let roles: Vec<&str> = sent.iter().map(|m| m["role"].as_str().expect("a role")).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "tool", "user", "assistant", "tool"]);
        assert_eq!(sent[1]["content"], "One moment.");
        assert_eq!(sent[1]["tool_calls"][0]["function"], json!({ "name": "clock", "arguments": r#"{"a":1}"# }));
        assert_eq!(sent[1]["tool_calls"][1]["id"], "call_2");
        assert_eq!((&sent[2]["tool_call_id"], &sent[2]["content"]), (&json!("call_1"), &json!("noon")));
        assert!(sent[3]["content"].as_str().expect("words").contains("still running"));
        assert_eq!(sent[5]["content"], Value::Null);
        assert!(sent[6]["content"].as_str().expect("words").contains("not known whether"));
    }

    #[test]
    fn every_call_has_one_result_and_no_result_is_without_its_call() {
        let done = Some(CallEnding::Done);
        let talk = [result(7, done, "lost"), call(8, "clock"), call(9, "place"), result(9, done, "here"), result(4, done, "lost")];
        let sent = messages(&talk);
        let told: Vec<_> = sent[1..].iter().map(|m| (m["tool_call_id"].as_str(), m["content"].as_str())).collect();
        assert_eq!(sent[0]["tool_calls"].as_array().map(Vec::len), Some(2));
        assert_eq!((told.len(), told[0].0, told[1]), (2, Some("call_8"), (Some("call_9"), Some("here"))));
        assert!(told[0].1.expect("words").contains("still running"));
        assert!(messages(&talk[..1]).is_empty());
    }

    #[test]
    fn a_tool_is_told_by_its_schema() {
        let parameters = json!({ "type": "object", "properties": {} });
        let declaration = Declaration::new("clock", Cancellability::ReadOnly);
        let told = tool(&ToolInfo { declaration, description: "Tells the time.".into(), parameters: parameters.clone() });
        assert_eq!(told["function"], json!({ "name": "clock", "description": "Tells the time.", "parameters": parameters }));
    }
}
