// Sound out, and the microphone's meter: the received track through the gate in the audio thread, the RTP timestamp that
// plays, the reports of what was heard. The decision itself is gate.js; this file carries it out and measures.

import { Gate } from './gate.js';

const REPORT_MS = 100;
const SPAN_S = 12; // how long levels are kept for the page's own measurement
const PAUSE_S = 1; // a silence longer than this was not caused by the cut
const PACKET = 959; // last tick of a 20 ms packet
const PACKETS = 64;
const BASES = 190; // ticks in two seconds
const RECORD_MAX_S = 480;

export class Playback {
  /** `on` = { send(message), micros(ms), levels(batch), gate(open, why) } */
  constructor(on, { record = false } = {}) {
    this.on = on;
    this.gate = new Gate();
    this.record = record;
    this.context = null;
    this.node = null;
    this.element = null;
    this.receiver = null;
    this.micSource = null;
    this.remoteSource = null;
    this.lastReport = 0;
    this.lastRtp = null;
    this.packets = []; // { rtp, at }: the last ones seen, and when they were delivered
    this.wasOpen = true;
    this.shut = null; // { frame, sounding, at, path_ms, rtp }: the last time the gate fell shut
    this.base = Infinity; // page time of frame 0 by the present clocks, milliseconds, when processed
    this.bases = [];
    this.levels = []; // { frame, mic, heard } per quantum
    this.rate = 48000;
    this.sounding = 0; // frames of the present generation since it began to sound
    this.soundingGeneration = null;
    this.chunks = [];
    this.chunkSeconds = 0;
    this.timer = null;
  }

