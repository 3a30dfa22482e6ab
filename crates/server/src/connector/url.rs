//! Addresses as templates: scheme and host are fixed in the configuration, values fill path segments
//! and query values and can never add a part.

use std::collections::BTreeSet;

use url::Url;

use super::template::{RenderError, Scope, Text};

/// No address is longer.
pub(super) const MAX_URL_BYTES: usize = 8 * 1024;

/// What stands for a value while the template is checked.
const PLACEHOLDER: &str = "x";

/// An address with expressions in its path and query.
#[derive(Debug)]
pub(super) struct UrlTemplate {
    text: Text,
    /// `https://host:port`, literal.
    origin: String,
    /// The template with a placeholder for each value.
    shape: String,
}

/// Why an address cannot be made of these values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// A value is missing or is no text.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// A value would change the path.
    #[error(
        "a value would be an empty, `.` or `..` segment of the address's path; give a value that \
         names one thing"
    )]
    Path,
    /// The values are too long.
    #[error("the address has {bytes} bytes; at most {MAX_URL_BYTES} are sent")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl UrlTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`String`] with the rule and the remedy.
    pub(super) fn parse(source: &str) -> Result<Self, String> {
        let text = Text::parse(source)?;
        let origin = origin_of(text.literal_start(), text.as_literal().is_some())?;
        // The names are not looked up: each expression's text is replaced as a whole.
        let shape = text.shape(PLACEHOLDER);
        if let Some(c) = shape.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!("the address holds {c:?}; percent-encode it, for example as %20"));
        }
        let parsed = Url::parse(&shape)
            .map_err(|error| format!("that is no address: {error}; write https://host/path"))?;
        if parsed.fragment().is_some() {
            return Err("an address has no `#` part: it is never sent; remove it".into());
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("an address holds no user or password; name them in [credential]".into());
        }
        if parsed.as_str() != shape {
            return Err(format!(
                "the address is not in its plain form; write `{}` (with values as `{PLACEHOLDER}`)",
                parsed.as_str()
            ));
        }
        Ok(Self { text, origin, shape })
    }

    /// Fills in the values, each percent-encoded.
    ///
    /// # Errors
    /// [`UrlError`] if a value is missing, too long or would change the path.
    pub(super) fn render(&self, scope: &Scope<'_>) -> Result<String, UrlError> {
        let rendered = self.text.render_with(scope, percent_encoded)?;
        if rendered.len() > MAX_URL_BYTES {
            return Err(UrlError::TooLong { bytes: rendered.len() });
        }
        let empty = |url: &str| -> Vec<bool> {
            let path = url[self.origin.len()..].split('?').next().unwrap_or_default();
            path.split('/').map(str::is_empty).collect()
        };
        // What a parser would read otherwise than it is written is a `.` or `..`.
        let plain = Url::parse(&rendered).is_ok_and(|parsed| parsed.as_str() == rendered);
        if !plain || empty(&rendered) != empty(&self.shape) {
            return Err(UrlError::Path);
        }
        debug_assert!(rendered.starts_with(&self.origin), "the origin is literal");
        Ok(rendered)
    }

    /// `https://host:port`.
    #[must_use]
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The host's name or address.
    #[must_use]
    pub(super) fn host(&self) -> String {
        let parsed = Url::parse(&self.shape).expect("checked when it was read");
        parsed.host_str().unwrap_or_default().to_owned()
    }

    /// Whether it is sent without TLS.
    #[must_use]
    pub(super) fn is_plain(&self) -> bool {
        self.origin.starts_with("http://")
    }

    /// Whether an argument of the caller stands in it: then its refusal may be about that alone.
    #[must_use]
    pub(super) fn holds_arguments(&self) -> bool {
        self.names().iter().any(|name| name == "args" || name.starts_with("args."))
    }

    /// The names that it uses.
    #[must_use]
    pub(super) fn names(&self) -> BTreeSet<String> {
        self.text.names()
    }

    /// Whether it ends in a literal `/`, so that a credential can follow.
    #[must_use]
    pub(super) fn is_open_path(&self) -> bool {
        self.shape.ends_with('/') && !self.shape.contains('?')
    }
}

