//! The microphone chain: what the recogniser hears, and what the detectors make of it.
//!
//! ```text
//! microphone 48 kHz ─ declick ─ gain ─ high-pass ─┬─ resample 16 kHz ─┬─ out, for the recogniser
//!                                                 │                   └─ vad
//!                                                 ├─ meter
//! played 48 kHz ────────────────────────────────── └─ echo
//! ```
//!
//! Owned by the pump, one per session. Evidence comes for each block with something in it and for half a second after; silence gives none.

use super::compile::compile;
use super::evidence::{Sense, weight};
use super::graph::{Graph, GraphError, NodeId};
use super::node::declick::Declick;
use super::node::echo::Echo;
use super::node::gain::Gain;
use super::node::highpass::HighPass;
use super::node::meter::Meter;
use super::node::resample::Resample;
use super::node::vad::Vad;
use super::process::{Processor, SwapError, Swapper, processor};
use crate::time::{BEAT, BLOCK_SAMPLES, HOUSE_RATE, SampleRate, Stamp};

/// Samples of one block at the recogniser's rate, 16 kHz.
pub const STT_SAMPLES: usize = 160;

/// What the detectors made of one block of microphone sound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VoiceEvidence {
    /// Capture time of the end of the block.
    pub at: Stamp,
    /// Estimated first sample of the present stretch of sound, by level over the noise floor.
    pub since: Stamp,
    /// Speech probability, 0..=1.
    pub speech: f32,
    /// The fast, credulous detector's word.
    pub quick: bool,
    /// Level of the block, dB relative to full scale.
    pub level_dbfs: f32,
    /// Learned noise floor, dB relative to full scale.
    pub noise_dbfs: f32,
    /// How far the block is explained by what we play ourselves, 0..=1.
    pub explained: f32,
    /// The block's share of a sure voice, 0 to slightly above 1 ([`weight`]). Evidence that was merged has the sum.
    pub weight: f32,
}

/// One block through the chain.
#[derive(Debug)]
pub struct MicBlock<'a> {
    /// For the recogniser: 10 ms at 16 kHz, 2.5 ms later than it went in.
    pub stt: &'a [f32; STT_SAMPLES],
    /// What the detectors made of it; `None` is silence.
    pub voice: Option<VoiceEvidence>,
}

/// The chain. Real-time manners in [`MicChain::process`].
pub struct MicChain {
    processor: Processor,
    nodes: Nodes,
    mic: [f32; BLOCK_SAMPLES],
    stt: [f32; STT_SAMPLES],
    sense: Sense,
    /// Blocks for which evidence is still given.
    telling: u32,
}

/// The nodes that are read or replaced.
#[derive(Clone, Copy)]
struct Nodes {
    gain: NodeId,
    vad: NodeId,
    meter: NodeId,
    echo: NodeId,
}

/// The control side of a chain: changes it while it runs. Not for the audio thread.
pub struct MicControl {
    graph: Graph,
    swapper: Swapper,
    nodes: Nodes,
    gain: Gain,
}

/// Corner of the high-pass, Hz: below any voice.
const CORNER_HZ: f32 = 80.0;
/// Blocks with evidence after the last one with something in it: 500 ms.
const TELL_AFTER: u32 = 50;
/// The quick detector's word counts as something from this far above the noise floor, dB.
const QUICK_OVER_DB: f64 = 3.0;

impl Default for MicChain {
    fn default() -> Self {
        Self::new()
    }
}

impl MicChain {
    /// A chain with gain 0 dB.
    pub fn new() -> Self {
        Self::controlled().0
    }

    /// A chain with its control side.
    pub fn controlled() -> (MicChain, MicControl) {
        let gain = Gain::new(HOUSE_RATE, 0.0);
        let (graph, nodes) = standard(gain).expect("the standard graph is sound");
        let (processor, swapper) = processor(compile(&graph).expect("the standard graph has no open input"));
        let chain =
            MicChain { processor, nodes, mic: [0.0; BLOCK_SAMPLES], stt: [0.0; STT_SAMPLES], sense: Sense::Speech, telling: 0 };
        (chain, MicControl { graph, swapper, nodes, gain })
    }

    /// The same, taking for a voice what `sense` says. Default [`Sense::Speech`].
    #[must_use]
    pub fn sensing(mut self, sense: Sense) -> Self {
        self.sense = sense;
        self
    }

