//! A frozen request as an operator may see it: what was rendered at acceptance, its credential
//! masked. The credential itself is never in the ledger.

use serde_json::{Value, json};

use crate::connector::{FrozenCall, FrozenRequest, MASK};

/// Lines of the request and of the search that belongs to it.
pub(super) fn lines(bytes: &[u8]) -> String {
    let frozen = match FrozenRequest::decode(bytes) {
        Ok(frozen) => frozen,
        Err(error) => return format!("{} bytes that no connector sends: {error}", bytes.len()),
    };
    let mut lines = call_lines(&frozen.request);
    lines.extend(credential(&frozen));
    lines.extend(frozen.request.body.iter().flat_map(|body| [String::new(), body.clone()]));
    if let Some(lookup) = &frozen.lookup {
        lines.extend([String::new(), "lookup:".to_owned()]);
        lines.extend(call_lines(&lookup.request));
        lines.extend(credential(&frozen));
        let body = &lookup.request.body;
        lines.extend(body.iter().flat_map(|body| [String::new(), body.clone()]));
        if !lookup.expected.is_empty() {
            lines.push(format!("looks for: {}", lookup.expected));
        }
    }
    lines.join("\n")
}

/// The same for programs; `None` if it is nothing that a connector sends.
pub(super) fn as_json(bytes: &[u8]) -> Option<Value> {
    let frozen = FrozenRequest::decode(bytes).ok()?;
    let call = |call: &FrozenCall| {
        json!({
            "method": call.method, "url": call.url, "headers": call.headers, "body": call.body,
        })
    };
    Some(json!({
        "request": call(&frozen.request),
        "lookup": frozen.lookup.as_ref().map(|lookup| {
            json!({ "request": call(&lookup.request), "looksFor": lookup.expected })
        }),
        "idempotencyKey": frozen.idempotency_key,
        "marker": frozen.marker,
        "account": frozen.account,
        "credential": frozen.account.as_ref().map(|_| MASK),
    }))
}

fn call_lines(call: &FrozenCall) -> Vec<String> {
    let mut lines = vec![format!("{} {}", call.method, call.url)];
    lines.extend(call.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    lines
}

fn credential(frozen: &FrozenRequest) -> Option<String> {
    let account = frozen.account.as_ref()?;
    Some(format!("credential: {MASK} (of the account {account}, added when it is sent)"))
}
