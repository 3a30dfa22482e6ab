//! `counterfoil wrap`: stands between a client and an MCP server that knows nothing of us.
//!
//! A raw relay: a line is read once for the places of the few members that must be understood
//! ([`Frame`]), changed by splicing bytes, and passed on. Calls that the [`Guard`] takes are its to
//! answer; everything else travels as it came. Knows JSON-RPC, MCP and processes; knows nothing of
//! operations or databases, and the SDK is not in the path.
//!
//! Deliberately absent: translation between the eras of the protocol (with `initialize`, and
//! without), and JSON-RPC batches.

mod alone;
mod child;
pub mod clients;
mod errors;
pub mod explain;
mod frame;
mod from_child;
mod from_client;
pub mod guard;
pub mod guarded;
mod handshake;
mod ids;
mod life;
mod link;
pub mod lookup;
mod port;
pub mod raw;
pub mod reaper;
mod router;
mod run;
mod scan;
mod seam;
pub mod settings;
mod shell;
mod sift;
mod stdio;
pub mod tools;

pub use alone::{Alone, alone};
pub use child::{REAPER_COMMAND, StartError, StopTimes};
pub use frame::{Edits, Frame, Kind, NotAFrame, Pieces};
pub use link::{Incoming, LineSource, Link, TooLong};
pub use run::{DEFAULT_MAX_LINE_BYTES, WrapError, WrapOptions, over_stdio, relay};
pub use scan::Field;
pub use seam::{
    Announced, Answer, Body, CallFrame, CallPort, CallToken, Generation, Guard, Lost, PageInfo,
    PassGuard, PortBackend, ReplyBytes, Upstream, UpstreamBackend, UpstreamEvent, UpstreamReply,
    UpstreamState,
};

use bytes::Bytes;

/// Raw JSON of a reply's result or error, without keys of ours.
fn stripped_body(reply: &Frame) -> Body {
    let Some(span) = reply.span(Field::Result) else {
        return Body::Error(reply.bytes(Field::Error).unwrap_or_default());
    };
    if !reply.has_ours() {
        return Body::Result(reply.line().slice(span));
    }
    let mut edits = Edits::default();
    edits.replace(0..span.start, Bytes::new());
    edits.replace(span.end..reply.line().len(), Bytes::new());
    reply.strip_ours(&mut edits);
    Body::Result(reply.splice(edits).joined())
}
