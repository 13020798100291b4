//! Speech to text: the adapters.

mod pocketsphinx;
mod scripted;
mod verdict;

pub use pocketsphinx::Pocketsphinx;
pub use scripted::{ScriptedStt, SttScript};
