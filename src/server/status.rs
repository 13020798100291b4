//! What the server says of itself: `/healthz`, `/metrics`, `/v1/tails`. Nothing here is about a person.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::App;
use super::problem::Problem;
use crate::observe::export::{self, Handed, HandedKind};
use crate::observe::{Histogram, TailPart};

/// `GET /healthz`: 200 while sessions are taken, 503 while draining.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let draining = app.is_draining();
    let code = if draining { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let body = json!({
        "status": if draining { "draining" } else { "ok" },
        "version": env!("CARGO_PKG_VERSION"),
        "sessions": app.engine.sessions(),
        "sessions_limit": app.engine.limits().sessions,
    });
    (code, [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(body)).into_response()
}

/// `GET /metrics`: Prometheus text.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    if !app.metrics {
        return Problem::NoSuchPath.into_response();
    }
    let sessions = Handed {
        name: "antiphon_sessions".into(),
        help: "Sessions at work".into(),
        kind: HandedKind::Gauge,
        value: app.engine.sessions() as f64,
    };
    let counters = serde_json::to_value(app.engine.counters()).expect("counters are plain numbers");
    let handed = std::iter::once(sessions).chain(counters.as_object().into_iter().flat_map(handed));
    let text = export::prometheus(&app.engine.metrics(), handed);
    ([(header::CONTENT_TYPE, export::CONTENT_TYPE)], text).into_response()
}

/// The engine's counters under their names in the queue table.
fn handed(counters: &Map<String, Value>) -> impl Iterator<Item = Handed> {
    counters.iter().filter_map(|(name, value)| {
        let rises = name.ends_with("_total") || name.ends_with("_seconds");
        Some(Handed {
            name: format!("antiphon_{name}"),
            help: "See the queue table of ARCHITECTURE.md".into(),
            kind: if rises { HandedKind::Counter } else { HandedKind::Gauge },
            value: value.as_f64()?,
        })
    })
}

/// `GET /v1/tails`: the newest audible tails whole, and the percentiles of all.
pub(super) async fn tails(State(app): State<Arc<App>>) -> Response {
    let metrics = app.engine.metrics();
    let mut stages = Map::new();
    stages.insert("to_silence".into(), summary(metrics.audible_tail()));
    for part in TailPart::ALL {
        stages.insert(part.label().into(), summary(metrics.tail(part)));
    }
    let body = json!({
        "unit": "microseconds",
        "stages": stages,
        "barge_ins": metrics.barge_ins(),
        "false_interruptions": metrics.false_interruptions(),
        "measured": metrics.tails().measured(),
        "tails": metrics.tails().recent().collect::<Vec<_>>(),
    });
    ([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(body)).into_response()
}

fn summary(of: &Histogram) -> Value {
    let us = |value: Option<Duration>| value.map(|d| d.as_micros() as u64);
    json!({ "count": of.count(), "p50": us(of.p(50.0)), "p95": us(of.p(95.0)), "p99": us(of.p(99.0)), "max": us(of.max()) })
}
