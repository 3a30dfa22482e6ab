//! A ledger for one trial: its clock, its calls, its effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, BootId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId,
    ToolVersion,
};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::time::{Span, Timestamp};
use counterfoil_store::{
    Clock, Column, ColumnKind, Completion, EffectContext, EffectError, EffectRow, EffectTx,
    LocalEffect, SqliteOptions, TableSpec,
};

/// The run that all steps of a trial belong to.
pub(super) const BOOT: BootId = BootId::from_bytes([7; 16]);

const START_MS: i64 = 1_780_272_000_000;
const NOTES: &str = "notes";
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A clock that moves when it is told to.
#[derive(Debug)]
pub(super) struct HandClock {
    passed_ms: AtomicI64,
}

impl HandClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { passed_ms: AtomicI64::new(0) })
    }

    pub(super) fn pass(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).expect("a trial is short");
        self.passed_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(START_MS + self.passed_ms.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        let ms = u64::try_from(self.passed_ms.load(Ordering::SeqCst)).expect("it never goes back");
        Duration::from_millis(1_000_000 + ms)
    }

    fn boot(&self) -> Option<[u8; 16]> {
        Some([1; 16])
    }
}

/// The ledger of a directory.
pub(super) fn ledger(directory: &Path) -> PathBuf {
    directory.join("ledger.db")
}

pub(super) fn options(directory: &Path, clock: &Arc<HandClock>) -> SqliteOptions {
    let mut options = SqliteOptions::new(ledger(directory));
    options.backend_id = Some(BackendId::parse("test").expect("valid"));
    options.clock = Arc::clone(clock) as Arc<dyn Clock>;
    options.lock_wait = Duration::ZERO;
    options.tables = vec![TableSpec {
        name: NOTES,
        columns: &[Column { name: "text", kind: ColumnKind::Text }],
        append_only: false,
    }];
    options
}

pub(super) fn tenant() -> Tenant {
    Tenant::parse("local").expect("valid")
}

pub(super) fn operation_id(id: &str) -> OperationId {
    OperationId::parse(id).expect("valid")
}

/// A ring of the keys with these numbers; the first is active.
pub(super) fn ring(ids: &[u8]) -> KeyRing {
    let key = |fill: u8| SecretKey::from_bytes(&[fill; 32]).expect("long enough");
    let keys = ids.iter().map(|id| (KeyId(u32::from(*id)), key(*id)));
    KeyRing::new(KeyId(u32::from(ids[0])), keys).expect("a good ring")
}

/// The same call each time that it is asked for, as another attempt.
pub(super) fn admit(id: &str) -> Admitted {
    let number = NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes();
    let (mut key, mut nonce) = ([0; 16], [0xee; 16]);
    key[..8].copy_from_slice(&number);
    nonce[..8].copy_from_slice(&number);
    let caller = Caller { tenant: tenant(), principal: Principal::parse("alice").expect("valid") };
    let arguments = parse(br#"{"title":"one"}"#, &JsonLimits::default()).expect("JSON");
    let call = Call {
        caller: &caller,
        tool_id: &ToolId::parse("create_note").expect("valid"),
        tool_version: &ToolVersion::parse("1").expect("valid"),
        profile: Profile::JcsV1,
        operation_id: &operation_id(id),
        arguments: &arguments,
        call_arguments: &arguments,
        continuation_state: None,
        input_responses: None,
        authority: Authority::Present,
    };
    let attempt =
        Attempt { key: OperationKey::from_bytes(key), nonce: Nonce::from_bytes(nonce), boot: BOOT };
    let retention = Span::from_secs(30 * 86_400);
    Admitted::admit(&call, &ring(&[1]), retention, attempt).expect("canonical")
}

/// An effect of one row; in two steps it makes a second one.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) two_steps: bool,
}

impl LocalEffect for Note {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        _: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        let id = tx.insert(NOTES, &[("text", self.text.as_str().into())])?;
        let row = EffectRow { table: NOTES, id };
        if self.two_steps {
            return Ok(Completion::FirstStep { row });
        }
        Ok(Completion::Whole { row: Some(row), result: StoredResult::from_text("made") })
    }

    fn follow_up(
        &self,
        tx: &mut dyn EffectTx,
        _: &EffectContext<'_>,
        _: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        tx.insert(NOTES, &[("text", "second".into())])?;
        Ok(StoredResult::from_text("made"))
    }
}
