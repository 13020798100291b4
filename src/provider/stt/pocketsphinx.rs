//! `Pocketsphinx`: speech recognition by the `pocketsphinx_continuous` program. Needs no key and no network. Layer 2.
//!
//! Who owns what: the task of one utterance owns two processes. They are started when the utterance begins, so that loading (about
//! 0.2 and 0.4 s) passes while the person speaks, and they decode while audio comes; one knows the commands of the built-in
//! dialogue, the other the whole language, and `verdict` chooses. Laws: audio is taken at once, however slow the decoders are; one
//! final transcript, no partial ones (the program has none); a stop kills and reaps both before returning.
//! Proved by `verdict` and, with the real program, by `tests/providers.rs`.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;

use super::verdict::{Decoding, Scale, verdict};
use crate::event::Retry;
use crate::provider::program::{Pipes, Program};
use crate::provider::{AudioStream, Info, ProviderError, Sink, Stt, TaskCx, Transcript};
use crate::time::SampleRate;

/// What to do when the program is missing.
const HELP: &str = "install it with `apt-get install pocketsphinx pocketsphinx-en-us`, or set the program's path";
/// The commands of the built-in dialogue.
const COMMANDS: &str = include_str!("../../../assets/dialogue/commands.jsgf");
/// Pieces that wait for one decoder, at most: the longest utterance in blocks of 10 ms, and its end.
const PIECES: usize = 6_100;
/// Of one utterance this much is recognised; what comes later is let go (16 kHz samples).
const LONGEST: u64 = 60 * 16_000;
/// Missing samples are replaced by at most this much silence: the decoder only has to notice the gap.
const LONGEST_GAP: u64 = 8_000;
/// Silence after the last sample, so that the last word has an end.
const TAIL: usize = 4_000;
/// A floor of noise (its standard deviation, of full scale 1: -63 dB) under everything. The decoder learns what silence is from the
/// noise in it; in the digital silence around synthetic speech it hears 60 of 84 commands right, with this 68, and no worse elsewhere.
const FLOOR: f32 = 24.0 / 32_768.0;
/// A decoder's log is kept up to this size; the table comes late in it, the rest is drained.
const LOG_BYTES: usize = 1 << 20;

/// Speech to text by `pocketsphinx_continuous`, American English.
#[derive(Clone, Debug)]
pub struct Pocketsphinx {
    program: PathBuf,
    commands: bool,
    grammar: Arc<Grammar>,
}

impl Default for Pocketsphinx {
    fn default() -> Self {
        Self::new()
    }
}

impl Pocketsphinx {
    /// `pocketsphinx_continuous` from the search path with its own language model, and the commands of the built-in dialogue.
    pub fn new() -> Self {
        Pocketsphinx { program: "pocketsphinx_continuous".into(), commands: true, grammar: Arc::new(Grammar::of(COMMANDS)) }
    }

    /// Another path to the program.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = path.into();
        self
    }

    /// Commands to prefer over free words, as a JSGF grammar with one public rule, instead of those of the built-in dialogue.
    #[must_use]
    pub fn commands(mut self, jsgf: &str) -> Self {
        self.grammar = Arc::new(Grammar::of(jsgf));
        self.commands = true;
        self
    }

    /// Free words only: half the work, and worse at commands.
    #[must_use]
    pub fn without_commands(mut self) -> Self {
        self.commands = false;
        self
    }

    /// Whether the program and its language model are there.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] without them.
    pub async fn probe(&self) -> Result<(), ProviderError> {
        let (mut program, pipes) = self.start(None)?;
        let (_, audio) = mpsc::channel(1);
        let out = decode(&mut program, pipes, audio, Scale::Shifted).await;
        program.kill().await;
        out.map(drop)
    }

    fn start(&self, grammar: Option<&Path>) -> Result<(Program, Pipes), ProviderError> {
        // The program ends an utterance at half a second of silence by itself; that is decided elsewhere, so: at 20 s.
        let mut args = vec!["-infile".into(), "/dev/stdin".into(), "-backtrace".into(), "yes".into()];
        args.extend(["-vad_postspeech".into(), "2000".into()]);
        if let Some(path) = grammar {
            args.extend(["-jsgf".into(), path.as_os_str().to_owned()]);
        }
        Program::start(&self.program, args, HELP)
    }
}

impl Stt for Pocketsphinx {
    fn info(&self) -> Info {
        Info::new("pocketsphinx").at(SampleRate::HZ_16000)
    }

    async fn listen(&self, audio: AudioStream, out: Sink<Transcript>, cx: TaskCx) -> Result<(), ProviderError> {
        let grammar = if self.commands { Some(self.grammar.path()?) } else { None };
        let (mut free, free_pipes) = self.start(None)?;
        let started = grammar.map(|path| self.start(Some(path)));
        let (mut command, command_pipes) = match started.transpose() {
            Ok(pair) => pair.unzip(),
            Err(e) => {
                free.kill().await;
                return Err(e);
            }
        };
        let (to_free, for_free) = mpsc::channel(PIECES);
        let (to_command, for_command) = mpsc::channel(PIECES);
        let decoded = cx
            .until_stopped(async {
                let (free, command, ()) = tokio::join!(
                    decode(&mut free, free_pipes, for_free, Scale::Shifted),
                    async {
                        match (command.as_mut(), command_pipes) {
                            (Some(program), Some(pipes)) => Some(decode(program, pipes, for_command, Scale::Plain).await),
                            _ => None,
                        }
                    },
                    take(audio, [to_free, to_command]),
                );
                // A broken command decoder is no reason to be deaf.
                Ok::<_, ProviderError>(verdict(command.and_then(Result::ok), free?))
            })
            .await;
        free.kill().await;
        if let Some(command) = command {
            command.kill().await;
        }
        let text = decoded??;
        cx.until_stopped(out.send(Transcript { text: text.into(), is_final: true })).await?
    }
}

