//! A small world around one machine: a clock turned by hand, a store, polite tasks and a loudspeaker, each of which can be told to
//! misbehave.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon::event::{CancelCause, Declaration, Event, Initiator, Outcome, Pii, Record, Stage, TaskOutcome, Timing};
use antiphon::id::{CallId, Generation, RequestId, Seq, SessionId, TaskId, TurnId};
use antiphon::time::{SamplePos, Stamp};
use antiphon::turn::*;

/// The session of every world.
pub(crate) const SESSION: SessionId = SessionId::from_bits(0x5e55);
/// Samples in a millisecond at the house rate.
pub(crate) const MS: u64 = 48;

/// One machine and everything around it.
pub(crate) struct World {
    pub(crate) m: Machine,
    pub(crate) now: Stamp,
    /// Effects of the last step that a story made.
    pub(crate) last: Vec<Effect>,
    /// All records appended, in order.
    pub(crate) records: Vec<Record>,
    /// All records delivered, in order.
    pub(crate) delivered: Vec<Seq>,
    pub(crate) answers: Vec<(RequestId, Answer)>,
    /// Every task ever started, and whether it still runs in the driver.
    pub(crate) tasks: BTreeMap<TaskId, Job>,
    /// Whether the store keeps what it is given at once.
    pub(crate) stores: bool,
    /// Whether tasks stop when told.
    pub(crate) polite: bool,
    /// Whether the loudspeaker reports that a cut took effect.
    pub(crate) sink_reports: bool,
    pub(crate) fence: Generation,
    pub(crate) finished: bool,
    requests: u128,
    /// The last record the machine was told is stored.
    stored: Seq,
    /// Start of the present sound, for the detector's estimate.
    pub(crate) since: Stamp,
    positions: BTreeMap<Generation, u64>,
}

/// A task as the driver sees it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) spec: TaskSpec,
    pub(crate) generation: Generation,
    pub(crate) fed: String,
    pub(crate) fed_all: bool,
    pub(crate) plays: usize,
    pub(crate) told: bool,
    pub(crate) over: bool,
    /// It may commit.
    pub(crate) leave: bool,
}

impl Job {
    pub(crate) fn stage(&self) -> Stage {
        match self.spec {
            TaskSpec::Listen { .. } => Stage::Listen,
            TaskSpec::Retrieve { .. } => Stage::Retrieve,
            TaskSpec::Tool { .. } => Stage::Tool,
            TaskSpec::Reconcile { .. } | TaskSpec::Compensate { .. } => Stage::Reconcile,
            TaskSpec::Generate { .. } => Stage::Generate,
            TaskSpec::Synthesize { .. } => Stage::Synthesize,
        }
    }
}

impl World {
    /// A session that has begun, at 1 s.
    pub(crate) fn new() -> Self {
        World::with(|_| {})
    }

    /// The same under another policy.
    pub(crate) fn with(change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = Policy::default();
        change(&mut policy);
        World::begin(Machine::new(policy))
    }

    /// A session with these tools.
    pub(crate) fn tools(tools: impl IntoIterator<Item = Declaration>) -> Self {
        World::begin(Machine::new(Policy::default()).with_tools(tools))
    }

    /// A session of this machine that has begun.
    pub(crate) fn begin(m: Machine) -> Self {
        let mut w = World::around(m);
        w.step(Input::Begin { session: SESSION, wall_unix_ms: 7 });
        w.step(Input::Link(LinkFact::Up));
        w
    }

    /// A world around this machine, which has not been stepped.
    pub(crate) fn around(m: Machine) -> Self {
        World {
            m,
            now: Stamp::from_millis(1_000),
            last: Vec::new(),
            records: Vec::new(),
            delivered: Vec::new(),
            answers: Vec::new(),
            tasks: BTreeMap::new(),
            stores: true,
            polite: true,
            sink_reports: true,
            fence: Generation::UNSET,
            finished: false,
            requests: 0,
            stored: Seq(0),
            since: Stamp::ZERO,
            positions: BTreeMap::new(),
        }
    }

