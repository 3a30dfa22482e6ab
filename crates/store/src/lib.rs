//! The ledger: where an operation's record, its local effect and its audit events commit together.
//!
//! [`contract`] is what every back end keeps; [`sqlite`] is the default, [`memory`] keeps nothing
//! and is for trying things out and for tests. One conformance suite holds both to the contract.

pub mod clock;
pub mod contract;
pub mod cut;
mod digest;
pub mod direct;
mod direct_steps;
pub mod effect;
pub mod error;
mod keys;
pub mod listing;
pub mod memory;
pub mod outbox;
mod outbox_steps;
pub mod retention;
pub mod sqlite;
mod steps;
#[cfg(test)]
#[path = "../tests/suite/mod.rs"]
mod suite;
mod tables;
mod under_way;

// The suite is shared with the tests beside this crate, which name it from outside.
#[cfg(test)]
extern crate self as counterfoil_store;

pub use clock::{Clock, SystemClock};
pub use contract::{
    Answer, AuditEvent, Committed, Finish, LedgerInfo, LedgerStats, Resolve, Resolved, Store,
    StoreFuture, Submission,
};
pub use direct::DirectLedger;
pub use effect::{
    Column, ColumnKind, Completion, EffectContext, EffectError, EffectRow, EffectTx, LocalEffect,
    SqlTx, SqlValue, TableSpec,
};
pub use error::{OpenRefused, StoreError};
pub use listing::{Cursor, KeyUsage, ListQuery, Page};
pub use memory::{MemoryOptions, MemoryStore};
pub use outbox::Outbox;
pub use retention::{ClockConfirmed, ClockJump, Purge, Purged, RetentionState};
pub use sqlite::{SqliteOptions, SqliteStore};
pub use under_way::UnderWay;
