//! The shape of a world: which faults exist in it at all, how large and how slow things are. Drawn first, from the seed.

use std::time::Duration;

use super::rng::Rng;
use crate::event::{Cancellability, Checkpoint, Declaration, OnBargeIn, OnTimeout};
use crate::turn::{BudgetPolicy, FloorPolicy, OnDisconnect, Policy};

/// A span of latencies, milliseconds.
pub(super) type Span = (u64, u64);

/// What a world is like.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// How long people go on doing things.
    pub(super) session: Duration,
    /// Latencies are whole multiples of this, microseconds: the coarser, the more happens at once.
    pub(super) quantum_us: u64,
    pub(super) policy: Policy,
    pub(super) tools: Vec<Declaration>,
    pub(super) retrieves: bool,
    /// The tools that make keys of their own.
    pub(super) keyed: Vec<&'static str>,
    /// Samples in a block; fewer than the house's, because a sample costs time and the tag is what is looked at.
    pub(super) slice: usize,
    /// Blocks in the playback ring.
    pub(super) ring: usize,
    /// How often the sink says how far it is, beats.
    pub(super) cadence: u64,
    /// From the reader to the ear and back.
    pub(super) far: Span,
    /// Between two things that a person does.
    pub(super) pause: Span,
    /// How often each kind of thing is done.
    pub(super) wishes: [u64; WISHES],
    pub(super) approves: Span,
    pub(super) first_token: Span,
    pub(super) piece: Span,
    pub(super) pieces: Span,
    pub(super) synthesis: Span,
    pub(super) per_char: Span,
    pub(super) listening: Span,
    pub(super) retrieval: Span,
    pub(super) tool_step: Span,
    pub(super) arrival: Span,
    pub(super) stops: Span,
    pub(super) store: Span,
    /// Records in one write, at most.
    pub(super) batch: usize,
    /// Records that wait for the store before results are no longer read.
    pub(super) room: usize,
    pub(super) faults: Faults,
}

/// Kinds of things that people do; see `people`.
pub(super) const WISHES: usize = 20;

/// How often each fault strikes where it can, of a thousand; zero where it does not exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// A task does not hear its stop.
    pub(super) deaf: u64,
    /// An aborted task stays for seconds.
    pub(super) stubborn: u64,
    /// A task fails.
    pub(super) fails: u64,
    /// A task says nothing any more.
    pub(super) hangs: u64,
    /// A task says everything at once.
    pub(super) floods: u64,
    /// A report comes twice.
    pub(super) doubles: u64,
    /// Reports that make no sense.
    pub(super) rogue: u64,
    /// A synthesizer makes no sound.
    pub(super) mute: u64,
    /// The model asks for tools.
    pub(super) calls: u64,
    /// What was sent never arrives.
    pub(super) lost_outside: u64,
    /// A tool with leave does not know what became of it.
    pub(super) unknown: u64,
    /// The outside cannot tell, or undoing fails.
    pub(super) blind: u64,
    /// Playout reports are lost.
    pub(super) far_lost: u64,
    /// The sink stands still for seconds.
    pub(super) far_stalls: u64,
    /// A write takes seconds.
    pub(super) store_stalls: u64,
    /// The driver stands still, longest milliseconds; zero never.
    pub(super) driver_stalls: u64,
    /// The process dies, so many times.
    pub(super) deaths: u64,
    /// People answer approvals not at all.
    pub(super) ignores_approvals: u64,
}

impl Shape {
    pub(super) fn draw(rng: &mut Rng) -> Shape {
        let faults = Faults::draw(rng);
        let session = Duration::from_secs(rng.range(30, 120));
        let slow = rng.chance(300);
        let span = |rng: &mut Rng, low: u64, high: u64| {
            let high = if slow { high * 4 } else { high };
            let from = rng.range(low, (low + high) / 2);
            (from, rng.range(from, high))
        };
        let mut wishes = [0; WISHES];
        for wish in &mut wishes {
            // Swarm: in each world some things are never done.
            *wish = if rng.chance(300) { 0 } else { rng.range(1, 10) };
        }
        // In every world somebody talks to it.
        wishes[0] = wishes[0].max(4);
        let small = rng.chance(200);
        Shape {
            session,
            quantum_us: *rng.pick(&[1, 1_000, 10_000]).unwrap_or(&1),
            policy: policy(rng),
            tools: tools(rng),
            retrieves: rng.chance(400),
            keyed: TOOL_NAMES.iter().copied().filter(|_| rng.chance(500)).collect(),
            slice: if rng.chance(60) { 480 } else { 48 },
            ring: if small { rng.range(1, 6) as usize } else { 40 },
            cadence: rng.range(1, 10),
            far: span(rng, 0, 60),
            pause: if rng.chance(250) { (20, 1_500) } else { (300, 6_000) },
            wishes,
            approves: span(rng, 100, 4_000),
            first_token: span(rng, 5, 400),
            piece: span(rng, 0, 60),
            pieces: (1, rng.range(1, 25)),
            synthesis: span(rng, 2, 120),
            per_char: (20, rng.range(20, 90)),
            listening: span(rng, 5, 500),
            retrieval: span(rng, 5, 600),
            tool_step: span(rng, 2, 700),
            arrival: span(rng, 1, 900),
            stops: span(rng, 0, 120),
            store: if rng.chance(200) { (0, 0) } else { span(rng, 0, 30) },
            batch: rng.range(1, 64) as usize,
            room: if small { rng.range(4, 32) as usize } else { 1_024 },
            faults,
        }
    }

