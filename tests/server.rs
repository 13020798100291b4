//! The server from outside: every problem and its advice, signalling, the page, drain, metrics, and what never reaches a log.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon::engine::{Engine, Limits, Session};
use antiphon::event::{CancelCause, Terminal};
use antiphon::id::SessionId;
use antiphon::provider::llm::{LlmScript, ScriptedLlm};
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::server::config::LogConfig;
use antiphon::server::problem::Body;
use antiphon::server::{Ending, MAX_OFFER, ServeError, Server, logs};
use antiphon::time::RuntimeClock;
use antiphon::transport::net::Net;
use antiphon::transport::{Capability, memory, webrtc};
use antiphon::turn::SayAnswer;
use reqwest::{Client, Method, Response, StatusCode, header};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What a browser offers: a microphone and a data channel.
const OFFER: &str = include_str!("support/offer.sdp");
const SDP: &str = "application/sdp";

/// A server at work in this process, with scripted providers.
struct Running {
    engine: Engine,
    http: Client,
    base: String,
    stop: CancellationToken,
    hurry: CancellationToken,
    ended: JoinHandle<Result<Ending, ServeError>>,
}

impl Running {
    async fn start(llm: ScriptedLlm, change: impl FnOnce(Server) -> Server) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let engine = Engine::builder(ScriptedStt::hearing("hello"), llm, ScriptedTts::new([TtsScript::new()]))
            .limits(Limits { sessions: 2, ..Limits::default() })
            .build();
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let server = Server::new(engine.clone()).webrtc(webrtc::Config::default()).hurry(hurry.clone().cancelled_owned());
        let listener = Server::listen(([127, 0, 0, 1], 0).into()).await.expect("loopback has a free port");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let ended = tokio::spawn(change(server).serve(listener, stop.clone().cancelled_owned()));
        Running { engine, http: Client::new(), base, stop, hurry, ended }
    }

    async fn plain() -> Self {
        Self::start(ScriptedLlm::saying("All right."), |server| server).await
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<reqwest::Body>) -> Response {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.expect("the server answers")
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path, &[], "").await
    }

    async fn offer(&self) -> Response {
        self.ask(Method::POST, "/whip", &[("content-type", SDP)], OFFER).await
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        self.get(path).await.json().await.expect("it is JSON")
    }

    /// Opens a session without a browser. The far end must be kept for as long as it shall live.
    fn session(&self) -> (Session, memory::FarEnd) {
        // Nobody turns the far end's beats here, so it must not be one that is waited for.
        let deaf = Capability { reports_position: false, ..memory::page() };
        let (link, far) = memory::pair(Net::perfect(), deaf);
        let session = self.engine.open(SessionId::new(), RuntimeClock::start(), link).expect("there is room");
        (session, far)
    }
}

/// The body of a problem, after checking what all problems have in common.
async fn problem(response: Response, status: u16, word: &str) -> Body {
    assert_eq!(response.status().as_u16(), status, "{word}");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{word}");
    let body: Body = response.json().await.expect("a problem is JSON");
    assert_eq!((body.status, body.kind.as_str()), (status, format!("urn:antiphon:problem:{word}").as_str()));
    assert!(!body.title.is_empty() && body.detail.len() > 20, "{body:?} says what to do");
    body
}

/// Method, path, headers and body; the status, the problem's word, and what its advice mentions.
type Case<'a> = (Method, &'a str, Vec<(&'a str, &'a str)>, Vec<u8>, u16, &'a str, &'a str);

