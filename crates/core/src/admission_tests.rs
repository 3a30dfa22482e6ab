//! The decision on a call, row by row: who gets what, and in which order the checks stand.

use super::*;
use crate::fingerprint::{KeyId, SecretKey};
use crate::identity::{Principal, Tenant};
use crate::json::{JsonLimits, parse};
use crate::operation::Phase;
use crate::record::StoredResult;

const T0: i64 = 1_800_000_000_000;

fn key(fill: u8) -> SecretKey {
    SecretKey::from_bytes(&[fill; 32]).expect("32 bytes")
}

fn ring(active: u32, ids: &[u32]) -> KeyRing {
    let keys = ids.iter().map(|id| (KeyId(*id), key(u8::try_from(*id).expect("small"))));
    KeyRing::new(KeyId(active), keys).expect("a good ring")
}

struct Ask {
    principal: &'static str,
    operation_id: String,
    arguments: &'static str,
    state: Option<&'static str>,
    authority: Authority,
    keys: KeyRing,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            principal: "alice",
            operation_id: "op-1".into(),
            arguments: r#"{"title":"a"}"#,
            state: Some("state-A"),
            authority: Authority::Until(Timestamp::from_ms(T0 + 1000)),
            keys: ring(1, &[1]),
        }
    }
}

impl Ask {
    fn admit(&self) -> Admitted {
        let value = parse(self.arguments.as_bytes(), &JsonLimits::default()).expect("JSON");
        let caller = Caller {
            tenant: Tenant::parse("local").expect("valid"),
            principal: Principal::parse(self.principal).expect("valid"),
        };
        let call = Call {
            caller: &caller,
            tool_id: &ToolId::parse("create_issue").expect("valid"),
            tool_version: &ToolVersion::parse("1").expect("valid"),
            profile: Profile::StrictV1,
            operation_id: &OperationId::parse(&self.operation_id).expect("valid"),
            arguments: &value,
            call_arguments: &value,
            continuation_state: self.state,
            input_responses: None,
            authority: self.authority,
        };
        let attempt = Attempt {
            key: OperationKey::from_bytes([1; 16]),
            nonce: Nonce::from_bytes([2; 16]),
            boot: BootId::from_bytes([3; 16]),
        };
        Admitted::admit(&call, &self.keys, Span::from_secs(100), attempt).expect("canonical")
    }
}

fn record_of(call: &Admitted, state: State) -> Record {
    let settled = state.is_terminal().then_some(Timestamp::from_ms(T0));
    Record {
        key: call.attempt().key,
        tenant: call.caller().tenant.clone(),
        operation_id: call.operation_id().clone(),
        principal: call.caller().principal.clone(),
        tool_id: call.tool_id().clone(),
        tool_version: call.tool_version().clone(),
        binding: call.binding().clone(),
        nature: crate::record::Nature::Local,
        state,
        owner: None,
        effect: None,
        result: settled.map(|_| StoredResult::from_text("created 1")),
        nonce: call.attempt().nonce,
        created_at: Timestamp::from_ms(T0),
        authority_ends_at: None,
        settled_at: settled,
        retention_ends_at: settled.map(|at| at.plus(call.retention().as_duration())),
        purged: false,
        resolution: None,
    }
}

fn at(ms: i64) -> LedgerTime {
    LedgerTime { now: Timestamp::from_ms(T0 + ms), horizon: Timestamp::from_ms(0) }
}

fn code(decision: Decision) -> Option<Code> {
    match decision {
        Decision::Refuse(refusal) => Some(refusal.code()),
        Decision::Fresh | Decision::Replay => None,
    }
}

