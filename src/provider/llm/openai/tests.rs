use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::event::{CallEnding, Cancellability, Declaration};
use crate::id::CallId;
use crate::provider::{Message, ToolInfo};
use crate::time::{RuntimeClock, Stamp};

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

fn frame(text: &str) -> String {
    format!("data: {}\r\n\r\n", json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] }))
}

const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// What a server that answers one request does behind its last part.
#[derive(PartialEq)]
enum Then {
    Close,
    /// Leaves the connection open and tells when the other side has closed it.
    Hang,
}

/// A server for one request: gives its address, the request it got, and the moment the client left.
async fn server(parts: Vec<Vec<u8>>, then: Then) -> (String, oneshot::Receiver<String>, oneshot::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}/v1/", listener.local_addr().expect("bound"));
    let (got, request) = oneshot::channel();
    let (left, gone) = oneshot::channel();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        socket.set_nodelay(true).expect("nodelay");
        got.send(read_request(&mut socket).await).expect("the test waits");
        for part in parts {
            if socket.write_all(&part).await.is_err() {
                break;
            }
            // Each part is a packet of its own, as far as this machine allows.
            socket.flush().await.expect("flush");
            tokio::task::yield_now().await;
        }
        if then == Then::Hang {
            while socket.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
            let _ = left.send(());
        }
    });
    (address, request, gone)
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        socket.read_buf(&mut bytes).await.expect("a request");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            if body.len() >= length.expect("a length").parse::<usize>().expect("a number") {
                return text;
            }
        }
    }
}

async fn ask(address: &str, stop: CancellationToken, stop_after: Option<usize>) -> (Vec<String>, Result<(), ProviderError>) {
    let conversation = vec![
        Message::system("Be brief."),
        Message::Assistant { text: "Once upon ".into(), interrupted: true },
        Message::user("Grüße, go on"),
    ];
    let (got, end) = prompt(address, Prompt::new(conversation), stop, stop_after).await;
    (got.iter().map(|piece| piece.words().to_owned()).collect(), end)
}

async fn prompt(
    address: &str,
    prompt: Prompt,
    stop: CancellationToken,
    stop_after: Option<usize>,
) -> (Vec<Piece>, Result<(), ProviderError>) {
    let config = OpenAiConfig { api_key: Some("sk-secret".into()), temperature: Some(0.5), ..OpenAiConfig::new(address, "tiny") };
    let llm = OpenAiChat::new(config).expect("an address");
    let (out, mut from) = Sink::new(8);
    let cx = TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, stop.clone());
    let task = tokio::spawn(async move { llm.reply(prompt, out, cx).await });
    let mut got = Vec::new();
    while let Some(piece) = from.recv().await {
        got.push(piece);
        if Some(got.len()) == stop_after {
            stop.cancel();
        }
    }
    (got, task.await.expect("no panic"))
}

async fn answer(parts: Vec<Vec<u8>>, then: Then) -> (Vec<String>, Result<(), ProviderError>) {
    let (address, _request, _gone) = server(parts, then).await;
    ask(&address, CancellationToken::new(), None).await
}

