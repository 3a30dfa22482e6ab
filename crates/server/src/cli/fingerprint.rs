//! `counterfoil fingerprint`: the digests of requests that are given as JSON lines, to compare with
//! another implementation, or with what a ledger keeps.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use counterfoil_core::canonical::CanonicalError;
use counterfoil_core::fingerprint::{
    CallBinding, Fingerprint, Profile, SecretKey, fingerprint, strict_v1_digest,
};
use counterfoil_core::json::{JsonError, JsonLimits, Value, parse};
use zeroize::Zeroizing;

use super::UsageError;
use crate::cli::exit::Exit;
use crate::output;

/// A longer file is not a key.
const LONGEST_KEY_FILE_BYTES: u64 = 4096;
const TENANT: &str = "local";
const FIELDS: [&str; 6] =
    ["principal", "tool_id", "tool_version", "arguments", "continuation_state", "input_responses"];

/// Print the fingerprints of requests
///
/// Reads JSON lines from stdin, each {"name": TEXT, "request": {...}}, and prints for each one
/// its name, a tab, and the digest as 64 hexadecimal digits. The request has `tool_id`,
/// `tool_version` and `arguments`, and may have `principal`, `continuation_state` and
/// `input_responses`, which are null if they are left out; with jcs-v1 it may have `tenant`, by
/// default "local". Lines that are refused are told on stderr, with their number, their name and
/// the place in their JSON; the others are printed all the same. Reads nothing but the key's file.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  counterfoil fingerprint --profile strict-v1 --key-file test.key < requests.jsonl

strict-v1 prints the digest that the profile publishes. What a ledger keeps of it is an HMAC of that
digest: --stored prints this. jcs-v1 is keyed as a whole, and kept as it is.

Exits with 2 if any line was refused, or the key's file cannot be used.")]
pub(super) struct FingerprintArgs {
    /// How a request is made canonical: strict-v1 or jcs-v1
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    profile: Profile,
    /// The key's file: at least 32 bytes in hexadecimal digits
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Print what a ledger keeps
    #[arg(long)]
    stored: bool,
}

/// Answers every line of stdin.
///
/// # Errors
/// If the key cannot be used, stdin cannot be read or stdout cannot be written.
pub(super) fn run(args: &FingerprintArgs) -> anyhow::Result<Exit> {
    let key = read_key(&args.key_file)?;
    let limits = JsonLimits::default();
    let mut lines = Lines { from: io::stdin().lock(), number: 0, max_bytes: limits.max_bytes };
    let mut refused_count = 0;
    while let Some(bytes) = lines.next_line()? {
        match answer(args, &key, &bytes, &limits) {
            Ok((name, digest)) => output::data(format_args!("{name}\t{digest}"))?,
            Err(refused) => {
                refused_count += 1;
                let name = name_of(&bytes);
                let name = name.map_or_else(|| "without a name".into(), |name| format!("`{name}`"));
                let place = format!("line {}, {name}", lines.number);
                output::note(output::printable(&format!("error: {place}: {refused}")));
            }
        }
    }
    Ok(if refused_count == 0 { Exit::Done } else { Exit::Usage })
}

