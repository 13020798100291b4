//! Messages on a link's data channel or socket, as versioned JSON, one message a frame.
//!
//! Both enums grow; a reader ignores what it does not know ([`FromClient::Unknown`]) and fields it does not know.

use serde::{Deserialize, Serialize};

use crate::event::{Pii, Record};
use crate::id::{CallId, Generation, RequestId, Seq, SessionId, TurnId};
use crate::time::{SamplePos, Stamp};

/// Version of the wire format. A client of another version is told so and disconnected.
pub const VERSION: u16 = 1;
/// Longest message accepted from a client, bytes.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// Longest typed text accepted from a client, bytes: some minutes of speech. Longer ones would be kept in log and history.
pub const MAX_TEXT: usize = 8 * 1024;

/// From the engine to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToClient {
    /// The first message.
    Hello {
        /// [`VERSION`].
        v: u16,
        /// The session.
        session: SessionId,
        /// Session time now.
        at: Stamp,
        /// The authoritative state (see `turn::Snapshot`), so that a client shows the truth at once.
        snapshot: serde_json::Value,
    },
    /// A record of the session's log.
    Record {
        /// The record.
        record: Record,
    },
    /// Pause playing this generation at once.
    Hold {
        /// Which.
        generation: Generation,
    },
    /// Play this generation on.
    Resume {
        /// Which.
        generation: Generation,
    },
    /// Mute and drop this and every older generation, at once and for ever.
    Clear {
        /// The stale generation.
        generation: Generation,
        /// The generation that comes next.
        next: Generation,
    },
    /// From this RTP timestamp on, packets belong to `generation`, whose played samples count from `position`.
    Media {
        /// RTP timestamp (48 kHz clock) of the first packet.
        rtp: u32,
        /// Its generation.
        generation: Generation,
        /// Samples of the generation before that packet.
        position: SamplePos,
    },
    /// Answer to [`FromClient::Ping`].
    Pong {
        /// The client's own mark, returned.
        mark: f64,
        /// Session time when the ping was read.
        at: Stamp,
    },
    /// Answer to a request.
    Answer {
        /// Which.
        request: RequestId,
        /// A fixed word; a client treats one that it does not know as a refusal.
        ///
        /// | to | word |
        /// |---|---|
        /// | `text` | `started`, or refused: `empty`, `draining` |
        /// | `submit` | `started`, `steered` (it waits for the model; a record tells when the model is shown it), or refused: `empty`, `draining`, `no_active_turn`, `expected_turn_mismatch` (`turn` is the one that is being answered), `not_steerable`, `inbox_full` |
        /// | `cancel` | `accepted` (stopping has begun), `already_terminal`, `reconcile_required`, `no_such_turn` |
        /// | `approve` | `taken`, `not_asked` (answered before, or its turn is stopping), `no_such_call` |
        /// | `push_to_talk` | `done` |
        /// | any | `busy`: too many requests wait for their answer; ask again |
        ///
        /// An input that was refused is not sent back: the client has it.
        answer: String,
        /// The turn it speaks of, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<TurnId>,
    },
    /// The client sent something that cannot be taken.
    Problem {
        /// What, and what to do.
        detail: String,
    },
    /// The last message.
    Bye {
        /// Why: `closed`, `draining`, `version`.
        reason: String,
    },
}

/// From a client to the engine. Times are session time in microseconds, which the client computes from ping and pong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromClient {
    /// The first message: the client's version.
    Hello {
        /// [`VERSION`].
        v: u16,
    },
    /// Typed text.
    Text {
        /// Names the request.
        request: RequestId,
        /// The text.
        text: Pii<String>,
    },
    /// Typed text that may steer the turn being answered instead of replacing it. The request names the input: sent again, it takes
    /// effect once.
    Submit {
        /// Names the request and the input.
        request: RequestId,
        /// The text.
        text: Pii<String>,
        /// When it may be taken: `"mode":"steer","expected":4`.
        #[serde(flatten)]
        mode: Mode,
    },
    /// A person allows a call, or does not.
    Approve {
        /// Names the request.
        request: RequestId,
        /// Which call.
        call: CallId,
        /// Yes or no.
        granted: bool,
    },
    /// Stop this turn.
    Cancel {
        /// Names the request.
        request: RequestId,
        /// The turn the person looks at.
        turn: TurnId,
    },
    /// Push-to-talk key.
    PushToTalk {
        /// Names the request.
        request: RequestId,
        /// Down or up.
        down: bool,
    },
    /// Everything up to this seq has arrived.
    Ack {
        /// The last one without a hole before it.
        seq: Seq,
    },
    /// What is being played.
    Playout {
        /// RTP timestamp of the packet that sounds.
        rtp: u32,
        /// When it sounded.
        at: Stamp,
    },
    /// A generation fell silent at the loudspeaker, after `hold` or `clear`.
    Silenced {
        /// Which generation.
        generation: Generation,
        /// Whether by a hold (it may go on) or a clear.
        held: bool,
        /// RTP timestamp of the last packet that sounded, if known.
        #[serde(default)]
        rtp: Option<u32>,
        /// When it fell silent.
        at: Stamp,
    },
    /// Asks for the time.
    Ping {
        /// The client's own mark.
        mark: f64,
    },
    /// A message this engine does not know.
    #[serde(other)]
    Unknown,
}

/// When a submitted text may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Mode {
    /// It steers the turn being answered, or starts one.
    StartOrSteer,
    /// It starts a turn, and only when none is being answered.
    StartIfIdle,
    /// It steers this turn and no other.
    Steer {
        /// The turn that the person looks at.
        expected: TurnId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_json() {
        let clear = ToClient::Clear { generation: Generation(7), next: Generation(8) };
        let json = serde_json::to_string(&clear).expect("serialises");
        assert_eq!(json, r#"{"type":"clear","generation":7,"next":8}"#);
        assert_eq!(serde_json::from_str::<ToClient>(&json).expect("and comes back"), clear);
    }

    #[test]
    fn an_unknown_message_is_not_an_error() {
        let read: FromClient = serde_json::from_str(r#"{"type":"dance","hard":true}"#).expect("an old reader reads on");
        assert_eq!(read, FromClient::Unknown);
    }

    #[test]
    fn a_submitted_text_names_its_mode() {
        let request = RequestId::from_bits(1);
        let read = |rest: &str| {
            serde_json::from_str::<FromClient>(&format!(r#"{{"type":"submit","request":"{request}","text":"wait",{rest}}}"#)).ok()
        };
        let submit = |mode| Some(FromClient::Submit { request, text: "wait".into(), mode });
        assert_eq!(read(r#""mode":"start_or_steer""#), submit(Mode::StartOrSteer));
        assert_eq!(read(r#""mode":"start_if_idle""#), submit(Mode::StartIfIdle));
        assert_eq!(read(r#""mode":"steer","expected":4"#), submit(Mode::Steer { expected: TurnId(4) }));
        assert_eq!(read(r#""mode":"steer""#), None, "which turn it steers is never guessed");
        let sent = serde_json::to_value(submit(Mode::Steer { expected: TurnId(4) })).expect("serialises");
        assert_eq!((&sent["mode"], &sent["expected"]), (&"steer".into(), &4.into()));
    }
}
