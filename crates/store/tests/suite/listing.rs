//! Lists of operations, and what records ask of the keys.

use std::time::Duration;

use counterfoil_core::identity::{OperationId, Principal, Tenant, ToolId};
use counterfoil_core::listing::{Listed, PageLimit, Stage};
use counterfoil_core::observation::observe;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::{Cursor, KeyUsage, ListQuery, Page};

use super::calls::{TestCall, call, caller, ring};
use super::clock::START_MS;
use super::effects::{First, Goes, note, probe, two_steps};
use super::finishing::finish;
use super::{Bench, Factory};

fn query() -> ListQuery {
    ListQuery::of_tenant(Tenant::parse("local").expect("valid"))
}

async fn list<F: Factory>(bench: &Bench<F>, query: &ListQuery) -> Page {
    bench.store.list(query.clone()).await.expect("readable")
}

/// The IDs of a list, page by page.
async fn pages<F: Factory>(bench: &Bench<F>, query: &ListQuery) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut query = query.clone();
    loop {
        let page = list(bench, &query).await;
        assert_eq!(page.damaged_count, 0);
        pages.push(ids(&page));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return pages,
        }
    }
}

fn ids(page: &Page) -> Vec<String> {
    page.operations.iter().map(|listed| listed.operation_id.to_string()).collect()
}

fn limit(count: u16) -> PageLimit {
    PageLimit::new(count).expect("in range")
}

pub async fn pages_hold_every_operation_once_and_the_newest_first<F: Factory>() {
    // Promise: whoever follows the pages sees each operation once, in order of time, whatever is
    // written meanwhile; the last page says that it is the last.
    let mut bench = Bench::<F>::new();
    for number in 1..=6 {
        bench.fresh(&call(&format!("op-{number}")), &note("body")).await;
    }
    bench.reopen().await;
    let three = ListQuery { limit: limit(3), ..query() };
    assert_eq!(
        pages(&bench, &three).await,
        [vec!["op-6", "op-5", "op-4"], vec!["op-3", "op-2", "op-1"]]
    );
    let first = list(&bench, &ListQuery { limit: limit(4), ..query() }).await;
    bench.fresh(&call("op-7"), &note("body")).await;
    // A cursor survives as bytes.
    let next = first.next.map(|next| Cursor::from_bytes(*next.as_bytes()));
    let second = list(&bench, &ListQuery { after: next, ..three }).await;
    assert_eq!(ids(&second), ["op-2", "op-1"]);
    assert_eq!(second.next, None);
    let all = list(&bench, &query()).await;
    assert_eq!((all.operations.len(), all.next), (7, None));
    assert_eq!(all.operations[0].created_at, Timestamp::from_ms(START_MS));
}

pub async fn a_list_holds_what_was_asked_for_and_nothing_else<F: Factory>() {
    // Promise: tenants never meet in a list, nor do principals unless an operator asks for all;
    // each filter holds by itself and with the others.
    let bench = Bench::<F>::new();
    let bob = TestCall { principal: "bob", ..call("bobs") };
    let other_tool = TestCall { tool: "other_tool", ..call("other") };
    let far = TestCall { tenant: "far", ..call("far") };
    for call in [call("alices"), bob, other_tool, far] {
        bench.fresh(&call, &note("body")).await;
    }
    bench.fresh(&call("begun"), &two_steps(Goes::Well, Goes::Well)).await;
    bench.fresh(&call("no-row"), &probe(First::NoRow)).await;

    let alice = Some(Principal::parse("alice").expect("valid"));
    let tool = Some(ToolId::parse("create_note").expect("valid"));
    let unsettled = Stage::UNSETTLED.to_vec();
    let applied = vec![Stage::Applied];
    let in_tenant = |name: &str| ListQuery::of_tenant(Tenant::parse(name).expect("valid"));
    let everybody = ["no-row", "begun", "other", "bobs", "alices"];
    let cases = [
        (query(), &everybody[..]),
        (in_tenant("far"), &["far"]),
        (in_tenant("nowhere"), &[]),
        (
            ListQuery { principal: alice.clone(), ..query() },
            &["no-row", "begun", "other", "alices"],
        ),
        (ListQuery { tool_id: tool.clone(), ..query() }, &["no-row", "begun", "bobs", "alices"]),
        (ListQuery { stages: unsettled.clone(), ..query() }, &["begun"]),
        (ListQuery { stages: unsettled, ..in_tenant("far") }, &[]),
        (ListQuery { stages: vec![Stage::Partial, Stage::NotApplied], ..query() }, &[]),
        (
            ListQuery { principal: alice, tool_id: tool, stages: applied, ..query() },
            &["no-row", "alices"],
        ),
    ];
    for (query, expected) in cases {
        assert_eq!(ids(&list(&bench, &query).await), expected, "{query:?}");
        let one_by_one = pages(&bench, &ListQuery { limit: limit(1), ..query }).await;
        assert_eq!(one_by_one.concat(), expected);
    }
}

