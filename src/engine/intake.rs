//! The world → `turn::Input`: what clients, the pump and the tasks say, in the machine's words. Decides nothing.

use tokio::sync::oneshot;

use super::answers::Waiter;
use super::tasks::Output;
use super::uplink::FarWord;
use crate::audio::mic::VoiceEvidence;
use crate::event::{CancelCause, Initiator, Pii, Timing};
use crate::id::{RequestId, Seq, TurnId};
use crate::time::Stamp;
use crate::transport::wire::{FromClient, MAX_TEXT, ToClient, VERSION};
use crate::turn::{CancelAnswer, Command, Report, SayAnswer, Snapshot, Voice};

/// What a handle asks of its session.
pub(super) enum Ask {
    Say { request: RequestId, text: Pii<String>, reply: oneshot::Sender<SayAnswer> },
    Cancel { request: RequestId, turn: TurnId, cause: CancelCause, initiator: Initiator, reply: oneshot::Sender<CancelAnswer> },
    PushToTalk { down: bool, reply: oneshot::Sender<()> },
    Close { cause: CancelCause },
    Drain { until: Stamp },
    Snapshot { reply: oneshot::Sender<Snapshot> },
}

/// What a message of the client comes to.
#[derive(Debug)]
pub(super) enum Meaning {
    /// Something for the machine, and the turn that was named.
    Command(RequestId, Command, Option<TurnId>),
    /// Something that only the pump can place.
    Far(FarWord),
    /// Answered at once.
    Reply(ToClient),
    /// Everything up to here has arrived.
    Ack(Seq),
    /// A client of another version: told so, and let go.
    Foreign(u16),
    Nothing,
}

/// Reads one message of the client.
pub(super) fn read(message: FromClient, now: Stamp) -> Meaning {
    match message {
        FromClient::Hello { v } if v == VERSION => Meaning::Nothing,
        FromClient::Hello { v } => Meaning::Foreign(v),
        FromClient::Text { text, .. } if text.reveal().len() > MAX_TEXT => {
            let detail = format!("a text of {} bytes is too long; the most is {MAX_TEXT}: send it in parts", text.reveal().len());
            Meaning::Reply(ToClient::Problem { detail })
        }
        FromClient::Text { request, text } => Meaning::Command(request, Command::Say { request, text }, None),
        FromClient::Cancel { request, turn } => {
            let cancel = Command::Cancel { request, turn, cause: CancelCause::User, initiator: Initiator::Client };
            Meaning::Command(request, cancel, Some(turn))
        }
        FromClient::PushToTalk { request, down } => Meaning::Command(request, Command::PushToTalk { request, down }, None),
        FromClient::Ack { seq } => Meaning::Ack(seq),
        FromClient::Playout { rtp, at } => Meaning::Far(FarWord::Playout { rtp, at }),
        FromClient::Silenced { generation, held, rtp, at } => Meaning::Far(FarWord::Silenced { generation, held, rtp, at }),
        FromClient::Ping { mark } => Meaning::Reply(ToClient::Pong { mark, at: now }),
        FromClient::Unknown => Meaning::Nothing,
    }
}

/// A handle's request as a command, and who waits for its answer.
pub(super) fn command(ask: Ask) -> Result<(RequestId, Command, Waiter), Ask> {
    Ok(match ask {
        Ask::Say { request, text, reply } => (request, Command::Say { request, text }, Waiter::Say(reply)),
        Ask::Cancel { request, turn, cause, initiator, reply } => {
            (request, Command::Cancel { request, turn, cause, initiator }, Waiter::Cancel(reply))
        }
        Ask::PushToTalk { down, reply } => {
            let request = RequestId::new();
            (request, Command::PushToTalk { request, down }, Waiter::Done(reply))
        }
        Ask::Close { cause } => {
            let request = RequestId::new();
            (request, Command::Close { request, cause }, Waiter::Nobody)
        }
        other @ (Ask::Drain { .. } | Ask::Snapshot { .. }) => return Err(other),
    })
}

/// The detectors' evidence in the machine's words.
pub(super) fn voice(evidence: VoiceEvidence) -> Voice {
    let VoiceEvidence { at, since, speech, quick, level_dbfs, noise_dbfs, explained } = evidence;
    Voice { at, since, speech, quick, level_dbfs, noise_dbfs, explained }
}

/// A task's output in the machine's words. The audio itself stays outside; its length comes with it.
pub(super) fn report(output: Output, audio: impl FnOnce(crate::provider::Chunk) -> (u64, usize, Timing)) -> Report {
    match output {
        Output::Transcript(transcript) => Report::Transcript { text: transcript.text, is_final: transcript.is_final },
        Output::Text(delta) => Report::Text { delta },
        Output::Audio(chunk) => {
            let (samples, chars, timing) = audio(chunk);
            Report::Audio { samples, chars, timing }
        }
        Output::Ended(ended) => Report::Ended(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_answered_at_once_and_a_foreign_client_is_told() {
        let now = Stamp::from_millis(70);
        let Meaning::Reply(pong) = read(FromClient::Ping { mark: 1.5 }, now) else { panic!("a pong") };
        assert_eq!(pong, ToClient::Pong { mark: 1.5, at: now });
        assert!(matches!(read(FromClient::Hello { v: VERSION }, now), Meaning::Nothing));
        assert!(matches!(read(FromClient::Hello { v: VERSION + 1 }, now), Meaning::Foreign(_)));
        assert!(matches!(read(FromClient::Unknown, now), Meaning::Nothing));
    }

    #[test]
    fn a_text_of_a_book_is_refused_and_not_repeated() {
        let text = |bytes: usize| FromClient::Text { request: RequestId::from_bits(1), text: "x".repeat(bytes).into() };
        assert!(matches!(read(text(MAX_TEXT), Stamp::ZERO), Meaning::Command(..)));
        let Meaning::Reply(ToClient::Problem { detail }) = read(text(MAX_TEXT + 1), Stamp::ZERO) else { panic!("a problem") };
        assert!(detail.contains("8193") && !detail.contains("xx"), "{detail}");
    }

    #[test]
    fn a_clients_cancel_names_its_turn_and_is_the_users() {
        let request = RequestId::from_bits(9);
        let Meaning::Command(_, command, named) = read(FromClient::Cancel { request, turn: TurnId(4) }, Stamp::ZERO) else {
            panic!("a command")
        };
        assert_eq!(named, Some(TurnId(4)));
        let want = Command::Cancel { request, turn: TurnId(4), cause: CancelCause::User, initiator: Initiator::Client };
        assert_eq!(command, want);
    }
}
