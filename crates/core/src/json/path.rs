//! Where in a document a fault lies, as short text: `$.items[3].name`.

use std::fmt::Write;

/// Longest piece of a key that is shown, in bytes.
const MAX_KEY_BYTES: usize = 32;
/// Steps shown at each end of a path; what lies between becomes one `…`.
const MAX_STEPS_PER_END: usize = 8;

/// The way from a fault out to the document's root, collected while the reader unwinds, so that
/// reading good input costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// Rendered steps, the innermost first.
    steps: Vec<String>,
}

impl Trail {
    pub(crate) fn within_key(&mut self, key: &str) {
        self.steps.push(key_step(key));
    }

    pub(crate) fn within_index(&mut self, index: usize) {
        self.steps.push(format!("[{index}]"));
    }

    /// The path from the root `$`. At most 1 KiB: 16 steps of at most 60 bytes.
    pub(crate) fn render(&self) -> String {
        let mut text = String::from("$");
        let last = self.steps.len();
        for (nth, step) in self.steps.iter().rev().enumerate() {
            let hidden = MAX_STEPS_PER_END..last.saturating_sub(MAX_STEPS_PER_END);
            if !hidden.contains(&nth) {
                text.push_str(step);
            } else if nth == hidden.start {
                text.push('…');
            }
        }
        text
    }
}

fn key_step(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.len() <= MAX_KEY_BYTES && key.chars().all(plain) {
        return format!(".{key}");
    }
    let mut shown = String::new();
    for c in key.chars() {
        let before = shown.len();
        // Control characters, quotes and invisible characters are escaped, as the text may go to a
        // terminal.
        write!(shown, "{}", c.escape_debug()).expect("a String takes all text");
        if shown.len() > MAX_KEY_BYTES {
            shown.truncate(before);
            shown.push('…');
            break;
        }
    }
    format!("[\"{shown}\"]")
}
