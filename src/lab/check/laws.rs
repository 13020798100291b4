//! The laws, one function each. A law sees the book as it was before the fact, and the fact.

use super::book::{Book, call_of, is_restart};
use super::{Checker, Fact, Found, Rules};
use crate::event::{CallEnding, CancelCause, Durability, Event, FailReason, NotStarted, Outcome, Record, Terminal};
use crate::id::TurnId;
use crate::time::BLOCK_SAMPLES;

macro_rules! checkers {
    ($($name:ident: $law:literal,)*) => {
        /// Every checker, with its name and its law.
        pub const CHECKERS: &[Checker] = &[$(Checker { name: stringify!($name), law: $law, check: $name }),*];
    };
}

checkers! {
    seq_without_holes: "records are numbered from 1, without holes and without doubles",
    generation_never_falls: "neither the generation nor the time of records falls",
    framed: "one SessionStarted begins a log, and nothing follows SessionEnded",
    one_terminal: "a turn is accepted once and ends once, and at the end of a session every turn has ended",
    nothing_after_terminal: "no work of a turn is recorded after its terminal",
    nothing_after_cancel: "a turn that was asked to stop says nothing more, asks no model and starts no call",
    one_cancel_effect: "a turn is asked to stop at most once, and not after its terminal",
    parents_come_first: "a turn's parent was accepted before it",
    tasks_end_once: "every task that begins ends once, and none is alive at the end",
    one_ending_per_call: "a call is requested once, started at most once and ends exactly once",
    no_call_without_budget: "no call starts with less time left than its tool needs",
    approval_before_start: "a call that a person must allow starts only after a yes, and silence is not a no",
    intent_before_commit: "leave to commit is given once, to a call that runs, and only when its intent is kept",
    one_commit_per_key: "nothing is sent again under a key that may have happened",
    effects_have_leave: "what happens outside happens under a key with leave, and once",
    unknown_is_not_dressed_up: "a turn with an unanswered commit, or one confirmed after the stop, ends RECONCILE_REQUIRED",
    done_is_never_rewritten: "what is done, or settled, is never told otherwise",
    inputs_are_accounted_for: "every queued input is consumed or returned, once, before its turn ends",
    silence_follows_the_cut: "a generation is said to be silent once, and only after it was cut",
    nothing_stale_heard: "of an older generation at most one block is heard after the fence rose",
    fence_never_falls: "the fence never falls, and never stands behind the log",
    a_lost_link_changes_nothing: "a turn is stopped for its link only when the policy says so, and not before",
    shown_when_kept: "what is shown comes in order, and what must be kept is kept before it is shown",
    endings_tell_the_truth: "what a call's ending and outcome say is what is so outside",
    tools_fail_their_own_turn: "a turn fails for a tool's time only when a call of its own ran",
    waits_are_bounded: "a turn ends within its deadline, and a stop within its grace",
}

fn record<'a>(fact: &Fact<'a>) -> Option<&'a Record> {
    if let Fact::Record(record) = fact { Some(record) } else { None }
}

fn seq_without_holes(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let expected = book.last.map_or(1, |(seq, ..)| seq.0 + 1);
    if record.seq.0 != expected {
        found.say(format!("expected seq {expected}"));
    }
}

fn generation_never_falls(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let (Some(record), Some((_, at, generation))) = (record(fact), book.last) else { return };
    if record.generation < generation {
        found.say(format!("{} after {generation}", record.generation));
    }
    if record.at < at {
        found.say(format!("{} after {at}", record.at));
    }
}

fn framed(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let begins = matches!(record.event, Event::SessionStarted { .. });
    if begins != book.last.is_none() {
        found.say(if begins { "a second beginning" } else { "no beginning" });
    }
    if book.over {
        found.say("a record after the end");
    }
}

fn one_terminal(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    if let Fact::Over { .. } = fact {
        for (turn, _) in book.turns.iter().filter(|(_, turn)| turn.terminal.is_none()) {
            found.say(format!("{turn} never ended"));
        }
        return;
    }
    let Some(record) = record(fact) else { return };
    match (&record.event, book.turn(record)) {
        (Event::TurnAccepted { .. }, Some(_)) => found.say(format!("{} accepted twice", name(record.turn))),
        (Event::TurnAccepted { .. }, None) if record.turn.is_none() => found.say("a turn without a name"),
        (Event::TurnEnded { .. }, None) => found.say(format!("{} ended and was never accepted", name(record.turn))),
        (Event::TurnEnded { terminal, .. }, Some(turn)) => {
            if let Some(first) = &turn.terminal {
                found.say(format!("{} ended as {first} and again as {terminal}", name(record.turn)));
            }
        }
        _ => {}
    }
}

