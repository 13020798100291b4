// Decides whether the received sound may be heard. Pure: no DOM, no audio, no clock; every time is handed in.
//
// Laws (proved by tests/web/gate_test.js):
//  1. After clear{generation: g, next: n} nothing is let through until a packet known to belong to n or later is playing,
//     and has been for GUARD_MS (what the browser delivered before it still travels to the loudspeaker that long).
//  2. A generation that was cleared never comes back: not by resume, not by a late media message, not by a late hold.
//  3. What is not known counts as old, once anything was ever cleared.
//  4. hold shuts at once; resume of the same generation opens at once; a clear voids the hold.
//  5. RTP timestamps are compared modulo 2^32.

/** How long a packet is on its way from "delivered" to the gate, at most, milliseconds (Chromium: up to 30 were seen). */
export const GUARD_MS = 60;
/** How long the stop button keeps the sound shut when the engine says nothing, milliseconds. */
export const STOP_MS = 2000;

const MAPPINGS = 64;
const REBASE = 2 ** 30;

/** a - b on the RTP circle, in -2^31 .. 2^31 - 1. */
export function rtpDiff(a, b) {
  return (a - b) | 0;
}

export class Gate {
  constructor() {
    this.barrier = 0; // generations below this one are stale
    this.proven = true; // whether what plays is known to be of the barrier's generation or later
    this.newSince = null; // when a packet of the new generation was first seen playing
    this.held = null; // generation that is held
    this.stopUntil = null; // the stop button was pressed, and nobody has answered yet
    this.stopRequest = null;
    this.mappings = []; // { rtp, generation, position }, in order of rtp
    this.playing = null; // { rtp, at } of the packet that plays
    this.pending = []; // what was told to fall silent and is not reported yet: { generation, held }
    this.open = true;
  }

  /** Where `rtp` stands: { generation, position }, or null when nobody has said. */
  locate(rtp) {
    for (let i = this.mappings.length - 1; i >= 0; i--) {
      const m = this.mappings[i];
      const past = rtpDiff(rtp, m.rtp);
      if (past >= 0) return { generation: m.generation, position: m.position + past };
    }
    return null;
  }

  /** The generation that plays, or null when it is not known. */
  generation() {
    const here = this.playing && this.locate(this.playing.rtp);
    return here ? here.generation : null;
  }

  /** From `rtp` on, packets belong to `generation`. */
  media({ rtp, generation, position }, now) {
    const same = this.mappings.findIndex((m) => m.rtp === rtp);
    if (same >= 0) this.mappings.splice(same, 1);
    const after = this.mappings.findIndex((m) => rtpDiff(m.rtp, rtp) > 0);
    this.mappings.splice(after < 0 ? this.mappings.length : after, 0, { rtp, generation, position });
    if (this.mappings.length > MAPPINGS) this.mappings.shift();
    return this.#judge(now);
  }

  /** The packet `rtp` was seen playing at `now`. */
  played(rtp, now) {
    this.playing = { rtp, at: now };
    this.#forget(rtp);
    return this.#judge(now);
  }

  /** Pause `generation`. */
  hold(generation, now) {
    if (generation >= this.barrier) {
      this.held = generation;
      this.pending.push({ generation, held: true });
    }
    return this.#judge(now);
  }

  /** Play `generation` on. */
  resume(generation, now) {
    if (this.held === generation) {
      this.held = null;
      this.pending = this.pending.filter((p) => !p.held); // it never fell silent
      this.#answered();
    }
    return this.#judge(now);
  }

  /** `generation` and all before it are over; `next` comes. */
  clear(generation, next, now) {
    const barrier = Math.max(next, generation + 1);
    if (barrier > this.barrier) {
      this.barrier = barrier;
      this.proven = false;
      this.newSince = null;
      if (this.held !== null && this.held < barrier) this.held = null;
      this.pending.push({ generation, held: false });
      this.#answered();
    }
    return this.#judge(now);
  }

  /** The person pressed stop: shut at once, until the engine has spoken. */
  stop(request, now) {
    this.stopUntil = now + STOP_MS;
    this.stopRequest = request;
    return this.#judge(now);
  }

  /** The engine answered `request`: unless the stop was accepted, what plays may go on. */
  answer(request, answer, now) {
    if (request === this.stopRequest && answer !== 'accepted') this.#answered();
    return this.#judge(now);
  }

  /** Time passes. */
  tick(now) {
    return this.#judge(now);
  }

  /** What has to be reported now that the gate is shut, oldest first: [{ generation, held }]. Asking takes it. */
  takeSilenced() {
    return this.pending.splice(0);
  }

  #answered() {
    this.stopUntil = null;
    this.stopRequest = null;
  }

  #judge(now) {
    if (this.stopUntil !== null && now >= this.stopUntil) this.#answered();
    if (!this.proven && this.playing) {
      const generation = this.generation();
      if (generation !== null && generation >= this.barrier) {
        if (this.newSince === null) this.newSince = now;
        if (now - this.newSince >= GUARD_MS) this.proven = true;
      } else {
        this.newSince = null;
      }
    }
    this.open = this.proven && this.held === null && this.stopUntil === null;
    return this.open;
  }

  // Keeps the mapping in force and those to come; moves the one in force along so that it never gets half a circle old.
  #forget(rtp) {
    let inForce = -1;
    for (let i = 0; i < this.mappings.length; i++) if (rtpDiff(rtp, this.mappings[i].rtp) >= 0) inForce = i;
    if (inForce < 0) return;
    this.mappings.splice(0, inForce);
    const m = this.mappings[0];
    const past = rtpDiff(rtp, m.rtp);
    if (past >= REBASE) this.mappings[0] = { rtp, generation: m.generation, position: m.position + past };
  }
}
