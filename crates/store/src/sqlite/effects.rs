//! What an effect writes with: its own tables inside the operation's transaction, and a memory for
//! every failure of the store, whatever the effect makes of it.

use std::time::Duration;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::observation::EffectSeen;
use counterfoil_core::record::EffectRef;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Error, OptionalExtension, ToSql, params_from_iter};

use super::faults::{Fault, Kind, kind, words};
use super::guard::{Guard, Whose};
use crate::digest::{DigestValue, RowDigest};
use crate::effect::{ColumnKind, EffectError, EffectTx, SqlTx, SqlValue};
use crate::error::StoreError;
use crate::tables::{Tables, arrange, column};

/// An effect's statement is stopped when it has run for this long: everybody's commit waits for it.
pub(super) const STATEMENT_BUDGET: Duration = Duration::from_secs(1);

/// The handle that one call of an effect gets.
pub(super) struct SqliteEffects<'a> {
    connection: &'a Connection,
    guard: &'a Guard,
    tables: &'a Tables,
    key: OperationKey,
    fault: Option<Fault>,
}

impl<'a> SqliteEffects<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        guard: &'a Guard,
        tables: &'a Tables,
        key: OperationKey,
    ) -> Self {
        Self { connection, guard, tables, key, fault: None }
    }

    /// What the store noticed while the effect ran.
    pub(super) fn into_fault(self) -> Option<Fault> {
        self.fault
    }

    /// Refuses to run anything once the transaction is gone: the statement would commit alone.
    fn check_sound(&mut self) -> Result<(), EffectError> {
        if self.fault.is_some() || self.connection.is_autocommit() {
            return Err(EffectError::Store("the transaction has already failed".into()));
        }
        Ok(())
    }

    /// Sorts a failed statement: the effect's own fault, or the store's.
    fn sort(&mut self, error: Error) -> EffectError {
        let gone = self.connection.is_autocommit();
        let said = words(&error);
        match kind(&error) {
            Kind::Constraint | Kind::Statement if !gone => return EffectError::Failed(said),
            Kind::Constraint | Kind::Statement => {
                self.fault = Some(Fault::Command(StoreError::EffectFailed {
                    reason: format!("{said}; the whole transaction was rolled back"),
                    refused: false,
                }));
            }
            Kind::Stopped => {
                let reason = format!(
                    "a statement ran for over {} ms and was stopped",
                    STATEMENT_BUDGET.as_millis()
                );
                self.fault =
                    Some(Fault::Command(StoreError::EffectFailed { reason, refused: false }));
            }
            Kind::Busy | Kind::Full | Kind::Io => self.fault = Some(Fault::Sqlite(error)),
        }
        EffectError::Store(said)
    }
}

impl EffectTx for SqliteEffects<'_> {
    fn insert(
        &mut self,
        table: &'static str,
        values: &[(&'static str, SqlValue)],
    ) -> Result<i64, EffectError> {
        self.check_sound()?;
        let spec = self.tables.find(table)?;
        let row = arrange(spec, values)?;
        let mut sql = format!("INSERT INTO \"{table}\" (operation_key");
        for column in spec.columns {
            sql.push_str(", \"");
            sql.push_str(column.name);
            sql.push('"');
        }
        sql.push_str(") VALUES (?");
        sql.push_str(&", ?".repeat(row.len()));
        sql.push(')');
        let key = self.key.as_bytes().as_slice();
        let cells = std::iter::once(Cell::Bytes(key)).chain(row.into_iter().map(Cell::Declared));
        let run = || -> rusqlite::Result<i64> {
            self.connection.prepare_cached(&sql)?.execute(params_from_iter(cells))?;
            Ok(self.connection.last_insert_rowid())
        };
        run().map_err(|error| self.sort(error))
    }

    fn exists(
        &mut self,
        table: &'static str,
        name: &'static str,
        value: &SqlValue,
    ) -> Result<bool, EffectError> {
        self.check_sound()?;
        let name = column(self.tables.find(table)?, name, value)?.name;
        let sql = format!("SELECT EXISTS (SELECT 1 FROM \"{table}\" WHERE \"{name}\" = ?1)");
        let run = || -> rusqlite::Result<bool> {
            self.connection
                .prepare_cached(&sql)?
                .query_row([Cell::Declared(value)], |row| row.get(0))
        };
        run().map_err(|error| self.sort(error))
    }

    fn delete(&mut self, table: &'static str, id: i64) -> Result<bool, EffectError> {
        self.check_sound()?;
        self.tables.find(table)?;
        let sql = format!("DELETE FROM \"{table}\" WHERE id = ?1");
        let run = || self.connection.prepare_cached(&sql)?.execute([id]);
        run().map(|count| count > 0).map_err(|error| self.sort(error))
    }

    fn sql(&mut self) -> Option<&mut dyn SqlTx> {
        Some(self)
    }
}

impl SqlTx for SqliteEffects<'_> {
    fn execute(&mut self, sql: &str, params: &[SqlValue]) -> Result<usize, EffectError> {
        self.check_sound()?;
        let sql = own_text(sql);
        let run = || {
            let mut statement = self.connection.prepare_cached(&sql)?;
            if statement.column_count() > 0 {
                return Err(Error::ExecuteReturnedResults);
            }
            let cells = params_from_iter(params.iter().map(Cell::Free));
            statement.execute(cells).map_err(without_values)
        };
        let outcome = self.guard.run_as(Whose::Effect, STATEMENT_BUDGET, run);
        outcome.map_err(|error| self.sort(error))
    }

    fn query_row(
        &mut self,
        sql: &str,
        params: &[SqlValue],
    ) -> Result<Option<Vec<SqlValue>>, EffectError> {
        self.check_sound()?;
        let sql = own_text(sql);
        let run = || {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let column_count = statement.column_count();
            statement
                .query_row(params_from_iter(params.iter().map(Cell::Free)), |row| {
                    (0..column_count).map(|at| sql_value(row.get(at)?)).collect()
                })
                .optional()
                .map_err(without_values)
        };
        let outcome = self.guard.run_as(Whose::Effect, STATEMENT_BUDGET, run);
        outcome.map_err(|error| self.sort(error))
    }

    fn last_insert_id(&self) -> i64 {
        self.connection.last_insert_rowid()
    }
}

