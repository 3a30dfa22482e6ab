//! The effect behind `create_issue`: a row in the ledger's own issue table, and in `partial` mode a
//! second step that fails as real second steps do.

use counterfoil_core::record::{EffectRef, StoredResult};
use counterfoil_store::{
    Column, ColumnKind, Completion, EffectContext, EffectError, EffectRow, EffectTx, LocalEffect,
    TableSpec,
};

const ISSUES: &str = "issues";
const WATCHERS: &str = "watchers";
const SUBSCRIBERS: &str = "subscribers";

/// Who is to watch an issue that is made in `partial` mode. Nobody has subscribed under this name,
/// so the step fails, and the issue cannot be taken back, because issues are append-only.
const WATCHER: &str = "triage";

const TEXT: ColumnKind = ColumnKind::Text;

/// The tables that the built-in issue tool needs.
#[must_use]
pub fn tables() -> Vec<TableSpec> {
    vec![
        TableSpec {
            name: ISSUES,
            columns: &[
                Column { name: "title", kind: TEXT },
                Column { name: "body", kind: TEXT },
                Column { name: "operation_id", kind: TEXT },
                Column { name: "created_at_ms", kind: ColumnKind::Integer },
            ],
            append_only: true,
        },
        TableSpec {
            name: WATCHERS,
            columns: &[
                Column { name: "issue_id", kind: ColumnKind::Integer },
                Column { name: "name", kind: TEXT },
            ],
            append_only: false,
        },
        TableSpec {
            name: SUBSCRIBERS,
            columns: &[Column { name: "name", kind: TEXT }],
            append_only: false,
        },
    ]
}

/// Whether an issue is one write or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One transaction: the issue.
    Atomic,
    /// Two: the issue, then its watcher.
    Partial,
}

/// One issue to be made.
#[derive(Debug)]
pub struct CreateIssue {
    /// The issue's title.
    pub title: String,
    /// The issue's body.
    pub body: String,
    /// One write or two.
    pub mode: Mode,
}

impl LocalEffect for CreateIssue {
    fn apply(
        &self,
        tx: &mut dyn EffectTx,
        context: &EffectContext<'_>,
    ) -> Result<Completion, EffectError> {
        let id = tx.insert(
            ISSUES,
            &[
                ("title", self.title.as_str().into()),
                ("body", self.body.as_str().into()),
                ("operation_id", context.operation_id.as_str().into()),
                ("created_at_ms", context.now.as_ms().into()),
            ],
        )?;
        let row = EffectRow { table: ISSUES, id };
        Ok(match self.mode {
            Mode::Atomic => Completion::Whole { row: Some(row), result: created(id) },
            Mode::Partial => Completion::FirstStep { row },
        })
    }

    fn follow_up(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<StoredResult, EffectError> {
        tx.insert(WATCHERS, &[("issue_id", first.id.into()), ("name", WATCHER.into())])?;
        if !tx.exists(SUBSCRIBERS, "name", &WATCHER.into())? {
            return Err(EffectError::Failed(format!(
                "the watcher `{WATCHER}` cannot be notified: nobody has subscribed under that name"
            )));
        }
        Ok(created(first.id))
    }

    fn compensate(
        &self,
        tx: &mut dyn EffectTx,
        _context: &EffectContext<'_>,
        first: &EffectRef,
    ) -> Result<(), EffectError> {
        tx.delete(ISSUES, first.id).map(|_| ())
    }

    fn partial_result(&self, first: &EffectRef) -> StoredResult {
        StoredResult::from_text(&format!(
            "created {}; watcher absent; compensation failed",
            first.id
        ))
    }
}

fn created(id: i64) -> StoredResult {
    StoredResult::from_text(&format!("created {id}"))
}
