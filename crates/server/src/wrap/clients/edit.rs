//! Wraps and unwraps one entry of a client's settings, in the form in which it is written.

use super::{Started, Wrapping};
use crate::wrap::raw::{Edits, Span};

impl Started {
    /// Whether it starts `counterfoil wrap ... -- COMMAND`.
    pub(super) fn is_wrapped(&self) -> bool {
        self.is_ours_with("wrap")
            && self.separator().is_some_and(|at| at + 1 < self.words.len() - 1)
    }

    /// Whether it starts a server of ours: one that guards itself, or a wrap with its command missing.
    pub(super) fn is_ours(&self) -> bool {
        ["serve", "wrap", "demo"].iter().any(|name| self.is_ours_with(name))
    }

    fn is_ours_with(&self, command: &str) -> bool {
        let program = self.words[0].rsplit(['/', '\\']).next().unwrap_or_default();
        let program = program.strip_suffix(".exe").unwrap_or(program);
        program == "counterfoil" && self.words.get(1).is_some_and(|it| it == command)
    }

    /// Puts ours in the place of the command, and the command among the arguments.
    pub(super) fn wrap(
        &self,
        text: &[u8],
        arguments: &[String],
        wrapping: &Wrapping,
        edits: &mut Edits,
    ) {
        let old_command = String::from_utf8_lossy(&text[self.command.clone()]).into_owned();
        edits.replace(self.command.clone(), quoted(&wrapping.command));
        let mut words: Vec<String> = arguments.iter().map(|it| quoted(it)).collect();
        words.push(old_command);
        match &self.args {
            Some((_, elements)) if !elements.is_empty() => {
                let first = elements[0].start;
                let gap = self.gap(text);
                let before: String = words.iter().map(|word| format!("{word},{gap}")).collect();
                edits.replace(first..first, before);
            }
            Some((span, _)) => edits.replace(span.start + 1..span.start + 1, words.join(", ")),
            None => {
                let end = self.member.value.end;
                let indent = indent_before(text, self.member.key.start);
                edits.replace(end..end, format!(",{indent}\"args\": [{}]", words.join(", ")));
            }
        }
    }

    /// Puts the command back, and takes ours away.
    pub(super) fn unwrap(&self, text: &[u8], edits: &mut Edits) {
        let (Some((_, elements)), Some(at)) = (&self.args, self.separator()) else { return };
        let Some(command) = elements.get(at + 1) else { return };
        edits.replace(self.command.clone(), text[command.clone()].to_vec());
        let end = elements.get(at + 2).map_or(command.end, |next| next.start);
        edits.replace(elements[0].start..end, "");
    }

    /// Which argument is `--`.
    fn separator(&self) -> Option<usize> {
        self.words[1..].iter().position(|it| it == "--")
    }

    /// What stands between two arguments: a line end with blanks where each has a line of its own.
    fn gap(&self, text: &[u8]) -> String {
        let Some((span, elements)) = &self.args else { return " ".into() };
        let before_first: Span = span.start + 1..elements[0].start;
        match elements.get(1) {
            // What stands behind the first comma, if it is blank.
            Some(second) => {
                let between = &text[elements[0].end..second.start];
                let after = between.iter().position(|b| *b == b',').map(|at| &between[at + 1..]);
                blank(after.unwrap_or(b" "))
            }
            None if text[before_first.clone()].contains(&b'\n') => blank(&text[before_first]),
            None => " ".into(),
        }
    }
}

/// A gap as it is, if it is blank; a comment in it belongs to one argument alone.
fn blank(gap: &[u8]) -> String {
    match std::str::from_utf8(gap) {
        Ok(text) if text.trim().is_empty() => text.to_owned(),
        Ok(text) => text.rfind('\n').map_or(" ".into(), |at| text[at..].to_owned()),
        Err(_) => " ".into(),
    }
}

/// The line end and blanks before a member; one blank where it stands behind others on its line.
fn indent_before(text: &[u8], at: usize) -> String {
    let line = text[..at].iter().rposition(|b| *b == b'\n');
    match line.map(|line| &text[line..at]) {
        Some(indent) if indent.iter().all(u8::is_ascii_whitespace) => {
            String::from_utf8_lossy(indent).into_owned()
        }
        _ => " ".into(),
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}
