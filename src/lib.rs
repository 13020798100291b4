//! Antiphon: a real-time voice pipeline engine.
//!
//! > *When the person says stop, everything stops, and nothing pretends.* The old answer falls silent, the old work is cancelled, what
//! > comes late never revives, what cannot be undone is said honestly, and every one of these is measured.
//!
//! You bring speech-to-text, a language model and text-to-speech ([`Stt`], [`Llm`], [`Tts`]; some ship with the crate). Antiphon
//! listens, decides who has the floor, runs the providers, plays their sound, and stops them: within a block when there is reason to
//! think that the person wants to speak, for good when it is sure, and back at the very sample when it was only a cough.
//!
//! # A conversation in twenty lines
//!
//! ```no_run
//! use antiphon::provider::llm::Brain;
//! use antiphon::provider::stt::ScriptedStt;
//! use antiphon::provider::tts::Espeak;
//! use antiphon::transport::memory::{Net, page, pair};
//! use antiphon::{CancelCause, Engine, Event, RuntimeClock, SessionId};
//!
//! # async fn run() -> Result<(), antiphon::Error> {
//! let engine = Engine::builder(ScriptedStt::hearing("hello"), Brain::new(), Espeak::new())
//!     .instructions("Answer in one or two sentences.")
//!     .build();
//! let (link, person) = pair(Net::perfect(), page()); // or a browser: transport::webrtc
//! let session = engine.open(SessionId::new(), RuntimeClock::start(), link)?;
//! let mut records = session.records(); // from now on; a slow reader never slows the session
//! session.say("tell me a story").await;
//! while let Some(record) = records.next().await {
//!     match &record.event {
//!         Event::Transcript { text, is_final: true, .. } => println!("you  {}", text.reveal()),
//!         Event::ReplyText { delta } => print!("{}", delta.reveal()),
//!         Event::TurnEnded { terminal, .. } => {
//!             println!("\n[{terminal}]");
//!             break;
//!         }
//!         _ => {}
//!     }
//! }
//! session.close(CancelCause::User).await; // returns when nothing of it is left running
//! # drop(person);
//! # Ok(()) }
//! ```
//!
//! The `person` of this link is turned by hand ([`transport::memory`]), which is how the tests talk. `antiphon serve` and
//! `examples/webrtc_server.rs` put a browser in that place, `examples/custom_tts.rs` a provider of your own.
//!
//! # Three kinds of time, and which one you hold
//!
//! * [`Stamp`]: microseconds since the session began. In records, deadlines and tails; can be written down and compared.
//! * [`SamplePos`]: a place in one stream of samples. How far an answer was heard is one of these.
//! * Wall time stands once in a session, in its first record.
//!
//! # What happens when somebody interrupts
//!
//! 1. *Hold.* Weak evidence of speech pauses the answer at an exact sample. Nothing is lost yet.
//! 2. It was a cough: the answer *resumes* from that sample ([`Event::FalseInterruption`]).
//! 3. It was speech: the [`Generation`] rises, and whatever is older is stale at every door: the text gate, the ring's reader, the
//!    client. Then the providers are stopped, the history is cut at what was heard, and a new turn begins that names its parent.
//! 4. The *audible tail*, from the first sound of the word to the last old sample at the loudspeaker, is measured, split and kept
//!    ([`Metrics::audible_tail`]).
//!
//! *Stop requested* and *stopped* are two facts: [`Session::cancel`] answers the first, [`Session::ended`] the second.
//!
//! # Rooms
//!
//! Imports go downward only; `tests/layers.rs` holds us to it.
//!
//! | layer | room | |
//! |---|---|---|
//! | 0 | [`time`], [`id`], [`event`] | the language of the house |
//! | 1 | [`turn`] | decides: a pure value, facts in, effects out |
//! | 1 | [`audio`] | sounds: blocks, rings, the fence; real-time manners |
//! | 2 | [`provider`] | listens, thinks, speaks |
//! | 2 | [`transport`] | carries: WebRTC, and two ends in one process |
//! | 2 | [`store`] | remembers |
//! | 2 | [`observe`] | counts, from records alone |
//! | 3 | [`engine`] | lives: one machine per session, wired to all the others |
//! | 4 | `server` | welcomes: the page, signalling, metrics (feature `server`) |
//! | 4 | `lab` | proves: scenarios, faults and simulation on a virtual clock (feature `lab`) |
//!
//! # Errors
//!
//! A *refusal* is an enum to branch on and hands the input back ([`turn::SayAnswer`], [`turn::CancelAnswer`]). An *error* says whether
//! a retry helps ([`Error::retry`]). A *panic* is our bug.

pub mod audio;
pub mod engine;
mod error;
pub mod event;
pub mod id;
#[cfg(feature = "lab")]
pub mod lab;
pub mod observe;
pub mod provider;
#[cfg(feature = "server")]
pub mod server;
pub mod store;
pub mod time;
pub mod transport;
pub mod turn;

pub use engine::{Builder, Engine, Limits, Records, Session};
pub use error::Error;
pub use event::{CancelCause, Event, Pii, Record, Terminal};
pub use id::{Generation, RequestId, SessionId, TurnId};
pub use observe::Metrics;
pub use provider::{Llm, Stt, Tts};
#[cfg(feature = "server")]
pub use server::Server;
pub use time::{RuntimeClock, SamplePos, Stamp};
pub use transport::Link;
pub use turn::Policy;
