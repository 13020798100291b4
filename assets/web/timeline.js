// The scrolling picture of the last 20 seconds: levels, holds, cuts, turn states. Draws what it is given; times are page time.

const SPAN_MS = 20000;
const FLOOR_DB = -60;

export class Timeline {
  constructor(canvas) {
    this.canvas = canvas;
    this.levels = [];
    this.marks = []; // { at, kind: 'bump' | 'clear', label }
    this.holds = []; // { from, to }
    this.turns = []; // { id, spans: [{ state, from }], to }
    this.calm = matchMedia('(prefers-reduced-motion: reduce)');
    this.running = false;
    this.drawn = 0;
  }

  start() {
    if (this.running) return;
    this.running = true;
    const step = (now) => {
      if (!this.running) return;
      if (!this.calm.matches || now - this.drawn > 500) {
        this.drawn = now;
        this.draw(performance.now());
      }
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  stop() {
    this.running = false;
  }

  level(level) {
    this.levels.push(level);
    if (this.levels.length > 4096) this.levels.splice(0, 1024);
  }

  mark(at, kind, label) {
    this.marks.push({ at, kind, label });
    if (this.marks.length > 256) this.marks.shift();
  }

  hold(at, on) {
    const last = this.holds[this.holds.length - 1];
    if (on) {
      if (!last || last.to !== null) this.holds.push({ from: at, to: null });
    } else if (last && last.to === null) {
      last.to = at;
    }
    if (this.holds.length > 256) this.holds.shift();
  }

  turn(id, state, at, ended) {
    let turn = this.turns.find((t) => t.id === id);
    if (!turn) {
      turn = { id, spans: [], to: null };
      this.turns.push(turn);
      if (this.turns.length > 64) this.turns.shift();
    }
    if (turn.to === null && turn.spans[turn.spans.length - 1]?.state !== state) turn.spans.push({ state, from: at });
    if (ended && turn.to === null) turn.to = at;
  }

  draw(now) {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const w = canvas.clientWidth;
    const h = canvas.clientHeight;
    if (w === 0) return;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
    }
    const g = canvas.getContext('2d');
    const style = getComputedStyle(canvas);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    g.fillStyle = color('page');
    g.fillRect(0, 0, w, h);
    const left = 46;
    const x = (t) => left + ((t - (now - SPAN_MS)) / SPAN_MS) * (w - left - 4);
    const rows = { user: [6, 48], agent: [62, 48], turns: [124, 36] };

    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    g.textAlign = 'left';
    g.fillStyle = color('soft');
    g.fillText('you', 6, rows.user[0] + 24);
    g.fillText('agent', 6, rows.agent[0] + 24);
    g.fillText('turns', 6, rows.turns[0] + 18);
    g.strokeStyle = color('line');
    g.lineWidth = 1;
    g.textAlign = 'center';
    for (let s = 0; s <= 20; s += 5) {
      const px = Math.round(x(now - s * 1000)) + 0.5;
      g.beginPath();
      g.moveTo(px, 4);
      g.lineTo(px, h - 18);
      g.stroke();
      g.fillText(s === 0 ? 'now' : `-${s} s`, Math.min(px, w - 14), h - 8);
    }
    g.save();
    g.beginPath();
    g.rect(left, 0, w - left, h);
    g.clip();

    for (const hold of this.holds) {
      const to = hold.to ?? now;
      if (to < now - SPAN_MS) continue;
      g.globalAlpha = 0.3;
      g.fillStyle = color('hold');
      g.fillRect(x(hold.from), rows.agent[0] - 4, Math.max(2, x(to) - x(hold.from)), rows.agent[1] + 8);
      g.globalAlpha = 1;
    }
    const bar = (t, value, [top, height], fill) => {
      const db = 20 * Math.log10(value + 1e-9);
      const part = Math.max(0, Math.min(1, (db - FLOOR_DB) / -FLOOR_DB));
      if (part <= 0) return;
      g.fillStyle = fill;
      const tall = Math.max(1, part * height);
      g.fillRect(x(t) - 1, top + (height - tall) / 2, Math.max(1.4, ((w - left) / SPAN_MS) * 11), tall);
    };
    const user = color('user');
    const agent = color('agent');
    const muted = color('muted');
    for (const l of this.levels) {
      if (l.at < now - SPAN_MS) continue;
      bar(l.at, l.mic, rows.user, user);
      bar(l.at, l.raw, rows.agent, muted);
      bar(l.at, l.heard, rows.agent, agent);
    }

    for (const turn of this.turns) {
      const end = turn.to ?? now;
      if (end < now - SPAN_MS && turn.to !== null) continue;
      const lane = turn.id % 2;
      const y = rows.turns[0] + lane * 18;
      turn.spans.forEach((span, i) => {
        const to = turn.spans[i + 1]?.from ?? end;
        g.fillStyle = color(tone(span.state));
        g.globalAlpha = 0.85;
        g.fillRect(x(span.from), y, Math.max(2, x(to) - x(span.from)), 14);
        g.globalAlpha = 1;
      });
      if (turn.spans.length && turn.to !== null) {
        const last = turn.spans[turn.spans.length - 1];
        g.fillStyle = color(tone(last.state));
        g.fillRect(x(turn.to) - 1, y - 2, 4, 18);
      }
      g.fillStyle = color('panel');
      g.textAlign = 'left';
      const from = Math.max(x(turn.spans[0]?.from ?? end), left);
      if (x(end) - from > 26) g.fillText(`#${turn.id}`, from + 4, y + 7.5);
    }

    for (const mark of this.marks) {
      if (mark.at < now - SPAN_MS) continue;
      g.strokeStyle = color(mark.kind);
      g.fillStyle = color(mark.kind);
      g.lineWidth = mark.kind === 'bump' ? 2 : 1.5;
      g.setLineDash(mark.kind === 'clear' ? [3, 3] : []);
      g.beginPath();
      g.moveTo(x(mark.at), 2);
      g.lineTo(x(mark.at), h - 20);
      g.stroke();
      g.setLineDash([]);
      if (mark.label) {
        g.textAlign = 'left';
        g.fillText(mark.label, x(mark.at) + 4, 9);
      }
    }
    g.restore();
  }
}

function tone(state) {
  switch (state) {
    case 'ACCEPTED':
      return 'accepted';
    case 'RUNNING':
      return 'running';
    case 'CANCEL_REQUESTED':
      return 'cancel';
    case 'COMPLETED':
      return 'completed';
    default:
      return 'cancelled';
  }
}
