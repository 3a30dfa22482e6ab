//! Items of the outbox as rows, each with a digest of itself, and their frozen requests.

use std::cell::RefCell;
use std::sync::Arc;

use counterfoil_core::delivery::{
    Delivery, Ended, ErrorClass, Lease, ParkReason, State, TargetName, Terms, WireTerms,
};
use counterfoil_core::identity::{BootId, OperationKey};
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::sqlite::cells::{Cells, Damage, RowCheck, damage, utf8};

/// A sound item with the numbers that stand for its target and terms.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sqlite) struct Item {
    pub(in crate::sqlite) delivery: Delivery,
    pub(in crate::sqlite) target_no: i64,
    pub(in crate::sqlite) terms_no: i64,
}

/// What was found under a key.
#[derive(Debug)]
pub(in crate::sqlite) enum Found {
    Absent,
    Kept(Box<Item>),
    Damaged(Damage),
}

/// Items with what the columns after theirs name, from what is joined to them; theirs are in the
/// order in which [`decode`] reads them.
macro_rules! select {
    ($rest:literal) => {
        select!("", "", $rest)
    };
    ($columns:expr, $joined:literal, $rest:literal) => {
        concat!(
            "SELECT d.operation_key, d.target_no, t.name, d.terms_no, m.terms, d.state, d.fence, \
             d.lease_boot, d.lease_until_ms, d.lease_probe, d.attempts, d.attempt_limit, \
             d.unknown, d.lookups, d.first_dispatch_ms, d.last_send_until_ms, d.next_attempt_ms, \
             d.deliver_by_ms, d.error_class, d.error_words, d.park, d.external_id, d.ended, \
             d.late_contradiction, d.created_at_ms, d.updated_at_ms, d.quarantined, d.row_check",
            $columns,
            " FROM outbox d LEFT JOIN outbox_targets t ON t.target_no = d.target_no \
             LEFT JOIN outbox_terms m ON m.terms_no = d.terms_no ",
            $joined,
            $rest
        )
    };
}
pub(super) use select;

const BY_KEY: &str = select!("WHERE d.operation_key = ?1");
/// The next so many items after a key, for a check of the whole file.
pub(super) const AFTER_KEY: &str =
    select!("WHERE d.operation_key > ?1 ORDER BY d.operation_key LIMIT ?2");
/// What is due of a target, the earliest first, each with its request.
pub(super) const DUE: &str = select!(
    ", r.row_check, r.request",
    "LEFT JOIN outbox_requests r ON r.operation_key = d.operation_key ",
    "WHERE d.target_no = ?1 AND d.next_attempt_ms <= ?2 AND d.quarantined = 0 \
     ORDER BY d.next_attempt_ms, d.operation_key LIMIT ?3"
);

/// The item of an operation.
pub(in crate::sqlite) fn find(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Found> {
    let mut statement = connection.prepare_cached(BY_KEY)?;
    let found =
        statement.query_row([key.as_bytes().as_slice()], |row| Ok(decode(row))).optional()?;
    Ok(match found {
        None => Found::Absent,
        Some(Ok(item)) => Found::Kept(Box::new(item)),
        Some(Err(damage)) => Found::Damaged(damage),
    })
}

/// Writes a new item.
pub(super) fn insert(connection: &Connection, item: &Item) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO outbox (operation_key, target_no, terms_no, state, fence, \
        attempts, attempt_limit, unknown, lookups, next_attempt_ms, deliver_by_ms, \
        late_contradiction, created_at_ms, updated_at_ms, row_check) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0, ?12, ?13, ?14)";
    let kept = &item.delivery;
    connection.prepare_cached(SQL)?.execute(params![
        kept.key.as_bytes().as_slice(),
        item.target_no,
        item.terms_no,
        kept.state.code(),
        kept.fence,
        kept.attempts_count,
        kept.attempt_limit,
        kept.unknown_count,
        kept.lookups_count,
        kept.next_attempt_at.map(Timestamp::as_ms),
        kept.deliver_by.map(Timestamp::as_ms),
        kept.created_at.as_ms(),
        kept.updated_at.as_ms(),
        row_check(item).as_slice(),
    ])?;
    Ok(())
}

