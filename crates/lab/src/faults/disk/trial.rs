//! One trial: a work on a disk that does one thing wrong, and what is left of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use counterfoil_fault_disk::{Call, Disk, Failure, Fault, Loss};
use counterfoil_store::sqlite::check;
use counterfoil_store::{OpenRefused, SqliteOptions, SqliteStore, Store, StoreError};
use tokio::task::JoinSet;

use super::scene::{HandClock, ledger, options};
use super::steps::{Act, Step, Stop, Subject, look, take};
use super::works::Work;
use crate::within::PATIENCE;

/// What goes wrong in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// A call fails.
    Fails { call: Call, nth: u64, failure: Failure, for_ever: bool },
    /// The power goes off at a change, or, with 0, when the work is done.
    Power { nth: u64, loss: Loss, seed: u64 },
    /// The same after a disk said that it synchronised what it did not.
    Lies { nth: u64, loss: Loss, seed: u64 },
}

const CALLS: [&str; 8] =
    ["open", "read", "write", "sync", "truncate", "delete", "shm-map", "shm-lock"];
const LOSSES: [&str; 7] =
    ["everything", "nothing", "prefix", "suffix", "subset", "torn-512", "torn-4096"];
const FAILURES: [(&str, Failure); 3] =
    [("io", Failure::Io), ("half", Failure::Half), ("full", Failure::Full)];

impl std::fmt::Display for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let loss =
            |loss: Loss| Loss::ALL.iter().zip(LOSSES).find(|it| *it.0 == loss).map(|it| it.1);
        match *self {
            Self::Fails { call, nth, failure, for_ever } => {
                let how = FAILURES.iter().find(|it| it.1 == failure).map_or("", |it| it.0);
                let long = if for_ever { "for-ever" } else { "once" };
                write!(f, "{}:{nth}:{how}:{long}", CALLS[call as usize])
            }
            Self::Power { nth, loss: kind, seed } => {
                write!(f, "power:{nth}:{}:{seed}", loss(kind).unwrap_or_default())
            }
            Self::Lies { nth, loss: kind, seed } => {
                write!(f, "lies:{nth}:{}:{seed}", loss(kind).unwrap_or_default())
            }
        }
    }
}

impl FromStr for Trial {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let [kind, nth, how, last] = parts[..] else {
            bail!("`{text}` is no trial: write KIND:N:HOW:LAST, as a failed run prints it")
        };
        let nth = nth.parse().with_context(|| format!("`{nth}` in `{text}` is no number"))?;
        if kind == "power" || kind == "lies" {
            let at = LOSSES.iter().position(|name| *name == how);
            let loss = Loss::ALL[at.with_context(|| format!("`{how}` is none of {LOSSES:?}"))?];
            let seed = last.parse().with_context(|| format!("`{last}` in `{text}` is no seed"))?;
            let power = Self::Power { nth, loss, seed };
            return Ok(if kind == "power" { power } else { Self::Lies { nth, loss, seed } });
        }
        let at = CALLS.iter().position(|name| *name == kind);
        let call = Call::ALL[at.with_context(|| format!("`{kind}` is none of {CALLS:?}"))?];
        let found = FAILURES.iter().find(|it| it.0 == how);
        let failure = found.with_context(|| format!("`{how}` is not io, half or full"))?.1;
        ensure!(["once", "for-ever"].contains(&last), "`{last}` is not once or for-ever");
        Ok(Self::Fails { call, nth, failure, for_ever: last == "for-ever" })
    }
}

impl Trial {
    fn fault(self) -> Option<Fault> {
        match self {
            Self::Fails { call, nth, failure, for_ever } => {
                Some(Fault::Fail { call, nth, failure, for_ever })
            }
            Self::Power { nth: 0, .. } | Self::Lies { nth: 0, .. } => None,
            Self::Power { nth, .. } | Self::Lies { nth, .. } => Some(Fault::PowerOff { nth }),
        }
    }

    const fn loss(self) -> Option<(Loss, u64)> {
        match self {
            Self::Fails { .. } => None,
            Self::Power { loss, seed, .. } | Self::Lies { loss, seed, .. } => Some((loss, seed)),
        }
    }

