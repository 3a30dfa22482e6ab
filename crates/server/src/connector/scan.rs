//! Finds the expressions in a template's text, quotes and all.

/// A part of a template's text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Text as it is.
    Literal(&'a str),
    /// What stands between `{{` and `}}`.
    Expr(&'a str),
}

/// The parts of `source`, in order.
///
/// # Errors
/// [`String`] with the rule and the remedy, for a statement, a comment or an open expression.
pub(super) fn pieces(source: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        let pair = from.get(..2).unwrap_or_default();
        if pair == "{%" || pair == "{#" {
            return Err(format!(
                "`{pair}` begins a statement or a comment, and templates have neither: write \
                 `{{{{ expression }}}}`, for example `{{{{ \"yes\" if args.x else \"no\" }}}}`"
            ));
        }
        if pair != "{{" {
            let next = rest[at + 1..].find(['{', '}']).map_or(rest.len(), |next| at + 1 + next);
            found.push(Piece::Literal(&rest[..next]));
            rest = &rest[next..];
            continue;
        }
        if !before.is_empty() {
            found.push(Piece::Literal(before));
        }
        let length = expression_length(&from[2..])
            .ok_or("an expression is not closed; end it with `}}`, and close its quotes")?;
        let expression = &from[2..2 + length];
        if expression.starts_with('-') || expression.ends_with('-') {
            return Err(
                "`{{-` and `-}}` are not supported; write the white space that you want".into()
            );
        }
        if expression.trim().is_empty() {
            return Err("`{{ }}` is empty; name a value, for example `{{ args.title }}`".into());
        }
        found.push(Piece::Expr(expression));
        rest = &from[2 + length + 2..];
    }
    if !rest.is_empty() {
        found.push(Piece::Literal(rest));
    }
    Ok(found)
}

/// Bytes until the `}}` that ends the expression: not one in quotes, nor of a map in braces.
fn expression_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut open = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(mark), byte) if byte == mark => quote = None,
            (None, mark @ (b'"' | b'\'')) => quote = Some(mark),
            (None, b'{') => open += 1,
            (None, b'}') if open > 0 => open -= 1,
            (None, b'}') if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The first filter's name in an expression, and what follows it.
pub(super) fn next_filter(expression: &str) -> Option<(&str, &str)> {
    let bytes = expression.as_bytes();
    let mut quote = None;
    let mut at = 0;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(mark), byte) if byte == mark => quote = None,
            (None, mark @ (b'"' | b'\'')) => quote = Some(mark),
            (None, b'|') => {
                let after = expression[at + 1..].trim_start();
                let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = after.find(|c| !of_name(c)).unwrap_or(after.len());
                return Some((&after[..end], &after[end..]));
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The names behind each `is` and `is not` outside quotes.
pub(super) fn tests_of(expression: &str) -> Vec<&str> {
    let mut quote = None;
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    // In quotes nothing is a word: blanks of the same length keep the places.
    let bare: String = expression
        .chars()
        .map(|c| match quote {
            Some(mark) => {
                quote = (c != mark).then_some(mark);
                ' '
            }
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                ' '
            }
            None if c.is_ascii() => c,
            None => ' ',
        })
        .collect();
    let words: Vec<&str> = bare.split(|c| !of_name(c)).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "is") {
        let behind = if words.get(at + 1) == Some(&"not") { at + 2 } else { at + 1 };
        let known = words.get(behind).and_then(|word| {
            expression
                .match_indices(word)
                .next()
                .map(|(from, _)| &expression[from..from + word.len()])
        });
        found.extend(known);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_found_past_quotes_and_braces() {
        // Promise: what is literal and what is computed is never a matter of guessing.
        use Piece::{Expr, Literal};
        let cases: &[(&str, &[Piece<'_>])] = &[
            ("", &[]),
            ("plain { } text", &[Literal("plain { "), Literal("} text")]),
            ("a{{ b }}c", &[Literal("a"), Expr(" b "), Literal("c")]),
            ("{{ \"}}\" }}", &[Expr(" \"}}\" ")]),
            ("{{ '\\'}}' }}{{x}}", &[Expr(" '\\'}}' "), Expr("x")]),
            ("{{ {\"a\": 1} }}", &[Expr(" {\"a\": 1} ")]),
        ];
        for (source, expected) in cases {
            assert_eq!(&pieces(source).expect(source)[..], *expected, "{source}");
        }
        for bad in ["{% for x in y %}", "{# note #}", "{{ a", "{{ \"a }}", "{{- a }}", "{{ }}"] {
            assert!(pieces(bad).is_err(), "{bad}");
        }
        assert_eq!(next_filter("args.x | lower | y"), Some(("lower", " | y")));
        assert_eq!(next_filter("\"|\" ~ x"), None);
        assert_eq!(tests_of("a is defined and b is not none or \"x is y\""), ["defined", "none"]);
    }
}
