//! [`Config`]: everything the server can be told, with units and defaults.
//!
//! Precedence: flag, environment, file, default. Unknown keys and bad values are errors that name the key and the file. Keys of
//! providers come from the environment only and stand in no configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::turn;

/// Everything the server can be told. The file is TOML with these names; every key may be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address and port of HTTP. Default `127.0.0.1:7880`. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Origins of other sites whose pages may open sessions, such as `https://app.example`. Default none.
    pub origins: Vec<String>,
    /// Whether `GET /metrics` answers. Default true.
    pub metrics: bool,
    /// Longest time for running turns to end when the server is told to stop, milliseconds. Default 10,000.
    pub drain_ms: u64,
    /// What the model is told first. Default: be brief and speak plainly.
    pub instructions: String,
    /// WebRTC.
    pub webrtc: WebRtcConfig,
    /// Bounds.
    pub limits: LimitsConfig,
    /// Logs.
    pub log: LogConfig,
    /// Speech to text.
    pub stt: SttConfig,
    /// The model.
    pub llm: LlmConfig,
    /// Text to speech.
    pub tts: TtsConfig,
    /// Thresholds of turn taking; durations in milliseconds.
    pub policy: turn::Policy,
}

/// WebRTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebRtcConfig {
    /// IP address for media. Default: the one of `listen`. It must be one that clients can reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
}

/// Bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Sessions at once. Default 64.
    pub sessions: usize,
}

/// Logs, on standard error. They never hold what was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Default text.
    pub format: LogFormat,
    /// Directives of `tracing_subscriber::EnvFilter`. Default `info,webrtc=warn,rtc=warn`.
    pub filter: String,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Speech to text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SttConfig {
    /// Which. Default `pocketsphinx`.
    pub kind: SttKind,
}

/// Which speech-to-text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SttKind {
    /// Debian's `pocketsphinx` with its English model: offline, no key.
    Pocketsphinx,
    /// None: voices interrupt, words are typed.
    None,
}

/// The model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlmConfig {
    /// Which. Default `brain`.
    pub kind: LlmKind,
    /// Base URL of an OpenAI-compatible server, such as `http://127.0.0.1:8000/v1`. Needed by `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Name of the model there. Needed by `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Zone in which `brain` tells the time, minutes east of universal time, -840..=840. Without it, universal time, called so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes_east: Option<i32>,
}

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LlmKind {
    /// The small built-in dialogue: offline, no key, always something worth interrupting.
    Brain,
    /// Any server with OpenAI's streaming chat. Its key comes from the environment (`OPENAI_API_KEY`).
    Openai,
}

/// Text to speech.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TtsConfig {
    /// Which. Default `espeak`.
    pub kind: TtsKind,
    /// Its voice, as `espeak-ng --voices` names it. Default `en-us`.
    pub voice: String,
    /// Words a minute, 80..=450. Default 160.
    pub speed: u32,
}

/// Which text-to-speech.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum TtsKind {
    /// Debian's `espeak-ng`: offline, no key.
    Espeak,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7880)),
            origins: Vec::new(),
            metrics: true,
            drain_ms: 10_000,
            instructions: "You are heard, not read. Answer briefly, in plain spoken sentences.".to_owned(),
            webrtc: WebRtcConfig::default(),
            limits: LimitsConfig::default(),
            log: LogConfig::default(),
            stt: SttConfig::default(),
            llm: LlmConfig::default(),
            tts: TtsConfig::default(),
            policy: turn::Policy::default(),
        }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        LimitsConfig { sessions: 64 }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { format: LogFormat::Text, filter: "info,webrtc=warn,rtc=warn".to_owned() }
    }
}

impl Default for SttConfig {
    fn default() -> Self {
        SttConfig { kind: SttKind::Pocketsphinx }
    }
}

impl Default for LlmConfig {
    fn default() -> Self {
        LlmConfig { kind: LlmKind::Brain, base_url: None, model: None, minutes_east: None }
    }
}

impl Default for TtsConfig {
    fn default() -> Self {
        TtsConfig { kind: TtsKind::Espeak, voice: "en-us".to_owned(), speed: 160 }
    }
}

