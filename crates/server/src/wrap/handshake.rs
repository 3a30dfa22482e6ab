//! What client and server agreed on: kept, so that a restarted server is told the same, and
//! rewritten where our presence changes it.
//!
//! Both sides share one era of the protocol: with `initialize` (up to 2025-11-25) or without (from
//! 2026-07-28 on, every request says what it needs). The relay passes the probe on and translates
//! nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::Announced;
use super::frame::{Edits, Frame, text};
use super::scan::{self, Field};

/// What our own requests say of their sender where there is no handshake.
const OWN_META: &str = concat!(
    r#""io.modelcontextprotocol/clientInfo":{"name":"counterfoil","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""},"io.modelcontextprotocol/clientCapabilities":{}"#
);
/// Our extension, as a member of `capabilities.extensions`.
const OPERATIONS: &str = r#""io.counterfoil/operations":{}"#;

/// The state of one session, to be told to the next child.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// `initialize` was answered: the client's params, and what the server said.
    initialize: Option<Agreed>,
    /// The client has sent `notifications/initialized`, as this line.
    initialized: Option<Bytes>,
    /// `server/discover` was answered.
    discover: Option<Agreed>,
    /// The revision of the session, or of the latest request that named its own.
    revision: Option<Arc<str>>,
    log_level: Option<Bytes>,
    resources: BTreeMap<Bytes, Bytes>,
}

/// One question of the handshake and what matters of its answer.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    /// Raw JSON.
    pub(super) params: Bytes,
    terms: Terms,
}

/// What must be the same after a restart.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    versions: Value,
    capabilities: Value,
}

/// What is asked of a new child, in this order.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// `initialize` or `server/discover`.
    pub(super) first: Option<(&'static str, Agreed)>,
    pub(super) initialized: Option<Bytes>,
    /// Method and params.
    pub(super) rest: Vec<(&'static str, Bytes)>,
}

/// Why a handshake or a restart ends the session. The texts are for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mismatch {
    #[error(
        "the server `{name}` speaks protocol revision {theirs}, the client asked for {asked}, and \
         this relay understands {ours} alone; use another version of the server or the client"
    )]
    Version { name: String, theirs: String, asked: String, ours: String },
    #[error(
        "the server `{name}` came back with another {what} than it had before its restart; begin a \
         new session"
    )]
    Changed { name: String, what: &'static str },
}

impl Session {
    /// Whether the server may be asked: the handshake is done, or there is none.
    pub(super) fn is_open(&self) -> bool {
        match &self.initialize {
            Some(_) => self.initialized.is_some(),
            None => self.revision.is_some(),
        }
    }

    pub(super) fn revision(&self) -> Option<&Arc<str>> {
        self.revision.as_ref()
    }

    /// A request came that names its own revision.
    pub(super) fn note_request(&mut self, revision: &str) {
        if self.initialize.is_none() && self.revision.as_deref() != Some(revision) {
            self.revision = Some(revision.into());
        }
    }

    pub(super) fn note_initialized(&mut self, line: Bytes) {
        self.initialized = Some(line);
    }

    pub(super) fn note_initialize(&mut self, params: Bytes, result: &Frame) {
        self.revision = result.text(Field::ProtocolVersion).map(Into::into);
        self.initialize = Some(Agreed { params, terms: Terms::of(result) });
    }

    pub(super) fn note_discover(&mut self, params: Bytes, asked: Option<&str>, result: &Frame) {
        if let Some(revision) = asked {
            self.note_request(revision);
        }
        self.discover = Some(Agreed { params, terms: Terms::of(result) });
    }

    pub(super) fn note_log_level(&mut self, params: Bytes) {
        self.log_level = Some(params);
    }

    pub(super) fn note_subscribed(&mut self, uri: Bytes, params: Bytes) {
        self.resources.insert(uri, params);
    }

    pub(super) fn note_unsubscribed(&mut self, uri: &Bytes) {
        self.resources.remove(uri);
    }

    /// The client's `notifications/initialized`, if it has come.
    pub(super) fn initialized(&self) -> Option<Bytes> {
        self.initialized.clone()
    }

