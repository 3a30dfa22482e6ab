//! Looks a whole ledger through, without changing it: the file's structure, each record against its
//! digest, its effect's row and its audit trail, and the ledger's own row. Others may be using it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use counterfoil_core::observation::EffectSeen;
use counterfoil_core::operation::{ALL_STATES, Event, Outcome, State, Verdict, step};
use counterfoil_core::record::{Nature, Record};
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::connection::APPLICATION_ID;
use super::direct::{check_directs, direct_leads_to};
use super::due::first_key_of;
use super::effects::look;
use super::faults::{Kind, kind, words};
use super::findings::{CheckRefused, CheckReport, MAX_PROBLEMS, Subject};
use super::migrations::{DIRECT_VERSION, KNOWN_VERSION, OUTBOX_VERSION, RETENTION_VERSION};
use super::open::{beside, is_absent, read_ledger_row};
use super::outbox::{LATE_CONTRADICTION, check_outbox, delivery_leads_to};
use super::rows::{AFTER_KEY, AFTER_KEY_ALL_LOCAL, decode, names};
use super::upkeep::Upkeep;
use crate::direct_steps::JOINED;
use crate::error::OpenRefused;
use crate::outbox_steps::DUPLICATE_SUBMISSION;
use crate::steps::CANCEL_REQUESTED;
use crate::tables::{LEDGER_TABLES, is_identifier};

/// So many records are read in one snapshot; a longer one would keep the log from being cut.
const RECORDS_PER_SNAPSHOT: i64 = 500;

const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Checks the ledger at `path`.
///
/// # Errors
/// [`CheckRefused`] if the file is not there, is no ledger, or is of a newer schema.
pub fn check(path: impl AsRef<Path>) -> Result<CheckReport, CheckRefused> {
    let path = path.as_ref();
    let connection = open_read_only(path)?;
    let mut report = CheckReport::default();
    report.part("the ledger's own row", |report| check_ledger_row(&connection, report));
    report.part("the file's structure", |report| check_structure(&connection, report));
    report.part("the records", |report| check_records(&connection, report));
    report.part("the effects' rows", |report| check_orphans(&connection, report));
    if !is_before(&report, OUTBOX_VERSION) {
        report.part("the outbox", |report| check_outbox(&connection, report));
    }
    if !is_before(&report, DIRECT_VERSION) {
        report.part("the direct operations", |report| check_directs(&connection, report));
    }
    report.part("the retention's state", |report| check_retention(&connection, report));
    Ok(report)
}