/// Why a configuration cannot be used. Trying again does not help; the text says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of the wrong kind. The parser's text names the line and the key.
    #[error("in the configuration file {}: {source}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What and where.
        source: Box<toml::de::Error>,
    },
    /// A value that cannot work.
    #[error("`{key}` {why}{}", from.as_ref().map(|p| format!(" (after reading {})", p.display())).unwrap_or_default())]
    BadValue {
        /// The key, as in the file.
        key: &'static str,
        /// What is wrong and what would be right.
        why: String,
        /// The file that was read, if any.
        from: Option<PathBuf>,
    },
}

impl Config {
    /// Reads a file. Checks its form, not yet its values ([`Config::check`]): flags may still change them.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::BadFile { path: path.to_owned(), source: Box::new(source) })
    }

    /// The whole of it as TOML, which [`Config::read`] reads back to the same.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a configuration has no value that TOML lacks")
    }

    /// Checks the values. `from` is the file that was read, for the error's text.
    pub fn check(&self, from: Option<&Path>) -> Result<(), ConfigError> {
        let bad = |key, why: String| Err(ConfigError::BadValue { key, why, from: from.map(Path::to_owned) });
        if self.limits.sessions == 0 {
            return bad("limits.sessions", "is 0; at least 1 session must be allowed".into());
        }
        if self.limits.sessions > 10_000 {
            return bad("limits.sessions", format!("is {}; at most 10000 makes sense on one machine", self.limits.sessions));
        }
        if let Some(minutes) = self.llm.minutes_east
            && minutes.unsigned_abs() > 14 * 60
        {
            return bad("llm.minutes_east", format!("is {minutes}; zones lie within -840..=840 minutes of universal time"));
        }
        if self.drain_ms > 600_000 {
            return bad("drain_ms", format!("is {}; at most 600000 (ten minutes) makes sense", self.drain_ms));
        }
        for origin in &self.origins {
            let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' '])) {
                return bad("origins", format!("has {origin:?}; an origin is a scheme and a host, such as https://app.example"));
            }
        }
        if self.webrtc.bind.is_some_and(|ip| ip.is_multicast()) {
            return bad("webrtc.bind", "is a multicast address; give one address of this machine".into());
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&self.log.filter) {
            return bad("log.filter", format!("is {:?}: {error}; try info or antiphon=debug", self.log.filter));
        }
        if !(80..=450).contains(&self.tts.speed) {
            return bad("tts.speed", format!("is {}; espeak-ng speaks 80 to 450 words a minute", self.tts.speed));
        }
        let voice_is_a_name = |c: char| c.is_ascii_alphanumeric() || "+-_/".contains(c);
        if self.tts.voice.is_empty() || self.tts.voice.starts_with('-') || !self.tts.voice.chars().all(voice_is_a_name) {
            return bad("tts.voice", format!("is {:?}; give a name from `espeak-ng --voices`, such as en-us", self.tts.voice));
        }
        if self.llm.kind == LlmKind::Openai {
            match &self.llm.base_url {
                None => return bad("llm.base_url", "is missing; `openai` needs one, such as http://127.0.0.1:8000/v1".into()),
                Some(url) => {
                    let known = reqwest::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                    let Some(parsed) = known else {
                        return bad("llm.base_url", format!("is {url:?}; it must be an http or https URL"));
                    };
                    if parsed.password().is_some() || !parsed.username().is_empty() {
                        return bad("llm.base_url", "holds a user or password; keys come from the environment only".into());
                    }
                }
            }
            if self.llm.model.as_deref().is_none_or(str::is_empty) {
                return bad("llm.model", "is missing; `openai` needs the name of a model of that server".into());
            }
        }
        self.check_policy().or_else(|(key, why)| bad(key, why))
    }

    fn check_policy(&self) -> Result<(), (&'static str, String)> {
        let floor = &self.policy.floor;
        if !(0.0..=1.0).contains(&floor.voice_weight) {
            return Err(("policy.floor.voice_weight", format!("is {}; it is a share between 0 and 1", floor.voice_weight)));
        }
        if floor.hold_after > floor.commit_after {
            let (hold, commit) = (floor.hold_after.as_millis(), floor.commit_after.as_millis());
            return Err((
                "policy.floor.hold_after",
                format!("is {hold} and policy.floor.commit_after {commit}; a hold comes before the commit"),
            ));
        }
        let budget = &self.policy.budget;
        for (key, value) in [
            ("policy.floor.endpoint_after", floor.endpoint_after),
            ("policy.budget.turn", budget.turn),
            ("policy.budget.first_token", budget.first_token),
            ("policy.budget.idle", budget.idle),
            ("policy.budget.playout_stall", budget.playout_stall),
        ] {
            if value.is_zero() {
                return Err((key, "is 0; nothing could ever be done in that time".into()));
            }
        }
        if budget.closing_reserve >= budget.turn {
            return Err(("policy.budget.closing_reserve", "is not less than policy.budget.turn; nothing would be left".into()));
        }
        Ok(())
    }

    /// The IP address for media.
    pub fn media_ip(&self) -> IpAddr {
        self.webrtc.bind.unwrap_or(self.listen.ip())
    }

    /// The drain's bound.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: impl FnOnce(&mut Config)) -> Result<(), String> {
        let mut config = Config::default();
        change(&mut config);
        config.check(None).map_err(|e| e.to_string())
    }

    #[test]
    fn the_default_is_right_and_survives_toml() {
        let config = Config::default();
        config.check(None).expect("the default can be used");
        assert_eq!(toml::from_str::<Config>(&config.to_toml()).expect("it reads back"), config);
        assert_eq!(toml::from_str::<Config>("").expect("every key may be left out"), config);
    }

    #[test]
    fn every_choice_survives_toml() {
        let config = Config {
            listen: "0.0.0.0:80".parse().expect("an address"),
            origins: vec!["https://app.example".into()],
            metrics: false,
            webrtc: WebRtcConfig { bind: Some(Ipv4Addr::new(192, 0, 2, 7).into()) },
            log: LogConfig { format: LogFormat::Json, filter: "debug".into() },
            stt: SttConfig { kind: SttKind::None },
            llm: LlmConfig {
                kind: LlmKind::Openai,
                base_url: Some("http://h/v1".into()),
                model: Some("m".into()),
                minutes_east: Some(-210),
            },
            policy: turn::Policy { on_disconnect: turn::OnDisconnect::GoOn, ..Default::default() },
            ..Config::default()
        };
        config.check(None).expect("it can be used");
        assert_eq!(toml::from_str::<Config>(&config.to_toml()).expect("it reads back"), config);
    }

    #[test]
    fn a_bad_value_names_its_key() {
        type Change = fn(&mut Config);
        let cases: [(&str, Change); 14] = [
            ("limits.sessions", |c| c.limits.sessions = 0),
            ("limits.sessions", |c| c.limits.sessions = usize::MAX),
            ("drain_ms", |c| c.drain_ms = 600_001),
            ("origins", |c| c.origins = vec!["*".into()]),
            ("log.filter", |c| c.log.filter = "antiphon=loud".into()),
            ("tts.speed", |c| c.tts.speed = 20),
            ("tts.voice", |c| c.tts.voice = "-f /etc/passwd".into()),
            ("llm.base_url", |c| c.llm.kind = LlmKind::Openai),
            ("llm.base_url", |c| {
                c.llm = LlmConfig {
                    kind: LlmKind::Openai,
                    base_url: Some("http://me:secret@h".into()),
                    model: Some("m".into()),
                    ..LlmConfig::default()
                }
            }),
            ("llm.model", |c| {
                c.llm = LlmConfig { kind: LlmKind::Openai, base_url: Some("http://h".into()), ..LlmConfig::default() }
            }),
            ("llm.minutes_east", |c| c.llm.minutes_east = Some(841)),
            ("policy.floor.hold_after", |c| c.policy.floor.hold_after = Duration::from_secs(1)),
            ("policy.floor.voice_weight", |c| c.policy.floor.voice_weight = f32::NAN),
            ("policy.budget.turn", |c| c.policy.budget.turn = Duration::ZERO),
        ];
        for (key, change) in cases {
            let error = changed(change).expect_err(key);
            assert!(error.starts_with(&format!("`{key}` ")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
