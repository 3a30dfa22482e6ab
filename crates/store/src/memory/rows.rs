//! The rows of effects in memory, with what a transaction needs to take them back.

use std::collections::BTreeMap;

use counterfoil_core::identity::OperationKey;
use counterfoil_core::observation::EffectSeen;
use counterfoil_core::record::EffectRef;

use crate::digest::{DigestValue, RowDigest};
use crate::effect::{EffectError, EffectTx, SqlTx, SqlValue, TableSpec};
use crate::tables::{OPERATION_KEY, Tables, append_only_words, arrange, column};

/// All declared tables.
#[derive(Debug)]
pub(super) struct Rows {
    specs: Tables,
    tables: BTreeMap<&'static str, Table>,
    /// How to take back what the present transaction did, in reverse.
    undo: Vec<Undo>,
}

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<i64, Row>,
    /// The largest key that was ever given out and not taken back.
    last_id: i64,
}

#[derive(Debug, Clone)]
struct Row {
    operation_key: OperationKey,
    values: Vec<SqlValue>,
}

#[derive(Debug)]
enum Undo {
    Insert { table: &'static str, id: i64 },
    Delete { table: &'static str, id: i64, row: Row },
}

/// A point to which the present transaction can be taken back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Savepoint(usize);

impl Rows {
    pub(super) fn new(specs: Tables) -> Self {
        let tables = specs.iter().map(|spec| (spec.name, Table::default())).collect();
        Self { specs, tables, undo: Vec::new() }
    }

    pub(super) fn savepoint(&self) -> Savepoint {
        Savepoint(self.undo.len())
    }

    pub(super) fn roll_back_to(&mut self, savepoint: Savepoint) {
        while self.undo.len() > savepoint.0 {
            match self.undo.pop() {
                Some(Undo::Insert { table, id }) => {
                    if let Some(table) = self.tables.get_mut(table) {
                        table.rows.remove(&id);
                        table.last_id = id - 1;
                    }
                }
                Some(Undo::Delete { table, id, row }) => {
                    if let Some(table) = self.tables.get_mut(table) {
                        table.rows.insert(id, row);
                    }
                }
                None => {}
            }
        }
    }

    /// Takes back all that the present transaction did.
    pub(super) fn roll_back(&mut self) {
        self.roll_back_to(Savepoint(0));
    }

    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    /// The digest of a row's present values; `None` if there is no such row or table.
    pub(super) fn digest(&self, table: &str, id: i64) -> Option<[u8; 32]> {
        let spec = self.specs.find(table).ok()?;
        let row = self.tables.get(table)?.rows.get(&id)?;
        let mut digest = RowDigest::new();
        digest.column("id", DigestValue::Integer(id));
        digest.column(OPERATION_KEY, DigestValue::Blob(row.operation_key.as_bytes()));
        for (column, value) in spec.columns.iter().zip(&row.values) {
            digest.column(column.name, digest_value(value));
        }
        Some(digest.finish())
    }

    pub(super) fn look(&self, effect: Option<&EffectRef>) -> EffectSeen {
        let Some(effect) = effect else { return EffectSeen::NotLocal };
        match self.digest(&effect.table, effect.id) {
            None => EffectSeen::Missing,
            Some(digest) if digest == effect.digest => EffectSeen::Same,
            Some(_) => EffectSeen::Changed,
        }
    }

    fn table(&mut self, name: &str) -> Result<(&TableSpec, &mut Table), EffectError> {
        let spec = self.specs.find(name)?;
        let table = self.tables.get_mut(name).expect("every declared table was made in new()");
        Ok((spec, table))
    }
}

/// Declared text is kept as its bytes, as the durable back ends keep it.
fn digest_value(value: &SqlValue) -> DigestValue<'_> {
    match value {
        SqlValue::Null => DigestValue::Null,
        SqlValue::Integer(number) => DigestValue::Integer(*number),
        SqlValue::Real(number) => DigestValue::Real(*number),
        SqlValue::Text(text) => DigestValue::Blob(text.as_bytes()),
        SqlValue::Blob(bytes) => DigestValue::Blob(bytes),
    }
}

/// The handle that one call of an effect gets.
#[derive(Debug)]
pub(super) struct MemoryEffects<'a> {
    pub(super) rows: &'a mut Rows,
    pub(super) key: OperationKey,
}

impl EffectTx for MemoryEffects<'_> {
    fn insert(
        &mut self,
        table: &'static str,
        values: &[(&'static str, SqlValue)],
    ) -> Result<i64, EffectError> {
        let (spec, kept) = self.rows.table(table)?;
        let values = arrange(spec, values)?.into_iter().cloned().collect();
        let id = kept.last_id + 1;
        kept.last_id = id;
        kept.rows.insert(id, Row { operation_key: self.key, values });
        self.rows.undo.push(Undo::Insert { table, id });
        Ok(id)
    }

    fn exists(
        &mut self,
        table: &'static str,
        name: &'static str,
        value: &SqlValue,
    ) -> Result<bool, EffectError> {
        let (spec, kept) = self.rows.table(table)?;
        let name = column(spec, name, value)?.name;
        let at = spec.columns.iter().position(|column| column.name == name);
        let at = at.expect("column() found it");
        Ok(kept.rows.values().any(|row| row.values[at] == *value))
    }

    fn delete(&mut self, table: &'static str, id: i64) -> Result<bool, EffectError> {
        let (spec, kept) = self.rows.table(table)?;
        if spec.append_only && kept.rows.contains_key(&id) {
            return Err(EffectError::Failed(append_only_words(table)));
        }
        let Some(row) = kept.rows.remove(&id) else { return Ok(false) };
        self.rows.undo.push(Undo::Delete { table, id, row });
        Ok(true)
    }

    fn sql(&mut self) -> Option<&mut dyn SqlTx> {
        None
    }
}
