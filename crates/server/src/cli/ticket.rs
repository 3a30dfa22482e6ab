//! How an operator names a delivery: by its ticket's ID or by its operation's.

use counterfoil_core::identity::{OperationId, OperationKey, Tenant};
use counterfoil_store::outbox::{DeliveryView, Outbox, Which};
use counterfoil_store::{Store, StoreError};

use super::table::hex;

const PREFIX: &str = "tkt_";

/// The ID that a ticket's caller knows it by.
pub(super) fn ticket_id(key: OperationKey) -> String {
    format!("{PREFIX}{}", hex(key.as_bytes()))
}

/// The operation's key in a ticket's ID; `None` if it is none.
pub(super) fn key_of(id: &str) -> Option<OperationKey> {
    key_of_digits(id.strip_prefix(PREFIX)?)
}

/// A key as 32 lower-case digits of base 16.
pub(super) fn key_of_digits(digits: &str) -> Option<OperationKey> {
    let is_form =
        digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_form)?;
    Some(OperationKey::from_bytes(number.to_be_bytes()))
}

/// The item of a ticket, whoever's it is, or else of an operation of `tenant`: nothing keeps a
/// caller from an operation ID that looks like a ticket's.
///
/// # Errors
/// [`StoreError`] if the ledger cannot be read, or what it has fails its own checks.
pub(super) async fn find(
    outbox: &dyn Outbox,
    tenant: &Tenant,
    id: &OperationId,
) -> Result<Option<DeliveryView>, StoreError> {
    if let Some(key) = key_of(id.as_str())
        && let Some(view) = outbox.delivery(Which::Key(key)).await?
    {
        return Ok(Some(view));
    }
    outbox.delivery(Which::Operation(tenant.clone(), id.clone())).await
}

/// That there is no such delivery, and what to look at.
pub(super) fn absent_words(store: &dyn Store, tenant: &Tenant, id: &OperationId) -> String {
    format!(
        "the ledger `{}` has no delivery `{id}` for the tenant `{tenant}`; check the ID, --tenant \
         and --data-dir, or look with `counterfoil delivery list`. It proves nothing: the call may \
         still arrive",
        store.backend_id()
    )
}

/// That what there is cannot be believed, and what to do.
pub(super) fn quarantined_words(id: &str) -> String {
    format!(
        "the record or the item of `{id}` fails its own checks and was set aside; nothing was \
         changed: run `counterfoil store check FILE` on the ledger"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tickets_id_names_its_item_and_nothing_else_does() {
        // Promise: the ID that a caller was given leads an operator to the very item.
        let key = OperationKey::from_bytes([0xa7; 16]);
        let id = ticket_id(key);
        assert_eq!(id, format!("tkt_{}", "a7".repeat(16)));
        assert_eq!(key_of(&id), Some(key));
        let not = ["tkt_", "tkt_a7", "", &id[4..], &id.to_uppercase(), &id.replace("a7", "+7")];
        for other in not {
            assert_eq!(key_of(other), None, "{other}");
        }
    }
}
