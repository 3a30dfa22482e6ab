//! Rows that somebody changed behind the ledger's back: nothing in them is believed, no effect
//! follows from them, and everything else keeps working.

mod common;

use common::{Bench, check_raw_applied, check_raw_refused, product, product_server};
use counterfoil_lab::process::Ended;
use counterfoil_lab::raw::RawClient;
use serde_json::{Value, json};

/// What is changed for an operation, and what its status says then.
struct Tampering {
    id: &'static str,
    sql: &'static str,
    state: &'static str,
    detail: &'static str,
    /// The code with which the same call is refused; `None` if its result is given again.
    refused: Option<&'static str>,
}

const TAMPERINGS: [Tampering; 6] = [
    Tampering {
        id: "result",
        sql: "UPDATE operations SET result = CAST('\"created 9\"' AS BLOB)",
        state: "unknown",
        detail: "no_record",
        refused: Some("operation_in_doubt"),
    },
    Tampering {
        id: "state",
        sql: "UPDATE operations SET state = 3",
        state: "unknown",
        detail: "no_record",
        refused: Some("operation_in_doubt"),
    },
    Tampering {
        id: "principal",
        sql: "UPDATE operations SET principal = CAST('bob' AS BLOB)",
        state: "unknown",
        detail: "no_record",
        refused: Some("operation_in_doubt"),
    },
    Tampering {
        id: "fingerprint",
        sql: "UPDATE operations SET fingerprint = zeroblob(32)",
        state: "unknown",
        detail: "no_record",
        refused: Some("operation_in_doubt"),
    },
    Tampering {
        id: "changed",
        sql: "DROP TRIGGER issues_stays_on_update; UPDATE issues SET body = CAST('x' AS BLOB)",
        state: "applied",
        detail: "effect_changed_later",
        refused: None,
    },
    Tampering { id: "untouched", sql: "", state: "applied", detail: "settled", refused: None },
];

fn arguments(id: &str) -> Value {
    json!({ "operation_id": id, "title": "Export fails", "body": "It stops at row 65,536." })
}

#[tokio::test]
async fn a_row_that_fails_its_own_checks_is_set_aside() {
    // Promise: a record that contradicts itself leads to no effect and to no answer, whatever was
    // changed in it; the rest of the ledger keeps working, and the check finds each.
    let bench = Bench::new("tampered-rows");
    let dir = bench.path("data");
    let mut client = RawClient::start(&product_server(&dir, &[])).await.expect("it starts");
    for tampering in &TAMPERINGS {
        let made = client.call("create_issue", &arguments(tampering.id)).await.expect("a reply");
        check_raw_applied(&made, false);
    }
    let ledger = rusqlite::Connection::open(bench.ledger()).expect("it opens");
    for Tampering { id, sql, .. } in TAMPERINGS.iter().filter(|it| !it.sql.is_empty()) {
        let sql = format!("{sql} WHERE operation_id = CAST('{id}' AS BLOB)");
        ledger.execute_batch(&sql).expect("a statement of the test's");
    }
    drop(ledger);
    for Tampering { id, state, detail, refused, .. } in &TAMPERINGS {
        let asked = json!({ "operation_id": id });
        let status = client.call("get_operation_status", &asked).await.expect("a reply");
        let seen = &status["result"]["structuredContent"];
        assert_eq!((&seen["state"], &seen["detail"]), (&json!(state), &json!(detail)), "{id}");
        let again = client.call("create_issue", &arguments(id)).await.expect("a reply");
        match refused {
            Some(code) => check_raw_refused(&again, code),
            None => check_raw_applied(&again, true),
        }
    }
    let fresh = client.call("create_issue", &arguments("fresh")).await.expect("a reply");
    check_raw_applied(&fresh, false);
    assert_eq!(client.close().await.expect("it ends"), Ended::Code(0));
    assert_eq!(bench.rows().count("issues"), TAMPERINGS.len() as u64 + 1);
    let checked = std::process::Command::new(product())
        .args(["store", "check"])
        .arg(bench.ledger())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    let damaged_count = TAMPERINGS.iter().filter(|it| it.refused.is_some()).count();
    assert_eq!(said.matches("is damaged").count(), damaged_count, "{said}");
    assert_eq!(said.matches("was changed later").count(), 1, "{said}");
}