/// What is a turn's work, as opposed to a late fact about it.
fn is_work(event: &Event) -> bool {
    matches!(
        event,
        Event::TurnStarted { .. }
            | Event::ReplyText { .. }
            | Event::ReplyDone
            | Event::ModelRequested { .. }
            | Event::InputQueued { .. }
            | Event::InputConsumed { .. }
            | Event::InputReturned { .. }
            | Event::CallRequested { .. }
            | Event::ApprovalAsked { .. }
            | Event::ApprovalGiven { .. }
            | Event::CallStarted { .. }
            | Event::CallJoined { .. }
            | Event::CallCheckpoint { .. }
            | Event::CommitIntent { .. }
            | Event::CommitSent { .. }
            | Event::CallKept { .. }
            | Event::CallEnded { .. }
            | Event::HandedOver { .. }
            | Event::AudioStarted
    )
}

fn nothing_after_terminal(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let Some(terminal) = book.turn(record).and_then(|turn| turn.terminal.as_ref()) else { return };
    if is_work(&record.event) {
        found.say(format!("work of {} after {terminal}", name(record.turn)));
    }
}

fn nothing_after_cancel(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    if book.turn(record).is_none_or(|turn| turn.cancelled.is_none()) {
        return;
    }
    let what = match &record.event {
        Event::ReplyText { .. } => "text",
        Event::ModelRequested { .. } => "a question to the model",
        Event::CallStarted { .. } => "a call started",
        Event::CommitIntent { .. } => "an intent to commit",
        Event::InputConsumed { .. } => "an input consumed",
        Event::AudioStarted => "the first sound",
        _ => return,
    };
    found.say(format!("{what} after {} was asked to stop", name(record.turn)));
}

fn one_cancel_effect(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let (Event::CancelRequested { .. }, Some(turn)) = (&record.event, book.turn(record)) else { return };
    if turn.cancelled.is_some() {
        found.say(format!("{} was asked to stop twice", name(record.turn)));
    }
    if turn.terminal.is_some() {
        found.say(format!("{} was asked to stop after its end", name(record.turn)));
    }
}

fn parents_come_first(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(Event::TurnAccepted { parent: Some(parent), .. }) = record(fact).map(|record| &record.event) else { return };
    if !book.turns.contains_key(parent) {
        found.say(format!("{parent} is a parent and was never accepted"));
    }
}

fn tasks_end_once(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    match fact {
        Fact::Over { tasks_alive } => {
            if *tasks_alive > 0 {
                found.say(format!("{tasks_alive} tasks are alive at the end"));
            }
            for (task, (stage, _)) in book.tasks.iter().filter(|(_, (_, ended))| !ended) {
                found.say(format!("{task} ({stage}) never ended"));
            }
        }
        Fact::Record(record) => match &record.event {
            Event::TaskStarted { task, .. } if book.tasks.contains_key(task) => found.say(format!("{task} began twice")),
            Event::TaskEnded { task, .. } => match book.tasks.get(task) {
                None => found.say(format!("{task} ended and never began")),
                Some((_, true)) => found.say(format!("{task} ended twice")),
                Some((_, false)) => {}
            },
            _ => {}
        },
        _ => {}
    }
}

