// The transcript and the tails, as elements. Text goes in as text nodes only, never as markup.

import { percentile } from './story.js';

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** "nothing_heard" -> "nothing heard". */
const words = (name) => name.replaceAll('_', ' ');

export class Transcript {
  constructor(list, empty) {
    this.list = list;
    this.empty = empty;
    this.turns = new Map();
    this.draft = null;
  }

  /** Shows `turn` as it is now; `heardPart` is the estimated share (0..1) of its answer that has been heard so far. */
  show(turn, heardPart) {
    this.empty.hidden = true;
    let seen = this.turns.get(turn.id);
    if (!seen) {
      seen = this.#add(turn);
      this.turns.set(turn.id, seen);
    }
    if (seen.chip.dataset.state !== turn.state) {
      seen.chip.dataset.state = turn.state;
      seen.chip.textContent = turn.state;
    }
    seen.why.textContent = turn.reason ? words(turn.reason) : turn.cause ? words(turn.cause) : '';
    if (turn.parent !== null && !seen.parent.firstChild) {
      const link = element('a', '', `interrupted turn ${turn.parent}`);
      link.href = `#turn-${turn.parent}`;
      link.addEventListener('click', () => flash(document.getElementById(`turn-${turn.parent}`)));
      seen.parent.append('↳ ', link);
    }
    set(seen.input, turn.input);
    seen.user.hidden = turn.input === '';
    let heard = '';
    let ahead = '';
    let cut = '';
    if (turn.ended) {
      heard = turn.heard;
      cut = turn.unheard;
    } else {
      const chars = [...turn.reply];
      const boundary = Math.round(chars.length * heardPart);
      heard = chars.slice(0, boundary).join('');
      ahead = chars.slice(boundary).join('');
    }
    set(seen.heard, heard);
    set(seen.ahead, ahead);
    set(seen.cut, cut);
    seen.agent.hidden = heard + ahead + cut === '';
    this.#follow();
  }

  /** Shows what the recogniser makes of the speech that goes on; null when nobody speaks. */
  hearing(text) {
    if (text === null) {
      this.draft?.remove();
      this.draft = null;
      return;
    }
    this.empty.hidden = true;
    if (!this.draft) {
      this.draft = element('li', 'turn user draft');
      this.draft.setAttribute('aria-hidden', 'true');
    }
    set(this.draft, text === '' ? 'listening …' : text);
    this.list.append(this.draft);
    this.#follow();
  }

  clear() {
    this.list.replaceChildren();
    this.turns.clear();
    this.draft = null;
    this.empty.hidden = false;
  }

  #add(turn) {
    const item = element('li', 'turn');
    item.id = `turn-${turn.id}`;
    const meta = element('div', 'meta');
    const chip = element('span', 'chip');
    const why = element('span');
    const parent = element('span');
    meta.append(element('span', '', `turn ${turn.id}`), chip, why, parent);
    const user = element('p', 'said user');
    const input = element('span');
    user.append(element('b', '', 'You'), input);
    const agent = element('p', 'said agent');
    const heard = element('span', 'heard');
    const ahead = element('span', 'ahead');
    const cut = element('s', 'cut');
    cut.title = 'made, and never heard';
    agent.append(element('b', '', 'Agent'), heard, ahead, cut);
    item.append(meta, user, agent);
    this.list.insertBefore(item, this.draft);
    return { chip, why, parent, user, input, agent, heard, ahead, cut };
  }

  // Stays at the end unless the person has scrolled away from it.
  #follow() {
    const { list } = this;
    if (list.scrollHeight - list.scrollTop - list.clientHeight < 160) list.scrollTop = list.scrollHeight;
  }
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function flash(node) {
  if (!node) return;
  node.classList.remove('flash');
  void node.offsetWidth; // restarts the animation
  node.classList.add('flash');
}

const PARTS = ['detect', 'decide', 'flush', 'downstream'];
const CLASSES = { detect: 'c-detect', decide: 'c-decide', flush: 'c-flush', downstream: 'c-down' };
const ms = (us) => `${Math.round(us / 1000)} ms`;

export class Tails {
  constructor(root) {
    this.list = root.getElementById('tails');
    this.out = Object.fromEntries(['tail-p50', 'tail-p95', 'local-p50', 'tail-count'].map((id) => [id, root.getElementById(id)]));
    this.engine = [];
    this.local = [];
  }

  /** Adds one barge-in: the engine's tail and the page's own measurement in milliseconds, or null. */
  add({ turn, tail }, local) {
    this.engine.push(tail.to_silence_us);
    if (local !== null) this.local.push(local);
    const item = element('li', 'tail');
    const row = element('div', 'row');
    const total = `engine ${ms(tail.to_silence_us)}${tail.downstream_measured ? '' : ' (bound)'}`;
    row.append(element('span', '', turn === null ? 'barge-in' : `turn ${turn}`), element('span', '', `${total} · page ${local === null ? '–' : `${Math.round(local)} ms`}`));
    const scale = Math.max(400, Math.max(...this.engine) / 1000);
    const track = element('div', 'track');
    for (const part of PARTS) {
      const bar = element('i', CLASSES[part]);
      bar.style.width = `${(tail[`${part}_us`] / 1000 / scale) * 100}%`;
      bar.title = `${part} ${ms(tail[`${part}_us`])}`;
      track.append(bar);
    }
    item.append(row, track);
    if (local !== null) {
      const own = element('div', 'own');
      own.style.width = `${Math.min(100, (Math.max(0, local) / scale) * 100)}%`;
      own.title = `this page ${Math.round(local)} ms`;
      item.append(own);
    }
    const held = tail.to_hold_us === undefined || tail.to_hold_us === null ? '' : ` · to hold ${ms(tail.to_hold_us)}`;
    item.append(element('div', 'split', `${PARTS.map((p) => `${p} ${ms(tail[`${p}_us`])}`).join(' + ')}${held} · to cut ${ms(tail.to_cut_us)}`));
    this.list.prepend(item);
    while (this.list.children.length > 50) this.list.lastChild.remove();
    set(this.out['tail-p50'], ms(percentile(this.engine, 50)));
    set(this.out['tail-p95'], ms(percentile(this.engine, 95)));
    set(this.out['local-p50'], this.local.length ? `${Math.round(percentile(this.local, 50))} ms` : '–');
    set(this.out['tail-count'], String(this.engine.length));
  }

  clear() {
    this.engine = [];
    this.local = [];
    this.list.replaceChildren();
    for (const out of Object.values(this.out)) set(out, '–');
    set(this.out['tail-count'], '0');
  }
}
