//! The world → `turn::Input`: what clients, the pump and the tasks say, in the machine's words. Decides nothing.

use tokio::sync::oneshot;

use super::results::Output;
use super::toolbox::{Toolbox, normal};
use super::uplink::FarWord;
use crate::audio::mic::VoiceEvidence;
use crate::event::{CancelCause, Initiator, Timing};
use crate::id::{Seq, TurnId};
use crate::provider::{Chunk, Piece};
use crate::time::Stamp;
use crate::transport::wire::{FromClient, MAX_TEXT, Mode, ToClient, VERSION};
use crate::turn::{Answer, Command, Report, Snapshot, SubmitMode, Voice};

/// What a handle asks of its session.
pub(super) enum Ask {
    /// Something for the machine, and who is told its answer.
    Command { command: Command, reply: oneshot::Sender<Answer> },
    /// End the session.
    Close { cause: CancelCause },
    /// End it when nothing runs any more, or then.
    Drain { until: Stamp },
    /// The authoritative state.
    Snapshot { reply: oneshot::Sender<Snapshot> },
}

/// What a message of the client comes to.
#[derive(Debug)]
pub(super) enum Meaning {
    /// Something for the machine, and the turn that was named.
    Command(Command, Option<TurnId>),
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
        FromClient::Text { text, .. } | FromClient::Submit { text, .. } if text.reveal().len() > MAX_TEXT => {
            let detail = format!("a text of {} bytes is too long; the most is {MAX_TEXT}: send it in parts", text.reveal().len());
            Meaning::Reply(ToClient::Problem { detail })
        }
        FromClient::Text { request, text } => Meaning::Command(Command::Say { request, text }, None),
        FromClient::Submit { request, text, mode } => {
            let (mode, named) = match mode {
                Mode::StartOrSteer => (SubmitMode::StartOrSteer, None),
                Mode::StartIfIdle => (SubmitMode::StartIfIdle, None),
                Mode::Steer { expected } => (SubmitMode::Steer { expected }, Some(expected)),
            };
            Meaning::Command(Command::Submit { request, text, mode }, named)
        }
        FromClient::Approve { request, call, granted } => Meaning::Command(Command::Approve { request, call, granted }, None),
        FromClient::Cancel { request, turn } => {
            let (cause, initiator) = (CancelCause::User, Initiator::Client);
            Meaning::Command(Command::Cancel { request, turn, cause, initiator, deadline: None }, Some(turn))
        }
        FromClient::PushToTalk { request, down } => Meaning::Command(Command::PushToTalk { request, down }, None),
        FromClient::Ack { seq } => Meaning::Ack(seq),
        FromClient::Playout { rtp, at } => Meaning::Far(FarWord::Playout { rtp, at }),
        FromClient::Silenced { generation, held, rtp, at } => Meaning::Far(FarWord::Silenced { generation, held, rtp, at }),
        FromClient::Ping { mark } => Meaning::Reply(ToClient::Pong { mark, at: now }),
        FromClient::Unknown => Meaning::Nothing,
    }
}

/// The detectors' evidence in the machine's words.
pub(crate) fn voice(evidence: VoiceEvidence) -> Voice {
    let VoiceEvidence { at, since, speech, quick, level_dbfs, noise_dbfs, explained, weight } = evidence;
    Voice { at, since, speech, quick, level_dbfs, noise_dbfs, explained, weight }
}

/// A task's output in the machine's words. The audio itself stays outside; its length comes with it. A call comes in its normal form,
/// with its tool's own key.
pub(super) fn report(output: Output, tools: &Toolbox, audio: impl FnOnce(Chunk) -> (u64, usize, Timing)) -> Report {
    match output {
        Output::Transcript(transcript) => Report::Transcript { text: transcript.text, is_final: transcript.is_final },
        Output::Piece(Piece::Text(delta)) => Report::Text { delta },
        Output::Piece(Piece::Call { tool, arguments }) => {
            let arguments = normal(arguments);
            let key = tools.key(&tool, arguments.reveal());
            Report::Call { tool, arguments, key }
        }
        Output::Audio(chunk) => {
            let (samples, chars, timing) = audio(chunk);
            Report::Audio { samples, chars, timing }
        }
        Output::Found(text) => Report::Found { text },
        Output::Checkpoint(checkpoint) => Report::Checkpoint { checkpoint },
        Output::CommitAsked => Report::CommitAsked,
        Output::Result(text) => Report::Result { text },
        Output::Probed(outside) => Report::Probed { outside },
        Output::Ended(ended) => Report::Ended(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RequestId;

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
    fn a_clients_steer_names_the_turn_it_looks_at() {
        let request = RequestId::from_bits(9);
        let steer = Mode::Steer { expected: TurnId(4) };
        let Meaning::Command(command, named) = read(FromClient::Submit { request, text: "wait".into(), mode: steer }, Stamp::ZERO)
        else {
            panic!("a command")
        };
        assert_eq!(named, Some(TurnId(4)));
        let mode = SubmitMode::Steer { expected: TurnId(4) };
        assert_eq!(command, Command::Submit { request, text: "wait".into(), mode });
    }

    #[test]
    fn a_clients_cancel_names_its_turn_and_is_the_users() {
        let request = RequestId::from_bits(9);
        let Meaning::Command(command, named) = read(FromClient::Cancel { request, turn: TurnId(4) }, Stamp::ZERO) else {
            panic!("a command")
        };
        assert_eq!(named, Some(TurnId(4)));
        let want =
            Command::Cancel { request, turn: TurnId(4), cause: CancelCause::User, initiator: Initiator::Client, deadline: None };
        assert_eq!(command, want);
    }
}
