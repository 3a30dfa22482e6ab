//! Looks a whole ledger through, without changing it: the file's structure, each record against its
//! digest, its effect's row and its audit trail, and the ledger's own row. Others may be using it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use counterfoil_core::observation::EffectSeen;
use counterfoil_core::operation::{ALL_STATES, Event, Outcome, State, Verdict, step};
use counterfoil_core::record::Record;
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::connection::APPLICATION_ID;
use super::effects::look;
use super::faults::words;
use super::migrations::KNOWN_VERSION;
use super::open::{beside, is_absent, read_ledger_row};
use super::rows::{AFTER_KEY, Damage, decode};
use crate::error::OpenRefused;
use crate::steps::CANCEL_REQUESTED;
use crate::tables::{LEDGER_TABLES, is_identifier};

/// So many records are read in one snapshot; a longer one would keep the log from being cut.
const RECORDS_PER_SNAPSHOT: i64 = 500;

/// Of each kind of problem at most so many are told.
const MAX_PROBLEMS: usize = 200;

const LOCK_WAIT: Duration = Duration::from_secs(5);

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// The ledger's ID.
    pub backend_id: String,
    /// The version of its schema.
    pub schema_version: i64,
    /// How many records there are, sound or not.
    pub operations_count: u64,
    /// How many records are in which state; damaged ones are in none.
    pub states: BTreeMap<&'static str, u64>,
    /// The keys of the records that fail their own checks, as UUIDs.
    pub damaged_records: Vec<String>,
    /// How many audit events there are.
    pub audit_events_count: u64,
    /// How many rows of effects were compared with their digests.
    pub effect_rows_count: u64,
    /// How many rows each table of effects holds, whoever made them.
    pub effect_tables: BTreeMap<String, u64>,
    /// What is not wrong and still worth knowing: rows that somebody changed after their effect.
    pub notes: Vec<String>,
    /// What is wrong, in words that hold no stored value. Empty for a sound ledger.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, problem: String) {
        match self.problems.len() {
            told if told < MAX_PROBLEMS => self.problems.push(problem),
            MAX_PROBLEMS => self.problems.push("and more, which are not told".into()),
            _ => {}
        }
    }

    /// Runs one part of the check; damage that stops it is a problem like any other.
    fn part(&mut self, what: &str, part: impl FnOnce(&mut Self) -> rusqlite::Result<()>) {
        if let Err(error) = part(self) {
            self.problem(format!("{what} could not be read: {}", words(&error)));
        }
    }
}

/// Checks the ledger at `path`.
///
/// # Errors
/// [`OpenRefused`] if the file is not there, is no ledger, or is of a newer schema.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, OpenRefused> {
    let path = path.as_ref();
    let connection = open_read_only(path)?;
    let mut report = CheckReport::default();
    report.part("the ledger's own row", |report| check_ledger_row(&connection, report));
    report.part("the file's structure", |report| check_structure(&connection, report));
    report.part("the records", |report| check_records(&connection, report));
    report.part("the effects' rows", |report| check_orphans(&connection, report));
    Ok(report)
}

fn open_read_only(path: &Path) -> Result<Connection, OpenRefused> {
    let damaged = |cause: String| OpenRefused::Damaged { path: path.to_owned(), cause };
    let path = &std::path::absolute(path).map_err(|error| damaged(error.to_string()))?;
    if is_absent(path)? {
        return Err(OpenRefused::Absent { path: path.to_owned() });
    }
    let explain = |error: &rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => damaged("it is not a SQLite database".into()),
        None => damaged("its table `ledger` is missing or empty".into()),
        Some(_) => damaged(words(error)),
    };
    let (connection, id) = connect(path).map_err(|error| explain(&error))?;
    if id != APPLICATION_ID {
        return Err(damaged("it is a SQLite database, but not a Counterfoil ledger".into()));
    }
    let (version, min_compatible) = connection
        .query_row("SELECT version, min_compatible FROM ledger", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(|error| explain(&error))?;
    if min_compatible > KNOWN_VERSION || version < 1 {
        return Err(OpenRefused::Schema {
            path: path.to_owned(),
            version,
            min_compatible,
            known: KNOWN_VERSION,
        });
    }
    Ok(connection)
}

/// A connection that cannot write, and the file's application ID. Where not even the shared memory
/// of a log can be made (a read-only file system) the file is read as it stands, if it has no log.
fn connect(path: &Path) -> rusqlite::Result<(Connection, i64)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let ready = |connection: Connection| -> rusqlite::Result<(Connection, i64)> {
        connection.busy_timeout(LOCK_WAIT)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        let id = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        Ok((connection, id))
    };
    let opened = Connection::open_with_flags(path, flags).and_then(ready);
    let cannot_open = opened.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
    let log = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    match cannot_open {
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly) if log == 0 => {
            let name = path.to_string_lossy();
            let name = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
            let uri = format!("file:{name}?immutable=1");
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).and_then(ready)
        }
        _ => opened,
    }
}

fn check_ledger_row(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    match read_ledger_row(connection)? {
        Ok(row) => {
            report.backend_id = row.backend_id.to_string();
            report.schema_version = row.version;
            if row.incarnation < 1 {
                report.problem("the ledger's incarnation is below 1".into());
            }
        }
        Err(cause) => report.problem(cause),
    }
    report.audit_events_count = count(connection, "SELECT count(*) FROM audit_events")?;
    Ok(())
}

