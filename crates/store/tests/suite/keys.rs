//! The keys that a ledger was used with.

use std::time::Duration;

use counterfoil_core::refusal::{Code, Retry};
use counterfoil_core::time::Span;
use counterfoil_store::StoreError;
use counterfoil_store::error::{KeyProblem, OpenRefused};

use super::calls::{TestCall, call, ring};
use super::effects::note;
use super::{Bench, Factory};

async fn bind<F: Factory>(bench: &Bench<F>, keys: &[(u32, u8)]) -> Result<(), KeyProblem> {
    match bench.store.bind_keys(&ring(keys)).await {
        Ok(()) => Ok(()),
        Err(StoreError::Refused(OpenRefused::Keys(problem))) => Err(problem),
        other => panic!("{other:?}"),
    }
}

async fn key_ids<F: Factory>(bench: &Bench<F>) -> Vec<u32> {
    bench.store.info().await.expect("readable").key_ids
}

pub async fn a_ledger_knows_its_keys_again<F: Factory>() {
    // Promise: another key under a known number is refused, and nothing of that ring is kept.
    let mut bench = Bench::<F>::new();
    assert!(key_ids(&bench).await.is_empty());
    assert_eq!(bind(&bench, &[(1, 1)]).await, Ok(()));
    bench.reopen().await;
    assert_eq!(bind(&bench, &[(1, 1)]).await, Ok(()));
    let mismatch = KeyProblem::Mismatch { key_id: 1 };
    assert_eq!(bind(&bench, &[(2, 2), (1, 9)]).await, Err(mismatch));
    assert_eq!(key_ids(&bench).await, [1]);
    assert_eq!(bind(&bench, &[(2, 2), (1, 1)]).await, Ok(()));
    assert_eq!(key_ids(&bench).await, [1, 2]);
}

pub async fn a_key_is_missed_while_records_need_it<F: Factory>() {
    // Promise: a key is not taken away while a record may still be compared under it.
    let bench = Bench::<F>::new();
    bind(&bench, &[(1, 1)]).await.expect("new");
    let rotated = [(2, 2)];
    // No record yet: the key was never needed.
    assert_eq!(bind(&bench, &rotated).await, Ok(()));
    let call = TestCall { retention: Span::from_secs(60), ..call("op-1") };
    bench.fresh(&call, &note("body")).await;
    let missing = Err(KeyProblem::Missing { key_id: 1 });
    assert_eq!(bind(&bench, &rotated).await, missing);
    bench.clock.pass(Duration::from_secs(60));
    assert_eq!(bind(&bench, &rotated).await, Ok(()));
}

pub async fn a_record_is_compared_under_its_own_key<F: Factory>() {
    // Promise: after a rotation old records still replay; under a key that this server does not
    // have nothing is compared, and that is neither a conflict nor fresh work.
    let bench = Bench::<F>::new();
    let old = call("op-1");
    let record = bench.fresh(&old, &note("body")).await;
    let both = TestCall { keys: ring(&[(2, 2), (1, 1)]), ..old.clone() };
    assert_eq!(bench.replayed(&both, &note("x")).await, record);
    let only_new = TestCall { keys: ring(&[(2, 2)]), ..old.clone() };
    let refusal = bench.refused(&only_new, &note("x")).await;
    assert_eq!(refusal.code(), Code::StoreUnavailable);
    assert_eq!(refusal.retry(), Retry::SameOperation);
    let fresh = bench.fresh(&TestCall { id: "op-2".into(), ..both }, &note("x")).await;
    assert_eq!(fresh.binding.key_id.0, 2);
}

pub async fn a_ledger_says_what_it_is<F: Factory>() {
    // Promise: owner, schema and whether anything was ever recorded can be read without writing.
    let mut bench = Bench::<F>::new();
    let info = bench.store.info().await.expect("readable");
    assert_eq!(info.backend_id.as_str(), "test");
    assert_eq!(info.backend_id, *bench.store.backend_id());
    assert_eq!(info.incarnation, 1);
    assert!(!info.has_operations);
    bench.fresh(&call("op-1"), &note("body")).await;
    bench.reopen().await;
    assert!(bench.store.info().await.expect("readable").has_operations);
}