/// Scheme and authority, which must be literal to the end.
fn origin_of(start: &str, whole: bool) -> Result<String, String> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| start.starts_with(scheme));
    let Some(scheme) = scheme else {
        return Err(
            "an address begins with https:// (or http:// in a private network), written out; \
                    values can stand behind the host only"
                .into(),
        );
    };
    let authority = &start[scheme.len()..];
    match authority.find(['/', '?', '#', '\\']) {
        Some(0) => Err("the address has no host; write https://host/path".into()),
        Some(end) => Ok(start[..scheme.len() + end].to_owned()),
        None if whole => Err("the address has no path; end it with at least `/`".into()),
        None => {
            Err("scheme, host and port are fixed: no value can stand in them; write them out, \
                     with a `/` behind them"
                .into())
        }
    }
}

/// Every byte but the unreserved ones of RFC 3986, section 2.3, as `%XX`.
pub(super) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::json::{JsonLimits, Value, parse};
    use proptest::prelude::*;

    fn scope_of(args: &Value) -> Scope<'_> {
        Scope::new(vec![("args", args)])
    }

    fn args(text: &str) -> Value {
        [("x".to_owned(), Value::from(text))]
            .into_iter()
            .collect::<counterfoil_core::json::Object>()
            .into()
    }

    #[test]
    fn addresses_that_leave_their_target_to_a_value_are_refused() {
        // Promise: where a request goes is the operator's word alone.
        let cases: &[(&str, &str)] = &[
            ("{{ args.x }}", "begins with https://"),
            ("ftp://a/", "begins with https://"),
            ("https://{{ args.x }}/", "fixed"),
            ("https://a.test{{ args.x }}/", "fixed"),
            ("https://a.test:{{ args.x }}/", "fixed"),
            ("https://a.test", "no path"),
            ("https:///x", "no host"),
            ("https://u:p@a.test/", "user or password"),
            ("https://a.test/#x", "`#`"),
            ("https://a.test/a/../b", "plain form; write `https://a.test/b`"),
            ("https://A.test/", "plain form"),
            ("https://a.test/a b", "percent-encode"),
            ("https://a.test/é", "percent-encode"),
            ("https://a.test/{% if x %}", "statement"),
            ("https://a.test/{{ args.x | nope }}", "no filter `nope`"),
        ];
        for (source, words) in cases {
            let error = UrlTemplate::parse(source).expect_err(source);
            assert!(error.contains(words), "{source}: {error}");
        }
    }

    #[test]
    fn a_value_never_adds_a_part() {
        // Promise: values are data in an address, whatever they hold.
        let template = UrlTemplate::parse("https://a.test/p/{{ args.x }}/q?k={{ args.x }}&l=1")
            .expect("a template");
        let cases: &[(&str, Result<&str, ()>)] = &[
            ("a b/c", Ok("https://a.test/p/a%20b%2Fc/q?k=a%20b%2Fc&l=1")),
            ("..", Err(())),
            (".", Err(())),
            ("", Err(())),
            ("../x", Ok("https://a.test/p/..%2Fx/q?k=..%2Fx&l=1")),
            ("%2e%2e", Ok("https://a.test/p/%252e%252e/q?k=%252e%252e&l=1")),
            (
                "é\r\n#&=",
                Ok("https://a.test/p/%C3%A9%0D%0A%23%26%3D/q?k=%C3%A9%0D%0A%23%26%3D&l=1"),
            ),
        ];
        for (value, expected) in cases {
            let args = args(value);
            let rendered = template.render(&scope_of(&args));
            assert_eq!(rendered.as_deref().map_err(|_| ()), *expected, "{value:?}");
        }
        let number = parse(br#"{"x":9007199254740993}"#, &JsonLimits::default()).expect("JSON");
        let rendered = template.render(&scope_of(&number)).expect("a number is text");
        assert!(rendered.contains("/9007199254740993/"), "{rendered}");
    }

    proptest! {
        #[test]
        fn no_text_changes_scheme_host_path_or_query(text in any::<String>()) {
            // Promise: as above, for texts that nobody thought of.
            let template = UrlTemplate::parse("https://a.test/p/{{ args.x }}/q?k={{ args.x }}&l=1")
                .expect("a template");
            let args = args(&text);
            if let Ok(rendered) = template.render(&scope_of(&args)) {
                let url = Url::parse(&rendered).expect("an address");
                prop_assert_eq!(url.origin().ascii_serialization(), "https://a.test");
                let segments: Vec<&str> = url.path_segments().expect("a path").collect();
                prop_assert_eq!(segments.len(), 3);
                prop_assert_eq!((segments[0], segments[2]), ("p", "q"));
                let pairs: Vec<_> = url.query_pairs().collect();
                prop_assert_eq!(pairs.len(), 2);
                prop_assert_eq!(&pairs[0].1, &text);
            }
        }
    }
}
