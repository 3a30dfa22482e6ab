//! Declared effect tables in SQL: made when they are missing, compared when they are there.

use rusqlite::Connection;

use super::effects::sql_type;
use crate::effect::TableSpec;
use crate::tables::{OPERATION_KEY, Tables, append_only_words};

/// The declared tables that are not there yet. The inner error is how one that is there differs.
pub(super) fn missing<'t>(
    connection: &Connection,
    tables: &'t Tables,
) -> rusqlite::Result<Result<Vec<&'t TableSpec>, String>> {
    let mut missing = Vec::new();
    for spec in tables.iter() {
        let found = columns(connection, spec.name)?;
        if found.is_empty() {
            missing.push(spec);
        } else if found != wanted(spec) {
            return Ok(Err(format!(
                "table `{}` has the columns ({}) and is declared with ({}); declare it as it is, \
                 or under a new name",
                spec.name,
                found.join(", "),
                wanted(spec).join(", ")
            )));
        }
    }
    Ok(Ok(missing))
}

/// Makes a table inside the present transaction. Keys are never used twice; no row of an
/// append-only table is ever changed or deleted.
pub(super) fn make(connection: &Connection, spec: &TableSpec) -> rusqlite::Result<()> {
    let name = spec.name;
    let mut sql = format!(
        "CREATE TABLE IF NOT EXISTS \"{name}\" (\n    id INTEGER PRIMARY KEY AUTOINCREMENT,\n    \
         {OPERATION_KEY} BLOB NOT NULL"
    );
    for column in spec.columns {
        let (column, kind) = (column.name, sql_type(column.kind));
        sql.push_str(&format!(",\n    \"{column}\" {kind} NOT NULL"));
    }
    sql.push_str("\n) STRICT;\n");
    if spec.append_only {
        // REPLACE deletes without asking the trigger on DELETE, so it is refused as an insert.
        let taken = format!(" WHEN EXISTS (SELECT 1 FROM \"{name}\" WHERE id = NEW.id)");
        for (event, when) in [("UPDATE", ""), ("DELETE", ""), ("INSERT", taken.as_str())] {
            sql.push_str(&format!(
                "CREATE TRIGGER IF NOT EXISTS \"{name}_stays_on_{}\" BEFORE {event} ON \
                 \"{name}\"{when} BEGIN SELECT RAISE(ABORT, '{}'); END;\n",
                event.to_ascii_lowercase(),
                append_only_words(name)
            ));
        }
    }
    connection.execute_batch(&sql)
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare("SELECT name || ' ' || type FROM pragma_table_info(?1)")?
        .query_map([table], |row| row.get(0))?
        .collect()
}

fn wanted(spec: &TableSpec) -> Vec<String> {
    let mut columns = vec!["id INTEGER".to_owned(), format!("{OPERATION_KEY} BLOB")];
    columns.extend(spec.columns.iter().map(|c| format!("{} {}", c.name, sql_type(c.kind))));
    columns
}
