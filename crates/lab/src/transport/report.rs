//! What a run leaves: a record for each cell, both sides' bytes, progress, and the table at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::cell::Happened;
use super::plan::{Direction, Plan, Position, WAYS};
use crate::history::Saw;

/// What stands in place of a bearer token.
const NO_TOKEN: &[u8] = b"[redacted token]";

/// One cell.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// What was done.
    pub plan: Plan,
    /// Whether the server keeps a ledger.
    pub guarded: bool,
    /// The call's operation.
    pub operation_id: String,
    /// Its effects when the fault was about to happen.
    pub effects_at_fault: Option<u64>,
    /// Its effects at the end.
    pub effect_count: usize,
    /// Whether the checker saw more than one.
    pub duplicated: bool,
    /// What the call came to, and what asking and sending again did.
    pub saw: Vec<String>,
    /// SHA-256 of what each side wrote and read.
    pub bytes_sha256: BTreeMap<&'static str, String>,
    /// What does not hold.
    pub found: Vec<String>,
}

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The seed of the first fault by chance.
    pub seed: u64,
    /// Whether all is as it should be.
    pub passed: bool,
    /// Cells with a ledger.
    pub guarded_count: usize,
    /// Of them, those whose call met its fault before the commit.
    pub before_commit_count: usize,
    /// Of them, those whose fault came behind a request that had passed whole: the rows were looked
    /// at before it passed, so that the fault itself may have come before the commit or after it.
    pub behind_request_count: usize,
    /// Of them, those after it.
    pub after_commit_count: usize,
    /// Of them, those whose call was lost to its client.
    pub lost_count: usize,
    /// Cells without a ledger.
    pub control_count: usize,
    /// Of them, those with a duplicate.
    pub control_duplicate_count: usize,
    /// How long it took.
    pub elapsed_ms: u128,
    /// All cells.
    pub cells: Vec<Cell>,
}

impl Summary {
    pub(super) fn of(mut cells: Vec<Cell>, seed: u64, elapsed: Duration) -> Self {
        cells.sort_by(|a, b| (!a.guarded, a.plan, &a.name).cmp(&(!b.guarded, b.plan, &b.name)));
        let count = |wanted: &dyn Fn(&Cell) -> bool| cells.iter().filter(|it| wanted(it)).count();
        Self {
            seed,
            passed: cells.iter().all(|cell| cell.found.is_empty()),
            guarded_count: count(&|it| it.guarded),
            before_commit_count: count(&|it| {
                it.guarded && it.effects_at_fault == Some(0) && !is_behind_request(it)
            }),
            behind_request_count: count(&|it| it.guarded && is_behind_request(it)),
            after_commit_count: count(&|it| it.guarded && it.effects_at_fault == Some(1)),
            lost_count: count(&|it| it.guarded && it.saw[0] == "lost"),
            control_count: count(&|it| !it.guarded),
            control_duplicate_count: count(&|it| !it.guarded && it.duplicated),
            elapsed_ms: elapsed.as_millis(),
            cells,
        }
    }
}

fn is_behind_request(cell: &Cell) -> bool {
    (cell.plan.direction, cell.plan.position) == (Direction::Request, Position::After)
}

/// The record of a cell; its bytes are kept if there is a place for them.
pub(super) fn cell(
    name: &str,
    plan: Plan,
    operation: &str,
    happened: &Happened,
    token: &str,
    out: Option<&Path>,
) -> anyhow::Result<Cell> {
    let kept = &happened.kept;
    let sides = [
        ("client-wrote", &kept.client_wrote),
        ("server-read", &kept.server_read),
        ("server-wrote", &kept.server_wrote),
        ("client-read", &kept.client_read),
    ];
    let mut bytes_sha256 = BTreeMap::new();
    for (side, bytes) in sides {
        let bytes = without(bytes, token.as_bytes());
        let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        bytes_sha256.insert(side, digest);
        if let Some(out) = out {
            let place = out.join(name);
            std::fs::create_dir_all(&place)?;
            std::fs::write(place.join(format!("{side}.bin")), bytes)?;
        }
    }
    let saw = std::iter::once(&happened.first).chain(&happened.then);
    Ok(Cell {
        name: name.into(),
        plan,
        guarded: true,
        operation_id: operation.into(),
        effects_at_fault: happened.effects_at_fault,
        effect_count: 0,
        duplicated: false,
        saw: saw.map(in_words).collect(),
        bytes_sha256,
        found: Vec::new(),
    })
}

