//! Effects that do, or fail to do, what a test is about.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_store::{
    Column, ColumnKind, Completion, EffectContext, EffectError, EffectRow, EffectTx, LocalEffect,
    TableSpec,
};

pub const NOTES: &str = "notes";
pub const TAGS: &str = "tags";

/// The tables of the tests: `notes` can only grow, `tags` can be changed.
pub fn tables() -> Vec<TableSpec> {
    vec![
        TableSpec {
            name: NOTES,
            columns: &[
                Column { name: "text", kind: ColumnKind::Text },
                Column { name: "at_ms", kind: ColumnKind::Integer },
            ],
            append_only: true,
        },
        TableSpec {
            name: TAGS,
            columns: &[
                Column { name: "note_id", kind: ColumnKind::Integer },
                Column { name: "word", kind: ColumnKind::Text },
            ],
            append_only: false,
        },
    ]
}

/// How a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    Well,
    Fails,
    Panics,
}

/// How the first call of an effect goes.
#[derive(Debug, Clone, PartialEq)]
pub enum First {
    /// Inserts a note, whole.
    Note,
    /// Makes no row at all.
    NoRow,
    /// Inserts a tag and leaves the rest to the next step.
    Step,
    /// Inserts a note, then fails.
    FailsAfterInsert,
    /// Inserts a note, then refuses.
    RefusesAfterInsert,
    /// Inserts a note, then panics.
    PanicsAfterInsert,
    /// Names a row that it did not make.
    NamesNothing,
    /// Names a row of the ledger's own.
    NamesLedger,
    /// Gives a result of so many bytes.
    Result(usize),
}

/// An effect that counts how often it was called.
#[derive(Debug, Clone)]
pub struct Probe {
    pub first: First,
    pub follow_up: Goes,
    pub compensate: Goes,
    pub text: String,
    pub calls: Arc<AtomicUsize>,
}

pub fn probe(first: First) -> Probe {
    Probe {
        first,
        follow_up: Goes::Well,
        compensate: Goes::Well,
        text: "hello".into(),
        calls: Arc::default(),
    }
}

pub fn note(text: &str) -> Probe {
    Probe { text: text.into(), ..probe(First::Note) }
}

/// An effect of two steps, of which the second and the compensation go as said.
pub fn two_steps(follow_up: Goes, compensate: Goes) -> Probe {
    Probe { follow_up, compensate, ..probe(First::Step) }
}

impl Probe {
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn insert(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
    ) -> Result<EffectRow, EffectError> {
        let at_ms = context.now.as_ms().into();
        let id = tx.insert(NOTES, &[("text", self.text.as_str().into()), ("at_ms", at_ms)])?;
        Ok(EffectRow { table: NOTES, id })
    }
}

fn created(id: i64) -> StoredResult {
    StoredResult::from_text(&format!("created {id}"))
}

fn go<T>(how: Goes, value: T) -> Result<T, EffectError> {
    match how {
        Goes::Well => Ok(value),
        Goes::Fails => Err(EffectError::Failed("said no".into())),
        Goes::Panics => panic!("an effect's own panic, which this test is about"),
    }
}

impl LocalEffect for Probe {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let whole = |row: EffectRow| {
            let result = created(row.id);
            Completion::Whole { row: Some(row), result }
        };
        match self.first {
            First::Note => self.insert(tx, context).map(whole),
            First::NoRow => {
                Ok(Completion::Whole { row: None, result: StoredResult::from_text("done") })
            }
            First::Step => {
                let word = self.text.as_str().into();
                let id = tx.insert(TAGS, &[("note_id", 0.into()), ("word", word)])?;
                Ok(Completion::FirstStep { row: EffectRow { table: TAGS, id } })
            }
            First::FailsAfterInsert => {
                self.insert(tx, context)?;
                Err(EffectError::Failed("said no".into()))
            }
            First::RefusesAfterInsert => {
                self.insert(tx, context)?;
                Err(EffectError::Refused("never".into()))
            }
            First::PanicsAfterInsert => {
                self.insert(tx, context)?;
                go(Goes::Panics, Completion::Whole { row: None, result: created(0) })
            }
            First::NamesNothing => Ok(whole(EffectRow { table: NOTES, id: 4711 })),
            First::NamesLedger => Ok(whole(EffectRow { table: "ledger", id: 1 })),
            First::Result(length) => Ok(Completion::Whole {
                row: None,
                result: StoredResult::from_text(&"x".repeat(length)),
            }),
        }
    }

    fn follow_up(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        tx.insert(TAGS, &[("note_id", first.id.into()), ("word", "second".into())])?;
        go(self.follow_up, created(first.id))
    }

    fn compensate(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<(), EffectError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        tx.delete(TAGS, first.id)?;
        go(self.compensate, ())
    }
}

/// Makes nothing: refuses with whether a row is there.
#[derive(Debug, Clone)]
pub struct Look {
    pub table: &'static str,
    pub column: &'static str,
    pub text: String,
}

impl LocalEffect for Look {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        let seen = tx.exists(self.table, self.column, &self.text.as_str().into())?;
        Err(EffectError::Refused(format!("seen {seen}")))
    }
}

type Work = dyn Fn(&mut dyn EffectTx) -> Result<(), EffectError> + Send + Sync;

/// Runs a closure and makes no row of its own.
#[derive(Clone)]
pub struct Do(Arc<Work>);

impl std::fmt::Debug for Do {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Do")
    }
}

pub fn run(
    work: impl Fn(&mut dyn EffectTx) -> Result<(), EffectError> + Send + Sync + 'static,
) -> Do {
    Do(Arc::new(work))
}

impl LocalEffect for Do {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        (self.0)(tx)?;
        Ok(Completion::Whole { row: None, result: StoredResult::from_text("done") })
    }
}