fn one_ending_per_call(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    if let Fact::Over { .. } = fact {
        for (call, _) in book.calls.iter().filter(|(_, call)| call.ended.is_none()) {
            found.say(format!("{call} never ended"));
        }
        return;
    }
    let Some((record, id)) = record(fact).and_then(|record| Some((record, call_of(&record.event)?))) else { return };
    let seen = book.calls.get(&id);
    match (&record.event, seen) {
        (Event::CallRequested { .. }, Some(_)) => found.say(format!("{id} was requested twice")),
        (Event::CallRequested { .. }, None) => {}
        (_, None) => found.say(format!("{id} was never requested")),
        (Event::CallEnded { ending, .. }, Some(call)) => {
            if let Some((first, _)) = call.ended {
                found.say(format!("{id} ended as {first} and again as {ending}"));
            }
            if matches!(ending, CallEnding::NotStarted { .. }) && call.started {
                found.say(format!("{id} is {ending} and had started"));
            }
        }
        (Event::CallStarted { .. }, Some(call)) if call.started => found.say(format!("{id} started twice")),
        (Event::Reconciled { .. }, Some(call)) if call.ended.is_none() => found.say(format!("{id} is reconciled and never ended")),
        (Event::Reconciled { .. }, Some(_)) => {}
        (_, Some(call)) => {
            if let Some((ending, _)) = call.ended {
                found.say(format!("{id} goes on after it ended as {ending}"));
            }
        }
    }
}

fn no_call_without_budget(book: &Book, rules: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let Event::CallStarted { call, .. } = &record.event else { return };
    let (Some(turn), Some(seen)) = (book.turn(record), book.calls.get(call)) else { return };
    let needs = rules.tool(&seen.tool).map(|tool| tool.minimum_budget).unwrap_or_default();
    let left = turn.deadline.back(rules.policy.budget.closing_reserve).since(record.at);
    if left.is_zero() || left < needs {
        found.say(format!("{call} started with {} ms left, its tool needs {} ms", left.as_millis(), needs.as_millis()));
    }
}

fn approval_before_start(book: &Book, rules: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let Some((id, call)) = call_of(&record.event).and_then(|id| Some((id, book.calls.get(&id)?))) else { return };
    let must = rules.tool(&call.tool).is_some_and(|tool| tool.approval);
    match &record.event {
        Event::CallStarted { .. } if must && call.granted != Some(true) => found.say(format!("{id} started and nobody allowed it")),
        Event::CallEnded { ending: CallEnding::NotStarted { why: NotStarted::Refused }, .. }
            if call.granted != Some(false) && !call.joined =>
        {
            found.say(format!("{id} is refused and nobody said no"));
        }
        Event::ApprovalGiven { .. } if !call.asked => found.say(format!("{id} was allowed and nobody was asked")),
        Event::ApprovalGiven { .. } if call.granted.is_some() => found.say(format!("{id} was answered twice")),
        Event::ApprovalAsked { .. } if call.started || !must => found.say(format!("{id} needs no leave of a person")),
        _ => {}
    }
}

fn intent_before_commit(book: &Book, rules: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let id = match fact {
        Fact::Leave { call, .. } => *call,
        Fact::Record(record) => match call_of(&record.event) {
            Some(call) => call,
            None => return,
        },
        _ => return,
    };
    let Some(call) = book.calls.get(&id) else { return };
    match fact {
        Fact::Leave { .. } => {
            if !call.intent {
                found.say(format!("{id} has leave to commit and its intent is not kept"));
            }
            if call.leave {
                found.say(format!("{id} has leave to commit twice"));
            }
            if rules.tool(&call.tool).is_some_and(|tool| tool.class == crate::event::Cancellability::ReadOnly) {
                found.say(format!("{id} is read only and has leave to commit"));
            }
        }
        Fact::Record(record) => match &record.event {
            Event::CommitIntent { key, .. } => {
                if !call.started || call.ended.is_some() || call.intent {
                    found.say(format!("{id} means to commit and does not run, or meant to before"));
                }
                if key.0 != call.key {
                    found.say(format!("{id} means to commit under another key than its own"));
                }
            }
            Event::CommitSent { .. } if !call.intent || call.sent => {
                found.say(format!("{id} committed without an intent, or twice"));
            }
            Event::CallEnded { ending: CallEnding::Unknown, .. } if !call.intent && !call.joined => {
                found.say(format!("{id} is unknown and never meant to commit"));
            }
            _ => {}
        },
        _ => {}
    }
}

fn one_commit_per_key(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(Event::CommitSent { call: id }) = record(fact).map(|record| &record.event) else { return };
    let Some(call) = book.calls.get(id) else { return };
    for (other, _) in book.calls.iter().filter(|(other, c)| *other != id && c.key == call.key && c.may_have_happened()) {
        found.say(format!("{id} committed under the key of {other}, which may have happened"));
    }
}

