//! A lookup: the frozen read-only search, page by page, and what it proves. Only a search that saw
//! every page can say that there is nothing.

use std::collections::BTreeSet;
use std::time::Instant;

use counterfoil_core::delivery::{ErrorClass, LookupEnd};
use counterfoil_core::json::Value;
use counterfoil_core::time::Timestamp;
use http::HeaderMap;

use super::rules::{Compare, LookupRules, Matching, Pages};
use super::target::{HttpTarget, body_of, is_of_origin, is_rate_limited, pause_asked_for};
use super::{FrozenCall, FrozenLookup, FrozenRequest, Pointer, link};
use crate::outbound::{Answer, Fetched};

impl HttpTarget {
    /// Searches for the effect of a stored request.
    pub(super) async fn search(
        &self,
        stored: &[u8],
        begun_at: Timestamp,
        deadline: Instant,
    ) -> LookupEnd {
        let Ok(frozen) = FrozenRequest::decode(stored) else {
            return open("the stored request cannot be read");
        };
        let (Some(lookup), Some(rules)) = (&frozen.lookup, &self.connector.lookup) else {
            return open("the connector declares no lookup for this request");
        };
        if !is_of_origin(&lookup.request.url, self.connector.origin()) {
            return open("the stored search goes to another origin than the connector's");
        }
        // What another account does not see is not absent.
        let account = self.connector.credential.as_ref().map(|credential| &*credential.account);
        if frozen.account.as_deref() != account {
            return open("the connector's account is another than the one that sent the request");
        }
        // What is no match now may have been one then, and the other way round.
        if lookup.matching != rules.matching.frozen() {
            return open(
                "the connector's lookup takes other answers for matches than at acceptance",
            );
        }
        let needs_credential = frozen.account.is_some();
        match &rules.matching {
            Matching::Status { found, absent, own } => {
                let answer = match self.page(&lookup.request, needs_credential, deadline).await {
                    Ok(answer) => answer,
                    Err(end) => return end,
                };
                let status = answer.status.as_u16();
                let (text, json) = body_of(&answer);
                if absent.contains(&status) {
                    // So may a proxy answer, which knows nothing of the effect.
                    return if own.fits(&answer.headers, json.as_ref(), &text) {
                        LookupEnd::Absent { begun_at }
                    } else {
                        not_told(&answer)
                    };
                }
                if !found.contains(&status) {
                    return not_told(&answer);
                }
                self.one(rules, json.as_ref())
            }
            Matching::Items { items, field, compare, pages } => {
                let wanted = Wanted { items, field, compare: *compare, expected: &lookup.expected };
                self.through_pages(rules, lookup, &wanted, pages, (needs_credential, deadline))
                    .await
                    .map_or_else(|end| end, |matches| self.settle(rules, &matches, begun_at))
            }
        }
    }

    /// Every match of every page.
    async fn through_pages(
        &self,
        rules: &LookupRules,
        lookup: &FrozenLookup,
        wanted: &Wanted<'_>,
        pages: &Pages,
        (needs_credential, deadline): (bool, Instant),
    ) -> Result<Vec<Value>, LookupEnd> {
        let mut call = lookup.request.clone();
        let mut matches = Vec::new();
        let mut ids = BTreeSet::new();
        let most = match pages {
            Pages::Complete => 1,
            Pages::NextAt { max_pages, .. } | Pages::LinkHeader { max_pages } => *max_pages,
        };
        for _ in 0..most {
            let answer = self.page(&call, needs_credential, deadline).await?;
            if answer.status != http::StatusCode::OK {
                return Err(not_told(&answer));
            }
            let (_, Some(json)) = body_of(&answer) else {
                return Err(open("the search's answer is no JSON"));
            };
            for item in wanted.in_page(&json)? {
                // A list that grows between two pages shows an element on both.
                let evidence = rules.evidence(self.connector.name.as_str(), Some(item));
                let id = evidence.and_then(|evidence| evidence.external_id);
                if id.is_none_or(|id| ids.insert(id)) {
                    matches.push(item.clone());
                }
            }
            let next = match pages {
                Pages::Complete => None,
                Pages::NextAt { next, .. } => next_at(next, &json)?,
                Pages::LinkHeader { .. } => next_link(&answer.headers)?,
            };
            let Some(next) = next else { return Ok(matches) };
            call = self.next_call(&call, &next)?;
        }
        Err(open("the search has more pages than the connector allows"))
    }

    fn settle(&self, rules: &LookupRules, matches: &[Value], begun_at: Timestamp) -> LookupEnd {
        match matches {
            [] => LookupEnd::Absent { begun_at },
            [one] => self.one(rules, Some(one)),
            _ => LookupEnd::Many,
        }
    }

    fn one(&self, rules: &LookupRules, item: Option<&Value>) -> LookupEnd {
        match rules.evidence(self.connector.name.as_str(), item) {
            Some(it) => LookupEnd::Found { external_id: it.external_id, result: it.result },
            None => open("there is a match, and its ID cannot be read"),
        }
    }