    /// One step, then what the world does about it by itself.
    pub(crate) fn step(&mut self, input: Input) -> &[Effect] {
        if let Input::Appended { seq } = &input {
            self.stored = self.stored.max(*seq);
        }
        let effects: Vec<Effect> = self.m.step(self.now, input).collect();
        self.carry_out(&effects);
        let mut follow = Vec::new();
        for effect in &effects {
            match effect {
                Effect::Append { record } if self.stores => follow.push(Input::Appended { seq: record.seq }),
                Effect::StopTask { task, .. } if self.polite => {
                    follow.push(Input::Task { task: *task, report: Report::Ended(Ended::Stopped) });
                }
                Effect::Clear { stale } if self.sink_reports => follow.push(self.quiet_report(*stale, QuietBy::Cut)),
                _ => {}
            }
        }
        for input in follow {
            if let Input::Task { task, .. } = &input {
                self.tasks.get_mut(task).expect("known").over = true;
            }
            self.step(input);
        }
        self.last = effects;
        &self.last
    }

    /// Carries effects out, and checks the laws of a step.
    fn carry_out(&mut self, effects: &[Effect]) {
        let ranks: Vec<u8> = effects.iter().map(Effect::rank).collect();
        assert!(ranks.is_sorted(), "effects out of order: {effects:?}");
        for effect in effects {
            match effect {
                Effect::RaiseFence { generation } => {
                    assert!(*generation > self.fence, "the fence must rise");
                    self.fence = *generation;
                }
                Effect::Hold { generation } | Effect::Resume { generation } => {
                    assert_eq!(*generation, self.fence, "only the present answer is held or resumed");
                }
                Effect::Clear { stale } => assert!(*stale < self.fence, "only what is stale is cleared"),
                Effect::StopTask { task, .. } => {
                    let job = self.tasks.get_mut(task).expect("only what was started is stopped");
                    assert!(!job.over && !job.told, "{task} is told once, while it runs");
                    job.told = true;
                }
                Effect::AbortTask { task } => {
                    let job = self.tasks.get_mut(task).expect("only what was started is aborted");
                    assert!(!job.over, "{task} is over");
                }
                Effect::Append { record } => {
                    if let Some(before) = self.records.last() {
                        assert_eq!(record.seq, before.seq.next(), "seq has no holes");
                        assert!(record.at >= before.at && record.generation >= before.generation, "neither may fall");
                    }
                    self.records.push((**record).clone());
                }
                Effect::Deliver { record } => {
                    if let Some(before) = self.delivered.last() {
                        assert_eq!(record.seq, before.next(), "deliveries have no holes");
                    }
                    self.delivered.push(record.seq);
                }
                Effect::Answer { request, answer, .. } => self.answers.push((*request, answer.clone())),
                Effect::StartTask { task, generation, deadline, spec } => {
                    assert_eq!(*generation, self.fence, "new work is never stale");
                    assert!(*deadline > self.now, "new work has time");
                    if let TaskSpec::Retrieve { turn, .. }
                    | TaskSpec::Generate { turn, .. }
                    | TaskSpec::Tool { turn, .. }
                    | TaskSpec::Synthesize { turn } = spec
                    {
                        assert_eq!(self.cancel_of(*turn), None, "no work is started for a cancelled turn");
                    }
                    let job = Job {
                        spec: spec.clone(),
                        generation: *generation,
                        fed: String::new(),
                        fed_all: false,
                        plays: 0,
                        told: false,
                        over: false,
                        leave: false,
                    };
                    assert!(self.tasks.insert(*task, job).is_none(), "{task} starts once");
                }
                Effect::Feed { task, text } => {
                    let job = self.tasks.get_mut(task).expect("only what was started is fed");
                    assert!(!job.told && !job.over && job.generation == self.fence, "nothing stale is fed");
                    job.fed.push_str(text.reveal());
                }
                Effect::EndFeed { task } => {
                    let job = self.tasks.get_mut(task).expect("only what was started is fed");
                    assert!(!std::mem::replace(&mut job.fed_all, true), "the text ends once");
                }
                Effect::Play { task } => {
                    let job = self.tasks.get_mut(task).expect("only what was started plays");
                    assert!(!job.told && job.generation == self.fence, "nothing stale plays");
                    job.plays += 1;
                }
                Effect::LetCommit { task, call } => {
                    let job = self.tasks.get_mut(task).expect("only what was started commits");
                    assert!(
                        !job.told && !job.over && !std::mem::replace(&mut job.leave, true),
                        "leave is given once, to who works"
                    );
                    let intent = self.records.iter().find(|r| matches!(&r.event, Event::CommitIntent { call: c, .. } if c == call));
                    let intent = intent.expect("the intent is recorded before").seq;
                    assert!(self.stored >= intent, "and kept before leave is given");
                }
                Effect::RefuseCommit { task } => {
                    assert!(self.tasks.contains_key(task), "only what was started asks");
                }
                Effect::Finish => {
                    assert!(!std::mem::replace(&mut self.finished, true), "a session ends once");
                }
            }
        }
    }