/// An effect's SQL under a text that no statement of the store's has: the cache of statements is
/// shared, and the store's own were compiled with its own rights.
fn own_text(sql: &str) -> String {
    format!("/* effect */ {sql}")
}

/// The digest of a row's present values; `None` if there is no such row or table.
pub(super) fn read_digest(
    connection: &Connection,
    table: &str,
    id: i64,
) -> rusqlite::Result<Option<[u8; 32]>> {
    let sql = format!("SELECT * FROM \"{table}\" WHERE rowid = ?1");
    let mut statement = match connection.prepare_cached(&sql) {
        Err(error) if words(&error).starts_with("no such table") => return Ok(None),
        other => other?,
    };
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut digest = RowDigest::new();
    let columns = row.as_ref();
    for at in 0..columns.column_count() {
        let value = match row.get_ref(at)? {
            ValueRef::Null => DigestValue::Null,
            ValueRef::Integer(number) => DigestValue::Integer(number),
            ValueRef::Real(number) => DigestValue::Real(number),
            ValueRef::Text(bytes) => DigestValue::Text(bytes),
            ValueRef::Blob(bytes) => DigestValue::Blob(bytes),
        };
        digest.column(columns.column_name(at)?, value);
    }
    Ok(Some(digest.finish()))
}

/// What became of the row that a record names.
pub(super) fn look(
    connection: &Connection,
    effect: Option<&EffectRef>,
) -> rusqlite::Result<EffectSeen> {
    let Some(effect) = effect else { return Ok(EffectSeen::NotLocal) };
    Ok(match read_digest(connection, &effect.table, effect.id)? {
        None => EffectSeen::Missing,
        Some(digest) if digest == effect.digest => EffectSeen::Same,
        Some(_) => EffectSeen::Changed,
    })
}

/// A value on its way into a statement.
enum Cell<'a> {
    Bytes(&'a [u8]),
    /// Of a declared column: text is kept as its bytes.
    Declared(&'a SqlValue),
    /// Of an embedder's statement: as it is.
    Free(&'a SqlValue),
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::Declared(SqlValue::Text(text)) => ValueRef::Blob(text.as_bytes()),
            Self::Declared(value) | Self::Free(value) => match value {
                SqlValue::Null => ValueRef::Null,
                SqlValue::Integer(number) => ValueRef::Integer(*number),
                SqlValue::Real(number) => ValueRef::Real(*number),
                SqlValue::Text(text) => ValueRef::Text(text.as_bytes()),
                SqlValue::Blob(bytes) => ValueRef::Blob(bytes),
            },
        }))
    }
}

fn sql_value(value: Value) -> rusqlite::Result<SqlValue> {
    Ok(match value {
        Value::Null => SqlValue::Null,
        Value::Integer(number) => SqlValue::Integer(number),
        Value::Real(number) => SqlValue::Real(number),
        Value::Text(text) => SqlValue::Text(text),
        Value::Blob(bytes) => SqlValue::Blob(bytes),
    })
}

/// The column's type in a declared table.
pub(super) const fn sql_type(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Integer => "INTEGER",
        ColumnKind::Text => "BLOB",
    }
}

/// Of a statement that failed while it ran, SQLite's words may hold a bound value (a full-text
/// query does), and they go on into errors and the audit trail. What a constraint or trigger says
/// stands in the schema; everything else is cut to the code's own description.
fn without_values(error: Error) -> Error {
    match error {
        Error::SqliteFailure(code, Some(_))
            if kind(&Error::SqliteFailure(code, None)) == Kind::Statement =>
        {
            Error::SqliteFailure(code, None)
        }
        error => error,
    }
}
