//! The stub that is kept: one operation's record as a store reads it back.

use crate::fingerprint::{Fingerprint, KeyId, Profile};
use crate::identity::{
    BootId, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use crate::operation::State;
use crate::time::Timestamp;

/// What kind of effect an operation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Nature {
    /// Rows in the ledger's own database.
    Local,
    /// An item of the outbox.
    Deferred,
    /// Sent while the caller waits.
    Direct,
}

/// One operation as it stands in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The ledger's own key.
    pub key: OperationKey,
    /// The space of the ID.
    pub tenant: Tenant,
    /// The caller's ID.
    pub operation_id: OperationId,
    /// Who asked.
    pub principal: Principal,
    /// The tool that was called.
    pub tool_id: ToolId,
    /// The tool's version.
    pub tool_version: ToolVersion,
    /// What the fingerprints were made of, and under which key.
    pub binding: Binding,
    /// What kind of effect it has.
    pub nature: Nature,
    /// Where it stands.
    pub state: State,
    /// Who may move it while it is in progress.
    pub owner: Option<Owner>,
    /// The local row that the effect made.
    pub effect: Option<EffectRef>,
    /// The stored result, JSON; `None` while unfinished and after its purge.
    pub result: Option<StoredResult>,
    /// The attempt that wrote the record.
    pub nonce: Nonce,
    /// Stamped by the store when the record was written.
    pub created_at: Timestamp,
    /// When the continuation's authority to write ended or will end.
    pub authority_ends_at: Option<Timestamp>,
    /// Stamped by the store when a terminal state was reached.
    pub settled_at: Option<Timestamp>,
    /// Until when the record may be replayed; counted from settlement.
    pub retention_ends_at: Option<Timestamp>,
    /// Whether retention has taken the stored result.
    pub purged: bool,
    /// Whether an operator settled it, and how surely.
    pub resolution: Option<Resolution>,
}

/// The fingerprints of the request that made the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// How the bytes were made canonical.
    pub profile: Profile,
    /// The key under which both are compared.
    pub key_id: KeyId,
    /// Over principal, tool, version, arguments, continuation and answers.
    pub full: Fingerprint,
    /// Over principal, tool, version and arguments without the operation ID.
    pub call: Fingerprint,
}

/// The holder of an unfinished operation. Fence equality decides, not time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The run of the process that began or took up the operation.
    pub boot: BootId,
    /// Raised whenever the operation changes hands.
    pub fence: i64,
    /// Until when nobody else may move it, on the store's clock.
    pub lease_until: Timestamp,
}

/// A physical row that an effect made in the ledger's own database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRef {
    /// The table.
    pub table: String,
    /// The row's integer primary key.
    pub id: i64,
    /// SHA-256 of the row's values as the effect left them.
    pub digest: [u8; 32],
}

/// How an operator settled an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The operator said how they know, or no sender could live any more.
    Proved,
    /// Without proof while a sender may still have lived: the caller must not take it for leave
    /// to try again.
    Unproved,
}

/// A result as it was stored: the text of one JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult(String);

impl StoredResult {
    /// From a JSON value's text.
    ///
    /// # Errors
    /// [`serde_json::Error`] if the text is not one JSON value, or one that no reply could show: a
    /// number beyond a double, half of a surrogate pair, over 127 levels.
    pub fn from_json(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        let text = text.into();
        // What is merely skipped is not looked at; what is read is what a reply can show.
        serde_json::from_str::<serde_json::Value>(&text)?;
        Ok(Self(text))
    }

    /// A JSON string.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string())
    }

    /// The JSON text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_reply_could_show_is_no_result() {
        // Promise: a stored result can be shown to its caller, now and in every replay: what a
        // reader of JSON refuses is refused before the commit and not after it.
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for bad in ["", "1 2", "1e999", r#""\ud800""#, deep.as_str()] {
            assert!(StoredResult::from_json(bad).is_err(), "{:.20}", bad);
        }
        for good in ["null", r#"{"a":[1.5e3,"\ud83e\uddfe"]}"#] {
            assert_eq!(StoredResult::from_json(good).expect("JSON").as_json(), good);
        }
    }
}
