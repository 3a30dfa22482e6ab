//! Canonical JSON: one text for one meaning, so that equal requests have equal digests.
//!
//! Two profiles. [`strict_v1`] takes safe integers only and orders keys by Unicode scalar value;
//! [`jcs_v1`] is RFC 8785. Both write strings alike: no white space, UTF-8, short escapes where
//! JSON has them, else lower-case `\u00xx` for control characters, everything else as it is.
//! Equal strings are equal code points: nothing is normalised.

use std::cmp::Ordering;

use crate::fingerprint::Profile;
use crate::json::{Decimal, Number, Object, Trail, Value, write_string};

/// Largest magnitude of a number in profile `strict-v1`: 2^53 - 1, the largest integer below which
/// a double holds every integer.
pub const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Canonical bytes by profile `strict-v1`.
///
/// # Errors
///
/// If a number is not integral or its magnitude is above [`MAX_SAFE_INTEGER`]. This is decided on
/// the decimal literal: `1e2` is 100, `-0.0` is 0, and nothing is rounded first.
pub fn strict_v1(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    canonical(Profile::StrictV1, value).map_err(CanonicalError::from)
}

/// Canonical bytes by profile `jcs-v1`: RFC 8785 (JSON Canonicalization Scheme).
///
/// Stricter than the RFC in one point: an integer-valued literal is refused unless its canonical
/// form has the same decimal value. `1E30` and `9007199254740992` pass; `9007199254740993`, which
/// would silently become its neighbour, does not. Fractions round as the RFC says.
///
/// # Errors
///
/// If an integer would change its value, or a number is beyond the range of a double.
pub fn jcs_v1(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    canonical(Profile::JcsV1, value).map_err(CanonicalError::from)
}

/// Why a value has no canonical form, and where. Shows keys, never values: those may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the number at {path} {kind}")]
pub struct CanonicalError {
    /// Where in the document, such as `$.arguments.n`; at most 1 KiB.
    pub path: String,
    pub kind: CanonicalErrorKind,
}

/// The rule that a number broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalErrorKind {
    /// `strict-v1` only.
    #[error("is not integral; this tool takes integers only: send a fraction as a string")]
    NotIntegral,
    /// `strict-v1` only.
    #[error("is outside -(2^53-1) to 2^53-1; send a larger integer as a string")]
    OutsideSafeRange,
    /// `jcs-v1` only.
    #[error("is an integer that a double cannot hold exactly; send it as a string")]
    InexactInteger,
    /// `jcs-v1` only.
    #[error("is beyond the range of a double; send it as a string")]
    NotFinite,
}

/// A refusal on its way out of the recursion; each container adds its step.
#[derive(Debug)]
pub(crate) struct Fault {
    trail: Trail,
    kind: CanonicalErrorKind,
}

impl Fault {
    pub(crate) fn within_key(mut self, key: &str) -> Self {
        self.trail.within_key(key);
        self
    }

    fn within_index(mut self, index: usize) -> Self {
        self.trail.within_index(index);
        self
    }
}

impl From<CanonicalErrorKind> for Fault {
    fn from(kind: CanonicalErrorKind) -> Self {
        Self { trail: Trail::default(), kind }
    }
}

impl From<Fault> for CanonicalError {
    fn from(fault: Fault) -> Self {
        Self { path: fault.trail.render(), kind: fault.kind }
    }
}

pub(crate) fn canonical(profile: Profile, value: &Value) -> Result<Vec<u8>, Fault> {
    let mut out = String::new();
    write_value(&mut out, profile, value)?;
    Ok(out.into_bytes())
}

/// Writes one canonical object from borrowed members, so that a request's arguments need not be
/// copied into a larger value first.
pub(crate) struct ObjectWriter {
    out: String,
    profile: Profile,
    last_name: &'static str,
}

impl ObjectWriter {
    pub(crate) fn new(profile: Profile) -> Self {
        Self { out: String::from("{"), profile, last_name: "" }
    }

    /// Adds a string, or null. Names are ASCII and come in ascending order, which is canonical
    /// order in both profiles.
    pub(crate) fn text(&mut self, name: &'static str, text: Option<&str>) -> &mut Self {
        self.name(name);
        match text {
            Some(text) => write_string(&mut self.out, text),
            None => self.out.push_str("null"),
        }
        self
    }

    /// Adds a value. A fault's path begins with `name`.
    pub(crate) fn value(&mut self, name: &'static str, value: &Value) -> Result<&mut Self, Fault> {
        self.name(name);
        write_value(&mut self.out, self.profile, value).map_err(|fault| fault.within_key(name))?;
        Ok(self)
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out.push('}');
        self.out.into_bytes()
    }

