//! The `Link` header (RFC 8288, section 3). A link that is missed would make a search look complete,
//! so what cannot be read whole is not read at all.

/// One link: its target, and what it is to this page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link<'a> {
    /// As it stands between the angle brackets.
    pub(super) target: &'a str,
    relation: Option<String>,
}

impl Link<'_> {
    /// Whether `next` is among its relations.
    pub(super) fn is_next(&self) -> bool {
        let relations = self.relation.as_deref().unwrap_or_default();
        relations.split_ascii_whitespace().any(|it| it.eq_ignore_ascii_case("next"))
    }
}

/// Every link of one field value; `None` if it breaks the grammar.
pub(super) fn read(value: &str) -> Option<Vec<Link<'_>>> {
    let mut links = Vec::new();
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return Some(links);
        }
        let (target, mut after) = rest.strip_prefix('<')?.split_once('>')?;
        let mut relation = None;
        loop {
            after = blank(after);
            if after.is_empty() || after.starts_with(',') {
                break;
            }
            after = blank(after.strip_prefix(';')?);
            if after.is_empty() || after.starts_with([',', ';']) {
                continue;
            }
            let (name, value, behind) = parameter(after)?;
            after = behind;
            // The first one counts.
            if name.eq_ignore_ascii_case("rel") && relation.is_none() {
                relation = Some(value);
            }
        }
        links.push(Link { target, relation });
        rest = after;
    }
}

/// A parameter's name and value, and what stands behind it.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = token(text);
    if name.is_empty() {
        return None;
    }
    let Some(rest) = blank(rest).strip_prefix('=') else {
        return Some((name, String::new(), rest));
    };
    let rest = blank(rest);
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, rest) = token(rest);
        return Some((name, value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name, value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

fn token(text: &str) -> (&str, &str) {
    text.split_at(text.find([' ', '\t', ',', ';', '=', '"']).unwrap_or(text.len()))
}

fn blank(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}
