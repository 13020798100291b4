//! The command line: flags and environment variables, laid over the configuration file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::config::{Config, ConfigError, LlmKind, LogFormat, SttKind, TtsKind};

/// What the program can do besides proving itself.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve voice conversations to browsers over WebRTC
    Serve(Box<ServeFlags>),
}

/// Flags of `antiphon serve`. Each may also stand in the environment; what is left out comes from the file, or is the default.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeFlags {
    /// Configuration file (TOML)
    #[arg(long, env = "ANTIPHON_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration as TOML and exit
    #[arg(long)]
    pub print_config: bool,
    /// Address and port of HTTP [default: 127.0.0.1:7880]
    #[arg(long, env = "ANTIPHON_LISTEN", value_name = "IP:PORT")]
    pub listen: Option<SocketAddr>,
    /// IP address for media [default: that of --listen]
    #[arg(long, env = "ANTIPHON_WEBRTC_BIND", value_name = "IP")]
    pub webrtc_bind: Option<IpAddr>,
    /// Origin of another site whose pages may open sessions; may be given several times
    #[arg(long = "origin", env = "ANTIPHON_ORIGINS", value_name = "URL", value_delimiter = ',')]
    pub origins: Option<Vec<String>>,
    /// Sessions at once [default: 64]
    #[arg(long, env = "ANTIPHON_SESSIONS", value_name = "N")]
    pub sessions: Option<usize>,
    /// Longest time for running turns to end on SIGTERM, milliseconds [default: 10000]
    #[arg(long, env = "ANTIPHON_DRAIN_MS", value_name = "MS")]
    pub drain_ms: Option<u64>,
    /// Whether GET /metrics answers [default: true]
    #[arg(long, env = "ANTIPHON_METRICS", value_name = "BOOL")]
    pub metrics: Option<bool>,
    /// Speech to text [default: pocketsphinx]
    #[arg(long, env = "ANTIPHON_STT", value_name = "KIND")]
    pub stt: Option<SttKind>,
    /// Model [default: brain]
    #[arg(long, env = "ANTIPHON_LLM", value_name = "KIND")]
    pub llm: Option<LlmKind>,
    /// Base URL of the OpenAI-compatible server; its key comes from OPENAI_API_KEY
    #[arg(long, env = "ANTIPHON_LLM_BASE_URL", value_name = "URL")]
    pub llm_base_url: Option<String>,
    /// Name of the model on that server
    #[arg(long, env = "ANTIPHON_LLM_MODEL", value_name = "NAME")]
    pub llm_model: Option<String>,
    /// Zone in which the built-in dialogue tells the time, minutes east of universal time [default: universal time]
    #[arg(long, env = "ANTIPHON_MINUTES_EAST", value_name = "MINUTES", allow_hyphen_values = true)]
    pub minutes_east: Option<i32>,
    /// Text to speech [default: espeak]
    #[arg(long, env = "ANTIPHON_TTS", value_name = "KIND")]
    pub tts: Option<TtsKind>,
    /// Voice, as `espeak-ng --voices` names it [default: en-us]
    #[arg(long, env = "ANTIPHON_TTS_VOICE", value_name = "NAME")]
    pub tts_voice: Option<String>,
    /// Words a minute [default: 160]
    #[arg(long, env = "ANTIPHON_TTS_SPEED", value_name = "N")]
    pub tts_speed: Option<u32>,
    /// What the model is told first
    #[arg(long, env = "ANTIPHON_INSTRUCTIONS", value_name = "TEXT", hide_env_values = true)]
    pub instructions: Option<String>,
    /// Log lines for people or for programs [default: text]
    #[arg(long, env = "ANTIPHON_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Which log lines, such as info or antiphon=debug [default: info,webrtc=warn,rtc=warn]
    #[arg(long = "log", env = "ANTIPHON_LOG", value_name = "FILTER")]
    pub log_filter: Option<String>,
}

impl ServeFlags {
    /// The effective configuration: these flags over the file over the defaults, checked.
    pub fn effective(&self) -> Result<Config, ConfigError> {
        let mut config = self.config.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        let flags = self.clone();
        put(&mut config.listen, flags.listen);
        put(&mut config.origins, flags.origins);
        put(&mut config.metrics, flags.metrics);
        put(&mut config.drain_ms, flags.drain_ms);
        put(&mut config.instructions, flags.instructions);
        put(&mut config.webrtc.bind, flags.webrtc_bind.map(Some));
        put(&mut config.limits.sessions, flags.sessions);
        put(&mut config.log.format, flags.log_format);
        put(&mut config.log.filter, flags.log_filter);
        put(&mut config.stt.kind, flags.stt);
        put(&mut config.llm.kind, flags.llm);
        put(&mut config.llm.base_url, flags.llm_base_url.map(Some));
        put(&mut config.llm.model, flags.llm_model.map(Some));
        put(&mut config.llm.minutes_east, flags.minutes_east.map(Some));
        put(&mut config.tts.kind, flags.tts);
        put(&mut config.tts.voice, flags.tts_voice);
        put(&mut config.tts.speed, flags.tts_speed);
        config.check(self.config.as_deref())?;
        Ok(config)
    }
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Command::augment_subcommands(clap::Command::new("antiphon")).debug_assert();
    }
}
