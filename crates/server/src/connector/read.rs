//! Reads one `[connector.NAME]` table. Every mistake is noted; a connector comes of a table without
//! any.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, TargetName};
use counterfoil_core::identity::{ToolId, ToolVersion};
use serde_json::{Value, json};

use super::form::Form;
use super::read_answers::{lookup, responses};
use super::read_credential::{Idempotency, KeyKind, credential, idempotency};
use super::read_request::{RequestTemplate, request};
use super::read_terms::{limits, networks, terms, timeouts};
use super::schema::Schema;
use super::vocabulary::Vocabulary;
use super::{Connector, SUPPORT_TICKET, toml_json};

/// Tools of our own that no connector can take the name of.
const TAKEN: &[&str] = &[
    "create_issue",
    "get_delivery_status",
    "get_operation_audit",
    "get_operation_status",
    "list_operations",
];
/// A tool never waits longer for its result.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A description is at most this long.
const MAX_DESCRIPTION_BYTES: usize = 4096;

/// Reads the table of the connector `name`.
pub(super) fn connector(name: &TargetName, form: Form<'_>) -> Option<Connector> {
    let before = form.problems_count();
    let tool =
        form.parsed("tool", tool_name).or_else(|| (!form.has("tool")).then(|| default_tool(name)));
    if !form.has("tool") {
        check_default(name, &form);
    }
    let version = form
        .parsed("version", |text| ToolVersion::parse(text).map_err(|error| error.to_string()))
        .or_else(|| ToolVersion::parse("1").ok());
    let description = form.needed("description", "say what the tool does, for its callers", prose);
    let is_ticket = tool.as_ref().is_some_and(|tool| tool.as_str() == SUPPORT_TICKET);
    let arguments = arguments(&form, is_ticket);
    let output = output(&form);
    let credential = credential(&form);
    let exclusive = credential.as_ref().is_some_and(|it| it.exclusive_to.is_some());
    let idempotency = idempotency(&form, exclusive);
    let words = Vocabulary { arguments: arguments.as_ref(), exclusive };
    let request = request(&form, &words, credential.as_ref());
    let timeouts = timeouts(&form);
    let networks = networks(&form);
    let terms = timeouts.and_then(|timeouts| terms(&form, timeouts));
    let limits = timeouts.and_then(|timeouts| limits(&form, timeouts));
    let url_holds_arguments = request.as_ref().is_some_and(|it| it.url.holds_arguments());
    let responses = responses(&form, output.as_ref(), url_holds_arguments);
    let lookup = lookup(&form, &words, output.as_ref());
    let wait = wait(&form);
    if output.is_some() && form.table("result").is_none_or(|it| !it.has("structured")) {
        form.problem("has an [output] and no [result.structured] to fill it; add one");
    }
    if let (Some(request), Some(terms)) = (&request, &terms) {
        let parts = Parts { request, idempotency: idempotency.as_ref(), lookup: lookup.as_ref() };
        parts.check(&form, terms.contract);
    }
    if let (Some(request), Some(networks)) = (&request, &networks)
        && request.url.is_plain()
        && networks.is_empty()
    {
        form.problem(
            "is reached by http, without TLS; use https, or name its private network in \
             allow_networks",
        );
    }
    let (place, file) = (form.place(), form.file().path.clone());
    let is_clean = form.finish() == before;
    let (lookup_request, lookup) = lookup.map(|it| (it.template, it.rules)).unzip();
    let connector = Connector {
        name: name.clone(),
        tool: tool?,
        version: version?,
        description: description?,
        arguments: arguments?,
        output,
        credential,
        idempotency,
        responses: responses?,
        lookup,
        terms: terms?,
        timeouts: timeouts?,
        limits: limits?,
        networks: networks?,
        wait: wait?,
        file,
        request: request?,
        lookup_request,
        place,
    };
    is_clean.then_some(connector)
}

/// What the contract rests on.
struct Parts<'a> {
    request: &'a RequestTemplate,
    idempotency: Option<&'a Idempotency>,
    lookup: Option<&'a super::read_answers::Lookup>,
}