pub async fn a_list_says_what_the_status_says<F: Factory>() {
    // Promise: state, detail and what to do next are the same in a list and in the status of each
    // operation in it, whatever became of it.
    let bench = Bench::<F>::new();
    bench.fresh(&call("whole"), &note("body")).await;
    bench.fresh(&call("no-row"), &probe(First::NoRow)).await;
    bench.fresh(&call("begun"), &two_steps(Goes::Well, Goes::Well)).await;
    for (id, follow_up, compensate) in [
        ("finished", Goes::Well, Goes::Well),
        ("undone", Goes::Fails, Goes::Well),
        ("partly", Goes::Fails, Goes::Fails),
    ] {
        let effect = two_steps(follow_up, compensate);
        let begun = bench.fresh(&call(id), &effect).await;
        bench.clock.pass(Duration::from_secs(5));
        finish(&bench, &begun, &effect).await;
    }
    let page = list(&bench, &query()).await;
    let told: Vec<(String, String, String)> = page.operations.iter().map(words).collect();
    let expected = [
        ("partly", "partial", "settled"),
        ("undone", "not_applied", "settled"),
        ("finished", "applied", "settled"),
        ("begun", "unknown", "first_step_committed"),
        ("no-row", "applied", "settled"),
        ("whole", "applied", "settled"),
    ];
    assert_eq!(
        told,
        expected.map(|(id, state, detail)| (id.into(), state.into(), detail.into())).to_vec()
    );
    for listed in &page.operations {
        let id = OperationId::parse(listed.operation_id.as_str()).expect("valid");
        let snapshot = bench.store.look_up(&listed.tenant, &id).await.expect("readable");
        let (now, backend) = (bench.store.now(), bench.store.backend_id());
        let status = observe(&caller("local", "alice"), &id, backend, &snapshot, now);
        assert_eq!(
            (listed.observed, listed.detail, listed.retry),
            (status.state, status.detail, status.retry()),
        );
    }
}

fn words(listed: &Listed) -> (String, String, String) {
    (
        listed.operation_id.to_string(),
        listed.observed.as_str().to_owned(),
        listed.detail.as_str().to_owned(),
    )
}

pub async fn a_key_is_needed_until_its_last_record_is_out_of_retention<F: Factory>() {
    // Promise: before a key is taken away it can be seen who still needs it, and until when.
    let bench = Bench::<F>::new();
    assert_eq!(bench.store.keys_in_use().await, Ok(Vec::new()));
    let minute = Span::from_secs(60);
    let old = |id| TestCall { retention: minute, ..call(id) };
    let new = |id| TestCall { keys: ring(&[(2, 2), (1, 1)]), ..call(id) };
    bench.fresh(&old("op-1"), &note("body")).await;
    bench.clock.pass(Duration::from_secs(10));
    bench.fresh(&old("op-2"), &note("body")).await;
    bench.fresh(&new("op-3"), &two_steps(Goes::Well, Goes::Well)).await;
    let usage = |key_id, records_count, needed_count, unsettled_count, until_s: Option<i64>| {
        let needed_until = until_s.map(|s| Timestamp::from_ms(START_MS + s * 1000));
        KeyUsage { key_id, records_count, needed_count, unsettled_count, needed_until }
    };
    let second = usage(2, 1, 1, 1, None);
    for (pass_s, first) in [
        (0, usage(1, 2, 2, 0, Some(70))),
        (50, usage(1, 2, 1, 0, Some(70))),
        (10, usage(1, 2, 0, 0, None)),
    ] {
        bench.clock.pass(Duration::from_secs(pass_s));
        assert_eq!(bench.store.keys_in_use().await, Ok(vec![first, second]));
    }
}
