//! The works that are interrupted, each with the ledger that it begins on.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use counterfoil_store::{SqliteStore, Store};
use rusqlite::Connection;

use super::scene::{HandClock, ledger, options};
use super::steps::{Act, Step, Subject, take};

/// A work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    /// What was done before, on a sound disk.
    prepared: Vec<Step>,
    /// How that ledger was left.
    left: Left,
    /// How much later the work begins.
    pub(super) later: Duration,
    /// Whether opening the ledger is a part of the work.
    pub(super) opens: bool,
    /// Whether all steps are taken at once.
    pub(super) together: bool,
    /// The steps, in order.
    pub(super) steps: Vec<Step>,
    /// Rows of effects when all is done.
    pub(super) rows_count: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Closed,
    /// Not closed: everything is in its log.
    InLog,
    /// With the schema of an older version.
    Old,
}

/// Takes a ledger's schema back to what it was before there was an outbox.
const WITHOUT_OUTBOX: &str = "DROP TABLE direct_memos; DROP TABLE direct_replies; \
    DROP TABLE directs; DROP INDEX directs_due; DROP TABLE outbox_requests; DROP TABLE outbox; \
    DROP TABLE outbox_targets; DROP TABLE outbox_terms; DROP TABLE outbox_revocations; \
    DROP TABLE outbox_orders; ALTER TABLE operations DROP COLUMN nature; \
    UPDATE ledger SET version = 2, min_compatible = 1";

const FIRST: &str = "InProgress(FirstCommit)";
const APPLIED: &str = "Applied";

fn work(name: &'static str, steps: Vec<Step>, rows_count: i64) -> Work {
    Work {
        name,
        prepared: Vec::new(),
        left: Left::Closed,
        later: Duration::ZERO,
        opens: false,
        together: false,
        steps,
        rows_count,
    }
}

/// The IDs of the work that takes all its steps at once.
fn many() -> &'static [String] {
    static IDS: OnceLock<Vec<String>> = OnceLock::new();
    IDS.get_or_init(|| (0..48).map(|number| format!("op-{number}")).collect())
}

/// Every short work.
pub(super) fn short() -> Vec<Work> {
    use Subject::{Delivery, Direct, Kept, Key, Operation, Revocation, Schema, Target};
    let one = Step(Act::Submit, Operation("one"), APPLIED);
    let two = Step(Act::Submit, Operation("two"), APPLIED);
    let first = Step(Act::SubmitFirst, Operation("half"), FIRST);
    let accept = Step(Act::Accept, Delivery("item"), "Queued");
    let open = Step(Act::Open, Schema, "opened");
    let day = Duration::from_secs(86_400);
    vec![
        work("one-step", vec![one, two], 2),
        work("two-steps", vec![first, Step(Act::Finish, Operation("half"), APPLIED)], 2),
        work(
            "outbox",
            vec![
                accept,
                Step(Act::Claim, Delivery("item"), "Leased"),
                Step(Act::BeginSend, Delivery("item"), "Sending"),
                Step(Act::Report, Delivery("item"), "Delivered"),
            ],
            0,
        ),
        work(
            "direct",
            vec![
                Step(Act::Begin, Direct("call"), "InProgress(Claimed)"),
                Step(Act::Dispatch, Direct("call"), "InProgress(Dispatched)"),
                Step(Act::Conclude, Direct("call"), APPLIED),
            ],
            0,
        ),
        Work {
            prepared: vec![first, accept],
            later: Duration::from_secs(60),
            ..work(
                "orders",
                vec![
                    Step(Act::Resolve, Operation("half"), APPLIED),
                    Step(Act::Cancel, Delivery("item"), "Cancelled"),
                    Step(Act::Pause, Target, "paused"),
                    Step(Act::Revoke, Revocation, "revoked"),
                ],
                1,
            )
        },
        Work {
            prepared: vec![one],
            later: 32 * day,
            ..work("purge", vec![Step(Act::Purge, Kept("one"), "purged")], 1)
        },
        Work {
            prepared: vec![Step(Act::BindFirstKey, Key(1), "kept"), one],
            ..work("key-rotation", vec![Step(Act::BindKeys, Key(2), "kept"), two], 2)
        },
        Work { left: Left::Nothing, opens: true, ..work("fresh-ledger", vec![open, one], 1) },
        Work {
            prepared: vec![one],
            left: Left::Old,
            opens: true,
            ..work("migration", vec![open, two], 2)
        },
        Work {
            prepared: vec![one],
            left: Left::InLog,
            opens: true,
            ..work("recovery", vec![open, two], 2)
        },
    ]
}

/// Many large calls at once, so that the log is written back meanwhile.
pub(super) fn long() -> Work {
    let step = |id: &'static String| Step(Act::SubmitLarge, Subject::Operation(id), APPLIED);
    Work { together: true, ..work("concurrent", many().iter().map(step).collect(), 48) }
}

impl Work {
    /// How things stand before the first step.
    pub(super) fn before(&self, subject: Subject) -> &'static str {
        if let Subject::Kept(_) = subject {
            return "kept";
        }
        let last = self.prepared.iter().rev().find(|step| step.1 == subject);
        last.map_or(super::steps::ABSENT, |step| step.2)
    }

    /// Every subject of its steps and of what was done before.
    pub(super) fn subjects(&self) -> std::collections::BTreeSet<Subject> {
        self.prepared.iter().chain(&self.steps).map(|step| step.1).collect()
    }

    /// Makes the ledger that the work begins on.
    pub(super) async fn prepare(&self, directory: &Path) -> anyhow::Result<()> {
        if self.left == Left::Nothing {
            return Ok(());
        }
        let making = tempfile::tempdir()?;
        let store = SqliteStore::open(&options(making.path(), &HandClock::new()))?;
        for step in &self.prepared {
            take(&store, *step).await.map_err(|stop| anyhow!("preparing: {stop:?}"))?;
        }
        let copy = || -> anyhow::Result<()> {
            for suffix in ["", "-wal"] {
                let name = format!("ledger.db{suffix}");
                let from = making.path().join(&name);
                if from.exists() {
                    std::fs::copy(&from, directory.join(&name)).context("copying the ledger")?;
                }
            }
            Ok(())
        };
        if self.left == Left::InLog {
            copy()?;
        }
        store.close().await?;
        if self.left == Left::Old {
            let connection = Connection::open(ledger(making.path()))?;
            connection.execute_batch(WITHOUT_OUTBOX)?;
        }
        if self.left != Left::InLog {
            copy()?;
        }
        Ok(())
    }
}
