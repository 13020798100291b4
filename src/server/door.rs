//! The door: takes HTTP connections in, and shows out those who only stand in it.
//!
//! A connection that does not say what it wants, or stays idle, is closed after a while; there are at most [`CONNECTIONS`] at once,
//! and further ones wait in the listener's own queue. Otherwise slow clients would take the descriptors that sessions need.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// HTTP connections at once. A conversation needs one for a moment, at its beginning and its end.
const CONNECTIONS: usize = 512;
/// Pause after the system refused a connection, so that the reason can pass.
const BREATH: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `stop`, and then until the requests being answered are.
pub(super) async fn serve(listener: TcpListener, router: Router, headers_within: Duration, stop: CancellationToken) {
    // Telling HTTP versions apart would wait for the first bytes without a bound.
    let mut http = Builder::new(TokioExecutor::new()).http1_only();
    http.http1().timer(TokioTimer::new()).header_read_timeout(headers_within);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let guests = GracefulShutdown::new();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone())).into_owned();
                let served = guests.watch(served);
                tokio::spawn(async move {
                    // How a client breaks off is its own affair.
                    let _ = served.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                breathe().await;
            }
        }
    }
    drop(listener);
    guests.shutdown().await;
}

#[allow(clippy::disallowed_methods, reason = "a listener without descriptors has no event to wait for")]
async fn breathe() {
    tokio::time::sleep(BREATH).await;
}
