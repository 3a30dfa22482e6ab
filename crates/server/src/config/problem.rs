//! Mistakes in the settings, as people read them: place, value, rule, remedy, and no secret.

use std::fmt;

use super::given::{Key, Place};

/// Every mistake in the settings, one a line.
#[derive(Debug)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }

    /// How many mistakes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len()
    }

    /// Each mistake in one line, in the order of the sources.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(ToString::to_string)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => write!(f, "a setting cannot be used")?,
            count => write!(f, "{count} settings cannot be used")?,
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

impl std::error::Error for ConfigError {}

/// One mistake.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) place: Place,
    /// `key = value`, or what stands in its place.
    subject: String,
    /// The rule and the remedy.
    words: String,
}

impl Problem {
    pub(super) fn new(place: Place, subject: String, words: String) -> Self {
        Self { place, subject, words }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { path, line: 0, .. } => write!(f, "{}", path.display())?,
            Place::File { path, line, column } => {
                write!(f, "{}:{line}:{column}", path.display())?;
            }
            Place::Environment(_) => write!(f, "environment")?,
            Place::CommandLine(_) => write!(f, "command line")?,
        }
        if !self.subject.is_empty() {
            write!(f, ": {}", self.subject)?;
        }
        write!(f, ": {}", self.words)
    }
}

/// What an error may show of a value: one short line without secrets.
pub(super) fn hide_secrets(name: &str, shown: &str) -> String {
    const HIDDEN: &str = "(hidden)";
    const LONGEST_CHARS: usize = 60;
    if (sounds_secret(name) && !is_number(shown)) || looks_like_key(shown) {
        return HIDDEN.to_owned();
    }
    let line = shown.lines().next().unwrap_or_default();
    let mut text: String = line.chars().take(LONGEST_CHARS).collect();
    if text.len() < shown.len() {
        text.push('…');
    }
    match (text.find("://"), shown.contains('@')) {
        (Some(at), true) => format!("{}://{HIDDEN}", &text[..at]),
        _ => text,
    }
}

/// An integer or a fraction, in quotes or not, too short for a secret.
fn is_number(shown: &str) -> bool {
    const LONGEST_CHARS: usize = 20;
    let number = shown.trim_matches('"').trim_start_matches(['-', '+']);
    let of_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'_' | b'.');
    number.len() <= LONGEST_CHARS && number.bytes().all(of_number)
}

/// The key of `known` that differs from `name` in the fewest letters, if at most `limit`.
pub(super) fn nearest(
    name: &str,
    known: impl Iterator<Item = String>,
    limit: usize,
) -> Option<String> {
    let near = known.map(|known| (distance(name, &known), known)).min();
    near.filter(|(letters, _)| *letters <= limit).map(|(_, known)| known)
}

/// The known key that was probably meant by `name`, in whatever table it stood.
pub(super) fn probably_meant(name: &str) -> Option<Key> {
    let leaf = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let limit = 2.max(name.len() / 4);
    let whole = nearest(name, Key::ALL.iter().map(|key| key.name().to_owned()), limit);
    let by_name = |found: String| Key::ALL.into_iter().find(|key| key.name() == found);
    let by_leaf = || {
        let leaves = Key::ALL.iter().map(|key| leaf(key.name()));
        let found = nearest(&leaf(name), leaves, 1)?;
        Key::ALL.into_iter().find(|key| leaf(key.name()) == found)
    };
    let longer = || Key::ALL.into_iter().find(|key| name.len() > 3 && key.name().starts_with(name));
    whole.and_then(by_name).or_else(by_leaf).or_else(longer)
}

/// The least number of letters to add, drop, change or swap with a neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = usize::from(a[i - 1] != b[j - 1]);
            let mut least =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

fn sounds_secret(name: &str) -> bool {
    const WORDS: &[&str] =
        &["secret", "token", "passw", "credential", "authorization", "private", "key"];
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// 32 or more letters and digits in a row, as in a key or a token.
fn looks_like_key(shown: &str) -> bool {
    let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '=' | '_');
    shown
        .split(|c| !of_key(c))
        .any(|run| run.len() >= 32 && run.bytes().any(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_no_secret_and_no_flood() {
        // Promise: a key, a token or a password put in the wrong place does not reach the logs.
        let hex = format!("\"{}\"", "0123456789abcdef".repeat(4));
        let long = format!("\"{}\"", "long words ".repeat(20));
        let cases: &[(&str, &str, &str)] = &[
            ("store", "\"postgres\"", "\"postgres\""),
            ("store", "\"postgres://u:hunter2@db/x\"", "\"postgres://(hidden)"),
            ("api_key", "\"hunter2\"", "(hidden)"),
            ("db_password", "\"hunter2\"", "(hidden)"),
            ("keys.active", "\"1\"", "\"1\""),
            ("keys.active", "12", "12"),
            ("keys.active", "-1", "-1"),
            ("keys.active", "1.5", "1.5"),
            ("keys.active", "99_999_999_999", "99_999_999_999"),
            ("api_key", "\"123456789012345678901\"", "(hidden)"),
            ("keys.active", "\"hunter2\"", "(hidden)"),
            ("principal", &hex, "(hidden)"),
            ("principal", "\"two\nlines\"", "\"two…"),
            (
                "filesystem_override",
                "\"only-this-host-open-this-ledger\"",
                "\"only-this-host-open-this-ledger\"",
            ),
        ];
        for (name, shown, expected) in cases {
            assert_eq!(hide_secrets(name, shown), *expected, "{name}");
        }
        assert_eq!(hide_secrets("principal", &long).chars().count(), 61);
    }

    #[test]
    fn a_misspelt_key_finds_the_one_that_was_meant() {
        // Promise: an unknown key is named with the nearest known one.
        let cases: &[(&str, Option<&str>)] = &[
            ("lock_wiat", Some("lock_wait")),
            ("lock-wait", Some("lock_wait")),
            ("backend", Some("backend_id")),
            ("backendid", Some("backend_id")),
            ("lifetime.state", Some("lifetimes.state")),
            ("retention", Some("lifetimes.retention")),
            ("keys.actve", Some("keys.active")),
            ("colour", None),
            ("x", None),
        ];
        for (name, expected) in cases {
            assert_eq!(probably_meant(name).map(Key::name), *expected, "{name}");
        }
    }
}
