//! The offline voices as they are: espeak-ng speaks, pocketsphinx listens, and neither leaves a process behind.
//!
//! Needs the Debian packages espeak-ng, pocketsphinx and pocketsphinx-en-us. How long things take depends on the machine and is not
//! judged here; a hang fails by the suite's own limits.

use std::path::Path;
use std::sync::Arc;

use antiphon::event::Timing;
use antiphon::provider::llm::Brain;
use antiphon::provider::pace::Pace;
use antiphon::provider::stt::Pocketsphinx;
use antiphon::provider::tts::Espeak;
use antiphon::provider::{
    AudioStream, Chunk, Heard, Llm, Message, Piece, Prompt, ProviderError, Sink, Stt, TaskCx, Transcript, Tts, Words, check,
};
use antiphon::time::{RuntimeClock, Stamp};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

type Task = JoinHandle<Result<(), ProviderError>>;

fn cx(stop: &CancellationToken) -> TaskCx {
    TaskCx::new(Arc::new(RuntimeClock::start()), Stamp::MAX, stop.clone())
}

fn speak(tts: Espeak, text: &str, stop: &CancellationToken) -> (Receiver<Chunk>, Task) {
    let (give, words) = Words::new(1);
    give.try_send(text.into()).expect("room for one");
    let (out, chunks) = Sink::new(1);
    let cx = cx(stop);
    (chunks, tokio::spawn(async move { tts.speak(words, out, cx).await }))
}

async fn spoken(tts: Espeak, text: &str) -> Vec<Chunk> {
    let (mut from, task) = speak(tts, text, &CancellationToken::new());
    let mut chunks = Vec::new();
    while let Some(chunk) = from.recv().await {
        chunks.push(chunk);
    }
    task.await.expect("no panic").expect("it speaks");
    chunks
}

/// Sound at 22.05 kHz made into sound at 16 kHz with silence around it, as an utterance comes from the microphone.
fn as_utterance(chunks: &[Chunk]) -> Vec<f32> {
    let sound: Vec<f32> = chunks.iter().flat_map(|c| c.samples.iter().copied()).collect();
    // A moving mean over two samples and linear interpolation: crude, and enough for speech.
    let smooth: Vec<f32> = sound.windows(2).map(|w| (w[0] + w[1]) / 2.0).collect();
    let at = |t: f64| {
        let (k, part) = (t as usize, t.fract() as f32);
        let get = |k: usize| smooth.get(k).copied().unwrap_or(0.0);
        get(k) * (1.0 - part) + get(k + 1) * part
    };
    let length = smooth.len() * 16_000 / 22_050;
    let quiet = std::iter::repeat_n(0.0, 4_800);
    quiet.clone().chain((0..length).map(|k| at(k as f64 * 22_050.0 / 16_000.0))).chain(quiet).collect()
}

async fn heard(stt: &Pocketsphinx, sound: &[f32]) -> String {
    let (mic, audio) = AudioStream::new(1_024);
    let (out, mut from) = Sink::new(4);
    let (stt, cx) = (stt.clone(), cx(&CancellationToken::new()));
    let task = tokio::spawn(async move { stt.listen(audio, out, cx).await });
    for piece in sound.chunks(160) {
        mic.send(Heard { samples: piece.to_vec(), gap: 0 }).await.expect("it listens");
    }
    drop(mic);
    let Transcript { text, is_final } = from.recv().await.expect("a transcript");
    assert!(is_final && from.recv().await.is_none(), "one final transcript");
    task.await.expect("no panic").expect("it listens");
    text.into_revealed()
}

/// The names of this process' children, the dead ones that nobody has reaped among them.
fn children() -> Vec<String> {
    let me = format!("PPid:\t{}\n", std::process::id());
    let status = |pid: &Path| std::fs::read_to_string(pid.join("status")).unwrap_or_default();
    std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| Some(status(&entry.ok()?.path())).filter(|s| s.contains(&me)))
        .map(|s| s.lines().next().unwrap_or_default().to_owned())
        .collect()
}

