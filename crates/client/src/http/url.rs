//! The address of a server over HTTP. It stands in process lists and in the journal, so whatever
//! could carry a secret in it is refused.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;

/// Where a server's MCP endpoint is: scheme, host, port and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    is_tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    path: String,
    /// `host`, or `host:port` where the port is not the scheme's own: for the Host header.
    authority: String,
    text: String,
}

/// An address that cannot be used. The address itself is not shown, as it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is no URL of this kind.
    #[error("the server's address has the form http://HOST:PORT/PATH or https://HOST:PORT/PATH")]
    Form,
    /// It has a user's name or a password.
    #[error(
        "the server's address has a user's name or a password before `@`: take it out, and give a \
         token by a file or an environment variable"
    )]
    UserInfo,
    /// It has a query or a fragment.
    #[error(
        "the server's address has a query or a fragment (`?` or `#`): everybody who sees it could \
         read a token there, so take it out, and give a token by a file or an environment variable"
    )]
    Query,
}

impl ServerUrl {
    /// Reads an address, in the form in which it will also stand in the journal: scheme and host
    /// in small letters, the port only where it is not the scheme's own (RFC 3986, section 6.2).
    ///
    /// # Errors
    /// [`UrlError`] if it is no absolute URL of HTTP, or has parts that carry secrets.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.contains(['?', '#']) {
            return Err(UrlError::Query);
        }
        let uri: Uri = text.parse().map_err(|_| UrlError::Form)?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(UrlError::Form);
        };
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (is_tls, own_port) = match scheme {
            scheme if *scheme == Scheme::HTTP => (false, 80),
            scheme if *scheme == Scheme::HTTPS => (true, 443),
            _ => return Err(UrlError::Form),
        };
        let in_uri = authority.host().to_ascii_lowercase();
        let has_bad_port = authority.port().is_none() && authority.as_str().len() != in_uri.len();
        if in_uri.is_empty() || has_bad_port {
            return Err(UrlError::Form);
        }
        let port = authority.port_u16().unwrap_or(own_port);
        let authority = if port == own_port { in_uri.clone() } else { format!("{in_uri}:{port}") };
        let path = uri.path().to_owned();
        let text = format!("{}://{authority}{path}", scheme.as_str());
        let host = in_uri.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { is_tls, host, port, path, authority, text })
    }

    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is spoken to through TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether it is this machine by its very name: a loopback address, or `localhost` (RFC 6761).
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_form_and_no_secret() {
        // Promise: the same server is the same entry in the journal however its address was
        // typed, and nothing that could be a secret is taken, or shown in the refusal.
        let cases: [(&str, Result<&str, UrlError>); 17] = [
            ("http://127.0.0.1:8787/mcp", Ok("http://127.0.0.1:8787/mcp")),
            ("HTTP://LocalHost:80/Mcp", Ok("http://localhost/Mcp")),
            ("https://a.example:443/mcp", Ok("https://a.example/mcp")),
            ("https://a.example:80", Ok("https://a.example:80/")),
            ("http://[::1]:9/mcp", Ok("http://[::1]:9/mcp")),
            ("", Err(UrlError::Form)),
            ("/mcp", Err(UrlError::Form)),
            ("localhost:8787", Err(UrlError::Form)),
            ("ftp://a/b", Err(UrlError::Form)),
            ("http:///mcp", Err(UrlError::Form)),
            ("http://a:99999/mcp", Err(UrlError::Form)),
            ("http://a b/mcp", Err(UrlError::Form)),
            ("http://s3cret@a/mcp", Err(UrlError::UserInfo)),
            ("http://u:s3cret@a/mcp", Err(UrlError::UserInfo)),
            ("http://a/mcp?access_token=s3cret", Err(UrlError::Query)),
            ("http://a/mcp?", Err(UrlError::Query)),
            ("http://a/mcp#s3cret", Err(UrlError::Query)),
        ];
        for (text, expected) in cases {
            let read = ServerUrl::parse(text);
            assert_eq!(read.as_ref().map(ServerUrl::as_str).map_err(|error| *error), expected);
            if let Err(error) = read {
                assert!(!error.to_string().contains("s3cret"), "{error}");
            }
        }
    }

    #[test]
    fn this_machine_is_known_by_its_address_alone() {
        // Promise: a name that a network could answer for is not taken for this machine.
        let cases = [
            ("http://127.0.0.1/", true),
            ("http://127.9.9.9/", true),
            ("http://[::1]/", true),
            ("http://localhost/", true),
            ("http://a.localhost/", false),
            ("http://localhost.example/", false),
            ("http://127.0.0.1.example/", false),
            ("http://10.0.0.1/", false),
            ("http://[::]/", false),
        ];
        for (text, expected) in cases {
            assert_eq!(ServerUrl::parse(text).expect(text).is_local(), expected, "{text}");
        }
    }
}
