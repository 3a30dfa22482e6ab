//! The tables that effects declare: checked once at open, so that no name reaches SQL unchecked.

use crate::effect::{Column, ColumnKind, EffectError, SqlValue, TableSpec};

/// The ledger's own tables. No effect declares or writes one.
pub(crate) const LEDGER_TABLES: [&str; 14] = [
    "audit_events",
    "direct_memos",
    "direct_replies",
    "directs",
    "keys",
    "ledger",
    "operations",
    "outbox",
    "outbox_orders",
    "outbox_requests",
    "outbox_revocations",
    "outbox_targets",
    "outbox_terms",
    "tenants",
];

/// The column that ties every row of a declared table to the operation that made it.
pub(crate) const OPERATION_KEY: &str = "operation_key";

const MAX_IDENTIFIER_BYTES: usize = 63;

/// Declared tables whose names and columns are known to be good.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables(Vec<TableSpec>);

impl Tables {
    /// # Errors
    /// The rule that a declaration breaks, in words that name it.
    pub(crate) fn declare(specs: Vec<TableSpec>) -> Result<Self, String> {
        for (at, spec) in specs.iter().enumerate() {
            check_name("table", spec.name)?;
            if LEDGER_TABLES.contains(&spec.name) || spec.name.starts_with("sqlite_") {
                return Err(format!("`{}` is a name of the ledger's own; use another", spec.name));
            }
            if specs[..at].iter().any(|other| other.name == spec.name) {
                return Err(format!("table `{}` is declared twice; declare it once", spec.name));
            }
            check_columns(spec)?;
        }
        Ok(Self(specs))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TableSpec> {
        self.0.iter()
    }

    /// # Errors
    /// [`EffectError::Failed`] if no such table is declared.
    pub(crate) fn find(&self, name: &str) -> Result<&TableSpec, EffectError> {
        self.0.iter().find(|spec| spec.name == name).ok_or_else(|| {
            EffectError::Failed(format!("table `{name}` is not declared; declare it at open"))
        })
    }
}

/// The values of a new row in the order of the table's columns.
///
/// # Errors
/// [`EffectError::Failed`] if a column is missing, unknown, named twice, or of another type.
pub(crate) fn arrange<'v>(
    spec: &TableSpec,
    values: &'v [(&'static str, SqlValue)],
) -> Result<Vec<&'v SqlValue>, EffectError> {
    let failed = |problem: String| EffectError::Failed(format!("table `{}` {problem}", spec.name));
    if let Some((unknown, _)) =
        values.iter().find(|(name, _)| !spec.columns.iter().any(|column| column.name == *name))
    {
        return Err(failed(format!("has no column `{unknown}`")));
    }
    let mut row = Vec::with_capacity(spec.columns.len());
    for column in spec.columns {
        let mut given = values.iter().filter(|(name, _)| *name == column.name);
        let Some((_, value)) = given.next() else {
            return Err(failed(format!("needs a value for its column `{}`", column.name)));
        };
        if given.next().is_some() {
            return Err(failed(format!("got two values for its column `{}`", column.name)));
        }
        check_kind(spec, column, value)?;
        row.push(value);
    }
    Ok(row)
}

/// A declared column by its name, and whether `value` is of its type.
///
/// # Errors
/// [`EffectError::Failed`] if there is no such column or the type is another.
pub(crate) fn column<'t>(
    spec: &'t TableSpec,
    name: &str,
    value: &SqlValue,
) -> Result<&'t Column, EffectError> {
    let column = spec.columns.iter().find(|column| column.name == name).ok_or_else(|| {
        EffectError::Failed(format!("table `{}` has no column `{name}`", spec.name))
    })?;
    check_kind(spec, column, value)?;
    Ok(column)
}

/// The words in which an append-only table refuses; the same in every back end.
pub(crate) fn append_only_words(table: &str) -> String {
    format!("table {table} is append-only: its rows can be neither changed nor deleted")
}

/// Whether a name may stand in SQL: letters, digits and underscores, no digit first.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.len() <= MAX_IDENTIFIER_BYTES
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// Whether a table is the ledger's own, or the database's.
pub(crate) fn is_reserved(table: &str) -> bool {
    LEDGER_TABLES.iter().any(|own| own.eq_ignore_ascii_case(table))
        || table.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_"))
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    if is_identifier(name) && !name.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(());
    }
    Err(format!(
        "`{name}` cannot name a {what}; use 1 to {MAX_IDENTIFIER_BYTES} lower-case letters, digits \
         and underscores, no digit first"
    ))
}

fn check_columns(spec: &TableSpec) -> Result<(), String> {
    for (at, column) in spec.columns.iter().enumerate() {
        check_name("column", column.name)?;
        let table = spec.name;
        if matches!(column.name, "id" | "rowid" | "oid" | "_rowid_" | OPERATION_KEY) {
            return Err(format!(
                "column `{}` of table `{table}` is made by the store; leave it out",
                column.name
            ));
        }
        if spec.columns[..at].iter().any(|other| other.name == column.name) {
            return Err(format!("table `{table}` has two columns `{}`", column.name));
        }
    }
    if spec.columns.is_empty() {
        return Err(format!("table `{}` has no column; declare one", spec.name));
    }
    Ok(())
}

fn check_kind(spec: &TableSpec, column: &Column, value: &SqlValue) -> Result<(), EffectError> {
    match (column.kind, value) {
        (ColumnKind::Integer, SqlValue::Integer(_)) | (ColumnKind::Text, SqlValue::Text(_)) => {
            Ok(())
        }
        (kind, _) => Err(EffectError::Failed(format!(
            "column `{}` of table `{}` takes {} and got another type",
            column.name,
            spec.name,
            match kind {
                ColumnKind::Integer => "an integer",
                ColumnKind::Text => "text",
            }
        ))),
    }
}
