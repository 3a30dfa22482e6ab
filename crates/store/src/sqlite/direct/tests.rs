//! What only this back end can be asked: which index serves which question.

use counterfoil_core::direct::UNSENT_LIMIT;
use rusqlite::Connection;

use super::reads::IN_DOUBT;
use super::shelf::{DUE, REPEAT, SLOT, UNANSWERED};

fn plan(sql: &str) -> String {
    let connection = Connection::open_in_memory().expect("memory");
    crate::sqlite::migrations::run(&connection, 0).expect("made");
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("SQL");
    let nulls = vec![rusqlite::types::Null; statement.parameter_count()];
    let lines = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get(3));
    let lines: Vec<String> = lines.expect("a plan").map(|line| line.expect("text")).collect();
    lines.join("; ")
}

#[test]
fn every_question_is_served_by_its_index() {
    // Promise: however many operations there are, none of these looks through them.
    for (sql, index) in [
        (DUE, "directs_due"),
        (UNANSWERED, "directs_unanswered"),
        (SLOT, "directs_slots"),
        (REPEAT, "directs_repeats"),
        (IN_DOUBT, "directs_in_doubt"),
    ] {
        let plan = plan(sql);
        assert!(plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}

#[test]
fn what_was_never_sent_is_due_when_the_decision_says_so() {
    // Promise: index and decision have one limit.
    assert_eq!(UNSENT_LIMIT.as_millis(), 86_400_000);
}
