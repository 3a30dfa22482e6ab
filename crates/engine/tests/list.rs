//! A caller's own list: whose operations are in it, and whose cursor continues it.

use std::sync::Arc;

use counterfoil_core::admission::{Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, Caller, OperationId, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::Value;
use counterfoil_core::listing::PageLimit;
use counterfoil_core::record::StoredResult;
use counterfoil_core::refusal::Code;
use counterfoil_core::time::Lifetimes;
use counterfoil_engine::{Effect, Engine, ListRequest, Listing};
use counterfoil_store::memory::{MemoryOptions, MemoryStore};
use counterfoil_store::{Completion, EffectContext, EffectError, EffectTx};

#[derive(Debug)]
struct Nothing;

impl Effect for Nothing {
    fn apply(
        &self,
        _tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        Ok(Completion::Whole { row: None, result: StoredResult::from_text("done") })
    }
}

async fn engine() -> Arc<Engine> {
    let options = MemoryOptions::new(BackendId::parse("desk").expect("valid"));
    let store = Arc::new(MemoryStore::new(&options).expect("no tables"));
    let key = SecretKey::from_bytes(&[7; 32]).expect("long enough");
    let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
    Arc::new(Engine::open(store, keys, Lifetimes::default()).await.expect("opened"))
}

fn caller(tenant: &str, principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse(tenant).expect("valid"),
        principal: Principal::parse(principal).expect("valid"),
    }
}

async fn apply(engine: &Arc<Engine>, caller: &Caller, id: &str) {
    let call = Call {
        caller,
        tool_id: &ToolId::parse("tool").expect("valid"),
        tool_version: &ToolVersion::parse("1").expect("valid"),
        profile: Profile::JcsV1,
        operation_id: &OperationId::parse(id).expect("valid"),
        arguments: &Value::Null,
        call_arguments: &Value::Null,
        continuation_state: None,
        input_responses: None,
        authority: Authority::Present,
    };
    let admitted = engine.admit(&call).expect("canonical");
    engine.execute(admitted, Arc::new(Nothing)).await.expect("applied");
}

fn one(cursor: Option<&str>) -> ListRequest {
    let limit = PageLimit::new(1).expect("in range");
    ListRequest { limit, cursor: cursor.map(str::to_owned), ..ListRequest::default() }
}

fn ids(listing: &Listing) -> Vec<&str> {
    listing.operations.iter().map(|listed| listed.operation_id.as_str()).collect()
}

#[tokio::test]
async fn a_caller_sees_its_own_and_follows_its_own_cursor_alone() {
    // Promise: no list holds another principal's or another tenant's operation, and a cursor that
    // was given to somebody else, or for another list, is refused with one answer.
    let engine = engine().await;
    let alice = caller("local", "alice");
    let others = [caller("local", "bob"), caller("acme", "alice")];
    for (number, other) in others.iter().enumerate() {
        apply(&engine, other, &format!("foreign-{number}")).await;
    }
    let mut seen = Vec::new();
    for id in ["op-1", "op-2", "op-3"] {
        apply(&engine, &alice, id).await;
    }
    let first = engine.list(&alice, &one(None)).await.expect("listed");
    let cursor = first.next_cursor.clone().expect("there is more");
    let mut page = Some(first);
    while let Some(listing) = page.take() {
        seen.extend(ids(&listing).into_iter().map(str::to_owned));
        if let Some(next) = &listing.next_cursor {
            page = Some(engine.list(&alice, &one(Some(next))).await.expect("listed"));
        }
    }
    seen.sort();
    assert_eq!(seen, ["op-1", "op-2", "op-3"]);

    let unsettled = ListRequest { unsettled_only: true, ..one(Some(&cursor)) };
    let mut refusals = vec![engine.list(&alice, &unsettled).await.expect_err("another list")];
    for other in &others {
        refusals.push(engine.list(other, &one(Some(&cursor))).await.expect_err("foreign"));
    }
    refusals.push(engine.list(&alice, &one(Some("nonsense"))).await.expect_err("made up"));
    for refusal in &refusals {
        assert_eq!(refusal.code(), Code::InvalidArgument);
        assert_eq!(refusal, &refusals[0]);
    }
    let unsettled = ListRequest { unsettled_only: true, ..ListRequest::default() };
    let none = engine.list(&alice, &unsettled).await.expect("listed");
    assert_eq!((ids(&none), none.next_cursor.as_deref()), (vec![], None));
}