    async fn page(
        &self,
        call: &FrozenCall,
        needs_credential: bool,
        deadline: Instant,
    ) -> Result<Answer, LookupEnd> {
        let request = self.with_credential(call, needs_credential).map_err(|_| {
            open("the search cannot be sent: its credential or address is unusable")
        })?;
        match self.client.fetch_read_only(request, deadline).await {
            Fetched::Answer(answer) => Ok(answer),
            Fetched::NotSent { words, .. } | Fetched::Lost { words } => {
                Err(LookupEnd::Open { words, retry_after: None })
            }
        }
    }

    /// The same call at the next page's address, which must be of the same origin: the credential
    /// goes with it.
    fn next_call(&self, call: &FrozenCall, next: &str) -> Result<FrozenCall, LookupEnd> {
        let origin = self.connector.origin();
        let url = if next.starts_with('/') && !next.starts_with("//") {
            format!("{origin}{next}")
        } else {
            next.to_owned()
        };
        if !is_of_origin(&url, origin) {
            return Err(open("the next page is of another origin"));
        }
        Ok(FrozenCall { url, ..call.clone() })
    }
}

/// What is looked for in a page.
struct Wanted<'a> {
    items: &'a Pointer,
    field: &'a Pointer,
    compare: Compare,
    expected: &'a str,
}

impl Wanted<'_> {
    /// The matches in a page. An element whose field is missing, or is no text, could be one: only
    /// null says that there is no text.
    fn in_page<'v>(&self, page: &'v Value) -> Result<Vec<&'v Value>, LookupEnd> {
        let all = self.items.find(page).and_then(Value::as_array);
        let all = all.ok_or_else(|| open("the answer has no list"))?;
        let mut matches = Vec::new();
        for item in all {
            match self.field.find(item) {
                Some(Value::String(field)) if self.compare.fits(field, self.expected) => {
                    matches.push(item);
                }
                Some(Value::String(_) | Value::Null) => {}
                _ => return Err(open("an element of the list lacks the text that is compared")),
            }
        }
        Ok(matches)
    }
}

fn next_at(place: &Pointer, page: &Value) -> Result<Option<String>, LookupEnd> {
    match place.find(page) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(next)) if next.is_empty() => Ok(None),
        Some(Value::String(next)) => Ok(Some(next.clone())),
        Some(_) => Err(open("the next page's address is no text")),
    }
}

/// The target of the link with `rel="next"` (RFC 8288, section 3). What cannot be read could be one.
fn next_link(headers: &HeaderMap) -> Result<Option<String>, LookupEnd> {
    for value in headers.get_all(http::header::LINK) {
        let links = value.to_str().ok().and_then(link::read);
        let links = links.ok_or_else(|| open("the Link header cannot be read"))?;
        if let Some(next) = links.into_iter().find(link::Link::is_next) {
            return Ok(Some(next.target.to_owned()));
        }
    }
    Ok(None)
}

fn not_told(answer: &Answer) -> LookupEnd {
    let words = format!("the search was answered with HTTP {}", answer.status.as_u16());
    match answer.status.as_u16() {
        401 | 407 => return LookupEnd::Barred { class: ErrorClass::Credential, words },
        403 if !is_rate_limited(&answer.headers) => {
            return LookupEnd::Barred { class: ErrorClass::Credential, words };
        }
        _ => {}
    }
    LookupEnd::Open { words, retry_after: pause_asked_for(&answer.headers) }
}

fn open(words: &str) -> LookupEnd {
    LookupEnd::Open { words: words.to_owned(), retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_link_is_found_among_others() {
        // Promise: a search goes on to its last page, however the header is written.
        let cases = [
            (
                r#"<https://a/b?page=2>; rel="next", <https://a/b?page=9>; rel="last""#,
                Some("https://a/b?page=2"),
            ),
            (
                r#"<https://a/?p=1>; rel="prev", <https://a/?p=3>; title="x"; rel="start next""#,
                Some("https://a/?p=3"),
            ),
            (r#"<https://a/?p=1>; rel="prev""#, None),
            (r#"<https://a/?p=2>; REL = next"#, Some("https://a/?p=2")),
            (r#"<https://a/?p=2>; title="a, \"<b>\""; rel="next""#, Some("https://a/?p=2")),
            (r#"<https://a/?p=2>; title="; rel=next""#, None),
            (r#"<https://a/?p=2>; rel="last"; rel="next""#, None),
            (r#", <https://a/?p=2;x=,>;rel=next;"#, Some("https://a/?p=2;x=,")),
            ("", None),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::LINK, value.parse().expect("a value"));
            let found = next_link(&headers).expect("readable");
            assert_eq!(found.as_deref(), expected, "{value}");
        }
        for broken in ["<https://a", "https://a", "<a>; rel=\"next", "<a> rel=next", "<a>; =b"] {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::LINK, broken.parse().expect("a value"));
            next_link(&headers).expect_err(broken);
        }
    }
}
