//! How a call that only reads is reported: its result on stdout, and no word of any effect.

use std::io::{self, Write};

use counterfoil_client::{ReadFailed, ToolReply};
use serde_json::{Value, json};

use super::{Exit, Failure};

/// Prints a result. An error of the tool's own goes to stderr.
///
/// # Errors
/// If stdout or stderr cannot be written.
pub(super) fn print(
    reply: &ToolReply,
    json: bool,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<Exit> {
    let ToolReply { value, is_error, .. } = reply;
    let text = match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other)?,
    };
    if json {
        writeln!(out, "{}", json!({"read": true, "isError": is_error, "result": value}))?;
    } else if *is_error {
        writeln!(err, "error: the tool answered with an error: {text}")?;
    } else {
        writeln!(out, "{text}")?;
    }
    Ok(if *is_error { Exit::Failed } else { Exit::Done })
}

pub(super) fn failure(error: ReadFailed) -> Failure {
    match error {
        ReadFailed::NotSent(error) => error.into(),
        ReadFailed::NotARead(_) => Failure {
            exit: Exit::Usage,
            words: format!("{error}: --read, or --operation-id ID; nothing was sent"),
        },
        ReadFailed::WantsInput => Failure { exit: Exit::Usage, words: error.to_string() },
        ReadFailed::Refused(_) => Failure { exit: Exit::Failed, words: error.to_string() },
        ReadFailed::NoReply(_) | ReadFailed::TimedOut => {
            let words = format!("{error}; it was called as a read, so it may be called again");
            Failure { exit: Exit::Failed, words }
        }
    }
}