fn effects_have_leave(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Fact::Effect { key, .. } = fact else { return };
    let (leaves, effects) = (book.leaves.get(*key).copied().unwrap_or(0), book.effects.get(*key).copied().unwrap_or(0));
    if effects >= leaves {
        found.say(format!("{} effects under a key that had leave {leaves} times", effects + 1));
    }
}

fn unknown_is_not_dressed_up(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let (Event::TurnEnded { terminal, .. }, Some(id), Some(turn)) = (&record.event, record.turn, book.turn(record)) else { return };
    let named: &[_] = if let Terminal::ReconcileRequired { calls } = terminal { calls } else { &[] };
    for (call, seen) in book.calls_of(id) {
        let unknown = matches!(seen.ended, Some((CallEnding::Unknown, _))) && !seen.outcome.is_some_and(Outcome::is_settled);
        let after_stop = matches!((seen.ended, turn.cancelled), (Some((CallEnding::Done, ended)), Some(stop)) if ended > stop);
        let confirmed_late = seen.sent && after_stop && !seen.joined && seen.outcome != Some(Outcome::Compensated);
        if seen.ended.is_none() {
            found.say(format!("{id} ends as {terminal} while {call} is open"));
        } else if (unknown || confirmed_late) && !named.contains(&call) {
            found.say(format!("{id} ends as {terminal} while {call} may have happened"));
        }
    }
    for call in named {
        let may = book.calls.get(call).is_some_and(|seen| {
            seen.intent && matches!(seen.ended, Some((CallEnding::Unknown | CallEnding::Done, _))) || seen.joined
        });
        if !may {
            found.say(format!("{id} names {call}, of which nothing is unknown"));
        }
    }
    if named.is_empty() && matches!(terminal, Terminal::ReconcileRequired { .. }) {
        found.say(format!("{id} has nothing to reconcile"));
    }
}

fn done_is_never_rewritten(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(Event::Reconciled { call: id, outcome }) = record(fact).map(|record| &record.event) else { return };
    let Some(call) = book.calls.get(id) else { return };
    if *outcome == Outcome::DidNotHappen && matches!(call.ended, Some((CallEnding::Done, _))) {
        found.say(format!("{id} is done and is said not to have happened"));
    }
    if let Some(before) = call.outcome.filter(|outcome| outcome.is_settled()) {
        // What happened may still be undone; nothing else changes what is settled.
        if (before, *outcome) != (Outcome::Happened, Outcome::Compensated) {
            found.say(format!("{id} was settled as {before:?} and now as {outcome:?}"));
        }
    }
}

fn inputs_are_accounted_for(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    if let Fact::Over { .. } = fact {
        for (input, _) in book.inputs.iter().filter(|(_, seen)| seen.ends == 0) {
            found.say(format!("input {input} was neither consumed nor returned"));
        }
        return;
    }
    let Some(record) = record(fact) else { return };
    match &record.event {
        Event::InputQueued { input, .. } if book.inputs.contains_key(input) => found.say(format!("input {input} queued twice")),
        Event::InputConsumed { input, .. } | Event::InputReturned { input, .. } => match book.inputs.get(input) {
            None => found.say(format!("input {input} was never queued")),
            Some(seen) if seen.ends > 0 => found.say(format!("input {input} ended twice")),
            Some(seen) if seen.turn != record.turn => found.say(format!("input {input} ended in another turn")),
            Some(_) => {}
        },
        Event::TurnEnded { .. } => {
            for (input, _) in book.inputs.iter().filter(|(_, seen)| seen.turn == record.turn && seen.ends == 0) {
                found.say(format!("{} ended and input {input} was neither consumed nor returned", name(record.turn)));
            }
        }
        _ => {}
    }
}

fn silence_follows_the_cut(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(Event::Silenced { stale, .. }) = record(fact).map(|record| &record.event) else { return };
    if book.silenced.contains(stale) {
        found.say(format!("{stale} fell silent twice"));
    }
    if *stale > book.cut {
        found.say(format!("{stale} is silent and was never cut"));
    }
}

