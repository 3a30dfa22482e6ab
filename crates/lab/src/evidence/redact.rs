//! Takes secrets out of what a cell leaves behind. In the place of each stands a marker that says
//! that one was there, and which of the cell's secrets it was: equal secrets have equal markers.

use serde_json::Value;

/// What every marker begins with.
const OPENING: &str = "[redacted ";
/// What bearer tokens begin with.
const TOKEN: &str = counterfoil::tokens::PREFIX;
/// Shorter words that begin like a token are words.
const TOKEN_CHARS: usize = 20;

/// The secrets of one cell.
#[derive(Debug, Default)]
pub struct Redactor {
    states: Vec<String>,
}

impl Redactor {
    /// Notes the sealed states of a message, sent or received.
    pub fn learn(&mut self, message: &Value) {
        match message {
            Value::Object(members) => {
                for (name, value) in members {
                    match value {
                        Value::String(state) if name == "requestState" => self.note(state),
                        other => self.learn(other),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| self.learn(value)),
            _ => {}
        }
    }

    fn note(&mut self, state: &str) {
        if !state.is_empty() && !self.states.iter().any(|known| known == state) {
            self.states.push(state.to_owned());
        }
    }

    /// The text with markers. States must have been learnt before.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut order: Vec<usize> = (0..self.states.len()).collect();
        // A tampered state may hold another one whole.
        order.sort_by_key(|index| std::cmp::Reverse(self.states[*index].len()));
        let mut text = text.to_owned();
        for index in order {
            let marker = format!("{OPENING}state {}]", index + 1);
            text = text.replace(&self.states[index], &marker);
        }
        without_tokens(&text)
    }
}

/// Whether a text is a marker of a state.
#[must_use]
pub(super) fn is_state_marker(text: &str) -> bool {
    let number = text.strip_prefix(OPENING).and_then(|rest| rest.strip_prefix("state "));
    let number = number.and_then(|rest| rest.strip_suffix(']'));
    number.is_some_and(|digits| digits.parse::<u32>().is_ok())
}

/// Whether a bearer token is in these bytes.
#[must_use]
pub(super) fn has_token(bytes: &[u8]) -> bool {
    let starts = bytes.windows(TOKEN.len()).enumerate();
    let mut starts = starts.filter(|(_, window)| *window == TOKEN.as_bytes());
    starts.any(|(at, _)| token_len(&bytes[at..]) >= TOKEN_CHARS)
}

fn token_len(bytes: &[u8]) -> usize {
    let of_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    bytes.iter().take_while(|byte| of_token(byte)).count()
}

fn without_tokens(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(TOKEN) {
        let length = token_len(&rest.as_bytes()[at..]);
        clean.push_str(&rest[..at]);
        if length >= TOKEN_CHARS {
            clean.push_str(OPENING);
            clean.push_str("token]");
        } else {
            clean.push_str(&rest[at..at + length]);
        }
        rest = &rest[at + length..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_become_markers_that_keep_which_is_which() {
        // Promise: no sealed state and no token is in a bundle; equal ones can still be told equal.
        let mut redactor = Redactor::default();
        redactor.learn(&json!({ "result": { "requestState": "cf1.abc" } }));
        redactor.learn(&json!({ "params": [{ "requestState": "cf1.abcA" }] }));
        redactor.learn(&json!({ "requestState": "cf1.abc" }));
        let token = format!("{TOKEN}{}", "x".repeat(40));
        let text = format!("cf1.abc cf1.abcA cf1.abc Bearer {token}; {TOKEN}short");
        let clean = redactor.redact(&text);
        let expected = "[redacted state 1] [redacted state 2] [redacted state 1] Bearer \
                        [redacted token]; ";
        assert_eq!(clean, format!("{expected}{TOKEN}short"));
        assert!(has_token(text.as_bytes()) && !has_token(clean.as_bytes()));
        assert!(is_state_marker("[redacted state 12]") && !is_state_marker("cf1.abc"));
    }
}
