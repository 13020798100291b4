// Session time from this page's clock. Pure: times are handed in.
//
// A pong carries the session time at which its ping was read. The true moment lies somewhere inside the round trip, so the
// round trip bounds the error: of the last WINDOW exchanges the shortest is believed.

const WINDOW = 32;

export class SessionClock {
  constructor() {
    this.samples = []; // { offset, rtt }, offset = session time - page time, milliseconds
    this.offset = null;
    this.rtt = null;
  }

  /** A first guess from a message that carries the session time `atMicros` and arrived at `now`. */
  guess(atMicros, now) {
    if (this.offset === null) this.offset = atMicros / 1000 - now;
  }

  /** A pong: sent at `mark`, read by the engine at `atMicros`, here at `now`. */
  pong(mark, atMicros, now) {
    const rtt = now - mark;
    if (!(rtt >= 0) || rtt > 10000) return;
    this.samples.push({ offset: atMicros / 1000 - (mark + now) / 2, rtt });
    if (this.samples.length > WINDOW) this.samples.shift();
    const best = this.samples.reduce((a, b) => (b.rtt < a.rtt ? b : a));
    this.offset = best.offset;
    this.rtt = best.rtt;
  }

  /** Session time in whole microseconds at the page time `ms`; null before anything is known. */
  micros(ms) {
    return this.offset === null ? null : Math.max(0, Math.round((ms + this.offset) * 1000));
  }

  /** Page time in milliseconds at the session time `micros`. */
  local(micros) {
    return this.offset === null ? null : micros / 1000 - this.offset;
  }
}
