//! Fingerprints: what a request *is*, as a keyed digest, so that a retry is recognised, a changed
//! request is a conflict, and nothing at rest lets anyone guess the arguments.

mod keys;

pub use keys::{KeyError, KeyId, KeyRing, KeyRingError, MIN_KEY_BYTES, SecretKey};

use std::fmt;

use hmac::digest::{CtOutput, Digest};
use sha2::Sha256;

use crate::canonical::{CanonicalError, Fault, ObjectWriter, canonical};
use crate::json::Value;

/// What makes each use of a key differ from every other use. No label is the beginning of another,
/// and none begins with `{`, as canonical objects do.
const STORED_STRICT_LABEL: &[u8] = b"counterfoil fingerprint strict-v1 stored\0";
const CALL_LABEL: &[u8] = b"counterfoil call fingerprint v1\0";

/// How a request is made canonical. A record keeps the profile that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Safe integers only; the published profile of the built-in issue tool.
    StrictV1,
    /// RFC 8785; the default for every other tool.
    JcsV1,
}

impl Profile {
    /// The name that is stored and configured.
    pub fn as_str(self) -> &'static str {
        match self {
            Profile::StrictV1 => "strict-v1",
            Profile::JcsV1 => "jcs-v1",
        }
    }

    /// The profile of that exact name; `None` for any other.
    pub fn parse(name: &str) -> Option<Profile> {
        [Profile::StrictV1, Profile::JcsV1].into_iter().find(|profile| profile.as_str() == name)
    }
}

/// Everything that a call is bound to. Fields that are Counterfoil's own are removed from
/// `arguments` before, where the tool's profile says so.
#[derive(Clone, Copy)]
pub struct CallBinding<'a> {
    pub tenant: &'a str,
    /// Who asks, as the server knows it, never as an argument says.
    pub principal: Option<&'a str>,
    pub tool_id: &'a str,
    pub tool_version: &'a str,
    pub arguments: &'a Value,
    /// The sealed state that a continuation brought, exactly as it came.
    pub continuation_state: Option<&'a str>,
    /// The accepted answers that a continuation brought.
    pub input_responses: Option<&'a Value>,
}

impl fmt::Debug for CallBinding<'_> {
    /// Who and what, without arguments, state and answers: those may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBinding")
            .field("tenant", &self.tenant)
            .field("principal", &self.principal)
            .field("tool_id", &self.tool_id)
            .field("tool_version", &self.tool_version)
            .finish_non_exhaustive()
    }
}

/// The digest that profile `strict-v1` publishes, for other implementations to compare with. What
/// is stored is [`fingerprint`].
///
/// SHA-256 of the canonical object of `arguments, continuation_state, input_responses, principal,
/// tool_id, tool_version`, in which state and answers, null included, are replaced by the hex of
/// HMAC-SHA256(key, field name, 0x00, canonical bytes). The tenant is not part of it: operations
/// of two tenants never meet in the store.
///
/// # Errors
///
/// If a number has no canonical form; the path begins with its field, such as `$.arguments.n`.
pub fn strict_v1_digest(
    key: &SecretKey,
    call: &CallBinding<'_>,
) -> Result<[u8; 32], CanonicalError> {
    let state = call.continuation_state.map_or(Value::Null, Value::from);
    let answers = call.input_responses.unwrap_or(&Value::Null);
    let mut object = ObjectWriter::new(Profile::StrictV1);
    object
        .value("arguments", call.arguments)?
        .text("continuation_state", Some(&blind(key, "continuation_state", &state)?))
        .text("input_responses", Some(&blind(key, "input_responses", answers)?))
        .text("principal", call.principal)
        .text("tool_id", Some(call.tool_id))
        .text("tool_version", Some(call.tool_version));
    Ok(Sha256::digest(object.finish()).into())
}

/// The fingerprint that a record stores, over every field of `call` in profile `jcs-v1`, and over
/// every field but the tenant in `strict-v1` (see [`strict_v1_digest`]).
///
/// # Errors
///
/// If a number has no canonical form; the path begins with its field, such as `$.arguments.n`.
pub fn fingerprint(
    profile: Profile,
    key: &SecretKey,
    call: &CallBinding<'_>,
) -> Result<Fingerprint, CanonicalError> {
    match profile {
        Profile::StrictV1 => {
            let digest = strict_v1_digest(key, call)?;
            Ok(Fingerprint(key.hmac(&[STORED_STRICT_LABEL, &digest])))
        }
        Profile::JcsV1 => {
            let mut object = ObjectWriter::new(profile);
            object.value("arguments", call.arguments)?;
            object.text("continuation_state", call.continuation_state);
            object.value("input_responses", call.input_responses.unwrap_or(&Value::Null))?;
            write_identity(&mut object, profile, call);
            Ok(Fingerprint(key.hmac(&[&object.finish()])))
        }
    }
}

/// The fingerprint of what is asked, whatever round of the conversation it is asked in: tenant,
/// principal, tool, version and arguments. A call that brings no operation ID is recognised by it,
/// so the caller removes the operation ID from `arguments` first.
///
/// # Errors
///
/// If a number has no canonical form; the path begins with its field, such as `$.arguments.n`.
pub fn call_fingerprint(
    profile: Profile,
    key: &SecretKey,
    call: &CallBinding<'_>,
) -> Result<Fingerprint, CanonicalError> {
    let mut object = ObjectWriter::new(profile);
    object.value("arguments", call.arguments)?;
    write_identity(&mut object, profile, call);
    Ok(Fingerprint(key.hmac(&[CALL_LABEL, &object.finish()])))
}

/// A keyed digest of a request. Equality takes the same time wherever two digests differ.
#[derive(Clone, Copy)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// 64 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        keys::to_hex(&self.0)
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        CtOutput::<Sha256>::new(self.0.into()) == CtOutput::new(other.0.into())
    }
}

impl Eq for Fingerprint {}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.to_hex())
    }
}

/// The members of both `jcs-v1` objects that come after the call's content.
fn write_identity(object: &mut ObjectWriter, profile: Profile, call: &CallBinding<'_>) {
    object
        .text("principal", call.principal)
        .text("profile", Some(profile.as_str()))
        .text("tenant", Some(call.tenant))
        .text("tool_id", Some(call.tool_id))
        .text("tool_version", Some(call.tool_version));
}

/// What stands for a secret field in `strict-v1`.
fn blind(key: &SecretKey, name: &str, value: &Value) -> Result<String, Fault> {
    let bytes =
        canonical(Profile::StrictV1, value).map_err(|fault: Fault| fault.within_key(name))?;
    Ok(keys::to_hex(&key.hmac(&[name.as_bytes(), &[0], &bytes])))
}
