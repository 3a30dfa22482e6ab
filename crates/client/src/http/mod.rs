//! A server over Streamable HTTP: its address, the caller's token, and connections that carry one
//! request each.
//!
//! Nothing here can send a request twice. A connection is opened for a request, carries it and its
//! answer, and is closed: there is no pool whose stale connection would have to be tried again, no
//! HTTP/2 whose streams a server may hand back, no redirect, no proxy, no session that is begun
//! anew under a request, and no stream that is resumed. What is lost is lost, and is asked for.

mod exchange;
mod problem;
mod tls;
mod transport;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio_rustls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::answers::Answers;
use crate::connection::{ConnectError, Connection, Connector};

pub(crate) use exchange::Exchange;
pub use problem::HttpProblem;
pub use tls::TlsSetupError;
pub use url::{ServerUrl, UrlError};

/// A bearer token (RFC 6750). `Debug` shows nothing of it.
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

/// A text that cannot be a token. The text is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is no bearer token: one is a single word of letters, digits and `-._~+/=` (RFC 6750, \
     section 2.1)"
)]
pub struct NoToken;

impl BearerToken {
    /// From its text; white space around it, such as a file's last line end, is not of it.
    ///
    /// # Errors
    /// [`NoToken`] if that is not one word of a token's characters.
    pub fn parse(text: &str) -> Result<Self, NoToken> {
        let text = text.trim();
        let is_of_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        if text.is_empty() || !text.chars().all(is_of_token) {
            return Err(NoToken);
        }
        let header = Zeroizing::new(format!("Bearer {text}"));
        let mut header = HeaderValue::from_str(&header).map_err(|_| NoToken)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// How a server over HTTP is reached.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Who calls; `None` for a server that asks for nothing.
    pub token: Option<BearerToken>,
    /// A PEM file of the authorities to trust, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// For the connection of one request, its TLS handshake included.
    pub connect_timeout: Duration,
    /// Lets a token go to another machine where everybody on the way can read it.
    pub token_in_clear: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            token: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(10),
            token_in_clear: false,
        }
    }
}

/// A server cannot be reached like that. Nothing was tried.
#[derive(Debug, thiserror::Error)]
pub enum HttpSetupError {
    /// A token would go over the network unencrypted.
    #[error(
        "the token would go to {0} unencrypted, and everybody on the way could use it: speak https \
         to it, or call from the server's own machine"
    )]
    TokenInClear(ServerUrl),
    /// No certificate could be checked.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// Opens sessions with a server over HTTP.
#[derive(Clone)]
pub struct HttpConnector {
    line: Arc<Line>,
}

/// What every request to the server has in common.
pub(crate) struct Line {
    url: ServerUrl,
    token: Option<BearerToken>,
    tls: Option<Arc<ClientConfig>>,
    /// Whether a token would be readable on its way to another machine, whatever the name says.
    stays_here: bool,
    connect_timeout: Duration,
}

impl HttpConnector {
    /// For the server at this address.
    ///
    /// # Errors
    /// [`HttpSetupError`] if a token would be readable on the way, or if the authorities to trust
    /// cannot be read.
    pub fn new(url: ServerUrl, options: HttpOptions) -> Result<Self, HttpSetupError> {
        let HttpOptions { token, ca_file, connect_timeout, token_in_clear } = options;
        let stays_here = token.is_some() && !url.is_tls() && !token_in_clear;
        if stays_here && !url.is_local() {
            return Err(HttpSetupError::TokenInClear(url));
        }
        let tls = url.is_tls().then(|| tls::config(ca_file.as_deref())).transpose()?;
        Ok(Self { line: Arc::new(Line { url, token, tls, stays_here, connect_timeout }) })
    }
}

impl Connector for HttpConnector {
    async fn connect(&self, answers: &Answers) -> Result<Connection, ConnectError> {
        Connection::open_http(Exchange::new(self.line.clone()), answers).await
    }

    /// The server's address.
    fn name(&self) -> &str {
        self.line.url.as_str()
    }
}

impl fmt::Debug for HttpConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnector").field("url", &self.line.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word_and_is_never_shown() {
        // Promise: what is no token is not sent as one, and no text or debug output holds one.
        assert!(BearerToken::parse("cf_Az09-._~+/=\n").is_ok());
        for bad in ["", " ", "two words", "a\nb", "\u{e9}", "a:b"] {
            assert_eq!(BearerToken::parse(bad).err(), Some(NoToken), "{bad:?}");
        }
        let token = BearerToken::parse("s3cret").expect("a token");
        let options = HttpOptions { token: Some(token), ..HttpOptions::default() };
        assert!(!format!("{options:?}").contains("s3cret"));
        let url = ServerUrl::parse("http://127.0.0.1/mcp").expect("a URL");
        let connector = HttpConnector::new(url, options).expect("good");
        assert!(!format!("{connector:?}").contains("s3cret"));
        assert!(!format!("{:?}", connector.line.token).contains("s3cret"));
    }

    #[test]
    fn a_token_goes_to_another_machine_only_through_tls() {
        // Promise: a token is not sent in the clear unless somebody says that word.
        let cases = [
            ("http://127.0.0.1/mcp", true, false, true),
            ("http://10.0.0.1/mcp", true, false, false),
            ("http://server.example/mcp", true, false, false),
            ("http://server.example/mcp", true, true, true),
            ("http://server.example/mcp", false, false, true),
        ];
        for (url, has_token, token_in_clear, expected) in cases {
            let url = ServerUrl::parse(url).expect("a URL");
            let token = has_token.then(|| BearerToken::parse("t").expect("a token"));
            let options = HttpOptions { token, token_in_clear, ..HttpOptions::default() };
            assert_eq!(HttpConnector::new(url.clone(), options).is_ok(), expected, "{url}");
        }
    }
}