fn open_read_only(path: &Path) -> Result<Connection, CheckRefused> {
    let no_ledger = |cause: String| CheckRefused::NoLedger { path: path.to_owned(), cause };
    let unreadable = |cause: String| CheckRefused::Unreadable { path: path.to_owned(), cause };
    let absolute = std::path::absolute(path).map_err(|error| unreadable(error.to_string()))?;
    if absolute.is_dir() {
        return Err(CheckRefused::Directory { path: path.to_owned() });
    }
    match is_absent(&absolute) {
        Ok(false) => {}
        Ok(true) => return Err(CheckRefused::Absent { path: path.to_owned() }),
        Err(OpenRefused::Damaged { cause, .. }) => return Err(no_ledger(cause)),
        Err(OpenRefused::NotWritable { cause, .. }) => return Err(unreadable(cause)),
        Err(other) => return Err(unreadable(other.to_string())),
    }
    let explain = |error: &rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => no_ledger("it is not a SQLite database".into()),
        Some(ErrorCode::DatabaseCorrupt) => no_ledger(words(error)),
        None => no_ledger("its table `ledger` is missing or empty".into()),
        Some(_) if kind(error) == Kind::Statement => no_ledger(words(error)),
        Some(_) => unreadable(words(error)),
    };
    let (connection, id) = connect(&absolute).map_err(|error| explain(&error))?;
    if id != APPLICATION_ID {
        return Err(no_ledger("it is a SQLite database, but not a Counterfoil ledger".into()));
    }
    let (version, min_compatible) = connection
        .query_row("SELECT version, min_compatible FROM ledger", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(|error| explain(&error))?;
    if min_compatible > KNOWN_VERSION || version < 1 {
        return Err(CheckRefused::Schema {
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

/// A ledger whose own row is damaged, and tells no version, is taken for one of today.
fn is_before(report: &CheckReport, version: i64) -> bool {
    (1..version).contains(&report.schema_version)
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
    let sql = if is_before(report, OUTBOX_VERSION) { AFTER_KEY_ALL_LOCAL } else { AFTER_KEY };
    let mut after = Vec::new();
    loop {
        let snapshot = connection.unchecked_transaction()?;
        let high_water = read_ledger_row(&snapshot)?.ok().map(|row| row.high_water);
        let mut statement = snapshot.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params![after, RECORDS_PER_SNAPSHOT])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            after = row.get(0)?;
            report.operations_count += 1;
            match decode(row) {
                Ok(kept) => check_record(&snapshot, &kept.record, high_water, report)?,
                Err(damage) => {
                    let subject = Subject::unsure(&after, names(row), damage.column);
                    report.damaged(&subject, &damage);
                }
            }
        }
        if count < RECORDS_PER_SNAPSHOT {
            return Ok(());
        }
    }
}

fn check_record(
    connection: &Connection,
    record: &Record,
    high_water: Option<Timestamp>,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let subject = Subject::of(record);
    *report.states.entry(record.state.as_str()).or_default() += 1;
    let newest = record.settled_at.unwrap_or(record.created_at);
    if high_water.is_some_and(|mark| newest > mark) {
        let words = format!("{subject} is newer than the ledger's high-water mark");
        report.wrong(&subject, words);
    }
    if record.settled_at.is_some_and(|at| at < record.created_at) {
        report.wrong(&subject, format!("{subject} was settled before it was made"));
    }
    if record.effect.is_some() && record.state != State::NotApplied {
        report.effect_rows_count += 1;
        match look(connection, record.effect.as_ref())? {
            EffectSeen::Missing => {
                report.wrong(&subject, format!("the row that {subject} made is gone"));
            }
            EffectSeen::Changed => {
                let words = format!("the row that {subject} made was changed later");
                report.notes.push(words + &subject.see());
            }
            EffectSeen::Same | EffectSeen::NotLocal => {}
        }
    }
    check_trail(connection, record, &subject, report)
}

fn check_trail(
    connection: &Connection,
    record: &Record,
    subject: &Subject,
    report: &mut CheckReport,
) -> rusqlite::Result<()> {
    let trail: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT (SELECT max(seq) FROM audit_events WHERE operation_key = ?1), \
             (SELECT count(*) FROM audit_events WHERE operation_key = ?1), kind \
             FROM audit_events WHERE operation_key = ?1 AND kind NOT IN (?2, ?3, ?4, ?5) \
             ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(
            // What changed no state: a caller that took its call back, sent it again or joined
            // another, and word from a target that came too late.
            rusqlite::params![
                record.key.as_bytes().as_slice(),
                CANCEL_REQUESTED.as_bytes(),
                DUPLICATE_SUBMISSION.as_bytes(),
                LATE_CONTRADICTION.as_bytes(),
                JOINED.as_bytes(),
            ],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((last, count, kind)) = trail else {
        report.wrong(subject, format!("{subject} has no audit event"));
        return Ok(());
    };
    if last != count {
        report.wrong(subject, format!("an audit event of {subject} is missing"));
    }
    let leads = match record.nature {
        Nature::Deferred => delivery_leads_to(&kind, record.state),
        Nature::Direct => direct_leads_to(&kind, record.state),
        Nature::Local => leads_to(&kind, record.state),
    };
    if !leads {
        let state = record.state.as_str();
        let words = format!("the last audit event of {subject} does not make it {state}");
        report.wrong(subject, words);
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

/// Rows of effects that belong to no operation: an effect without its record. An operation that
/// began before the horizon may have been forgotten; its effects stay.
fn check_orphans(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let tables: Vec<String> = connection
        .prepare(
            "SELECT s.name FROM sqlite_schema s, pragma_table_info(s.name) c \
             WHERE s.type = 'table' AND c.name = 'operation_key' ORDER BY s.name",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let horizon = read_ledger_row(connection)?.ok().map(|row| row.horizon);
    let forgettable = horizon.map_or([0; 16], first_key_of);
    let of_effects =
        tables.iter().filter(|t| !LEDGER_TABLES.contains(&t.as_str()) && is_identifier(t));
    for table in of_effects {
        let orphans = format!(
            "SELECT coalesce(sum(e.operation_key >= ?1), 0), count(*) FROM \"{table}\" e \
             WHERE e.operation_key IS NOT NULL AND NOT \
             EXISTS (SELECT 1 FROM operations o WHERE o.operation_key = e.operation_key)"
        );
        let rows = count(connection, &format!("SELECT count(*) FROM \"{table}\""))?;
        report.effect_tables.insert(table.clone(), rows);
        let (lost, all): (i64, i64) =
            connection.query_row(&orphans, [forgettable], |row| Ok((row.get(0)?, row.get(1)?)))?;
        report.forgotten_effect_rows_count += u64::try_from(all - lost).unwrap_or_default();
        if lost > 0 {
            report.problem(format!("{lost} rows of `{table}` belong to no operation"));
        }
    }
    Ok(())
}

fn check_retention(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    if report.schema_version < RETENTION_VERSION {
        return Ok(());
    }
    let upkeep = Upkeep::read(connection)?;
    if let Some(jump) = upkeep.clock.stopped {
        report.notes.push(format!(
            "nothing is purged since {}: a clock had jumped by {} s; see `counterfoil store \
             confirm-clock`",
            jump.noticed_at.to_rfc3339(),
            jump.by_ms / 1000
        ));
    }
    Ok(())
}

fn count(connection: &Connection, sql: &str) -> rusqlite::Result<u64> {
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or_default())
}
