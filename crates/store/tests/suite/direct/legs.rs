//! Upstreams that ask for input: the requests of one operation.

use std::time::Duration;

use counterfoil_core::direct::{LEG_LIMIT, Leg, Report};
use counterfoil_core::operation::State;
use counterfoil_core::refusal::Code;
use counterfoil_store::direct::{Begin, Begun};

use super::super::calls::{TestCall, call};
use super::{
    ANSWERED, APPLIED, ASKED, ASKS, DirectFactory, HOUR, LEASE, OTHER_BOOT, REFUSED, SENT, Wire,
    at, begin, joining, later, plain, text_of, with,
};

const YES: &str = r#"{"sure":true}"#;
const NO: &str = r#"{"sure":false}"#;

pub async fn a_question_settles_nothing<F: DirectFactory>() {
    // Promise: an operation whose upstream asked waits for the next request, as long as was said, and
    // the call alone gets the question again.
    let mut wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    let moved = wire.moved(with(hold, ASKS, "sure?")).await;
    assert_eq!((moved.record.state, moved.record.settled_at), (ASKED, None));
    assert_eq!(moved.record.owner.map(|owner| owner.lease_until), Some(at(HOUR)));
    wire.reopen().await;
    let replayed = wire.replayed(begin(&call("op-1"))).await;
    assert_eq!((replayed.leg, text_of(&replayed.view)), (1, Some("sure?".into())));
    let idless = wire.replayed(joining(&call("own-1"))).await;
    assert_eq!((idless.joined, text_of(&idless.view)), (true, Some("sure?".into())));
    assert_eq!(wire.kinds(hold.key).await, ["dispatched", "asked_for_input", "joined"]);
}

pub async fn each_request_is_sent_once<F: DirectFactory>() {
    // Promise: the answers are sent once, under a fence of their own, and the operation is what the last
    // answer makes it.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.moved(with(first, ASKS, "sure?")).await;
    let (second, record) = wire.sent(later("op-1", 2, YES)).await;
    assert_eq!((second.key, second.leg, second.fence), (first.key, 2, 2));
    assert_eq!(record.state, SENT);
    wire.check_refused(later("op-1", 2, YES), Code::OperationInProgress, "op-1", false).await;
    let question = wire.replayed(begin(&call("op-1"))).await;
    assert_eq!((question.leg, text_of(&question.view)), (1, Some("sure?".into())));
    wire.moved(with(second, ASKS, "really?")).await;
    let (third, _) = wire.sent(later("op-1", 3, YES)).await;
    let done = wire.moved(with(third, APPLIED, "done")).await;
    assert_eq!((done.record.state, done.item.leg), (State::Applied, 3));
    let identities = wire.bench.audit(first.key).await;
    let identities: Vec<_> = identities.iter().map(|event| event.identity.as_str()).collect();
    let legs = ["op-1", "op-1", "op-1/leg/2", "op-1/leg/2", "op-1/leg/3", "op-1/leg/3"];
    assert_eq!(identities, legs);
}

