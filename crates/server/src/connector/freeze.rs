//! Renders a request when its call is accepted. What comes out is what every attempt sends.

use counterfoil_core::delivery::TargetIdentity;
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::json::Value;
use http::HeaderName;

use super::frozen::{FrozenCall, FrozenLookup, FrozenRequest, MAX_FROZEN_BYTES};
use super::read_credential::KeyKind;
use super::read_request::{Body, RequestTemplate, content_type};
use super::template::{RenderError, Scope};
use super::url::{UrlError, percent_encoded};
use super::{Connector, header};

/// No body is longer.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Why a call cannot be made into a request. Names the place, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// The arguments are not those of the schema.
    #[error("{0}")]
    Arguments(String),
    /// A template of a header or a body has no value.
    #[error("the {place} cannot be made: {error}")]
    Render {
        /// Which part of the request.
        place: String,
        /// Why.
        error: RenderError,
    },
    /// The address cannot be made.
    #[error("the address cannot be made: {0}")]
    Url(#[from] UrlError),
    /// A header's value cannot be sent.
    #[error("the header {name} {rule}")]
    Header {
        /// The header.
        name: HeaderName,
        /// The rule.
        rule: String,
    },
    /// The credential is another tenant's alone.
    #[error("the target {connector} serves another tenant alone; use a connector of your own")]
    OtherTenant {
        /// The connector.
        connector: String,
    },
    /// A template shortens or drops the text by which the effect is known.
    #[error(
        "the {what} does not stand whole in the {place}: a template of the connector shortens or \
         drops it; correct the connector"
    )]
    Lost {
        /// Which text.
        what: &'static str,
        /// Where it must stand.
        place: &'static str,
    },
    /// The request is too long.
    #[error("the {what} has {bytes} bytes; at most {limit_bytes} are sent: shorten the arguments")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
}

impl FreezeError {
    /// Whether the arguments are too long, rather than wrong.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge { .. } | Self::Url(UrlError::TooLong { .. }))
    }
}

impl Connector {
    /// The request for these arguments, without `operation_id` in them: rendered now, sent as it is
    /// at every attempt. Keys come from the active key of `keys`.
    ///
    /// # Errors
    /// [`FreezeError`] if the arguments do not make a request; nothing of their values is told.
    pub fn freeze(
        &self,
        arguments: &Value,
        identity: TargetIdentity<'_>,
        keys: &KeyRing,
    ) -> Result<FrozenRequest, FreezeError> {
        let exclusive = self.credential.as_ref().and_then(|it| it.exclusive_to.as_ref());
        if exclusive.is_some_and(|tenant| tenant != identity.tenant) {
            return Err(FreezeError::OtherTenant { connector: self.name.to_string() });
        }
        self.arguments.check(arguments).map_err(FreezeError::Arguments)?;
        let (_, secret) = keys.active();
        let key_text = match self.idempotency.as_ref().map(|it| it.key) {
            Some(KeyKind::OperationId) => identity.operation.as_str().to_owned(),
            Some(KeyKind::Digest) | None => identity.idempotency_key(secret),
        };
        let marker_text = identity.marker(secret);
        let (key, marker) = (Value::from(&key_text[..]), Value::from(&marker_text[..]));
        let operation = Value::from(identity.operation.as_str());
        let mut roots = vec![("args", arguments), ("key", &key), ("marker", &marker)];
        if exclusive.is_some() {
            roots.push(("operation_id", &operation));
        }
        let scope = Scope::new(roots);
        let mut request = render(&self.request, &scope)?;
        if let Some(name) = self.idempotency.as_ref().and_then(|it| it.header.as_ref()) {
            check_header(name, &key_text)?;
            request.headers.push((name.to_string(), key_text.clone()));
        }
        let names = self.request.names();
        for (what, text) in [("marker", &marker_text), ("key", &key_text)] {
            // A raw key may stand there escaped; ours never does.
            let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if names.contains(what) && is_plain && !carries(&request, text) {
                return Err(FreezeError::Lost { what, place: "request" });
            }
        }
        let mut frozen = FrozenRequest::new(request);
        frozen.idempotency_key =
            (self.idempotency.is_some() || names.contains("key")).then_some(key_text);
        frozen.marker = names.contains("marker").then_some(marker_text.clone());
        frozen.account = self.credential.as_ref().map(|it| it.account.clone());
        frozen.lookup = self.freeze_lookup(&scope, &marker_text)?;
        let bytes = frozen.encode().len();
        if bytes > MAX_FROZEN_BYTES {
            let what = "whole request";
            return Err(FreezeError::TooLarge { what, bytes, limit_bytes: MAX_FROZEN_BYTES });
        }
        Ok(frozen)
    }

