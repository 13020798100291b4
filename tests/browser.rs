//! A real browser speaks with the real server and interrupts it: recorded human voices are its microphone, and what it hears is
//! captured and judged by samples alone, beside what the engine reports.
//!
//! Needs Chromium and chromedriver, espeak-ng and pocketsphinx; without them it fails and says what to install.
//! The run takes real time, about two minutes, and prints a table: `cargo test --test browser -- --nocapture`.

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::browser::{Browser, pause};
use support::clips::{self, Spoken};
use support::served::Served;
use support::signal::{find, likeness, resample_roughly};
use support::speech;
use support::table::{percentile, render};
use support::tail::{first_sounding, last_sounding, peak_dbfs, speaks_before};
use support::witness::Witness;

/// Voice and speed of the synthesizer, given to the server and to the comparison alike.
const VOICE: &str = "en-us";
const SPEED: &str = "160";
/// Silence before the question: connecting takes place in it.
const LEAD_S: f64 = 6.0;
/// From the end of one utterance to the start of the next: end of turn, recognition and synthesis, and then two or three seconds of answer.
const GAP_S: f64 = 5.5;
/// What the recogniser makes of a sentence may be answered in a word or two, and then the next utterance interrupts nothing. So there
/// are this many more utterances than barge-ins wanted.
const SPARES: usize = 4;
/// Voices of `assets/audio` that interrupt, the spare one included.
const VOICES: usize = 11;
/// Barge-ins that a run must have; `ANTIPHON_BARGE_INS` asks for more, for figures (`make tail`).
const WANTED: usize = 10;
/// How far the tail that the engine reports may lie from the one in the captured sound, milliseconds.
const AGREE_MS: f64 = 40.0;

#[tokio::test]
async fn the_pages_own_modules_keep_their_laws() {
    let browser = Browser::start(None).await;
    browser.client.goto("about:blank").await.expect("an empty page");
    let modules = [
        ("gate", include_str!("../assets/web/gate.js")),
        ("clock", include_str!("../assets/web/clock.js")),
        ("story", include_str!("../assets/web/story.js")),
        ("test", include_str!("web/page_test.js")),
    ];
    let mut script = String::from("const done = arguments[arguments.length - 1]; (async () => { const m = {};");
    for (name, source) in modules {
        let source = serde_json::to_string(source).expect("a text serialises");
        write!(script, "m.{name} = await import(URL.createObjectURL(new Blob([{source}], {{ type: 'text/javascript' }})));")
            .expect("to a String");
    }
    script.push_str(
        "return m.test.run(m) })().then(done, (e) => done({ passed: [], failed: [{ name: 'loading', why: String(e) }] }))",
    );
    let result = browser.client.execute_async(&script, Vec::new()).await.expect("the tests run");
    browser.close().await;
    let failed: Vec<String> =
        result["failed"].as_array().expect("a list").iter().map(|f| format!("{}: {}", f["name"], f["why"])).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(result["passed"].as_array().expect("a list").len() >= 20, "all tests ran: {result}");
}

#[tokio::test]
async fn without_a_microphone_one_can_type_and_stop() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let served = Served::start(&["--tts-voice", VOICE, "--tts-speed", SPEED], &folder.path().join("server.log"));
    let browser = Browser::start(None).await;
    browser.client.goto(&format!("{}/?mic=none", served.url)).await.expect("the page loads");
    browser.click("connect").await;
    browser.until(Duration::from_secs(20), "a connection", "return antiphon.state().connection === 'live'").await;
    browser
        .run("document.getElementById('text').value = 'tell me a long story'; document.getElementById('composer').requestSubmit()")
        .await;
    browser
        .until(Duration::from_secs(20), "the answer to sound", "return antiphon.state().turns.some((t) => t.audioAt !== null)")
        .await;
    browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))").await;
    browser.until(Duration::from_secs(20), "the turn to end", "return antiphon.state().turns.every((t) => t.ended)").await;
    let turns = browser.run("return JSON.parse(JSON.stringify(antiphon.state().turns))").await;
    assert_eq!(turns.as_array().map(Vec::len), Some(1), "{turns}");
    assert_eq!((&turns[0]["state"], &turns[0]["cause"]), (&"CANCELLED".into(), &"user".into()), "{turns}");
    let shown = browser.run("return [...document.querySelectorAll('.turn .chip')].map((c) => c.textContent).join()").await;
    assert_eq!(shown, "CANCELLED");
    let gate = browser.run("return antiphon.state().gate.barrier > 1").await;
    assert_eq!(gate, true, "the engine told the page to clear");
    browser.close().await;
}