async fn status(line: &str, body: &str) -> ProviderError {
    let text = format!("HTTP/1.1 {line}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    answer(vec![text.into_bytes()], Then::Close).await.1.expect_err("no success")
}

#[tokio::test]
async fn pieces_come_in_order_however_the_bytes_are_split_and_the_request_is_well_formed() {
    let stream = format!("{HEAD}: keep-alive\n\n{}{}{}{FINISH}data: [DONE]\n\n", frame("Schö"), frame("ne "), frame("Grüße 🙂"));
    // Byte by byte: every character and every frame is torn.
    let parts = stream.bytes().map(|b| vec![b]).collect();
    let (address, request, _) = server(parts, Then::Close).await;
    let (got, end) = ask(&address, CancellationToken::new(), None).await;
    assert_eq!(got, ["Schö", "ne ", "Grüße 🙂"]);
    end.expect("complete");
    let request = request.await.expect("it came");
    let (head, body) = request.split_once("\r\n\r\n").expect("head and body");
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1") && head.contains("Bearer sk-secret"));
    let want = json!({ "model": "tiny", "stream": true, "temperature": 0.5, "messages": [
        { "role": "system", "content": "Be brief." },
        { "role": "assistant", "content": "Once upon —" },
        { "role": "user", "content": "Grüße, go on" },
    ]});
    assert_eq!(serde_json::from_str::<Value>(body).expect("JSON"), want);
}

#[tokio::test]
async fn tools_are_offered_calls_come_back_and_their_results_are_shown() {
    let event = |delta: Value| format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta }] }));
    let stream = [
        HEAD.to_owned(),
        frame("Let me look."),
        event(json!({ "tool_calls": [{ "index": 0, "id": "x", "function": { "name": "clock", "arguments": "{\"town\":" } }] })),
        event(json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "\"Köln\"}" } }] })),
        event(json!({ "tool_calls": [{ "index": 1, "id": "y", "function": { "name": "book", "arguments": "" } }] })),
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n".to_owned(),
    ];
    let parts = stream.concat().bytes().map(|b| vec![b]).collect();
    let (address, request, _) = server(parts, Then::Close).await;
    let parameters = json!({ "type": "object", "properties": { "town": { "type": "string" } } });
    let declaration = Declaration::new("clock", Cancellability::ReadOnly);
    let clock = ToolInfo { declaration, description: "Tells the time.".into(), parameters: parameters.clone() };
    let conversation = vec![
        Message::user("how late is it"),
        Message::Call { call: CallId(3), tool: "clock".into(), arguments: "{}".into() },
        Message::Result { call: CallId(3), ending: Some(CallEnding::Done), text: "noon".into() },
        Message::user("and now"),
    ];
    let asked = Prompt { conversation, tools: Arc::new([clock]) };
    let (got, end) = self::prompt(&address, asked, CancellationToken::new(), None).await;
    end.expect("complete");
    let call = |tool: &str, arguments: &str| Piece::Call { tool: tool.into(), arguments: arguments.into() };
    assert_eq!(got, ["Let me look.".into(), call("clock", r#"{"town":"Köln"}"#), call("book", "{}")]);
    let request = request.await.expect("it came");
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
    let function = json!({ "name": "clock", "description": "Tells the time.", "parameters": parameters });
    assert_eq!(body["tools"], json!([{ "type": "function", "function": function }]));
    let calls = json!([{ "id": "call_3", "type": "function", "function": { "name": "clock", "arguments": "{}" } }]);
    assert_eq!(body["messages"][1], json!({ "role": "assistant", "content": null, "tool_calls": calls }));
    assert_eq!(body["messages"][2], json!({ "role": "tool", "tool_call_id": "call_3", "content": "noon" }));
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_not_made() {
    let torn =
        json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 0, "function": { "name": "book", "arguments": "{}" } }] } }] });
    let stream = format!("{HEAD}data: {torn}\n\n");
    let (address, _request, _) = server(vec![stream.into_bytes()], Then::Close).await;
    let (got, end) = prompt(&address, Prompt::new(vec![Message::user("book")]), CancellationToken::new(), None).await;
    assert!(got.is_empty() && end.expect_err("no end came").retry() == Retry::Now, "nobody knows whether its arguments are all");
}

#[tokio::test]
async fn an_answer_is_whole_with_its_finish_even_if_the_server_forgets_the_rest() {
    for tail in ["", "data: [DONE]", "data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\ndata: [DONE]\n\n"] {
        let (got, end) = answer(vec![format!("{HEAD}{}{FINISH}{tail}", frame("hi")).into_bytes()], Then::Close).await;
        assert!(got == ["hi"] && end.is_ok(), "{tail}");
    }
    let (got, end) = answer(vec![format!("{HEAD}{}{FINISH}", frame("hi")).into_bytes()], Then::Hang).await;
    assert!(got == ["hi"] && end.is_ok(), "one that never closes is left");
}

#[tokio::test]
async fn a_stop_closes_the_socket() {
    let (address, _request, gone) = server(vec![format!("{HEAD}{}", frame("one")).into_bytes()], Then::Hang).await;
    let (got, end) = ask(&address, CancellationToken::new(), Some(1)).await;
    assert_eq!(got, ["one"]);
    assert!(matches!(end, Err(ProviderError::Stopped)));
    gone.await.expect("the server saw it leave");
}

