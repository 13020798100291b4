//! Signalling, WHIP-style (RFC 9725): `POST /whip` with an SDP offer opens a session, `DELETE` of its `Location` ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::App;
use super::origin::{self, Origin};
use super::problem::Problem;
use crate::engine::OpenError;
use crate::event::CancelCause;
use crate::id::SessionId;
use crate::observe::trace::short;
use crate::time::RuntimeClock;
use crate::transport::webrtc::OfferError;

pub use crate::transport::webrtc::MAX_OFFER;

/// Longest time for an offer's body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// `POST /whip`.
pub(super) async fn offer(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    if app.is_draining() {
        return Err(Problem::Draining);
    }
    let Some(host) = &app.host else { return Err(Problem::NoSuchPath) };
    check_kind(&headers)?;
    let offer = read_offer(&headers, body).await?;
    // Held while the answer is made, so that a rush of offers cannot prepare more connections than there may be sessions.
    let _place = Place::take(&app)?;
    let id = SessionId::new();
    let clock = RuntimeClock::start();
    let accepted = host.accept(&offer, id, clock).await.map_err(refused)?;
    let closed = accepted.link.closed.clone();
    app.engine.open(id, clock, accepted.link).map_err(|error| {
        closed.cancel();
        not_opened(&error)
    })?;
    tracing::info!(session = short(id), sessions = app.engine.sessions(), "session opened");
    let location = HeaderValue::from_str(&format!("/whip/{id}")).expect("a path of plain characters");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/sdp")),
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((StatusCode::CREATED, headers, accepted.answer).into_response())
}

/// `DELETE /whip/{session}`.
pub(super) async fn end(State(app): State<Arc<App>>, id: Result<Path<String>, PathRejection>) -> Result<StatusCode, Problem> {
    let Ok(Path(id)) = id else { return Err(Problem::NoSuchSession) };
    let id: SessionId = id.parse().map_err(|_| Problem::NoSuchSession)?;
    let session = app.engine.session(id).ok_or(Problem::NoSuchSession)?;
    session.close(CancelCause::User).await;
    tracing::info!(session = short(id), "session ended by its client");
    Ok(StatusCode::OK)
}

/// `OPTIONS /whip` and of a session: what may be sent here.
pub(super) async fn options() -> Response {
    let headers = [
        (header::ALLOW, HeaderValue::from_static("POST, DELETE, OPTIONS")),
        (header::HeaderName::from_static("accept-post"), HeaderValue::from_static("application/sdp")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Refuses pages of origins that are not named in the configuration, and tells browsers which are.
pub(super) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let preflight = request.method() == Method::OPTIONS;
    match origin::judge(request.headers(), &app.origins) {
        Err(problem) => problem.into_response(),
        Ok(Origin::Same) => next.run(request).await,
        Ok(Origin::Allowed(origin)) => {
            let mut response = next.run(request).await;
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("location, retry-after"));
            headers.append(header::VARY, HeaderValue::from_static("origin"));
            if preflight {
                headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, DELETE"));
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("content-type"));
                headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
            }
            response
        }
    }
}

fn check_kind(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let essence = kind.as_deref().and_then(|kind| kind.split(';').next()).map(str::trim);
    match essence {
        Some(essence) if essence.eq_ignore_ascii_case("application/sdp") => Ok(()),
        Some(other) => Err(Problem::NotSdp { got: other.chars().take(100).collect() }),
        None => Err(Problem::NotSdp { got: "nothing".to_owned() }),
    }
}

async fn read_offer(headers: &HeaderMap, body: Body) -> Result<String, Problem> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_OFFER as u64) {
        return Err(Problem::TooLarge { limit: MAX_OFFER });
    }
    #[allow(clippy::disallowed_methods, reason = "a client that sends its body byte by byte belongs to no machine's timers")]
    let read = tokio::time::timeout(BODY_WITHIN, collect(body)).await;
    let bytes = read.map_err(|_| Problem::TooSlow { within: BODY_WITHIN })??;
    let text = String::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8 text"))?;
    if text.trim().is_empty() { Err(malformed("it is empty")) } else { Ok(text) }
}

/// The body, as long as it stays within [`MAX_OFFER`].
async fn collect(body: Body) -> Result<Vec<u8>, Problem> {
    let mut pieces = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| malformed("it broke off before its end"))?;
        if bytes.len() + piece.len() > MAX_OFFER {
            return Err(Problem::TooLarge { limit: MAX_OFFER });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

fn malformed(why: impl Into<String>) -> Problem {
    Problem::MalformedOffer { why: why.into() }
}

fn refused(error: OfferError) -> Problem {
    match error {
        OfferError::Malformed { detail } => malformed(detail),
        OfferError::NoAudio => Problem::NoAudio,
        OfferError::NoOpus => Problem::NoOpus,
        OfferError::NoChannel => Problem::NoChannel,
        OfferError::Unavailable { detail } => {
            tracing::error!(detail, "an offer could not be answered");
            Problem::Unavailable { why: detail }
        }
    }
}

fn not_opened(error: &OpenError) -> Problem {
    match error {
        OpenError::Full { .. } => Problem::Full,
        OpenError::Draining => Problem::Draining,
        _ => {
            tracing::error!(%error, "a session could not be opened");
            Problem::Internal { why: error.to_string() }
        }
    }
}

/// A place among the sessions allowed, while its offer is being answered.
struct Place<'a> {
    opening: &'a AtomicUsize,
}

impl<'a> Place<'a> {
    fn take(app: &'a App) -> Result<Self, Problem> {
        let before = app.opening.fetch_add(1, Ordering::SeqCst);
        let place = Place { opening: &app.opening };
        if app.engine.sessions() + before < app.engine.limits().sessions { Ok(place) } else { Err(Problem::Full) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.opening.fetch_sub(1, Ordering::SeqCst);
    }
}
