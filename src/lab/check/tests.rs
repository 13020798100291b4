//! Each checker over a good log, and over one with one thing wrong in it.

use std::time::Duration;

use super::*;
use crate::event::{CallEnding, CallFailure, FailReason, NotStarted};
use crate::event::{
    CancelCause, Cancellability, Event, IdempotencyKey, Initiator, Outcome, Pii, Stage, TaskOutcome, Terminal, Timing, VERSION,
};
use crate::id::{RequestId, TaskId, TurnId};
use crate::time::SamplePos;

/// A log being written, with facts between the records.
struct Log {
    checks: Checks,
    seq: u64,
    at: Stamp,
    generation: u64,
    turn: Option<TurnId>,
}

const READ: &str = "look";
const PAY: &str = "pay";

fn rules() -> Rules {
    let mut pay = Declaration::new(PAY, Cancellability::Irreversible);
    pay.approval = true;
    pay.minimum_budget = Duration::from_secs(5);
    let policy = Policy { on_disconnect: OnDisconnect::GoOn, ..Policy::default() };
    Rules::new(policy, vec![Declaration::new(READ, Cancellability::ReadOnly), pay])
}

impl Log {
    fn new() -> Self {
        let mut log = Log { checks: Checks::new(rules()), seq: 0, at: Stamp::ZERO, generation: 1, turn: None };
        log.write(Event::SessionStarted { wall_unix_ms: 0 });
        log
    }

    fn write(&mut self, event: Event) -> &mut Self {
        self.seq += 1;
        let record =
            Record { v: VERSION, seq: Seq(self.seq), at: self.at, turn: self.turn, generation: Generation(self.generation), event };
        self.checks.see(Fact::Record(&record));
        self
    }

    fn fact(&mut self, fact: Fact<'_>) -> &mut Self {
        self.checks.see(fact);
        self
    }

    fn wait(&mut self, ms: u64) -> &mut Self {
        self.at += Duration::from_millis(ms);
        self
    }

    fn accept(&mut self, turn: u64) -> &mut Self {
        self.turn = Some(TurnId(turn));
        let deadline = self.at + Duration::from_secs(60);
        self.write(Event::TurnAccepted { parent: None, deadline })
    }

    fn end(&mut self, terminal: Terminal) -> &mut Self {
        let (heard, unheard): (Pii<String>, Pii<String>) = ("".into(), "".into());
        self.write(Event::TurnEnded { terminal, heard, unheard, timing: Timing::Exact })
    }

    fn cancel(&mut self) -> &mut Self {
        self.stop(CancelCause::User, Initiator::Client)
    }

    fn stop(&mut self, cause: CancelCause, initiator: Initiator) -> &mut Self {
        self.write(Event::CancelRequested { cause, initiator, request: RequestId::from_bits(9) })
    }

    fn request(&mut self, call: u64, tool: &str, key: &str) -> &mut Self {
        let (tool, key) = (tool.to_owned(), IdempotencyKey(key.to_owned()));
        self.write(Event::CallRequested { call: CallId(call), tool, arguments: "{}".into(), key })
    }

    fn start(&mut self, call: u64) -> &mut Self {
        self.write(Event::CallStarted { call: CallId(call), task: TaskId(100 + call) })
    }

    fn allow(&mut self, call: u64, granted: bool) -> &mut Self {
        self.write(Event::ApprovalAsked { call: CallId(call) });
        self.write(Event::ApprovalGiven { call: CallId(call), granted, request: RequestId::from_bits(3) })
    }

    /// A call of the paying tool that runs and has asked to commit.
    fn paying(&mut self, call: u64, key: &str) -> &mut Self {
        self.request(call, PAY, key).allow(call, true).start(call);
        self.write(Event::CommitIntent { call: CallId(call), key: IdempotencyKey(key.to_owned()) })
    }

    fn sent(&mut self, call: u64) -> &mut Self {
        let at = self.at;
        self.write(Event::CommitSent { call: CallId(call) }).fact(Fact::Leave { call: CallId(call), at })
    }

    fn call_ends(&mut self, call: u64, ending: CallEnding) -> &mut Self {
        self.write(Event::CallEnded { call: CallId(call), ending, result: None })
    }

    fn raise(&mut self) -> &mut Self {
        let from = Generation(self.generation);
        self.generation += 1;
        let (generation, at) = (Generation(self.generation), self.at);
        self.fact(Fact::Raised { generation, at }).write(Event::GenerationRaised { from })
    }

    fn over(&mut self) -> &mut Self {
        self.turn = None;
        self.write(Event::SessionEnded).fact(Fact::Over { tasks_alive: 0 })
    }

    fn silenced(&mut self, stale: u64) -> &mut Self {
        self.write(Event::Silenced { stale: Generation(stale), last_sample: SamplePos(480), tail: None })
    }

