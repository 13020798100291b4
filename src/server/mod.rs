//! `server`: welcomes. HTTP, signalling, the page, `/metrics`.
//!
//! * Layer 4. Imports everything below. Never `lab`. It decides nothing about turns: it opens and closes sessions and reports.
//! * One [`Server`] per process or per test; it owns an [`Engine`] handle and, when asked, a WebRTC host.
//! * Laws: every error is `application/problem+json` and says what to do ([`problem`]); nothing a person said reaches a log;
//!   a drain ends within its bound; no page of a foreign origin opens a session unless the configuration names it.
//! * Proved by `tests/server.rs` and the tests of each file.

pub mod config;
mod door;
pub mod flags;
pub mod logs;
mod origin;
mod page;
pub mod problem;
pub mod providers;
mod status;
mod whip;

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, options, post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::transport::webrtc;

pub use whip::MAX_OFFER;

use problem::Problem;

/// Longest time for goodbyes when there is no time.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// After the drain: time for answers on their way.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The voice server around an [`Engine`].
///
/// ```no_run
/// # async fn run(engine: antiphon::engine::Engine) -> Result<(), antiphon::server::ServeError> {
/// use antiphon::server::Server;
/// use antiphon::transport::webrtc;
///
/// let stop = async { tokio::signal::ctrl_c().await.expect("signals work") };
/// Server::new(engine)
///     .webrtc(webrtc::Config::default())
///     .run(([127, 0, 0, 1], 7880).into(), stop)
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "a server does nothing until it is run"]
pub struct Server {
    engine: Engine,
    webrtc: Option<webrtc::Config>,
    metrics: bool,
    origins: Vec<String>,
    drain: Duration,
    headers_within: Duration,
    hurry: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Told to stop; the running turns ended, or were cancelled at the drain's bound.
    Drained,
    /// Told to stop at once.
    Hurried,
}

/// Why a server could not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on. Another one may be.
    #[error("cannot listen on {at}: {}", reason(source, *at))]
    Listen {
        /// The address.
        at: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The listening socket broke.
    #[error("the listening socket broke: {source}")]
    Broken {
        /// How.
        source: std::io::Error,
    },
}

fn reason(source: &std::io::Error, at: SocketAddr) -> String {
    match source.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("port {} is already in use; end the program that has it, or choose another with --listen", at.port())
        }
        std::io::ErrorKind::PermissionDenied => format!("port {} needs privileges; choose one above 1023", at.port()),
        std::io::ErrorKind::AddrNotAvailable => format!("{} is not an address of this machine", at.ip()),
        _ => source.to_string(),
    }
}

impl Server {
    /// A server for `engine` with the page, `/healthz`, `/metrics` and `/v1/tails`, and no transport yet.
    pub fn new(engine: Engine) -> Self {
        Server {
            engine,
            webrtc: None,
            metrics: true,
            origins: Vec::new(),
            drain: Duration::from_secs(10),
            headers_within: Duration::from_secs(10),
            hurry: Box::pin(pending()),
        }
    }

    /// Takes browsers over WebRTC, at `POST /whip`.
    pub fn webrtc(mut self, config: webrtc::Config) -> Self {
        self.webrtc = Some(config);
        self
    }

    /// Whether `GET /metrics` answers. Default true.
    pub fn metrics(mut self, on: bool) -> Self {
        self.metrics = on;
        self
    }

    /// Origins of other sites whose pages may open sessions (`https://app.example`). Default none.
    pub fn origins(mut self, origins: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.origins = origins.into_iter().map(Into::into).collect();
        self
    }

    /// Longest time for running turns to end once told to stop. Default 10 s.
    pub fn drain_within(mut self, bound: Duration) -> Self {
        self.drain = bound;
        self
    }

    /// Longest time for a request's head to arrive, and for a kept connection to stay idle. Default 10 s.
    pub fn headers_within(mut self, bound: Duration) -> Self {
        self.headers_within = bound;
        self
    }

    /// Ends the drain at once when `now` resolves (a second signal).
    pub fn hurry(mut self, now: impl Future<Output = ()> + Send + 'static) -> Self {
        self.hurry = Box::pin(now);
        self
    }

