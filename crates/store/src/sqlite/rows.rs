//! Records as rows: written with a digest of themselves, and read back with every check that tells
//! a damaged row from a sound one. A row that fails one is damaged, never guessed at.

use std::time::Duration;

use counterfoil_core::fingerprint::{Fingerprint, KeyId, Profile};
use counterfoil_core::identity::{
    BootId, IndexKind, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::{
    Binding, EffectRef, Nature, Owner, Record, Resolution, StoredResult,
};
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::cells::{Cells, RowCheck, damage, utf8};
use crate::steps::Kept;
use crate::tables::is_identifier;

pub(super) use super::cells::Damage;

/// What was found under a key or an ID.
#[derive(Debug)]
pub(super) enum Found {
    Absent,
    Kept(Box<Kept>),
    Damaged(Damage),
}

/// The columns of a record in the order in which [`decode`] reads them: `o` is its row, `n` its
/// tenant's.
macro_rules! record_columns {
    () => {
        record_columns!("o.nature")
    };
    ($nature:literal) => {
        concat!(
            "o.operation_key, n.name, o.operation_id, o.principal, o.tool_id, o.tool_version, \
             o.profile, o.key_id, o.fingerprint, o.call_fingerprint, o.state, o.phase, \
             o.boot_id, o.fence, o.lease_until_ms, o.effect_table, o.effect_row, \
             o.effect_digest, o.result, o.nonce, o.created_at_ms, o.authority_ends_ms, \
             o.settled_at_ms, o.retention_ms, o.retention_ends_ms, o.purged, o.resolution, \
             o.quarantined, o.row_check, o.id_kind, o.id_bytes, ",
            $nature
        )
    };
}
pub(super) use record_columns;

macro_rules! select {
    ($rest:literal) => {
        select!("o.nature", $rest)
    };
    ($nature:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            record_columns!($nature),
            " FROM operations o LEFT JOIN tenants n ON n.tenant_no = o.tenant_no ",
            $rest
        )
    };
}

const BY_ID: &str = select!(
    "WHERE o.tenant_no = (SELECT tenant_no FROM tenants WHERE name = ?1) \
     AND o.id_kind = ?2 AND o.id_bytes = ?3"
);
const BY_KEY: &str = select!("WHERE o.operation_key = ?1");
/// The next so many records after a key, for a check of the whole file.
pub(super) const AFTER_KEY: &str =
    select!("WHERE o.operation_key > ?1 ORDER BY o.operation_key LIMIT ?2");
/// The same in a ledger of a version that had no column for the nature: all were local.
pub(super) const AFTER_KEY_ALL_LOCAL: &str =
    select!("1", "WHERE o.operation_key > ?1 ORDER BY o.operation_key LIMIT ?2");

/// The row of an ID within its tenant. Another ID with the same index key is found too: whoever
/// asks compares the text.
pub(super) fn find_by_id(
    connection: &Connection,
    tenant: &Tenant,
    id: &OperationId,
) -> rusqlite::Result<Found> {
    let key = id.index_key();
    find(
        connection,
        BY_ID,
        params![tenant.as_str().as_bytes(), key.kind as i64, key.bytes.as_slice()],
    )
}

/// The row of an operation.
pub(super) fn find_by_key(connection: &Connection, key: OperationKey) -> rusqlite::Result<Found> {
    find(connection, BY_KEY, params![key.as_bytes().as_slice()])
}

fn find(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Found> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(params, |row| Ok(decode(row))).optional()?;
    Ok(match found {
        None => Found::Absent,
        Some(Ok(kept)) => Found::Kept(Box::new(kept)),
        Some(Err(damage)) => Found::Damaged(damage),
    })
}

/// Writes the row of an operation that begins. It becomes sound with [`update`] in the same
/// transaction: until then its check is zeros, so that it could never be taken for a record.
pub(super) fn insert(connection: &Connection, tenant_no: i64, kept: &Kept) -> rusqlite::Result<()> {
    insert_row(connection, tenant_no, kept, [0; 16])
}

/// Writes the row of an operation that begins and says all that there is to say yet.
pub(super) fn insert_whole(
    connection: &Connection,
    tenant_no: i64,
    kept: &Kept,
) -> rusqlite::Result<()> {
    insert_row(connection, tenant_no, kept, row_check(kept))
}

