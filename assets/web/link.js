// The connection: WHIP over HTTP, one peer connection, one data channel of JSON messages. Knows nothing of turns or pages.

import { SessionClock } from './clock.js';

/** Version of the wire format. */
export const VERSION = 1;
const GATHERING_MS = 1000;
const OPEN_MS = 10000;
const LOST_MS = 4000;

/** What went wrong while connecting, with a sentence that says what to do. */
export class ConnectError extends Error {
  constructor(message, { retryable = true, status = 0 } = {}) {
    super(message);
    this.retryable = retryable;
    this.status = status;
  }
}

/** 32 hexadecimal digits that name one request. (randomUUID exists on secure pages only; this exists on all.) */
export function requestId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
}

export class Link {
  /** `on` = { message(m, now), sent(m, now), track(stream, receiver), lost(reason) } */
  constructor(on) {
    this.on = on;
    this.clock = new SessionClock();
    this.peer = null;
    this.channel = null;
    this.location = null;
    this.closed = false;
    this.timers = [];
  }

  /** Connects with the microphone track `track`, or to listen and type only when it is null. */
  async connect(track) {
    const peer = new RTCPeerConnection({ iceServers: [], bundlePolicy: 'max-bundle' });
    this.peer = peer;
    const channel = peer.createDataChannel('antiphon', { ordered: true });
    this.channel = channel;
    const opened = new Promise((resolve, reject) => {
      channel.onopen = resolve;
      channel.onerror = () => reject(new ConnectError('The connection to the engine could not be opened. Check that nothing blocks UDP to this server, then connect again.'));
    });
    opened.catch(() => {}); // may fail before anybody waits for it
    channel.onmessage = ({ data }) => this.#receive(data);
    channel.onclose = () => this.#lose('The engine closed the connection.');
    peer.ontrack = ({ receiver, track: remote, streams }) => {
      // As little delay as the network allows: what waits in this buffer is what goes on sounding after a cut.
      if ('jitterBufferTarget' in receiver) receiver.jitterBufferTarget = 0;
      else if ('playoutDelayHint' in receiver) receiver.playoutDelayHint = 0;
      this.on.track(streams[0] ?? new MediaStream([remote]), receiver);
    };
    peer.onconnectionstatechange = () => this.#watch();

    if (track) peer.addTransceiver(track, { direction: 'sendrecv' });
    else peer.addTransceiver('audio', { direction: 'recvonly' });
    await peer.setLocalDescription(await peer.createOffer());
    await gathered(peer);

    let response;
    try {
      response = await fetch('./whip', {
        method: 'POST',
        headers: { 'Content-Type': 'application/sdp', Accept: 'application/sdp' },
        body: peer.localDescription.sdp,
      });
    } catch {
      throw new ConnectError('The server does not answer. Check that it is running, then connect again.');
    }
    if (!response.ok) throw await refusal(response);
    this.location = response.headers.get('Location');
    await peer.setRemoteDescription({ type: 'answer', sdp: await response.text() });
    await Promise.race([
      opened,
      new Promise((_, reject) => {
        this.timers.push(setTimeout(() => reject(new ConnectError('The server answered, but no media path came up. A firewall may block UDP to it.')), OPEN_MS));
      }),
    ]);
    this.send({ type: 'hello', v: VERSION });
    this.#ping(5);
  }

  /** Sends one message; false when there is no open channel. */
  send(message) {
    if (this.closed || this.channel?.readyState !== 'open') return false;
    this.channel.send(JSON.stringify(message));
    this.on.sent(message, performance.now());
    return true;
  }

  /** Ends the session and tells the server. */
  leave() {
    if (this.closed) return;
    this.#close();
    if (this.location) fetch(new URL(this.location, document.baseURI), { method: 'DELETE', keepalive: true }).catch(() => {});
  }

  #receive(data) {
    const now = performance.now();
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (message.type === 'hello') this.clock.guess(message.at, now);
    if (message.type === 'pong') this.clock.pong(message.mark, message.at, now);
    this.on.message(message, now);
    if (message.type === 'bye') this.#lose(farewell(message.reason));
  }

  // A handful of quick pings first, so that the clock is good before the first barge-in; then one a second.
  #ping(quick) {
    if (this.closed) return;
    this.send({ type: 'ping', mark: performance.now() });
    this.timers.push(setTimeout(() => this.#ping(Math.max(0, quick - 1)), quick > 0 ? 60 : 1000));
    if (this.timers.length > 64) this.timers.splice(0, 32);
  }

  #watch() {
    const state = this.peer?.connectionState;
    if (state === 'failed') this.#lose('The network path to the engine broke.');
    if (state === 'disconnected') {
      this.timers.push(setTimeout(() => {
        if (this.peer?.connectionState === 'disconnected') this.#lose('The network path to the engine has been silent for too long.');
      }, LOST_MS));
    }
  }

  #lose(reason) {
    if (this.closed) return;
    this.#close();
    this.on.lost(reason);
  }

  #close() {
    this.closed = true;
    this.timers.forEach(clearTimeout);
    this.channel?.close();
    this.peer?.close();
  }
}

// Resolves when every candidate is known, or after a second: the server needs only one that works.
function gathered(peer) {
  if (peer.iceGatheringState === 'complete') return Promise.resolve();
  return new Promise((resolve) => {
    setTimeout(resolve, GATHERING_MS);
    peer.onicegatheringstatechange = () => peer.iceGatheringState === 'complete' && resolve();
  });
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  const said = problem.detail ?? problem.message ?? problem.title ?? '';
  const wait = Number(response.headers.get('Retry-After')) || null;
  const when = wait ? ` Try again in ${wait} s.` : ' Try again in a moment.';
  switch (response.status) {
    case 429:
      return new ConnectError(`Too many connections from here.${when}`, { status: 429 });
    case 503:
      return new ConnectError(`The server is full or shutting down.${said ? ` ${said}` : ''}${when}`, { status: 503 });
    case 400:
    case 413:
    case 415:
    case 422:
      return new ConnectError(`The server did not take this browser's offer: ${said || response.status}`, { retryable: false, status: response.status });
    default:
      return new ConnectError(`The server answered ${response.status}. ${said}`, { status: response.status });
  }
}

function farewell(reason) {
  switch (reason) {
    case 'draining':
      return 'The server is shutting down. Reconnect in a moment.';
    case 'version':
      return 'The server speaks another version. Reload the page.';
    default:
      return 'The conversation was closed.';
  }
}
