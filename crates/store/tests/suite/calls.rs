//! Calls as an engine would admit them, with what a test wants to be different.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BootId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::time::Span;
use counterfoil_store::{LocalEffect, Submission};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// The run of the process that the tests pretend to be.
pub const BOOT: BootId = BootId::from_bytes([7; 16]);

/// One call; by default Alice's, of the tenant `local`, with authority now and 30 days' retention.
#[derive(Debug, Clone)]
pub struct TestCall {
    pub id: String,
    pub tenant: &'static str,
    pub principal: &'static str,
    pub tool: &'static str,
    pub version: &'static str,
    pub arguments: &'static str,
    /// What a later request of the same operation brings.
    pub answers: Option<&'static str>,
    pub authority: Authority,
    pub retention: Span,
    pub boot: BootId,
    pub keys: KeyRing,
}

pub fn call(id: &str) -> TestCall {
    TestCall {
        id: id.to_owned(),
        tenant: "local",
        principal: "alice",
        tool: "create_note",
        version: "1",
        arguments: r#"{"title":"one"}"#,
        answers: None,
        authority: Authority::Present,
        retention: Span::from_secs(30 * 86_400),
        boot: BOOT,
        keys: ring(&[(1, 1)]),
    }
}

impl TestCall {
    pub fn admit(&self) -> Admitted {
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        self.admit_as(number)
    }

    /// With the identities of the attempt of that number, the same in every ledger.
    pub fn admit_as(&self, number: u64) -> Admitted {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let mut nonce = [0xee; 16];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        let caller = caller(self.tenant, self.principal);
        let arguments = parse(self.arguments.as_bytes(), &JsonLimits::default()).expect("JSON");
        let answers = self
            .answers
            .map(|answers| parse(answers.as_bytes(), &JsonLimits::default()).expect("JSON"));
        let call = Call {
            caller: &caller,
            tool_id: &ToolId::parse(self.tool).expect("valid"),
            tool_version: &ToolVersion::parse(self.version).expect("valid"),
            profile: Profile::JcsV1,
            operation_id: &self.operation_id(),
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: self.answers.map(|_| "sealed"),
            input_responses: answers.as_ref(),
            authority: self.authority,
        };
        let attempt = Attempt {
            key: OperationKey::from_bytes(key),
            nonce: Nonce::from_bytes(nonce),
            boot: self.boot,
        };
        Admitted::admit(&call, &self.keys, self.retention, attempt).expect("canonical")
    }

    pub fn operation_id(&self) -> OperationId {
        OperationId::parse(&self.id).expect("valid")
    }

    pub fn tenant(&self) -> Tenant {
        Tenant::parse(self.tenant).expect("valid")
    }

    pub fn with(&self, effect: impl LocalEffect) -> Submission {
        Submission { admitted: self.admit(), effect: Arc::new(effect) }
    }
}

pub fn caller(tenant: &str, principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse(tenant).expect("valid"),
        principal: Principal::parse(principal).expect("valid"),
    }
}

/// A ring of keys `(number, byte that fills the key)`; the first one is active.
pub fn ring(keys: &[(u32, u8)]) -> KeyRing {
    let key = |fill: u8| SecretKey::from_bytes(&[fill; 32]).expect("long enough");
    KeyRing::new(KeyId(keys[0].0), keys.iter().map(|(id, fill)| (KeyId(*id), key(*fill))))
        .expect("a good ring")
}

/// A UUIDv7 made at `ms` since the Unix epoch.
pub fn uuid_v7(ms: i64) -> String {
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    let time = format!("{ms:012x}");
    format!("{}-{}-7000-8000-{number:012x}", &time[..8], &time[8..])
}