    /// Whether a caller may try again in the same process.
    const fn passes(self) -> bool {
        matches!(self, Self::Fails { for_ever: false, .. })
    }
}

/// What a trial came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Whether the fault happened.
    pub(super) hit: bool,
    /// Calls that change something, in count.
    pub(super) changes_count: u64,
    /// What should not be.
    pub(super) problems: Vec<String>,
}

/// What callers were told: for each thing the states that it may be in.
struct Told {
    opened: bool,
    possible: BTreeMap<Subject, Vec<String>>,
    problems: Vec<String>,
}

impl Told {
    fn before(work: &Work) -> Self {
        let stands = |subject| (subject, vec![work.before(subject).to_owned()]);
        let subjects = work.subjects().into_iter().filter(|it| *it != Subject::Schema);
        Self { opened: !work.opens, possible: subjects.map(stands).collect(), problems: Vec::new() }
    }

    fn asks(&mut self, step: Step) {
        self.possible.entry(step.1).or_default().push(step.2.to_owned());
    }

    /// An acknowledgement leaves one state; an error that is certain takes the new one away.
    fn hears(&mut self, step: Step, answer: &Result<(), Stop>) {
        let possible = self.possible.entry(step.1).or_default();
        match answer {
            Ok(()) => *possible = vec![step.2.to_owned()],
            Err(Stop::Store(StoreError::CommitUnknown | StoreError::Closed)) => {}
            Err(Stop::Store(error)) => {
                // A purge promises no such thing: its commit may stand and its account, which is
                // read afterwards, fail; what is left is purged by the next one.
                if !matches!(step.0, Act::Purge) {
                    possible.pop();
                }
                self.judge_error(error);
            }
            Err(Stop::Wrong(what)) => self.problems.push(format!("{step:?}: {what}")),
        }
    }

    /// A disk's fault is not told as damage: that would send an operator for a backup.
    fn judge_error(&mut self, error: &StoreError) {
        let told = match error {
            StoreError::Refused(OpenRefused::NotWritable { .. }) => false,
            StoreError::Refused(_) | StoreError::Quarantined { .. } => true,
            StoreError::Io { cause, .. } => cause.contains("malformed"),
            _ => false,
        };
        if told {
            self.problems.push(format!("a fault of the disk was told as: {error}"));
        }
    }
}

/// Runs a work on a copy of its ledger.
pub(super) async fn run(work: &Work, template: &Path, trial: Trial) -> anyhow::Result<Outcome> {
    let directory = tempfile::tempdir()?;
    for entry in std::fs::read_dir(template)? {
        let entry = entry?;
        std::fs::copy(entry.path(), directory.path().join(entry.file_name()))?;
    }
    let clock = HandClock::new();
    clock.pass(work.later);
    let options = options(directory.path(), &clock);
    let disk = Disk::over(directory.path())?;
    let mut told = Told::before(work);
    interrupted(work, &options, &disk, trial, &mut told).await?;
    let hit = disk.hits_count() > 0;
    let changes_count = disk.changes_count();
    disk.set(None);
    disk.lie_about_sync(false);
    all_closed(&disk)?;
    if let Some((loss, seed)) = trial.loss() {
        disk.restart(loss, seed)?;
    }
    let mut problems = std::mem::take(&mut told.problems);
    if let Err(error) = judge(work, &options, &told, &mut problems).await {
        problems.push(format!("{error:#}"));
    }
    all_closed(&disk)?;
    Ok(Outcome { hit, changes_count, problems })
}

/// The work, while the disk does what it does. Whatever is acknowledged goes into `told`.
async fn interrupted(
    work: &Work,
    options: &SqliteOptions,
    disk: &Disk,
    trial: Trial,
    told: &mut Told,
) -> anyhow::Result<()> {
    let opened_before = if work.opens { None } else { Some(SqliteStore::open(options)?) };
    disk.lie_about_sync(matches!(trial, Trial::Lies { .. }));
    disk.set(trial.fault());
    let mut opened = opened_before.map(Ok).unwrap_or_else(|| SqliteStore::open(options));
    if let Err(error) = &opened {
        told.judge_error(error);
        if trial.passes() {
            opened = SqliteStore::open(options);
        }
    }
    let store = match opened {
        Ok(store) => Arc::new(store),
        Err(error) => {
            told.judge_error(&error);
            return Ok(());
        }
    };
    told.opened = true;
    if work.together {
        take_together(work, &store, told).await?;
    } else {
        take_in_turn(work, &store, trial, told).await;
    }
    if trial.fault().is_none() {
        disk.power_off();
    }
    // An error of closing is told to nobody, and changes nothing.
    let _ = store.close().await;
    if trial.loss().is_some() {
        disk.power_off();
    }
    Ok(())
}

