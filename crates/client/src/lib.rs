//! The consumer that recovers: it saves an operation's identity before it sends, sends once, and
//! after a lost reply only asks.
//!
//! The steps are types, and each is used up by the next:
//!
//! ```text
//! Consumer::prepare -> Prepared --send--> Finished
//!                                     \-> Lost --reconcile--> Settled
//! ```
//!
//! [`Prepared`] exists only after its identity is on disk. Nothing that comes after a send leads
//! back to one: [`Lost`] and [`Question`] can ask `get_operation_status`, which reads, and no more.
//! What is deliberately absent: a retry, and any way to get at the connection of a call.
//!
//! A call is sent once:
//!
//! ```
//! # use counterfoil_client::{Connector, Prepared};
//! async fn once<C: Connector>(prepared: Prepared<'_>, server: &C) {
//!     let _ = prepared.send(server).await;
//! }
//! ```
//!
//! and a second time does not compile, neither by the same value
//!
//! ```compile_fail,E0382
//! # use counterfoil_client::{Connector, Prepared};
//! async fn twice<C: Connector>(prepared: Prepared<'_>, server: &C) {
//!     let _ = prepared.send(server).await;
//!     let _ = prepared.send(server).await;
//! }
//! ```
//!
//! nor by a copy of it
//!
//! ```compile_fail,E0277
//! fn needs_clone<T: Clone>() {}
//! needs_clone::<counterfoil_client::Prepared<'static>>();
//! ```
//!
//! nor after a loss
//!
//! ```compile_fail,E0599
//! # use counterfoil_client::{Connector, Lost};
//! async fn again<C: Connector>(lost: Lost<'_>, server: &C) {
//!     let _ = lost.send(server).await;
//! }
//! ```
//!
//! nor past the types, over the connection itself.
//!
//! ```compile_fail,E0599
//! # use counterfoil_client::Connection;
//! async fn around(connection: &Connection) {
//!     let _ = connection.call_tool("create_issue").await;
//! }
//! ```

mod answers;
mod child;
mod connection;
mod consumer;
mod http;
mod identity;
mod journal;
mod leg;
mod limits;
mod reading;
mod reply;
mod settle;
mod watcher;

pub use answers::{AnswerError, Answers};
pub use child::Gone;
pub use connection::{ChildConnector, ConnectError, Connection, Connector};
pub use consumer::{Call, Consumer, Lost, NotSent, Prepared, Sent, Who};
pub use http::{
    BearerToken, HttpConnector, HttpOptions, HttpProblem, HttpSetupError, NoToken, ServerUrl,
    TlsSetupError, UrlError,
};
pub use identity::{ID_FIELDS, id_in};
pub use journal::{Entry, Journal, JournalError, Outcome, Saved};
pub use limits::Limits;
pub use reading::{LIST_TOOL, ReadFailed, Reading};
pub use reply::{Finished, LostReason, Operation, Refused, Reply, ToolReply, name_of_code};
pub use settle::{Question, STATUS_TOOL, Settled};
pub use watcher::{Unwatched, Watcher};