/// Writes everything of an item that can change, and its check.
pub(super) fn update(connection: &Connection, item: &Item) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE outbox SET state = ?2, fence = ?3, lease_boot = ?4, \
        lease_until_ms = ?5, lease_probe = ?6, attempts = ?7, attempt_limit = ?8, unknown = ?9, \
        lookups = ?10, first_dispatch_ms = ?11, last_send_until_ms = ?12, next_attempt_ms = ?13, \
        deliver_by_ms = ?14, error_class = ?15, error_words = ?16, park = ?17, \
        external_id = ?18, ended = ?19, late_contradiction = ?20, updated_at_ms = ?21, \
        row_check = ?22 WHERE operation_key = ?1";
    let kept = &item.delivery;
    debug_assert_eq!(check_whole(kept), Ok(()), "what is written can be read");
    let error = kept.last_error.as_ref();
    let changed = connection.prepare_cached(SQL)?.execute(params![
        kept.key.as_bytes().as_slice(),
        kept.state.code(),
        kept.fence,
        kept.lease.as_ref().map(|lease| lease.boot.as_bytes().as_slice()),
        kept.lease.map(|lease| lease.until.as_ms()),
        kept.lease.map(|lease| lease.probe),
        kept.attempts_count,
        kept.attempt_limit,
        kept.unknown_count,
        kept.lookups_count,
        kept.first_dispatch_at.map(Timestamp::as_ms),
        kept.last_send_until.map(Timestamp::as_ms),
        kept.next_attempt_at.map(Timestamp::as_ms),
        kept.deliver_by.map(Timestamp::as_ms),
        error.map(|(class, _)| class.as_str().as_bytes()),
        error.map(|(_, words)| words.as_bytes()),
        kept.park.map(park_code),
        kept.external_id.as_ref().map(String::as_bytes),
        kept.ended.map(ended_code),
        kept.late_contradiction,
        kept.updated_at.as_ms(),
        row_check(item).as_slice(),
    ])?;
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

/// Takes a damaged item out of what is claimed, and raises the alarm. Nothing else of it is changed:
/// it is what a person will look at.
pub(super) fn set_aside(
    connection: &Connection,
    key: &[u8],
    damage: &dyn std::fmt::Display,
) -> rusqlite::Result<()> {
    let operation_key = uuid::Uuid::from_slice(key).unwrap_or_default();
    tracing::error!(%operation_key, %damage, "an item of the outbox is damaged; set aside");
    connection
        .prepare_cached("UPDATE outbox SET quarantined = 1 WHERE operation_key = ?1")?
        .execute([key])?;
    Ok(())
}

/// Keeps the frozen request of an item.
pub(super) fn insert_request(
    connection: &Connection,
    key: OperationKey,
    request: &[u8],
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO outbox_requests (operation_key, row_check, request) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![
            key.as_bytes().as_slice(),
            request_check(key, request).as_slice(),
            request
        ])?;
    Ok(())
}

