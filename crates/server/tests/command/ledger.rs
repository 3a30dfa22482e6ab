//! A ledger that a server has left behind, made without one so that its clock can be chosen.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::data_dir::LEDGER_FILE;
use counterfoil::keys;
use counterfoil::tools::issue_effect::{CreateIssue, Mode, tables};
use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::fingerprint::Profile;
use counterfoil_core::identity::{
    BackendId, BootId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId,
    ToolVersion,
};
use counterfoil_core::json::Value;
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{Clock, Store, Submission, SystemClock};

/// The machine's clock, an hour late: a lease that is taken on it has ended since.
#[derive(Debug)]
pub(crate) struct AnHourAgo;

impl Clock for AnHourAgo {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(SystemClock.wall().as_ms() - 3_600_000)
    }

    fn since_boot(&self) -> Duration {
        SystemClock.since_boot().saturating_sub(Duration::from_secs(3600))
    }
}

/// Leaves a ledger with these operations: all whole, but for one that is named `half`, whose server
/// died between its two steps.
pub(crate) fn leave_ledger(dir: &Path, clock: Arc<dyn Clock>, retention: Span, ids: &[&str]) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).expect("made");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = SqliteStore::open(&SqliteOptions {
            backend_id: Some(BackendId::parse("desk").expect("valid")),
            clock,
            tables: tables(),
            ..SqliteOptions::new(dir.join(LEDGER_FILE))
        })
        .expect("a ledger");
        let info = store.info().await.expect("read");
        let ring = keys::load_or_generate(&dir.join("keys"), None, &info).expect("keys");
        store.bind_keys(&ring).await.expect("bound");
        for (number, id) in (1..).zip(ids) {
            let mode = if *id == "half" { Mode::Partial } else { Mode::Atomic };
            let operation_id = OperationId::parse(id).expect("valid");
            let caller = Caller {
                tenant: Tenant::parse("local").expect("valid"),
                principal: Principal::parse("alice").expect("valid"),
            };
            let arguments = Value::from("sentinel-argument");
            let call = Call {
                caller: &caller,
                tool_id: &ToolId::parse("create_issue").expect("valid"),
                tool_version: &ToolVersion::parse("1").expect("valid"),
                profile: Profile::StrictV1,
                operation_id: &operation_id,
                arguments: &arguments,
                call_arguments: &arguments,
                continuation_state: None,
                input_responses: None,
                authority: Authority::Present,
            };
            let attempt = Attempt {
                key: OperationKey::from_bytes([number; 16]),
                nonce: Nonce::from_bytes([number; 16]),
                boot: BootId::from_bytes([9; 16]),
            };
            let admitted = Admitted::admit(&call, &ring, retention, attempt).expect("admitted");
            let effect =
                Arc::new(CreateIssue { title: "t".into(), body: "sentinel-body".into(), mode });
            store.submit(Submission { admitted, effect }).await.expect("committed");
        }
        store.close().await.expect("closed");
    });
}
