//! By which name a server is reached, and from which pages: the checks that keep a browser from
//! being used against it (MCP 2026-07-28, Streamable HTTP, Security Warning).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::uri::{Authority, Uri};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::refuse;

/// A name, with the port where one was given, that may stand in `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    host: String,
    port: Option<u16>,
}

/// An origin (RFC 6454) from whose pages requests may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginRule {
    scheme: String,
    host: String,
    /// `None` allows every port.
    port: Option<u16>,
}

impl HostRule {
    /// From `example.com`, `example.com:8443` or `[::1]:8080`. Without a port, every port.
    ///
    /// # Errors
    /// Rule and remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "a host is a name or address, with a port or without: example.com, \
                        example.com:8443, [::1]:8080"
                .to_owned()
        };
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { host: address.to_string(), port: None });
        }
        let authority: Authority = text.parse().map_err(|_| wrong())?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong());
        }
        Ok(Self { host: plain_host(authority.host()), port: authority.port_u16() })
    }

    fn allows(&self, host: &str, port: Option<u16>) -> bool {
        self.host == host && (self.port.is_none() || self.port == port)
    }
}

impl OriginRule {
    /// From `https://example.com`, `http://localhost:6274` or `http://localhost:*`. Without a
    /// port, the scheme's own.
    ///
    /// # Errors
    /// Rule and remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "an origin is http or https, a host, and a port where it is not the usual \
                        one: https://example.com, http://localhost:6274, http://localhost:*"
                .to_owned()
        };
        let (base, any_port) = match text.strip_suffix(":*") {
            Some(base) => (base, true),
            None => (text, false),
        };
        let (scheme, host, port) = origin_of(base).ok_or_else(wrong)?;
        Ok(Self { scheme, host, port: (!any_port).then_some(port) })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_brackets(&self.host))?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for OriginRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:", self.scheme, in_brackets(&self.host))?;
        match self.port {
            Some(port) => write!(f, "{port}"),
            None => f.write_str("*"),
        }
    }
}