fn in_words(saw: &Option<Saw>) -> String {
    match saw {
        None => "lost".into(),
        Some(Saw::Settled(outcome)) if outcome.fresh => format!("{} (made)", outcome.state),
        Some(Saw::Settled(outcome)) => outcome.state.clone(),
        Some(Saw::Unknown) => "unknown".into(),
        Some(Saw::Refused(code)) => format!("refused: {code}"),
        Some(Saw::Nothing) => "refused".into(),
    }
}

/// The bytes without a secret, and without what is left of it where it was cut or changed.
fn without(bytes: &[u8], secret: &[u8]) -> Vec<u8> {
    const FIELD: &[u8] = b"earer ";
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(FIELD.len()).position(|it| it == FIELD) {
        out.extend_from_slice(&rest[..at + FIELD.len()]);
        rest = &rest[at + FIELD.len()..];
        let end = rest.iter().position(|byte| *byte == b'\r').unwrap_or(rest.len());
        out.extend_from_slice(NO_TOKEN);
        rest = &rest[end..];
    }
    out.extend_from_slice(rest);
    // A head whose field was itself changed.
    while let Some(at) = out.windows(secret.len()).position(|it| it == secret) {
        out.splice(at..at + secret.len(), NO_TOKEN.iter().copied());
    }
    out
}

/// Says something while the run goes on.
pub(super) fn say(words: &str) {
    // A closed stderr must not end the run.
    let _ = writeln!(std::io::stderr(), "{words}");
}

pub(super) fn progress(cell: &Cell) {
    let verdict = if cell.found.is_empty() { "ok" } else { "FAIL" };
    say(&format!("{verdict:<5} {:<56} {}", cell.name, cell.saw.join(" | ")));
}

/// A line for each fault and direction, a column for each way; below, what does not hold.
pub(super) fn text(summary: &Summary) -> String {
    let mut out = format!("{:<24}", "fault");
    for (wire, who) in WAYS {
        let _ = write!(out, " {:<20}", format!("{wire:?}/{who:?}"));
    }
    let mut lines: Vec<_> =
        summary.cells.iter().map(|cell| (cell.plan.direction, cell.plan.fault)).collect();
    lines.sort_unstable();
    lines.dedup();
    for (direction, fault) in lines {
        let _ = write!(out, "\n{:<24}", format!("{direction:?} {fault:?}"));
        for way in WAYS {
            let of_line = |cell: &&Cell| {
                let plan = cell.plan;
                cell.guarded
                    && (plan.direction, plan.fault) == (direction, fault)
                    && (plan.wire, plan.who) == way
            };
            let cells: Vec<&Cell> = summary.cells.iter().filter(of_line).collect();
            let passed = cells.iter().filter(|cell| cell.found.is_empty()).count();
            let shown = match cells.len() {
                0 => "-".into(),
                count => format!("{passed} of {count}"),
            };
            let _ = write!(out, " {shown:<20}");
        }
    }
    let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
    let mut out = lines.join("\n");
    for cell in summary.cells.iter().filter(|cell| !cell.found.is_empty()) {
        let _ = write!(
            out,
            "\n\n{}: {}\n  saw: {}",
            cell.name,
            cell.found.join("; "),
            cell.saw.join(" | ")
        );
        let _ = write!(out, "\n  again: {}", again(cell, summary.seed));
    }
    let Summary { guarded_count, before_commit_count, after_commit_count, lost_count, .. } =
        summary;
    let Summary { control_count, control_duplicate_count, behind_request_count, seed, .. } =
        summary;
    let passed = summary.cells.iter().filter(|it| it.guarded && it.found.is_empty()).count();
    let seconds = summary.elapsed_ms as f64 / 1000.0;
    let _ = write!(
        out,
        "\n\n{passed} of {guarded_count} passed in {seconds:.1} s, seed {seed}: {before_commit_count} \
         before the commit, {after_commit_count} after it, {behind_request_count} behind the \
         request, {lost_count} calls lost\n\
         control: {control_duplicate_count} of {control_count} cells without a ledger duplicated"
    );
    out
}

/// The command that runs a cell again.
fn again(cell: &Cell, seed: u64) -> String {
    let name = cell.name.strip_prefix("control-").unwrap_or(&cell.name);
    let seed = name
        .strip_prefix("seed-")
        .and_then(|rest| rest.split('-').next()?.parse().ok())
        .unwrap_or(seed);
    format!("counterfoil-lab transport --seed {seed} --seeds 1 --only {name}")
}
