//! `OpenAiChat`: any server that speaks OpenAI's streaming chat completions. Layer 2; behind the feature `http`.
//!
//! Who owns what: the task of one answer owns its request; the connections are shared by clones. Laws: pieces come in the server's
//! order; a stop drops the connection, which is how such a server learns of it; the key and the conversation are in no error and
//! no log. It keeps no time limits: the engine does. Proved by the tests below, against a server on this machine.

mod asking;
mod telling;

use std::fmt;
use std::sync::Once;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Value, json};

use super::sse::Sse;
use crate::event::Retry;
use crate::provider::{Info, Llm, Piece, Prompt, ProviderError, Sink, TaskCx};
use telling::Telling;

/// The variables that [`OpenAiConfig::from_env`] reads.
const ENV: [&str; 3] = ["OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTIPHON_LLM_MODEL"];
/// After the last piece the server may close its stream properly for so long, and the connection is used again.
const CLOSING: Duration = Duration::from_millis(200);
/// An error body is read up to this size.
const ERROR_BYTES: usize = 64 << 10;

/// Where and how to ask.
#[derive(Clone)]
#[non_exhaustive]
pub struct OpenAiConfig {
    /// Up to and without `/chat/completions`: `http://127.0.0.1:8000/v1`.
    pub base_url: String,
    /// Sent as a bearer token when there is one. Local servers need none.
    pub api_key: Option<String>,
    /// The model's name, as the server knows it.
    pub model: String,
    /// Tokens of one answer at most; the server's own limit without.
    pub max_tokens: Option<u32>,
    /// 0 to 2; the server's own default without.
    pub temperature: Option<f32>,
}

impl fmt::Debug for OpenAiConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiConfig")
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "<secret>"))
            .field("model", &self.model)
            .field("max_tokens", &self.max_tokens)
            .field("temperature", &self.temperature)
            .finish()
    }
}

impl OpenAiConfig {
    /// `model` at `base_url`, without a key.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        OpenAiConfig { base_url: base_url.into(), api_key: None, model: model.into(), max_tokens: None, temperature: None }
    }

    /// From `OPENAI_BASE_URL` (default `https://api.openai.com/v1`), `OPENAI_API_KEY` and `ANTIPHON_LLM_MODEL` (default
    /// `gpt-4o-mini`); an empty variable counts as none.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] when neither an address nor a key is set.
    pub fn from_env() -> Result<Self, ProviderError> {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, ProviderError> {
        let [base_url, api_key, model] = ENV.map(|name| var(name).filter(|v| !v.trim().is_empty()));
        if base_url.is_none() && api_key.is_none() {
            return Err(ProviderError::Unavailable {
                what: "a language model over HTTP".into(),
                help: format!("set {} to a server's address, or {} for OpenAI's", ENV[0], ENV[1]),
            });
        }
        Ok(OpenAiConfig {
            api_key,
            ..Self::new(
                base_url.unwrap_or_else(|| "https://api.openai.com/v1".into()),
                model.unwrap_or_else(|| "gpt-4o-mini".into()),
            )
        })
    }
}

/// A language model behind an OpenAI-compatible server.
#[derive(Clone, Debug)]
pub struct OpenAiChat {
    config: OpenAiConfig,
    url: Url,
    client: Client,
}