#[tokio::test]
async fn ten_barge_ins_by_recorded_voices_each_silence_the_answer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wanted = std::env::var("ANTIPHON_BARGE_INS").map_or(WANTED, |n| n.parse().expect("ANTIPHON_BARGE_INS is a number"));
    let spoken = clips::schedule(clips::cast((wanted + SPARES).saturating_sub(VOICES)), LEAD_S, GAP_S);
    let mic = folder.path().join("mic.wav");
    clips::write_wav(&mic, &clips::microphone(&spoken, GAP_S + 1.0));

    let log = folder.path().join("server.log");
    let served = Served::start(&["--tts-voice", VOICE, "--tts-speed", SPEED], &log);
    let browser = Browser::start(Some(&mic)).await;
    // The voice must arrive as it was recorded: without the browser's own processing, whose start would shift the onsets.
    browser.client.goto(&format!("{}/?record=1&ec=0&ns=0&agc=0", served.url)).await.expect("the page loads");
    browser.run(include_str!("web/ear.js")).await;
    browser.click("connect").await;
    browser.until(Duration::from_secs(20), "a connection", "return antiphon.state().connection === 'live'").await;
    let end_s = spoken.last().expect("somebody speaks").end_s() + GAP_S;
    let script = format!("const r = antiphon.state(); return r.connection !== 'live' || antiphon.seconds() > {end_s}");
    browser.until(Duration::from_secs_f64(end_s + 60.0), "the end of the microphone file", &script).await;
    assert_eq!(browser.run("return antiphon.state().connection").await, "live", "the connection lasted");
    let witness = Witness::of(&browser).await;
    browser.click("leave").await;
    pause(Duration::from_millis(300)).await; // the DELETE goes out
    browser.close().await;
    drop(served);

    keep_for_inspection(&witness, &log);
    judge(&witness, &spoken, wanted);
}

