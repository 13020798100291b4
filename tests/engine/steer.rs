//! Input while an answer is being made: steering, approvals, announcements, hand-over, look-ups.

use std::time::Duration;

use antiphon::engine::Engine;
use antiphon::event::{CallEnding, CancelCause, Cancellability, Event, NotStarted, Pii, Terminal};
use antiphon::id::{CallId, RequestId, TurnId};
use antiphon::provider::llm::ScriptedLlm;
use antiphon::provider::stt::ScriptedStt;
use antiphon::provider::tts::{ScriptedTts, TtsScript};
use antiphon::provider::{Info, Message, ProviderError, Retriever, TaskCx};
use antiphon::transport::net::Net;
use antiphon::transport::wire::{FromClient, Mode, ToClient};
use antiphon::turn::{ApproveAnswer, Handover, Refusal, SubmitAnswer, SubmitMode};

use super::bench::{Desk, Mind, Say, Step, users, well_formed};
use super::tools::world_hearing;
use super::world::{STORY, World, policy};

fn slow_desk() -> Desk {
    Desk::new("look", Cancellability::ReadOnly, [Step::Rest(1_000)])
}

/// A turn whose tool is at work.
async fn working(desk: &Desk) -> (World, Mind, TurnId) {
    let mind = Mind::new([vec![Say::Text("Let me look. "), Say::Call("look", "{}")], vec![Say::Text("At five then.")]]);
    let mut world = world_hearing("unused", &mind, &[desk]);
    let turn = world.say("what time is it?").await;
    world.until("its tool", |w| w.count(|e| matches!(e, Event::CallStarted { .. })) > 0).await;
    (world, mind, turn)
}

