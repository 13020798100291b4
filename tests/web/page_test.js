// Tests of the page's pure modules, run inside the browser by tests/browser.rs. `modules` = { gate, clock, story }.
// Returns { passed: [names], failed: [{ name, why }] }.

export function run(modules) {
  const { Gate, GUARD_MS, STOP_MS, rtpDiff } = modules.gate;
  const { SessionClock } = modules.clock;
  const { Story, percentile } = modules.story;
  const passed = [];
  const failed = [];
  const test = (name, body) => {
    try {
      body();
      passed.push(name);
    } catch (error) {
      failed.push({ name, why: String(error.stack ?? error) });
    }
  };
  const same = (got, want, what = '') => {
    const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
    if (a !== b) throw new Error(`${what} got ${a}, want ${b}`);
  };
  const P = 960; // one 20 ms packet

  // Plays packets of 20 ms from `rtp` for `ms`, and returns the end time, the next rtp and the moments it was open.
  const play = (gate, rtp, now, ms) => {
    const open = [];
    for (const end = now + ms; now < end; now += 20) {
      if (gate.played(rtp >>> 0, now)) open.push(rtp >>> 0);
      rtp += P;
    }
    return { now, rtp, open };
  };
  const started = (rtp = 1000) => {
    const gate = new Gate();
    gate.media({ rtp, generation: 7, position: 0 }, 0);
    const at = play(gate, rtp, 0, 200);
    same(at.open.length, 10, 'before any cut all is heard');
    return { gate, ...at };
  };

  test('before anything was cleared all is heard, also what nobody has announced', () => {
    const gate = new Gate();
    same(gate.played(5, 0), true);
    same(gate.generation(), null);
  });

  test('a clear shuts at once and the new generation opens after the guard', () => {
    const { gate, now, rtp } = started();
    same(gate.clear(7, 8, now), false);
    same(gate.takeSilenced(), [{ generation: 7, held: false }]);
    let at = play(gate, rtp, now, 100);
    same(at.open, [], 'old packets in the buffer');
    gate.media({ rtp: at.rtp + P, generation: 8, position: 0 }, at.now);
    const first = at.rtp + P;
    at = play(gate, at.rtp, at.now, 400);
    same(at.open[0] >= first + (GUARD_MS / 20) * P, true, 'not before the guard is over');
    same(at.open.length >= 14, true, 'and then it stays open');
  });

  test('the guard also passes when no further packet is seen', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    gate.media({ rtp, generation: 8, position: 0 }, now);
    same(gate.played(rtp, now + 20), false);
    same(gate.tick(now + 20 + GUARD_MS - 1), false);
    same(gate.tick(now + 20 + GUARD_MS), true);
  });

  test('a media message that comes late opens late, never early', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    let at = play(gate, rtp, now, 500); // the new packets play, and nobody has said so
    same(at.open, []);
    gate.media({ rtp: rtp + 5 * P, generation: 8, position: 0 }, at.now);
    at = play(gate, at.rtp, at.now, 200);
    same(at.open.length > 0, true);
  });

  test('a media message before its packets changes nothing yet', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    gate.media({ rtp: rtp + 10 * P, generation: 8, position: 0 }, now);
    same(play(gate, rtp, now, 200).open, []);
  });

  test('hold shuts, resume of the same generation opens, at once', () => {
    const { gate, now, rtp } = started();
    same(gate.hold(7, now), false);
    same(gate.takeSilenced(), [{ generation: 7, held: true }]);
    const at = play(gate, rtp, now, 300);
    same(at.open, []);
    same(gate.resume(6, at.now), false, 'another generation does not open it');
    same(gate.resume(7, at.now), true);
  });

  test('a resume before the silence takes the report back', () => {
    const { gate, now } = started();
    gate.hold(7, now);
    gate.resume(7, now + 1);
    same(gate.takeSilenced(), []);
  });

  test('a clear while held voids the hold, and a resume does not bring the old one back', () => {
    const { gate, now, rtp } = started();
    gate.hold(7, now);
    gate.takeSilenced();
    same(gate.clear(7, 8, now + 20), false);
    same(gate.takeSilenced(), [{ generation: 7, held: false }]);
    same(gate.resume(7, now + 40), false);
    let at = play(gate, rtp, now + 40, 200);
    same(at.open, []);
    gate.media({ rtp: at.rtp, generation: 8, position: 0 }, at.now);
    at = play(gate, at.rtp, at.now, 200);
    same(at.open.length > 0, true, 'the new generation was never held');
  });

  test('a hold that comes after the clear of its generation is void', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    gate.takeSilenced();
    gate.hold(7, now + 5);
    same(gate.takeSilenced(), []);
    gate.media({ rtp, generation: 8, position: 0 }, now + 5);
    same(play(gate, rtp, now + 20, 200).open.length > 0, true);
  });

  test('a hold of the new generation keeps it shut until its resume', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    gate.media({ rtp, generation: 8, position: 0 }, now);
    gate.hold(8, now);
    const at = play(gate, rtp, now, 400);
    same(at.open, []);
    same(gate.resume(8, at.now), true);
  });

  test('two clears: the middle generation is stale too, and both are reported', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    gate.clear(8, 9, now + 1);
    same(gate.takeSilenced(), [{ generation: 7, held: false }, { generation: 8, held: false }]);
    gate.media({ rtp, generation: 8, position: 0 }, now + 1);
    let at = play(gate, rtp, now + 2, 300);
    same(at.open, []);
    gate.media({ rtp: at.rtp, generation: 9, position: 0 }, at.now);
    at = play(gate, at.rtp, at.now, 300);
    same(at.open.length > 0, true);
  });

  test('an old clear after a newer one, or the same again, changes nothing', () => {
    const { gate, now, rtp } = started();
    gate.clear(8, 9, now);
    gate.takeSilenced();
    gate.media({ rtp, generation: 9, position: 0 }, now);
    const at = play(gate, rtp, now, 300);
    same(gate.open, true);
    same(gate.clear(7, 8, at.now), true);
    same(gate.clear(8, 9, at.now), true);
    same(gate.takeSilenced(), []);
  });

  test('a late media message of an old generation does not make it new', () => {
    const { gate, now, rtp } = started();
    gate.clear(7, 8, now);
    gate.media({ rtp: rtp + 20 * P, generation: 8, position: 0 }, now);
    gate.media({ rtp, generation: 7, position: 4800 }, now + 1);
    let at = play(gate, rtp, now + 2, 400);
    same(at.open, []);
    at = play(gate, at.rtp, at.now, 200);
    same(at.open.length > 0, true, 'and does not hide the new one');
  });

  test('what nobody has announced counts as old once anything was cleared', () => {
    const gate = new Gate();
    play(gate, 1000, 0, 200);
    gate.clear(1, 2, 200);
    same(play(gate, 1000 + 10 * P, 200, 1000).open, []);
  });

  test('the circle of RTP timestamps may wrap at any point', () => {
    same(rtpDiff(5, 0xfffffffb), 10);
    same(rtpDiff(0xfffffffb, 5), -10);
    for (const back of [1, 5, 10, 15, 19, 20, 21]) {
      const begin = (0x100000000 - back * P) >>> 0;
      const { gate, now, rtp } = started(begin);
      gate.clear(7, 8, now);
      const first = (rtp + 5 * P) >>> 0;
      gate.media({ rtp: first, generation: 8, position: 0 }, now);
      const at = play(gate, rtp, now, 600);
      same(at.open.length > 0, true, `opens, ${back}`);
      same(at.open.every((r) => rtpDiff(r, first) >= 0), true, `nothing old, ${back}`);
      same(gate.locate((first + 480) >>> 0), { generation: 8, position: 480 });
    }
  });

  test('a generation that lasts longer than the circle stays what it is', () => {
    const gate = new Gate();
    gate.clear(1, 2, 0);
    gate.media({ rtp: 0, generation: 2, position: 0 }, 0);
    let now = 0;
    for (let rtp = 0; rtp < 3 * 2 ** 32; rtp += 2 ** 28) {
      now += 100;
      gate.played(rtp % 2 ** 32, now);
      same(gate.generation(), 2);
    }
    same(gate.locate(2 ** 32 - 2 ** 28), { generation: 2, position: 3 * 2 ** 32 - 2 ** 28 });
  });

  test('stop shuts at once; a refusal, a resume or silence of the engine opens again', () => {
    const { gate, now } = started();
    same(gate.stop('a', now), false);
    same(gate.answer('b', 'already_terminal', now + 1), false, 'the answer to another request');
    same(gate.answer('a', 'accepted', now + 2), false, 'accepted: the clear comes');
    same(gate.tick(now + STOP_MS - 1), false);
    same(gate.tick(now + STOP_MS), true);
    gate.stop('c', now + 3000);
    same(gate.answer('c', 'already_terminal', now + 3001), true);
  });

  test('a clear takes over from the stop button', () => {
    const { gate, now, rtp } = started();
    gate.stop('a', now);
    gate.clear(7, 8, now + 10);
    gate.media({ rtp, generation: 8, position: 0 }, now + 10);
    same(play(gate, rtp, now + 20, 200).open.length > 0, true, 'the new generation does not wait for the button');
    same(gate.takeSilenced(), [{ generation: 7, held: false }]);
  });

  test('whatever the order of messages, nothing of a cleared generation is ever let through', () => {
    let seed = 20261;
    const random = (n) => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 2 ** 32) * n);
    };
    for (let world = 0; world < 300; world++) {
      const gate = new Gate();
      let rtp = random(2 ** 32);
      let generation = 1;
      let cleared = 0; // as the page has been told
      const truth = []; // { rtp, generation } as sent, in order
      const queue = []; // messages on their way: { at, act }
      const say = (now, act) => queue.push({ at: now + random(120), act });
      const owner = (r) => truth.reduce((found, t) => (rtpDiff(r, t.rtp) >= 0 ? t.generation : found), 0);
      const announce = (now) => {
        const [at, g] = [rtp >>> 0, generation];
        truth.push({ rtp: at, generation: g });
        say(now, () => gate.media({ rtp: at, generation: g, position: 0 }, now));
      };
      announce(0);
      for (let now = 0; now < 3000; now += 20) {
        const g = generation;
        if (random(40) === 0) say(now, () => gate.hold(g, now));
        if (random(20) === 0) say(now, () => gate.resume(g, now));
        if (random(40) === 0) {
          say(now, () => {
            cleared = Math.max(cleared, g);
            gate.clear(g, g + 1, now);
          });
          generation += 1;
          announce(now);
        }
        for (let i = 0; i < queue.length; ) {
          if (queue[i].at <= now) queue.splice(i, 1)[0].act();
          else i += 1;
        }
        const playing = (rtp - 3 * P) >>> 0; // three packets wait in the jitter buffer
        if (gate.played(playing, now)) {
          const whose = owner(playing);
          if (whose !== 0 && whose <= cleared) throw new Error(`world ${world}, ${now} ms: generation ${whose} was let through, ${cleared} was cleared`);
        }
        rtp += P;
      }
    }
  });

  test('the clock believes the shortest round trip', () => {
    const clock = new SessionClock();
    same(clock.micros(10), null);
    clock.guess(1_000_000, 500);
    same(clock.micros(500), 1_000_000);
    clock.pong(1000, 1_600_000, 1200); // 200 ms: offset 500
    clock.pong(2000, 2_504_000, 2004); // 4 ms: offset 502
    clock.pong(3000, 3_700_000, 3300); // 300 ms: worse
    same([clock.offset, clock.rtt], [502, 4]);
    same(clock.micros(5000), 5_502_000);
    same(clock.local(5_502_000), 5000);
    clock.pong(9000, 1, 8000);
    same(clock.rtt, 4, 'a pong from before its ping is not believed');
  });

  test('records become turns with one end, parents and words', () => {
    const story = new Story();
    let seq = 0;
    const say = (turn, generation, event) => story.absorb({ v: 1, seq: ++seq, at: seq * 1000, turn, generation, event });
    say(1, 1, { type: 'turn_accepted', deadline: 9 });
    same(story.visible().state, 'ACCEPTED');
    say(1, 1, { type: 'turn_started', input: 'hello' });
    say(1, 1, { type: 'reply_text', delta: 'One ' });
    say(1, 1, { type: 'reply_text', delta: 'two' });
    say(1, 1, { type: 'barge_in', utterance: 2, onset: 77, heard_until: 5, evidence: {} });
    say(undefined, 2, { type: 'generation_raised', from: 1 });
    say(1, 2, { type: 'cancel_requested', cause: 'barge_in', initiator: 'voice', request: '' });
    same(story.turns.get(1).state, 'CANCEL_REQUESTED');
    say(2, 2, { type: 'turn_accepted', parent: 1, deadline: 9 });
    same([story.visible().id, story.visible().parent], [2, 1]);
    say(1, 2, { type: 'turn_ended', terminal: { state: 'CANCELLED', cause: 'barge_in' }, heard: 'One ', unheard: 'two', timing: 'exact' });
    const first = story.turns.get(1);
    same([first.state, first.cause, first.heard, first.unheard, first.reply], ['CANCELLED', 'barge_in', 'One ', 'two', 'One two']);
    say(1, 2, { type: 'silenced', stale: 1, last_sample: 5, tail: { to_silence_us: 5 } });
    same(story.tails, [{ turn: 1, generation: 1, tail: { to_silence_us: 5 }, onset: 77 }]);
    say(undefined, 2, { type: 'from_the_future' });
    same([story.counts.bargeIns, story.counts.cancelled, story.counts.records], [1, 1, seq]);
  });

  test('acks stop at the first hole', () => {
    const story = new Story();
    const get = (seq) => story.absorb({ v: 1, seq, at: 0, generation: 1, event: { type: 'link_up' } });
    get(4);
    get(5);
    get(7);
    same(story.lastSeq, 5);
    get(6);
    same(story.lastSeq, 7);
  });

  test('percentiles by nearest rank', () => {
    same(percentile([], 50), null);
    same([percentile([3, 1, 2], 50), percentile([3, 1, 2], 95), percentile([1], 1)], [2, 3, 1]);
  });

  return { passed, failed };
}
