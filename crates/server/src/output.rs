//! The only place that writes to stdout and stderr: data on the one, everything else on the other.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Writes `text` and a line feed to stdout. A reader that has gone is no failure: it chose so.
///
/// # Errors
/// [`io::Error`] if the data could not be written, for example to a full disk.
pub fn data(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes `value` as indented JSON to stdout.
///
/// # Errors
/// As [`data`].
pub fn json(value: &impl Serialize) -> io::Result<()> {
    data(serde_json::to_string_pretty(value).map_err(io::Error::from)?)
}

/// Tells a person something on stderr, without characters that would steer the terminal. Where
/// nobody can hear it, nothing is lost.
pub fn note(text: impl Display) {
    raw_note(format_args!("{}", printable(&text.to_string())));
}

/// Asks a person something on stderr; the answer stands on the same line.
pub fn ask(question: impl Display) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{}", printable(&question.to_string()));
    let _ = stderr.flush();
}

fn raw_note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// The progress of a long command, on stderr: on a terminal one line that is written anew, elsewhere
/// nothing unless it was asked for.
#[derive(Debug)]
pub struct Progress {
    is_wanted: bool,
    is_terminal: bool,
}

impl Progress {
    /// `is_wanted` tells it where there is no terminal too, in lines.
    #[must_use]
    pub fn new(is_wanted: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { is_wanted: is_wanted || is_terminal, is_terminal }
    }

    /// Tells how far it is.
    pub fn tell(&mut self, text: impl Display) {
        if self.is_wanted {
            let (before, after) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
            let mut stderr = io::stderr().lock();
            let _ = write!(stderr, "{before}{}{after}", printable(&text.to_string()));
            let _ = stderr.flush();
        }
    }
}

impl Drop for Progress {
    /// Takes the line away.
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Tells why the command failed: one block on stderr, the causes below.
pub fn error(error: &anyhow::Error) {
    let word = if stderr_has_colour() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
    raw_note(format_args!("{word} {}", block(error)));
}

/// Whether stderr shows colours: a terminal that can, and nobody who said otherwise
/// (<https://no-color.org>).
#[must_use]
pub fn stderr_has_colour() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stderr().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|term| term != "dumb")
}

/// `text` without characters that would steer a terminal or deceive its reader; line feeds stay.
#[must_use]
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if steers(c) {
            shown.extend(c.escape_unicode())
        } else {
            shown.push(c)
        }
        shown
    })
}

/// The error and its causes. A cause that an error already tells in its own words is left out.
fn block(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str("\n  cause: ");
            text.push_str(&cause);
        }
    }
    // Continuation lines stand below the first word, so that the block is seen as one.
    printable(&text).replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_block_that_tells_each_cause_once() {
        // Promise: an error can be read and acted on as it stands.
        let inner = io::Error::other("no space left");
        let error = anyhow::Error::new(inner).context("the ledger cannot be written");
        assert_eq!(block(&error), "the ledger cannot be written\n    cause: no space left");
        let repeated = anyhow::anyhow!("a").context("b: a");
        assert_eq!(block(&repeated), "b: a");
        assert_eq!(block(&anyhow::anyhow!("one\ntwo")), "one\n  two");
    }

    #[test]
    fn stored_text_cannot_steer_the_terminal() {
        // Promise: text from a ledger is shown, never obeyed.
        assert_eq!(
            printable("a\x1b[31mb\r\u{202e}c\u{9b}\nd é"),
            "a\\u{1b}[31mb\\u{d}\\u{202e}c\\u{9b}\nd é"
        );
    }
}