#[tokio::test(start_paused = true)]
async fn h5_an_input_while_a_tool_works_is_shown_to_the_model_with_its_result() {
    let (mut world, mind, turn) = working(&slow_desk()).await;
    let input = RequestId::from_bits(40);
    for _ in 0..2 {
        let answer = world.session.submit_as(input, "in London, I mean", SubmitMode::StartOrSteer).await;
        assert_eq!(answer, SubmitAnswer::Steered(turn), "sent again, it takes effect once");
    }
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    assert_eq!(world.count(|e| matches!(e, Event::InputQueued { .. })), 1);
    assert_eq!(world.count(|e| *e == Event::InputConsumed { input, request: 2 }), 1);
    let asked = mind.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(users(&asked[1]), ["what time is it?", "in London, I mean"]);
    assert_eq!(well_formed(&asked[1]).len(), 1);
    let world = world.leave_nothing().await;
    let steering = world.engine.metrics().steering();
    assert_eq!((steering.queued, steering.consumed, steering.returned), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn h7_each_mode_takes_what_it_says_and_hands_back_the_rest() {
    let (mut world, _, turn) = working(&slow_desk()).await;
    let session = world.session.clone();
    let refused = |refusal| SubmitAnswer::NotSubmitted { refusal, text: "wait".into() };
    let mismatch = Refusal::ExpectedTurnMismatch { actual: turn };
    assert_eq!(session.submit("wait", SubmitMode::StartIfIdle).await, refused(mismatch));
    let other = SubmitMode::Steer { expected: TurnId(9) };
    assert_eq!(session.submit("wait", other).await, refused(mismatch));
    let this = SubmitMode::Steer { expected: turn };
    assert_eq!(session.submit("wait", this).await, SubmitAnswer::Steered(turn));
    assert_eq!(session.submit("  ", this).await, SubmitAnswer::NotSubmitted { refusal: Refusal::Empty, text: "  ".into() });
    world.end_of(turn).await;
    assert_eq!(session.submit("wait", this).await, refused(Refusal::NoActiveTurn));
    let SubmitAnswer::Started(next) = session.submit("wait", SubmitMode::StartIfIdle).await else { panic!("it was idle") };
    world.end_of(next).await;
    world.leave_nothing().await;
    assert_eq!(session.submit("wait", this).await, refused(Refusal::Draining), "after the session's end");
}

#[tokio::test(start_paused = true)]
async fn an_input_that_the_model_never_saw_comes_back() {
    let (mut world, mind, turn) = working(&slow_desk()).await;
    let input = RequestId::from_bits(40);
    world.session.submit_as(input, "in London", SubmitMode::StartOrSteer).await;
    world.cancel(turn).await;
    assert_eq!(world.end_of(turn).await, Terminal::Cancelled { cause: CancelCause::User });
    let back = world.place(|e| *e == Event::InputReturned { input, text: "in London".into() }).expect("it comes back");
    assert!(back < world.place(|e| matches!(e, Event::TurnEnded { .. })).expect("the end"), "before the end");
    assert_eq!(mind.asked().len(), 1);
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_allows_a_call_or_does_not() {
    for granted in [true, false] {
        let desk = slow_desk().declares(|d| d.approval = true);
        let mind = Mind::new([vec![Say::Call("look", "{}")]]);
        let mut world = world_hearing("unused", &mind, &[&desk]);
        let turn = world.say("go").await;
        world.until("the question", |w| w.count(|e| matches!(e, Event::ApprovalAsked { .. })) > 0).await;
        assert_eq!(world.session.approve(CallId(9), true).await, ApproveAnswer::NoSuchCall);
        assert_eq!(world.session.approve(CallId(1), granted).await, ApproveAnswer::Taken);
        assert_eq!(world.session.approve(CallId(1), granted).await, ApproveAnswer::NotAsked, "answered before");
        assert_eq!(world.end_of(turn).await, Terminal::Completed);
        let ending = if granted { CallEnding::Done } else { CallEnding::NotStarted { why: NotStarted::Refused } };
        assert_eq!(well_formed(&mind.asked()[1]), [(CallId(1), Some(ending))]);
        assert_eq!(desk.book().arguments.len(), usize::from(granted));
        world.leave_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn s3_an_approval_that_nobody_gave_is_not_a_refusal() {
    // Something keeps the turn stopping for a while: a second tool that does not hear.
    let asks = slow_desk().declares(|d| d.approval = true);
    let deaf = Desk::new("deaf", Cancellability::ReadOnly, [Step::Deaf(60_000)]);
    let mind = Mind::new([vec![Say::Call("deaf", "{}"), Say::Call("look", "{}")]]);
    let mut world = world_hearing("unused", &mind, &[&asks, &deaf]);
    let turn = world.say("go").await;
    world.until("the question", |w| w.count(|e| matches!(e, Event::ApprovalAsked { .. })) > 0).await;
    world.cancel(turn).await;
    assert_eq!(world.session.approve(CallId(2), false).await, ApproveAnswer::NotAsked, "the turn is stopping");
    world.end_of(turn).await;
    let ending = CallEnding::NotStarted { why: NotStarted::Cancelled };
    assert_eq!(world.count(|e| *e == Event::CallEnded { call: CallId(2), ending, result: None }), 1);
    assert_eq!(world.count(|e| matches!(e, Event::ApprovalGiven { .. })), 0);
    assert!(asks.book().arguments.is_empty());
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn an_announcement_is_spoken_as_it_stands_and_is_not_steered() {
    let mind = Mind::default();
    let mut world = world_hearing("unused", &mind, &[]);
    let SubmitAnswer::Started(turn) = world.session.announce("Doors are closing.", true).await else { panic!("not started") };
    world.until("its sound", |w| w.sounds(turn)).await;
    let text: Pii<String> = "wait".into();
    let refused = SubmitAnswer::NotSubmitted { refusal: Refusal::NotSteerable { turn }, text: text.clone() };
    assert_eq!(world.session.submit(text, SubmitMode::StartOrSteer).await, refused);
    assert_eq!(world.end_of(turn).await, Terminal::Completed);
    assert_eq!(world.texts(turn).0, "Doors are closing.");
    assert!(mind.asked().is_empty(), "the model was not asked");
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn s5_a_hand_over_says_what_stops_what_stays_and_what_comes() {
    let mind = Mind::new([
        vec![Say::Call("look", "{}"), Say::Call("read", "{}")],
        vec![Say::Text("One moment. ")],
        vec![Say::Text("Here it is.")],
    ]);
    let look = Desk::new("look", Cancellability::ReadOnly, [Step::Rest(2_000)]);
    let read = Desk::new("read", Cancellability::ReadOnly, [Step::Rest(2_000)]);
    let mut world = world_hearing("unused", &mind, &[&look, &read]);
    let turn = world.say("find it").await;
    world.until("both tools", |w| w.count(|e| matches!(e, Event::CallStarted { .. })) == 2).await;
    let handover = Handover { stop: turn, keep: vec![CallId(1)], next: "and be brief".into(), constraints: "One sentence.".into() };
    let SubmitAnswer::Started(next) = world.session.handover(handover).await else { panic!("not started") };
    assert_eq!(world.end_of(next).await, Terminal::Completed);
    assert!(matches!(world.terminal(turn), Some(Terminal::Cancelled { .. })));
    let parent = world.find(|r| match &r.event {
        Event::TurnAccepted { parent, .. } if r.turn == Some(next) => Some(*parent),
        _ => None,
    });
    assert_eq!(parent, Some(Some(turn)));
    assert_eq!(world.count(|e| matches!(e, Event::HandedOver { from, keep, .. } if *from == turn && *keep == [CallId(1)])), 1);
    assert_eq!(world.count(|e| *e == Event::CallKept { call: CallId(1), from: turn }), 1);
    let last = mind.asked().pop().expect("asked");
    assert_eq!(well_formed(&last), [(CallId(1), Some(CallEnding::Done)), (CallId(2), Some(CallEnding::Cancelled))]);
    assert!(matches!(&last.conversation[0], Message::System { text } if text.reveal() == "One sentence."));
    let stop = world.session.handover(Handover { stop: TurnId(77), keep: vec![], next: "x".into(), constraints: "".into() }).await;
    assert_eq!(stop, SubmitAnswer::NotSubmitted { refusal: Refusal::NoSuchTurn, text: "x".into() });
    world.leave_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_steers_and_allows_over_the_wire() {
    let desk = slow_desk().declares(|d| d.approval = true);
    let mind = Mind::new([vec![Say::Call("look", "{}")]]);
    let mut world = world_hearing("unused", &mind, &[&desk]);
    let ask = |n: u128| RequestId::from_bits(n);
    let submit = |n, mode| FromClient::Submit { request: ask(n), text: "a secret".into(), mode };
    let now = world.clock_now();
    world.far.send(now, submit(1, Mode::Steer { expected: TurnId(1) }));
    world.far.send(now, submit(2, Mode::StartIfIdle));
    world.until("the question", |w| w.count(|e| matches!(e, Event::ApprovalAsked { .. })) > 0).await;
    let now = world.clock_now();
    world.far.send(now, submit(3, Mode::StartIfIdle));
    world.far.send(now, submit(4, Mode::Steer { expected: TurnId(1) }));
    world.far.send(now, FromClient::Approve { request: ask(5), call: CallId(7), granted: true });
    world.far.send(now, FromClient::Approve { request: ask(6), call: CallId(1), granted: true });
    assert_eq!(world.end_of(TurnId(1)).await, Terminal::Completed);
    let answers: Vec<(&str, Option<TurnId>)> = world
        .messages
        .iter()
        .filter_map(|(_, m)| match m {
            ToClient::Answer { answer, turn, .. } => Some((answer.as_str(), *turn)),
            _ => None,
        })
        .collect();
    let turn = Some(TurnId(1));
    let want = [
        ("no_active_turn", turn),
        ("started", turn),
        ("expected_turn_mismatch", turn),
        ("steered", turn),
        ("no_such_call", None),
        ("taken", None),
    ];
    assert_eq!(answers, want);
    world.leave_nothing().await;
}

/// Looks up the same thing, after a while.
struct Library(Duration);

impl Retriever for Library {
    fn info(&self) -> Info {
        Info::new("library")
    }

    async fn retrieve(&self, conversation: Vec<Message>, cx: TaskCx) -> Result<Pii<String>, ProviderError> {
        cx.rest(self.0).await?;
        assert!(matches!(conversation.last(), Some(Message::User { .. })), "the question is last");
        Ok("Shops close at six.".into())
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_looked_up_in_time_is_shown_to_the_model_and_what_was_not_is_not_waited_for() {
    for (takes, found) in [(200, true), (60_000, false)] {
        let mind = Mind::default();
        let tts = ScriptedTts::new([TtsScript::new()]);
        let library = Library(Duration::from_millis(takes));
        let builder = Engine::builder(ScriptedStt::hearing("unused"), mind.clone(), tts).policy(policy()).retriever(library);
        let mut world = World::with(builder.instructions("Be kind."), Net::perfect());
        let turn = world.say("when do shops close?").await;
        assert_eq!(world.end_of(turn).await, Terminal::Completed);
        let asked = mind.asked();
        let system: Vec<&str> = asked[0]
            .conversation
            .iter()
            .filter_map(|message| match message {
                Message::System { text } => Some(text.reveal().as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(system, if found { vec!["Be kind.", "Shops close at six."] } else { vec!["Be kind."] });
        world.leave_nothing().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_application_does_not_name_has_the_same_name_in_every_run() {
    let run = || async {
        let tts = ScriptedTts::new([TtsScript::new()]);
        let builder = Engine::builder(ScriptedStt::hearing("unused"), ScriptedLlm::saying(STORY), tts).policy(policy());
        let mut world = World::with(builder, Net::perfect());
        for _ in 0..2 {
            world.session.say("one").await;
            world.session.submit("two", SubmitMode::StartOrSteer).await;
            world.run(300).await;
        }
        world.session.push_to_talk(true).await;
        world.session.push_to_talk(false).await;
        let world = world.leave_nothing().await;
        world.log.iter().map(|record| serde_json::to_string(&**record).expect("serialises")).collect::<Vec<_>>()
    };
    let (first, second) = (run().await, run().await);
    assert!(first.len() > 10);
    assert_eq!(first, second, "the log is the same to the byte");
}
