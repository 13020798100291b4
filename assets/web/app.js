// The page: wires buttons and keys to the link, records to the panels. Query: ?record=1 keeps what was said and heard for
// `antiphon.recording()`; ?ec=0 ?ns=0 ?agc=0 ?mic=open|held|none preset the sound settings.

import { Link, requestId } from './link.js';
import { Playback } from './playback.js';
import { Story } from './story.js';
import { Timeline } from './timeline.js';
import { Tails, Transcript } from './panels.js';

const ACK_MS = 500;
const STATS_MS = 1000;
const SHADE_MS = 150;
const LOG_MAX = 50000;
const CHARS_PER_SECOND = 14; // of speech, until answers of this conversation have shown it

const $ = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const timeline = new Timeline($('timeline'));
const transcript = new Transcript($('transcript'), $('empty'));
const tails = new Tails(document);

let link = null;
let playback = null;
let story = new Story();
let mic = null; // MediaStream
let connection = 'idle'; // idle, connecting, live, lost
let session = null;
let talking = false;
let acked = 0;
let pace = CHARS_PER_SECOND;
let stats = { buffer: null, lost: 0 };
let log = [];
let measured = []; // { tail, local } in order
let timers = [];
const requests = new Map(); // request -> what was asked

function keep(dir, message, at) {
  log.push({ dir, at, message });
  if (log.length > LOG_MAX) log.splice(0, 1000);
}

// ---- connecting ----------------------------------------------------------------------------------------------------

async function connect() {
  if (connection === 'connecting' || connection === 'live') return;
  notice(null);
  reset();
  setConnection('connecting', 'Connecting …');
  const attempt = new Link({ message: received, sent: (m, at) => keep('out', m, at), track: (stream, receiver) => playback?.attachRemote(stream, receiver, $('remote')), lost });
  try {
    playback = new Playback(
      {
        send: (m) => link?.send(m) ?? false,
        micros: (ms) => link?.clock.micros(ms) ?? null,
        levels: (level) => timeline.level(level),
        gate: (open, why, at) => keep('gate', { open, why }, at),
        shut: (shut) => keep('gate', { shut }, performance.now()),
        opened: (frame) => keep('gate', { opened: frame }, performance.now()),
      },
      { record: query.get('record') === '1' },
    );
    link = attempt;
    await playback.start();
    mic = await microphone();
    playback.attachMic(mic);
    await attempt.connect(mic?.getAudioTracks()[0] ?? null);
    setConnection('live', mic ? 'Connected' : 'Connected, text only');
    timeline.start();
    timers = [setInterval(acknowledge, ACK_MS), setInterval(gatherStats, STATS_MS), setInterval(shade, SHADE_MS)];
    if (!mic) $('text').focus();
  } catch (error) {
    attempt.leave();
    teardown();
    setConnection('idle', 'Not connected');
    notice(error.message || String(error), error.retryable === false ? null : { label: 'Try again', run: connect });
  }
}

// The microphone, or null with a word about why; typing works without it.
async function microphone() {
  const mode = $('set-mic').value;
  if (mode === 'none') return null;
  if (!navigator.mediaDevices?.getUserMedia) {
    notice('Browsers give the microphone to secure pages only. Open this page over https or on localhost. Until then you can type.');
    return null;
  }
  try {
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: $('set-ec').checked, noiseSuppression: $('set-ns').checked, autoGainControl: $('set-agc').checked, channelCount: 1 },
    });
    const track = stream.getAudioTracks()[0];
    track.enabled = mode !== 'held';
    track.onended = () => notice('The microphone was unplugged or taken away. You can go on typing, or leave and connect again.');
    return stream;
  } catch (error) {
    const what = {
      NotAllowedError: 'The microphone is blocked. Allow it for this page (icon in the address bar) and connect again. Until then you can type, and hear the answers.',
      NotFoundError: 'No microphone was found. Plug one in and connect again. Until then you can type, and hear the answers.',
      NotReadableError: 'Another program holds the microphone. Close it and connect again. Until then you can type, and hear the answers.',
    };
    notice(what[error.name] ?? `The microphone could not be opened (${error.name}). You can type, and hear the answers.`);
    return null;
  }
}

