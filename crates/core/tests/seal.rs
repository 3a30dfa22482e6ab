//! Sealed continuation state: what is sealed comes back, and nothing else is ever opened.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::seal::{
    Expected, MAX_SEALED_BYTES, SealError, StateClaims, StateRefused, open, seal,
};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use sha2::Sha256;

const DIGEST: [u8; 32] = [0xab; 32];
const ISSUED_AT_MS: i64 = 1_000_000;
const EXPIRES_AT_MS: i64 = 1_600_000;

fn key(first: u8) -> SecretKey {
    SecretKey::from_bytes(&std::array::from_fn::<u8, 32, _>(|i| first + i as u8)).unwrap()
}

fn ring() -> KeyRing {
    KeyRing::new(KeyId(7), [(KeyId(7), key(0))]).unwrap()
}

fn claims() -> StateClaims {
    StateClaims {
        operation_id: "op-7".to_owned(),
        tenant: "acme".to_owned(),
        principal: "alice".to_owned(),
        method: "tools/call".to_owned(),
        tool_id: "create_issue".to_owned(),
        tool_version: "1".to_owned(),
        arguments_digest: DIGEST,
        issued_at_ms: ISSUED_AT_MS,
        expires_at_ms: EXPIRES_AT_MS,
        authority_ends_at_ms: 4_600_000,
        nonce: std::array::from_fn(|i| i as u8),
    }
}

fn expected() -> Expected<'static> {
    Expected {
        operation_id: "op-7",
        tenant: "acme",
        principal: "alice",
        method: "tools/call",
        tool_id: "create_issue",
        tool_version: "1",
        arguments_digest: &DIGEST,
    }
}

#[test]
fn the_sealed_text_never_changes() {
    // Promise: a state sealed before an upgrade opens after it. The text was computed by a
    // separate program from the documented construction.
    let text = "cf1.AAAABwAAAARvcC03AAAABGFjbWUAAAAFYWxpY2UAAAAKdG9vbHMvY2FsbAAAAAxjcmVhdGVfaXNzdW\
                UAAAABMaurq6urq6urq6urq6urq6urq6urq6urq6urq6urq6urAAAAAAAPQkAAAAAAABhqAAAAAAAARjDAAAEC\
                AwQFBgcICQoLDA0OD5VATh23BA5-8JKz--saVDdqGAN_5EZsWsEU0qX0LZBN";
    assert_eq!(seal(&ring(), &claims()).as_deref(), Ok(text));
    assert_eq!(open(&ring(), text), Ok(claims()));
}

#[test]
fn a_state_fits_its_own_call_until_it_expires() {
    // Promise: any other binding, and any moment from the expiry on, is refused alike.
    let check = |expected: Expected<'_>, now_ms: i64, fits: bool| {
        let answer = claims().permits(&expected, now_ms);
        assert_eq!(answer, if fits { Ok(()) } else { Err(StateRefused) }, "{expected:?} {now_ms}");
    };
    check(expected(), ISSUED_AT_MS, true);
    check(expected(), EXPIRES_AT_MS - 1, true);
    check(expected(), EXPIRES_AT_MS, false);
    check(expected(), i64::MAX, false);
    for other in [
        Expected { operation_id: "op-8", ..expected() },
        Expected { tenant: "other", ..expected() },
        Expected { principal: "bob", ..expected() },
        Expected { method: "tasks/get", ..expected() },
        Expected { tool_id: "close_issue", ..expected() },
        Expected { tool_version: "2", ..expected() },
        Expected { arguments_digest: &[0xac; 32], ..expected() },
    ] {
        check(other, ISSUED_AT_MS, false);
    }
}

#[test]
fn authority_is_another_clock_than_the_state_s() {
    // Promise: a state outlives its authority; only its own expiry refuses it here.
    let short = StateClaims { authority_ends_at_ms: ISSUED_AT_MS + 1, ..claims() };
    let opened = open(&ring(), &seal(&ring(), &short).unwrap()).unwrap();
    assert_eq!(opened.authority_ends_at_ms, ISSUED_AT_MS + 1);
    assert_eq!(opened.permits(&expected(), EXPIRES_AT_MS - 1), Ok(()));
}

