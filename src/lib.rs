//! Antiphon: a real-time voice pipeline engine. *When the person says stop, everything stops, and nothing pretends.*

pub mod audio;
pub mod engine;
pub mod event;
pub mod id;
pub mod observe;
pub mod provider;
#[cfg(feature = "server")]
pub mod server;
pub mod store;
pub mod time;
pub mod transport;
pub mod turn;
