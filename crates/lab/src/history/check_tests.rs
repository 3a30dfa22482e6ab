//! Planted bad histories, one for each way to break each rule: a checker that never fires proves
//! nothing.
//!
//! A history is written as `CALL WORDS; …`: `0 write a`, `0 status`, `0 lost`, and what came back:
//! `0 applied 1 made` (this request made effect 1), `0 applied 1`, `0 partial 1`,
//! `0 applied 1 otherwise` (with another result), `0 unknown`, `0 refused CODE`, `0 nothing`.
//! Rows are written as `1a 2a`: effect 1 and effect 2, both with the contents `a`.

use serde_json::json;

use super::super::Effect;
use super::*;

const ID: &str = "op";

fn digest(contents: &str) -> Digest {
    Digest::of("title", contents)
}

fn event(text: &str) -> Event {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (call, words) = words.split_first().expect("a call");
    let call = call.parse().expect("the call's number");
    let invoke = |kind| Event::Invoke { call, kind, operation_id: ID.into() };
    let saw = match words {
        ["write", contents] => return invoke(Kind::Write(digest(contents))),
        ["status"] => return invoke(Kind::Status),
        ["lost"] => return Event::Lost { call },
        ["unknown"] => Saw::Unknown,
        ["nothing"] => Saw::Nothing,
        ["refused", code] => Saw::Refused((*code).into()),
        [state, id, more @ ..] => {
            let result = if more.contains(&"otherwise") { "another" } else { "created" };
            Saw::Settled(Outcome {
                state: (*state).into(),
                effect_ids: vec![id.parse().expect("the effect's number")],
                result: json!(format!("{result} {id}")),
                fresh: more.contains(&"made"),
            })
        }
        _ => panic!("what is `{text}`?"),
    };
    Event::Return { call, saw }
}

fn history(text: &str) -> Vec<Event> {
    text.split(';').filter(|line| !line.trim().is_empty()).map(event).collect()
}

/// The recorded state; empty for none.
fn physical(rows: &str, state: &str) -> Physical {
    let effect = |row: &str| {
        let (id, contents) = row.split_at(1);
        let id = id.parse().expect("one digit");
        Effect { operation_id: ID.into(), id, digest: digest(contents) }
    };
    let recorded = Some((ID.to_owned(), state.to_owned())).filter(|_| !state.is_empty());
    Physical {
        effects: rows.split_whitespace().map(effect).collect(),
        operations: Some(recorded.into_iter().collect()),
    }
}

#[test]
fn good_histories_pass() {
    // Promise: what the product promises to do is not called wrong.
    let cases = [
        ("0 write a; 0 applied 1 made", "1a", "applied"),
        // Lost, asked for, and sent again.
        ("0 write a; 0 lost; 1 status; 1 applied 1; 2 write a; 2 applied 1", "1a", "applied"),
        // Lost and never recorded; lost and recorded and never asked for.
        ("0 write a; 0 lost; 1 status; 1 unknown", "", ""),
        ("0 write a; 0 lost", "1a", "applied"),
        // Two at once, and one of them is told to wait.
        (
            "0 write a; 1 write a; 1 refused operation_in_progress; 0 applied 1 made",
            "1a",
            "applied",
        ),
        // Unknown, to whoever asked before the end.
        ("0 status; 1 write a; 1 applied 1 made; 0 unknown", "1a", "applied"),
        // A changed request conflicts; the ledger is busy later.
        ("0 write a; 0 applied 1 made; 1 write b; 1 refused operation_conflict", "1a", "applied"),
        ("0 write a; 0 applied 1 made; 1 write a; 1 refused store_unavailable", "1a", "applied"),
        // A partial that nobody finishes.
        (
            "0 write a; 0 lost; 1 status; 1 unknown; 2 write a; 2 refused operation_in_progress",
            "1a",
            "in_progress",
        ),
    ];
    for (text, rows, state) in cases {
        assert_eq!(check(&history(text), &physical(rows, state)), [], "{text}");
    }
}

#[test]
fn bad_histories_are_found() {
    // Promise: each rule fires on each way to break it, and no other rule does.
    use Rule::{NothingLost, OneEffect, SameAnswer, StaysSettled, WasAskedFor, WellFormed};
    let made = "0 write a; 0 applied 1 made;";
    let cases: [(&str, &str, &str, &str, &[Rule]); 19] = [
        (made, "", "1a 2a", "applied", &[OneEffect]),
        // Nobody was told of either.
        ("0 write a; 0 lost", "", "1a 2a", "applied", &[OneEffect]),
        (
            "1 write a;",
            "0 write a; 0 applied 1 made; 1 applied 1 made",
            "1a",
            "applied",
            &[OneEffect],
        ),
        (
            "1 write a;",
            "0 write a; 0 applied 1 made; 1 applied 2",
            "1a",
            "applied",
            &[OneEffect, NothingLost, SameAnswer],
        ),
        // The row is gone; the record is gone; the record says less.
        (made, "", "", "applied", &[NothingLost]),
        (made, "", "1a", "", &[NothingLost]),
        (made, "", "1a", "in_progress", &[NothingLost]),
        // Another result, another state.
        (made, "1 status; 1 applied 1 otherwise", "1a", "applied", &[SameAnswer]),
        (made, "1 status; 1 partial 1", "1a", "applied", &[SameAnswer]),
        // Settled no more.
        (made, "1 status; 1 unknown", "1a", "applied", &[StaysSettled]),
        (made, "1 write a; 1 refused operation_in_progress", "1a", "applied", &[StaysSettled]),
        (made, "1 write a; 1 nothing", "1a", "applied", &[StaysSettled]),
        (made, "1 write a; 1 applied 1 made", "1a", "applied", &[OneEffect, StaysSettled]),
        // A changed request is answered with the first one's effect.
        (made, "1 write b; 1 applied 1", "1a", "applied", &[StaysSettled, WasAskedFor]),
        // Nobody asked; nobody was there; somebody asked for something else.
        ("0 status; 0 lost", "", "1a", "applied", &[WasAskedFor]),
        ("", "", "1a", "applied", &[WasAskedFor]),
        ("0 write b; 0 lost", "", "1a", "applied", &[WasAskedFor]),
        // A reply to nothing; two replies.
        ("9 lost;", made, "1a", "applied", &[WellFormed]),
        (made, "0 applied 1 made", "1a", "applied", &[WellFormed]),
    ];
    for (first, then, rows, state, expected) in cases {
        let text = format!("{first}{then}");
        let found = check(&history(&text), &physical(rows, state));
        let found: BTreeSet<Rule> = found.into_iter().map(|violation| violation.rule).collect();
        assert_eq!(found, expected.iter().copied().collect(), "{text} with {rows}, {state}");
    }
}
