//! [`Problem`]: every error answer of the server, as `application/problem+json` (RFC 9457), each saying what to do.

use std::fmt;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::transport::webrtc::CHANNEL;

/// Seconds after which a refused client may try again.
const RETRY_AFTER: &str = "5";

/// What can be wrong with a request. Not exhaustive: routes to come bring theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// 404: nothing lives there.
    NoSuchPath,
    /// 405: the path does not know the method.
    MethodNotAllowed {
        /// The methods it knows.
        allow: &'static str,
    },
    /// 403: a page of another origin asks.
    CrossOrigin {
        /// Its origin.
        origin: String,
    },
    /// 415: the body is not declared as `application/sdp`.
    NotSdp {
        /// What it is declared as.
        got: String,
    },
    /// 413: the body is too large.
    TooLarge {
        /// The limit, bytes.
        limit: usize,
    },
    /// 408: the body did not arrive in time.
    TooSlow {
        /// The longest time, in which it did not.
        within: Duration,
    },
    /// 400: the body is not an SDP offer.
    MalformedOffer {
        /// What is wrong with it.
        why: String,
    },
    /// 422: a correct offer without anything to hear or to say.
    NoAudio,
    /// 422: its audio is in none of the formats spoken here.
    NoOpus,
    /// 422: it has no way to carry records, holds and cuts.
    NoChannel,
    /// 404: no such session, or it has ended.
    NoSuchSession,
    /// 429: as many sessions as are allowed are at work.
    Full,
    /// 503: the server takes nothing new, because it is about to end.
    Draining,
    /// 503: no connection can be made now, because something here is missing or used up.
    Unavailable {
        /// What.
        why: String,
    },
    /// 500: a fault of ours.
    Internal {
        /// What happened, without personal content.
        why: String,
    },
}

/// A [`Problem`] as it stands in the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// Names the kind of problem, for programs: `urn:antiphon:problem:` and a fixed word.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words; the same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong here, and what to do.
    pub detail: String,
}

impl Problem {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Problem::NoSuchPath | Problem::NoSuchSession => StatusCode::NOT_FOUND,
            Problem::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Problem::CrossOrigin { .. } => StatusCode::FORBIDDEN,
            Problem::NotSdp { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Problem::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Problem::MalformedOffer { .. } => StatusCode::BAD_REQUEST,
            Problem::NoAudio | Problem::NoOpus | Problem::NoChannel => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Full => StatusCode::TOO_MANY_REQUESTS,
            Problem::Draining | Problem::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Problem::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The body.
    pub fn body(&self) -> Body {
        let (word, title, detail) = match self {
            Problem::NoSuchPath => (
                "no-such-path",
                "There is nothing at this address",
                "Open / for the page, POST an offer to /whip, or read /healthz, /metrics and /v1/tails.".to_owned(),
            ),
            Problem::MethodNotAllowed { allow } => {
                ("method-not-allowed", "This address does not know the method", format!("Use one of: {allow}."))
            }
            Problem::CrossOrigin { origin } => (
                "cross-origin",
                "Pages of other origins may not open or end sessions",
                format!(
                    "The request comes from a page of {origin}. Open the page of this server, or list that origin under `origins` in its configuration."
                ),
            ),
            Problem::NotSdp { got } => (
                "not-sdp",
                "The body must be an SDP offer",
                format!("It is declared as {got}. Send the offer with `Content-Type: application/sdp`."),
            ),
            Problem::TooLarge { limit } => (
                "too-large",
                "The offer is too large",
                format!(
                    "An offer has at most {limit} bytes. Offer one audio track and no video, and gather candidates only of the networks you need."
                ),
            ),
            Problem::TooSlow { within } => (
                "too-slow",
                "The offer did not arrive in time",
                format!("It must be here within {} s. Send it in one piece.", within.as_secs()),
            ),
            Problem::MalformedOffer { why } => (
                "malformed-offer",
                "The body is not an SDP offer that can be answered",
                format!("{why}. Send the text of `RTCPeerConnection.createOffer()` unchanged, after setLocalDescription."),
            ),
            Problem::NoAudio => (
                "no-audio",
                "The offer has no audio",
                "Add a microphone track (addTrack) or an audio transceiver with direction sendrecv before createOffer.".to_owned(),
            ),
            Problem::NoOpus => (
                "no-opus",
                "The offer has no Opus",
                "Its audio must list opus/48000/2, which every WebRTC client has. Do not remove it from the offer.".to_owned(),
            ),
            Problem::NoChannel => (
                "no-channel",
                "The offer has no data channel",
                format!("Create one named `{CHANNEL}` before createOffer; it carries records, holds and cuts."),
            ),
            Problem::NoSuchSession => (
                "no-such-session",
                "No such session",
                "It has ended or never was. Use the Location that POST /whip returned, or POST a new offer.".to_owned(),
            ),
            Problem::Full => (
                "too-many-sessions",
                "As many sessions as are allowed are at work",
                format!("Try again in {RETRY_AFTER} s, end a session, or raise `limits.sessions` in the server's configuration."),
            ),
            Problem::Draining => (
                "draining",
                "The server is shutting down",
                format!("It takes no new sessions. Try again in {RETRY_AFTER} s, or use another instance."),
            ),
            Problem::Unavailable { why } => (
                "unavailable",
                "No connection can be made now",
                format!("{why}. Try again in {RETRY_AFTER} s; if it stays so, see `webrtc.bind` and the limit of open files."),
            ),
            Problem::Internal { why } => {
                ("internal", "A fault of the server", format!("{why}. It is in the server's log; please report it."))
            }
        };
        Body { kind: format!("urn:antiphon:problem:{word}"), title: title.to_owned(), status: self.status().as_u16(), detail }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Body { title, detail, .. } = self.body();
        write!(f, "{title}: {detail}")
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Problem::Full | Problem::Draining | Problem::Unavailable { .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
            }
            Problem::NotSdp { .. } => {
                headers.insert("accept-post", HeaderValue::from_static("application/sdp"));
            }
            Problem::MethodNotAllowed { allow } => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allow));
            }
            _ => {}
        }
        response
    }
}