    fn heard(&mut self, generation: u64, samples: u64) -> &mut Self {
        let at = self.at;
        self.fact(Fact::Heard { generation: Generation(generation), samples, at })
    }

    /// The names of the checkers that found something.
    fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.checks.violations().iter().map(|v| v.checker).collect();
        names.dedup();
        names
    }

    fn only(&self, checker: &str) {
        assert_eq!(self.names(), [checker], "{:#?}", self.checks.violations());
    }
}

fn input(n: u128) -> RequestId {
    RequestId::from_bits(n)
}

fn queue(n: u128) -> Event {
    Event::InputQueued { input: input(n), text: "and".into() }
}

/// A session in which much happens and nothing is wrong.
fn good() -> Log {
    let mut log = Log::new();
    log.fact(Fact::Raised { generation: Generation(1), at: Stamp::ZERO });
    log.accept(1).write(Event::TurnStarted { input: "hello".into() }).write(Event::ModelRequested { request: 1 });
    log.write(Event::TaskStarted { task: TaskId(1), stage: Stage::Generate }).write(queue(1)).write(queue(2));
    log.request(1, READ, "a").start(1).call_ends(1, CallEnding::Done);
    log.write(Event::InputConsumed { input: input(1), request: 2 }).write(Event::ModelRequested { request: 2 });
    log.paying(2, "b").sent(2).wait(10).fact(Fact::Effect { key: "b", at: Stamp::from_millis(10) });
    log.request(3, PAY, "c").allow(3, false).call_ends(3, CallEnding::NotStarted { why: NotStarted::Refused });
    log.write(Event::AudioStarted).heard(1, 480).wait(20).raise().heard(1, 240).cancel();
    log.write(Event::TaskEnded { task: TaskId(1), stage: Stage::Generate, outcome: TaskOutcome::Stopped });
    log.wait(50).call_ends(2, CallEnding::Unknown).write(Event::InputReturned { input: input(2), text: "and".into() });
    log.end(Terminal::ReconcileRequired { calls: vec![CallId(2)] }).silenced(1);
    log.write(Event::Reconciled { call: CallId(2), outcome: Outcome::NeedsPerson });
    log.write(Event::Reconciled { call: CallId(2), outcome: Outcome::Happened });
    log.turn = None;
    log.write(Event::LinkLost);
    log.accept(2).wait(100).end(Terminal::Completed).over();
    log
}

#[test]
fn a_good_log_breaks_no_law() {
    assert_eq!(good().checks.violations(), []);
}

#[test]
fn names_are_unique_and_laws_are_told() {
    let mut names: Vec<_> = CHECKERS.iter().map(|checker| checker.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKERS.len());
    assert!(CHECKERS.iter().all(|checker| !checker.law.is_empty()));
}

#[test]
fn holes_and_doubles_in_seq() {
    let mut log = Log::new();
    log.seq += 1;
    log.write(Event::LinkUp).only("seq_without_holes");
    let mut log = Log::new();
    log.seq -= 1;
    log.write(Event::LinkUp).only("seq_without_holes");
}

#[test]
fn what_falls() {
    let mut log = Log::new();
    log.generation = 0;
    log.write(Event::LinkUp).only("generation_never_falls");
    let mut log = Log::new();
    log.wait(5).write(Event::LinkUp);
    log.at = Stamp::ZERO;
    log.write(Event::LinkUp).only("generation_never_falls");
}

#[test]
fn a_log_without_its_frame() {
    Log::new().write(Event::SessionStarted { wall_unix_ms: 1 }).only("framed");
    Log::new().over().write(Event::LinkUp).only("framed");
}

#[test]
fn two_terminals_and_none() {
    let mut log = Log::new();
    log.accept(1).end(Terminal::Completed).end(Terminal::Completed);
    log.only("one_terminal");
    let mut log = Log::new();
    log.accept(1).over().only("one_terminal");
    Log::new().accept(1).accept(1).only("one_terminal");
}

#[test]
fn work_after_the_end() {
    let mut log = Log::new();
    log.accept(1).end(Terminal::Completed).write(Event::ReplyText { delta: "late".into() });
    log.only("nothing_after_terminal");
}

#[test]
fn work_after_a_stop() {
    let mut log = Log::new();
    log.accept(1).cancel().write(Event::ReplyText { delta: "late".into() });
    log.only("nothing_after_cancel");
    let mut log = Log::new();
    log.accept(1).request(1, READ, "a").cancel().start(1);
    log.only("nothing_after_cancel");
}

#[test]
fn a_stop_with_two_effects() {
    Log::new().accept(1).cancel().cancel().only("one_cancel_effect");
    Log::new().accept(1).end(Terminal::Completed).cancel().only("one_cancel_effect");
}

