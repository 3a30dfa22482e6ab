//! The names in a model's world, and a record as a store keeps it: what the product's own decisions
//! are asked about.

use counterfoil_core::delivery::Delivery;
use counterfoil_core::fingerprint::{Fingerprint, KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BackendId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::operation;
use counterfoil_core::record::{Binding, Nature, Record, Resolution, StoredResult};
use counterfoil_core::time::Timestamp;

/// How an operator settled an operation, if one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Word {
    /// With proof, or when nothing could be under way any more.
    Proved,
    /// Without.
    Unproved,
}

impl Word {
    pub(super) const fn resolution(self) -> Resolution {
        match self {
            Self::Proved => Resolution::Proved,
            Self::Unproved => Resolution::Unproved,
        }
    }
}

/// A principal of the only tenant.
pub(super) fn caller(principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse("local").expect("a word is a tenant"),
        principal: Principal::parse(principal).expect("the model's principals are words"),
    }
}

/// The operation's ID, in text of no time.
pub(super) fn plain_id() -> OperationId {
    OperationId::parse("one-intended-effect").expect("a plain text is an ID")
}

/// The ledger.
pub(super) fn backend() -> BackendId {
    BackendId::parse("model").expect("a word is a ledger's ID")
}

/// Its keys.
pub(super) fn ring() -> KeyRing {
    let key = SecretKey::from_bytes(&[9; 32]).expect("32 bytes are a key");
    KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("a ring of its active key")
}

/// The tool that is called.
pub(super) fn tool() -> (ToolId, ToolVersion) {
    (
        ToolId::parse("create_issue").expect("a word is a tool"),
        ToolVersion::parse("1").expect("a number is a version"),
    )
}

/// A record of alice's, in progress, of which only state and result are to be set.
pub(super) fn record(nature: Nature) -> Record {
    let (tool_id, tool_version) = tool();
    let owner = caller("alice");
    let print = Fingerprint::from_bytes([1; 32]);
    Record {
        key: OperationKey::from_bytes([7; 16]),
        tenant: owner.tenant,
        operation_id: plain_id(),
        principal: owner.principal,
        tool_id,
        tool_version,
        binding: Binding { profile: Profile::JcsV1, key_id: KeyId(1), full: print, call: print },
        nature,
        state: operation::State::InProgress(operation::Phase::Claimed),
        owner: None,
        effect: None,
        result: None,
        nonce: Nonce::from_bytes([2; 16]),
        created_at: Timestamp::from_ms(0),
        authority_ends_at: None,
        settled_at: None,
        retention_ends_at: None,
        purged: false,
        resolution: None,
    }
}

/// The record of a deferred operation in that state, as the store would have settled it.
pub(super) fn deferred(state: operation::State, word: Option<Word>) -> Record {
    Record {
        state,
        result: state.is_terminal().then(|| StoredResult::from_text("done")),
        resolution: word.map(Word::resolution),
        ..record(Nature::Deferred)
    }
}

/// What others may see of `record` and `item`, by the product's own account, and what a client makes
/// of it.
pub(super) fn account_of(record: &Record, item: &Delivery) -> super::shown::Shown {
    let owner = caller("alice");
    let id = plain_id();
    let now = Timestamp::from_ms(0);
    let seen = counterfoil_core::observation::observe_delivery(
        &owner,
        &id,
        &backend(),
        (record, item),
        now,
    );
    super::shown::Shown::of(&seen, &owner, &id)
}
