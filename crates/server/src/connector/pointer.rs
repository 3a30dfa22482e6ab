//! JSON pointers (RFC 6901) into a target's answer.

use counterfoil_core::json::Value;

/// A target's ID for what it made is at most this long, in bytes.
pub const MAX_EXTERNAL_ID_BYTES: usize = 256;

/// Where in a JSON value something stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
}

impl Pointer {
    /// Reads a pointer; the empty text is the whole value.
    ///
    /// # Errors
    /// [`String`] with the rule and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = || {
            Err("that is no JSON pointer (RFC 6901); write such as \"/data/id\", `~1` for a `/` and \
                 `~0` for a `~` in a name, and \"\" for the whole answer"
                .to_owned())
        };
        if text.is_empty() {
            return Ok(Self { text: String::new(), steps: Vec::new() });
        }
        let Some(steps) = text.strip_prefix('/') else { return refuse() };
        let bad_escape = |step: &str| {
            step.match_indices('~')
                .any(|(at, _)| !matches!(step.as_bytes().get(at + 1), Some(b'0' | b'1')))
        };
        let steps: Vec<&str> = steps.split('/').collect();
        if steps.iter().any(|step| bad_escape(step)) {
            return refuse();
        }
        let steps = steps.iter().map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Self { text: text.to_owned(), steps })
    }

    /// What stands there.
    #[must_use]
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.steps.iter().try_fold(value, |value, step| match value {
            Value::Object(object) => object.get(step),
            Value::Array(elements) => {
                let digits = step.bytes().all(|b| b.is_ascii_digit());
                let canonical = digits && (step == "0" || !step.starts_with('0'));
                let index: usize = canonical.then(|| step.parse().ok()).flatten()?;
                elements.get(index)
            }
            _ => None,
        })
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// An external ID: a text or an integer. `None` for anything else: missing, null, empty, a fraction,
/// over 256 bytes, with a control character.
#[must_use]
pub fn external_id(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.as_i64().is_some() || number.as_u64().is_some() => {
            number.as_i64().map_or_else(
                || number.as_u64().unwrap_or_default().to_string(),
                |number| number.to_string(),
            )
        }
        _ => return None,
    };
    let good = !text.trim().is_empty()
        && text.len() <= MAX_EXTERNAL_ID_BYTES
        && !text.chars().any(char::is_control);
    good.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use counterfoil_core::json::{JsonLimits, parse};

    #[test]
    fn pointers_find_what_the_rfc_says() {
        // Promise: the examples of RFC 6901, section 5, and what is no pointer.
        let text = br#"{"foo":["bar","baz"],"":0,"a/b":1,"m~n":8," ":7}"#;
        let value = parse(text, &JsonLimits::default()).expect("JSON");
        for (pointer, found) in [
            ("/foo/0", Some("\"bar\"")),
            ("/", Some("0")),
            ("/a~1b", Some("1")),
            ("/m~0n", Some("8")),
            ("/ ", Some("7")),
            ("/foo/2", None),
            ("/foo/00", None),
            ("/foo/-", None),
            ("/foo/+1", None),
            ("/foo/bar", None),
            ("/a~1b/c", None),
        ] {
            let pointer = Pointer::parse(pointer).expect(pointer);
            assert_eq!(pointer.find(&value).map(Value::to_json).as_deref(), found, "{pointer:?}");
        }
        assert_eq!(Pointer::parse("").expect("whole").find(&value), Some(&value));
        for bad in ["foo", "/a~", "/a~2", "#/a"] {
            assert!(Pointer::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_external_id_is_text_or_an_integer() {
        // Promise: an answer without a usable ID is never taken for the promised one.
        for (json, expected) in [
            ("\"T-1\"", Some("T-1")),
            ("17", Some("17")),
            ("1e2", Some("100")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("null", None),
            ("\"\"", None),
            ("\" \"", None),
            ("1.5", None),
            ("true", None),
            ("[1]", None),
            ("\"a\\nb\"", None),
        ] {
            let value = parse(json.as_bytes(), &JsonLimits::default()).expect(json);
            assert_eq!(external_id(Some(&value)).as_deref(), expected, "{json}");
        }
        assert_eq!(external_id(None), None);
    }
}