    /// Turns the clock to `at`, firing timers as they come.
    pub(crate) fn until(&mut self, at: Stamp) {
        let mut ticks = 0;
        while let Some((due, timer)) = self.m.deadline().filter(|(due, _)| *due <= at) {
            self.now = self.now.max(due);
            self.step(Input::Tick);
            ticks += 1;
            assert!(ticks < 1_000, "{timer:?} at {due} does not come to rest");
        }
        self.now = self.now.max(at);
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.until(self.now + Duration::from_millis(ms));
    }

    pub(crate) fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId::from_bits(self.requests)
    }

    // What people do.

    pub(crate) fn say(&mut self, text: &str) -> TurnId {
        match self.ask(text) {
            SayAnswer::Started(turn) => turn,
            SayAnswer::NotAccepted { refusal, .. } => panic!("refused: {refusal:?}"),
        }
    }

    pub(crate) fn ask(&mut self, text: &str) -> SayAnswer {
        let request = self.request();
        self.step(Input::Command(Command::Say { request, text: text.into() }));
        match self.answer(request) {
            Some(Answer::Say(answer)) => answer,
            other => panic!("a say is answered at once: {other:?}"),
        }
    }

    pub(crate) fn cancel(&mut self, turn: TurnId) -> RequestId {
        let request = self.request();
        self.cancel_as(request, turn);
        request
    }

    pub(crate) fn cancel_as(&mut self, request: RequestId, turn: TurnId) {
        let (cause, initiator) = (CancelCause::User, Initiator::Client);
        self.step(Input::Command(Command::Cancel { request, turn, cause, initiator, deadline: None }));
    }

    pub(crate) fn key(&mut self, down: bool) {
        let request = self.request();
        self.step(Input::Command(Command::PushToTalk { request, down }));
    }

    pub(crate) fn close(&mut self) {
        let request = self.request();
        self.step(Input::Command(Command::Close { request, cause: CancelCause::Shutdown }));
    }

    /// The user makes `ms` of voice.
    pub(crate) fn voice(&mut self, ms: u64) {
        self.since = self.now;
        for _ in 0..ms / 10 {
            self.wait(10);
            self.block();
        }
    }

    /// One more block of the present voice, without time passing.
    pub(crate) fn block(&mut self) {
        self.step(Input::Voice(Voice::sure(self.now, self.since)));
    }

    /// The user says something: voice, the endpoint, and the recogniser's word on it.
    pub(crate) fn speak(&mut self, words: &str) {
        self.voice(300);
        self.wait(650);
        self.final_words(words);
    }

    // What tasks do.

    /// The task of this stage that was started last.
    pub(crate) fn task(&self, stage: Stage) -> TaskId {
        self.maybe_task(stage).unwrap_or_else(|| panic!("no {stage} was started"))
    }

    pub(crate) fn maybe_task(&self, stage: Stage) -> Option<TaskId> {
        self.tasks.iter().rev().find(|(_, job)| job.stage() == stage).map(|(task, _)| *task)
    }

    pub(crate) fn job(&self, stage: Stage) -> &Job {
        &self.tasks[&self.task(stage)]
    }

    pub(crate) fn count(&self, stage: Stage) -> usize {
        self.tasks.values().filter(|job| job.stage() == stage).count()
    }

    pub(crate) fn running(&self) -> Vec<TaskId> {
        self.tasks.iter().filter(|(_, job)| !job.over).map(|(task, _)| *task).collect()
    }

    pub(crate) fn report(&mut self, task: TaskId, report: Report) -> &[Effect] {
        if matches!(report, Report::Ended(_)) {
            self.tasks.get_mut(&task).expect("known").over = true;
        }
        self.step(Input::Task { task, report })
    }

    pub(crate) fn partial_words(&mut self, text: &str) {
        let task = self.task(Stage::Listen);
        self.report(task, Report::Transcript { text: text.into(), is_final: false });
    }

    pub(crate) fn final_words(&mut self, text: &str) {
        let task = self.task(Stage::Listen);
        self.report(task, Report::Transcript { text: text.into(), is_final: true });
        self.report(task, Report::Ended(Ended::Finished));
    }

    pub(crate) fn model(&mut self, text: &str) {
        let task = self.task(Stage::Generate);
        self.report(task, Report::Text { delta: text.into() });
    }

    pub(crate) fn model_done(&mut self) {
        let task = self.task(Stage::Generate);
        self.report(task, Report::Ended(Ended::Finished));
    }

    /// The model asks for a tool. Returns the call.
    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> CallId {
        self.call_as(tool, arguments, None)
    }

    pub(crate) fn call_as(&mut self, tool: &str, arguments: &str, key: Option<&str>) -> CallId {
        let task = self.task(Stage::Generate);
        self.report(task, Report::Call { tool: tool.into(), arguments: arguments.into(), key: key.map(str::to_owned) });
        let asked = self.records.iter().rev().find_map(|r| match r.event {
            Event::CallRequested { call, .. } => Some(call),
            _ => None,
        });
        asked.expect("the call is recorded")
    }

    /// The task that carries a call out.
    pub(crate) fn tool_task(&self, call: CallId) -> TaskId {
        let started = self.records.iter().find_map(|r| match r.event {
            Event::CallStarted { call: c, task } if c == call => Some(task),
            _ => None,
        });
        started.unwrap_or_else(|| panic!("{call} was not started"))
    }

    pub(crate) fn tool(&mut self, call: CallId, report: Report) -> &[Effect] {
        let task = self.tool_task(call);
        self.report(task, report)
    }

    /// A tool gives its result and ends.
    pub(crate) fn tool_done(&mut self, call: CallId, text: &str) {
        self.tool(call, Report::Result { text: text.into() });
        self.tool(call, Report::Ended(Ended::Finished));
    }

    /// A tool asks for leave to commit. Returns whether it has it now.
    pub(crate) fn commit(&mut self, call: CallId) -> bool {
        self.tool(call, Report::CommitAsked);
        self.tasks[&self.tool_task(call)].leave
    }

    /// How a call ended, as the mission writes it; `-` when it has not.
    pub(crate) fn ending(&self, call: CallId) -> String {
        let endings: Vec<String> = (self.events())
            .filter_map(|e| match e {
                Event::CallEnded { call: c, ending, .. } if *c == call => Some(ending.to_string()),
                _ => None,
            })
            .collect();
        assert!(endings.len() <= 1, "{call} ended more than once: {endings:?}");
        endings.into_iter().next().unwrap_or("-".into())
    }

    /// What was found out about a call, in order.
    pub(crate) fn outcomes(&self, call: CallId) -> Vec<Outcome> {
        (self.events())
            .filter_map(|e| match e {
                Event::Reconciled { call: c, outcome } if *c == call => Some(*outcome),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn submit(&mut self, text: &str, mode: SubmitMode) -> SubmitAnswer {
        let request = self.request();
        self.submit_as(request, text, mode)
    }

    pub(crate) fn submit_as(&mut self, request: RequestId, text: &str, mode: SubmitMode) -> SubmitAnswer {
        self.step(Input::Command(Command::Submit { request, text: text.into(), mode }));
        match self.answer(request) {
            Some(Answer::Submit(answer)) => answer,
            other => panic!("a submit is answered at once: {other:?}"),
        }
    }

    /// The synthesizer makes `ms` of audio that speaks `chars` characters.
    pub(crate) fn audio(&mut self, ms: u64, chars: usize) {
        let task = self.task(Stage::Synthesize);
        self.report(task, Report::Audio { samples: ms * MS, chars, timing: Timing::Exact });
    }

    pub(crate) fn audio_done(&mut self) {
        let task = self.task(Stage::Synthesize);
        self.report(task, Report::Ended(Ended::Finished));
    }

    /// A typed question and its answer, spoken as one chunk of `ms`, with everything made and nothing played.
    pub(crate) fn answer_made(&mut self, text: &str, ms: u64) -> TurnId {
        let turn = self.say("a question");
        self.model(text);
        self.model_done();
        self.audio(ms, text.chars().count());
        self.audio_done();
        turn
    }

    /// The same, and the first `heard` ms of it have been played.
    pub(crate) fn answer_sounding(&mut self, text: &str, ms: u64, heard: u64) -> TurnId {
        let turn = self.answer_made(text, ms);
        self.wait(heard);
        self.played(heard);
        turn
    }

    /// The present generation got as far as `ms`.
    pub(crate) fn played(&mut self, ms: u64) {
        self.played_of(self.fence, ms);
    }

    pub(crate) fn played_of(&mut self, generation: Generation, ms: u64) {
        self.positions.insert(generation, ms * MS);
        let (position, at) = (SamplePos(ms * MS), self.now);
        self.step(Input::Playout(Playout::Progress { generation, position, at }));
    }

    pub(crate) fn quiet_report(&self, generation: Generation, by: QuietBy) -> Input {
        let last = SamplePos(self.positions.get(&generation).copied().unwrap_or(0));
        let at = self.now;
        Input::Playout(Playout::Quiet { generation, by, last, seen_at: at, handed_at: at, sounded_at: at, measured: true })
    }

    pub(crate) fn go_quiet(&mut self, generation: Generation, by: QuietBy) {
        let report = self.quiet_report(generation, by);
        self.step(report);
    }

    // What is known.

    /// The last answer to this request.
    pub(crate) fn answer(&self, request: RequestId) -> Option<Answer> {
        self.answers.iter().rev().find(|(r, _)| *r == request).map(|(_, answer)| answer.clone())
    }

    pub(crate) fn terminals(&self, turn: TurnId) -> Vec<&Event> {
        self.of(turn).filter(|e| matches!(e, Event::TurnEnded { .. })).collect()
    }

    /// How the turn ended, as the mission writes it; `-` when it has not.
    pub(crate) fn end(&self, turn: TurnId) -> String {
        match self.terminals(turn)[..] {
            [Event::TurnEnded { terminal, .. }] => terminal.to_string(),
            [] => "-".into(),
            _ => panic!("{turn} ended more than once"),
        }
    }

    /// What was heard and not heard of its answer, and how well that is known.
    pub(crate) fn heard(&self, turn: TurnId) -> (String, String, Timing) {
        match self.terminals(turn)[..] {
            [Event::TurnEnded { heard, unheard, timing, .. }] => (heard.reveal().clone(), unheard.reveal().clone(), *timing),
            _ => panic!("{turn} has no single end"),
        }
    }

    pub(crate) fn of(&self, turn: TurnId) -> impl Iterator<Item = &Event> {
        self.records.iter().filter(move |r| r.turn == Some(turn)).map(|r| &r.event)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().map(|r| &r.event)
    }

    pub(crate) fn cancel_of(&self, turn: TurnId) -> Option<CancelCause> {
        self.of(turn).find_map(|e| if let Event::CancelRequested { cause, .. } = e { Some(*cause) } else { None })
    }

    pub(crate) fn parent(&self, turn: TurnId) -> Option<TurnId> {
        self.of(turn).find_map(|e| if let Event::TurnAccepted { parent, .. } = e { *parent } else { None })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.how_many(name) > 0
    }

    pub(crate) fn how_many(&self, name: &str) -> usize {
        self.events().filter(|e| self::name(e) == name).count()
    }

    pub(crate) fn live(&self) -> Option<TurnId> {
        self.m.snapshot().turn.map(|t| t.turn)
    }

    pub(crate) fn held(&self) -> bool {
        self.m.snapshot().turn.is_some_and(|t| t.held)
    }

    /// What the model was asked last: `u:` the user, `a:` the assistant, `/` cut off there.
    pub(crate) fn context(&self) -> Vec<String> {
        let TaskSpec::Generate { context, .. } = &self.job(Stage::Generate).spec else { panic!("not a model") };
        let line = |m: &Message| match m {
            Message::User { text } => format!("u:{}", text.reveal()),
            Message::Assistant { text, interrupted } => format!("a:{}{}", text.reveal(), if *interrupted { "/" } else { "" }),
            Message::Call { call, tool, arguments } => format!("c{}:{tool}({})", call.0, arguments.reveal()),
            Message::Result { call, ending: None, .. } => format!("r{}:running", call.0),
            Message::Result { call, ending: Some(ending), text } => format!("r{}:{ending} {}", call.0, text.reveal()).trim().into(),
        };
        context.iter().map(line).collect()
    }

    /// The effects of the last step, in words.
    pub(crate) fn told(&self) -> Vec<String> {
        self.last.iter().map(|e| self.tell(e)).collect()
    }

    fn tell(&self, effect: &Effect) -> String {
        let stage = |task: &TaskId| self.tasks.get(task).map_or("?".into(), |job| job.stage().to_string());
        match effect {
            Effect::RaiseFence { generation } => format!("fence {}", generation.0),
            Effect::Hold { generation } => format!("hold {}", generation.0),
            Effect::Resume { generation } => format!("resume {}", generation.0),
            Effect::Clear { stale } => format!("clear {}", stale.0),
            Effect::StopTask { task, .. } => format!("stop {}", stage(task)),
            Effect::AbortTask { task } => format!("abort {}", stage(task)),
            Effect::Append { record } => format!("append {}", name(&record.event)),
            Effect::Deliver { record } => format!("deliver {}", name(&record.event)),
            Effect::Answer { .. } => "answer".into(),
            Effect::StartTask { spec: TaskSpec::Listen { .. }, .. } => "start listen".into(),
            Effect::StartTask { spec: TaskSpec::Retrieve { .. }, .. } => "start retrieve".into(),
            Effect::StartTask { spec: TaskSpec::Generate { .. }, .. } => "start generate".into(),
            Effect::StartTask { spec: TaskSpec::Synthesize { .. }, .. } => "start synthesize".into(),
            Effect::StartTask { spec: TaskSpec::Tool { tool, .. }, .. } => format!("start tool {tool}"),
            Effect::StartTask { spec: TaskSpec::Reconcile { .. }, .. } => "start reconcile".into(),
            Effect::StartTask { spec: TaskSpec::Compensate { .. }, .. } => "start compensate".into(),
            Effect::LetCommit { .. } => "let commit".into(),
            Effect::RefuseCommit { .. } => "refuse commit".into(),
            Effect::Feed { .. } => "feed".into(),
            Effect::EndFeed { .. } => "end feed".into(),
            Effect::Play { .. } => "play".into(),
            Effect::Finish => "finish".into(),
        }
    }
}

/// The event's name in the log.
pub(crate) fn name(event: &Event) -> String {
    let json = serde_json::to_value(event).expect("an event serialises");
    json["type"].as_str().expect("it has a type").to_owned()
}

/// The outcome recorded for the last task of this stage.
pub(crate) fn outcome(w: &World, stage: Stage) -> Option<TaskOutcome> {
    w.records.iter().rev().find_map(|r| match &r.event {
        Event::TaskEnded { stage: s, outcome, .. } if *s == stage => Some(*outcome),
        _ => None,
    })
}

pub(crate) fn text(s: &str) -> Pii<String> {
    s.into()
}