/// Why a line has no fingerprint. Shows keys, never values.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Json(#[from] JsonError),
    #[error("the number at {path} {kind}", path = .0.path, kind = .0.kind)]
    Number(CanonicalError),
    #[error("{path} is missing; give {wanted}")]
    Missing { path: String, wanted: &'static str },
    #[error("{path} must be {wanted}")]
    Type { path: String, wanted: &'static str },
    #[error("{path} is no field of a request in this profile; it has {}", .known.join(", "))]
    Unknown { path: String, known: Vec<&'static str> },
    #[error("$.name holds a control character, which would break the line that is printed")]
    Name,
}

fn answer(
    args: &FingerprintArgs,
    key: &SecretKey,
    bytes: &[u8],
    limits: &JsonLimits,
) -> Result<(String, String), Refused> {
    let line = parse(bytes, limits)?;
    let wanted = "an object with `name` and `request`";
    line.as_object().ok_or_else(|| Refused::Type { path: "$".into(), wanted })?;
    let name = required_text(&line, "$", "name")?;
    if name.chars().any(char::is_control) {
        return Err(Refused::Name);
    }
    let request = required(&line, "$", "request", "an object")?;
    let call = binding(request, args.profile)?;
    let made = if args.profile == Profile::StrictV1 && !args.stored {
        strict_v1_digest(key, &call).map(Fingerprint::from_bytes)
    } else {
        fingerprint(args.profile, key, &call)
    };
    let digest = made.map_err(|error| {
        // The core counts from the request.
        let path = error.path.replacen('$', "$.request", 1);
        Refused::Number(CanonicalError { path, ..error })
    })?;
    Ok((name.to_owned(), digest.to_hex()))
}

fn binding(request: &Value, profile: Profile) -> Result<CallBinding<'_>, Refused> {
    const AT: &str = "$.request";
    let mut known = FIELDS.to_vec();
    if profile == Profile::JcsV1 {
        known.push("tenant");
    }
    let wanted = "an object";
    let object = request.as_object().ok_or_else(|| Refused::Type { path: AT.into(), wanted })?;
    if let Some((name, _)) = object.iter().find(|(name, _)| !known.contains(name)) {
        let shown: String = name.chars().take(64).collect();
        return Err(Refused::Unknown { path: format!("{AT}.{shown}"), known });
    }
    Ok(CallBinding {
        tenant: text(request, AT, "tenant")?.unwrap_or(TENANT),
        principal: text(request, AT, "principal")?,
        tool_id: required_text(request, AT, "tool_id")?,
        tool_version: required_text(request, AT, "tool_version")?,
        arguments: required(request, AT, "arguments", "the tool's arguments")?,
        continuation_state: text(request, AT, "continuation_state")?,
        input_responses: request.get("input_responses").filter(|answers| !answers.is_null()),
    })
}

fn required<'v>(
    object: &'v Value,
    at: &str,
    name: &str,
    wanted: &'static str,
) -> Result<&'v Value, Refused> {
    object.get(name).ok_or_else(|| Refused::Missing { path: format!("{at}.{name}"), wanted })
}

fn required_text<'v>(object: &'v Value, at: &str, name: &str) -> Result<&'v str, Refused> {
    let wanted = "a JSON string";
    let value = required(object, at, name, wanted)?;
    value.as_str().ok_or_else(|| Refused::Type { path: format!("{at}.{name}"), wanted })
}

fn text<'v>(object: &'v Value, at: &str, name: &str) -> Result<Option<&'v str>, Refused> {
    match object.get(name).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => {
            let wanted = "a JSON string or null";
            Err(Refused::Type { path: format!("{at}.{name}"), wanted })
        }
    }
}

/// The name of a line that was refused, as far as a lenient reader finds one.
fn name_of(bytes: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let named: Named = serde_json::from_slice(bytes).ok()?;
    Some(named.name.chars().take(128).collect())
}

/// The lines of a stream, each read to one byte over the limit at most.
struct Lines<R> {
    from: R,
    /// Of the line that was read last, counted from 1.
    number: u64,
    max_bytes: usize,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not blank, without its line feed.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            // One for the line feed, and one that tells a line that is too long.
            let most = self.max_bytes as u64 + 2;
            if self.from.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if line.last() == Some(&b'\n') {
                line.pop();
            } else if line.len() > self.max_bytes {
                self.from.skip_until(b'\n')?;
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
        }
    }
}

/// A key for comparing with others may be known to everybody: unlike those of a ledger, its file's
/// mode is not looked at.
fn read_key(path: &Path) -> Result<SecretKey, UsageError> {
    let refused = |cause: String| {
        UsageError(format!("the key file {} cannot be used: {cause}", path.display()))
    };
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_KEY_FILE_BYTES as usize + 1));
    File::open(path)
        .and_then(|file| file.take(LONGEST_KEY_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| refused(error.to_string()))?;
    if bytes.len() as u64 > LONGEST_KEY_FILE_BYTES {
        return Err(refused(format!("it has over {LONGEST_KEY_FILE_BYTES} bytes")));
    }
    let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
    SecretKey::from_hex(&text).map_err(|error| refused(error.to_string()))
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::parse(name).ok_or_else(|| "there is no such profile; use strict-v1 or jcs-v1".into())
}
