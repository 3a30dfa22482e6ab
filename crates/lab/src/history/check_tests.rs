//! Planted bad histories, one for each way to break each rule: a checker that never fires proves
//! nothing.

use serde_json::json;

use super::super::Effect;
use super::*;

const ID: &str = "op";

fn digest(body: &str) -> Digest {
    Digest::of("title", body)
}

fn invoke(call: CallNo, kind: Kind) -> Event {
    Event::Invoke { call, kind, operation_id: ID.into() }
}

fn write(call: CallNo, body: &str) -> Event {
    invoke(call, Kind::Write(digest(body)))
}

fn status(call: CallNo) -> Event {
    invoke(call, Kind::Status)
}

fn returned(call: CallNo, saw: Saw) -> Event {
    Event::Return { call, saw }
}

fn lost(call: CallNo) -> Event {
    Event::Lost { call }
}

fn refused(call: CallNo, code: &str) -> Event {
    returned(call, Saw::Refused(code.into()))
}

fn outcome(state: &str, id: i64, fresh: bool) -> Outcome {
    let result = json!(format!("created {id}"));
    Outcome { state: state.into(), effect_ids: vec![id], result, fresh }
}

fn applied(call: CallNo, id: i64, fresh: bool) -> Event {
    returned(call, Saw::Settled(outcome("applied", id, fresh)))
}

/// Effects as (row, body), and the recorded state.
fn physical(effects: &[(i64, &str)], state: Option<&str>) -> Physical {
    let effect = |(id, body): &(i64, &str)| Effect {
        operation_id: ID.into(),
        id: *id,
        digest: digest(body),
    };
    Physical {
        effects: effects.iter().map(effect).collect(),
        operations: Some(state.map(|state| (ID.into(), state.into())).into_iter().collect()),
    }
}

fn rules(history: &[Event], physical: &Physical) -> BTreeSet<Rule> {
    check(history, physical).into_iter().map(|violation| violation.rule).collect()
}

#[test]
fn good_histories_pass() {
    // Promise: what the product promises to do is not called wrong.
    let one = physical(&[(1, "a")], Some("applied"));
    let cases: Vec<(&str, Vec<Event>, Physical)> = vec![
        ("answered", vec![write(0, "a"), applied(0, 1, true)], one.clone()),
        (
            "lost, asked, and sent again",
            vec![
                write(0, "a"),
                lost(0),
                status(1),
                applied(1, 1, false),
                write(2, "a"),
                applied(2, 1, false),
            ],
            one.clone(),
        ),
        (
            "lost and never recorded",
            vec![write(0, "a"), lost(0), status(1), returned(1, Saw::Unknown)],
            physical(&[], None),
        ),
        ("lost, recorded, never asked for", vec![write(0, "a"), lost(0)], one.clone()),
        (
            "two at once, one of them told to wait",
            vec![
                write(0, "a"),
                write(1, "a"),
                refused(1, "operation_in_progress"),
                applied(0, 1, true),
            ],
            one.clone(),
        ),
        (
            "unknown to whoever asked before the end",
            vec![status(0), write(1, "a"), applied(1, 1, true), returned(0, Saw::Unknown)],
            one.clone(),
        ),
        (
            "a changed request conflicts",
            vec![
                write(0, "a"),
                applied(0, 1, true),
                write(1, "b"),
                refused(1, "operation_conflict"),
            ],
            one.clone(),
        ),
        (
            "the ledger is busy later",
            vec![
                write(0, "a"),
                applied(0, 1, true),
                write(1, "a"),
                refused(1, "store_unavailable"),
            ],
            one,
        ),
        (
            "a partial left unfinished",
            vec![
                write(0, "a"),
                lost(0),
                status(1),
                returned(1, Saw::Unknown),
                write(2, "a"),
                refused(2, "operation_in_progress"),
            ],
            physical(&[(1, "a")], Some("in_progress")),
        ),
    ];
    for (name, history, physical) in cases {
        assert_eq!(check(&history, &physical), [], "{name}");
    }
}

#[test]
fn bad_histories_are_found() {
    // Promise: each rule fires on each way to break it, and on nothing beside it.
    use Rule::{NothingLost, OneEffect, SameAnswer, StaysSettled, WasAskedFor, WellFormed};
    let one = physical(&[(1, "a")], Some("applied"));
    let two = physical(&[(1, "a"), (2, "a")], Some("applied"));
    let call = || vec![write(0, "a"), applied(0, 1, true)];
    let then = |more: Vec<Event>| [call(), more].concat();
    let cases: Vec<(&str, Vec<Event>, Physical, Vec<Rule>)> = vec![
        ("two rows", call(), two.clone(), vec![OneEffect]),
        ("two rows, nobody was told", vec![write(0, "a"), lost(0)], two, vec![OneEffect]),
        (
            "two made it",
            vec![write(0, "a"), write(1, "a"), applied(0, 1, true), applied(1, 1, true)],
            one.clone(),
            vec![OneEffect],
        ),
        (
            "two effects were acknowledged, one row is there",
            vec![write(0, "a"), write(1, "a"), applied(0, 1, true), applied(1, 2, false)],
            one.clone(),
            vec![OneEffect, NothingLost, SameAnswer],
        ),
        ("the row is gone", call(), physical(&[], Some("applied")), vec![NothingLost]),
        ("the record is gone", call(), physical(&[(1, "a")], None), vec![NothingLost]),
        (
            "the record says less than was acknowledged",
            call(),
            physical(&[(1, "a")], Some("in_progress")),
            vec![NothingLost],
        ),
        (
            "another result later",
            then(vec![
                status(1),
                returned(
                    1,
                    Saw::Settled(Outcome {
                        result: json!("created one"),
                        ..outcome("applied", 1, false)
                    }),
                ),
            ]),
            one.clone(),
            vec![SameAnswer],
        ),
        (
            "another state later",
            then(vec![status(1), returned(1, Saw::Settled(outcome("partial", 1, false)))]),
            one.clone(),
            vec![SameAnswer],
        ),
        (
            "unknown after applied",
            then(vec![status(1), returned(1, Saw::Unknown)]),
            one.clone(),
            vec![StaysSettled],
        ),
        (
            "in progress after applied",
            then(vec![write(1, "a"), refused(1, "operation_in_progress")]),
            one.clone(),
            vec![StaysSettled],
        ),
        (
            "asked for input again after applied",
            then(vec![write(1, "a"), returned(1, Saw::Nothing)]),
            one.clone(),
            vec![StaysSettled],
        ),
        (
            "made once more after applied",
            then(vec![write(1, "a"), applied(1, 1, true)]),
            one.clone(),
            vec![OneEffect, StaysSettled],
        ),
        (
            "a changed request is answered with the first one's effect",
            then(vec![write(1, "b"), applied(1, 1, false)]),
            one.clone(),
            vec![StaysSettled, WasAskedFor],
        ),
        ("nobody asked", vec![status(0), lost(0)], one.clone(), vec![WasAskedFor]),
        ("nobody was there at all", vec![], one.clone(), vec![WasAskedFor]),
        (
            "other contents than asked for",
            vec![write(0, "b"), lost(0)],
            one.clone(),
            vec![WasAskedFor],
        ),
        ("a reply to nothing", [vec![lost(9)], call()].concat(), one.clone(), vec![WellFormed]),
        ("two replies", then(vec![applied(0, 1, true)]), one, vec![WellFormed]),
    ];
    for (name, history, physical, expected) in cases {
        let expected: BTreeSet<Rule> = expected.into_iter().collect();
        assert_eq!(rules(&history, &physical), expected, "{name}");
    }
}