/// The frozen request of an item; the inner error is what is wrong with it.
pub(super) fn request(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<Result<Arc<[u8]>, Damage>> {
    connection
        .prepare_cached("SELECT row_check, request FROM outbox_requests WHERE operation_key = ?1")?
        .query_row([key.as_bytes().as_slice()], |row| Ok(decode_request(key, &mut Cells::of(row))))
        .optional()
        .map(|found| found.unwrap_or(Err(damage("request", "is missing"))))
}

/// Reads the digest of a request and the request.
///
/// # Errors
/// [`Damage`] if it is not there, or not what was frozen.
pub(super) fn decode_request(
    key: OperationKey,
    cells: &mut Cells<'_, '_>,
) -> Result<Arc<[u8]>, Damage> {
    let Some(check) = cells.optional_blob("row_check")? else {
        return Err(damage("request", "is missing"));
    };
    let request = cells.blob("request")?;
    if request_check(key, request) == check {
        Ok(Arc::from(request))
    } else {
        Err(damage("request", "does not have the digest that is kept of it"))
    }
}

/// Forgets the request of an operation whose result retention takes.
pub(in crate::sqlite) fn purge_request(
    connection: &Connection,
    key: OperationKey,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM outbox_requests WHERE operation_key = ?1")?
        .execute([key.as_bytes().as_slice()])
        .map(|_| ())
}

fn request_check(key: OperationKey, request: &[u8]) -> [u8; 16] {
    let mut digest = RowCheck::new(b"counterfoil outbox request v1\0");
    digest.bytes(key.as_bytes());
    digest.bytes(request);
    digest.finish()
}

/// Terms as they are kept.
pub(super) fn terms_text(terms: Terms) -> Vec<u8> {
    serde_json::to_vec(&WireTerms::from(terms)).expect("numbers and words are JSON")
}

thread_local! {
    /// The terms that this thread read last: mostly those of the next item too.
    static READ_LAST: RefCell<Option<(Vec<u8>, Terms)>> = const { RefCell::new(None) };
}

fn parse_terms(text: &[u8]) -> Result<Terms, Damage> {
    let wire: WireTerms =
        serde_json::from_slice(text).map_err(|_| damage("terms_no", "stands for no terms"))?;
    Terms::try_from(wire).map_err(|_| damage("terms_no", "stands for terms that are refused"))
}

/// Reads a row of one of the statements above.
///
/// # Errors
/// [`Damage`] with the first check that fails.
pub(super) fn decode(row: &Row<'_>) -> Result<Item, Damage> {
    decode_from(&mut Cells::of(row))
}

/// Reads the columns of an item; what follows them in the row is left.
///
/// # Errors
/// As [`decode`]; `cells` then stand anywhere.
pub(super) fn decode_from(cells: &mut Cells<'_, '_>) -> Result<Item, Damage> {
    let key = OperationKey::from_bytes(cells.bytes("operation_key")?);
    let target_no = cells.integer("target_no")?;
    let target = cells.name("target_no", TargetName::parse)?;
    let terms_no = cells.integer("terms_no")?;
    let terms = cells.terms()?;
    let state = State::from_code(cells.integer("state")?).ok_or(damage("state", "is unknown"))?;
    let fence = cells.integer("fence")?;
    let lease = cells.lease()?;
    let delivery = Delivery {
        key,
        target,
        terms,
        state,
        fence,
        lease,
        attempts_count: cells.count("attempts")?,
        attempt_limit: cells.count("attempt_limit")?,
        unknown_count: cells.count("unknown")?,
        lookups_count: cells.count("lookups")?,
        first_dispatch_at: cells.optional_time("first_dispatch_ms")?,
        last_send_until: cells.optional_time("last_send_until_ms")?,
        next_attempt_at: cells.optional_time("next_attempt_ms")?,
        deliver_by: cells.optional_time("deliver_by_ms")?,
        last_error: cells.last_error()?,
        park: cells.one_of("park", &ParkReason::ALL)?,
        external_id: cells.text("external_id")?,
        ended: cells.one_of("ended", &Ended::ALL)?,
        late_contradiction: cells.flag("late_contradiction")?,
        created_at: cells.time("created_at_ms")?,
        updated_at: cells.time("updated_at_ms")?,
    };
    if cells.flag("quarantined")? {
        return Err(damage("quarantined", "the item was set aside"));
    }
    let check: [u8; 16] = cells.bytes("row_check")?;
    let item = Item { delivery, target_no, terms_no };
    check_whole(&item.delivery)?;
    if row_check(&item) != check {
        return Err(damage("row_check", "is not the digest of the row"));
    }
    Ok(item)
}

/// What no single column shows: that the columns agree with each other.
fn check_whole(kept: &Delivery) -> Result<(), Damage> {
    let held = matches!(kept.state, State::Leased | State::Sending);
    let rules = [
        (held == kept.lease.is_some(), "lease_boot", "does not fit the state"),
        (
            (kept.state == State::Queued) == kept.next_attempt_at.is_some(),
            "next_attempt_ms",
            "does not fit the state",
        ),
        ((kept.state == State::Parked) == kept.park.is_some(), "park", "does not fit the state"),
        (kept.fence >= 0, "fence", "is below 0"),
    ];
    match rules.iter().find(|(holds, _, _)| !holds) {
        None => Ok(()),
        Some((_, column, rule)) => Err(damage(column, rule)),
    }
}

/// The digest of a row. Target and terms are in it by what they say, not by their numbers alone.
fn row_check(item: &Item) -> [u8; 16] {
    let kept = &item.delivery;
    let mut digest = RowCheck::new(b"counterfoil outbox row v1\0");
    digest.bytes(kept.key.as_bytes());
    digest.bytes(kept.target.as_str().as_bytes());
    add_terms(&mut digest, &kept.terms);
    digest.integer(kept.state.code());
    digest.integer(kept.fence);
    digest.optional(kept.lease, |digest, lease| {
        digest.bytes(lease.boot.as_bytes());
        digest.integer(lease.until.as_ms());
        digest.integer(lease.probe.into());
    });
    digest.integer(kept.attempts_count.into());
    digest.integer(kept.attempt_limit.into());
    digest.integer(kept.unknown_count.into());
    digest.integer(kept.lookups_count.into());
    digest.time(kept.first_dispatch_at);
    digest.time(kept.last_send_until);
    digest.time(kept.next_attempt_at);
    digest.time(kept.deliver_by);
    digest.optional(kept.last_error.as_ref(), |digest, (class, words)| {
        digest.bytes(class.as_str().as_bytes());
        digest.bytes(words.as_bytes());
    });
    digest.optional(kept.park, |digest, reason| digest.integer(park_code(reason)));
    digest.optional(kept.external_id.as_ref(), |digest, id| digest.bytes(id.as_bytes()));
    digest.optional(kept.ended, |digest, ended| digest.integer(ended_code(ended)));
    digest.integer(kept.late_contradiction.into());
    digest.integer(kept.created_at.as_ms());
    digest.integer(kept.updated_at.as_ms());
    digest.finish()
}

/// The longest contract's word, six spans with a mark before each, and the attempts.
const TERMS_BYTES: usize = 13 + 6 * (1 + 16) + 4;

/// Adds terms, in a form that costs less than their text.
fn add_terms(digest: &mut RowCheck, terms: &Terms) {
    let (mut bytes, mut length) = ([0; TERMS_BYTES], 0);
    let mut add = |part: &[u8]| {
        bytes[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    };
    add(terms.contract.as_str().as_bytes());
    let spans = [
        terms.contract.lifetime(),
        terms.contract.absence_after(),
        Some(terms.backoff_base),
        Some(terms.backoff_cap),
        Some(terms.send_limit),
        terms.deliver_within,
    ];
    for span in spans {
        add(&[u8::from(span.is_some())]);
        add(&span.unwrap_or_default().as_millis().to_be_bytes());
    }
    add(&terms.max_attempts_count.to_be_bytes());
    digest.bytes(&bytes[..length]);
}

fn park_code(reason: ParkReason) -> i64 {
    number_of(&ParkReason::ALL, reason)
}

/// The number of a reason in the table.
pub(super) fn park_number(reason: ParkReason) -> i64 {
    park_code(reason)
}

fn ended_code(ended: Ended) -> i64 {
    number_of(&Ended::ALL, ended)
}

/// Where it stands among all, counted from 1.
fn number_of<T: PartialEq>(all: &[T], one: T) -> i64 {
    let at = all.iter().position(|other| *other == one);
    at.map_or(0, |at| i64::try_from(at).unwrap_or(i64::MAX - 1) + 1)
}

impl Cells<'_, '_> {
    fn count(&mut self, column: &'static str) -> Result<u32, Damage> {
        u32::try_from(self.integer(column)?).map_err(|_| damage(column, "is out of range"))
    }

    fn one_of<T: Copy>(&mut self, column: &'static str, all: &[T]) -> Result<Option<T>, Damage> {
        let Some(number) = self.optional_integer(column)? else { return Ok(None) };
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let found = at.and_then(|at| all.get(at)).ok_or(damage(column, "is unknown"))?;
        Ok(Some(*found))
    }

    fn text(&mut self, column: &'static str) -> Result<Option<String>, Damage> {
        self.optional_blob(column)?.map(|bytes| utf8(column, bytes).map(str::to_owned)).transpose()
    }

    fn terms(&mut self) -> Result<Terms, Damage> {
        let text = self.blob("terms_no")?;
        READ_LAST.with_borrow_mut(|last| match last {
            Some((same, terms)) if same == text => Ok(*terms),
            _ => {
                let terms = parse_terms(text)?;
                *last = Some((text.to_owned(), terms));
                Ok(terms)
            }
        })
    }

    fn lease(&mut self) -> Result<Option<Lease>, Damage> {
        let boot = self.optional_blob("lease_boot")?;
        let until = self.optional_time("lease_until_ms")?;
        let probe = self.optional_integer("lease_probe")?;
        match (boot, until, probe) {
            (None, None, None) => Ok(None),
            (Some(boot), Some(until), Some(probe @ (0 | 1))) => {
                let boot: [u8; 16] =
                    boot.try_into().map_err(|_| damage("lease_boot", "has another length"))?;
                Ok(Some(Lease { boot: BootId::from_bytes(boot), until, probe: probe == 1 }))
            }
            _ => Err(damage("lease_boot", "is there only in part")),
        }
    }

    fn last_error(&mut self) -> Result<Option<(ErrorClass, String)>, Damage> {
        let (class, words) = (self.text("error_class")?, self.text("error_words")?);
        match (class, words) {
            (None, None) => Ok(None),
            (Some(class), Some(words)) => {
                let class =
                    ErrorClass::from_word(&class).ok_or(damage("error_class", "is unknown"))?;
                Ok(Some((class, words)))
            }
            _ => Err(damage("error_class", "is there only in part")),
        }
    }
}