/// Waits until the program called `name` runs as a child; a test that never sees it ends by the test runner's limit.
async fn until_child(name: &str) {
    while !children().iter().any(|c| c.contains(name)) {
        tokio::task::yield_now().await;
    }
}

// The suites run one after the other in one test: two cores, and limits that a loaded machine shall not reach.
#[tokio::test]
async fn the_offline_providers_keep_the_contract() {
    check::tts(Espeak::new()).await;
    check::llm(Brain::new()).await;
    check::stt(Pocketsphinx::new()).await;
    check::stt(Pocketsphinx::new().without_commands()).await;
}

#[tokio::test]
async fn espeak_speaks_every_character_in_small_chunks_and_pocketsphinx_hears_the_command() {
    let stt = Pocketsphinx::new();
    let said = ["What time is it?", "Tell me a story.", "Stop.", "Go on.", "Count to twenty.", "Slower.", "Repeat that."];
    let heard_as = ["what time is it", "tell me a story", "stop", "go on", "count to twenty", "slower", "repeat that"];
    let mut right = 0;
    for (text, want) in said.into_iter().zip(heard_as) {
        let chunks = spoken(Espeak::new().words_a_minute(150), text).await;
        assert_eq!(chunks.iter().map(|c| c.chars).sum::<usize>(), text.chars().count());
        assert!(chunks.iter().all(|c| c.samples.len() <= 2_205 && c.timing == Timing::Estimated), "at most 100 ms each");
        let got = heard(&stt, &as_utterance(&chunks)).await;
        println!("{text} heard as: {got}");
        right += usize::from(got == want);
    }
    // It is no good recogniser, but it must hear nearly all of what the built-in dialogue lives on.
    assert!(right >= 6, "{right} of 7");
    assert_eq!(heard(&stt, &[0.0; 16_000]).await, "", "silence has no words");
}

#[tokio::test]
async fn what_is_no_command_is_heard_with_free_words() {
    let clip = Path::new("../shared/audio/sources/speech/arctic_aew_a0003.flac");
    let sentence = "The old man and the woman looked at the water for a very long time that evening.";
    // A person, where the shared recordings are at hand and sox can read them; else a synthetic voice, of which free words get
    // little right, but which must not be taken for a command.
    let sox =
        std::process::Command::new("sox").arg(clip).args(["-t", "raw", "-e", "signed", "-b", "16", "-r", "16000", "-"]).output();
    let (sound, words): (Vec<f32>, &[&str]) = match sox {
        Ok(out) if out.status.success() => {
            let sound = out.stdout.chunks_exact(2).map(|s| f32::from(i16::from_le_bytes([s[0], s[1]])) / 32_768.0).collect();
            (sound, &["twentieth", "time", "evening", "men", "hands"])
        }
        _ => (as_utterance(&spoken(Espeak::new().words_a_minute(140), sentence).await), &[]),
    };
    let text = heard(&Pocketsphinx::new(), &sound).await;
    assert!(text.split(' ').count() >= 8, "a sentence, not a command: {text}");
    let right = words.iter().filter(|w| text.split(' ').any(|h| h == **w)).count();
    assert!(right * 2 >= words.len(), "heard: {text}");
}

#[tokio::test]
async fn a_pace_mark_changes_how_long_it_takes_and_is_not_spoken() {
    let length = async |text: &str| spoken(Espeak::new(), text).await.iter().map(|c| c.samples.len()).sum::<usize>();
    let sentence = "This is said at some pace.";
    let usual = length(sentence).await;
    let slow = length(&format!("{}{sentence}", Pace::Slower.mark())).await;
    let fast = length(&format!("{}{sentence}", Pace::Fastest.mark())).await;
    assert!(slow * 10 > usual * 12 && fast * 10 < usual * 8, "{slow} {usual} {fast}");
    assert_eq!(length(&format!("{}{sentence}", Pace::Usual.mark())).await, usual);
}

