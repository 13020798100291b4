//! The life of one connection: its messages, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use webrtc::data_channel::{DataChannel, DataChannelEvent};
use webrtc::peer_connection::PeerConnection;

use super::super::wire::{FromClient, MAX_MESSAGE, ToClient, VERSION};
use crate::id::SessionId;
use crate::time::{Clock, RuntimeClock, Stamp};

/// How long the last messages may take to leave before the peer is closed.
const FAREWELL: Duration = Duration::from_millis(250);
/// How often it is looked whether they have left.
const LOOK: Duration = Duration::from_millis(5);

/// What the task of a connection holds.
pub(super) struct Live {
    pub(super) session: SessionId,
    pub(super) clock: RuntimeClock,
    /// The data channel has to be there by then.
    pub(super) connect_by: Stamp,
    pub(super) channel: oneshot::Receiver<Arc<dyn DataChannel>>,
    pub(super) to_client: mpsc::Receiver<ToClient>,
    /// For answers to what cannot be read; weak, so that it does not keep the queue open.
    pub(super) problems: mpsc::WeakSender<ToClient>,
    pub(super) from_client: mpsc::Sender<FromClient>,
    pub(super) closed: CancellationToken,
}

impl Live {
    /// Lives until either side ends the connection; then nothing of it is left.
    pub(super) async fn run(mut self, peer: Arc<dyn PeerConnection>) {
        // Whatever ends this task ends the link.
        let _closing = self.closed.clone().drop_guard();
        if let Some(channel) = self.connected().await {
            let gone = self.converse(&*channel).await;
            self.closed.cancel();
            if !gone {
                self.farewell(&*channel).await;
            }
        }
        self.closed.cancel();
        if let Err(e) = peer.close().await {
            tracing::debug!(session = %self.session, error = %e, "the peer did not close well");
        }
        tracing::debug!(session = %self.session, "link closed");
    }

    #[allow(clippy::disallowed_methods, reason = "the bound on connecting belongs to the wire; no machine knows of it yet")]
    async fn connected(&mut self) -> Option<Arc<dyn DataChannel>> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            channel = &mut self.channel => channel.ok(),
            () = tokio::time::sleep_until(self.clock.instant(self.connect_by)) => {
                tracing::info!("no client connected in time");
                None
            }
        }
    }

    /// Carries messages until somebody ends it; true when the client did.
    async fn converse(&mut self, channel: &dyn DataChannel) -> bool {
        let open = CancellationToken::new();
        let reader =
            Reader { channel, open: &open, problems: &self.problems, from_client: &self.from_client, closed: &self.closed };
        let enough = CancellationToken::new();
        let mut writing = std::pin::pin!(write(channel, &open, &enough, &mut self.to_client));
        let gone = tokio::select! {
            biased;
            () = self.closed.cancelled() => false,
            gone = reader.run() => gone,
            () = &mut writing => return false,
        };
        if !gone {
            // A message that was taken from the queue is put on the wire before the farewell goes on with the next.
            enough.cancel();
            let until = self.clock.instant(self.clock.now() + FAREWELL);
            let _ = tokio::time::timeout_at(until, writing).await;
        }
        gone
    }

    /// Lets the last messages leave, briefly: `Bye` should be among them.
    #[allow(clippy::disallowed_methods, reason = "a bounded wait for the wire, after the session has let go of it")]
    async fn farewell(&mut self, channel: &dyn DataChannel) {
        let until = self.clock.instant(self.clock.now() + FAREWELL);
        let leave = async {
            while let Ok(message) = self.to_client.try_recv() {
                if !put(channel, &message).await {
                    return;
                }
            }
            while channel.outstanding_bytes().await.is_ok_and(|bytes| bytes > 0) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout_at(until, leave).await;
    }
}

