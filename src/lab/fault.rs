//! `lab::fault`: what goes wrong, ten families of it, each a base scenario and the ways in which it is varied.
//!
//! Layer 4. The bases are files under `assets/scenarios/faults/`; a variation moves an act, a time or a size and adds what must come of it.

use super::evidence::ms;
use super::expect::{Check, Expectation, Pattern};
use super::report::ScenarioReport;
use super::restart;
use super::run::play;
use super::scenario::{Act, Door, Place, Scenario, ScenarioError, Timed};
use crate::event::CancelCause;
use crate::turn::Sabotage;

/// One fault in all its variations.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Its base, a scenario file.
    base: &'static str,
    cases: fn(&Scenario) -> Vec<Scenario>,
    /// Whether its logs are cut by a restart at every record, besides.
    restarts: bool,
}

macro_rules! family {
    ($name:literal, $what:literal, $cases:path, $restarts:literal) => {
        Family {
            name: $name,
            what: $what,
            base: include_str!(concat!("../../assets/scenarios/faults/", $name, ".ron")),
            cases: $cases,
            restarts: $restarts,
        }
    };
}

/// The ten.
pub(super) const FAMILIES: &[Family] = &[
    family!("cancel_at_each_token", "A stop before and after every piece of an answer", at_each_token, false),
    family!("lookup_and_model_speed", "A slow lookup and a fast model, and the reverse", speeds, false),
    family!("voice_buffers", "100, 300 and 800 ms of sound buffered far away when the person barges in", buffers, false),
    family!("stop_and_end_together", "A stop and the end of the answer in the same millisecond, in both orders", together, false),
    family!("stop_around_commit", "A stop before, during and after a commit", around_commit, false),
    family!("lost_acknowledgement", "The answer to a stop is lost, and the stop is sent three times more", lost, false),
    family!(
        "disconnect",
        "The link is lost during completion, stop and failure; the client resumes with an old cursor",
        disconnects,
        false
    ),
    family!("little_time", "Almost no time is left", little_time, false),
    family!("deaf_providers", "Model, voice and tool do not listen to a stop", deaf, false),
    family!("restart", "The manager of the turns dies after every record and begins anew", one, true),
];

impl Family {
    /// Plays all its variations.
    pub(super) fn play(&self, sabotage: Option<Sabotage>) -> Result<Vec<ScenarioReport>, ScenarioError> {
        let base = Scenario::read(self.name, self.base)?;
        let mut reports = Vec::new();
        for scenario in (self.cases)(&base) {
            let played = play(&scenario, sabotage);
            reports.push(played.report);
            if self.restarts {
                let cut = Scenario { name: format!("{}_at_each_record", scenario.name), ..scenario };
                reports.push(restart::everywhere(&cut, &played.records, sabotage));
            }
        }
        Ok(reports)
    }
}

/// The base under another name, with this changed.
fn case(base: &Scenario, name: impl std::fmt::Display, change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut scenario = base.clone();
    scenario.name = format!("{}_{name}", base.name);
    change(&mut scenario);
    scenario.acts.sort_by_key(|timed| timed.at);
    scenario
}

fn event(name: &str) -> Pattern {
    Pattern { event: name.to_owned(), turn: None, generation: None, with: serde_json::Map::new() }
}

impl Scenario {
    fn expects(&mut self, that: impl Into<String>, is: Check) {
        self.expect.push(Expectation { that: that.into(), is });
    }

    fn stops(&mut self, at: i64, place: Place) {
        let act = Act::Cancel { turn: 1, cause: CancelCause::User, name: Some("stop".into()) };
        self.acts.push(Timed { at, act, place });
    }
}

fn one(base: &Scenario) -> Vec<Scenario> {
    vec![base.clone()]
}

fn at_each_token(base: &Scenario) -> Vec<Scenario> {
    let pieces = base.model.first().map(|model| model.pieces.clone()).unwrap_or_default();
    let mut cases = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        for place in [Place::First, Place::Last] {
            let out = if place == Place::First { n } else { n + 1 };
            let said: String = pieces[..out].iter().filter_map(|piece| piece.says.as_deref()).collect();
            let which = if place == Place::First { "before" } else { "after" };
            cases.push(case(base, format!("{which}_{}", n + 1), |scenario| {
                scenario.stops(piece.at as i64, place);
                scenario.expects(
                    "exactly the pieces before the stop got out",
                    Check::Words { turn: 1, said: Some(said), heard: None, unheard: None },
                );
            }));
        }
    }
    cases
}

fn speeds(base: &Scenario) -> Vec<Scenario> {
    let with = |lookup: u64, model: u64, name: &'static str, shown: bool| {
        case(base, name, |scenario| {
            scenario.lookup[0].takes = lookup;
            scenario.model[0].pieces[0].at = model;
            let found = vec![scenario.lookup[0].finds.clone()];
            let (has, lacks) = if shown { (found, Vec::new()) } else { (Vec::new(), found) };
            let that = if shown { "the model is shown what was found" } else { "the model is asked without what came too late" };
            scenario.expects(that, Check::ModelSaw { request: 1, has, lacks });
        })
    };
    vec![with(90, 1, "slow_lookup", true), with(1, 400, "slow_model", true), with(5_000, 1, "lookup_too_late", false)]
}

