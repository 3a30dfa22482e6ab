//! The names under which a target knows an operation: keyed digests, because tenants share a
//! target's credential and must neither meet nor be guessed there.

use std::fmt;

use crate::fingerprint::SecretKey;
use crate::identity::{BackendId, OperationId, Tenant};

/// What makes each use of a key differ from every other use.
const IDEMPOTENCY_LABEL: &[u8] = b"counterfoil target idempotency key v1\0";
const MARKER_LABEL: &[u8] = b"counterfoil target marker v1\0";
/// Of 32 bytes; 128 bits do not meet by chance.
const KEPT_BYTES: usize = 16;

/// The operation whose names are made.
#[derive(Debug, Clone, Copy)]
pub struct TargetIdentity<'a> {
    /// The ledger.
    pub backend: &'a BackendId,
    /// The space of the operation ID.
    pub tenant: &'a Tenant,
    /// The caller's ID.
    pub operation: &'a OperationId,
}

impl TargetIdentity<'_> {
    /// The idempotency key: 32 lower-case hexadecimal digits. It is made once, at acceptance, and
    /// kept: a later key of ours would make another.
    #[must_use]
    pub fn idempotency_key(&self, key: &SecretKey) -> String {
        Hex(self.digest(key, IDEMPOTENCY_LABEL)).to_string()
    }

    /// The text by which the effect is found again: `cf` and 32 lower-case hexadecimal digits, one
    /// word to every search. Whoever sees it in the effect learns nothing of the idempotency key.
    #[must_use]
    pub fn marker(&self, key: &SecretKey) -> String {
        format!("cf{}", Hex(self.digest(key, MARKER_LABEL)))
    }

    fn digest(&self, key: &SecretKey, label: &[u8]) -> [u8; 32] {
        let parts = [self.backend.as_str(), self.tenant.as_str(), self.operation.as_str()];
        // Each part behind its length, so that no two triples give one text.
        let lengths = parts.map(|part| (part.len() as u64).to_be_bytes());
        key.hmac(&[
            label,
            &lengths[0],
            parts[0].as_bytes(),
            &lengths[1],
            parts[1].as_bytes(),
            &lengths[2],
            parts[2].as_bytes(),
        ])
    }
}

struct Hex([u8; 32]);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..KEPT_BYTES].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(backend: &str, tenant: &str, operation: &str, key: u8) -> (String, String) {
        let key = SecretKey::from_bytes(&[key; 32]).expect("32 bytes");
        let backend = BackendId::parse(backend).expect("a name");
        let tenant = Tenant::parse(tenant).expect("a name");
        let operation = OperationId::parse(operation).expect("an ID");
        let identity = TargetIdentity { backend: &backend, tenant: &tenant, operation: &operation };
        (identity.idempotency_key(&key), identity.marker(&key))
    }

    #[test]
    fn every_part_of_the_identity_changes_both_names() {
        // Promise: two tenants, ledgers or operations never share a key at a target.
        let first = names("b", "t", "o", 1);
        assert_eq!(names("b", "t", "o", 1), first);
        assert_eq!((first.0.len(), first.1.len()), (32, 34));
        assert_ne!(first.1, format!("cf{}", first.0));
        for other in
            [("c", "t", "o", 1), ("b", "u", "o", 1), ("b", "t", "p", 1), ("b", "t", "o", 2)]
        {
            let other = names(other.0, other.1, other.2, other.3);
            assert!(other.0 != first.0 && other.1 != first.1);
        }
        assert_ne!(names("bt", "t", "o", 1), names("b", "tt", "o", 1), "parts do not run together");
    }
}