#[tokio::test]
async fn every_refusal_is_a_problem_that_says_what_to_do() {
    let server = Running::plain().await;
    let sdp = ("content-type", SDP);
    let no_audio = OFFER.split("m=audio").next().unwrap_or_default().replace("BUNDLE 0 1", "BUNDLE 1")
        + "m=application"
        + OFFER.split("m=application").nth(1).expect("it offers a data channel");
    let no_opus = OFFER.replace("opus/48000/2", "PCMU/8000").into_bytes();
    let no_channel = OFFER.split("m=application").next().unwrap_or_default().replace("BUNDLE 0 1", "BUNDLE 0").into_bytes();
    let cases: Vec<Case<'_>> = vec![
        (Method::POST, "/whip", vec![], OFFER.into(), 415, "not-sdp", "application/sdp"),
        (Method::POST, "/whip", vec![("content-type", "application/json")], b"{}".to_vec(), 415, "not-sdp", "application/json"),
        (Method::POST, "/whip", vec![sdp], b"".to_vec(), 400, "malformed-offer", "empty"),
        (Method::POST, "/whip", vec![sdp], b"hello".to_vec(), 400, "malformed-offer", "createOffer"),
        (Method::POST, "/whip", vec![sdp], vec![0xff, 0xfe, 0x00], 400, "malformed-offer", "UTF-8"),
        (Method::POST, "/whip", vec![sdp], b"v=0\r\n".to_vec(), 400, "malformed-offer", "createOffer"),
        (Method::POST, "/whip", vec![sdp], no_audio.into_bytes(), 422, "no-audio", "microphone"),
        (Method::POST, "/whip", vec![sdp], no_opus, 422, "no-opus", "opus/48000/2"),
        (Method::POST, "/whip", vec![sdp], no_channel, 422, "no-channel", "antiphon"),
        (Method::POST, "/whip", vec![sdp], vec![b'a'; MAX_OFFER + 1], 413, "too-large", "65536"),
        (Method::POST, "/whip", vec![sdp, ("origin", "http://evil.example")], OFFER.into(), 403, "cross-origin", "evil.example"),
        (Method::OPTIONS, "/whip", vec![("origin", "http://evil.example")], vec![], 403, "cross-origin", "origins"),
        (Method::PATCH, "/whip/00", vec![sdp], vec![], 405, "method-not-allowed", "DELETE"),
        (Method::GET, "/whip", vec![], vec![], 405, "method-not-allowed", "POST"),
        (Method::PUT, "/metrics", vec![], vec![], 405, "method-not-allowed", "GET"),
        (Method::DELETE, "/whip/nobody", vec![], vec![], 404, "no-such-session", "Location"),
        (Method::DELETE, "/whip/00000000000000000000000000000001", vec![], vec![], 404, "no-such-session", "Location"),
        (Method::GET, "/nothing/here", vec![], vec![], 404, "no-such-path", "/whip"),
        (Method::GET, "/assets/..%2fCargo.toml", vec![], vec![], 404, "no-such-path", "/whip"),
    ];
    for (method, path, headers, body, status, word, advice) in cases {
        let found = problem(server.ask(method, path, &headers, body).await, status, word).await;
        assert!(found.detail.contains(advice), "{found:?} mentions {advice}");
    }
    assert_eq!(server.engine.sessions(), 0, "a refused offer leaves no session");
}

#[tokio::test]
async fn an_offer_in_pieces_is_stopped_at_the_limit_whatever_it_declares() {
    let server = Running::plain().await;
    let pieces = std::iter::repeat_with(|| Ok::<_, std::io::Error>(vec![b'a'; 10_000])).take(10);
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    problem(server.ask(Method::POST, "/whip", &[("content-type", SDP)], body).await, 413, "too-large").await;
}

#[tokio::test]
async fn a_session_is_opened_and_ended_over_http() {
    let server = Running::plain().await;
    let answer = server.offer().await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(answer.headers()[header::CONTENT_TYPE], SDP);
    let location = answer.headers()[header::LOCATION].to_str().expect("a path").to_owned();
    let id: SessionId = location.strip_prefix("/whip/").expect("below /whip").parse().expect("a session's id");
    let sdp = answer.text().await.expect("an answer");
    assert!(sdp.starts_with("v=0") && sdp.contains("opus/48000/2"), "{sdp}");
    assert_eq!(server.json("/healthz").await["sessions"], 1);
    let session = server.engine.session(id).expect("the session is at work");

    assert_eq!(server.ask(Method::DELETE, &location, &[], "").await.status(), StatusCode::OK);
    session.closed().await;
    problem(server.ask(Method::DELETE, &location, &[], "").await, 404, "no-such-session").await;
    assert_eq!(server.engine.sessions(), 0);
}

#[tokio::test]
async fn with_all_sessions_taken_the_next_is_told_to_come_back() {
    let server = Running::plain().await;
    let _kept = (server.session(), server.session());
    let answer = server.offer().await;
    assert_eq!(answer.headers()[header::RETRY_AFTER], "5");
    problem(answer, 429, "too-many-sessions").await;
}

#[tokio::test]
async fn only_origins_of_the_configuration_may_call_from_elsewhere() {
    let server = Running::start(ScriptedLlm::saying("Hm."), |server| server.origins(["https://app.example"])).await;
    let app = ("origin", "https://app.example");
    let preflight = server.ask(Method::OPTIONS, "/whip", &[app, ("access-control-request-method", "POST")], "").await;
    assert_eq!(preflight.status(), StatusCode::NO_CONTENT);
    assert_eq!(preflight.headers()["access-control-allow-origin"], "https://app.example");
    assert_eq!(preflight.headers()["access-control-allow-headers"], "content-type");
    let opened = server.ask(Method::POST, "/whip", &[app, ("content-type", SDP)], OFFER).await;
    assert_eq!(opened.status(), StatusCode::CREATED);
    assert!(opened.headers()["access-control-expose-headers"].to_str().is_ok_and(|names| names.contains("location")));
    let own = server.base.clone();
    let from_our_page = server.ask(Method::OPTIONS, "/whip", &[("origin", &own)], "").await;
    assert_eq!(from_our_page.status(), StatusCode::NO_CONTENT);
    assert!(!from_our_page.headers().contains_key("access-control-allow-origin"));
    assert_eq!(from_our_page.headers()["accept-post"], SDP);
}