impl OpenAiChat {
    /// A client for what `config` names. Nothing is sent before the first answer.
    ///
    /// # Errors
    /// [`ProviderError::Refused`] when the address is none; [`ProviderError::Unavailable`] when this machine cannot do TLS.
    pub fn new(config: OpenAiConfig) -> Result<Self, ProviderError> {
        let url = Url::parse(&format!("{}/chat/completions", config.base_url.trim_end_matches('/')))
            .ok()
            .filter(|u| matches!(u.scheme(), "http" | "https") && u.has_host())
            .ok_or_else(|| ProviderError::Refused { why: "the base URL must be an http or https address".into() })?;
        static TLS: Once = Once::new();
        TLS.call_once(|| {
            // Another part of the program may have chosen a provider before us, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        // A redirect would carry the key and the conversation elsewhere.
        let mut client = Client::builder().redirect(reqwest::redirect::Policy::none());
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|e| ProviderError::Unavailable {
            what: "an HTTP client".into(),
            help: format!("install the system's certificates (apt-get install ca-certificates): {e}"),
        })?;
        Ok(OpenAiChat { config, url, client })
    }

    fn body(&self, prompt: &Prompt) -> Value {
        let messages = asking::messages(&prompt.conversation);
        let mut body = json!({ "model": self.config.model, "stream": true, "messages": messages });
        if let Some(most) = self.config.max_tokens {
            body["max_tokens"] = most.into();
        }
        if let Some(temperature) = self.config.temperature {
            body["temperature"] = temperature.into();
        }
        if !prompt.tools.is_empty() {
            body["tools"] = prompt.tools.iter().map(asking::tool).collect();
        }
        body
    }

    async fn ask(&self, prompt: &Prompt) -> Result<Response, ProviderError> {
        let mut request = self.client.post(self.url.clone()).header(ACCEPT, "text/event-stream");
        if let Some(key) = &self.config.api_key {
            request = request.bearer_auth(key);
        }
        let sent = request.header(CONTENT_TYPE, "application/json").body(self.body(prompt).to_string()).send().await;
        let response = sent.map_err(|e| {
            let address = self.url.origin().ascii_serialization();
            if e.is_builder() {
                ProviderError::Refused { why: format!("{} holds characters that a header cannot", ENV[1]) }
            } else if e.is_connect() {
                ProviderError::Unavailable { what: address, help: "start the server there, or name another base URL".into() }
            } else {
                ProviderError::Broken { why: format!("the request to {address} failed"), retry: Retry::Now }
            }
        })?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
    }
}

impl Llm for OpenAiChat {
    fn info(&self) -> Info {
        Info::new(format!("openai:{}", self.config.model))
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> Result<(), ProviderError> {
        let mut response = cx.until_stopped(self.ask(&prompt)).await??;
        let (mut sse, mut events, mut telling) = (Sse::default(), Vec::new(), Telling::default());
        loop {
            let read = tokio::select! {
                biased;
                read = cx.until_stopped(response.chunk()) => read?,
                closing = cx.rest(CLOSING), if telling.is_complete() => return closing,
            };
            let bytes = match read {
                Ok(bytes) => bytes,
                // The answer is whole; how the connection ends does not matter.
                Err(_) if telling.is_complete() => return Ok(()),
                Err(_) => return Err(broken("the connection was lost in the middle of the answer")),
            };
            let over = bytes.is_none();
            match bytes {
                Some(bytes) => sse.push(&bytes, &mut events).map_err(|_| broken("it sent an endless event"))?,
                None => sse.finish(&mut events),
            }
            for event in events.drain(..) {
                telling.read(&event)?;
                while let Some(piece) = telling.next() {
                    cx.until_stopped(out.send(piece)).await??;
                }
                if telling.is_over() {
                    return Ok(());
                }
            }
            if over {
                return if telling.is_complete() { Ok(()) } else { Err(broken("the answer ended without an end")) };
            }
        }
    }
}

fn broken(why: &str) -> ProviderError {
    ProviderError::Broken { why: why.into(), retry: Retry::Now }
}

/// An error's code or type, which names no content; never its message, which may.
fn code(error: &Value) -> String {
    let name = ["code", "type"].into_iter().find_map(|key| match error.get(key)? {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    });
    let plain = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
    match name.map(|n| n.chars().filter(plain).take(64).collect::<String>()) {
        Some(n) if !n.is_empty() => n,
        _ => "an error".into(),
    }
}

/// What an answer that is no success means.
async fn refusal(mut response: Response) -> ProviderError {
    let status = response.status();
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes);
        if body.len() > ERROR_BYTES {
            break;
        }
    }
    let error = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let what = format!("{} ({})", status.as_u16(), code(error.get("error").unwrap_or(&error)));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ProviderError::Refused { why: format!("{what}: check {}", ENV[1]) },
        StatusCode::NOT_FOUND => ProviderError::Refused { why: format!("{what}: check the base URL and the name of the model") },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ProviderError::Broken { why: format!("the server is busy: {what}"), retry: Retry::Later }
        }
        // 529 is how some say that they are overloaded.
        s if s.as_u16() == 529 => ProviderError::Broken { why: format!("the server is busy: {what}"), retry: Retry::Later },
        s if s.is_server_error() => ProviderError::Broken { why: format!("the server failed: {what}"), retry: Retry::Now },
        _ => ProviderError::Refused { why: format!("the server answered {what}") },
    }
}

#[cfg(test)]
mod tests;
