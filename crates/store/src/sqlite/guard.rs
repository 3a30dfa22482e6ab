//! What SQL may do, by whose SQL it is. SQLite asks while it compiles a statement, so nothing runs
//! that was not allowed: an embedder's statement never ends the transaction, never reaches another
//! file, and never touches the ledger's own tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

use crate::tables::is_reserved;

/// After this many virtual-machine steps SQLite looks whether the time budget is spent.
const STEPS_BETWEEN_LOOKS: i32 = 2000;

/// Whose SQL is being compiled and run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Whose {
    /// The store's own.
    Store = 0,
    /// An effect's, through its transaction handle.
    Effect = 1,
    /// The embedder's schema, at open.
    Schema = 2,
}

/// Controls what a connection's statements may do and how long they may run.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    whose: Arc<AtomicU8>,
    /// Nanoseconds after `start` at which a statement is stopped; 0: never.
    deadline_ns: Arc<AtomicU64>,
    start: Instant,
}

impl Guard {
    /// Puts the guard on a connection, for good.
    pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let guard = Self {
            whose: Arc::new(AtomicU8::new(Whose::Store as u8)),
            deadline_ns: Arc::new(AtomicU64::new(0)),
            start: Instant::now(),
        };
        let whose = Arc::clone(&guard.whose);
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            let allowed = match whose.load(Ordering::Relaxed) {
                0 => store_may(&context),
                1 => effect_may(&context),
                _ => schema_may(&context),
            };
            if allowed { Authorization::Allow } else { Authorization::Deny }
        }))?;
        let (deadline_ns, start) = (Arc::clone(&guard.deadline_ns), guard.start);
        connection.progress_handler(
            STEPS_BETWEEN_LOOKS,
            Some(move || match deadline_ns.load(Ordering::Relaxed) {
                0 => false,
                deadline => start.elapsed().as_nanos() > u128::from(deadline),
            }),
        )?;
        Ok(guard)
    }

    /// Runs `work` as somebody else's SQL, each within `budget`; a panic ends it too.
    pub(super) fn run_as<T>(&self, whose: Whose, budget: Duration, work: impl FnOnce() -> T) -> T {
        struct Restore<'a>(&'a Guard);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.whose.store(Whose::Store as u8, Ordering::Relaxed);
                self.0.deadline_ns.store(0, Ordering::Relaxed);
            }
        }
        let deadline = (self.start.elapsed() + budget).as_nanos();
        self.whose.store(whose as u8, Ordering::Relaxed);
        self.deadline_ns.store(u64::try_from(deadline).unwrap_or(u64::MAX), Ordering::Relaxed);
        let _restore = Restore(self);
        work()
    }
}

/// The store's own SQL may do all, but a trigger or view of the embedder's that it sets off may not
/// write the ledger's tables.
fn store_may(context: &AuthContext<'_>) -> bool {
    context.accessor.is_none() || written_table(&context.action).is_none_or(|t| !is_reserved(t))
}

fn effect_may(context: &AuthContext<'_>) -> bool {
    match context.action {
        AuthAction::Select | AuthAction::Recursive => true,
        // A full-text table of the embedder's asks for it by itself; it changes nothing.
        AuthAction::Pragma { pragma_name: "data_version", pragma_value: None } => true,
        AuthAction::Function { function_name } => may_call(function_name),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => !is_reserved(table_name),
        AuthAction::Read { table_name, column_name } => {
            // A foreign key of the embedder's to an operation reads the key, and no more.
            !is_reserved(table_name)
                || (table_name.eq_ignore_ascii_case("operations")
                    && column_name.eq_ignore_ascii_case("operation_key"))
        }
        _ => false,
    }
}

fn schema_may(context: &AuthContext<'_>) -> bool {
    // SQLite keeps the schema itself in a table, and asks about writes to that one too; it refuses
    // direct ones by itself.
    let schema_table =
        |name: &str| name.get(..7).is_some_and(|s| s.eq_ignore_ascii_case("sqlite_"));
    match context.action {
        AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::Unknown { .. } => false,
        AuthAction::Function { function_name } => may_call(function_name),
        AuthAction::Read { .. } => true,
        action => written_table(&action).is_none_or(|t| schema_table(t) || !is_reserved(t)),
    }
}

fn may_call(function: &str) -> bool {
    !function.eq_ignore_ascii_case("load_extension")
}

/// The table that an action would change, or whose indexes and triggers it would.
fn written_table<'c>(action: &AuthAction<'c>) -> Option<&'c str> {
    match *action {
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::CreateTable { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateIndex { table_name, .. }
        | AuthAction::DropIndex { table_name, .. }
        | AuthAction::CreateTrigger { table_name, .. }
        | AuthAction::DropTrigger { table_name, .. }
        | AuthAction::CreateTempTrigger { table_name, .. }
        | AuthAction::CreateTempIndex { table_name, .. }
        | AuthAction::CreateTempTable { table_name } => Some(table_name),
        _ => None,
    }
}