/// All that is required of the run. Collects every complaint before it fails, so that one run tells everything.
fn judge(witness: &Witness, spoken: &[Spoken], wanted: usize) {
    let rate = witness.rate;
    assert_eq!(rate, clips::MIC_RATE, "the page records at the rate of the microphone file");
    assert!(witness.ears.len() >= 10, "the microphone was found {} times in the recording", witness.ears.len());
    let mut complaints = Vec::new();
    let mut complain = |what: String| complaints.push(what);

    let starts = locate(witness, spoken);
    let barge_ins: Vec<(usize, &Value)> = witness.of_type("barge_in").collect();
    let mut rows = Vec::new();
    let mut pauses = 0;
    let mut apart = Vec::new();
    let (mut reported_ms, mut captured_ms, mut plain_ms) = (Vec::new(), Vec::new(), Vec::new());

    for (i, s) in spoken.iter().enumerate().skip(1) {
        let name = format!("barge-in {i} ({})", s.clip.file);
        let onset = starts[i] + (s.clip.voiced_onset_s * f64::from(rate)).round() as usize;
        let utterance_end = starts[i] + s.samples.len();
        let onset_us = witness.session_us(onset);
        if !speaks_before(&witness.heard, onset, 700, rate) || finished_near(witness, onset_us) {
            println!("{name}: began in silence, an ordinary turn");
            continue;
        }
        // The engine's own word on it.
        let near = |r: &Value| (r["event"]["onset"].as_f64().unwrap_or(f64::MAX) - onset_us).abs() < 500_000.0;
        let Some((place, barge_in)) = barge_ins.iter().find(|(_, r)| near(r)) else {
            complain(format!("{name}: missed; the engine has no barge-in near {onset_us} us"));
            continue;
        };
        let old = barge_in["turn"].as_u64().unwrap_or(0);
        for flaw in chain(witness, *place, old) {
            complain(format!("{name}: {flaw}"));
        }
        // The tail, by samples alone: old sound ends inside the utterance, because nothing new is said before its end.
        let Some(last) = last_sounding(&witness.heard, onset.saturating_sub(rate as usize), utterance_end) else {
            complain(format!("{name}: nothing old sounded near it, so there is no tail to measure"));
            continue;
        };
        let plain = (last as f64 - onset as f64) * 1e3 / f64::from(rate);
        let captured = witness.way_ms(onset) + plain + witness.path_ms(last);
        let silenced = witness.of_type("silenced").find(|(_, r)| r["turn"] == old && r["event"]["tail"].is_object());
        let Some(tail) = silenced.map(|(_, r)| &r["event"]["tail"]) else {
            complain(format!("{name}: no tail was reported"));
            continue;
        };
        let part = |name: &str| tail[name].as_f64().unwrap_or(f64::NAN) / 1e3;
        let reported = part("to_silence_us");
        // A cut that falls into a pause of the answer ends nothing that sounds: the engine then counts up to the moment the last
        // sample was handed over, and leaves nothing for the way down. That may be later than the last sound, never earlier.
        let in_pause = part("downstream_us") < 1.0 && reported > captured + AGREE_MS && reported <= part("to_cut_us");
        if (reported - captured).abs() > AGREE_MS && !in_pause {
            let what = format!("{name}: the engine reports {reported:.0} ms, the captured sound says {captured:.0} ms");
            if (reported - captured).abs() > 2.5 * AGREE_MS {
                complain(what);
            } else {
                apart.push(what);
            }
        }
        if tail["downstream_measured"] != true {
            complain(format!("{name}: the page's report of silence did not reach the tail"));
        }
        // Nothing old after it, until the new answer begins.
        let until = spoken.get(i + 1).map_or(witness.heard.len(), |_| starts[i + 1]);
        let next = first_sounding(&witness.heard, last + 1, until, rate);
        let quiet_to = next.unwrap_or(until);
        let peak = peak_dbfs(&witness.heard, last + rate as usize / 100, quiet_to.saturating_sub(rate as usize / 100));
        if peak > -60.0 {
            complain(format!("{name}: {peak:.0} dBFS between the cut and the new answer"));
        }
        let new = successor(witness, old);
        match (next, new) {
            (Some(next), Some(new)) if next >= utterance_end => {
                if let Some(flaw) = wrong_answer(witness, new, next, until) {
                    complain(format!("{name}: {flaw}"));
                }
            }
            (Some(next), _) if next < utterance_end => {
                complain(format!("{name}: something sounded again before the user had finished"))
            }
            _ => complain(format!("{name}: no new answer was heard")),
        }
        pauses += usize::from(in_pause);
        reported_ms.push(reported);
        captured_ms.push(captured);
        plain_ms.push(plain);
        let part = |name: &str| format!("{:.0}", part(name));
        rows.push(vec![
            i.to_string(),
            format!("{}{}", s.clip.speaker, if in_pause { " (pause)" } else { "" }),
            format!("{plain:.0}"),
            format!("{captured:.0}"),
            format!("{reported:.0}"),
            part("detect_us"),
            part("decide_us"),
            part("flush_us"),
            part("downstream_us"),
            part("to_cut_us"),
            format!("{:.0}", (onset_us - barge_in["event"]["onset"].as_f64().unwrap_or(f64::NAN)) / 1e3 - witness.way_ms(onset)),
        ]);
    }
    if let Some(flaw) = first_answer(witness, &starts, spoken) {
        complain(flaw);
    }
    if barge_ins.len() > rows.len() {
        complain(format!("the engine tells of {} barge-ins, {} were found in the sound", barge_ins.len(), rows.len()));
    }
    // Two real clocks on a shared machine: one report in five may be off, never most of them.
    if apart.len() * 5 > rows.len() {
        complain(format!("too many reports are more than {AGREE_MS} ms off:\n  {}", apart.join("\n  ")));
    }
    if rows.len() < wanted {
        complain(format!("only {} barge-ins could be measured, {wanted} are wanted", rows.len()));
    }

    let head = [
        "#",
        "speaker",
        "graph ms",
        "captured ms",
        "reported ms",
        "detect",
        "decide",
        "flush",
        "downstream",
        "to cut",
        "onset early",
    ];
    let figure = |v: &[f64], p| percentile(v, p).map_or("-".into(), |x| format!("{x:.0}"));
    println!("\n{}", render(&head, &rows));
    let ways: Vec<f64> = witness.ears.iter().map(|e| e.way_ms).collect();
    println!("graph: first voiced sample of the microphone in the page's audio graph to the last old sample behind its gate;");
    println!(
        "captured: with the ways from the microphone ({} ms, p50) and to the loudspeaker, as the browser times them.",
        figure(&ways, 50.0)
    );
    println!("{} reports more than {AGREE_MS} ms off, {pauses} cuts in a pause of the answer", apart.len());
    for (name, v) in [("graph", &plain_ms), ("captured", &captured_ms), ("reported", &reported_ms)] {
        println!("{name:>9}: p50 {} ms, p95 {} ms, of {}", figure(v, 50.0), figure(v, 95.0), v.len());
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(pauses <= rows.len() / 2, "{pauses} of the cuts fell into pauses: too few real tails for a comparison");
}

/// Whether an answer came to its own end around this time: then there was nothing left to interrupt.
fn finished_near(witness: &Witness, session_us: f64) -> bool {
    witness.of_type("turn_ended").any(|(_, r)| {
        let after = session_us - r["at"].as_f64().unwrap_or(f64::MAX);
        r["event"]["terminal"]["state"] == "COMPLETED" && (-300_000.0..1_000_000.0).contains(&after)
    })
}

/// Where each utterance starts in the recorded microphone: the first anywhere, the others where the schedule puts them from there.
fn locate(witness: &Witness, spoken: &[Spoken]) -> Vec<usize> {
    let rate = f64::from(witness.rate);
    let mut starts: Vec<usize> = Vec::new();
    for (i, s) in spoken.iter().enumerate() {
        let needle = &s.samples[..s.samples.len().min(38_400)];
        let (from, to) = match starts.first() {
            None => (0, witness.mic.len().min((rate * (LEAD_S + 20.0)) as usize)),
            Some(first) => {
                let wanted = first + ((s.start_s - spoken[0].start_s) * rate) as usize;
                (wanted.saturating_sub(24_000), wanted + 24_000 + needle.len())
            }
        };
        let (at, how) =
            find(needle, &witness.mic, from, to).unwrap_or_else(|| panic!("{}: the recording ends before it", s.clip.file));
        assert!(how > 0.8, "utterance {i} ({}) is not in the recorded microphone: best correlation {how}", s.clip.file);
        starts.push(at);
    }
    starts
}

/// What is wrong with the chain of one barge-in as the data channel told it.
fn chain(witness: &Witness, place: usize, old: u64) -> Vec<String> {
    let mut flaws = Vec::new();
    let barge_in = &witness.records[place];
    let raised = witness.of_type("generation_raised").find(|(_, r)| r["seq"].as_u64() > Some(0) && r["at"] == barge_in["at"]);
    let Some((_, raised)) = raised else {
        return vec!["no generation was raised with it".into()];
    };
    let from = &raised["event"]["from"];
    if raised["generation"].as_u64() != from.as_u64().map(|g| g + 1) {
        flaws.push(format!("the generation went from {from} to {}", raised["generation"]));
    }
    let message = |kind: &str| witness.messages.iter().position(|m| m["type"] == kind && m["generation"] == *from);
    match (message("hold"), message("clear")) {
        (Some(hold), Some(clear)) if hold < clear => {}
        (hold, clear) => {
            flaws.push(format!("hold, then clear of generation {from} did not come in this order: {hold:?}, {clear:?}"))
        }
    }
    let later = |kind: &'static str| {
        witness.of_type(kind).filter(move |(i, r)| *i + 40 > place && r["at"].as_u64() >= barge_in["at"].as_u64())
    };
    if !later("cancel_requested").any(|(_, r)| r["turn"] == old && r["event"]["cause"] == "barge_in") {
        flaws.push(format!("turn {old} was not asked to cancel because of it"));
    }
    let ends: Vec<&Value> = witness.of_type("turn_ended").map(|(_, r)| r).filter(|r| r["turn"] == old).collect();
    match ends[..] {
        [end] if end["event"]["terminal"]["state"] == "CANCELLED" && end["event"]["terminal"]["cause"] == "barge_in" => {
            let reply = witness.reply(old);
            let told = format!(
                "{}{}",
                end["event"]["heard"].as_str().unwrap_or_default(),
                end["event"]["unheard"].as_str().unwrap_or_default()
            );
            if told != reply {
                flaws.push(format!("heard and unheard of turn {old} are not its answer"));
            }
        }
        _ => flaws.push(format!("turn {old} did not end once as CANCELLED(barge_in): {ends:?}")),
    }
    if successor(witness, old).is_none() {
        flaws.push(format!("no turn has {old} as its parent"));
    }
    let late = later("reply_text").filter(|(i, r)| *i > place && r["turn"] == old).count();
    if late > 0 {
        flaws.push(format!("{late} pieces of the old answer were delivered after it"));
    }
    flaws
}

