//! SQLite alone: lists of a ledger that is damaged, or large.

mod suite;

use counterfoil_core::identity::Tenant;
use counterfoil_store::{ListQuery, Page};
use rusqlite::Connection;
use suite::Bench;
use suite::calls::call;
use suite::effects::note;
use suite::factories::Sqlite;

type Bed = Bench<Sqlite>;

async fn list(bench: &Bed, after: Option<&Page>) -> Page {
    let mut query = ListQuery::of_tenant(Tenant::parse("local").expect("valid"));
    query.after = after.and_then(|page| page.next);
    bench.store.list(query).await.expect("readable")
}

fn ids(page: &Page) -> Vec<&str> {
    page.operations.iter().map(|listed| listed.operation_id.as_str()).collect()
}

/// Another hand on the ledger's file.
fn by_hand(bench: &Bed, sql: &str) {
    let connection = Connection::open(&bench.factory.options.path).expect("opens");
    connection.execute_batch(sql).expect(sql);
}

#[tokio::test]
async fn a_damaged_record_is_left_out_and_counted() {
    // Promise: nothing of a record that fails its own checks is believed, and the rest is listed.
    let bench = Bed::new();
    for id in ["op-1", "op-2", "op-3"] {
        bench.fresh(&call(id), &note("body")).await;
    }
    by_hand(&bench, "UPDATE operations SET fence = 7 WHERE operation_id = CAST('op-2' AS BLOB)");
    let page = list(&bench, None).await;
    assert_eq!(ids(&page), ["op-3", "op-1"]);
    assert_eq!((page.damaged_count, page.next), (1, None));
}

#[tokio::test]
async fn a_row_that_is_gone_is_not_told_as_applied() {
    // Promise: a list looks at the physical row as the status does.
    let bench = Bed::new();
    bench.fresh(&call("op-1"), &note("body")).await;
    by_hand(&bench, "DROP TRIGGER notes_stays_on_delete; DELETE FROM notes");
    let page = list(&bench, None).await;
    let listed = &page.operations[0];
    assert_eq!((listed.observed.as_str(), listed.detail.as_str()), ("unknown", "effect_missing"));
}

#[tokio::test]
async fn one_page_reads_no_whole_ledger() {
    // Promise: in a large ledger, where the wanted records lie far back, a page ends after a
    // bounded amount of reading, says so by its cursor, and the wanted records are found.
    let bench = Bed::new();
    bench.fresh(&call("op-1"), &note("body")).await;
    by_hand(
        &bench,
        "INSERT INTO tenants (tenant_no, name) VALUES (99, CAST('far' AS BLOB));
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
         INSERT INTO operations (operation_key, tenant_no, id_kind, id_bytes, operation_id,
             principal, tool_id, tool_version, profile, key_id, fingerprint, call_fingerprint,
             state, phase, boot_id, fence, lease_until_ms, nonce, created_at_ms, retention_ms,
             row_check)
         SELECT CAST(format('%016x', 0x7f000000 + i) AS BLOB), 99, 2,
             CAST(format('%016x', i) AS BLOB), x'61', x'61', x'61', x'31', 2, 1, zeroblob(32),
             zeroblob(32), 1, 0, zeroblob(16), 1, 0, zeroblob(16), 0, 0, zeroblob(16) FROM n",
    );
    let first = list(&bench, None).await;
    assert!(first.operations.is_empty() && first.next.is_some(), "{first:?}");
    let second = list(&bench, Some(&first)).await;
    assert_eq!((ids(&second), second.next), (vec!["op-1"], None));
    let usage = bench.store.keys_in_use().await.expect("readable");
    assert_eq!((usage[0].records_count, usage[0].unsettled_count), (150_001, 150_000));
}
