//! Who is revoked, as rows; and what operators ordered of targets, principals and tenants.

use counterfoil_core::delivery::ParkReason;
use counterfoil_core::identity::{Principal, Tenant};
use counterfoil_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::outbox::{RevokeOrder, Revoked};
use crate::outbox_steps::revoked_reason;
use crate::sqlite::cells::{Cells, Damage};

/// What stands against a principal's writes.
pub(super) fn against(
    connection: &Connection,
    tenant: &Tenant,
    principal: &Principal,
) -> rusqlite::Result<Option<ParkReason>> {
    let mut statement = connection.prepare_cached(
        "SELECT principal = x'' FROM outbox_revocations \
         WHERE tenant = ?1 AND principal IN (x'', ?2)",
    )?;
    let mut rows = statement.query([tenant.as_str().as_bytes(), principal.as_str().as_bytes()])?;
    let (mut whole, mut one) = (false, false);
    while let Some(row) = rows.next()? {
        if row.get(0)? { whole = true } else { one = true }
    }
    Ok(revoked_reason(whole, one))
}

/// Whether anybody is revoked at all.
pub(super) fn is_anybody(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM outbox_revocations)")?
        .query_row([], |row| row.get(0))
}

/// Puts an entry down, or takes it away; says whether that changed anything.
pub(super) fn set(
    connection: &Connection,
    order: &RevokeOrder,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let tenant = order.tenant.as_str().as_bytes();
    let principal = order.principal.as_ref().map_or("", |named| named.as_str()).as_bytes();
    let changed = if order.revoked {
        connection
            .prepare_cached(
                "INSERT INTO outbox_revocations (tenant, principal, since_ms, who, reason) \
                 VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                tenant,
                principal,
                now.as_ms(),
                order.who.as_bytes(),
                order.reason.as_bytes()
            ])?
    } else {
        connection
            .prepare_cached("DELETE FROM outbox_revocations WHERE tenant = ?1 AND principal = ?2")?
            .execute([tenant, principal])?
    };
    Ok(changed > 0)
}

/// Every entry that can be read.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Revoked>> {
    let mut statement = connection.prepare_cached(
        "SELECT tenant, principal, since_ms, who, reason FROM outbox_revocations \
         ORDER BY tenant, principal",
    )?;
    let entries = statement.query_map([], |row| Ok(decode(&mut Cells::of(row))))?;
    let mut revoked = Vec::new();
    for entry in entries {
        match entry? {
            Ok(entry) => revoked.push(entry),
            Err(damage) => tracing::error!(%damage, "a revocation is damaged"),
        }
    }
    Ok(revoked)
}

/// One order that is not of an item, with who and why.
pub(super) struct OnRecord<'a> {
    pub(super) kind: &'static str,
    pub(super) subject: &'a str,
    pub(super) principal: Option<&'a str>,
    pub(super) who: &'a str,
    pub(super) reason: &'a str,
}

/// Puts an order on record.
pub(super) fn put_on_record(
    connection: &Connection,
    order: &OnRecord<'_>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO outbox_orders (at_ms, kind, subject, principal, who, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            now.as_ms(),
            order.kind.as_bytes(),
            order.subject.as_bytes(),
            order.principal.map(str::as_bytes),
            order.who.as_bytes(),
            order.reason.as_bytes(),
        ])
        .map(|_| ())
}

fn decode(cells: &mut Cells<'_, '_>) -> Result<Revoked, Damage> {
    let tenant = cells.name("tenant", Tenant::parse)?;
    let principal = cells.name("principal", |text| match text {
        "" => Ok(None),
        named => Principal::parse(named).map(Some),
    })?;
    let since = cells.time("since_ms")?;
    let who = cells.name("who", |text| Ok::<_, Damage>(text.to_owned()))?;
    let reason = cells.name("reason", |text| Ok::<_, Damage>(text.to_owned()))?;
    Ok(Revoked { tenant, principal, since, who, reason })
}