/// The turn that interrupted `old`.
fn successor(witness: &Witness, old: u64) -> Option<u64> {
    witness.of_type("turn_accepted").find(|(_, r)| r["event"]["parent"] == old).and_then(|(_, r)| r["turn"].as_u64())
}

/// The answer to the question: it is speech, and it is what the synthesizer makes of the words in the records.
fn first_answer(witness: &Witness, starts: &[usize], spoken: &[Spoken]) -> Option<String> {
    let rate = witness.rate;
    let (from, to) = (starts[0] + spoken[0].samples.len(), starts[1]);
    let Some(begin) = first_sounding(&witness.heard, from, to, rate) else {
        return Some("the question was not answered by voice".into());
    };
    let judged = speech::judge(&witness.heard[begin..to], rate);
    if !judged.is_speech() {
        return Some(format!("what was heard as the first answer is not speech: {judged:?}"));
    }
    let turn = witness.of_type("turn_started").next().and_then(|(_, r)| r["turn"].as_u64())?;
    wrong_answer(witness, turn, begin, to)
}

/// What is wrong with the answer of `turn`, heard from `begin` on: it must sound like its own words and unlike others.
fn wrong_answer(witness: &Witness, turn: u64, begin: usize, until: usize) -> Option<String> {
    let rate = witness.rate;
    let reply = witness.reply(turn);
    let heard = &witness.heard[begin..until.min(begin + 3 * rate as usize)];
    if heard.len() < rate as usize {
        return None; // the recogniser took its time, and too little of the answer was heard to judge it by
    }
    let slack = 30;
    let own = likeness(&speak(&reply, rate)[..], heard, rate, slack);
    let other = likeness(
        &speak("Quite another sentence, which nobody has said here, with commas, and with a rhythm of its own.", rate),
        heard,
        rate,
        slack,
    );
    (own < 0.6 || own < other + 0.1)
        .then(|| format!("answer {turn} does not sound like its words: {own:.2}, other words {other:.2}"))
}