    /// Takes 10 ms from the microphone, the first sample of which was captured at `at`, and what was played in the same beat.
    pub fn process(&mut self, at: Stamp, block: &[f32; BLOCK_SAMPLES], played: &[f32; BLOCK_SAMPLES]) -> MicBlock<'_> {
        // Whatever a decoder or driver hands in: a value that is no number would stay in the filters for ever.
        for (to, x) in self.mic.iter_mut().zip(block) {
            *to = if x.is_finite() { x.clamp(-4.0, 4.0) } else { 0.0 };
        }
        self.processor.process(&[&self.mic, played], &mut [&mut self.stt]);
        let voice = self.evidence(at + BEAT);
        MicBlock { stt: &self.stt, voice }
    }

    fn evidence(&mut self, end: Stamp) -> Option<VoiceEvidence> {
        let read = |node, reading| self.processor.reading(node, reading).expect("the standard graph has this reading");
        let (level, floor) = (read(self.nodes.meter, Meter::LEVEL), read(self.nodes.meter, Meter::FLOOR));
        let quick = read(self.nodes.vad, Vad::QUICK) != 0.0;
        let sound = read(self.nodes.meter, Meter::SOUND) != 0.0 || (quick && level > floor + QUICK_OVER_DB);
        self.telling = if sound { TELL_AFTER } else { self.telling.checked_sub(1)? };
        let (speech, explained) = (read(self.nodes.vad, Vad::SPEECH) as f32, read(self.nodes.echo, Echo::EXPLAINED) as f32);
        Some(VoiceEvidence {
            at: end,
            since: end.back(HOUSE_RATE.duration_of(read(self.nodes.meter, Meter::SINCE) as u64)),
            speech,
            quick,
            level_dbfs: level as f32,
            noise_dbfs: floor as f32,
            explained,
            weight: weight(self.sense, speech, (level - floor) as f32, explained),
        })
    }
}

impl MicControl {
    /// Sets the gain, in dB; the chain goes there in 5 ms, within its next block. Everything it has learned stays.
    ///
    /// # Errors
    /// [`SwapError::Full`] when the chain has not run since several changes.
    pub fn set_gain(&mut self, db: f32) -> Result<(), SwapError> {
        let gain = self.gain.going_to(db);
        self.graph.replace(self.nodes.gain, gain).expect("a gain has the ports of a gain");
        self.swapper.swap(compile(&self.graph).expect("the standard graph has no open input"))?;
        self.gain = gain;
        Ok(())
    }
}