#[test]
fn a_parent_that_never_was() {
    let mut log = Log::new();
    log.turn = Some(TurnId(2));
    log.write(Event::TurnAccepted { parent: Some(TurnId(1)), deadline: Stamp::MAX }).only("parents_come_first");
}

#[test]
fn tasks_left_over() {
    let started = Event::TaskStarted { task: TaskId(1), stage: Stage::Generate };
    let ended = Event::TaskEnded { task: TaskId(1), stage: Stage::Generate, outcome: TaskOutcome::Finished };
    Log::new().write(started.clone()).over().only("tasks_end_once");
    Log::new().write(started.clone()).write(ended.clone()).write(ended.clone()).only("tasks_end_once");
    Log::new().write(ended).only("tasks_end_once");
    Log::new().write(started.clone()).write(started).only("tasks_end_once");
    Log::new().fact(Fact::Over { tasks_alive: 1 }).only("tasks_end_once");
}

#[test]
fn calls_with_two_endings_or_none() {
    let mut log = Log::new();
    log.accept(1).request(1, READ, "a").start(1).call_ends(1, CallEnding::Done).call_ends(1, CallEnding::Cancelled);
    log.only("one_ending_per_call");
    let mut log = Log::new();
    log.accept(1).request(1, READ, "a").start(1);
    log.fact(Fact::Over { tasks_alive: 0 });
    assert!(log.names().contains(&"one_ending_per_call"));
    let mut log = Log::new();
    log.accept(1).request(1, READ, "a").start(1).call_ends(1, CallEnding::NotStarted { why: NotStarted::Cancelled });
    log.only("one_ending_per_call");
    Log::new().accept(1).start(7).only("one_ending_per_call");
}

#[test]
fn a_call_without_budget() {
    let mut log = Log::new();
    log.accept(1).request(1, PAY, "a").allow(1, true).wait(56_000).start(1);
    log.only("no_call_without_budget");
}

#[test]
fn a_call_that_nobody_allowed() {
    Log::new().accept(1).request(1, PAY, "a").start(1).only("approval_before_start");
    Log::new().accept(1).request(1, PAY, "a").allow(1, false).start(1).only("approval_before_start");
    let refused = CallEnding::NotStarted { why: NotStarted::Refused };
    let mut log = Log::new();
    log.accept(1).request(1, PAY, "a").write(Event::ApprovalAsked { call: CallId(1) }).call_ends(1, refused);
    log.only("approval_before_start");
}

#[test]
fn a_commit_without_an_intent() {
    let mut log = Log::new();
    log.accept(1).request(1, PAY, "a").allow(1, true).start(1).fact(Fact::Leave { call: CallId(1), at: Stamp::ZERO });
    log.only("intent_before_commit");
    let mut log = Log::new();
    log.accept(1).request(1, PAY, "a").allow(1, true).start(1).write(Event::CommitSent { call: CallId(1) });
    log.only("intent_before_commit");
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).fact(Fact::Leave { call: CallId(1), at: Stamp::ZERO });
    log.only("intent_before_commit");
}

#[test]
fn two_commits_under_one_key() {
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).call_ends(1, CallEnding::Unknown);
    log.paying(2, "a").sent(2).only("one_commit_per_key");
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).call_ends(1, CallEnding::Cancelled);
    log.paying(2, "a").sent(2);
    assert_eq!(log.names(), Vec::<&str>::new(), "what was taken back may be sent again");
}

#[test]
fn effects_without_leave() {
    Log::new().fact(Fact::Effect { key: "a", at: Stamp::ZERO }).only("effects_have_leave");
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1);
    log.fact(Fact::Effect { key: "a", at: Stamp::ZERO }).fact(Fact::Effect { key: "a", at: Stamp::ZERO });
    log.only("effects_have_leave");
}

#[test]
fn a_tool_that_fails_another_turn() {
    let failed = Terminal::Failed { reason: FailReason::ToolTimeout };
    let timeout = CallEnding::Failed { failure: CallFailure::Timeout };
    let mut log = Log::new();
    log.accept(1).request(1, READ, "a").start(1).call_ends(1, timeout).end(failed.clone());
    assert!(log.names().is_empty(), "{:?}", log.names());
    log.accept(2).end(failed);
    log.only("tools_fail_their_own_turn");
}

#[test]
fn an_unknown_dressed_up_as_cancelled() {
    let cancelled = Terminal::Cancelled { cause: CancelCause::User };
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).cancel().call_ends(1, CallEnding::Unknown).end(cancelled.clone());
    log.only("unknown_is_not_dressed_up");
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).cancel().wait(5).call_ends(1, CallEnding::Done).end(cancelled.clone());
    log.only("unknown_is_not_dressed_up");
    let mut log = Log::new();
    log.accept(1).request(1, READ, "a").start(1).cancel().end(cancelled);
    log.only("unknown_is_not_dressed_up");
    let mut log = Log::new();
    log.accept(1).end(Terminal::ReconcileRequired { calls: vec![] });
    log.only("unknown_is_not_dressed_up");
}