fn insert_row(
    connection: &Connection,
    tenant_no: i64,
    kept: &Kept,
    check: [u8; 16],
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT INTO operations (operation_key, tenant_no, id_kind, id_bytes, \
        operation_id, principal, tool_id, tool_version, profile, key_id, fingerprint, \
        call_fingerprint, state, phase, boot_id, fence, lease_until_ms, nonce, created_at_ms, \
        authority_ends_ms, retention_ms, row_check, nature) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, \
        ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";
    let record = &kept.record;
    let id = record.operation_id.index_key();
    let (state, phase) = record.state.code();
    connection.prepare_cached(SQL)?.execute(params![
        record.key.as_bytes().as_slice(),
        tenant_no,
        id.kind as i64,
        id.bytes.as_slice(),
        record.operation_id.as_str().as_bytes(),
        record.principal.as_str().as_bytes(),
        record.tool_id.as_str().as_bytes(),
        record.tool_version.as_str().as_bytes(),
        profile_code(record.binding.profile),
        record.binding.key_id.0,
        record.binding.full.to_bytes().as_slice(),
        record.binding.call.to_bytes().as_slice(),
        state,
        phase,
        kept.owner.boot.as_bytes().as_slice(),
        kept.owner.fence,
        kept.owner.lease_until.as_ms(),
        record.nonce.as_bytes().as_slice(),
        record.created_at.as_ms(),
        record.authority_ends_at.map(Timestamp::as_ms),
        retention_ms(kept),
        check.as_slice(),
        nature_code(record.nature),
    ])?;
    Ok(())
}

/// Writes everything of a record that can change, and its check.
pub(super) fn update(connection: &Connection, kept: &Kept) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE operations SET state = ?2, phase = ?3, fence = ?4, \
        lease_until_ms = ?5, effect_table = ?6, effect_row = ?7, effect_digest = ?8, result = ?9, \
        settled_at_ms = ?10, retention_ends_ms = ?11, purged = ?12, resolution = ?13, \
        row_check = ?14, boot_id = ?15 WHERE operation_key = ?1";
    let record = &kept.record;
    let (state, phase) = record.state.code();
    let effect = record.effect.as_ref();
    let changed = connection.prepare_cached(SQL)?.execute(params![
        record.key.as_bytes().as_slice(),
        state,
        phase,
        kept.owner.fence,
        kept.owner.lease_until.as_ms(),
        effect.map(|effect| effect.table.as_bytes()),
        effect.map(|effect| effect.id),
        effect.map(|effect| effect.digest.as_slice()),
        record.result.as_ref().map(|result| result.as_json().as_bytes()),
        record.settled_at.map(Timestamp::as_ms),
        record.retention_ends_at.map(Timestamp::as_ms),
        record.purged,
        record.resolution.map(resolution_code),
        row_check(kept).as_slice(),
        kept.owner.boot.as_bytes().as_slice(),
    ])?;
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

/// Reads a row of one of the statements above.
///
/// # Errors
/// [`Damage`] with the first check that fails.
pub(super) fn decode(row: &Row<'_>) -> Result<Kept, Damage> {
    decode_from(&mut Cells::of(row))
}

/// Reads the columns of a record in a row of another statement.
///
/// # Errors
/// As [`decode`].
pub(super) fn decode_from(cells: &mut Cells<'_, '_>) -> Result<Kept, Damage> {
    let key = OperationKey::from_bytes(cells.bytes("operation_key")?);
    let tenant = cells.name("tenant_no", Tenant::parse)?;
    let operation_id = cells.name("operation_id", OperationId::parse)?;
    let principal = cells.name("principal", Principal::parse)?;
    let tool_id = cells.name("tool_id", ToolId::parse)?;
    let tool_version = cells.name("tool_version", ToolVersion::parse)?;
    let binding = cells.binding()?;
    let state = cells.state()?;
    let owner = cells.owner()?;
    let effect = cells.effect()?;
    let result = cells.result()?;
    let nonce = Nonce::from_bytes(cells.bytes("nonce")?);
    let created_at = cells.time("created_at_ms")?;
    let authority_ends_at = cells.optional_time("authority_ends_ms")?;
    let settled_at = cells.optional_time("settled_at_ms")?;
    let retention = u64::try_from(cells.integer("retention_ms")?)
        .map(Duration::from_millis)
        .map_err(|_| damage("retention_ms", "is negative"))?;
    let retention_ends_at = cells.optional_time("retention_ends_ms")?;
    let purged = cells.flag("purged")?;
    let resolution = cells.resolution()?;
    if cells.flag("quarantined")? {
        return Err(damage("quarantined", "the record was set aside by hand"));
    }
    let check: [u8; 16] = cells.bytes("row_check")?;
    let id = operation_id.index_key();
    if cells.integer("id_kind")? != id.kind as i64 || cells.bytes("id_bytes")? != id.bytes {
        return Err(damage("id_bytes", "do not belong to the operation ID"));
    }
    let nature = cells.nature()?;
    let in_progress = matches!(state, State::InProgress(_));
    let kept = Kept {
        record: Record {
            key,
            tenant,
            operation_id,
            principal,
            tool_id,
            tool_version,
            binding,
            nature,
            state,
            owner: in_progress.then_some(owner),
            effect,
            result,
            nonce,
            created_at,
            authority_ends_at,
            settled_at,
            retention_ends_at,
            purged,
            resolution,
        },
        owner,
        retention,
    };
    check_whole(&kept)?;
    if row_check(&kept) != check {
        return Err(damage("row_check", "is not the digest of the row"));
    }
    Ok(kept)
}