#[tokio::test]
async fn the_page_comes_whole_and_may_fetch_only_from_here() {
    let server = Running::plain().await;
    let page = server.get("/").await;
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(page.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
    let policy = page.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text").to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let tag = page.headers()[header::ETAG].to_str().expect("text").to_owned();
    let text = page.text().await.expect("text");
    let parts: Vec<&str> =
        text.split('"').filter(|quoted| [".js", ".css", ".svg"].iter().any(|end| quoted.ends_with(end))).collect();
    assert!(parts.len() >= 3, "the page has a script, a style and an icon: {parts:?}");
    for part in parts {
        let response = server.get(&format!("/{}", part.trim_start_matches("./").trim_start_matches('/'))).await;
        assert_eq!(response.status(), StatusCode::OK, "{part}");
        let kind = response.headers()[header::CONTENT_TYPE].to_str().expect("text");
        assert!(kind.starts_with(match part.rsplit('.').next() {
            Some("js") => "text/javascript",
            Some("css") => "text/css",
            _ => "image/svg+xml",
        }));
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    }
    let again = server.ask(Method::GET, "/", &[("if-none-match", &tag)], "").await;
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_drain_takes_nothing_new_and_a_second_word_ends_it_at_once() {
    let endless = LlmScript::says("and so on").paced(Duration::ZERO, Duration::from_millis(20)).forever();
    let server = Running::start(ScriptedLlm::new([endless]), |server| server.drain_within(Duration::from_secs(3_600))).await;
    let (session, _far) = server.session();
    let said = session.say("tell me everything").await;
    assert!(matches!(said, SayAnswer::Started(_)), "{said:?}");

    server.stop.cancel();
    // The order to stop is taken in the server's own task; health tells when.
    while server.json("/healthz").await["status"] != "draining" {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.get("/healthz").await.status(), StatusCode::SERVICE_UNAVAILABLE, "a load balancer looks elsewhere");
    let answer = server.offer().await;
    assert_eq!(answer.headers()[header::RETRY_AFTER], "5");
    problem(answer, 503, "draining").await;
    assert!(!server.ended.is_finished(), "a turn is running, and an hour is allowed");

    server.hurry.cancel();
    assert_eq!(server.ended.await.expect("no panic").expect("served"), Ending::Hurried);
    assert_eq!(server.engine.sessions(), 0, "in a hurry too, sessions end and their clients are told");
}

#[tokio::test]
async fn a_client_that_does_not_say_what_it_wants_is_shown_out() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Running::start(ScriptedLlm::saying("unused"), |s| s.headers_within(Duration::from_millis(50))).await;
    let at = server.base.strip_prefix("http://").expect("an address");
    for said in ["", "GET / HTTP/1.1\r\nHost: here\r\n"] {
        let mut client = tokio::net::TcpStream::connect(at).await.expect("the door is open");
        client.write_all(said.as_bytes()).await.expect("it takes the beginning");
        // Without the bound this would wait for ever.
        client.read_to_end(&mut Vec::new()).await.expect("the server closes in order");
    }
    assert_eq!(server.get("/healthz").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_path_that_is_no_text_has_its_problem_too() {
    let server = Running::plain().await;
    for path in ["/whip/%ff", "/assets/%ff"] {
        let method = if path.starts_with("/whip") { Method::DELETE } else { Method::GET };
        let answer = server.http.request(method, format!("{}{path}", server.base)).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/problem+json", "{path}");
    }
}

#[tokio::test]
async fn a_drain_cancels_what_does_not_end_within_its_bound() {
    let endless = LlmScript::says("and so on").paced(Duration::ZERO, Duration::from_millis(20)).forever();
    let server = Running::start(ScriptedLlm::new([endless]), |server| server.drain_within(Duration::from_millis(50))).await;
    let (session, _far) = server.session();
    let SayAnswer::Started(turn) = session.say("tell me everything").await else { panic!("the turn is taken") };
    server.stop.cancel();
    assert_eq!(session.ended(turn).await, Some(Terminal::Cancelled { cause: CancelCause::Shutdown }));
    assert_eq!(server.ended.await.expect("no panic").expect("served"), Ending::Drained);
    assert!(server.http.get(&server.base).send().await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_idle_server_ends_at_once() {
    let server = Running::plain().await;
    server.stop.cancel();
    assert_eq!(server.ended.await.expect("no panic").expect("served"), Ending::Drained);
}

#[tokio::test]
async fn a_port_in_use_is_said_so() {
    let taken = Server::listen(([127, 0, 0, 1], 0).into()).await.expect("loopback has a free port");
    let at = taken.local_addr().expect("it is bound");
    let error = Server::listen(at).await.expect_err("it is taken").to_string();
    assert!(error.contains(&at.port().to_string()) && error.contains("already in use") && error.contains("--listen"), "{error}");
}

/// Metric lines as (name with labels, value).
fn samples(text: &str) -> Vec<(&str, f64)> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?} is a name and a value"));
            (name, value.parse().unwrap_or_else(|_| panic!("{line:?} ends in a number")))
        })
        .collect()
}

#[tokio::test]
async fn metrics_are_prometheus_text_with_every_promised_name() {
    let server = Running::plain().await;
    let (session, _far) = server.session();
    let SayAnswer::Started(turn) = session.say("hello").await else { panic!("the turn is taken") };
    session.ended(turn).await;

    let response = server.get("/metrics").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.expect("text");
    let samples = samples(&text);
    let value = |name: &str| {
        let found = samples.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("{name} is missing from\n{text}")).1
    };
    assert_eq!(value("antiphon_sessions"), 1.0);
    assert_eq!(value(r#"antiphon_audible_tail_seconds_count{stage="to_silence"}"#), 0.0);
    assert_eq!(value("antiphon_turn_ttft_seconds_count"), 1.0);
    assert_eq!(value("antiphon_turn_e2e_seconds_count"), 1.0);
    assert_eq!(
        ["completed", "cancelled", "failed"]
            .map(|t| value(&format!("antiphon_turns_total{{terminal=\"{t}\"}}")))
            .iter()
            .sum::<f64>(),
        1.0
    );
    for name in [
        "antiphon_turn_ttfa_seconds_count",
        "antiphon_cancel_propagation_seconds_count",
        r#"antiphon_late_events_total{outcome="dropped"}"#,
        "antiphon_duplicate_cancel_effects_total",
        "antiphon_terminal_conflicts_total",
        "antiphon_playback_underrun_total",
        "antiphon_false_interruptions_total",
        "antiphon_barge_ins_total",
        "antiphon_stt_gap_total",
        "antiphon_playback_full_total",
        "antiphon_link_lagged_total",
    ] {
        value(name);
    }
    for (name, _) in &samples {
        assert_eq!(samples.iter().filter(|(n, _)| n == name).count(), 1, "{name} stands once");
    }
    let tails = server.json("/v1/tails").await;
    assert_eq!((&tails["tails"], &tails["stages"]["to_silence"]["count"]), (&serde_json::json!([]), &serde_json::json!(0)));
}

#[tokio::test]
async fn metrics_can_be_switched_off() {
    let server = Running::start(ScriptedLlm::saying("Hm."), |server| server.metrics(false)).await;
    problem(server.get("/metrics").await, 404, "no-such-path").await;
}

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while logging").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_was_said_and_answered_reaches_no_log() {
    let lines = Lines::default();
    let everything = LogConfig { filter: "trace".into(), ..LogConfig::default() };
    let writer = lines.clone();
    let subscriber = logs::subscriber(&everything, move || writer.clone()).expect("a good filter");
    // One thread runs everything but the pump here, so that its subscriber sees everything.
    let _here = tracing::subscriber::set_default(subscriber);

    let server = Running::start(ScriptedLlm::saying("Your balance is fortytwo."), |server| server).await;
    let location = server.offer().await.headers()[header::LOCATION].to_str().expect("a path").to_owned();
    let id: SessionId = location.trim_start_matches("/whip/").parse().expect("a session's id");
    let session = server.engine.session(id).expect("the session is at work");
    let SayAnswer::Started(turn) = session.say("my card is seventythree").await else { panic!("the turn is taken") };
    session.ended(turn).await;
    server.ask(Method::DELETE, &location, &[], "").await;
    session.closed().await;
    server.stop.cancel();
    server.ended.await.expect("no panic").expect("served");

    let log = String::from_utf8(lines.0.lock().expect("no panic while logging").clone()).expect("text");
    assert!(log.contains("turn ended") && log.contains("session opened"), "the log tells what happened:\n{log}");
    assert!(log.contains(&id.to_string()[..8]), "and in which session");
    for secret in ["seventythree", "fortytwo", "card", "balance"] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    let whole = id.to_string();
    assert!(
        !log.contains(&whole) || log.lines().filter(|l| l.contains(&whole)).all(|l| l.contains("TRACE") || l.contains("DEBUG"))
    );
}
