//! Sealed state: what was sealed comes back, and nothing else ever opens.

use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::seal::{StateClaims, open, seal};
use proptest::prelude::*;

use super::{cases, damage};

fn ring(byte: u8) -> KeyRing {
    let key = SecretKey::from_bytes(&[byte; 32]).expect("32 bytes");
    KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("a ring")
}

fn claims() -> impl Strategy<Value = StateClaims> {
    let text = || "[ -~é€]{0,40}";
    (text(), text(), text(), any::<[u8; 32]>(), any::<[u8; 16]>(), any::<i32>(), 1_i64..1 << 40)
        .prop_map(|(operation_id, tenant, principal, arguments_digest, nonce, from, span)| {
            let issued_at_ms = i64::from(from);
            StateClaims {
                operation_id,
                tenant,
                principal,
                method: "tools/call".into(),
                tool_id: "create_issue".into(),
                tool_version: "1".into(),
                arguments_digest,
                issued_at_ms,
                expires_at_ms: issued_at_ms + span,
                authority_ends_at_ms: issued_at_ms + span,
                nonce,
            }
        })
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn only_the_very_text_opens(claims in claims(), damage in damage()) {
        // Promise: a state that was touched anywhere, or sealed under another key, is refused.
        let sealed = seal(&ring(1), &claims).expect("short enough");
        prop_assert_eq!(open(&ring(1), &sealed), Ok(claims));
        prop_assert!(open(&ring(2), &sealed).is_err());
        let damaged = String::from_utf8_lossy(&damage.of(sealed.as_bytes())).into_owned();
        prop_assert_eq!(open(&ring(1), &damaged).is_ok(), damaged == sealed);
    }

    #[test]
    fn nothing_opens_that_was_not_sealed(text in "(cf1\\.)?[A-Za-z0-9_=-]{0,200}") {
        // Promise: no text is taken for a state because of its form.
        prop_assert!(open(&ring(1), &text).is_err());
    }
}