/// The names that a row of one of the statements above bears, as far as they can be read. They are
/// for telling a person which record is damaged, and for nothing else.
pub(super) fn names(row: &Row<'_>) -> (Option<Tenant>, Option<OperationId>) {
    let text = |at| row.get_ref(at).ok()?.as_bytes().ok().and_then(|b| std::str::from_utf8(b).ok());
    let tenant = text(1).and_then(|text| Tenant::parse(text).ok());
    let operation_id = text(2).and_then(|text| OperationId::parse(text).ok());
    (tenant, operation_id)
}

/// What no single column shows: that the columns agree with each other.
fn check_whole(kept: &Kept) -> Result<(), Damage> {
    let record = &kept.record;
    let settled = record.state.ages();
    let has_result = record.result.is_some() || record.purged;
    // The upstream's answer to a direct operation stands beside the record.
    let is_direct = record.nature == Nature::Direct;
    let rules = [
        (settled == record.settled_at.is_some(), "settled_at_ms", "does not fit the state"),
        (
            record.retention_ends_at == record.settled_at.map(|at| at.plus(kept.retention)),
            "retention_ends_ms",
            "is not the settlement plus the retention",
        ),
        (
            if is_direct { settled || !has_result } else { settled == has_result },
            "result",
            "does not fit the state",
        ),
        (!(record.purged && record.result.is_some()), "purged", "and there is a result"),
        (
            record.state != State::InProgress(Phase::FirstCommit) || record.effect.is_some(),
            "effect_row",
            "is missing though a first step is committed",
        ),
        (
            record.resolution.is_none()
                || matches!(record.state, State::Applied | State::NotApplied),
            "resolution",
            "does not fit the state",
        ),
        (kept.owner.fence >= 1, "fence", "is below 1"),
        (
            record.state != State::InProgress(Phase::Queued) || record.nature == Nature::Deferred,
            "nature",
            "does not fit the state",
        ),
        (
            is_direct
                || !matches!(
                    record.state,
                    State::Answered | State::InProgress(Phase::AwaitingInput)
                ),
            "nature",
            "does not fit the state",
        ),
    ];
    match rules.iter().find(|(holds, _, _)| !holds) {
        None => Ok(()),
        Some((_, column, rule)) => Err(damage(column, rule)),
    }
}

/// The digest of a row.
fn row_check(kept: &Kept) -> [u8; 16] {
    let record = &kept.record;
    let (state, phase) = record.state.code();
    let mut digest = RowCheck::new(b"counterfoil operation row v1\0");
    digest.bytes(record.key.as_bytes());
    digest.bytes(record.tenant.as_str().as_bytes());
    digest.bytes(record.operation_id.as_str().as_bytes());
    digest.bytes(record.principal.as_str().as_bytes());
    digest.bytes(record.tool_id.as_str().as_bytes());
    digest.bytes(record.tool_version.as_str().as_bytes());
    digest.integer(profile_code(record.binding.profile));
    digest.integer(record.binding.key_id.0.into());
    digest.bytes(&record.binding.full.to_bytes());
    digest.bytes(&record.binding.call.to_bytes());
    digest.integer(state);
    digest.integer(phase);
    digest.bytes(kept.owner.boot.as_bytes());
    digest.integer(kept.owner.fence);
    digest.integer(kept.owner.lease_until.as_ms());
    digest.optional(record.effect.as_ref(), |digest, effect| {
        digest.bytes(effect.table.as_bytes());
        digest.integer(effect.id);
        digest.bytes(&effect.digest);
    });
    digest.optional(record.result.as_ref(), |digest, result| {
        digest.bytes(result.as_json().as_bytes());
    });
    digest.bytes(record.nonce.as_bytes());
    digest.integer(record.created_at.as_ms());
    digest.time(record.authority_ends_at);
    digest.time(record.settled_at);
    digest.integer(retention_ms(kept));
    digest.time(record.retention_ends_at);
    digest.integer(record.purged.into());
    digest.optional(record.resolution, |digest, how| digest.integer(resolution_code(how)));
    if record.nature != Nature::Local {
        // Rows that were written before there was any other have no word of it.
        digest.integer(nature_code(record.nature));
    }
    digest.finish()
}

