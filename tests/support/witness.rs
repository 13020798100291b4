//! What the page saw and heard in one run: messages with their times, and two channels of samples on one count of frames.

use serde_json::Value;

use super::browser::{Browser, base64};
use super::signal::{find, resample_roughly};

/// Everything the page kept.
pub(crate) struct Witness {
    /// Wire messages in order of arrival, engine to page.
    pub(crate) messages: Vec<Value>,
    /// Records in order.
    pub(crate) records: Vec<Value>,
    /// What the gate did: each time it fell shut, with the way from the gate to the loudspeaker in milliseconds.
    pub(crate) shuts: Vec<Shut>,
    /// Samples per second of both channels.
    pub(crate) rate: u32,
    /// The microphone, as the page got it.
    pub(crate) mic: Vec<f32>,
    /// What passed the gate to the loudspeaker.
    pub(crate) heard: Vec<f32>,
    /// Where the two clocks and the microphone stood, every three seconds.
    pub(crate) ears: Vec<Ear>,
    /// Session time less page time, milliseconds.
    pub(crate) offset_ms: f64,
    /// The page's whole log, with its own times.
    pub(crate) log: Vec<Value>,
    /// The page's own state at the end.
    pub(crate) state: Value,
}

/// One shutting of the gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shut {
    /// Index, in the recording, after the last sample that sounded.
    pub(crate) last: i64,
    /// From the gate to the loudspeaker, milliseconds, as the browser states it.
    pub(crate) path_ms: f64,
}

/// One listening of `tests/web/ear.js`, found again in the recorded microphone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ear {
    /// Index in the recording at which it was found.
    pub(crate) index: usize,
    /// Page time at which sample 0 of the recording passed the gate, by the clocks of that moment, milliseconds.
    pub(crate) zero_ms: f64,
    /// From the capture of a sample (by the browser's own timestamp) to its arrival in the audio graph, milliseconds.
    pub(crate) way_ms: f64,
}

impl Witness {
    /// Asks the page for all of it.
    pub(crate) async fn of(browser: &Browser) -> Witness {
        let state = browser.run("return JSON.parse(JSON.stringify(antiphon.state()))").await;
        let log = browser.run("return JSON.parse(JSON.stringify(antiphon.log()))").await;
        let shape = browser
            .run(
                "window.__r = antiphon.recording();
                 return { rate: __r.rate, frame: __r.frame, length: __r.mic.length, offset: antiphon.session_micros(0) / 1000, ears: window.ear ?? [] }",
            )
            .await;
        let rate = shape["rate"].as_u64().expect("a rate") as u32;
        let first = shape["frame"].as_i64().expect("a frame");
        let length = shape["length"].as_u64().expect("a length") as usize;
        let log = log.as_array().expect("a list").clone();
        let received = log.iter().filter(|l| l["dir"] == "in").map(|l| l["message"].clone());
        let messages: Vec<Value> = received.collect();
        let records = messages.iter().filter(|m| m["type"] == "record").map(|m| m["record"].clone()).collect();
        let shuts = log.iter().filter(|l| l["dir"] == "gate").map(|l| &l["message"]["shut"]).filter(|s| s.is_object());
        let shuts = shuts
            .map(|s| Shut { last: s["sounding"].as_i64().unwrap_or(0) - first, path_ms: s["path_ms"].as_f64().unwrap_or(0.0) });
        let mic = channel(browser, "mic", length).await;
        let ears = shape["ears"].as_array().into_iter().flatten().filter_map(|e| place(e, &mic, first, rate)).collect();
        Witness {
            records,
            shuts: shuts.collect(),
            rate,
            heard: channel(browser, "heard", length).await,
            ears,
            mic,
            offset_ms: shape["offset"].as_f64().expect("the page knows session time"),
            state,
            messages,
            log,
        }
    }

    /// Records of one kind, with their place in the list.
    pub(crate) fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (usize, &'a Value)> + 'a {
        self.records.iter().enumerate().filter(move |(_, r)| r["event"]["type"] == kind)
    }

    /// Session time in microseconds at which the sample at `index` passed the gate.
    pub(crate) fn session_us(&self, index: usize) -> f64 {
        (self.ear(index).zero_ms + index as f64 * 1e3 / f64::from(self.rate) + self.offset_ms) * 1e3
    }

    /// From the capture of the microphone's sample at `index` to its arrival in the graph, milliseconds.
    pub(crate) fn way_ms(&self, index: usize) -> f64 {
        self.ear(index).way_ms
    }

    /// The listening nearest to `index`.
    fn ear(&self, index: usize) -> Ear {
        *self.ears.iter().min_by_key(|e| e.index.abs_diff(index)).expect("the microphone was listened to")
    }

    /// The whole answer of a turn as the model said it.
    pub(crate) fn reply(&self, turn: u64) -> String {
        self.of_type("reply_text").filter(|(_, r)| r["turn"] == turn).filter_map(|(_, r)| r["event"]["delta"].as_str()).collect()
    }

    /// Milliseconds from the gate to the loudspeaker at the shutting whose last sample is nearest to `index`.
    pub(crate) fn path_ms(&self, index: usize) -> f64 {
        self.shuts.iter().min_by_key(|s| s.last.abs_diff(index as i64)).map_or(0.0, |s| s.path_ms)
    }
}

/// Finds one listening in the recorded microphone; `None` when it is not there (before the recording began).
fn place(ear: &Value, mic: &[f32], first: i64, rate: u32) -> Option<Ear> {
    let samples: Vec<f32> = ear["samples"].as_array()?.iter().filter_map(|v| v.as_f64().map(|v| v as f32)).collect();
    let needle = resample_roughly(&samples, ear["rate"].as_u64()? as u32, rate);
    let per_ms = f64::from(rate) / 1e3;
    let zero_ms = ear["zero"].as_f64()? + first as f64 / per_ms;
    let timestamp = ear["timestamp"].as_f64()?;
    let expected = ((timestamp - zero_ms) * per_ms).max(0.0) as usize;
    let reach = rate as usize / 5;
    let (index, how) = find(&needle, mic, expected.saturating_sub(reach), expected + reach + needle.len())?;
    (how > 0.6).then(|| Ear { index, zero_ms, way_ms: zero_ms + index as f64 / per_ms - timestamp })
}

/// One channel of the recording, fetched ten seconds at a time.
async fn channel(browser: &Browser, name: &str, length: usize) -> Vec<f32> {
    const PIECE: usize = 480_000;
    let mut samples = Vec::with_capacity(length);
    for from in (0..length).step_by(PIECE) {
        let script = format!(
            "const part = __r.{name}.slice({from}, {});
             const bytes = new Uint8Array(part.buffer);
             let text = '';
             for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
             return btoa(text)",
            from + PIECE
        );
        let text = browser.run(&script).await;
        let bytes = base64(text.as_str().expect("a text"));
        samples.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    }
    assert_eq!(samples.len(), length, "the whole channel arrived");
    samples
}
