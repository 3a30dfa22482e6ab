//! What a ledger keeps of each fingerprint key: enough to know it again, nothing that tells it.

use counterfoil_core::fingerprint::KeyRing;

/// A key's number and its check value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyCheck {
    pub(crate) id: u32,
    pub(crate) value: [u8; 16],
}

/// The checks of every key of a ring.
pub(crate) fn checks(keys: &KeyRing) -> Vec<KeyCheck> {
    keys.iter().map(|(id, key)| KeyCheck { id: id.0, value: key.check_value() }).collect()
}