type OrderCase = (&'static str, Ask, State, i64, Option<Code>);

fn order_cases() -> Vec<OrderCase> {
    let other = || Ask { principal: "bob", ..Ask::default() };
    let changed = || Ask { arguments: r#"{"title":"b"}"#, ..Ask::default() };
    let (early, authority_over, retention_over) = (0, 1000, 100_000);
    use Code::{
        OperationAuthorityExpired, OperationConflict, OperationInDoubt, OperationInProgress,
        OperationRetentionExpired,
    };
    vec![
        ("same", Ask::default(), State::Applied, early, None),
        ("same, partial", Ask::default(), State::Partial, early, None),
        ("other principal", other(), State::Applied, early, Some(OperationConflict)),
        (
            "other principal, expired",
            other(),
            State::Applied,
            retention_over,
            Some(OperationConflict),
        ),
        ("changed", changed(), State::Applied, early, Some(OperationConflict)),
        (
            "changed, expired",
            changed(),
            State::Applied,
            retention_over,
            Some(OperationRetentionExpired),
        ),
        (
            "same, expired",
            Ask::default(),
            State::Applied,
            retention_over,
            Some(OperationRetentionExpired),
        ),
        (
            "changed, no authority",
            changed(),
            State::Applied,
            authority_over,
            Some(OperationConflict),
        ),
        (
            "same, no authority",
            Ask::default(),
            State::Applied,
            authority_over,
            Some(OperationAuthorityExpired),
        ),
        (
            "running, no authority",
            Ask::default(),
            State::InProgress(Phase::FirstCommit),
            authority_over,
            Some(OperationAuthorityExpired),
        ),
        (
            "running",
            Ask::default(),
            State::InProgress(Phase::FirstCommit),
            early,
            Some(OperationInProgress),
        ),
        (
            "running, changed",
            changed(),
            State::InProgress(Phase::FirstCommit),
            early,
            Some(OperationConflict),
        ),
        ("in doubt", Ask::default(), State::InDoubt, early, Some(OperationInDoubt)),
    ]
}

#[test]
fn the_checks_stand_in_their_order() {
    // Promise: principal before retention before fingerprint before authority before progress
    // before replay, so that no check reveals what an earlier one hides.
    let first = Ask::default().admit();
    let done = record_of(&first, State::Applied);
    for (name, ask, state, ms, expected) in order_cases() {
        let record = Record { state, ..done.clone() };
        let decision = decide(&ask.admit(), Some(&record), at(ms));
        assert_eq!(code(decision.clone()), expected, "{name}");
        assert_ne!(decision, Decision::Fresh, "{name}: an existing ID never becomes new work");
    }
}

#[test]
fn conflicts_are_the_same_to_the_byte() {
    // Promise: a refusal does not tell whether the arguments or the principal differ.
    let record = record_of(&Ask::default().admit(), State::Applied);
    let refusal = |ask: Ask| match decide(&ask.admit(), Some(&record), at(0)) {
        Decision::Refuse(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    let changed = refusal(Ask { arguments: r#"{"title":"b"}"#, ..Ask::default() });
    assert_eq!(changed, refusal(Ask { principal: "bob", ..Ask::default() }));
    assert_eq!(changed, refusal(Ask { state: Some("state-B"), ..Ask::default() }));
}

#[test]
fn another_text_with_the_same_index_key_is_a_conflict() {
    // Promise: a collision of digests never shows one caller another operation.
    let mut record = record_of(&Ask::default().admit(), State::Applied);
    record.operation_id = OperationId::parse("op-2").expect("valid");
    let decision = decide(&Ask::default().admit(), Some(&record), at(0));
    assert_eq!(code(decision), Some(Code::OperationConflict));
}

#[test]
fn authority_that_ended_writes_nothing_new() {
    // Promise: a continuation whose authority ended is refused even where there is no record.
    let call = Ask::default().admit();
    assert_eq!(decide(&call, None, at(999)), Decision::Fresh);
    assert_eq!(code(decide(&call, None, at(1000))), Some(Code::OperationAuthorityExpired));
    let present = Ask { authority: Authority::Present, ..Ask::default() }.admit();
    assert_eq!(decide(&present, None, at(1_000_000)), Decision::Fresh);
}

#[test]
fn a_first_round_is_recognised_without_its_continuation() {
    // Promise: an honest retry that starts at round one gets the operation, not a new state.
    let record = record_of(&Ask::default().admit(), State::Applied);
    let again = Ask { state: None, authority: Authority::Present, ..Ask::default() };
    assert_eq!(decide_first_round(&again.admit(), Some(&record), at(0)), Decision::Replay);
    let changed = Ask { arguments: r#"{"title":"b"}"#, ..again };
    let decision = decide_first_round(&changed.admit(), Some(&record), at(0));
    assert_eq!(code(decision), Some(Code::OperationConflict));
}

#[test]
fn a_record_is_compared_under_its_own_key() {
    // Promise: after the active key changed, old records still match; a key that is not there is
    // never a conflict and never fresh work.
    let record = record_of(&Ask::default().admit(), State::Applied);
    let rotated = Ask { keys: ring(2, &[1, 2]), ..Ask::default() }.admit();
    assert_eq!(rotated.binding().key_id, KeyId(2));
    assert_eq!(decide(&rotated, Some(&record), at(0)), Decision::Replay);
    let without = Ask { keys: ring(2, &[2]), ..Ask::default() }.admit();
    let decision = decide(&without, Some(&record), at(0));
    assert_eq!(code(decision), Some(Code::StoreUnavailable));
}

#[test]
fn an_id_that_carries_an_implausible_time_is_not_new_work() {
    // Promise: an ID from the future is refused, and one from before the horizon is expired.
    let ask = |ms: i64| {
        let hex = format!("{:012x}", T0 + ms);
        let id = format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..]);
        Ask { operation_id: id, authority: Authority::Present, ..Ask::default() }.admit()
    };
    let five_minutes = 5 * 60 * 1000;
    assert_eq!(decide(&ask(five_minutes), None, at(0)), Decision::Fresh);
    assert_eq!(code(decide(&ask(five_minutes + 1), None, at(0))), Some(Code::InvalidArgument));
    let horizon = LedgerTime { horizon: Timestamp::from_ms(T0), ..at(0) };
    assert_eq!(decide(&ask(0), None, horizon), Decision::Fresh);
    let decision = decide(&ask(-1), None, horizon);
    assert_eq!(code(decision), Some(Code::OperationRetentionExpired));
}