pub async fn an_answered_request_gets_its_own_answer_again<F: DirectFactory>() {
    // Promise: an earlier request that comes again gets its own question, the latest what its operation
    // came to.
    let mut wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.moved(with(first, ASKS, "one?")).await;
    let (second, _) = wire.sent(later("op-1", 2, YES)).await;
    wire.moved(with(second, ASKS, "two?")).await;
    wire.reopen().await;
    let check = async |asked, leg, text: &str| {
        let replayed = wire.replayed(asked).await;
        assert_eq!((replayed.leg, text_of(&replayed.view)), (leg, Some(text.to_owned())));
    };
    check(later("op-1", 2, YES), 2, "two?").await;
    check(begin(&call("op-1")), 1, "one?").await;
    let (third, _) = wire.sent(later("op-1", 3, YES)).await;
    check(later("op-1", 2, YES), 2, "two?").await;
    wire.moved(with(third, APPLIED, "done")).await;
    check(later("op-1", 3, YES), 3, "done").await;
    check(later("op-1", 2, YES), 2, "two?").await;
    check(begin(&call("op-1")), 3, "done").await;
    assert_eq!(wire.ledger.reply(first.key, 9).await, Ok(None));
    let kept = wire.ledger.reply(first.key, 1).await.expect("the ledger works").expect("kept");
    assert_eq!(&*kept.json, br#"{"text":"one?"}"#);
}

pub async fn changed_answers_conflict<F: DirectFactory>() {
    // Promise: other answers to a question that was answered are refused, while its request is under
    // way and after.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.moved(with(first, ASKS, "sure?")).await;
    let (second, _) = wire.sent(later("op-1", 2, YES)).await;
    wire.check_refused(later("op-1", 2, NO), Code::OperationConflict, "op-1", false).await;
    wire.moved(with(second, ASKS, "really?")).await;
    wire.check_refused(later("op-1", 2, NO), Code::OperationConflict, "op-1", false).await;
    let (third, _) = wire.sent(later("op-1", 3, YES)).await;
    wire.moved(with(third, ANSWERED, "no")).await;
    wire.check_refused(later("op-1", 2, NO), Code::OperationConflict, "op-1", false).await;
    wire.check_refused(later("op-1", 3, NO), Code::OperationConflict, "op-1", false).await;
}

pub async fn what_nobody_asked_for_fits_nothing<F: DirectFactory>() {
    // Promise: answers without a question are no request: nothing is sent and nothing written.
    let wire = Wire::<F>::new();
    assert_eq!(wire.begin(later("op-1", 2, YES)).await, Begun::Unfit);
    let first = wire.send(&call("op-1")).await;
    assert_eq!(wire.begin(later("op-1", 3, YES)).await, Begun::Unfit);
    wire.check_refused(later("op-1", 2, YES), Code::OperationInDoubt, "op-1", false).await;
    wire.moved(with(first, ASKS, "sure?")).await;
    assert_eq!(wire.begin(later("op-1", 3, YES)).await, Begun::Unfit);
    assert_eq!(wire.begin(later("op-1", 1, YES)).await, Begun::Unfit);
    let foreign = TestCall { principal: "bob", answers: Some(YES), ..call("op-1") };
    let foreign = Begin { leg: Leg::Later(2), ..begin(&foreign) };
    wire.check_refused(foreign, Code::OperationConflict, "op-1", false).await;
    assert_eq!(wire.kinds(first.key).await, ["dispatched", "asked_for_input"]);
}

pub async fn questions_without_end_are_stopped<F: DirectFactory>() {
    // Promise: an upstream that goes on asking is not followed for ever.
    let wire = Wire::<F>::new();
    let mut hold = wire.send(&call("op-1")).await;
    for leg in 2..=LEG_LIMIT {
        wire.moved(with(hold, ASKS, "sure?")).await;
        hold = wire.sent(later("op-1", leg, YES)).await.0;
    }
    wire.moved(with(hold, ASKS, "sure?")).await;
    let over = later("op-1", LEG_LIMIT + 1, YES);
    wire.check_refused(over, Code::OperationInDoubt, "op-1", false).await;
}

pub async fn an_unsent_request_is_asked_for_again<F: DirectFactory>() {
    // Promise: answers of which not one byte left can be given again, or other ones, as long as before;
    // whoever handed them back may not send them.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.moved(with(first, ASKS, "sure?")).await;
    for report in [Report::NotSent, Report::Withdrawn] {
        let hold = wire.waits(later("op-1", 2, YES)).await;
        assert_eq!(wire.state(hold.key).await, SENT, "on record before it is sent");
        let view = wire.moved(plain(hold, report)).await;
        assert_eq!((view.record.state, view.item.leg), (ASKED, 1));
        assert_eq!(text_of(&view), Some("sure?".into()));
        assert_eq!(view.record.owner.map(|owner| owner.lease_until), Some(at(HOUR)));
        assert_eq!(wire.dispatch(hold).await, None);
        wire.stale(plain(hold, report)).await;
    }
    let hold = wire.waits(later("op-1", 2, NO)).await;
    assert_eq!(wire.dispatch(hold).await, Some(hold));
    wire.moved(with(hold, APPLIED, "done")).await;
    wire.check_refused(later("op-1", 2, YES), Code::OperationConflict, "op-1", false).await;
}

pub async fn a_question_that_is_left_alone_is_in_doubt<F: DirectFactory>() {
    // Promise: what was sent before may have done its part; when nobody goes on in time it is in doubt,
    // and no absence at the upstream proves anything.
    let wire = Wire::<F>::new();
    let first = wire.send(&call("op-1")).await;
    wire.moved(with(first, ASKS, "sure?")).await;
    wire.pass(HOUR - Duration::from_millis(1));
    assert_eq!(wire.lapse().await, 0);
    wire.pass(Duration::from_millis(1));
    assert_eq!(wire.lapse().await, 1);
    assert_eq!(wire.state(first.key).await, State::InDoubt);
    wire.check_refused(later("op-1", 2, YES), Code::OperationInDoubt, "op-1", false).await;
    assert_eq!(wire.in_doubt("memory").await, [first.key]);
    let late = TestCall { boot: OTHER_BOOT, arguments: r#"{"t":2}"#, ..call("op-2") };
    let first = wire.send(&late).await;
    wire.moved(with(first, ASKS, "sure?")).await;
    // Nobody has noticed yet that the time is over: the fence decides, and not the time.
    wire.pass(HOUR * 2);
    let answers = TestCall { answers: Some(YES), ..late };
    let (second, _) = wire.sent(Begin { leg: Leg::Later(2), ..begin(&answers) }).await;
    wire.pass(LEASE);
    assert_eq!(wire.lapse().await, 1);
    let absent = super::LookupEnd::Absent { began: at(HOUR * 9), absence_after: HOUR };
    assert_eq!(wire.look_up(second.key, absent).await, None);
}

pub async fn a_question_that_cannot_be_kept_is_none<F: DirectFactory>() {
    // Promise: a question that cannot be kept is no question: its operation is in doubt.
    let wire = Wire::<F>::new();
    let hold = wire.send(&call("op-1")).await;
    let view = wire.moved(plain(hold, ASKS)).await;
    assert_eq!(view.record.state, State::InDoubt);
    wire.stale(with(super::Hold { fence: 9, ..hold }, REFUSED, "no")).await;
}
