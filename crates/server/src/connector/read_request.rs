//! Reads the request of a connector, or of its lookup: method, address, header fields, body.

use std::collections::BTreeSet;

use http::{HeaderName, Method, header as names};

use super::credential::{Credential, CredentialKind};
use super::form::Form;
use super::template::{Json, Text};
use super::url::UrlTemplate;
use super::vocabulary::Vocabulary;
use super::{header, toml_json};

/// A request that waits for its values.
#[derive(Debug)]
pub(super) struct RequestTemplate {
    pub(super) method: Method,
    pub(super) url: UrlTemplate,
    pub(super) headers: Vec<(HeaderName, Text)>,
    pub(super) body: Body,
}

/// A body that waits for its values.
#[derive(Debug)]
pub(super) enum Body {
    None,
    Json(Json),
    /// `application/x-www-form-urlencoded`.
    Form(Vec<(String, Text)>),
}

impl RequestTemplate {
    /// The names that it uses anywhere.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let mut found = self.url.names();
        found.extend(self.headers.iter().flat_map(|(_, value)| value.names()));
        match &self.body {
            Body::None => {}
            Body::Json(json) => found.extend(json.names()),
            Body::Form(fields) => found.extend(fields.iter().flat_map(|(_, it)| it.names())),
        }
        found
    }
}

/// The request that makes the effect.
pub(super) fn request(
    form: &Form<'_>,
    words: &Vocabulary<'_>,
    credential: Option<&Credential>,
) -> Option<RequestTemplate> {
    let method = match form.field("method") {
        None => Some(Method::POST),
        Some(field) => field.parsed(|text| match text {
            "POST" => Ok(Method::POST),
            "PUT" => Ok(Method::PUT),
            "PATCH" => Ok(Method::PATCH),
            "DELETE" => Ok(Method::DELETE),
            _ => Err("an effect is made by \"POST\", \"PUT\", \"PATCH\" or \"DELETE\"".into()),
        }),
    };
    let url = url(form, words);
    let headers = headers(form, words, credential);
    let body = body(form, words);
    let request = RequestTemplate { method: method?, url: url?, headers: headers?, body: body? };
    let by_path = credential.is_some_and(|it| it.kind == CredentialKind::Path);
    if by_path && !request.url.is_open_path() {
        let words = "the credential follows this address, so it ends in `/` and has no `?`";
        form.field("url")?.problem(words);
        return None;
    }
    Some(request)
}

/// The request that searches: it changes nothing.
pub(super) fn search(form: &Form<'_>, words: &Vocabulary<'_>) -> Option<RequestTemplate> {
    let safe = form.flag("safe");
    let method = match form.field("method") {
        None => Some(Method::GET),
        Some(field) => field.parsed(|text| match text {
            "GET" => Ok(Method::GET),
            "HEAD" => Ok(Method::HEAD),
            "POST" if safe => Ok(Method::POST),
            "POST" => Err("a POST may change something; if this one only searches, say so with \
                           safe = true"
                .into()),
            _ => {
                Err("a lookup is made by \"GET\", \"HEAD\", or a \"POST\" with safe = true".into())
            }
        }),
    };
    let url = url(form, words);
    let headers = headers(form, words, None);
    let body = body(form, words);
    let request = RequestTemplate { method: method?, url: url?, headers: headers?, body: body? };
    if request.method != Method::POST && !matches!(request.body, Body::None) {
        form.problem("sends a body, which only a POST has; remove it, or use method = \"POST\"");
        return None;
    }
    Some(request)
}

fn url(form: &Form<'_>, words: &Vocabulary<'_>) -> Option<UrlTemplate> {
    form.needed("url", "give the address that the request goes to", |text| {
        let url = UrlTemplate::parse(text)?;
        words.check(&url.names())?;
        Ok(url)
    })
}

fn headers(
    form: &Form<'_>,
    words: &Vocabulary<'_>,
    credential: Option<&Credential>,
) -> Option<Vec<(HeaderName, Text)>> {
    if !form.has("headers") {
        // Asked for all the same, so that a misspelt one finds it.
        form.field("headers");
        return Some(Vec::new());
    }
    let table = form.table("headers")?;
    let mut found: Vec<(HeaderName, Text)> = Vec::new();
    let mut is_good = true;
    for (name, _, field) in table.members() {
        let name = match header::plain_name(&name) {
            Ok(name) => name,
            Err(rule) => {
                field.secret_problem(rule);
                is_good = false;
                continue;
            }
        };
        let of_credential = credential.is_some_and(|it| match &it.kind {
            CredentialKind::Header { name: taken } => *taken == name,
            _ => false,
        });
        if of_credential || found.iter().any(|(known, _)| *known == name) {
            field.problem(format!("`{name}` is set already; give it once"));
            is_good = false;
            continue;
        }
        let value = field.parsed(|text| {
            let value = Text::parse(text)?;
            words.check(&value.names())?;
            // What is literal can be checked now.
            header::check_value(&value.shape("x")).map_err(|rule| format!("the value {rule}"))?;
            Ok(value)
        });
        is_good &= value.is_some();
        found.extend(value.map(|value| (name, value)));
    }
    is_good.then_some(found)
}

fn body(form: &Form<'_>, words: &Vocabulary<'_>) -> Option<Body> {
    let (json, fields) = (form.field("json"), form.field("form"));
    match (json, fields) {
        (None, None) => Some(Body::None),
        (Some(json), None) => {
            toml_json::template(&json, &|names| words.check(names)).map(Body::Json)
        }
        (None, Some(_)) => {
            let mut found = Vec::new();
            let mut is_good = true;
            for (name, _, field) in form.table("form")?.members() {
                let value = field.parsed(|text| {
                    let value = Text::parse(text)?;
                    words.check(&value.names())?;
                    Ok(value)
                });
                is_good &= value.is_some();
                found.extend(value.map(|value| (name, value)));
            }
            is_good.then_some(Body::Form(found))
        }
        (Some(_), Some(fields)) => {
            fields.problem("there is a [json] body already; give one of the two");
            None
        }
    }
}

/// The content type that a body has unless a header says otherwise.
pub(super) fn content_type(body: &Body) -> Option<(HeaderName, &'static str)> {
    match body {
        Body::None => None,
        Body::Json(_) => Some((names::CONTENT_TYPE, "application/json")),
        Body::Form(_) => Some((names::CONTENT_TYPE, "application/x-www-form-urlencoded")),
    }
}