    fn freeze_lookup(
        &self,
        scope: &Scope<'_>,
        marker: &str,
    ) -> Result<Option<FrozenLookup>, FreezeError> {
        let (Some(lookup), Some(rules)) = (&self.lookup_request, &self.lookup) else {
            return Ok(None);
        };
        let expected = match &lookup.expected {
            None => String::new(),
            Some(text) => {
                text.render(scope).map_err(|error| render_error("text of a match", error))?
            }
        };
        let names_marker = lookup.expected.as_ref().is_some_and(|it| it.names().contains("marker"));
        if names_marker && !expected.contains(marker) {
            return Err(FreezeError::Lost { what: "marker", place: "text of a match" });
        }
        let request = render(&lookup.request, scope)?;
        Ok(Some(FrozenLookup { request, expected, matching: rules.matching.frozen() }))
    }
}

/// Whether a text stands whole somewhere in a rendered call.
fn carries(call: &FrozenCall, text: &str) -> bool {
    call.url.contains(text)
        || call.headers.iter().any(|(_, value)| value.contains(text))
        || call.body.as_ref().is_some_and(|body| body.contains(text))
}

fn render_error(place: &str, error: RenderError) -> FreezeError {
    FreezeError::Render { place: place.to_owned(), error }
}

fn check_header(name: &HeaderName, value: &str) -> Result<(), FreezeError> {
    header::check_value(value).map_err(|rule| FreezeError::Header { name: name.clone(), rule })
}

fn render(template: &RequestTemplate, scope: &Scope<'_>) -> Result<FrozenCall, FreezeError> {
    let url = template.url.render(scope)?;
    let mut headers = Vec::with_capacity(template.headers.len() + 2);
    for (name, value) in &template.headers {
        let value =
            value.render(scope).map_err(|error| render_error(&format!("header {name}"), error))?;
        check_header(name, &value)?;
        headers.push((name.to_string(), value));
    }
    if let Some((name, value)) = content_type(&template.body)
        && !template.headers.iter().any(|(known, _)| *known == name)
    {
        headers.push((name.to_string(), value.to_owned()));
    }
    let body = body(&template.body, scope)?;
    let bytes = body.as_ref().map_or(0, String::len);
    if bytes > MAX_BODY_BYTES {
        return Err(FreezeError::TooLarge { what: "body", bytes, limit_bytes: MAX_BODY_BYTES });
    }
    Ok(FrozenCall { method: template.method.to_string(), url, headers, body })
}

fn body(body: &Body, scope: &Scope<'_>) -> Result<Option<String>, FreezeError> {
    let of_body = |error| render_error("body", error);
    Ok(match body {
        Body::None => None,
        Body::Json(json) => Some(json.render(scope).map_err(of_body)?.to_json()),
        Body::Form(fields) => {
            let mut text = String::new();
            for (name, value) in fields {
                if !text.is_empty() {
                    text.push('&');
                }
                let value = value.render(scope).map_err(of_body)?;
                text.push_str(&percent_encoded(name));
                text.push('=');
                text.push_str(&percent_encoded(&value));
            }
            Some(text)
        }
    })
}