function leave() {
  link?.leave();
  teardown();
  setConnection('idle', 'Not connected');
}

function lost(reason) {
  if (connection !== 'live') return;
  teardown();
  setConnection('lost', 'Connection lost');
  notice(reason, { label: 'Reconnect', run: connect });
}

function teardown() {
  timers.forEach(clearInterval);
  timers = [];
  timeline.stop();
  playback?.stopAll();
  mic?.getTracks().forEach((t) => t.stop());
  mic = null;
  talking = false;
  $('talk').setAttribute('aria-pressed', 'false');
  transcript.hearing(null);
}

function reset() {
  story = new Story();
  log = [];
  measured = [];
  acked = 0;
  session = null;
  stats = { buffer: null, lost: 0 };
  requests.clear();
  transcript.clear();
  tails.clear();
  timeline.levels = [];
  timeline.marks = [];
  timeline.holds = [];
  timeline.turns = [];
}

function setConnection(state, text) {
  connection = state;
  $('status').textContent = text;
  $('status').dataset.state = { live: 'live', connecting: 'busy', lost: 'lost', idle: 'idle' }[state];
  $('connect').hidden = state === 'live';
  $('connect').disabled = state === 'connecting';
  $('leave').hidden = state !== 'live';
  $('text').disabled = $('send').disabled = state !== 'live';
  $('talk').disabled = state !== 'live' || !mic;
  controls();
}

function controls() {
  $('stop').disabled = connection !== 'live' || story.visible() === null;
}

function notice(text, action) {
  $('notice').hidden = !text;
  $('notice-text').textContent = text ?? '';
  $('notice-action').hidden = !action;
  if (action) {
    $('notice-action').textContent = action.label;
    $('notice-action').onclick = action.run;
  }
}

// ---- messages ------------------------------------------------------------------------------------------------------

function received(message, now) {
  playback.message(message, now);
  keep('in', message, now);
  switch (message.type) {
    case 'hello':
      session = message.session;
      if (message.v !== 1) notice('The server speaks another version of the protocol. Reload the page.');
      break;
    case 'record':
      absorb(message.record, now);
      break;
    case 'hold':
      timeline.hold(now, true);
      break;
    case 'resume':
      timeline.hold(now, false);
      break;
    case 'clear':
      timeline.hold(now, false);
      timeline.mark(now, 'clear', '');
      break;
    case 'answer':
      answered(message);
      break;
    case 'problem':
      notice(`The server did not take a message of this page: ${message.detail}`);
      break;
    default: // pong and media are dealt with above; what is newer than this page is ignored
  }
}

function absorb(record, now) {
  const turn = story.absorb(record);
  const event = record.event;
  // Records tell when it happened; the picture shows that moment, not the one of arrival.
  const at = Math.min(now, link.clock.local(record.at) ?? now);
  if (event.type === 'generation_raised') timeline.mark(at, 'bump', `gen ${record.generation}`);
  if (turn) {
    timeline.turn(turn.id, turn.state, at, turn.ended);
    transcript.show(turn, heardPart(turn));
  }
  if (event.type === 'turn_ended') {
    learnPace(turn);
    say(`Turn ${turn.id}: ${turn.state.toLowerCase().replaceAll('_', ' ')}${turn.cause ? `, ${turn.cause.replaceAll('_', ' ')}` : ''}.`);
  }
  if (event.type === 'silenced' && event.tail) {
    const entry = story.tails[story.tails.length - 1];
    const onset = entry.onset === null ? null : link.clock.local(entry.onset);
    const local = onset === null ? null : playback.localTail(onset);
    measured.push({ turn: entry.turn, generation: entry.generation, tail: entry.tail, local });
    tails.add(entry, local);
  }
  transcript.hearing(story.hearing?.text ?? (story.speaking ? '' : null));
  controls();
}