#[test]
fn deadlines_not_after_the_issue_time_are_not_sealed() {
    // Promise: an inconsistent deadline is an error that names it, not a state.
    let check = |claims: StateClaims, named: &str| {
        let error = seal(&ring(), &claims).unwrap_err();
        assert!(matches!(error, SealError::DeadlineNotAfterIssue { .. }), "{error}");
        assert!(error.to_string().contains(named), "{error}");
    };
    for at_ms in [ISSUED_AT_MS, ISSUED_AT_MS - 1, 0, i64::MIN] {
        check(StateClaims { expires_at_ms: at_ms, ..claims() }, "state expiry");
        check(StateClaims { authority_ends_at_ms: at_ms, ..claims() }, "authority end");
    }
    let first = StateClaims { expires_at_ms: ISSUED_AT_MS + 1, ..claims() };
    assert!(seal(&ring(), &first).is_ok());
}

#[test]
fn a_state_too_long_to_travel_is_not_sealed() {
    // Promise: what seal returns, open takes; there is no state that only one of them likes.
    let with_tenant =
        |length: usize| seal(&ring(), &StateClaims { tenant: "t".repeat(length), ..claims() });
    let longest = (0..MAX_SEALED_BYTES).rev().find_map(|length| with_tenant(length).ok()).unwrap();
    assert!(longest.len() > MAX_SEALED_BYTES - 4);
    assert!(open(&ring(), &longest).is_ok());
    let error = with_tenant(MAX_SEALED_BYTES).unwrap_err();
    assert!(matches!(error, SealError::TooLong { .. }), "{error}");
}

#[test]
fn retired_and_foreign_keys_open_nothing() {
    // Promise: a ring opens what its own keys sealed, the inactive ones included, and no more.
    let sealed = seal(&ring(), &claims()).unwrap();
    let check = |active: u32, keys: Vec<(KeyId, SecretKey)>, opens: bool| {
        let ring = KeyRing::new(KeyId(active), keys).unwrap();
        assert_eq!(open(&ring, &sealed).is_ok(), opens);
    };
    check(8, vec![(KeyId(8), key(1)), (KeyId(7), key(0))], true);
    check(8, vec![(KeyId(8), key(1))], false);
    check(7, vec![(KeyId(7), key(1))], false);
    check(8, vec![(KeyId(8), key(0))], false);
}

#[test]
fn forged_texts_are_refused_alike() {
    // Promise: one opaque answer whatever is wrong: prefix, base64, length, signature.
    let sealed = seal(&ring(), &claims()).unwrap();
    let encoded = sealed.strip_prefix("cf1.").unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(encoded).unwrap();
    let encode = |bytes: &[u8]| format!("cf1.{}", URL_SAFE_NO_PAD.encode(bytes));
    let unsigned = &bytes[..bytes.len() - 32];
    let check = |forged: &str| assert_eq!(open(&ring(), forged), Err(StateRefused), "{forged}");

    assert_eq!(encode(&bytes), sealed);
    for forged in ["", "cf1.", "cf1.AAAABw", "AAAA", "state-A", "cf1.é", "\0"] {
        check(forged);
    }
    check(encoded);
    check(&format!("cf2.{encoded}"));
    check(&format!("CF1.{encoded}"));
    check(&format!(" {sealed}"));
    check(&format!("{sealed}\n"));
    for padding in ["=", "==", "===", "A", "AA", "AAAA"] {
        check(&format!("{sealed}{padding}"));
    }
    check(&sealed.replace('-', "+").replace('_', "/"));
    check(&encode(unsigned));
    check(&encode(&[unsigned, &[0; 32]].concat()));
    check(&encode(&[&bytes[..4], &bytes[bytes.len() - 32..]].concat()));
    check(&format!("cf1.{}", "A".repeat(MAX_SEALED_BYTES)));
    check(&"A".repeat(10 << 20));
    assert!(!StateRefused.to_string().contains("expired"));
}

/// Seals any payload, as a holder of the key could.
fn sealed_by_hand(payload: &[u8]) -> String {
    let hmac = |key: &[u8], parts: [&[u8]; 2]| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes()
    };
    let master: [u8; 32] = std::array::from_fn(|i| i as u8);
    let sealing_key = hmac(&master, [b"counterfoil sealed state key v1\0", b""]);
    let mut body = [&7_u32.to_be_bytes(), payload].concat();
    let mac = hmac(&sealing_key, [b"cf1.", &body]);
    body.extend_from_slice(&mac);
    format!("cf1.{}", URL_SAFE_NO_PAD.encode(body))
}

