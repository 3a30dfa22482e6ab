//! What is left of a campaign: what was told and recorded of each operation, against the calls that
//! the server got and the effects in its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::world::{World, token};
use crate::history::{Course, Told};

/// A judgement.
#[derive(Debug)]
pub struct Found {
    /// Operations by their state in the ledger.
    pub states: BTreeMap<&'static str, usize>,
    /// Calls that the server got.
    pub dispatch_count: usize,
    /// Effects in its files.
    pub effect_count: usize,
    /// What is wrong.
    pub violations: Vec<String>,
}

/// The states by the numbers under which the ledger keeps them.
const STATES: [&str; 6] =
    ["in_progress", "applied", "partial", "not_applied", "in_doubt", "answered"];

/// Where the ledger is.
#[must_use]
pub fn data_dir(place: &Path) -> PathBuf {
    place.join("data")
}

/// Where the relay keeps what the server got.
#[must_use]
pub fn dispatches(place: &Path) -> PathBuf {
    place.join("dispatches")
}

/// How many operations are under way. Those that were taken and never sent wait for their own callers:
/// they do not count where `callers_go_on` is false.
///
/// # Errors
/// If the ledger cannot be read.
pub fn in_progress(place: &Path, callers_go_on: bool) -> anyhow::Result<u32> {
    let sql = if callers_go_on {
        "SELECT count(*) FROM operations WHERE state = 0"
    } else {
        "SELECT count(*) FROM operations WHERE state = 0 AND phase <> 1"
    };
    Ok(ledger(place)?.query_row(sql, [], |row| row.get(0))?)
}

/// Whether the ledger has an operation that is not under way any more.
///
/// # Errors
/// If it cannot be read.
pub fn is_at_rest(place: &Path, id: &str) -> anyhow::Result<bool> {
    let sql = "SELECT 1 FROM operations WHERE operation_id = ?1 AND state <> 0";
    let found = ledger(place)?.query_row(sql, [id.as_bytes()], |_| Ok(()));
    Ok(found.optional()?.is_some())
}

/// Judges. `told` has the last state that a client was told of each operation.
///
/// # Errors
/// If ledger, transcripts or the server's files cannot be read.
pub fn judge(
    world: &World,
    place: &Path,
    told: &BTreeMap<u64, String>,
    left: anyhow::Result<()>,
) -> anyhow::Result<Found> {
    let recorded = recorded(place)?;
    let (dispatched, effects) = (dispatched(world, place)?, world.effects()?);
    let mut violations: Vec<String> =
        left.err().map(|why| format!("NothingLeft: {why:#}")).into_iter().collect();
    let everyone: BTreeSet<u64> =
        told.keys().chain(dispatched.keys()).chain(effects.keys()).copied().collect();
    for number in everyone {
        let one = Operation {
            told: told.get(&number).map_or("", String::as_str),
            state: recorded.get(&token(number)).copied(),
            dispatch_count: dispatched.get(&number).copied().unwrap_or_default(),
            effect_count: effects.get(&number).copied().unwrap_or_default(),
        };
        let seen = format!("{} {one:?}", token(number));
        violations.extend(one.wrong().into_iter().map(|rule| format!("{rule}: {seen}")));
    }
    let mut states = BTreeMap::new();
    for state in recorded.values() {
        *states.entry(*state).or_default() += 1;
    }
    Ok(Found {
        states,
        dispatch_count: dispatched.values().sum(),
        effect_count: effects.values().sum(),
        violations,
    })
}

/// All that is known of one operation.
#[derive(Debug)]
struct Operation<'a> {
    told: &'a str,
    /// In the ledger; `None` if it was never heard of.
    state: Option<&'static str>,
    dispatch_count: usize,
    effect_count: usize,
}

impl Operation<'_> {
    /// The rules that it breaks.
    fn wrong(&self) -> Vec<String> {
        let &Self { told, state, dispatch_count, effect_count } = self;
        let rules = [
            ("OneDispatch", dispatch_count <= 1),
            ("DispatchRecorded", state.is_some() || dispatch_count == 0),
            ("ComesToRest", state != Some("in_progress")),
        ];
        let of_calls = rules.into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name.into());
        // What was told and what is there: as everywhere else.
        let course = Course {
            recorded: state.is_some(),
            at_the_end: Some(Told::of_state(state.unwrap_or_default(), None)),
            tells: vec![(0, 1, Told::of_state(told, None))],
            effects: (0..effect_count).map(|count| (0, count.to_string())).collect(),
            ..Course::default()
        };
        let of_course = course.broken().into_iter().map(|rule| format!("{rule:?}"));
        of_calls.chain(of_course).collect()
    }
}

fn ledger(place: &Path) -> anyhow::Result<Connection> {
    let path = data_dir(place).join("ledger.db");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags(&path, flags).context("no ledger")?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn recorded(place: &Path) -> anyhow::Result<BTreeMap<String, &'static str>> {
    let connection = ledger(place)?;
    let mut statement = connection.prepare("SELECT operation_id, state FROM operations")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?)))?;
    let mut found = BTreeMap::new();
    for row in rows {
        let (id, state): (Vec<u8>, u8) = row?;
        let state = STATES.get(usize::from(state)).copied().context("a state without a name")?;
        found.insert(String::from_utf8(id)?, state);
    }
    Ok(found)
}

/// How often the server got each operation's call. A relay that is killed may leave a last line that
/// is cut short; what it had not kept it had not passed on.
fn dispatched(world: &World, place: &Path) -> anyhow::Result<BTreeMap<u64, usize>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dispatches(place))? {
        let text = std::fs::read_to_string(entry?.path())?;
        for line in text.lines() {
            let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let frame = line["utf8"].as_str().filter(|_| line["from"] == "client");
            let frame = frame.and_then(|frame| serde_json::from_str(frame).ok());
            if let Some(number) = frame.and_then(|frame| world.asked_for(&frame)) {
                *found.entry(number).or_default() += 1;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_what_breaks_it() {
        // Promise: the judge can fail, and by the rule that was broken.
        let good = ("applied", Some("applied"), 1, 1);
        let cases = [
            (good, ""),
            (("unknown", Some("in_doubt"), 1, 0), ""),
            (("unknown", Some("answered"), 1, 0), ""),
            (("unknown", None, 0, 0), ""),
            (("applied", Some("applied"), 1, 2), "OneEffect"),
            (("applied", Some("applied"), 2, 1), "OneDispatch"),
            (("unknown", None, 1, 0), "DispatchRecorded"),
            (("unknown", None, 0, 1), "RecordedFirst"),
            (("unknown", Some("in_progress"), 1, 1), "ComesToRest"),
            (("applied", Some("applied"), 1, 0), "AppliedIsThere"),
            (("not_applied", Some("not_applied"), 1, 1), "NotAppliedIsNot"),
            (("applied", Some("in_doubt"), 1, 1), "NothingLost"),
        ];
        for ((told, state, dispatch_count, effect_count), expected) in cases {
            let one = Operation { told, state, dispatch_count, effect_count };
            assert_eq!(one.wrong().join(" "), expected, "{one:?}");
        }
    }
}
