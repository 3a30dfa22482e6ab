//! Why a request over HTTP got no answer of MCP, and what that says of its effect.

/// A request that got no answer of MCP. Nothing that a server wrote is shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpProblem {
    /// There was no connection, so nothing was sent over it.
    #[error("no connection to {server}: {why}")]
    Unreachable {
        /// The server's address.
        server: String,
        /// Why.
        why: String,
    },
    /// The TLS handshake failed. No early data is sent, so nothing was.
    #[error(
        "no TLS with {server}: {why}; if its certificate is from an authority of your own, give \
         that one's certificate"
    )]
    Tls {
        /// The server's address.
        server: String,
        /// Why.
        why: String,
    },
    /// HTTP answered in place of MCP.
    #[error("{}", words(*.status, *.had_token, *.retry_after_s))]
    Status {
        /// The status code (RFC 9110, section 15).
        status: u16,
        /// Whether the request carried a token.
        had_token: bool,
        /// `Retry-After`, where it names seconds.
        retry_after_s: Option<u64>,
    },
    /// The connection ended after the request may have left, and before its answer was whole.
    #[error("the connection ended before its answer was here: {0}")]
    Ended(String),
    /// What came is no answer.
    #[error("what the server answered is no MCP: {0}")]
    NotMcp(&'static str),
}

impl HttpProblem {
    /// Whether no byte of the request left.
    #[must_use]
    pub const fn is_unsent(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Tls { .. })
    }

    /// Whether the request was refused before anything was done for it: without credentials, by
    /// rights, or over a limit. Every other status may come from something that stands between,
    /// after the server itself had the request.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Status { status: 401 | 403 | 429, .. })
    }

    /// Whether it is a question of authority.
    #[must_use]
    pub const fn is_authority(&self) -> bool {
        matches!(self, Self::Status { status: 401 | 403, .. })
    }

    /// Whether the same request over another connection will most likely end alike.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::Tls { .. } | Self::NotMcp(_) => true,
            Self::Status { status, .. } => {
                matches!(status, 300..=399 | 401 | 403 | 404 | 405 | 406 | 410 | 415)
            }
            _ => false,
        }
    }
}

/// What a status means here, and what to do.
fn words(status: u16, had_token: bool, retry_after_s: Option<u64>) -> String {
    let meaning = match status {
        300..=399 => "it points to another address, and redirects are not followed: give that one",
        400 => "it cannot read the request; is the token whole?",
        401 if had_token => {
            "it does not accept the token, which may be revoked, expired or another server's: give \
             a valid one"
        }
        401 => "it wants a token, and none was given: give one",
        403 => "the token lacks the right, or the server does not answer to this host name",
        404 | 405 => "there is no MCP endpoint at this path; Counterfoil's own is /mcp",
        408 | 504 => "it waited too long",
        413 => "the request is larger than it takes",
        429 => "over a limit of requests: send the same again later",
        502 => "what stands before the server got no answer from it",
        503 => "it cannot serve now",
        _ => "no answer of MCP",
    };
    let wait = retry_after_s.map(|wait| format!(" (after {wait} s)")).unwrap_or_default();
    format!("the server answered HTTP {status}: {meaning}{wait}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_no_more_than_it_proves() {
        // Promise: only what refuses before anything is done is a refusal; the rest leaves the
        // effect open, and each says what to do.
        let cases = [
            (401, true, true, true, "does not accept the token"),
            (401, false, true, true, "none was given"),
            (403, true, true, true, "lacks the right"),
            (429, true, true, false, "(after 7 s)"),
            (503, true, false, false, "cannot serve now (after 7 s)"),
            (502, true, false, false, "got no answer"),
            (307, true, false, true, "redirects are not followed"),
            (404, true, false, true, "/mcp"),
            (500, true, false, false, "HTTP 500"),
        ];
        for (status, had_token, is_refusal, is_lasting, expected) in cases {
            let problem = HttpProblem::Status { status, had_token, retry_after_s: Some(7) };
            assert!(!problem.is_unsent());
            assert_eq!(problem.is_refusal(), is_refusal, "{status}");
            assert_eq!(problem.is_lasting(), is_lasting, "{status}");
            assert!(problem.to_string().contains(expected), "{problem}");
        }
    }
}