  /** Must run inside a click: browsers start audio only then. */
  async start() {
    if (typeof AudioContext !== 'function' || typeof AudioWorkletNode !== 'function') {
      this.timer = setInterval(() => this.#beat(), 20);
      return; // an insecure page or an old browser: the element alone plays, and is muted by hand
    }
    this.context = new AudioContext(this.record ? { latencyHint: 'interactive', sampleRate: 48000 } : { latencyHint: 'interactive' });
    this.context.resume();
    await this.context.audioWorklet.addModule(new URL('./worklet.js', import.meta.url));
    this.rate = this.context.sampleRate;
    this.node = new AudioWorkletNode(this.context, 'antiphon-gate', {
      numberOfInputs: 2,
      numberOfOutputs: 1,
      outputChannelCount: [1],
      channelCount: 1,
      channelCountMode: 'explicit',
    });
    this.node.port.onmessage = ({ data }) => this.#fromAudio(data);
    this.node.connect(this.context.destination);
    if (this.record) this.node.port.postMessage({ record: true });
  }

  /** Listens to the microphone for the meter (and the recorder). */
  attachMic(stream) {
    this.micSource?.disconnect();
    this.micSource = null;
    if (!this.context || !stream) return;
    this.micSource = this.context.createMediaStreamSource(stream);
    this.micSource.connect(this.node, 0, 1);
  }

  /** Plays what is received. */
  attachRemote(stream, receiver, element) {
    this.receiver = receiver;
    this.element = element;
    element.srcObject = stream;
    // Chromium decodes a remote track only when an element plays it; the sound itself goes through the gate.
    element.muted = this.context !== null || !this.gate.open;
    element.play().catch(() => {});
    if (this.context) {
      this.remoteSource?.disconnect();
      this.remoteSource = this.context.createMediaStreamSource(stream);
      this.remoteSource.connect(this.node, 0, 0);
    }
  }

  /** A message of the engine that concerns the sound. */
  message(message, now) {
    const gate = this.gate;
    if (message.type === 'hold') gate.hold(message.generation, now);
    else if (message.type === 'resume') gate.resume(message.generation, now);
    else if (message.type === 'clear') gate.clear(message.generation, message.next, now);
    else if (message.type === 'media') gate.media(message, now);
    else if (message.type === 'answer') gate.answer(message.request, message.answer, now);
    else return;
    this.#apply(message.type, now);
  }

  /** The person pressed stop. */
  stop(request) {
    const now = performance.now();
    this.gate.stop(request, now);
    this.#apply('stop', now);
  }

  /** How long a sample is on its way from the gate to the loudspeaker, milliseconds, as the browser says. */
  outputLatency() {
    if (!this.context) return 0;
    return ((this.context.baseLatency || 0) + (this.context.outputLatency || 0)) * 1000;
  }

  /** Page time at which `frame` is heard, milliseconds. */
  heardAt(frame) {
    const ms = (frame / this.rate) * 1000;
    const processed = this.base + ms + this.outputLatency();
    const stamp = this.context?.getOutputTimestamp?.();
    if (stamp?.performanceTime > 0 && stamp.contextTime > 0) {
      const heard = stamp.performanceTime + ms - stamp.contextTime * 1000;
      // Some browsers give stamps of another clock when no device is there: believe only what can be true.
      if (heard - (this.base + ms) > -5 && heard - processed < 200) return heard;
    }
    return processed;
  }

  /** Page time at which `frame` passed the gate, milliseconds. */
  gatedAt(frame) {
    return this.base + (frame / this.rate) * 1000;
  }

  /**
   * The page's own measurement: first sound at the microphone near page time `onset` to the last stale sample that left the
   * gate, counted in frames of one clock, and from there to the loudspeaker; milliseconds, or null when either was not found.
   */
  localTail(onset) {
    if (!this.shut || this.levels.length === 0) return null;
    const frameOf = (ms) => ((ms - this.base) / 1000) * this.rate;
    const from = frameOf(onset - 400);
    const to = frameOf(onset + 400);
    const before = this.levels.filter((l) => l.frame < from && l.frame > from - this.rate).map((l) => l.mic).sort((a, b) => a - b);
    const floor = before.length ? before[before.length >> 1] : 0;
    const threshold = Math.max(floor * 4, 10 ** (-50 / 20));
    const near = this.levels.filter((l) => l.frame >= from && l.frame <= to);
    const first = near.findIndex((l, i) => l.mic > threshold && near.slice(i, i + 8).filter((m) => m.mic > threshold).length >= 4);
    if (first < 0) return null;
    return ((this.shut.sounding - near[first].frame) / this.rate) * 1000 + this.shut.path_ms;
  }

  /** What was recorded: { rate, frame, mic, heard }, sample by sample, gaps filled with zeros. */
  recording() {
    if (this.chunks.length === 0) return { rate: this.rate, frame: 0, mic: new Float32Array(0), heard: new Float32Array(0) };
    const frame = this.chunks[0].frame;
    const end = this.chunks[this.chunks.length - 1];
    const length = end.frame + end.length - frame;
    const mic = new Float32Array(length);
    const heard = new Float32Array(length);
    for (const c of this.chunks) {
      mic.set(c.mic.subarray(0, c.length), c.frame - frame);
      heard.set(c.heard.subarray(0, c.length), c.frame - frame);
    }
    return { rate: this.rate, frame, mic, heard };
  }

  /** Ends all of it. */
  stopAll() {
    clearInterval(this.timer);
    this.micSource?.disconnect();
    this.remoteSource?.disconnect();
    if (this.element) this.element.srcObject = null;
    this.receiver = null;
    this.context?.close().catch(() => {});
  }

  #apply(why, now) {
    const open = this.gate.open;
    if (open !== this.wasOpen) {
      this.wasOpen = open;
      this.node?.port.postMessage({ open });
      if (!this.node && this.element) {
        this.element.muted = !open;
        if (!open) this.shut = { frame: 0, sounding: 0, at: now, path_ms: 0, rtp: this.#rtpAt(now) };
      }
      if (open) this.shut = null;
      this.on.gate(open, why, now);
    }
    if (!open && this.shut) this.#report(); // it was shut before: what is asked for now has been true since then
  }

  #report() {
    for (const { generation, held } of this.gate.takeSilenced()) {
      const at = this.on.micros(this.shut.at);
      if (at === null) continue;
      const message = { type: 'silenced', generation, held, at };
      if (this.shut.rtp !== null) message.rtp = this.shut.rtp;
      this.on.send(message);
    }
  }