    /// What a new child is told before anything else.
    pub(super) fn replay(&self) -> Replay {
        let Some(agreed) = &self.initialize else {
            let first = self.discover.clone().map(|agreed| ("server/discover", agreed));
            return Replay { first, ..Replay::default() };
        };
        let level = self.log_level.iter().map(|params| ("logging/setLevel", params.clone()));
        let watched = self.resources.values();
        let watched = watched.map(|params| ("resources/subscribe", params.clone()));
        Replay {
            first: Some(("initialize", agreed.clone())),
            initialized: self.initialized.clone(),
            rest: level.chain(watched).collect(),
        }
    }

    /// The params of a question of ours, with what a request must say where there is no handshake.
    pub(super) fn own_params(&self, params: &[u8]) -> Bytes {
        let open = params.iter().position(|byte| *byte == b'{');
        let (Some(open), None, Some(revision)) = (open, &self.initialize, &self.revision) else {
            return Bytes::copy_from_slice(params);
        };
        let members = scan::members(params, open..params.len()).unwrap_or_default();
        if members
            .iter()
            .any(|member| text(&params[member.key.clone()]).as_deref() == Some("_meta"))
        {
            return Bytes::copy_from_slice(params);
        }
        let comma = if members.is_empty() { "" } else { "," };
        let revision = Value::from(&**revision);
        let meta = format!(
            r#""_meta":{{"io.modelcontextprotocol/protocolVersion":{revision},{OWN_META}}}{comma}"#
        );
        [&params[..=open], meta.as_bytes(), &params[open + 1..]].concat().into()
    }
}

impl Agreed {
    /// Whether a restarted server says the same.
    pub(super) fn check(&self, name: &str, result: &Frame) -> Result<(), Mismatch> {
        let terms = Terms::of(result);
        let changed = |what| Err(Mismatch::Changed { name: name.to_owned(), what });
        if terms.versions != self.terms.versions {
            return changed("protocol revision");
        }
        if terms.capabilities != self.terms.capabilities {
            return changed("set of capabilities");
        }
        Ok(())
    }
}

impl Terms {
    fn of(result: &Frame) -> Self {
        let read = |field| {
            let value = result.raw(field).and_then(|raw| serde_json::from_slice(raw).ok());
            value.unwrap_or(Value::Null)
        };
        let versions = match read(Field::ProtocolVersion) {
            Value::Null => read(Field::SupportedVersions),
            version => version,
        };
        Self { versions, capabilities: read(Field::Capabilities) }
    }
}

/// Makes a handshake's result say which revisions both speak, and what we add.
///
/// # Errors
/// [`Mismatch::Version`] if there is no such revision.
pub(super) fn rewrite(
    name: &str,
    asked: Option<String>,
    result: &Frame,
    announced: Announced,
    edits: &mut Edits,
) -> Result<(), Mismatch> {
    let ours: Vec<&str> = supported_versions_text();
    let mismatch = |theirs: String| Mismatch::Version {
        name: name.to_owned(),
        theirs: theirs.chars().take(200).collect(),
        asked: asked.clone().unwrap_or_else(|| "none".to_owned()),
        ours: ours.join(", "),
    };
    if let Some(version) = result.text(Field::ProtocolVersion)
        && !ours.contains(&&*version)
    {
        return Err(mismatch(version));
    }
    if let Some(span) = result.span(Field::SupportedVersions) {
        let theirs: Vec<String> =
            serde_json::from_slice(&result.line()[span.clone()]).unwrap_or_default();
        let both: Vec<&String> = theirs.iter().filter(|one| ours.contains(&one.as_str())).collect();
        if both.is_empty() {
            return Err(mismatch(theirs.join(", ")));
        }
        if both.len() < theirs.len() {
            let both = serde_json::to_vec(&both).expect("strings are JSON");
            edits.replace(span, both);
        }
    }
    if let Some(span) = result.span(Field::Capabilities) {
        announce(result.line(), span, announced, edits);
    }
    Ok(())
}

/// The revisions that the relay understands.
pub(super) fn supported_versions_text() -> Vec<&'static str> {
    vec!["2025-06-18", "2025-11-25", "2026-07-28"]
}

