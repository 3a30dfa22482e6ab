//! Header fields that a connector may send, and what may stand in them.

use http::HeaderName;

/// No header field's value is longer.
pub(super) const MAX_HEADER_BYTES: usize = 4 * 1024;

/// Ours to set, or the connection's.
const RESERVED: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What holds a secret, and so stands in no file.
const CREDENTIALS: &[&str] = &[
    "api-key",
    "authorization",
    "cookie",
    "private-token",
    "proxy-authorization",
    "x-api-key",
    "x-auth-token",
];

/// A name that may be set.
///
/// # Errors
/// [`String`] with the rule and the remedy.
pub(super) fn name(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        format!("`{}` is no header's name; use letters, digits and `-`", text.escape_debug())
    })?;
    if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-c") {
        return Err(format!("`{name}` is set by the connection itself; leave it out"));
    }
    Ok(name)
}

/// A name that may be set with a value from the configuration.
///
/// # Errors
/// As [`name`]; and if it holds a secret.
pub(super) fn plain_name(text: &str) -> Result<HeaderName, String> {
    let name = name(text)?;
    if CREDENTIALS.contains(&name.as_str()) {
        return Err(format!(
            "`{name}` holds a secret, which never stands in a file; name its source in [credential]"
        ));
    }
    Ok(name)
}

/// Refuses what cannot stand in a field: control characters, anything beyond ASCII, white space
/// around the value (RFC 9110, section 5.5, without its obsolete text).
///
/// # Errors
/// [`String`] with the rule, without the value.
pub(super) fn check_value(value: &str) -> Result<(), String> {
    if value.len() > MAX_HEADER_BYTES {
        return Err(format!(
            "has {} bytes; at most {MAX_HEADER_BYTES} are sent: shorten the argument",
            value.len()
        ));
    }
    if let Some((at, c)) = value.char_indices().find(|(_, c)| !matches!(c, ' '..='~')) {
        return Err(format!(
            "would hold U+{:04X} at byte {at}; only printable ASCII can stand in a header",
            c as u32
        ));
    }
    if value.starts_with(' ') || value.ends_with(' ') {
        return Err("would begin or end with a blank, which is not sent; use `| trim`".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_are_not_the_configurations_are_refused() {
        // Promise: no connector can frame a message anew, or carry a secret in its file.
        for (text, words) in [
            ("Content-Length", "by the connection"),
            ("transfer-encoding", "by the connection"),
            ("Proxy-Connection", "by the connection"),
            ("Authorization", "holds a secret"),
            ("X-API-Key", "holds a secret"),
            ("a b", "no header's name"),
            ("a:b", "no header's name"),
            ("", "no header's name"),
            ("é", "no header's name"),
        ] {
            let error = plain_name(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        assert_eq!(plain_name("X-Requested-With").expect("good").as_str(), "x-requested-with");
        assert!(name("X-API-Key").is_ok(), "a credential may stand there");
    }

    #[test]
    fn values_that_would_end_the_field_are_refused() {
        // Promise: an argument cannot add a header or split a request.
        for bad in ["a\r\nX: y", "a\n", "a\0b", "\u{7f}", "\u{80}", "é", "\t", " a", "a "] {
            assert!(check_value(bad).is_err(), "{bad:?}");
        }
        assert!(check_value("a b; c=\"d\"").is_ok());
        assert!(check_value("").is_ok());
    }

    proptest! {
        #[test]
        fn what_passes_is_one_field(value in any::<String>()) {
            // Promise: as above, for texts that nobody thought of.
            if check_value(&value).is_ok() {
                let parsed = http::HeaderValue::from_str(&value).expect("a header's value");
                prop_assert_eq!(parsed.as_bytes(), value.as_bytes());
                prop_assert!(value.bytes().all(|b| (0x20..0x7f).contains(&b)));
            }
        }
    }
}
