//! What is left of an effect that did not happen: nothing.

use counterfoil_core::limits::MAX_RESULT_BYTES;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::refusal::Retry;
use counterfoil_store::{EffectError, EffectTx, SqlValue, StoreError};

use super::calls::{call, uuid_v7};
use super::clock::START_MS;
use super::effects::{First, NOTES, Probe, TAGS, note, probe, run};
use super::{Bench, Factory};

pub async fn a_failed_effect_leaves_nothing_and_the_same_id_applies_once<F: Factory>() {
    // Promise: an error after the effect's insert rolls back record and row; sent again, the same
    // operation takes effect once.
    for (first, retry) in [
        (First::FailsAfterInsert, Retry::SameOperation),
        (First::RefusesAfterInsert, Retry::None),
        (First::PanicsAfterInsert, Retry::SameOperation),
        (First::NamesNothing, Retry::SameOperation),
        (First::NamesLedger, Retry::SameOperation),
        (First::Result(MAX_RESULT_BYTES + 1), Retry::None),
    ] {
        let bench = Bench::<F>::new();
        let call = call("op-1");
        let failing = Probe { text: "lost".into(), ..probe(first.clone()) };
        for _ in 0..2 {
            let error = bench.submit(&call, &failing).await.expect_err("fails");
            assert_eq!(error.retry(), retry, "{first:?}: {error}");
            assert_eq!(
                matches!(error, StoreError::EffectPanicked),
                first == First::PanicsAfterInsert
            );
            assert_eq!(bench.look_up(&call).await, Snapshot::Absent, "{first:?}");
            assert!(!bench.has_row(NOTES, "text", "lost").await, "{first:?}");
        }
        let record = bench.fresh(&call, &note("kept")).await;
        // The key of the row that was rolled back was never given out.
        assert_eq!(record.effect.map(|row| row.id), Some(1), "{first:?}");
        assert_eq!(bench.kinds(record.key).await, ["applied"]);
    }
}

pub async fn the_error_names_the_effects_reason<F: Factory>() {
    // Promise: what the effect said reaches the caller, once, as the effect said it.
    let bench = Bench::<F>::new();
    let error = bench.submit(&call("op-1"), &probe(First::FailsAfterInsert)).await.expect_err("no");
    assert_eq!(error, StoreError::EffectFailed { reason: "said no".into(), refused: false });
    let error =
        bench.submit(&call("op-1"), &probe(First::RefusesAfterInsert)).await.expect_err("no");
    assert_eq!(error, StoreError::EffectFailed { reason: "never".into(), refused: true });
}

pub async fn a_result_is_kept_to_the_byte<F: Factory>() {
    // Promise: a stored result is what the effect gave, up to the limit and to the byte.
    let bench = Bench::<F>::new();
    // Two bytes are the quotation marks.
    let effect = probe(First::Result(MAX_RESULT_BYTES - 2));
    let record = bench.fresh(&call("op-1"), &effect).await;
    assert_eq!(record.result.as_ref().map(|r| r.as_json().len()), Some(MAX_RESULT_BYTES));
    assert_eq!(bench.replayed(&call("op-1"), &effect).await, record);
}