/// Adds what is ours to the capabilities at `span`, and takes away what only we may say.
fn announce(line: &Bytes, span: Range<usize>, announced: Announced, edits: &mut Edits) {
    let Some(members) = scan::members(line, span.clone()) else { return };
    let find = |name: &str| {
        members.iter().find(|member| text(&line[member.key.clone()]).as_deref() == Some(name))
    };
    let mut added = Vec::new();
    if announced.tools && find("tools").is_none() {
        added.push(r#""tools":{}"#.to_owned());
    }
    match find("extensions").map(|extensions| extensions.value.clone()) {
        Some(extensions) => {
            for cut in scan::our_members(line, extensions.clone()) {
                edits.replace(cut, Bytes::new());
            }
            let others = scan::members(line, extensions.clone());
            if let (true, Some(others)) = (announced.operations, others) {
                let kept = others.iter().any(|member| !member.is_ours);
                insert(extensions.start, OPERATIONS, kept, edits);
            }
        }
        None if announced.operations => {
            added.push(format!(r#""extensions":{{{OPERATIONS}}}"#));
        }
        None => {}
    }
    if !added.is_empty() {
        insert(span.start, &added.join(","), !members.is_empty(), edits);
    }
}

/// Puts a member first into the object whose brace stands at `brace`.
fn insert(brace: usize, member: &str, has_others: bool, edits: &mut Edits) {
    let comma = if has_others { "," } else { "" };
    edits.replace(brace + 1..brace + 1, format!("{member}{comma}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::supported_versions;

    #[test]
    fn the_relay_understands_what_the_server_serves() {
        // Promise: the revisions are one list.
        let served = supported_versions();
        let served: Vec<&str> = served.iter().map(|version| version.as_str()).collect();
        assert_eq!(supported_versions_text(), served);
    }

    #[test]
    fn a_handshake_says_what_both_speak_and_what_we_add() {
        // Promise: a result of the handshake is changed in revisions and capabilities alone.
        let all = Announced { tools: true, operations: true };
        let none = Announced::default();
        let cases = [
            (none, r#"{"protocolVersion":"2025-06-18", "capabilities":{ },"x":1e2}"#, None),
            (
                all,
                r#"{"protocolVersion":"2025-06-18","capabilities":{ }}"#,
                Some(
                    r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"extensions":{"io.counterfoil/operations":{}} }}"#,
                ),
            ),
            (
                all,
                r#"{"capabilities":{"tools":{"listChanged":true},"extensions":{"a/b":{}}},"supportedVersions":["2026-07-28","2099-01-01"]}"#,
                Some(
                    r#"{"capabilities":{"tools":{"listChanged":true},"extensions":{"io.counterfoil/operations":{},"a/b":{}}},"supportedVersions":["2026-07-28"]}"#,
                ),
            ),
            (
                none,
                r#"{"capabilities":{"extensions":{"io.counterfoil/operations":{} , "a":1}}}"#,
                Some(r#"{"capabilities":{"extensions":{"a":1}}}"#),
            ),
        ];
        for (announced, result, expected) in cases {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let frame = Frame::read(line.clone()).expect("a frame");
            let mut edits = Edits::default();
            rewrite("s", None, &frame, announced, &mut edits).expect("a revision that is served");
            let wanted = line.replace(result, expected.unwrap_or(result));
            assert_eq!(String::from_utf8_lossy(&frame.splice(edits).joined()), wanted);
        }
    }

    #[test]
    fn no_common_revision_is_one_error_that_names_both() {
        // Promise: a person sees at once which side speaks what.
        for result in [
            r#"{"protocolVersion":"2024-11-05","capabilities":{}}"#,
            r#"{"supportedVersions":["2024-11-05"],"capabilities":{}}"#,
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let frame = Frame::read(line).expect("a frame");
            let asked = Some("2025-03-26".to_owned());
            let mismatch =
                rewrite("old", asked, &frame, Announced::default(), &mut Edits::default());
            let text = mismatch.expect_err("not served").to_string();
            for part in ["`old`", "2024-11-05", "2025-03-26", "2025-11-25"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }

    #[test]
    fn a_question_of_ours_says_what_the_revision_asks_for() {
        // Promise: without a handshake our requests are whole; with one they are left alone.
        let mut session = Session::default();
        assert_eq!(&session.own_params(b"{}")[..], b"{}");
        session.note_request("2026-07-28");
        let params = session.own_params(br#" {"name":"t"}"#);
        let params: Value = serde_json::from_slice(&params).expect("JSON");
        let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!((version, &params["name"]), (&Value::from("2026-07-28"), &Value::from("t")));
        assert!(session.own_params(b"{}").starts_with(br#"{"_meta":{"#));
        assert_eq!(&session.own_params(br#"{"_meta":{}}"#)[..], br#"{"_meta":{}}"#);
    }
}
