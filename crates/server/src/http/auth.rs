//! Who sends a request. Tokens here are a scheme of our own in the form of RFC 6750: there is no
//! authorization server, so none is announced.

use std::sync::Arc;

use axum::response::Response;
use counterfoil_core::identity::Caller;
use counterfoil_core::time::Timestamp;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};

use super::refuse;
use crate::tokens::{Denied, LiveTokens, Right};

/// How callers are known.
#[derive(Debug, Clone)]
pub enum Auth {
    /// By the bearer token of each request.
    Tokens(Arc<LiveTokens>),
    /// Not at all: whoever reaches the server is this caller. For a loopback address alone.
    LocalOnly(Caller),
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// No bearer token came.
    Missing,
    /// The header is not one bearer token.
    Malformed,
    /// Wrong, expired or revoked.
    Invalid,
    /// The token does not allow this.
    Rights(Right),
    /// The tokens cannot be read.
    Unavailable,
}

impl Auth {
    /// Who sends a request with these headers, if they may do what needs `right`.
    pub(super) fn caller(
        &self,
        headers: &HeaderMap,
        right: Right,
        now: Timestamp,
    ) -> Result<Caller, Refused> {
        match (self, bearer(headers)?) {
            (Self::Tokens(tokens), Some(token)) => {
                let known = tokens.authenticate(token, now).map_err(|denied| match denied {
                    Denied::Invalid => Refused::Invalid,
                    Denied::Unavailable => Refused::Unavailable,
                })?;
                tracing::debug!(token = %known.token_id, "authenticated");
                if known.may(right) { Ok(known.caller) } else { Err(Refused::Rights(right)) }
            }
            (Self::Tokens(_), None) => Err(Refused::Missing),
            // Whoever brings a token means to be somebody in particular.
            (Self::LocalOnly(_), Some(_)) => Err(Refused::Invalid),
            (Self::LocalOnly(caller), None) => Ok(caller.clone()),
        }
    }
}

impl Refused {
    /// The word for the metrics.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Invalid => "invalid",
            Self::Rights(_) => "rights",
            Self::Unavailable => "unavailable",
        }
    }

    /// The answer (RFC 6750, section 3.1).
    pub(super) fn response(self) -> Response {
        let response = match self {
            Self::Missing => refuse::challenge(
                StatusCode::UNAUTHORIZED,
                None,
                "a token is needed: send the header Authorization: Bearer cf_...; an operator \
                 makes one with `counterfoil token create`",
            ),
            Self::Malformed => refuse::challenge(
                StatusCode::BAD_REQUEST,
                Some("invalid_request"),
                "the header Authorization must come once and be Bearer, one space and one token",
            ),
            Self::Invalid => refuse::challenge(
                StatusCode::UNAUTHORIZED,
                Some("invalid_token"),
                "the token is wrong, expired or revoked; ask an operator for a new one",
            ),
            Self::Rights(Right::Tools) => refuse::challenge(
                StatusCode::FORBIDDEN,
                Some("insufficient_scope"),
                "this token does not allow calling tools",
            ),
            Self::Rights(Right::Metrics) => refuse::challenge(
                StatusCode::FORBIDDEN,
                Some("insufficient_scope"),
                "this token does not allow reading the metrics",
            ),
            Self::Unavailable => refuse::plain(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server cannot read its list of tokens and lets nobody in; its log says why",
            ),
        };
        // The body was not read and will not be.
        refuse::and_close(response)
    }
}

/// The token of `Authorization: Bearer TOKEN`. `None` if the header is absent or names another
/// scheme.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refused> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refused::Malformed);
    }
    let value = value.to_str().map_err(|_| Refused::Malformed)?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Ok(None);
    }
    let token = token.trim_matches(' ');
    if is_token68(token) { Ok(Some(token)) } else { Err(Refused::Malformed) }
}

/// The `token68` of RFC 9110, section 11.2.
fn is_token68(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    !body.is_empty() && body.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_token_is_read_and_anything_else_is_not_guessed_at() {
        // Promise: a header that two readers could understand differently is refused.
        let read = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, http::HeaderValue::from_bytes(value).unwrap());
            }
            bearer(&headers).map(|token| token.map(str::to_owned))
        };
        let token = |text: &str| Ok(Some(text.to_owned()));
        type Case<'a> = (&'a [&'a [u8]], Result<Option<String>, Refused>);
        let cases: &[Case<'_>] = &[
            (&[], Ok(None)),
            (&[b"Bearer cf_a-B9"], token("cf_a-B9")),
            (&[b"bEARER cf_a"], token("cf_a")),
            (&[b"Bearer  a=="], token("a==")),
            (&[b"Basic dTpw"], Ok(None)),
            (&[b"Bearer"], Err(Refused::Malformed)),
            (&[b"Bearer "], Err(Refused::Malformed)),
            (&[b"Bearer a b"], Err(Refused::Malformed)),
            (&[b"Bearer a,Bearer b"], Err(Refused::Malformed)),
            (&[b"Bearer a\"b"], Err(Refused::Malformed)),
            (&[b"Bearer =="], Err(Refused::Malformed)),
            (&[b"Bearer \xff"], Err(Refused::Malformed)),
            (&[b"Bearer a", b"Bearer a"], Err(Refused::Malformed)),
        ];
        for (values, expected) in cases {
            assert_eq!(&read(values), expected, "{values:?}");
        }
    }
}