/// The synthesizer's own sound of a text at `rate`, from its first sound on.
fn speak(text: &str, rate: u32) -> Vec<f32> {
    let out = Command::new("espeak-ng")
        .args(["--stdout", "-b", "1", "-v", VOICE, "-s", SPEED, "--", text])
        .output()
        .expect("this test needs espeak-ng: `apt-get install -y espeak-ng`");
    // The header gives no true length when written to a pipe: 44 bytes, then samples of 16 bits at 22,050 Hz.
    let pcm: Vec<f32> = out
        .stdout
        .get(44..)
        .unwrap_or_default()
        .chunks_exact(2)
        .map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32_768.0)
        .collect();
    let there = resample_roughly(&pcm, 22_050, rate);
    let begin = first_sounding(&there, 0, there.len(), rate).unwrap_or(0);
    there[begin..].to_vec()
}

/// With BROWSER_TEST_KEEP=FOLDER the run's sound, messages and server log are left there.
fn keep_for_inspection(witness: &Witness, log: &Path) {
    let Some(folder) = std::env::var_os("BROWSER_TEST_KEEP").map(std::path::PathBuf::from) else { return };
    clips::write_wav(&folder.join("mic.wav"), &witness.mic);
    clips::write_wav(&folder.join("heard.wav"), &witness.heard);
    let all = serde_json::json!({ "log": witness.log, "state": witness.state, "offset_ms": witness.offset_ms });
    std::fs::write(folder.join("run.json"), all.to_string()).expect("the folder can be written");
    std::fs::copy(log, folder.join("server.log")).expect("the folder can be written");
}