#[test]
fn signed_nonsense_is_refused_as_well() {
    // Promise: even a good signature opens only exact claims, and no text past the limit.
    let payload = |tenant_bytes: usize| {
        let mut payload = Vec::new();
        for text in ["op-7", &"t".repeat(tenant_bytes), "alice", "tools/call", "create_issue", "1"]
        {
            payload.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            payload.extend_from_slice(text.as_bytes());
        }
        payload.extend_from_slice(&[0xab; 32 + 3 * 8 + 16]);
        payload
    };
    let check = |payload: &[u8], opens: bool| {
        let sealed = sealed_by_hand(payload);
        assert_eq!(open(&ring(), &sealed).is_ok(), opens, "{} bytes", sealed.len());
    };
    check(&payload(4), true);
    check(&payload(2800), true);
    check(&payload(4000), false);
    for length in 0..payload(4).len() {
        check(&payload(4)[..length], false);
    }
    check(&[payload(4), vec![0]].concat(), false);
    let mut not_utf8 = payload(4);
    not_utf8[4] = 0xff;
    check(&not_utf8, false);
    let mut length_past_the_end = payload(4);
    length_past_the_end[0] = 0xff;
    check(&length_past_the_end, false);
}

#[test]
fn padding_and_trailing_bits_do_not_make_a_second_text() {
    // Promise: a state has one text, whatever its length modulo 3.
    for length in 1..=3 {
        let state = StateClaims { tenant: "t".repeat(length), ..claims() };
        let sealed = seal(&ring(), &state).unwrap();
        let padding = (4 - (sealed.len() - "cf1.".len()) % 4) % 4;
        if padding > 0 {
            assert_eq!(
                open(&ring(), &format!("{sealed}{}", "=".repeat(padding))),
                Err(StateRefused)
            );
        }
        let (start, last) = sealed.split_at(sealed.len() - 1);
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".chars() {
            let opens = open(&ring(), &format!("{start}{other}")).is_ok();
            assert_eq!(opens, last.starts_with(other), "{other} for {last}");
        }
    }
}

#[test]
fn every_single_bit_counts() {
    // Promise: no bit of the text can be changed, whether or not the result is still a text.
    let sealed = seal(&ring(), &claims()).unwrap();
    for bit in 0..sealed.len() * 8 {
        let mut bytes = sealed.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A text that is not UTF-8 does not even get past the reader of the message.
        if let Ok(changed) = String::from_utf8(bytes) {
            assert_eq!(open(&ring(), &changed), Err(StateRefused), "bit {bit}");
        }
    }
    for length in 0..sealed.len() {
        assert_eq!(open(&ring(), &sealed[..length]), Err(StateRefused), "{length} bytes");
    }
}

fn any_claims() -> impl Strategy<Value = StateClaims> {
    let texts = prop::array::uniform6(".{0,40}");
    let times = (any::<i64>(), any::<i64>(), any::<i64>()).prop_map(|(a, b, c)| {
        let issued = a.min(b).min(c).min(i64::MAX - 1);
        (issued, b.max(issued + 1), c.max(issued + 1))
    });
    (texts, any::<[u8; 32]>(), times, any::<[u8; 16]>()).prop_map(
        |(texts, arguments_digest, times, nonce)| {
            let [operation_id, tenant, principal, method, tool_id, tool_version] = texts;
            let (issued_at_ms, expires_at_ms, authority_ends_at_ms) = times;
            StateClaims {
                operation_id,
                tenant,
                principal,
                method,
                tool_id,
                tool_version,
                arguments_digest,
                issued_at_ms,
                expires_at_ms,
                authority_ends_at_ms,
                nonce,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Promise: any state comes back as it was sealed, and its text with one bit flipped, cut
    /// short, or made longer does not open.
    #[test]
    fn only_the_exact_text_opens(
        claims in any_claims(),
        at in any::<prop::sample::Index>(),
        bit in 0..7_u32,
        tail in "[A-Za-z0-9_=-]{1,8}",
    ) {
        let sealed = seal(&ring(), &claims).unwrap();
        prop_assert_eq!(open(&ring(), &sealed), Ok(claims));

        let at = at.index(sealed.len());
        let mut flipped = sealed.clone().into_bytes();
        flipped[at] ^= 1 << bit;
        let flipped = String::from_utf8(flipped).expect("the top bit of ASCII was left alone");
        prop_assert_eq!(open(&ring(), &flipped), Err(StateRefused));
        prop_assert_eq!(open(&ring(), &sealed[..at]), Err(StateRefused));
        prop_assert_eq!(open(&ring(), &(sealed + &tail)), Err(StateRefused));
    }
}
