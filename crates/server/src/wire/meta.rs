//! The `_meta` keys that Counterfoil reads and writes.

use rmcp::model::{JsonObject, MetaObject};
use serde_json::Value;

/// On every result of a guarded call: which operation it was, its state, and what may be sent next.
pub const OPERATION: &str = "io.counterfoil/operation";
/// On a call: the operation ID, for callers who cannot put it into the arguments.
pub const OPERATION_ID: &str = "io.counterfoil/operationId";
/// On every result of our own: name and version of the server (MCP 2026-07-28).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// `_meta` of a result of a guarded call. `state` and `retry` are the words of the operation's
/// state and of the advice on what may be sent next; `contract` is that of a delivery's target.
pub fn operation_meta(
    operation_id: &str,
    state: &str,
    replayed: bool,
    retry: &str,
    contract: Option<&str>,
) -> MetaObject {
    let mut operation = JsonObject::new();
    operation.insert("operationId".to_owned(), Value::from(operation_id));
    operation.insert("state".to_owned(), Value::from(state));
    operation.insert("replayed".to_owned(), Value::from(replayed));
    operation.insert("retry".to_owned(), Value::from(retry));
    if let Some(contract) = contract {
        operation.insert("contract".to_owned(), Value::from(contract));
    }
    let mut meta = MetaObject::new();
    meta.insert(OPERATION.to_owned(), Value::Object(operation));
    meta
}
