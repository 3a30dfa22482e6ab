//! The claims of a sealed state as bytes. Only read after the signature was found to be ours.
//!
//! Texts come first, each with its length in 4 bytes, then the fields of fixed size; integers are
//! big-endian. There is one encoding of each state.

use super::StateClaims;

pub(super) fn write(out: &mut Vec<u8>, claims: &StateClaims) {
    for text in [
        &claims.operation_id,
        &claims.tenant,
        &claims.principal,
        &claims.method,
        &claims.tool_id,
        &claims.tool_version,
    ] {
        // A longer text makes the state too long to be sealed, whatever its length field says.
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(&claims.arguments_digest);
    for time_ms in [claims.issued_at_ms, claims.expires_at_ms, claims.authority_ends_at_ms] {
        out.extend_from_slice(&time_ms.to_be_bytes());
    }
    out.extend_from_slice(&claims.nonce);
}

/// `None` unless `bytes` is exactly what [`write`] makes.
pub(super) fn read(bytes: &[u8]) -> Option<StateClaims> {
    let mut rest = bytes;
    // The order of the fields below is the order of the bytes.
    let claims = StateClaims {
        operation_id: text(&mut rest)?,
        tenant: text(&mut rest)?,
        principal: text(&mut rest)?,
        method: text(&mut rest)?,
        tool_id: text(&mut rest)?,
        tool_version: text(&mut rest)?,
        arguments_digest: array(&mut rest)?,
        issued_at_ms: i64::from_be_bytes(array(&mut rest)?),
        expires_at_ms: i64::from_be_bytes(array(&mut rest)?),
        authority_ends_at_ms: i64::from_be_bytes(array(&mut rest)?),
        nonce: array(&mut rest)?,
    };
    rest.is_empty().then_some(claims)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(u32::from_be_bytes(array(rest)?)).ok()?;
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    String::from_utf8(head.to_vec()).ok()
}