pub async fn what_no_declared_table_takes_is_refused<F: Factory>() {
    // Promise: a wrong name or type is the effect's failure, with the rule in words, and is not
    // written.
    type Work = fn(&mut dyn EffectTx) -> Result<(), EffectError>;
    let cases: [(Work, &str); 9] = [
        (|tx| tx.insert("nowhere", &[]).map(drop), "table `nowhere` is not declared"),
        (|tx| tx.insert("operations", &[]).map(drop), "table `operations` is not declared"),
        (
            |tx| tx.insert(NOTES, &[("text", "x".into())]).map(drop),
            "needs a value for its column `at_ms`",
        ),
        (
            |tx| {
                let row = [("text", "x".into()), ("at_ms", 1.into()), ("id", 9.into())];
                tx.insert(NOTES, &row).map(drop)
            },
            "has no column `id`",
        ),
        (
            |tx| {
                let row = [("text", "x".into()), ("text", "y".into()), ("at_ms", 1.into())];
                tx.insert(NOTES, &row).map(drop)
            },
            "two values for its column `text`",
        ),
        (
            |tx| tx.insert(NOTES, &[("text", 1.into()), ("at_ms", 1.into())]).map(drop),
            "column `text` of table `notes` takes text",
        ),
        (
            |tx| {
                let row = [("text", "x".into()), ("at_ms", SqlValue::Real(1.0))];
                tx.insert(NOTES, &row).map(drop)
            },
            "column `at_ms` of table `notes` takes an integer",
        ),
        (|tx| tx.exists(NOTES, "nothing", &1.into()).map(drop), "has no column `nothing`"),
        (|tx| tx.delete("keys", 1).map(drop), "table `keys` is not declared"),
    ];
    let bench = Bench::<F>::new();
    for (work, expected) in cases {
        match bench.submit(&call("op-1"), &run(work)).await {
            Err(StoreError::EffectFailed { reason, refused: false }) => {
                assert!(reason.contains(expected), "{expected}: {reason}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(bench.look_up(&call("op-1")).await, Snapshot::Absent);
}

pub async fn an_append_only_table_only_grows<F: Factory>() {
    // Promise: no effect deletes a row of an append-only table; deleting what is not there is no
    // error; a table that is not append-only gives its rows up.
    let bench = Bench::<F>::new();
    let record = bench.fresh(&call("note"), &note("body")).await;
    let id = record.effect.expect("a row").id;
    let delete = run(move |tx| tx.delete(NOTES, id).map(drop));
    match bench.submit(&call("delete"), &delete).await {
        Err(StoreError::EffectFailed { reason, .. }) => {
            assert!(reason.contains("notes is append-only"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.has_row(NOTES, "text", "body").await);
    let absent = run(|tx| {
        assert_eq!(tx.delete(NOTES, 99), Ok(false));
        let id = tx.insert(TAGS, &[("note_id", 1.into()), ("word", "w".into())])?;
        assert_eq!(tx.delete(TAGS, id), Ok(true));
        assert_eq!(tx.delete(TAGS, id), Ok(false));
        Ok(())
    });
    bench.submit(&call("others"), &absent).await.expect("all as said");
}

pub async fn a_row_key_is_never_used_twice<F: Factory>() {
    // Promise: an ID that a reply named never names another row, also after its row is deleted.
    let mut bench = Bench::<F>::new();
    let insert =
        |tx: &mut dyn EffectTx| tx.insert(TAGS, &[("note_id", 0.into()), ("word", "w".into())]);
    let first = run(move |tx| {
        let id = insert(tx)?;
        tx.delete(TAGS, id).map(drop)
    });
    bench.submit(&call("first"), &first).await.expect("commits");
    bench.reopen().await;
    let second = run(move |tx| {
        assert_eq!(insert(tx)?, 2);
        Ok(())
    });
    bench.submit(&call("second"), &second).await.expect("commits");
}

pub async fn any_text_is_kept<F: Factory>() {
    // Promise: text is kept as it is, U+0000 and characters beyond the first plane included.
    let bench = Bench::<F>::new();
    for text in ["", "\u{0}", "a\u{0}b", "🧾 – Zürich", "'; DROP TABLE notes; --"] {
        bench.fresh(&call(&uuid_v7(START_MS)), &note(text)).await;
        assert!(bench.has_row(NOTES, "text", text).await, "{text:?}");
    }
    assert!(!bench.has_row(NOTES, "text", "a").await);
}

pub async fn an_error_that_an_effect_handles_is_its_own<F: Factory>() {
    // Promise: an effect may try, fail and go on; only what failed is missing.
    let bench = Bench::<F>::new();
    let effect = run(|tx| {
        assert!(tx.insert(NOTES, &[("text", "half".into())]).is_err());
        tx.insert(NOTES, &[("text", "whole".into()), ("at_ms", 1.into())]).map(drop)
    });
    bench.submit(&call("op-1"), &effect).await.expect("commits");
    assert!(bench.has_row(NOTES, "text", "whole").await);
    assert!(!bench.has_row(NOTES, "text", "half").await);
}