fn nothing_stale_heard(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Fact::Heard { generation, samples, at } = fact else { return };
    let (fence, raised) = book.fence;
    if *generation < fence && *samples > 0 {
        let heard = book.stale + samples;
        if heard > BLOCK_SAMPLES as u64 || at.since(raised) > crate::time::BEAT {
            found.say(format!("{heard} samples of {generation} heard until {at}; {fence} stands since {raised}"));
        }
    }
    if *generation > fence && *samples > 0 {
        found.say(format!("{generation} sounds and the fence stands at {fence}"));
    }
}

fn fence_never_falls(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    match fact {
        Fact::Raised { generation, .. } if *generation < book.fence.0 => {
            found.say(format!("raised to {generation} from {}", book.fence.0));
        }
        // Only a log that comes with its fence can be compared with it.
        Fact::Record(record) if book.fence.0.is_set() && record.generation > book.fence.0 => {
            found.say(format!("the log is at {} and the fence at {}", record.generation, book.fence.0));
        }
        _ => {}
    }
}

fn a_lost_link_changes_nothing(book: &Book, rules: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let Event::CancelRequested { cause: CancelCause::Transport, initiator: crate::event::Initiator::Engine, .. } = &record.event
    else {
        return;
    };
    let lost = book.lost.map(|lost| record.at.since(lost));
    match (rules.patience(), lost) {
        (None, _) => found.say(format!("{} was stopped for its link, and the policy is to go on", name(record.turn))),
        (Some(_), None) => found.say(format!("{} was stopped for its link, which is there", name(record.turn))),
        (Some(patience), Some(lost)) if lost < patience => {
            found.say(format!("{} was stopped {} ms after its link was lost", name(record.turn), lost.as_millis()));
        }
        _ => {}
    }
}

fn shown_when_kept(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Fact::Shown(record) = fact else { return };
    if let Some(shown) = book.shown.filter(|shown| record.seq != shown.next()) {
        found.say(format!("{} is shown after {shown}", record.seq));
    }
    let kept = book.last.is_some_and(|(seq, ..)| record.seq <= seq);
    if record.event.durability() == Durability::Synced && !kept {
        found.say(format!("{} is shown before it is kept", record.seq));
    }
}

fn endings_tell_the_truth(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Fact::Truth { call: id, happened } = *fact else { return };
    let Some(call) = book.calls.get(&id) else {
        found.say(format!("{id} had leave and is not in the log"));
        return;
    };
    let Some((ending, _)) = call.ended else { return };
    let said = match (call.outcome, ending) {
        (Some(Outcome::Happened), _) => true,
        (Some(Outcome::DidNotHappen | Outcome::Compensated), _) => false,
        (Some(Outcome::NeedsPerson), _) | (None, CallEnding::Unknown) => return,
        (None, CallEnding::Done) => true,
        (None, CallEnding::Failed { .. } | CallEnding::Cancelled | CallEnding::NotStarted { .. }) => false,
    };
    if said != happened {
        let so = if happened { "it happened" } else { "it did not happen" };
        found.say(format!("{id} is {ending} with outcome {:?}, and {so}", call.outcome));
    }
}

fn tools_fail_their_own_turn(book: &Book, _: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let Event::TurnEnded { terminal: Terminal::Failed { reason: FailReason::ToolTimeout }, .. } = &record.event else { return };
    if !book.calls.values().any(|call| call.turn == record.turn && call.started) {
        found.say(format!("{} fails for a call that is not its own", name(record.turn)));
    }
}

fn waits_are_bounded(book: &Book, rules: &Rules, fact: &Fact<'_>, found: &mut Found) {
    let Some(record) = record(fact) else { return };
    let (Event::TurnEnded { terminal, .. }, Some(turn)) = (&record.event, book.turn(record)) else { return };
    if is_restart(terminal) || turn.orphaned {
        return;
    }
    let grace = rules.longest_grace() + rules.slack;
    if record.at > turn.deadline + grace {
        found.say(format!("{} ended at {} and had until {}", name(record.turn), record.at, turn.deadline));
    }
    if let Some(stop) = turn.cancelled.filter(|stop| record.at > *stop + grace) {
        found.say(format!("{} was asked to stop at {stop} and ended at {}", name(record.turn), record.at));
    }
}

fn name(turn: Option<TurnId>) -> String {
    turn.map_or_else(|| "a turn without a name".to_owned(), |turn| turn.to_string())
}
