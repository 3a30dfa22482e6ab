//! An effect in the ledger's own database: rows that commit in the operation's own transaction.

use std::fmt::Debug;

use counterfoil_core::identity::{OperationId, OperationKey};
use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_core::time::Timestamp;

/// An effect that the store runs inside the operation's transaction. An embedder implements this
/// for its own tables.
///
/// It must only touch what it is handed: it runs on the ledger's writer, and everybody else's
/// commit waits for it. It may be called again for one operation, after what it wrote was rolled
/// back through no fault of its own; only the last call's writes stay.
pub trait LocalEffect: Debug + Send + Sync + 'static {
    /// Makes the effect, or its first step. Whatever it wrote is rolled back if it fails or panics,
    /// and then no record is left either.
    ///
    /// # Errors
    /// [`EffectError`] as the effect sees fit; the store's own faults come back through `tx`.
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError>;

    /// The step that follows a first commit, in a transaction of its own.
    ///
    /// # Errors
    /// [`EffectError`] if the step could not be done: what it wrote is rolled back, and
    /// [`compensate`](Self::compensate) runs. A panic counts as failure.
    fn follow_up(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        let _ = (tx, context, first);
        Err(EffectError::Failed("this effect has no further step".into()))
    }

    /// Takes the first step back after [`follow_up`](Self::follow_up) failed.
    ///
    /// # Errors
    /// [`EffectError`] if the first step cannot be taken back: the operation is then `partial`. A
    /// panic counts as failure.
    fn compensate(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<(), EffectError> {
        let _ = (tx, context, first);
        Err(EffectError::Failed("this effect has no compensation".into()))
    }

    /// The result to store when a later step failed, for the reason `why`, and
    /// [`compensate`](Self::compensate) took the first one back.
    fn undone_result(&self, first: &EffectRef, why: &str) -> StoredResult {
        StoredResult::from_text(&format!("{} was taken back, because a later step {why}", first.id))
    }

    /// The result to store when a later step and its compensation both failed.
    fn partial_result(&self, first: &EffectRef) -> StoredResult {
        StoredResult::from_text(&format!("created {}; a later step failed", first.id))
    }
}

/// What an effect may know of its operation.
#[derive(Debug, Clone, Copy)]
pub struct EffectContext<'a> {
    /// The operation.
    pub operation_id: &'a OperationId,
    /// The ledger's own key of it, for an embedder's tables that refer to operations.
    pub operation_key: OperationKey,
    /// The store's time of the transaction.
    pub now: Timestamp,
}

/// How far [`LocalEffect::apply`] came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// The effect is whole: its row, if it made one, and the result to store.
    Whole {
        /// The row that a status read checks.
        row: Option<EffectRow>,
        /// What a replay gives.
        result: StoredResult,
    },
    /// The first step is done; [`LocalEffect::follow_up`] comes after its commit.
    FirstStep {
        /// The row that a status read checks.
        row: EffectRow,
    },
}

/// A row that an effect made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRow {
    /// The table; its integer primary key is the rowid.
    pub table: &'static str,
    /// The row.
    pub id: i64,
}

/// Why an effect did not happen. In both cases nothing of it is left.
///
/// The words go to the caller, and those of a later step into the audit trail: they must hold no
/// argument's value. The same goes for the words of `RAISE` in an embedder's triggers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EffectError {
    /// The request is not acceptable, and never will be as it stands.
    #[error("refused: {0}")]
    Refused(String),
    /// It failed; the same operation may be tried again.
    #[error("failed: {0}")]
    Failed(String),
    /// The store failed beneath the effect: the store decides what follows, whatever the effect
    /// makes of it.
    #[error("the store failed: {0}")]
    Store(String),
}

/// What an effect writes with. There is no way to begin, commit or roll back.
pub trait EffectTx {
    /// Inserts a row into a declared table and returns its integer key. A key is never used twice,
    /// not even after its row is deleted.
    ///
    /// # Errors
    /// [`EffectError::Failed`] if a constraint of the table refuses the row;
    /// [`EffectError::Store`] if the store failed.
    fn insert(
        &mut self,
        table: &'static str,
        values: &[(&'static str, SqlValue)],
    ) -> Result<i64, EffectError>;

    /// Whether a declared table holds a row with this value.
    ///
    /// # Errors
    /// [`EffectError::Store`] if the store failed.
    fn exists(
        &mut self,
        table: &'static str,
        column: &'static str,
        value: &SqlValue,
    ) -> Result<bool, EffectError>;

    /// Deletes a row by its key; says whether it was there.
    ///
    /// # Errors
    /// [`EffectError::Failed`] if the table is append-only; [`EffectError::Store`] if the store
    /// failed.
    fn delete(&mut self, table: &'static str, id: i64) -> Result<bool, EffectError>;

    /// SQL on the embedder's own tables; `None` where the back end has no SQL.
    fn sql(&mut self) -> Option<&mut dyn SqlTx>;
}

/// SQL without transaction control: BEGIN, COMMIT, SAVEPOINT, ATTACH, PRAGMA and the ledger's own
/// tables are refused, and a statement that runs longer than its time budget is stopped.
pub trait SqlTx {
    /// Runs one statement and returns the number of rows that it changed.
    ///
    /// # Errors
    /// [`EffectError::Failed`] with the database's words; [`EffectError::Store`] if the store
    /// failed.
    fn execute(&mut self, sql: &str, params: &[SqlValue]) -> Result<usize, EffectError>;

    /// The first row of a query.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    fn query_row(
        &mut self,
        sql: &str,
        params: &[SqlValue],
    ) -> Result<Option<Vec<SqlValue>>, EffectError>;

    /// The integer key of the last inserted row.
    fn last_insert_id(&self) -> i64;
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for SqlValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

/// A table that an effect writes to through [`EffectTx::insert`]; the store creates it, with two
/// columns more: `id`, the key, and `operation_key`, the operation that made the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// Lower-case letters, digits and underscores.
    pub name: &'static str,
    /// The columns beside `id` and `operation_key`.
    pub columns: &'static [Column],
    /// Whether rows can be neither changed nor deleted.
    pub append_only: bool,
}

/// A column of a [`TableSpec`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Lower-case letters, digits and underscores.
    pub name: &'static str,
    /// Its type.
    pub kind: ColumnKind,
}

/// The type of a column. No column is nullable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// 64-bit integer.
    Integer,
    /// Text, kept as its UTF-8 bytes: U+0000 is legal in it.
    Text,
}
