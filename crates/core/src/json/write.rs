//! Compact JSON text from values.

use super::Value;
use super::run::plain_run;

/// Appends `value` without white space. Recursive: a value is at most
/// [`DEPTH_CEILING`](super::DEPTH_CEILING) deep unless code built it deeper by hand.
pub(super) fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(number.literal()),
        Value::String(text) => write_string(out, text),
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, element);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (index, (key, member)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

/// Appends `text` as a JSON string by RFC 8785, section 3.2.2.2: short escapes where JSON has
/// them, lower-case `\u00xx` for the other control characters, everything else as it is.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    loop {
        // Only ASCII ends the run, so its ends are character boundaries.
        let plain = plain_run(rest.as_bytes());
        out.push_str(&rest[..plain]);
        let Some(special) = rest.as_bytes().get(plain) else { break };
        write_escape(out, *special);
        rest = &rest[plain + 1..];
    }
    out.push('"');
}

fn write_escape(out: &mut String, special: u8) {
    match special {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        0x08 => out.push_str("\\b"),
        0x09 => out.push_str("\\t"),
        0x0a => out.push_str("\\n"),
        0x0c => out.push_str("\\f"),
        0x0d => out.push_str("\\r"),
        control => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.push_str("\\u00");
            out.push(char::from(HEX[usize::from(control >> 4)]));
            out.push(char::from(HEX[usize::from(control & 0xf)]));
        }
    }
}
