//! The rule of each setting: an unvalidated value in, a typed one or rule and remedy out.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil_core::fingerprint::KeyId;
use counterfoil_core::identity::{BackendId, InvalidName, Principal};
use counterfoil_core::time::Span;

use super::duration;
use super::given::Value;
use super::{LocalOnly, StoreKind};
use crate::http::{HostRule, OriginRule};
use crate::mounts::OnlyThisHost;

/// A write never waits longer than this for another process's lock.
const LONGEST_LOCK_WAIT: Duration = Duration::from_secs(60);
/// A stop never waits longer than this for running calls.
const LONGEST_DRAIN: Duration = Duration::from_secs(3600);

/// No session of a client stands for longer than this without a message.
const LONGEST_SESSION_IDLE: Duration = Duration::from_secs(86_400);
/// No count in the settings is higher.
const HIGHEST_COUNT: usize = 1_000_000;
/// A server never purges more often than this, nor less often than that.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(86_400);

type Checked<T> = Result<T, String>;

pub(super) fn path(value: &Value) -> Checked<PathBuf> {
    match value {
        Value::Text(text) if text.contains('\0') => Err("a path cannot hold U+0000".into()),
        Value::Text(text) if !text.is_empty() => Ok(PathBuf::from(text)),
        Value::Bytes(path) => Ok(path.clone()),
        Value::Text(_) => Err("the path is empty; give a directory, or leave it out".into()),
        other => Err(wanted_text(other, "a path")),
    }
}

pub(super) fn backend_id(value: &Value) -> Checked<BackendId> {
    name(value, BackendId::parse)
}

pub(super) fn principal(value: &Value) -> Checked<Principal> {
    name(value, Principal::parse)
}

pub(super) fn store(value: &Value) -> Checked<StoreKind> {
    match value {
        Value::Text(text) if text == "sqlite" => Ok(StoreKind::Sqlite),
        Value::Text(text) if text == "memory" => Ok(StoreKind::Memory),
        _ => Err("there is no such store; use \"sqlite\", or \"memory\" to try things out".into()),
    }
}

pub(super) fn lock_wait(value: &Value) -> Checked<Duration> {
    at_most(span(value)?, LONGEST_LOCK_WAIT, "one minute; 0 does not wait")
}

pub(super) fn drain(value: &Value) -> Checked<Duration> {
    at_most(span(value)?, LONGEST_DRAIN, "one hour; 0 does not wait")
}

pub(super) fn lifetime(value: &Value) -> Checked<Span> {
    let span = span(value)?;
    Span::from_secs_f64(span.as_secs_f64()).map_err(|_| {
        "a lifetime is at least 1 ms, or its end would not be after its start; \
         give more than 0, or leave it out for the default"
            .into()
    })
}

pub(super) fn switch(value: &Value) -> Checked<bool> {
    match value {
        Value::Boolean(is) => Ok(*is),
        Value::Text(text) if text == "true" => Ok(true),
        Value::Text(text) if text == "false" => Ok(false),
        _ => Err("this is a switch; use true or false".into()),
    }
}

pub(super) fn retention_interval(value: &Value) -> Checked<Duration> {
    let interval = span(value)?;
    if SHORTEST_INTERVAL <= interval && interval <= LONGEST_INTERVAL {
        return Ok(interval);
    }
    Err("this interval is at least 1 s and at most 1 day; retention.job = false purges never"
        .into())
}

pub(super) fn key_id(value: &Value) -> Checked<KeyId> {
    let number = match value {
        Value::Integer(number) => u32::try_from(*number).ok(),
        Value::Text(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| *number > 0).map(KeyId).ok_or_else(|| {
        "that is not a key's number; give the N of a file keys/N.key (see `counterfoil key list`)"
            .into()
    })
}

/// Hosts separated by commas.
pub(super) fn hosts(value: &Value) -> Checked<Vec<HostRule>> {
    list(value, HostRule::parse)
}

/// Origins separated by commas.
pub(super) fn origins(value: &Value) -> Checked<Vec<OriginRule>> {
    list(value, OriginRule::parse)
}

pub(super) fn no_auth(value: &Value) -> Checked<LocalOnly> {
    match value {
        Value::Text(text) if text == LocalOnly::WORD => Ok(LocalOnly),
        _ => Err(format!(
            "the only word here is \"{}\", which says that every process of this machine may call \
             as the principal of the settings; leave it out to ask for tokens",
            LocalOnly::WORD
        )),
    }
}

/// A count from `least` on.
pub(super) fn count(least: usize) -> impl Fn(&Value) -> Checked<usize> {
    move |value| {
        let number = match value {
            Value::Integer(number) => usize::try_from(*number).ok(),
            Value::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| (least..=HIGHEST_COUNT).contains(number));
        number.ok_or_else(|| format!("this is a whole number from {least} to {HIGHEST_COUNT}"))
    }
}

pub(super) fn rate(value: &Value) -> Checked<u32> {
    let rate = count(0)(value)?;
    Ok(u32::try_from(rate).unwrap_or(u32::MAX))
}

pub(super) fn session_idle(value: &Value) -> Checked<Duration> {
    let span = at_most(span(value)?, LONGEST_SESSION_IDLE, "one day")?;
    if span.is_zero() {
        Err("a session must be able to stand; give more than 0".into())
    } else {
        Ok(span)
    }
}

pub(super) fn filesystem_override(value: &Value) -> Checked<OnlyThisHost> {
    match value {
        Value::Text(text) if text == OnlyThisHost::WORD => Ok(OnlyThisHost),
        _ => Err(format!(
            "the only word here is \"{}\", which says that neither the host nor another machine \
             opens the ledger; leave it out if you cannot vouch for that",
            OnlyThisHost::WORD
        )),
    }
}

fn list<T>(value: &Value, parse: impl Fn(&str) -> Result<T, String>) -> Checked<Vec<T>> {
    match value {
        Value::Text(text) => {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(parse).collect()
        }
        other => Err(wanted_text(other, "a list here, separated by commas,")),
    }
}

fn name<T>(value: &Value, parse: impl Fn(&str) -> Result<T, InvalidName>) -> Checked<T> {
    match value {
        Value::Text(text) => parse(text).map_err(|error| error.to_string()),
        other => Err(wanted_text(other, "a name")),
    }
}

fn span(value: &Value) -> Checked<Duration> {
    match value {
        Value::Integer(seconds) => duration::from_seconds(*seconds as f64),
        Value::Float(seconds) => duration::from_seconds(*seconds),
        Value::Text(text) => duration::from_text(text),
        Value::Boolean(_) | Value::Bytes(_) | Value::Other(_) => duration::from_text("?"),
    }
}

fn at_most(span: Duration, longest: Duration, words: &str) -> Checked<Duration> {
    if span <= longest { Ok(span) } else { Err(format!("this wait is at most {words}")) }
}

fn wanted_text(value: &Value, what: &str) -> String {
    let found = match value {
        Value::Text(_) => "text",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Bytes(_) => "text that is not UTF-8",
        Value::Other(kind) => kind,
    };
    format!("{what} is text, and this is {found}; put it in quotes")
}