    /// How much later than its time something may be done because the driver stood still.
    pub(super) fn slack(&self) -> Duration {
        Duration::from_millis(self.faults.driver_stalls * 4)
    }
}

impl Faults {
    fn draw(rng: &mut Rng) -> Faults {
        if rng.chance(80) {
            // A world in which nothing goes wrong but people.
            return Faults { calls: 500, ..Faults::default() };
        }
        let mut some = |exists: u64, low: u64, high: u64| if rng.chance(exists) { rng.range(low, high) } else { 0 };
        Faults {
            deaf: some(350, 50, 600),
            stubborn: some(250, 100, 800),
            fails: some(300, 5, 150),
            hangs: some(300, 5, 150),
            floods: some(250, 50, 500),
            doubles: some(200, 10, 200),
            rogue: some(200, 10, 200),
            mute: some(150, 20, 200),
            calls: some(800, 200, 900),
            lost_outside: some(350, 50, 400),
            unknown: some(350, 50, 500),
            blind: some(400, 50, 700),
            far_lost: some(250, 50, 700),
            far_stalls: some(200, 2, 30),
            store_stalls: some(250, 5, 60),
            driver_stalls: some(200, 20, 300),
            deaths: some(300, 1, 3),
            ignores_approvals: some(400, 100, 700),
        }
    }
}

fn policy(rng: &mut Rng) -> Policy {
    let ms = Duration::from_millis;
    let floor = if rng.chance(700) {
        FloorPolicy::default()
    } else {
        FloorPolicy {
            hold_after: ms(rng.range(0, 120)),
            commit_after: ms(rng.range(120, 400)),
            endpoint_after: ms(rng.range(200, 1_500)),
            resume_after: ms(rng.range(100, 800)),
            final_transcript: ms(rng.range(300, 5_000)),
            interruptible: rng.chance(700),
            ..FloorPolicy::default()
        }
    };
    let budget = if rng.chance(250) {
        BudgetPolicy::default()
    } else {
        BudgetPolicy {
            turn: ms(rng.range(800, 40_000)),
            closing_reserve: ms(rng.range(0, 400)),
            first_token: ms(rng.range(200, 6_000)),
            idle: ms(rng.range(200, 6_000)),
            retrieve: ms(rng.range(20, 2_000)),
            generate: ms(rng.range(500, 20_000)),
            tool: ms(rng.range(200, 8_000)),
            requests: rng.range(1, 8) as u32,
            calls: rng.range(1, 12) as u32,
            inbox: rng.range(1, 6) as u32,
            reconcile_after: ms(rng.range(50, 2_000)),
            reconcile_attempts: rng.range(1, 5) as u32,
            grace: ms(rng.range(0, 300)),
            playout_stall: ms(rng.range(500, 4_000)),
        }
    };
    let on_disconnect = match rng.below(3) {
        0 => OnDisconnect::GoOn,
        1 => OnDisconnect::Hold(ms(rng.range(50, 8_000))),
        _ => OnDisconnect::CancelNow,
    };
    Policy { floor, budget, on_disconnect }
}

/// The names of the tools; the model asks for one more than there is.
pub(super) const TOOL_NAMES: [&str; 7] = ["look", "draft", "order", "wire", "letter", "count", "nothing"];

fn tools(rng: &mut Rng) -> Vec<Declaration> {
    use Cancellability::*;
    let classes = [ReadOnly, Staged, RemoteCancel, Irreversible, HumanProcess, ReadOnly];
    let mut tools = Vec::new();
    for (name, class) in TOOL_NAMES.iter().zip(classes) {
        if rng.chance(150) {
            continue;
        }
        let mut tool = Declaration::new(*name, class);
        for checkpoint in [Checkpoint::AfterRead, Checkpoint::AfterStaging, Checkpoint::BeforePublish] {
            if rng.chance(500) {
                tool.checkpoints.push(checkpoint);
            }
        }
        let ms = Duration::from_millis;
        tool.minimum_budget = if rng.chance(300) { ms(rng.range(1, 9_000)) } else { Duration::ZERO };
        tool.cap = rng.chance(300).then(|| ms(rng.range(50, 5_000)));
        tool.grace = rng.chance(400).then(|| ms(rng.range(0, 1_500)));
        tool.on_barge_in = if rng.chance(350) { OnBargeIn::Keep } else { OnBargeIn::Cancel };
        tool.on_timeout = if rng.chance(300) { OnTimeout::FailTurn } else { OnTimeout::TellModel };
        tool.approval = rng.chance(250);
        tool.probes = rng.chance(600);
        tool.compensates = rng.chance(400);
        tools.push(tool);
    }
    tools
}