impl Parts<'_> {
    /// A contract is only what the request makes of it.
    fn check(&self, form: &Form<'_>, contract: Contract) {
        let has_key = matches!(contract, Contract::Key { .. } | Contract::KeyAndLookup { .. });
        let names = self.request.names();
        let sends_key = self.idempotency.is_some_and(|it| it.header.is_some())
            || names.contains("key")
            || (names.contains("operation_id") && self.idempotency.is_some());
        if has_key && !sends_key {
            form.problem(
                "has a contract with a key and sends none; give [idempotency] with a header, or put \
                 `{{ key }}` into the body",
            );
        }
        match (contract.has_lookup(), self.lookup) {
            (true, None) if !form.has("lookup") => {
                form.problem("has a contract with a lookup and no [lookup] table; add one");
            }
            (false, Some(_)) => form.problem(
                "has a [lookup] that its contract does not use; write contract = \"lookup\" or \
                 \"key+lookup\", or remove it",
            ),
            (true, Some(lookup)) => {
                let missing = lookup.template.identity_names();
                if missing.is_empty() || !missing.iter().all(|name| names.contains(*name)) {
                    form.problem(
                        "looks for a text that its request does not put into the effect; put \
                         `{{ marker }}` into both the request and the lookup",
                    );
                }
                let callers_key = self.idempotency.is_some_and(|it| it.key == KeyKind::OperationId);
                if lookup.takes_a_part_for_all(callers_key) {
                    form.problem(
                        "looks for a text that contains the caller's own ID, and one caller's ID can \
                         be a part of another; write contains = \"{{ marker }}\" and put that into \
                         the request, or use equals",
                    );
                }
                if lookup.template.request.url.origin() != self.request.url.origin() {
                    form.problem(
                        "has a lookup at another host than its request; the credential goes to one \
                         host only",
                    );
                }
            }
            _ => {}
        }
    }
}

fn arguments(form: &Form<'_>, is_ticket: bool) -> Option<Schema> {
    let Some(field) = form.field("arguments") else {
        if is_ticket {
            return Some(ticket_arguments());
        }
        form.missing("arguments", "give the JSON Schema of the tool's arguments");
        return None;
    };
    if is_ticket {
        field.problem(format!("{SUPPORT_TICKET} has arguments of its own; remove this"));
        return None;
    }
    let json = toml_json::schema(&field)?;
    Schema::of_arguments(json).map_err(|words| field.problem(words)).ok()
}

fn output(form: &Form<'_>) -> Option<Arc<Schema>> {
    let field = form.field("output")?;
    let json: Value = toml_json::schema(&field)?;
    Schema::of_object(json).map(Arc::new).map_err(|words| field.problem(words)).ok()
}

/// What the built-in ticket tool takes, its key aside.
fn ticket_arguments() -> Schema {
    let text = |max: usize, words: &str| json!({"type": "string", "minLength": 1, "maxLength": max, "description": words});
    Schema::of_arguments(json!({
        "type": "object",
        "properties": {
            "subject": text(512, "What it is about, in one line."),
            "description": text(65_536, "What happened, and what is wanted."),
        },
        "required": ["subject", "description"],
    }))
    .expect("the schema is fixed and good")
}

/// A tool's name as MCP asks for it: what every client can show and send.
fn tool_name(text: &str) -> Result<ToolId, String> {
    let of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if !(1..=128).contains(&text.len()) || !text.bytes().all(of_name) {
        return Err("a tool's name is 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`".into());
    }
    if TAKEN.contains(&text) {
        return Err("this is a tool of our own; give yours another name".into());
    }
    ToolId::parse(text).map_err(|error| error.to_string())
}

fn default_tool(name: &TargetName) -> ToolId {
    ToolId::parse(&name.as_str().replace('-', "_")).expect("a target's name is a good tool's name")
}

fn check_default(name: &TargetName, form: &Form<'_>) {
    if TAKEN.contains(&default_tool(name).as_str()) {
        form.missing("tool", "this connector's own name is that of a tool of ours");
    }
}

fn prose(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("this is blank; say what the tool does, for its callers".into());
    }
    if text.len() > MAX_DESCRIPTION_BYTES {
        return Err(format!("this has over {MAX_DESCRIPTION_BYTES} bytes; shorten it"));
    }
    Ok(text.trim().to_owned())
}

fn wait(form: &Form<'_>) -> Option<Duration> {
    let wait = form.span("wait", Duration::from_secs(5))?;
    if wait > LONGEST_WAIT {
        let field = form.field("wait")?;
        field.problem("a tool waits at most one minute; 0 answers at once");
        return None;
    }
    Some(wait)
}