async fn take_in_turn(work: &Work, store: &SqliteStore, trial: Trial, told: &mut Told) {
    for step in work.steps.iter().filter(|step| !matches!(step.0, Act::Open)) {
        told.asks(*step);
        let mut answer = take(store, *step).await;
        told.hears(*step, &answer);
        // As a caller would: looks, and sends the same again.
        if answer.is_err() && trial.passes() {
            told.asks(*step);
            answer = match look(store, step.1).await {
                Ok(seen) if seen == step.2 => Ok(()),
                _ => take(store, *step).await,
            };
            told.hears(*step, &answer);
        }
        if answer.is_err() {
            return;
        }
    }
}

async fn take_together(
    work: &Work,
    store: &Arc<SqliteStore>,
    told: &mut Told,
) -> anyhow::Result<()> {
    let mut callers = JoinSet::new();
    for step in work.steps.iter().copied() {
        told.asks(step);
        let store = Arc::clone(store);
        callers.spawn(async move { (step, take(&store, step).await) });
    }
    while let Some(ended) = callers.join_next().await {
        let (step, answer) = ended.context("a caller panicked")?;
        told.hears(step, &answer);
    }
    Ok(())
}

/// What the disk kept, held against what was told; and then the same work goes on to its end.
async fn judge(
    work: &Work,
    options: &SqliteOptions,
    told: &Told,
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    let path = ledger(options.path.parent().context("a ledger is in a directory")?);
    if path.exists() {
        sound(&path, problems)?;
    } else if told.opened {
        bail!("the ledger was open, and its file is gone");
    }
    let store = SqliteStore::open(options).context("opening it again")?;
    for (subject, possible) in &told.possible {
        let seen = seen(&store, *subject).await?;
        if !possible.contains(&seen) {
            problems.push(format!("{subject:?} is {seen}; what was told allows {possible:?}"));
        }
    }
    for (at, step) in work.steps.iter().enumerate() {
        if matches!(step.0, Act::Open) {
            continue;
        }
        let stands = seen(&store, step.1).await?;
        let later = work.steps[at..].iter().any(|it| it.1 == step.1 && it.2 == stands);
        if !later && let Err(stop) = take(&store, *step).await {
            bail!("{step:?}, taken again on a sound disk: {stop:?}");
        }
    }
    store.close().await?;
    sound(&path, problems)?;
    let connection = rusqlite::Connection::open(&path)?;
    let rows_count: i64 =
        connection.query_row("SELECT count(*) FROM notes", [], |row| row.get(0))?;
    if rows_count != work.rows_count {
        let wanted = work.rows_count;
        problems.push(format!("{rows_count} rows of effects at the end, not {wanted}"));
    }
    Ok(())
}

async fn seen(store: &SqliteStore, subject: Subject) -> anyhow::Result<String> {
    look(store, subject).await.map_err(|stop| anyhow::anyhow!("looking at {subject:?}: {stop:?}"))
}

fn sound(path: &Path, problems: &mut Vec<String>) -> anyhow::Result<()> {
    let report = check(path).context("checking it")?;
    problems.extend(report.problems.iter().map(|it| format!("store check: {it}")));
    problems.extend(report.operations.iter().map(|it| format!("store check: {it:?}")));
    Ok(())
}

/// Threads of a store that could not be opened end by themselves.
fn all_closed(disk: &Disk) -> anyhow::Result<()> {
    let begun = Instant::now();
    while disk.open_count() > 0 {
        ensure!(begun.elapsed() < PATIENCE, "{} files stay open", disk.open_count());
        std::thread::yield_now();
    }
    Ok(())
}
