//! What the outbox's statements read.

use rusqlite::Connection;

use super::{change, claim, items, orders, reads};
use crate::sqlite::migrations;

#[test]
fn claims_read_an_index_and_nothing_else() {
    // Promise: however many items wait or have ended, a claim and everything around it reads what it
    // takes: no statement looks a table through or sorts.
    let connection = Connection::open_in_memory().expect("memory");
    migrations::run(&connection, 0).expect("the whole schema");
    for sql in [
        items::DUE,
        change::LAPSED,
        claim::ANY_LAPSED,
        reads::EARLIEST,
        orders::PARKED_FOR,
        orders::WAITING,
        orders::PARKED_AFTER,
    ] {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect(sql);
        let mut rows = statement.raw_query();
        let mut plan = String::new();
        while let Some(row) = rows.next().expect("a plan") {
            plan += &row.get::<_, String>(3).expect("words");
            plan.push('\n');
        }
        assert!(plan.contains("INDEX outbox_"), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
        let scans = plan.lines().any(|line| line == "SCAN outbox" || line == "SCAN d");
        assert!(!scans, "{sql}: {plan}");
    }
}
