//! Text to speech: the adapters.

mod espeak;
mod scripted;
mod sentence;
mod wav;

pub use espeak::Espeak;
pub use scripted::{ScriptedTts, Sound, TtsScript};