/// Writes messages until the queue or the channel ends, or it is enough; never lets go of one that it has taken.
async fn write(
    channel: &dyn DataChannel,
    open: &CancellationToken,
    enough: &CancellationToken,
    messages: &mut mpsc::Receiver<ToClient>,
) {
    let next = async |messages: &mut mpsc::Receiver<ToClient>| {
        tokio::select! {
            biased;
            () = enough.cancelled() => None,
            message = messages.recv() => message,
        }
    };
    tokio::select! {
        () = enough.cancelled() => return,
        () = open.cancelled() => {}
    }
    while let Some(message) = next(messages).await {
        if !put(channel, &message).await {
            return;
        }
    }
}

/// Writes one message; false when the channel is gone.
async fn put(channel: &dyn DataChannel, message: &ToClient) -> bool {
    match serde_json::to_string(message) {
        Ok(text) => channel.send_text(&text).await.is_ok(),
        Err(e) => {
            // Every message is plain data; this would be a mistake of ours in `wire`.
            tracing::error!(error = %e, "a message has no JSON");
            true
        }
    }
}

struct Reader<'a> {
    channel: &'a dyn DataChannel,
    open: &'a CancellationToken,
    problems: &'a mpsc::WeakSender<ToClient>,
    from_client: &'a mpsc::Sender<FromClient>,
    closed: &'a CancellationToken,
}

impl Reader<'_> {
    /// Reads until the channel ends (true) or the client is sent away (false).
    async fn run(&self) -> bool {
        let mut greeted = false;
        while let Some(event) = self.channel.poll().await {
            match event {
                DataChannelEvent::OnOpen => self.open.cancel(),
                DataChannelEvent::OnClose | DataChannelEvent::OnClosing => return true,
                DataChannelEvent::OnMessage(message) => {
                    let message = match parse(&message.data) {
                        Ok(message) => message,
                        Err(detail) => {
                            self.tell(ToClient::Problem { detail });
                            continue;
                        }
                    };
                    match message {
                        FromClient::Hello { v } if v != VERSION => {
                            tracing::info!(theirs = v, ours = VERSION, "another version of the wire");
                            self.tell(ToClient::Problem {
                                detail: format!("this engine speaks version {VERSION}, you speak {v}; load the page anew"),
                            });
                            self.tell(ToClient::Bye { reason: "version".to_owned() });
                            return false;
                        }
                        FromClient::Hello { .. } => greeted = true,
                        _ if !greeted => {
                            self.tell(ToClient::Problem { detail: "begin with `hello`; this message was ignored".to_owned() });
                            continue;
                        }
                        _ => {}
                    }
                    // Waiting here stops the reading, and with it the client: its stack sees the window close.
                    if self.from_client.send(message).await.is_err() {
                        return false;
                    }
                }
                _ => {}
            }
        }
        true
    }

    fn tell(&self, message: ToClient) {
        let told = self.problems.upgrade().is_none_or(|queue| queue.try_send(message).is_ok());
        if !told {
            self.closed.cancel();
        }
    }
}

/// Reads one message. What it says is never repeated in the problem, since it may be personal.
fn parse(data: &[u8]) -> Result<FromClient, String> {
    if data.len() > MAX_MESSAGE {
        return Err(format!("a message of {} bytes is too long; the most is {MAX_MESSAGE}", data.len()));
    }
    serde_json::from_slice(data).map_err(|e| {
        let what = match e.classify() {
            serde_json::error::Category::Data => "is JSON, but not a message of this version",
            _ => "is not JSON",
        };
        format!("a message {what} (at byte {} of it)", e.column())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_described_without_repeating_it() {
        let long = vec![b' '; MAX_MESSAGE + 1];
        for (bad, word) in [
            (&b"secret"[..], "not JSON"),
            (b"{\"type\":\"text\",\"request\":\"secret\"}", "not a message"),
            (b"\xff\xfe", "not JSON"),
            (&long, "too long"),
        ] {
            let problem = parse(bad).expect_err("it is bad");
            assert!(problem.contains(word) && !problem.contains("secret"), "{problem}");
        }
        assert_eq!(parse(br#"{"type":"hello","v":1}"#), Ok(FromClient::Hello { v: 1 }));
        assert_eq!(parse(br#"{"type":"dance"}"#), Ok(FromClient::Unknown));
    }
}