    /// Listens on `at` and serves until `shutdown` resolves and the drain is over.
    pub async fn run(self, at: SocketAddr, shutdown: impl Future<Output = ()> + Send) -> Result<Ending, ServeError> {
        self.serve(Self::listen(at).await?, shutdown).await
    }

    /// Opens the listening socket, for [`Server::serve`]. Port 0 takes a free one.
    pub async fn listen(at: SocketAddr) -> Result<TcpListener, ServeError> {
        TcpListener::bind(at).await.map_err(|source| ServeError::Listen { at, source })
    }

    /// Serves on `listener` until `shutdown` resolves and the drain is over: no new sessions, no new turns, the running ones
    /// end by themselves or at the bound. Status routes and `DELETE` answer until the end.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) -> Result<Ending, ServeError> {
        let app = Arc::new(App {
            engine: self.engine,
            host: self.webrtc.map(webrtc::Host::new),
            metrics: self.metrics,
            origins: self.origins,
            draining: AtomicBool::new(false),
            opening: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        let http = door::serve(listener, router(app.clone()), self.headers_within, stop.clone());
        let mut http = tokio::spawn(http);
        // Whatever way this ends (an error, the caller dropping us), the listener must not live on.
        let _end = AbortOnDrop(http.abort_handle());
        tokio::select! {
            ended = &mut http => return Err(broken(ended)),
            () = shutdown => {}
        }
        app.draining.store(true, Ordering::SeqCst);
        tracing::info!(sessions = app.engine.sessions(), within_ms = self.drain.as_millis() as u64, "draining");
        let ending = tokio::select! {
            biased;
            () = self.hurry => Ending::Hurried,
            _ = app.engine.drain(self.drain) => Ending::Drained,
        };
        if ending == Ending::Hurried {
            // Clients are told and children are stopped, and nothing is waited for.
            #[allow(clippy::disallowed_methods, reason = "a hurry is bounded, whatever the sessions do")]
            let _ = tokio::time::timeout(LAST_WORDS, app.engine.drain(Duration::ZERO)).await;
        }
        stop.cancel();
        if ending == Ending::Drained {
            #[allow(clippy::disallowed_methods, reason = "a client that never ends its request belongs to no machine's timers")]
            let _ = tokio::time::timeout(LAST_ANSWERS, &mut http).await;
        }
        tracing::info!(?ending, "ended");
        Ok(ending)
    }
}

fn broken(ended: Result<(), tokio::task::JoinError>) -> ServeError {
    let source = match ended {
        Ok(()) => std::io::Error::other("it was closed"),
        Err(panicked) => std::io::Error::other(panicked),
    };
    ServeError::Broken { source }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What every route sees.
struct App {
    engine: Engine,
    host: Option<webrtc::Host>,
    metrics: bool,
    origins: Vec<String>,
    draining: AtomicBool,
    /// Offers being answered now.
    opening: AtomicUsize,
}

impl App {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

fn router(app: Arc<App>) -> Router {
    let signalling = Router::new()
        .route("/whip", post(whip::offer).merge(options(whip::options)).fallback(|| only("POST, OPTIONS")))
        .route(
            "/whip/{session}",
            axum::routing::delete(whip::end).merge(options(whip::options)).fallback(|| only("DELETE, OPTIONS")),
        )
        .route_layer(middleware::from_fn_with_state(app.clone(), whip::guard));
    Router::new()
        .route("/", get(page::index).fallback(|| only("GET, HEAD")))
        .route("/assets/{name}", get(page::asset).fallback(|| only("GET, HEAD")))
        .route("/healthz", get(status::health).fallback(|| only("GET, HEAD")))
        .route("/metrics", get(status::metrics).fallback(|| only("GET, HEAD")))
        .route("/v1/tails", get(status::tails).fallback(|| only("GET, HEAD")))
        .merge(signalling)
        .fallback(page::beside)
        .with_state(app)
}

async fn only(allow: &'static str) -> Problem {
    Problem::MethodNotAllowed { allow }
}
