// The gate, the meters and the recorder, in the audio thread. One processor, so that all of them share one count of frames.
//
// Inputs: 0 = what was received, 1 = the microphone. Output: what is heard. Messages in: { open }, { record }.
// Messages out: { type: 'tick' } every TICK quanta with levels per quantum; { type: 'shut' | 'opened' } with exact frames;
// { type: 'chunk' } with recorded samples.

const RAMP_S = 0.005; // a cut is never a click
const TICK = 4; // quanta per report: 512 frames, 10.7 ms at 48 kHz
const SOUND = 1e-3; // -60 dBFS: what counts as sounding
const CHUNK = 4800;

class Gate extends AudioWorkletProcessor {
  constructor() {
    super();
    this.open = true;
    this.told = true; // the last state that was reported
    this.gain = 1;
    this.step = 1 / Math.round(RAMP_S * sampleRate);
    this.quanta = 0;
    this.mic = new Float32Array(TICK);
    this.raw = new Float32Array(TICK);
    this.heard = new Float32Array(TICK);
    this.lastSound = 0; // frame after the last one that sounded
    this.lastFrame = 0; // frame after the last one that was not silent at all
    this.record = false;
    this.chunk = null;
    this.filled = 0;
    this.port.onmessage = ({ data }) => {
      if ('open' in data) this.open = data.open;
      if ('record' in data) this.record = data.record;
    };
  }

  process(inputs, outputs) {
    const received = inputs[0][0];
    const mic = inputs[1][0];
    const out = outputs[0][0];
    const n = out.length;
    const target = this.open ? 1 : 0;
    let raw = 0;
    let heard = 0;
    for (let i = 0; i < n; i++) {
      if (this.gain < target) this.gain = Math.min(1, this.gain + this.step);
      else if (this.gain > target) this.gain = Math.max(0, this.gain - this.step);
      const x = received ? received[i] : 0;
      const y = x * this.gain;
      out[i] = y;
      raw += x * x;
      heard += y * y;
      if (y !== 0) {
        this.lastFrame = currentFrame + i + 1;
        if (y > SOUND || y < -SOUND) this.lastSound = currentFrame + i + 1;
      }
    }
    let level = 0;
    if (mic) for (let i = 0; i < n; i++) level += mic[i] * mic[i];
    this.mic[this.quanta] = Math.sqrt(level / n);
    this.raw[this.quanta] = Math.sqrt(raw / n);
    this.heard[this.quanta] = Math.sqrt(heard / n);
    if (this.record) this.keep(mic, out, n);

    if (this.told && !this.open && this.gain === 0) {
      this.told = false;
      this.port.postMessage({ type: 'shut', frame: this.lastFrame, sounding: this.lastSound, rate: sampleRate, now: currentFrame + n });
    } else if (!this.told && this.open) {
      this.told = true;
      this.port.postMessage({ type: 'opened', frame: currentFrame, rate: sampleRate });
    }
    this.quanta += 1;
    if (this.quanta === TICK) {
      this.quanta = 0;
      this.port.postMessage({
        type: 'tick',
        frame: currentFrame + n,
        quantum: n,
        rate: sampleRate,
        mic: this.mic.slice(),
        raw: this.raw.slice(),
        heard: this.heard.slice(),
        gain: this.gain,
      });
    }
    return true;
  }

  keep(mic, out, n) {
    if (this.chunk === null) {
      this.chunk = { frame: currentFrame, mic: new Float32Array(CHUNK + 128), heard: new Float32Array(CHUNK + 128) };
      this.filled = 0;
    }
    if (mic) this.chunk.mic.set(mic, this.filled);
    this.chunk.heard.set(out, this.filled);
    this.filled += n;
    if (this.filled >= CHUNK) {
      const { frame, mic: m, heard: h } = this.chunk;
      this.chunk = null;
      this.port.postMessage({ type: 'chunk', frame, length: this.filled, mic: m, heard: h }, [m.buffer, h.buffer]);
    }
  }
}

registerProcessor('antiphon-gate', Gate);