// Answers to what this page asked; the silent ones change nothing a person waits for.
function answered({ request, answer }) {
  const asked = requests.get(request);
  requests.delete(request);
  if (asked === 'text' && answer !== 'started') {
    const why = { empty: 'It was empty.', draining: 'The server is shutting down.', busy: 'The engine is busy; send it again in a moment.' };
    notice(`The message was not taken. ${why[answer] ?? answer.replaceAll('_', ' ')}`);
  }
  if (asked === 'cancel' && answer === 'already_terminal') say('That turn had already ended.');
  if (asked === 'cancel' && answer === 'reconcile_required') {
    notice('Stopped, but a side effect may already have happened. The turn shows RECONCILE_REQUIRED until that is known.');
  }
}

function say(text) {
  $('now').textContent = text;
}

function acknowledge() {
  if (story.lastSeq > acked && link?.send({ type: 'ack', seq: story.lastSeq })) acked = story.lastSeq;
}

// ---- how far the answer has been heard -----------------------------------------------------------------------------

// The engine tells the exact boundary when a turn ends. Until then it is guessed from how long the answer has sounded here.
function heardPart(turn) {
  if (turn.ended || !turn.audioAt || !playback || turn.reply.length === 0) return 0;
  if (playback.soundingGeneration !== turn.generation) return 0;
  const chars = (playback.sounding / playback.rate) * pace;
  return Math.min(turn.replyDone ? 1 : 0.98, chars / turn.reply.length);
}

function learnPace(turn) {
  const seconds = playback.soundingGeneration === turn.generation ? playback.sounding / playback.rate : 0;
  if (seconds > 2 && turn.heard.length > 20) pace = 0.7 * pace + 0.3 * (turn.heard.length / seconds);
}

function shade() {
  const turn = story.visible();
  if (turn) transcript.show(turn, heardPart(turn));
}

// ---- counters ------------------------------------------------------------------------------------------------------

async function gatherStats() {
  const report = await playback?.receiver?.getStats?.().catch(() => null);
  report?.forEach((s) => {
    if (s.type !== 'inbound-rtp' || s.kind !== 'audio') return;
    const emitted = s.jitterBufferEmittedCount;
    if (emitted > (stats.emitted ?? 0)) stats.buffer = ((s.jitterBufferDelay - (stats.delay ?? 0)) / (emitted - (stats.emitted ?? 0))) * 1000;
    stats.delay = s.jitterBufferDelay;
    stats.emitted = emitted;
    stats.lost = s.packetsLost ?? 0;
    stats.concealed = s.concealedSamples ?? 0;
  });
  showCounters();
}

function showCounters() {
  const c = story.counts;
  const rows = [
    ['turns', story.turns.size],
    ['completed', c.completed],
    ['cancelled', c.cancelled],
    ['failed', c.failed],
    ['barge-ins', c.bargeIns],
    ['false interruptions', c.falseInterruptions],
    ['late output dropped', c.lateDropped],
    ['underruns', c.underruns],
    ['generation', story.generation],
    ['records', c.records],
    ['round trip', link?.clock.rtt == null ? '–' : `${link.clock.rtt.toFixed(1)} ms`],
    ['receive buffer', stats.buffer === null ? '–' : `${Math.round(stats.buffer)} ms`],
    ['output latency', playback?.context ? `${Math.round(playback.outputLatency())} ms` : '–'],
    ['packets lost', stats.lost],
  ];
  const list = $('counters');
  if (list.children.length !== rows.length) {
    list.replaceChildren(
      ...rows.map(([name]) => {
        const div = document.createElement('div');
        const dt = document.createElement('dt');
        dt.textContent = name;
        div.append(dt, document.createElement('dd'));
        return div;
      }),
    );
  }
  rows.forEach(([, value], i) => {
    const dd = list.children[i].lastChild;
    if (dd.textContent !== String(value)) dd.textContent = String(value);
  });
}

// ---- what the person does ------------------------------------------------------------------------------------------

