//! The sealed continuation state that travels through the client between two rounds of a call
//! (MCP's `requestState`): signed, not encrypted, bound to one call, and short-lived.
//!
//! Text form: `cf1.` and the URL-safe base64 (RFC 4648, section 5, without padding) of
//! key number (4 bytes), claims, HMAC-SHA256 (32 bytes). Each state has exactly one text, so a
//! changed text is never the same state in other words.

mod codec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::fingerprint::{KeyId, KeyRing, SecretKey};

/// Longest sealed text, in bytes (4 KiB): it travels in every continuation.
pub const MAX_SEALED_BYTES: usize = 4096;

/// Version and separator. Part of what is signed.
const PREFIX: &str = "cf1.";
const KEY_LABEL: &[u8] = b"counterfoil sealed state key v1\0";
const KEY_ID_BYTES: usize = 4;
const MAC_BYTES: usize = 32;

/// What a sealed state says. The client can read all of it, so it holds nothing secret: the
/// arguments only as a *keyed* digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateClaims {
    pub operation_id: String,
    pub tenant: String,
    pub principal: String,
    /// The MCP method, such as `tools/call`.
    pub method: String,
    pub tool_id: String,
    pub tool_version: String,
    /// Keyed digest of the first round's arguments.
    pub arguments_digest: [u8; 32],
    /// When the state was made, in milliseconds since the Unix epoch.
    pub issued_at_ms: i64,
    /// First moment at which the state is refused, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
    /// First moment at which its continuation may no longer write, in milliseconds since the Unix
    /// epoch. Another clock than the state's: the state may outlive it.
    pub authority_ends_at_ms: i64,
    /// Tells two states apart that were made for one operation.
    pub nonce: [u8; 16],
}

/// What a continuation is checked against: who asks now, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub operation_id: &'a str,
    pub tenant: &'a str,
    pub principal: &'a str,
    pub method: &'a str,
    pub tool_id: &'a str,
    pub tool_version: &'a str,
    pub arguments_digest: &'a [u8; 32],
}

impl StateClaims {
    /// Whether a continuation may use this state now: every binding is equal, and the state has
    /// not expired at `now_ms` (milliseconds since the Unix epoch).
    ///
    /// Says nothing about authority, which ends by its own clock and has its own answer.
    ///
    /// # Errors
    ///
    /// If any binding differs or the state has expired; which one is not told.
    pub fn permits(&self, expected: &Expected<'_>, now_ms: i64) -> Result<(), StateRefused> {
        let bound = self.operation_id == expected.operation_id
            && self.tenant == expected.tenant
            && self.principal == expected.principal
            && self.method == expected.method
            && self.tool_id == expected.tool_id
            && self.tool_version == expected.tool_version
            && self.arguments_digest == *expected.arguments_digest;
        if bound && now_ms < self.expires_at_ms { Ok(()) } else { Err(StateRefused) }
    }
}

/// Seals `claims` under the ring's active key.
///
/// # Errors
///
/// If a deadline is not after the issue time, or the text would be longer than
/// [`MAX_SEALED_BYTES`].
pub fn seal(keys: &KeyRing, claims: &StateClaims) -> Result<String, SealError> {
    let issued_at_ms = claims.issued_at_ms;
    for (deadline, at_ms) in
        [("state expiry", claims.expires_at_ms), ("authority end", claims.authority_ends_at_ms)]
    {
        if at_ms <= issued_at_ms {
            return Err(SealError::DeadlineNotAfterIssue { deadline, at_ms, issued_at_ms });
        }
    }
    let (key_id, key) = keys.active();
    let mut body = key_id.0.to_be_bytes().to_vec();
    codec::write(&mut body, claims);
    let mac = sealing_key(key).hmac(&[PREFIX.as_bytes(), &body]);
    body.extend_from_slice(&mac);
    let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(&body));
    if text.len() > MAX_SEALED_BYTES {
        return Err(SealError::TooLong { length_bytes: text.len() });
    }
    Ok(text)
}

/// Opens a sealed state that some key of the ring made. Whether it fits the call at hand is for
/// [`StateClaims::permits`].
///
/// # Errors
///
/// If the text is anything but what [`seal`] returned under a key that the ring still has.
pub fn open(keys: &KeyRing, sealed: &str) -> Result<StateClaims, StateRefused> {
    if sealed.len() > MAX_SEALED_BYTES {
        return Err(StateRefused);
    }
    let encoded = sealed.strip_prefix(PREFIX).ok_or(StateRefused)?;
    // The engine refuses padding and trailing bits that are not zero.
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| StateRefused)?;
    let (body, mac) = bytes.split_last_chunk::<MAC_BYTES>().ok_or(StateRefused)?;
    let (key_id, payload) = body.split_first_chunk::<KEY_ID_BYTES>().ok_or(StateRefused)?;
    let key = keys.get(KeyId(u32::from_be_bytes(*key_id))).ok_or(StateRefused)?;
    if !sealing_key(key).verify_hmac(&[PREFIX.as_bytes(), body], mac) {
        return Err(StateRefused);
    }
    codec::read(payload).ok_or(StateRefused)
}

/// The one answer to a state that is foreign, changed, expired, or not for this call. It has no
/// detail on purpose: a detail would tell a forger how far the forgery came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the continuation state is not valid for this call; an earlier round may have taken effect, so ask for the operation's status"
)]
pub struct StateRefused;

/// Why a state cannot be sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error(
        "the {deadline} {at_ms} ms is not after the issue time {issued_at_ms} ms; configure a positive duration"
    )]
    DeadlineNotAfterIssue { deadline: &'static str, at_ms: i64, issued_at_ms: i64 },
    #[error(
        "the sealed state has {length_bytes} bytes; the limit is {MAX_SEALED_BYTES}: shorten the identifiers in it"
    )]
    TooLong { length_bytes: usize },
}

fn sealing_key(key: &SecretKey) -> SecretKey {
    key.derive(KEY_LABEL)
}