#[test]
fn a_done_call_told_otherwise() {
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).call_ends(1, CallEnding::Done);
    log.write(Event::Reconciled { call: CallId(1), outcome: Outcome::DidNotHappen }).only("done_is_never_rewritten");
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).call_ends(1, CallEnding::Unknown);
    log.write(Event::Reconciled { call: CallId(1), outcome: Outcome::DidNotHappen });
    log.write(Event::Reconciled { call: CallId(1), outcome: Outcome::Happened }).only("done_is_never_rewritten");
}

#[test]
fn inputs_that_get_lost_or_doubled() {
    Log::new().accept(1).write(queue(1)).end(Terminal::Completed).only("inputs_are_accounted_for");
    let consumed = Event::InputConsumed { input: input(1), request: 2 };
    Log::new().accept(1).write(queue(1)).write(consumed.clone()).write(consumed.clone()).only("inputs_are_accounted_for");
    Log::new().accept(1).write(consumed).only("inputs_are_accounted_for");
    Log::new().accept(1).write(queue(1)).write(queue(1)).only("inputs_are_accounted_for");
}

#[test]
fn silence_without_a_cut() {
    Log::new().silenced(1).only("silence_follows_the_cut");
    Log::new().raise().silenced(1).silenced(1).only("silence_follows_the_cut");
}

#[test]
fn the_old_answer_sounds_on() {
    Log::new().raise().heard(1, 481).only("nothing_stale_heard");
    Log::new().raise().wait(11).heard(1, 1).only("nothing_stale_heard");
    let mut log = Log::new();
    log.raise().heard(1, 480);
    assert_eq!(log.names(), Vec::<&str>::new(), "one block is the measure");
}

#[test]
fn a_fence_that_falls_or_lags() {
    let mut log = Log::new();
    log.raise().fact(Fact::Raised { generation: Generation(1), at: Stamp::ZERO });
    log.only("fence_never_falls");
    let mut log = Log::new();
    log.raise();
    log.generation += 1;
    log.write(Event::LinkUp).only("fence_never_falls");
}

#[test]
fn a_turn_stopped_for_its_link() {
    let mut log = Log::new();
    log.accept(1).write(Event::LinkLost).stop(CancelCause::Transport, Initiator::Engine);
    log.only("a_lost_link_changes_nothing");
    let mut log = Log::new();
    log.checks.rules.policy.on_disconnect = OnDisconnect::Hold(Duration::from_secs(2));
    log.accept(1).write(Event::LinkLost).wait(1_000).stop(CancelCause::Transport, Initiator::Engine);
    log.only("a_lost_link_changes_nothing");
}

#[test]
fn shown_too_soon_or_out_of_order() {
    let record = |seq, event| Record { v: VERSION, seq: Seq(seq), at: Stamp::ZERO, turn: None, generation: Generation(1), event };
    let raised = Event::GenerationRaised { from: Generation(1) };
    Log::new().fact(Fact::Shown(&record(2, raised))).only("shown_when_kept");
    let mut log = Log::new();
    log.fact(Fact::Shown(&record(2, Event::LinkUp))).fact(Fact::Shown(&record(4, Event::LinkUp))).only("shown_when_kept");
}

#[test]
fn an_ending_that_lies() {
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).call_ends(1, CallEnding::Cancelled);
    log.fact(Fact::Truth { call: CallId(1), happened: true }).only("endings_tell_the_truth");
    let mut log = Log::new();
    log.accept(1).paying(1, "a").sent(1).call_ends(1, CallEnding::Unknown);
    log.write(Event::Reconciled { call: CallId(1), outcome: Outcome::Happened });
    log.fact(Fact::Truth { call: CallId(1), happened: false }).only("endings_tell_the_truth");
}

#[test]
fn waits_without_end() {
    let mut log = Log::new();
    log.accept(1).wait(60_101).end(Terminal::Completed);
    log.only("waits_are_bounded");
    let mut log = Log::new();
    log.accept(1).cancel().wait(101).end(Terminal::Cancelled { cause: CancelCause::User });
    log.only("waits_are_bounded");
}

#[test]
fn a_violation_tells_where() {
    let mut log = Log::new();
    log.accept(1).end(Terminal::Completed).end(Terminal::Completed);
    let words = log.checks.violations()[0].to_string();
    assert_eq!(words, "one_terminal at seq 4: turn#1 ended as COMPLETED and again as COMPLETED");
}