fn buffers(base: &Scenario) -> Vec<Scenario> {
    let mut cases = Vec::new();
    for buffer in [100, 300, 800] {
        for clears in [true, false] {
            let name = format!("{buffer}_ms_{}", if clears { "cleared" } else { "played_out" });
            cases.push(case(base, name, |scenario| {
                scenario.far.buffer = buffer;
                scenario.far.clears = clears;
                scenario.far.reports = clears;
            }));
        }
    }
    cases
}

fn together(base: &Scenario) -> Vec<Scenario> {
    let end = 110;
    let with = |name: &'static str, place, how: &str, answer: &str| {
        case(base, name, |scenario| {
            scenario.stops(end, place);
            scenario.expects(format!("the turn ends once, {how}"), Check::Ends { turn: 1, how: how.to_owned(), at: None });
            scenario
                .expects("the answer to the stop is the truth", Check::Answer { to: "stop".into(), are: vec![answer.to_owned()] });
        })
    };
    vec![
        with("stop_first", Place::First, "CANCELLED(user)", "accepted"),
        with("end_first", Place::Last, "COMPLETED", "already_terminal: COMPLETED"),
    ]
}

fn around_commit(base: &Scenario) -> Vec<Scenario> {
    let with = |name: &'static str, at, place, effects, how: &str, shut: bool| {
        case(base, name, |scenario| {
            scenario.stops(at, place);
            if shut {
                // The intent waits for the store while the stop comes.
                let act = |at, door| Timed { at, act: Act::Store(door), place: Place::First };
                scenario.acts.push(act(at - 10, Door::Shut));
                scenario.acts.push(act(at + 20, Door::Open));
            }
            scenario.expects(format!("the turn ends once, {how}"), Check::Ends { turn: 1, how: how.to_owned(), at: None });
            scenario.expects(format!("{effects} side effects"), Check::Outside { tool: "pay".into(), effects, staged: 0 });
        })
    };
    const TAKEN_BACK: &str = "CANCELLED(user)";
    const SENT: &str = "RECONCILE_REQUIRED(1 calls)";
    vec![
        with("before", 25, Place::First, 0, TAKEN_BACK, false),
        with("just_before", 30, Place::First, 0, TAKEN_BACK, false),
        with("while_the_intent_is_kept", 35, Place::First, 0, TAKEN_BACK, true),
        with("just_after", 30, Place::Last, 1, SENT, false),
        with("after", 45, Place::First, 1, SENT, false),
    ]
}

fn lost(base: &Scenario) -> Vec<Scenario> {
    let with = |name: &'static str, times: [i64; 4]| {
        case(base, name, |scenario| times.iter().for_each(|at| scenario.stops(*at, Place::First)))
    };
    vec![with("while_stopping", [50, 55, 60, 65]), with("over_the_end", [50, 60, 300, 400]), with("at_once", [50, 50, 50, 50])]
}

fn disconnects(base: &Scenario) -> Vec<Scenario> {
    let with = |name: &'static str,
                gone: i64,
                change: &dyn Fn(&mut Scenario),
                how: &str,
                ignored: Vec<u64>,
                resumed: Vec<u64>,
                text: &str| {
        case(base, name, |scenario| {
            scenario.acts.push(Timed { at: gone, act: Act::Disconnect, place: Place::First });
            change(scenario);
            scenario.expects(format!("the turn ends once, {how}"), Check::Ends { turn: 1, how: how.to_owned(), at: None });
            let text = text.to_owned();
            scenario.expects(
                "what was missed comes once, what the old cursor repeats is ignored, the text is there once",
                Check::Client { resumed, ignored, text },
            );
        })
    };
    vec![
        with("during_completion", 206, &|_| {}, "COMPLETED", vec![2, 3], vec![4], "One two three."),
        with("during_stop", 60, &|s| s.stops(65, Place::First), "CANCELLED(user)", vec![], vec![2], "One "),
        with(
            "during_failure",
            60,
            &|s| s.model[0].then = super::cast::Then::Break(crate::event::Retry::Later),
            "FAILED(provider failed in generate)",
            vec![],
            vec![2, 3, 4],
            "One two three.",
        ),
    ]
}

fn little_time(base: &Scenario) -> Vec<Scenario> {
    [11, 12, 15, 20, 30]
        .into_iter()
        .map(|budget| {
            case(base, format!("{budget}_ms"), |scenario| {
                scenario.policy.budget.turn = std::time::Duration::from_millis(budget);
                let failed = serde_json::json!({"terminal": {"state": "FAILED", "reason": {"kind": "deadline_exceeded"}}});
                let with = failed.as_object().cloned().unwrap_or_default();
                let end = Pattern { with, ..event("turn_ended") };
                scenario
                    .expects("it fails for want of time, and in time", Check::Within { from: 0, to: budget as i64, event: end });
            })
        })
        .collect()
}

fn deaf(base: &Scenario) -> Vec<Scenario> {
    let mut cases = Vec::new();
    for at in [35, 65, 105] {
        cases.push(case(base, format!("stopped_at_{}", ms(at * 1_000)), |scenario| {
            scenario.stops(at, Place::First);
            scenario.expects(
                "not a word gets out after the stop",
                Check::Never { event: Pattern { turn: Some(1), ..event("reply_text") }, from: Some(at) },
            );
        }));
    }
    cases
}