/// An IPv6 address as it stands before a port.
fn in_brackets(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// What a server lets through.
#[derive(Debug, Clone)]
pub(super) struct Names {
    hosts: Vec<HostRule>,
    origins: Vec<OriginRule>,
}

impl Names {
    /// For a server on `address`: its address, and the names of this machine if that is where it
    /// listens, go without saying.
    pub(super) fn new(address: SocketAddr, hosts: &[HostRule], origins: &[OriginRule]) -> Self {
        let own = if address.ip().is_unspecified() { None } else { Some(address.ip().to_string()) };
        let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let local = local
            .into_iter()
            .filter(|_| address.ip().is_loopback() || address.ip().is_unspecified());
        let own = own.into_iter().chain(local).map(|host| HostRule { host, port: None });
        Self { hosts: own.chain(hosts.iter().cloned()).collect(), origins: origins.to_vec() }
    }

    /// Refuses a request to another name, or from a page of another origin. Gives back the origin
    /// that is allowed, if the request comes from a page.
    pub(super) fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, Box<Response>> {
        self.check_host(uri, headers)?;
        let mut values = headers.get_all(ORIGIN).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let origin = value.to_str().ok().filter(|_| values.next().is_none()).and_then(origin_of);
        let allowed = origin.is_some_and(|(scheme, host, port)| {
            self.origins.iter().any(|rule| {
                rule.scheme == scheme
                    && rule.host == host
                    && (rule.port.is_none() || rule.port == Some(port))
            })
        });
        if allowed {
            return Ok(Some(value.clone()));
        }
        Err(refuse::and_close(refuse::plain(
            StatusCode::FORBIDDEN,
            "requests from pages of this origin are not allowed; an operator can allow one with \
             the setting http.allowed_origins",
        ))
        .into())
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let mut values = headers.get_all(HOST).iter();
        let host = values.next().map(|value| value.to_str().unwrap_or_default());
        let host = host.or_else(|| uri.authority().map(Authority::as_str));
        let authority = host.and_then(|host| host.parse::<Authority>().ok());
        let authority = authority.filter(|host| !host.as_str().contains('@'));
        let Some(authority) = authority.filter(|_| values.next().is_none()) else {
            return Err(refuse::and_close(refuse::plain(
                StatusCode::BAD_REQUEST,
                "the header Host must come once and be the name by which the server is reached",
            ))
            .into());
        };
        let (host, port) = (plain_host(authority.host()), authority.port_u16());
        if self.hosts.iter().any(|rule| rule.allows(&host, port)) {
            return Ok(());
        }
        Err(refuse::and_close(refuse::plain(
            StatusCode::FORBIDDEN,
            "this server is not known by the name in Host; an operator can add the name with the \
             setting http.allowed_hosts",
        ))
        .into())
    }
}

/// Scheme, host and port of a serialized origin (RFC 6454, section 6.2).
fn origin_of(text: &str) -> Option<(String, String, u16)> {
    let uri: Uri = text.parse().ok()?;
    let scheme = uri.scheme_str()?.to_owned();
    let usual = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = uri.authority()?;
    // A path makes it something else; the parser itself adds the `/`.
    if authority.as_str().contains('@') || text.len() != scheme.len() + 3 + authority.as_str().len()
    {
        return None;
    }
    let port = match authority.port() {
        Some(port) => port.as_str().parse().ok()?,
        None => usual,
    };
    Some((scheme, plain_host(authority.host()), port))
}

/// Lower case, and an IPv6 address without its brackets.
fn plain_host(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: http::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if name != HOST {
            headers.insert(HOST, "localhost".parse().unwrap());
        }
        for value in values {
            headers.append(&name, value.parse().unwrap());
        }
        headers
    }

    fn status(names: &Names, headers: &HeaderMap) -> u16 {
        let checked = names.check(&Uri::from_static("/mcp"), headers);
        checked.map_or_else(|response| response.status().as_u16(), |_| 200)
    }

    #[test]
    fn a_server_is_reached_by_its_own_names_alone() {
        // Promise: a page that points its own name at this address gets nothing from it.
        let extra = [HostRule::parse("mcp.example:8443").unwrap()];
        let cases: &[(&str, &[&str], u16)] = &[
            ("127.0.0.1:8787", &["localhost:8787"], 200),
            ("127.0.0.1:8787", &["LOCALHOST"], 200),
            ("127.0.0.1:8787", &["[::1]:1"], 200),
            ("127.0.0.1:8787", &["mcp.example:8443"], 200),
            ("127.0.0.1:8787", &["mcp.example"], 403),
            ("127.0.0.1:8787", &["evil.example"], 403),
            ("127.0.0.1:8787", &["localhost.evil.example"], 403),
            ("127.0.0.1:8787", &["localhost@evil.example"], 400),
            ("127.0.0.1:8787", &["localhost", "evil.example"], 400),
            ("127.0.0.1:8787", &[], 400),
            ("127.0.0.1:8787", &["a b"], 400),
            ("192.0.2.7:80", &["192.0.2.7"], 200),
            ("192.0.2.7:80", &["localhost"], 403),
            ("0.0.0.0:80", &["localhost"], 200),
            ("0.0.0.0:80", &["192.0.2.7"], 403),
            ("[2001:db8::1]:80", &["[2001:DB8::1]:80"], 200),
        ];
        for (address, hosts, expected) in cases {
            let names = Names::new(address.parse().unwrap(), &extra, &[]);
            assert_eq!(status(&names, &headers(HOST, hosts)), *expected, "{address} {hosts:?}");
        }
    }

    #[test]
    fn a_page_calls_only_if_its_origin_was_allowed() {
        // Promise: no page of another origin calls tools with what a browser adds by itself.
        let rules = ["https://app.example", "http://localhost:*", "http://[::1]:6274"];
        let rules = rules.map(|text| OriginRule::parse(text).unwrap());
        let names = Names::new("127.0.0.1:8787".parse().unwrap(), &[], &rules);
        let cases: &[(&[&str], u16)] = &[
            (&[], 200),
            (&["https://app.example"], 200),
            (&["https://app.example:443"], 200),
            (&["https://APP.example"], 200),
            (&["http://localhost:6274"], 200),
            (&["http://[::1]:6274"], 200),
            (&["http://app.example"], 403),
            (&["https://app.example:8443"], 403),
            (&["https://app.example.evil.example"], 403),
            (&["https://app.example@evil.example"], 403),
            (&["https://app.example/"], 403),
            (&["null"], 403),
            (&[""], 403),
            (&["file://"], 403),
            (&["https://app.example", "https://evil.example"], 403),
        ];
        for (origins, expected) in cases {
            assert_eq!(status(&names, &headers(ORIGIN, origins)), *expected, "{origins:?}");
        }
    }

    #[test]
    fn a_rule_that_means_nothing_is_refused() {
        // Promise: a misspelt rule is named at the start, not ignored.
        for text in ["", "a b", "https://example.com", "a@b", ":80"] {
            assert!(HostRule::parse(text).is_err(), "{text:?}");
        }
        for text in ["", "null", "*", "example.com", "https://a.example/x", "ftp://a.example"] {
            assert!(OriginRule::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(HostRule::parse("::1"), HostRule::parse("[::1]"));
        for text in ["a.example", "a.example:1", "[::1]", "[::1]:80"] {
            assert_eq!(HostRule::parse(text).unwrap().to_string(), text);
        }
        for text in ["https://a.example:443", "http://[::1]:*"] {
            assert_eq!(OriginRule::parse(text).unwrap().to_string(), text);
        }
    }
}