#[tokio::test]
async fn a_story_lasts_longer_than_a_minute() {
    let (out, mut from) = Sink::<Piece>::new(1_024);
    let stop = CancellationToken::new();
    let brain = Brain::new().token_every(std::time::Duration::ZERO);
    let (reply, text) = tokio::join!(brain.reply(Prompt::new(vec![Message::user("tell me a story")]), out, cx(&stop)), async {
        let mut text = String::new();
        while let Some(piece) = from.recv().await {
            text.push_str(piece.words());
        }
        text
    });
    reply.expect("it answers");
    let seconds = spoken(Espeak::new(), &text).await.iter().map(|c| c.samples.len()).sum::<usize>() / 22_050;
    assert!(seconds >= 60, "{seconds} s");
}

// Each test is a process of its own under nextest; under plain `cargo test` other tests' children must not be counted, so
// everything about processes is one test that looks for its own kind by turns.
#[tokio::test]
async fn a_stop_leaves_no_process_and_no_zombie() {
    // One that would run for ever: what espeak is told to be is a program that ignores its input.
    let folder = tempfile::tempdir().expect("a folder");
    let stuck = folder.path().join("stuck-voice");
    std::fs::write(&stuck, "#!/bin/sh\nexec sleep 1000\n").expect("written");
    let mut mode = std::fs::metadata(&stuck).expect("there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&stuck, mode).expect("executable");
    let stop = CancellationToken::new();
    let (_chunks, task) = speak(Espeak::new().program(&stuck), "Hello. ", &stop);
    until_child("sleep").await;
    stop.cancel();
    assert!(matches!(task.await.expect("no panic"), Err(ProviderError::Stopped)));
    assert!(!children().iter().any(|c| c.contains("sleep")), "{:?}", children());

    let (mic, audio) = AudioStream::new(4);
    let (out, _from) = Sink::new(4);
    let stop = CancellationToken::new();
    let listening = cx(&stop);
    let task = tokio::spawn(async move { Pocketsphinx::new().listen(audio, out, listening).await });
    mic.send(Heard { samples: vec![0.1; 160], gap: 0 }).await.expect("it listens");
    until_child("pocketsphinx").await;
    stop.cancel();
    assert!(matches!(task.await.expect("no panic"), Err(ProviderError::Stopped)));
    assert!(!children().iter().any(|c| c.contains("pocketsphinx")), "{:?}", children());

    // Aborted instead of asked: the runtime kills it and reaps it soon after.
    let (_chunks, task) = speak(Espeak::new().program(&stuck), "Hello. ", &CancellationToken::new());
    until_child("sleep").await;
    task.abort();
    assert!(task.await.expect_err("aborted").is_cancelled());
    while children().iter().any(|c| c.contains("sleep")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_missing_program_or_voice_says_what_to_do() {
    let missing = |e: ProviderError| match e {
        ProviderError::Unavailable { what, help } => (what, help),
        other => panic!("{other}"),
    };
    let (what, help) = missing(Espeak::new().program("/nonexistent/espeak-ng").probe().await.expect_err("it is missing"));
    assert!(what == "espeak-ng" && help.contains("apt-get install espeak-ng"), "{what}: {help}");
    let (_, task) = speak(Espeak::new().program("/nonexistent/espeak-ng"), "Hello. ", &CancellationToken::new());
    missing(task.await.expect("no panic").expect_err("it is missing"));
    let (_, help) = missing(Pocketsphinx::new().program("/nonexistent/ps").probe().await.expect_err("it is missing"));
    assert!(help.contains("apt-get install pocketsphinx pocketsphinx-en-us"), "{help}");
    let voice = Espeak::new().voice("qq-unknown").probe().await.expect_err("no such voice");
    assert!(matches!(&voice, ProviderError::Refused { why } if why.contains("qq-unknown")), "{voice}");
    Espeak::new().probe().await.expect("espeak-ng is installed");
    Pocketsphinx::new().probe().await.expect("pocketsphinx is installed");
}