fn check_structure(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let verdict: String = row.get(0)?;
        if verdict != "ok" {
            report.problem(verdict);
        }
    }
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let mut found = statement.query([])?;
    let mut violations = BTreeMap::<(String, String), u64>::new();
    while let Some(row) = found.next()? {
        *violations.entry((row.get(0)?, row.get(2)?)).or_default() += 1;
    }
    for ((table, parent), count) in violations {
        report.problem(format!("{count} rows of `{table}` refer to no row of `{parent}`"));
    }
    Ok(())
}

fn check_records(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let mut after = Vec::new();
    loop {
        let snapshot = connection.unchecked_transaction()?;
        let high_water = read_ledger_row(&snapshot)?.ok().map(|row| row.high_water);
        let mut statement = snapshot.prepare_cached(AFTER_KEY)?;
        let mut rows = statement.query(rusqlite::params![after, RECORDS_PER_SNAPSHOT])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            after = row.get(0)?;
            report.operations_count += 1;
            match decode(row) {
                Ok(kept) => check_record(&snapshot, &kept.record, high_water, report)?,
                Err(damage) => report.damaged(&after, damage),
            }
        }
        if count < RECORDS_PER_SNAPSHOT {
            return Ok(());
        }
    }
}

impl CheckReport {
    fn damaged(&mut self, key: &[u8], damage: Damage) {
        let key = <[u8; 16]>::try_from(key).map_or_else(|_| "?".into(), uuid_text);
        self.problem(format!("operation {key} is damaged: {damage}"));
        self.damaged_records.push(key);
    }
}

fn check_record(
    connection: &Connection,
    record: &Record,
    high_water: Option<Timestamp>,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let key = uuid_text(*record.key.as_bytes());
    *report.states.entry(record.state.as_str()).or_default() += 1;
    let newest = record.settled_at.unwrap_or(record.created_at);
    if high_water.is_some_and(|mark| newest > mark) {
        report.problem(format!("operation {key} is newer than the ledger's high-water mark"));
    }
    if record.settled_at.is_some_and(|at| at < record.created_at) {
        report.problem(format!("operation {key} was settled before it was made"));
    }
    if record.effect.is_some() && record.state != State::NotApplied {
        report.effect_rows_count += 1;
        match look(connection, record.effect.as_ref())? {
            EffectSeen::Missing => {
                report.problem(format!("the row that operation {key} made is gone"));
            }
            EffectSeen::Changed => {
                report.notes.push(format!("the row that operation {key} made was changed later"));
            }
            EffectSeen::Same | EffectSeen::NotLocal => {}
        }
    }
    check_trail(connection, record, &key, report)
}

fn check_trail(
    connection: &Connection,
    record: &Record,
    key: &str,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let trail: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT (SELECT max(seq) FROM audit_events WHERE operation_key = ?1), \
             (SELECT count(*) FROM audit_events WHERE operation_key = ?1), kind \
             FROM audit_events WHERE operation_key = ?1 AND kind <> ?2 ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(
            // A caller that took its call back changed no state.
            rusqlite::params![record.key.as_bytes().as_slice(), CANCEL_REQUESTED.as_bytes()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((last, count, kind)) = trail else {
        report.problem(format!("operation {key} has no audit event"));
        return Ok(());
    };
    if last != count {
        report.problem(format!("an audit event of operation {key} is missing"));
    }
    if !leads_to(&kind, record.state) {
        let state = record.state.as_str();
        report.problem(format!("the last audit event of operation {key} does not make it {state}"));
    }
    Ok(())
}

/// Whether a step of the state machine of that kind ends in that state.
fn leads_to(kind: &[u8], state: State) -> bool {
    const EVENTS: [Event; 13] = [
        Event::Apply,
        Event::CommitFirst,
        Event::FinishWhole,
        Event::FinishPartly,
        Event::Undo,
        Event::Claim,
        Event::Dispatch,
        Event::Learn(Outcome::Applied),
        Event::Learn(Outcome::NotApplied),
        Event::Learn(Outcome::Unknown),
        Event::Lapse,
        Event::Resolve(Verdict::Applied),
        Event::Resolve(Verdict::NotApplied),
    ];
    let from = ALL_STATES.into_iter().map(Some).chain([None]);
    from.flat_map(|from| EVENTS.map(|event| step(from, event)))
        .flatten()
        .any(|made| made.to() == state && made.audit_kind().as_bytes() == kind)
}

/// Rows of effects that belong to no operation: an effect without its record.
fn check_orphans(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let tables: Vec<String> = connection
        .prepare(
            "SELECT s.name FROM sqlite_schema s, pragma_table_info(s.name) c \
             WHERE s.type = 'table' AND c.name = 'operation_key' ORDER BY s.name",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let of_effects =
        tables.iter().filter(|t| !LEDGER_TABLES.contains(&t.as_str()) && is_identifier(t));
    for table in of_effects {
        let orphans = format!(
            "SELECT count(*) FROM \"{table}\" e WHERE e.operation_key IS NOT NULL AND NOT \
             EXISTS (SELECT 1 FROM operations o WHERE o.operation_key = e.operation_key)"
        );
        let rows = count(connection, &format!("SELECT count(*) FROM \"{table}\""))?;
        report.effect_tables.insert(table.clone(), rows);
        let count = count(connection, &orphans)?;
        if count > 0 {
            report.problem(format!("{count} rows of `{table}` belong to no operation"));
        }
    }
    Ok(())
}

fn count(connection: &Connection, sql: &str) -> rusqlite::Result<u64> {
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or_default())
}

fn uuid_text(key: [u8; 16]) -> String {
    uuid::Uuid::from_bytes(key).to_string()
}