function talk(down) {
  if (down === talking || connection !== 'live' || !mic) return;
  talking = down;
  $('talk').setAttribute('aria-pressed', String(down));
  if ($('set-mic').value === 'held') mic.getAudioTracks()[0].enabled = down;
  ask('push_to_talk', { down });
}

function stop() {
  const turn = story.visible();
  if (connection !== 'live' || turn === null) return;
  const request = ask('cancel', { turn: turn.id });
  if (request) playback.stop(request); // silence first
  say('Stopping.');
}

function submit(event) {
  event.preventDefault();
  const text = $('text').value.trim();
  if (text !== '' && ask('text', { text })) $('text').value = '';
}

// Sends one request and returns its name, or null when there is no connection.
function ask(type, fields) {
  const request = requestId();
  requests.set(request, type);
  if (link?.send({ type, request, ...fields })) return request;
  requests.delete(request);
  return null;
}

// Space talks unless the focused element has its own use for it.
function takesSpace(target) {
  return target instanceof Element && target.closest('input, select, textarea, summary, button:not(#talk), a') !== null;
}

addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && !event.repeat) {
    $('settings').open = false;
    stop();
  } else if (event.key === ' ' && !takesSpace(event.target)) {
    event.preventDefault();
    if (!event.repeat) talk(true);
  } else if (event.key === '/' && !takesSpace(event.target) && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    $('text').focus();
  }
});
addEventListener('keyup', (event) => {
  if (event.key === ' ' && talking) {
    event.preventDefault();
    talk(false);
  }
});
addEventListener('blur', () => talk(false));
addEventListener('pagehide', () => link?.leave());
$('talk').addEventListener('pointerdown', (event) => {
  $('talk').setPointerCapture(event.pointerId);
  talk(true);
});
for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) $('talk').addEventListener(end, () => talk(false));
$('connect').addEventListener('click', connect);
$('leave').addEventListener('click', leave);
$('stop').addEventListener('click', stop);
$('composer').addEventListener('submit', submit);
$('notice-close').addEventListener('click', () => notice(null));
for (const [id, name] of [['set-ec', 'ec'], ['set-ns', 'ns'], ['set-agc', 'agc']]) {
  if (query.has(name)) $(id).checked = query.get(name) !== '0';
}
if (['open', 'held', 'none'].includes(query.get('mic'))) $('set-mic').value = query.get('mic');
new ResizeObserver(() => timeline.draw(performance.now())).observe($('timeline'));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => timeline.draw(performance.now()));
showCounters();

// ---- for tests and for the curious ---------------------------------------------------------------------------------

window.antiphon = {
  /** Everything the page knows, as plain data. */
  state() {
    return {
      connection,
      session,
      microphone: mic !== null,
      clock: { offset_ms: link?.clock.offset ?? null, rtt_ms: link?.clock.rtt ?? null },
      generation: story.generation,
      gate: playback && { open: playback.gate.open, held: playback.gate.held, barrier: playback.gate.barrier, playing: playback.gate.generation() },
      turns: [...story.turns.values()],
      tails: measured,
      counts: story.counts,
      last_seq: story.lastSeq,
      output_latency_ms: playback?.outputLatency() ?? 0,
      stats,
    };
  },
  /** Wire messages in order: { dir: 'in' | 'out' | 'gate', at: page milliseconds, message }. */
  log: () => log,
  /** With ?record=1: { rate, frame, mic, heard }; both channels share one count of frames, which begins at `frame`. */
  recording: () => playback?.recording() ?? null,
  /** Session time in microseconds at page time `ms`; below zero before the session. */
  session_micros: (ms) => (link?.clock.offset != null ? (ms + link.clock.offset) * 1000 : null),
  /** Page time in milliseconds at which `frame` passed the gate, by the clocks as they stand now. */
  gated_at: (frame) => playback?.gatedAt(frame) ?? null,
  /** Seconds recorded so far. */
  seconds: () => playback?.chunkSeconds ?? 0,
  /** Page time at which a frame is heard, milliseconds. */
  heard_at: (frame) => playback?.heardAt(frame) ?? null,
};
