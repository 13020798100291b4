//! From the configuration to an engine: the providers it names, each asked at start whether it can work.
//!
//! A missing program is an error with the command that installs it, not a voice that stays silent.

use super::config::{Config, LlmKind, SttKind, TtsKind};
use crate::engine::{Engine, Limits};
use crate::event::Pii;
use crate::provider::llm::{Brain, OpenAiChat, OpenAiConfig};
use crate::provider::stt::Pocketsphinx;
use crate::provider::tts::Espeak;
use crate::provider::{AudioStream, Info, Llm, Piece, Prompt, ProviderError, Sink, Stt, TaskCx, Transcript};

/// Where the key of the `openai` model comes from. It stands in no configuration, no log and no error.
pub const KEY: &str = "OPENAI_API_KEY";

/// A provider that cannot work. Trying again helps when what the text names has been done.
#[derive(Debug, thiserror::Error)]
#[error("{part}: {source}")]
pub struct StartError {
    /// Which part: `speech to text`, `model`, `text to speech`.
    pub part: &'static str,
    /// Why it cannot work, and what to do.
    pub source: ProviderError,
}

fn cannot(part: &'static str) -> impl FnOnce(ProviderError) -> StartError {
    move |source| StartError { part, source }
}

/// An engine as `config` says, after asking each provider whether it can work. Call it inside a tokio runtime.
pub async fn engine(config: &Config) -> Result<Engine, StartError> {
    let stt = match config.stt.kind {
        SttKind::Pocketsphinx => {
            // Its grammar holds the commands of the built-in dialogue; any other model is to hear free words.
            let sphinx = match config.llm.kind {
                LlmKind::Brain => Pocketsphinx::new(),
                LlmKind::Openai => Pocketsphinx::new().without_commands(),
            };
            sphinx.probe().await.map_err(cannot("speech to text"))?;
            ChosenStt::Pocketsphinx(sphinx)
        }
        SttKind::None => ChosenStt::None,
    };
    let llm = match config.llm.kind {
        LlmKind::Brain => {
            let brain = Brain::new();
            ChosenLlm::Brain(match config.llm.minutes_east {
                Some(minutes) => brain.minutes_east(minutes),
                None => brain,
            })
        }
        LlmKind::Openai => {
            let (url, model) = (config.llm.base_url.as_deref(), config.llm.model.as_deref());
            let mut place = OpenAiConfig::new(url.unwrap_or_default(), model.unwrap_or_default());
            place.api_key = std::env::var(KEY).ok().filter(|key| !key.trim().is_empty());
            ChosenLlm::OpenAi(OpenAiChat::new(place).map_err(cannot("model"))?)
        }
    };
    let TtsKind::Espeak = config.tts.kind;
    let tts = Espeak::new().voice(&config.tts.voice).words_a_minute(config.tts.speed);
    tts.probe().await.map_err(cannot("text to speech"))?;
    let limits = Limits { sessions: config.limits.sessions, ..Limits::default() };
    Ok(Engine::builder(stt, llm, tts)
        .policy(config.policy.clone())
        .limits(limits)
        .instructions(config.instructions.clone())
        .build())
}

/// The recogniser that the configuration chose.
enum ChosenStt {
    Pocketsphinx(Pocketsphinx),
    /// Hears that somebody speaks and makes out no words.
    None,
}

impl Stt for ChosenStt {
    fn info(&self) -> Info {
        match self {
            ChosenStt::Pocketsphinx(sphinx) => sphinx.info(),
            ChosenStt::None => Info::new("none"),
        }
    }

    async fn listen(&self, mut audio: AudioStream, out: Sink<Transcript>, cx: TaskCx) -> Result<(), ProviderError> {
        match self {
            ChosenStt::Pocketsphinx(sphinx) => sphinx.listen(audio, out, cx).await,
            ChosenStt::None => {
                while cx.until_stopped(audio.next()).await?.is_some() {}
                out.send(Transcript { text: Pii::default(), is_final: true }).await
            }
        }
    }
}

/// The model that the configuration chose.
enum ChosenLlm {
    Brain(Brain),
    OpenAi(OpenAiChat),
}

impl Llm for ChosenLlm {
    fn info(&self) -> Info {
        match self {
            ChosenLlm::Brain(brain) => brain.info(),
            ChosenLlm::OpenAi(remote) => remote.info(),
        }
    }

    async fn reply(&self, prompt: Prompt, out: Sink<Piece>, cx: TaskCx) -> Result<(), ProviderError> {
        match self {
            ChosenLlm::Brain(brain) => brain.reply(prompt, out, cx).await,
            ChosenLlm::OpenAi(remote) => remote.reply(prompt, out, cx).await,
        }
    }
}