/// Takes the audio of an utterance as fast as it comes and hands it to the decoders. The queues to them hold [`PIECES`] and,
/// by [`LONGEST`] and [`LONGEST_GAP`], a bounded number of samples.
async fn take(mut audio: AudioStream, decoders: [mpsc::Sender<Arc<[u8]>>; 2]) {
    let mut taken = 0;
    let mut floor = Floor::new();
    let mut give = |samples: &mut dyn Iterator<Item = f32>| {
        let bytes: Arc<[u8]> =
            samples.flat_map(|s| (((s + floor.sample()).clamp(-1.0, 1.0) * 32_767.0).round() as i16).to_le_bytes()).collect();
        for decoder in &decoders {
            // One that has ended early has said why in its own result. One that is a minute behind loses what it will never hear.
            let _ = decoder.try_send(bytes.clone());
        }
    };
    while let Some(piece) = audio.next().await {
        if taken >= LONGEST {
            continue;
        }
        let gap = piece.gap.min(LONGEST_GAP);
        taken += gap + piece.samples.len() as u64;
        give(&mut std::iter::repeat_n(0.0, gap as usize).chain(piece.samples));
    }
    give(&mut std::iter::repeat_n(0.0, TAIL));
}

/// The noise under an utterance: the same for each, so that the same sound gives the same words.
struct Floor(StdRng);

impl Floor {
    fn new() -> Self {
        Floor(StdRng::seed_from_u64(1))
    }

    fn sample(&mut self) -> f32 {
        // Four uniform variables of variance 1/3 each are near enough to a normal one.
        let sum: f32 = (0..4).map(|_| self.0.random_range(-1.0f32..1.0)).sum();
        sum * (3.0f32 / 4.0).sqrt() * FLOOR
    }
}

/// Runs one decoder over `audio` to its end.
async fn decode(
    program: &mut Program,
    pipes: Pipes,
    audio: mpsc::Receiver<Arc<[u8]>>,
    scale: Scale,
) -> Result<Decoding, ProviderError> {
    let Pipes { stdin, stdout, stderr } = pipes;
    let (_, text, log) = tokio::join!(feed(stdin, audio), drain(stdout), drain(stderr));
    let status = program.wait().await?;
    let text = text.map_err(|e| program.broke("answering", &e))?;
    let log = log.map_err(|e| program.broke("answering", &e))?;
    if !status.success() {
        // Its log may hold what was said; only what it complains about is looked at.
        if log.contains("Failed to open") || log.contains("No such file") || log.contains("must specify -hmm") {
            return Err(ProviderError::Unavailable { what: "the model of pocketsphinx".into(), help: HELP.into() });
        }
        return Err(ProviderError::Broken { why: format!("pocketsphinx ended with {status}"), retry: Retry::Later });
    }
    Ok(Decoding::read(&text, &log, scale))
}

/// Writes the audio and closes. A decoder that does not read any more is judged by how it ended.
async fn feed(mut stdin: ChildStdin, mut audio: mpsc::Receiver<Arc<[u8]>>) {
    while let Some(bytes) = audio.recv().await {
        if stdin.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads to the end and keeps the last [`LOG_BYTES`] at least.
async fn drain(mut from: impl AsyncRead + Unpin) -> std::io::Result<String> {
    let mut kept = Vec::new();
    while from.read_buf(&mut kept).await? > 0 {
        if kept.len() > 2 * LOG_BYTES {
            kept.drain(..kept.len() - LOG_BYTES);
        }
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

/// A grammar as a file, since the program reads it from one. The file goes with the value.
#[derive(Debug)]
struct Grammar {
    file: Result<PathBuf, String>,
}

impl Grammar {
    fn of(jsgf: &str) -> Self {
        // A name that nobody can have prepared, and only a file that did not exist.
        let path = std::env::temp_dir().join(format!("antiphon-{:016x}{:016x}.jsgf", rand::random::<u64>(), rand::random::<u64>()));
        let written = OpenOptions::new().write(true).create_new(true).open(&path).and_then(|mut f| f.write_all(jsgf.as_bytes()));
        Grammar { file: written.map(|()| path).map_err(|e| e.to_string()) }
    }

    fn path(&self) -> Result<&Path, ProviderError> {
        self.file.as_deref().map_err(|e| ProviderError::Unavailable {
            what: "a file for the commands".into(),
            help: format!("the folder for temporary files must be writable: {e}"),
        })
    }
}

impl Drop for Grammar {
    fn drop(&mut self) {
        if let Ok(path) = &self.file {
            // It may have been cleaned away already.
            let _ = fs::remove_file(path);
        }
    }
}
