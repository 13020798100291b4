//! Language models: the adapters.

mod brain;
#[cfg(feature = "http")]
mod openai;
mod scripted;
#[cfg(feature = "http")]
mod sse;

pub use brain::Brain;
#[cfg(feature = "http")]
pub use openai::{OpenAiChat, OpenAiConfig};
pub use scripted::{LlmScript, ScriptedLlm};