/// The graph at the head of this file.
fn standard(gain: Gain) -> Result<(Graph, Nodes), GraphError> {
    let mut graph = Graph::new();
    let mic = graph.add_input(HOUSE_RATE)?;
    let played = graph.add_input(HOUSE_RATE)?;
    let declick = graph.add(Declick { rate: HOUSE_RATE })?;
    let gain = graph.add(gain)?;
    let highpass = graph.add(HighPass { rate: HOUSE_RATE, corner_hz: CORNER_HZ })?;
    let resample = graph.add(Resample { from: HOUSE_RATE, to: SampleRate::HZ_16000 })?;
    let vad = graph.add(Vad)?;
    let meter = graph.add(Meter)?;
    let echo = graph.add(Echo)?;
    let stt = graph.add_output(SampleRate::HZ_16000)?;
    for (from, to, port) in [
        (mic, declick, 0),
        (declick, gain, 0),
        (gain, highpass, 0),
        (highpass, resample, 0),
        (highpass, meter, 0),
        (highpass, echo, 0),
        (played, echo, 1),
        (resample, vad, 0),
        (resample, stt, 0),
    ] {
        graph.connect((from, 0), (to, port))?;
    }
    Ok((graph, Nodes { gain, vad, meter, echo }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something between noise and a voice: a buzz of 140 Hz through two resonances, in syllables of 200 ms with 60 ms between.
    struct Voice {
        state: u64,
        r1: [f32; 2],
        r2: [f32; 2],
    }

    impl Voice {
        fn new() -> Self {
            Voice { state: 7, r1: [0.0; 2], r2: [0.0; 2] }
        }

        fn hiss(&mut self) -> f32 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        }

        fn resonate(y: &mut [f32; 2], x: f32, hz: f32) -> f32 {
            let (r, c) = (0.985, (std::f32::consts::TAU * hz / 48_000.0).cos());
            let out = x * (1.0 - r) + 2.0 * r * c * y[0] - r * r * y[1];
            *y = [out, y[0]];
            out
        }

        /// Sample `n` of the session; it speaks from `from` on, over a floor of -62 dB.
        fn sample(&mut self, n: usize, from: usize) -> f32 {
            let noise = self.hiss() * 0.0014;
            let t = n.saturating_sub(from);
            if n < from || (t / 480) % 26 >= 20 {
                return noise;
            }
            // The pitch moves, as that of a voice does.
            let period = 343 - (t / 4_800 % 7) * 9;
            let pulse = if t.is_multiple_of(period) { 24.0 } else { 0.0 };
            let vowel = [(700.0, 1_200.0), (400.0, 2_000.0), (500.0, 900.0)][(t / 12_480) % 3];
            let open = Self::resonate(&mut self.r1, pulse, vowel.0);
            noise + (open + Self::resonate(&mut self.r2, pulse, vowel.1) * 0.5) * 0.5
        }
    }

    fn run(chain: &mut MicChain, blocks: std::ops::Range<u64>, mut sample: impl FnMut(usize) -> f32) -> Vec<Option<VoiceEvidence>> {
        blocks
            .map(|block| {
                let mic = std::array::from_fn(|i| sample(block as usize * BLOCK_SAMPLES + i));
                chain.process(Stamp::from_millis(block * 10), &mic, &[0.0; BLOCK_SAMPLES]).voice
            })
            .collect()
    }

    #[test]
    fn a_voice_is_believed_soon_and_traced_back_to_its_first_sample() {
        let from = 2 * 48_000 + 123;
        let mut voice = Voice::new();
        let seen = run(&mut MicChain::new(), 0..400, |n| voice.sample(n, from));
        assert!(seen[150..200].iter().all(Option::is_none), "a quiet room gives no evidence");
        let onset = Stamp::from_micros(from as u64 * 1_000 / 48);
        let believed = seen.iter().flatten().find(|v| v.speech >= 0.5).expect("the voice is believed");
        assert!(believed.at.since(onset).as_millis() <= 150, "{believed:?}");
        let off = believed.since.as_micros().abs_diff(onset.as_micros());
        assert!(off <= 5_000, "the onset is off by {off} us");
        let first = seen.iter().flatten().find(|v| v.at > onset).expect("there is evidence");
        assert!(first.at.since(onset).as_millis() <= 20, "evidence comes before belief");
        assert!(believed.level_dbfs > believed.noise_dbfs + 20.0 && (believed.noise_dbfs + 62.0).abs() < 3.0, "{believed:?}");
        assert!(seen.iter().flatten().all(|v| v.explained == 0.0), "nothing was played");
    }

    #[test]
    fn evidence_goes_on_for_half_a_second_and_then_there_is_none() {
        let tone = |n: usize| if (96_000..100_800).contains(&n) { (n as f32 * 0.04).sin() * 0.2 } else { 0.0 };
        let mut hiss = Voice::new();
        let seen = run(&mut MicChain::new(), 0..350, |n| tone(n) + hiss.hiss() * 0.001);
        let first = (150..350).find(|n| seen[*n].is_some()).expect("the tone is heard");
        let last = (150..350).rev().find(|n| seen[*n].is_some()).expect("the tone is heard");
        assert_eq!(first, 200);
        assert!((259..=262).contains(&last), "{last}");
        assert!(seen[first..=last].iter().all(Option::is_some));
    }

    #[test]
    fn the_recogniser_gets_every_sound_at_its_own_rate() {
        let mut chain = MicChain::new();
        let mut heard = Vec::new();
        for block in 0..50u64 {
            let mic = std::array::from_fn(|i| {
                let n = block as usize * BLOCK_SAMPLES + i;
                (std::f32::consts::TAU * 1_000.0 * n as f32 / 48_000.0).sin() * 0.5
            });
            heard.extend_from_slice(chain.process(Stamp::from_millis(block * 10), &mic, &[0.0; BLOCK_SAMPLES]).stt);
        }
        let rms = (heard[1_600..].iter().map(|x| x * x).sum::<f32>() / (heard.len() - 1_600) as f32).sqrt();
        assert!((rms - 0.5 / 2f32.sqrt()).abs() < 0.01, "{rms}");
        let crossings = heard[1_600..].windows(2).filter(|w| w[0] < 0.0 && w[1] >= 0.0).count();
        assert!(crossings.abs_diff(400) <= 1, "{crossings} periods of 1 kHz in 0.4 s");
    }

    #[test]
    fn a_new_gain_takes_over_and_nothing_learned_is_lost() {
        let (mut chain, mut control) = MicChain::controlled();
        let mut hiss = Voice::new();
        run(&mut chain, 0..200, |_| hiss.hiss() * 0.01);
        let tone = |n: usize| (n as f32 * 0.05).sin() * 0.2;
        let before = run(&mut chain, 200..210, tone)[9].expect("a tone");
        control.set_gain(-12.0).expect("there is room");
        let after = run(&mut chain, 210..220, tone)[9].expect("a tone");
        assert!((before.level_dbfs - after.level_dbfs - 12.0).abs() < 0.5, "{before:?} {after:?}");
        assert!((before.noise_dbfs - after.noise_dbfs).abs() < 1.0, "the floor was not learned anew");
        assert_eq!(before.since, after.since, "and the stretch goes on");
    }

    #[test]
    fn wild_samples_pass_and_are_forgotten() {
        let mut chain = MicChain::new();
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            chain.process(Stamp::ZERO, &[x; BLOCK_SAMPLES], &[x; BLOCK_SAMPLES]);
        }
        let mut hiss = Voice::new();
        let seen = run(&mut chain, 4..300, |_| hiss.hiss() * 0.001);
        assert_eq!(seen[295], None, "the room is quiet again");
    }
}
