//! The three protocol revisions.

use crate::world::{Wrap, call};

#[test]
fn a_session_with_a_handshake_is_passed_as_it_is() {
    // Promise: where the relay adds nothing, the handshake's result is the server's own.
    for version in ["2025-06-18", "2025-11-25"] {
        let wrap = Wrap::start(&format!("version={version}"));
        let reply = wrap.with_initialize();
        assert_eq!(reply["result"]["protocolVersion"], version);
        wrap.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        wrap.received(&call("1", "received", "{}"));
    }
}

#[test]
fn requests_that_speak_for_themselves_pass() {
    // Promise: without a handshake, each request's own `_meta` reaches the server.
    let wrap = Wrap::start("");
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let reply = wrap.ask(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{meta}}}}}"#
    ));
    assert_eq!(reply["result"]["supportedVersions"], serde_json::json!(["2026-07-28"]));
    let got = wrap.received(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"received",{meta}}}}}"#
    ));
    assert!(got.contains(meta), "{got}");
}

#[test]
fn an_older_server_is_one_clear_error() {
    // Promise: where no revision is understood by all three, the error names them.
    let wrap = Wrap::start("version=2024-11-05");
    let reply = wrap.with_initialize();
    let text = reply["error"]["message"].as_str().unwrap_or_else(|| panic!("{reply}"));
    assert_eq!(reply["error"]["code"], -32022);
    assert!(text.contains("2024-11-05") && text.contains("asked for 2025-11-25"), "{text}");
}
