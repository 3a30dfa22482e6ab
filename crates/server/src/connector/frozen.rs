//! A request as it was rendered at acceptance: these bytes are sent, at the first attempt and at
//! every later one. The credential is not among them.

use std::fmt;

use http::Method;
use serde::{Deserialize, Serialize};
use url::Url;

use super::header;
use super::url::MAX_URL_BYTES;

/// No frozen request is longer.
pub const MAX_FROZEN_BYTES: usize = 2 * 1024 * 1024;
/// What this version writes. A later one reads it too.
const VERSION: u32 = 1;
const LATER: &str = "was written by a later version; use that one";

/// A request, frozen.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenRequest {
    v: u32,
    /// What is sent.
    pub request: FrozenCall,
    /// The key that the target deduplicates by, where one is sent. It stands in the headers or the
    /// body already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The unique text by which the effect can be found, where one is put into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
    /// The account that makes the request. `None` needs no credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The read-only search for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<FrozenLookup>,
}

/// One HTTP request without its credential.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenCall {
    /// The method's name.
    pub method: String,
    /// The address, in full.
    pub url: String,
    /// Header fields, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; `None` sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A search, frozen with the request that it looks for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrozenLookup {
    /// What is sent.
    pub request: FrozenCall,
    /// The text that a match's field is compared with; empty where the status alone tells.
    pub expected: String,
    /// What was a match then, from [`Matching::frozen`](super::Matching::frozen).
    pub matching: String,
}

/// Stored bytes that are no request of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored request {problem}")]
pub struct DamagedRequest {
    problem: &'static str,
}

impl FrozenRequest {
    pub(super) fn new(request: FrozenCall) -> Self {
        Self {
            v: VERSION,
            request,
            idempotency_key: None,
            marker: None,
            account: None,
            lookup: None,
        }
    }

    /// As it is kept.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and lists are always JSON")
    }

    /// From what was kept. Everything that was promised when it was frozen is checked again.
    ///
    /// # Errors
    /// [`DamagedRequest`] if the bytes are not what [`encode`](Self::encode) writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedRequest> {
        let damaged = |problem| DamagedRequest { problem };
        if bytes.len() > MAX_FROZEN_BYTES {
            return Err(damaged("is longer than any that is accepted"));
        }
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let is_later = |v| v != VERSION;
        let read = serde_json::from_slice(bytes);
        // Mostly it is ours, and read once. What is not may be a later version's.
        let frozen: Self = read.map_err(|_| match serde_json::from_slice(bytes) {
            Ok(Version { v }) if is_later(v) => damaged(LATER),
            _ => damaged("cannot be read"),
        })?;
        if is_later(frozen.v) {
            return Err(damaged(LATER));
        }
        frozen.request.check().map_err(damaged)?;
        if let Some(lookup) = &frozen.lookup {
            lookup.request.check().map_err(damaged)?;
        }
        Ok(frozen)
    }
}

impl FrozenCall {
    fn check(&self) -> Result<(), &'static str> {
        Method::from_bytes(self.method.as_bytes()).map_err(|_| "has no HTTP method")?;
        let url = Url::parse(&self.url).map_err(|_| "has no address")?;
        let plain = url.as_str() == self.url && matches!(url.scheme(), "http" | "https");
        if !plain || self.url.len() > MAX_URL_BYTES || !url.username().is_empty() {
            return Err("has an address that is never frozen");
        }
        let good = |(name, value): &(String, String)| {
            header::name(name).is_ok() && header::check_value(value).is_ok()
        };
        if self.headers.iter().all(good) {
            Ok(())
        } else {
            Err("has a header that is never frozen")
        }
    }
}

impl fmt::Debug for FrozenRequest {
    /// Without content: arguments may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenRequest")
            .field("request", &self.request)
            .field("account", &self.account)
            .field("has_lookup", &self.lookup.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FrozenCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = Url::parse(&self.url).map(|url| url.origin().ascii_serialization());
        f.debug_struct("FrozenCall")
            .field("method", &self.method)
            .field("origin", &origin.unwrap_or_default())
            .field("body_bytes", &self.body.as_ref().map(String::len))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FrozenLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrozenLookup").field(&self.request).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen() -> FrozenRequest {
        let call = |method: &str| FrozenCall {
            method: method.into(),
            url: "https://desk.test/issues?q=s3cret".into(),
            headers: vec![("x-a".into(), "s3cret".into())],
            body: Some("{\"a\":\"s3cret\"}".into()),
        };
        FrozenRequest {
            idempotency_key: Some("s3cret".into()),
            marker: Some("cf0".into()),
            account: Some("bot".into()),
            lookup: Some(FrozenLookup {
                request: call("GET"),
                expected: "s3cret".into(),
                matching: "status [200] [404]".into(),
            }),
            ..FrozenRequest::new(call("POST"))
        }
    }

    #[test]
    fn what_was_frozen_comes_back_as_it_was() {
        // Promise: a retry after a restart sends the same bytes; Debug shows none of them.
        let frozen = frozen();
        assert_eq!(FrozenRequest::decode(&frozen.encode()).expect("ours"), frozen);
        assert!(!format!("{frozen:?}").contains("s3cret"));
    }

    #[test]
    fn damaged_bytes_are_never_sent() {
        // Promise: a row that was changed behind our back is no request.
        let text = String::from_utf8(frozen().encode()).expect("JSON");
        for (from, to) in [
            ("\"v\":1", "\"v\":2"),
            ("https://desk.test", "ftp://desk.test"),
            ("https://desk.test", "https://u:p@desk.test"),
            ("/issues", "/a/../issues"),
            ("\"x-a\"", "\"host\""),
            ("[\"x-a\",\"s3cret\"]", "[\"x-a\",\"a\\r\\nb: c\"]"),
            ("\"POST\"", "\"PO ST\""),
            ("\"marker\"", "\"other\""),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            assert!(FrozenRequest::decode(changed.as_bytes()).is_err(), "{changed}");
        }
        assert!(FrozenRequest::decode(b"").is_err());
    }
}