const fn profile_code(profile: Profile) -> i64 {
    match profile {
        Profile::StrictV1 => 1,
        Profile::JcsV1 => 2,
    }
}

const fn nature_code(nature: Nature) -> i64 {
    match nature {
        Nature::Local => 1,
        Nature::Deferred => 2,
        Nature::Direct => 3,
    }
}

const fn resolution_code(resolution: Resolution) -> i64 {
    match resolution {
        Resolution::Proved => 1,
        Resolution::Unproved => 2,
    }
}

/// A span is at most 100 years, so its milliseconds fit.
fn retention_ms(kept: &Kept) -> i64 {
    i64::try_from(kept.retention.as_millis()).unwrap_or(i64::MAX)
}

impl Cells<'_, '_> {
    fn binding(&mut self) -> Result<Binding, Damage> {
        let profile = match self.integer("profile")? {
            1 => Profile::StrictV1,
            2 => Profile::JcsV1,
            _ => return Err(damage("profile", "is unknown")),
        };
        let key_id = u32::try_from(self.integer("key_id")?)
            .map_err(|_| damage("key_id", "is out of range"))?;
        Ok(Binding {
            profile,
            key_id: KeyId(key_id),
            full: Fingerprint::from_bytes(self.bytes("fingerprint")?),
            call: Fingerprint::from_bytes(self.bytes("call_fingerprint")?),
        })
    }

    fn state(&mut self) -> Result<State, Damage> {
        let (state, phase) = (self.integer("state")?, self.integer("phase")?);
        State::from_code(state, phase).ok_or(damage("state", "is unknown"))
    }

    fn nature(&mut self) -> Result<Nature, Damage> {
        match self.integer("nature")? {
            1 => Ok(Nature::Local),
            2 => Ok(Nature::Deferred),
            3 => Ok(Nature::Direct),
            _ => Err(damage("nature", "is unknown")),
        }
    }

    fn owner(&mut self) -> Result<Owner, Damage> {
        Ok(Owner {
            boot: BootId::from_bytes(self.bytes("boot_id")?),
            fence: self.integer("fence")?,
            lease_until: self.time("lease_until_ms")?,
        })
    }

    fn effect(&mut self) -> Result<Option<EffectRef>, Damage> {
        let table = self.optional_blob("effect_table")?;
        let id = self.optional_integer("effect_row")?;
        let digest = self.optional_blob("effect_digest")?;
        let (table, id, digest) = match (table, id, digest) {
            (None, None, None) => return Ok(None),
            (Some(table), Some(id), Some(digest)) => (table, id, digest),
            _ => return Err(damage("effect_row", "is named only in part")),
        };
        let table = utf8("effect_table", table)?;
        if !is_identifier(table) {
            return Err(damage("effect_table", "is not the name of a table"));
        }
        let digest =
            digest.try_into().map_err(|_| damage("effect_digest", "has another length"))?;
        Ok(Some(EffectRef { table: table.to_owned(), id, digest }))
    }

    fn result(&mut self) -> Result<Option<StoredResult>, Damage> {
        let Some(bytes) = self.optional_blob("result")? else { return Ok(None) };
        StoredResult::from_json(utf8("result", bytes)?)
            .map(Some)
            .map_err(|_| damage("result", "is not JSON"))
    }

    fn resolution(&mut self) -> Result<Option<Resolution>, Damage> {
        match self.optional_integer("resolution")? {
            None => Ok(None),
            Some(1) => Ok(Some(Resolution::Proved)),
            Some(2) => Ok(Some(Resolution::Unproved)),
            Some(_) => Err(damage("resolution", "is unknown")),
        }
    }
}

const _: () = assert!(IndexKind::TimeOrdered as i64 == 1 && IndexKind::Digest as i64 == 2);