  // RTP timestamp of what passed the gate at page time `ms`: as far into its packet as time had gone on; null when unknown.
  #rtpAt(ms) {
    let found = null;
    for (const p of this.packets) if (p.at <= ms) found = p;
    return found && (found.rtp + Math.min(PACKET, Math.round((ms - found.at) * 48))) >>> 0;
  }

  #fromAudio(data) {
    if (data.type === 'tick') {
      // The least delayed message of the last two seconds tells best; older ones do not count, because the two clocks drift.
      this.bases.push(performance.now() - (data.frame / data.rate) * 1000);
      if (this.bases.length > BASES) this.bases.shift();
      this.base = Math.min(...this.bases);
      const n = data.mic.length;
      for (let i = 0; i < n; i++) {
        const frame = data.frame - (n - i) * data.quantum;
        this.levels.push({ frame, mic: data.mic[i], heard: data.heard[i] });
      }
      const most = (SPAN_S * data.rate) / data.quantum;
      if (this.levels.length > most + 512) this.levels.splice(0, this.levels.length - most);
      const loudest = Math.max(...data.heard);
      const generation = this.gate.generation();
      if (generation !== this.soundingGeneration) {
        this.soundingGeneration = generation;
        this.sounding = 0;
      }
      if (this.gate.open && (this.sounding > 0 || loudest > 1e-3)) this.sounding += n * data.quantum;
      this.on.levels({ at: this.gatedAt(data.frame), mic: Math.max(...data.mic), raw: Math.max(...data.raw), heard: loudest });
      this.#beat();
    } else if (data.type === 'shut') {
      // A silence that began long before is the speaker's own pause; what is asked for is true from the shutting on.
      const last = data.now - data.sounding < PAUSE_S * data.rate ? data.sounding : data.now;
      const gated = this.gatedAt(last);
      const at = this.heardAt(last);
      this.shut = { frame: data.frame, sounding: last, at, path_ms: at - gated, rtp: this.#rtpAt(gated) };
      this.on.shut?.(this.shut);
      this.#report();
      if (this.gate.open) this.shut = null; // opened again meanwhile
    } else if (data.type === 'opened') {
      this.on.opened?.(data.frame);
    } else if (data.type === 'chunk' && this.chunkSeconds < RECORD_MAX_S) {
      this.chunks.push(data);
      this.chunkSeconds += data.length / this.rate;
    }
  }

  // Looks at what plays; driven by the audio thread, whose messages are not slowed down in a background tab.
  #beat() {
    const now = performance.now();
    const source = this.receiver?.getSynchronizationSources?.().reduce((a, b) => (a && a.timestamp > b.timestamp ? a : b), null);
    if (source && source.rtpTimestamp !== this.lastRtp) {
      this.lastRtp = source.rtpTimestamp;
      // Milliseconds of this page or since 1970, depending on the browser's age.
      const stamp = source.timestamp > 1e11 ? source.timestamp - performance.timeOrigin : source.timestamp;
      const delivered = Math.abs(stamp - now) < 1000 ? stamp : now;
      this.packets.push({ rtp: source.rtpTimestamp, at: delivered });
      if (this.packets.length > PACKETS) this.packets.shift();
      this.gate.played(source.rtpTimestamp, now);
      if (now - this.lastReport >= REPORT_MS && this.gate.open) {
        const at = this.on.micros(delivered + this.outputLatency());
        if (at !== null && this.on.send({ type: 'playout', rtp: source.rtpTimestamp, at })) this.lastReport = now;
      }
    }
    this.gate.tick(now);
    this.#apply('media', now);
  }
}