#[tokio::test]
async fn a_stop_before_the_first_byte_closes_the_socket_too() {
    let (address, request, gone) = server(Vec::new(), Then::Hang).await;
    let stop = CancellationToken::new();
    let asking = tokio::spawn({
        let stop = stop.clone();
        async move { ask(&address, stop, None).await }
    });
    request.await.expect("it was asked");
    stop.cancel();
    assert!(matches!(asking.await.expect("no panic").1, Err(ProviderError::Stopped)));
    gone.await.expect("the server saw it leave");
}

#[tokio::test]
async fn each_kind_of_trouble_says_whether_to_try_again() {
    let text = status("401 Unauthorized", r#"{"error":{"message":"bad key sk-secret","code":"invalid_api_key"}}"#).await;
    assert!(matches!(&text, ProviderError::Refused { why } if why.contains("OPENAI_API_KEY") && why.contains("invalid_api_key")));
    assert!(!text.to_string().contains("sk-secret"), "a message may hold anything and is not repeated");
    assert_eq!(status("429 Too Many Requests", "{}").await.retry(), Retry::Later);
    assert_eq!(status("503 Service Unavailable", "<html>").await.retry(), Retry::Later);
    assert_eq!(status("500 Internal Server Error", "").await.retry(), Retry::Now);
    assert!(matches!(status("404 Not Found", "").await, ProviderError::Refused { why } if why.contains("name of the model")));
    let moved = status("302 Found\r\nLocation: http://127.0.0.1:1/", "").await;
    assert!(matches!(moved, ProviderError::Refused { .. }), "it follows nobody");
    for (stream, kind) in [
        (format!("{HEAD}{}", frame("half an ans")), Retry::Now),
        (format!("{HEAD}data: {{\"choices\":[{{\"delta\":{{\"content\":\"half an ans\"}}}}]}}\n\ndata: not json\n\n"), Retry::Now),
        (
            format!("{HEAD}{}data: {{\"error\":{{\"message\":\"secret\",\"type\":\"overloaded\"}}}}\n\n", frame("half an ans")),
            Retry::Later,
        ),
    ] {
        let (got, end) = answer(vec![stream.into_bytes()], Then::Close).await;
        let error = end.expect_err("it broke off");
        assert_eq!((got, error.retry()), (vec!["half an ans".to_owned()], kind));
        assert!(!error.to_string().contains("secret"));
    }
    let filtered = format!("{HEAD}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"content_filter\"}}]}}\n\n");
    assert!(matches!(answer(vec![filtered.into_bytes()], Then::Close).await.1, Err(ProviderError::Refused { .. })));
}

#[tokio::test]
async fn nobody_at_the_address_is_unavailable_and_says_what_to_do() {
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound").port();
    let (_, end) = ask(&format!("http://127.0.0.1:{port}/v1"), CancellationToken::new(), None).await;
    assert!(matches!(end, Err(ProviderError::Unavailable { help, .. }) if help.contains("base URL")));
}

#[test]
fn configuration_is_checked_and_never_shows_the_key() {
    for bad in ["", "127.0.0.1:8000", "ftp://x/v1", "file:///etc/passwd"] {
        assert!(matches!(OpenAiChat::new(OpenAiConfig::new(bad, "m")), Err(ProviderError::Refused { .. })), "{bad}");
    }
    let vars = |set: &'static [(&str, &str)]| {
        OpenAiConfig::from_vars(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    };
    assert!(matches!(vars(&[("OPENAI_API_KEY", " ")]), Err(ProviderError::Unavailable { .. })));
    let hosted = vars(&[("OPENAI_API_KEY", "sk-secret")]).expect("a key is enough");
    assert_eq!((hosted.base_url.as_str(), hosted.model.as_str()), ("https://api.openai.com/v1", "gpt-4o-mini"));
    assert!(!format!("{:?}", OpenAiChat::new(hosted)).contains("sk-secret"));
    let local =
        vars(&[("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"), ("ANTIPHON_LLM_MODEL", "tiny")]).expect("an address is enough");
    assert_eq!((local.api_key, local.model.as_str()), (None, "tiny"));
}