    fn name(&mut self, name: &'static str) {
        assert!(name.is_ascii() && self.last_name < name, "names are ASCII, in ascending order");
        if !self.last_name.is_empty() {
            self.out.push(',');
        }
        self.last_name = name;
        write_string(&mut self.out, name);
        self.out.push(':');
    }
}

fn write_value(out: &mut String, profile: Profile, value: &Value) -> Result<(), Fault> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, profile, number)?,
        Value::String(text) => write_string(out, text),
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, profile, element).map_err(|fault| fault.within_index(index))?;
            }
            out.push(']');
        }
        Value::Object(object) => write_object(out, profile, object)?,
    }
    Ok(())
}

fn write_object(out: &mut String, profile: Profile, object: &Object) -> Result<(), Fault> {
    let order: fn(&str, &str) -> Ordering = match profile {
        // The order of UTF-8 bytes is the order of Unicode scalar values.
        Profile::StrictV1 => Ord::cmp,
        Profile::JcsV1 => utf16_order,
    };
    if object.iter().is_sorted_by(|(a, _), (b, _)| order(a, b).is_lt()) {
        return write_members(out, profile, object.iter());
    }
    let mut members: Vec<(&str, &Value)> = object.iter().collect();
    members.sort_unstable_by(|(a, _), (b, _)| order(a, b));
    write_members(out, profile, members.into_iter())
}

fn write_members<'a>(
    out: &mut String,
    profile: Profile,
    members: impl Iterator<Item = (&'a str, &'a Value)>,
) -> Result<(), Fault> {
    out.push('{');
    for (index, (key, member)) in members.enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, key);
        out.push(':');
        write_value(out, profile, member).map_err(|fault| fault.within_key(key))?;
    }
    out.push('}');
    Ok(())
}

/// The order of the texts' UTF-16 units (RFC 8785, section 3.2.3), told from their UTF-8. The two
/// orders differ in one point: the surrogates of characters past U+FFFF come before U+E000.
fn utf16_order(a: &str, b: &str) -> Ordering {
    // Texts first differ within characters that begin alike, so both bytes lead or neither does,
    // and only U+E000 to U+FFFF are led by 0xee and 0xef.
    let rank = |byte: u8| if matches!(byte, 0xee | 0xef) { byte + 0x10 } else { byte };
    match a.bytes().zip(b.bytes()).find(|(a, b)| a != b) {
        Some((a, b)) => rank(a).cmp(&rank(b)),
        None => a.len().cmp(&b.len()),
    }
}

/// Digits that always are a safe integer: 10^15 - 1 is below 2^53 - 1.
const SAFE_DIGITS: usize = 15;

/// Whether the literal is an integer that both profiles write just so.
fn is_canonical_integer(literal: &str) -> bool {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    digits.len() <= SAFE_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && literal != "-0"
}

fn write_number(
    out: &mut String,
    profile: Profile,
    number: &Number,
) -> Result<(), CanonicalErrorKind> {
    if is_canonical_integer(number.literal()) {
        out.push_str(number.literal());
        return Ok(());
    }
    match profile {
        Profile::StrictV1 => write_safe_integer(out, number),
        Profile::JcsV1 => write_double(out, number),
    }
}

fn write_safe_integer(out: &mut String, number: &Number) -> Result<(), CanonicalErrorKind> {
    let exact = Decimal::of(number);
    if !exact.is_integral() {
        return Err(CanonicalErrorKind::NotIntegral);
    }
    let safe = -i128::from(MAX_SAFE_INTEGER)..=i128::from(MAX_SAFE_INTEGER);
    match exact.to_i128() {
        Some(integer) if safe.contains(&integer) => {
            out.push_str(&integer.to_string());
            Ok(())
        }
        _ => Err(CanonicalErrorKind::OutsideSafeRange),
    }
}

/// RFC 8785, section 3.2.2.3: as ECMAScript writes the nearest double.
fn write_double(out: &mut String, number: &Number) -> Result<(), CanonicalErrorKind> {
    let double: f64 = number.literal().parse().expect("every JSON number is a Rust float literal");
    if !double.is_finite() {
        return Err(CanonicalErrorKind::NotFinite);
    }
    let mut buffer = ryu_js::Buffer::new();
    let text = buffer.format_finite(double);
    let exact = Decimal::of(number);
    if exact.is_integral() && exact != Decimal::of_literal(text) {
        return Err(CanonicalErrorKind::InexactInteger);
    }
    out.push_str(text);
    Ok(())
}
