//! Tells on stderr what happens, so that a person sees the reply vanish and the record answer.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

/// The teller. Colours only on a terminal, and not with `NO_COLOR`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    quiet: bool,
    colour: bool,
}

impl Account {
    pub(super) fn new(quiet: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { quiet, colour: std::io::stderr().is_terminal() && !plain }
    }

    pub(super) fn intro(self, title: &str, directory: &Path) {
        self.line("", title);
        self.line(
            "",
            &format!("Raw transcripts and the ledger are kept in {}", directory.display()),
        );
    }

    pub(super) fn step(self, number: u8, text: &str) {
        self.line("", "");
        self.line("1", &format!("{number}. {text}"));
    }

    pub(super) fn fact(self, text: &str) {
        self.line("", &format!("   {text}"));
    }

    pub(super) fn loss(self, text: &str) {
        self.line("31", &format!("   ✗ {text}"));
    }

    pub(super) fn answer(self, text: &str) {
        self.line("32", &format!("   ✓ {text}"));
    }

    pub(super) fn outro(self, text: &str) {
        self.line("", "");
        self.line("1", text);
    }

    fn line(self, colour: &str, text: &str) {
        if self.quiet {
            return;
        }
        // A closed stderr must not stop the demo.
        let _ = if self.colour && !colour.is_empty() {
            writeln!(std::io::stderr(), "\x1b[{colour}m{text}\x1b[0m")
        } else {
            writeln!(std::io::stderr(), "{text}")
        };
    }
}
