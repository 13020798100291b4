//! The tools of an engine: found by name, shown to the model, and the words in which a call asks for one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::event::{Declaration, Pii};
use crate::provider::{AnyTool, Tool, ToolInfo};

/// All tools. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Toolbox {
    by_name: Arc<BTreeMap<String, AnyTool>>,
    infos: Arc<[ToolInfo]>,
}

impl Toolbox {
    /// Adds one.
    ///
    /// # Panics
    /// When it has no name, or one of this name is there.
    pub(super) fn add(&mut self, tool: impl Tool) {
        let tool = AnyTool::new(tool);
        let info = tool.info();
        let name = info.declaration.name.clone();
        assert!(!name.is_empty(), "a tool has a name, by which the model asks for it");
        let before = Arc::make_mut(&mut self.by_name).insert(name.clone(), tool);
        assert!(before.is_none(), "two tools are called {name}, and a model could not tell them apart");
        self.infos = self.infos.iter().cloned().chain([info]).collect();
    }

    pub(super) fn get(&self, name: &str) -> Option<AnyTool> {
        self.by_name.get(name).cloned()
    }

    /// What the model is told, in the order in which they were added.
    pub(super) fn infos(&self) -> Arc<[ToolInfo]> {
        self.infos.clone()
    }

    /// What the machine is told.
    pub(super) fn declarations(&self) -> Vec<Declaration> {
        self.infos.iter().map(|info| info.declaration.clone()).collect()
    }

    /// The tool's own key of the intent in these arguments. A tool that panics over them has none.
    pub(super) fn key(&self, name: &str, arguments: &str) -> Option<String> {
        let tool = self.by_name.get(name)?;
        catch_unwind(AssertUnwindSafe(|| tool.key(arguments))).unwrap_or_else(|_| {
            tracing::error!(tool = name, "a tool panicked over the key of a call: the call is an intent of its own");
            None
        })
    }
}

/// Arguments in one form, so that identical calls compare equal: JSON without spaces, its fields in the order of their names. What is
/// no JSON, or would lose by it (a number beyond 64 bits), stays as the model wrote it.
pub(super) fn normal(arguments: Pii<String>) -> Pii<String> {
    let text = arguments.reveal();
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if keeps_numbers(&value, text) => value.to_string().into(),
        Ok(_) | Err(_) => arguments,
    }
}

/// Whether every number comes out as it stands in `text`.
fn keeps_numbers(value: &serde_json::Value, text: &str) -> bool {
    match value {
        serde_json::Value::Number(number) => text.contains(&number.to_string()),
        serde_json::Value::Array(items) => items.iter().all(|item| keeps_numbers(item, text)),
        serde_json::Value::Object(fields) => fields.values().all(|field| keeps_numbers(field, text)),
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Cancellability;
    use crate::provider::{ProviderError, ToolCall, ToolCx};

    struct Named(&'static str);

    impl Tool for Named {
        fn info(&self) -> ToolInfo {
            ToolInfo {
                declaration: Declaration::new(self.0, Cancellability::ReadOnly),
                description: String::new(),
                parameters: serde_json::json!({}),
            }
        }

        fn key(&self, arguments: &str) -> Option<String> {
            assert!(arguments != "{}", "nothing to make a key of");
            Some(format!("{}:{arguments}", self.0))
        }

        async fn call(&self, _: ToolCall, _: ToolCx) -> Result<Pii<String>, ProviderError> {
            Ok("".into())
        }
    }

    fn normal_of(text: &str) -> String {
        normal(text.into()).into_revealed()
    }

    #[test]
    fn the_same_call_in_other_words_is_the_same_call() {
        assert_eq!(normal_of("{ \"to\": \"Ann\",\n \"from\": 3 }"), r#"{"from":3,"to":"Ann"}"#);
        assert_eq!(normal_of(r#"{"from":3,"to":"Ann"}"#), r#"{"from":3,"to":"Ann"}"#);
        assert_eq!(normal_of("{not json "), "{not json ");
        let big = r#"{"id": 123456789012345678901234567890}"#;
        assert_eq!(normal_of(big), big, "an id is not rounded");
    }

    #[test]
    fn tools_are_found_by_name_and_told_in_their_order() {
        let mut tools = Toolbox::default();
        tools.add(Named("look"));
        tools.add(Named("book"));
        let names: Vec<String> = tools.declarations().into_iter().map(|declaration| declaration.name).collect();
        assert_eq!(names, ["look", "book"]);
        assert!(tools.get("cook").is_none());
        assert_eq!(tools.key("book", "[1]").as_deref(), Some("book:[1]"));
        assert_eq!(tools.key("cook", "[1]"), None);
        assert_eq!(tools.key("book", "{}"), None, "a tool that panics has no key");
    }

    #[test]
    #[should_panic(expected = "two tools are called look")]
    fn two_tools_of_one_name_are_refused() {
        let mut tools = Toolbox::default();
        tools.add(Named("look"));
        tools.add(Named("look"));
    }
}
