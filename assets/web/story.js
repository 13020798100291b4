// What happened, told by records: turns with their states and words, tails, counters. Pure: no DOM, no clock.

const TERMINAL = new Set(['COMPLETED', 'CANCELLED', 'FAILED', 'RECONCILE_REQUIRED']);

export class Story {
  constructor() {
    this.turns = new Map(); // id -> turn, in order of acceptance
    this.tails = []; // { turn, generation, tail, onset }
    this.counts = { records: 0, bargeIns: 0, falseInterruptions: 0, lateDropped: 0, underruns: 0, completed: 0, cancelled: 0, failed: 0 };
    this.lastSeq = 0; // everything up to here has arrived
    this.ahead = new Set(); // seqs that arrived before a hole was filled
    this.generation = 0;
    this.hearing = null; // { utterance, text }: what the recogniser makes of the speech that goes on
    this.speaking = false; // the user
    this.held = false;
    this.onsets = new Map(); // interrupted turn -> onset of the barge-in, session microseconds
  }

  /** The turn the person looks at: the youngest that has not ended. */
  visible() {
    let found = null;
    for (const turn of this.turns.values()) if (!turn.ended) found = turn;
    return found;
  }

  /** Takes one record and returns the turn it changed, if any. */
  absorb(record) {
    this.counts.records += 1;
    this.#arrived(record.seq);
    this.generation = Math.max(this.generation, record.generation);
    const e = record.event;
    const turn = record.turn === undefined ? null : this.#turn(record.turn);
    switch (e.type) {
      case 'speech_started':
        this.speaking = true;
        this.hearing = { utterance: e.utterance, text: '' };
        break;
      case 'speech_ended':
        this.speaking = false;
        break;
      case 'held':
        this.held = true;
        break;
      case 'false_interruption':
        this.held = false;
        this.counts.falseInterruptions += 1;
        break;
      case 'barge_in':
        this.held = false;
        this.counts.bargeIns += 1;
        if (record.turn !== undefined) this.onsets.set(record.turn, e.onset);
        if (this.hearing === null || this.hearing.utterance !== e.utterance) this.hearing = { utterance: e.utterance, text: '' };
        break;
      case 'generation_raised':
        this.held = false;
        break;
      case 'transcript':
        this.hearing = e.is_final ? null : { utterance: e.utterance, text: e.text };
        break;
      case 'turn_accepted':
        turn.parent = e.parent ?? null;
        turn.acceptedAt = record.at;
        turn.generation = record.generation;
        break;
      case 'turn_started':
        turn.state = 'RUNNING';
        turn.input = e.input;
        turn.startedAt = record.at;
        turn.generation = record.generation;
        this.hearing = null;
        break;
      case 'reply_text':
        turn.reply += e.delta;
        turn.generation = record.generation;
        break;
      case 'reply_done':
        turn.replyDone = true;
        break;
      case 'audio_started':
        turn.audioAt = record.at;
        turn.generation = record.generation;
        break;
      case 'cancel_requested':
        if (!turn.ended) turn.state = 'CANCEL_REQUESTED';
        turn.cause = e.cause;
        break;
      case 'turn_ended':
        turn.ended = true;
        turn.state = e.terminal.state;
        turn.cause = e.terminal.cause ?? turn.cause;
        turn.reason = e.terminal.reason?.kind ?? null;
        turn.heard = e.heard;
        turn.unheard = e.unheard;
        turn.timing = e.timing;
        turn.endedAt = record.at;
        if (e.terminal.state === 'COMPLETED') this.counts.completed += 1;
        else if (e.terminal.state === 'CANCELLED') this.counts.cancelled += 1;
        else this.counts.failed += 1;
        break;
      case 'silenced':
        if (e.tail) this.tails.push({ turn: record.turn ?? null, generation: e.stale, tail: e.tail, onset: this.onsets.get(record.turn) ?? null });
        break;
      case 'late_dropped':
        this.counts.lateDropped += 1;
        break;
      case 'underrun':
        this.counts.underruns += 1;
        break;
      default: // facts that change nothing one can see here
    }
    return turn;
  }

  #turn(id) {
    let turn = this.turns.get(id);
    if (turn === undefined) {
      turn = {
        id, parent: null, generation: 0, state: 'ACCEPTED', ended: false, input: '', reply: '', replyDone: false, heard: '', unheard: '',
        timing: null, cause: null, reason: null, acceptedAt: null, startedAt: null, audioAt: null, endedAt: null,
      };
      this.turns.set(id, turn);
    }
    return turn;
  }

  #arrived(seq) {
    if (this.lastSeq === 0 && this.ahead.size === 0) this.lastSeq = seq;
    else this.ahead.add(seq);
    while (this.ahead.delete(this.lastSeq + 1)) this.lastSeq += 1;
  }
}

/** Whether a state is an end. */
export function isTerminal(state) {
  return TERMINAL.has(state);
}

/** The p-th percentile (0..100) of `values` by nearest rank, or null. */
export function percentile(values, p) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil((p / 100) * sorted.length) - 1))];
}
