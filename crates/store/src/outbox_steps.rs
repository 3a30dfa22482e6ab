//! The outbox's decisions that every back end takes alike, around the steps of a delivery. Pure: a
//! back end differs only in how it finds and keeps rows.

use counterfoil_core::admission::{Admitted, Decision, LedgerTime, decide};
use counterfoil_core::delivery::{
    self, Change, Delivery, Gate, ParkReason, State, TargetChange, TargetState, step,
};
use counterfoil_core::identity::{BootId, OperationKey, Principal, Tenant};
use counterfoil_core::limits::{DEFAULT_PAGE_COUNT, MAX_PAGE_COUNT};
use counterfoil_core::observation::EffectSeen;
use counterfoil_core::operation::{self, Event, IllegalTransition, Verdict};
use counterfoil_core::record::{Nature, Record, Resolution, StoredResult};
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_core::time::Timestamp;

use crate::contract::{Resolve, Resolved};
use crate::error::StoreError;
use crate::outbox::{Action, BeginSend, DeliveryQuery, Happened, Report, Revoked};
use crate::steps::{
    AuditLine, Kept, check_result, correct as correct_record, first_step, resolve as resolve_record,
};

/// The kind of audit event for a call that was accepted before.
pub(crate) const DUPLICATE_SUBMISSION: &str = "duplicate_submission";

/// What a call to accept comes to.
#[derive(Debug)]
pub(crate) enum Acceptance {
    /// Nothing is written.
    Refused(Refusal),
    /// The record and its item are told as they are now.
    Duplicate,
    /// The record and its item are made.
    Fresh,
}

/// Decides on a call whose effect is to be delivered later. Who is revoked learns nothing of any
/// record. A record that has no item is another tool's, and conflicts.
pub(crate) fn accept(
    call: &Admitted,
    record: Option<&Record>,
    revoked: bool,
    time: LedgerTime,
) -> Acceptance {
    let id = || call.operation_id().clone();
    if revoked {
        return Acceptance::Refused(Refusal::new(
            Code::OperationAuthorityExpired,
            "this principal, or its tenant, was revoked by an operator, so nothing was written; \
             ask an operator to restore it",
            Some(id()),
        ));
    }
    match decide(call, record, time) {
        Decision::Refuse(refusal) => Acceptance::Refused(refusal),
        Decision::Fresh => Acceptance::Fresh,
        Decision::Replay if record.is_some_and(|record| record.nature == Nature::Deferred) => {
            Acceptance::Duplicate
        }
        Decision::Replay => Acceptance::Refused(Refusal::conflict(id())),
    }
}

/// The record that an accepted call begins with, and the kind of its event. No run owns it: its item
/// has leases of its own.
pub(crate) fn accepted(call: &Admitted, now: Timestamp) -> (Kept, &'static str) {
    let mut kept = Kept::begin(call, now);
    let transition = first_step(Event::Accept);
    kept.record.nature = Nature::Deferred;
    kept.owner.lease_until = now;
    kept.record.owner = Some(kept.owner);
    kept.advance(transition);
    (kept, transition.audit_kind())
}

/// Takes a step's part of the operation's own record; the kind of the event to write, if any.
///
/// # Errors
/// [`StoreError::Quarantined`] if record and item contradict each other.
pub(crate) fn apply(
    kept: &mut Kept,
    change: &Change,
    now: Timestamp,
) -> Result<Option<&'static str>, StoreError> {
    let Some(event) = change.operation else { return Ok(change.audit) };
    let transition = operation::step(Some(kept.record.state), event).map_err(|_| {
        StoreError::Quarantined { reason: "record and delivery contradict each other".into() }
    })?;
    if transition.to().is_terminal() {
        let result = change.result.clone().unwrap_or_else(|| StoredResult::from_text("settled"));
        kept.settle(transition, small_enough(result), now);
    } else {
        kept.advance(transition);
        let in_progress = matches!(transition.to(), operation::State::InProgress(_));
        kept.record.owner = in_progress.then_some(kept.owner);
    }
    Ok(change.audit.or(Some(transition.audit_kind())))
}

/// What the target said it did is never lost, only its words may be.
fn small_enough(result: StoredResult) -> StoredResult {
    match check_result(&result) {
        Ok(()) => result,
        Err(_) => StoredResult::from_text("done; the target's answer is too large to keep"),
    }
}

/// What a step tells of the target; whether it was parked by it and was not before.
pub(crate) fn apply_to_target(
    target: &mut TargetState,
    change: Option<&TargetChange>,
    now: Timestamp,
) -> bool {
    match change {
        None => false,
        Some(TargetChange::Open) => {
            target.open();
            false
        }
        Some(TargetChange::Park { class, words, hold }) => target.park(*class, words, *hold, now),
    }
}

/// Randomness for the pause after a lease that ended, where nobody is there to give any: the same
/// in every back end, another for every item and claim.
pub(crate) fn lapse_seed(item: &Delivery) -> u64 {
    let bytes = item.key.as_bytes();
    let tail = bytes[8..].iter().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
    let head = bytes[..8].iter().fold(0_u64, |word, byte| (word << 8) | u64::from(*byte));
    let mut word = tail ^ head.rotate_left(32) ^ item.fence.unsigned_abs();
    // The finalizer of SplitMix64: every bit of the input moves every bit of the seed.
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Whether a run holds an item under a fence.
fn holds(item: &Delivery, boot: BootId, fence: i64) -> bool {
    item.fence == fence && item.lease.is_some_and(|lease| lease.boot == boot)
}

/// What a report comes to; `None` if its reporter does not hold the item any more and has nothing to
/// tell.
pub(crate) fn report(item: &Delivery, report: &Report, now: Timestamp) -> Option<Change> {
    let by = (report.boot, report.fence);
    let seed = report.seed;
    let event = match report.what.clone() {
        Happened::Sent(end) => delivery::Event::Sent { by, end, seed },
        Happened::LookedUp(end) => delivery::Event::LookedUp { by, end, seed },
        Happened::HandedBack => delivery::Event::HandBack { by },
        Happened::Blocked(reason) if holds(item, report.boot, report.fence) => {
            delivery::Event::Park(reason)
        }
        Happened::Blocked(_) => return None,
    };
    step(item, event, now).ok()
}

/// What the last look before the first byte comes to; `None` if the asker does not hold the item.
/// Of a paused target nothing begins: the item goes back unsent.
pub(crate) fn begin_send(
    item: &Delivery,
    begin: &BeginSend,
    revoked: Option<ParkReason>,
    is_paused: bool,
    now: Timestamp,
) -> Option<Change> {
    let by = (begin.boot, begin.fence);
    let may_be_stopped = item.state == State::Leased && holds(item, begin.boot, begin.fence);
    let event = match revoked {
        Some(reason) if may_be_stopped => delivery::Event::Park(reason),
        None if may_be_stopped && is_paused => delivery::Event::HandBack { by },
        _ => delivery::Event::BeginSend { by, lease_until: now.plus(begin.lease) },
    };
    step(item, event, now).ok()
}

/// The step that an operator's order comes to.
pub(crate) const fn ordered(action: Action) -> delivery::Event {
    match action {
        Action::Redrive => delivery::Event::Redrive,
        Action::Withdraw(how) => delivery::Event::Withdraw(how),
    }
}

/// Settles a delivery and its operation by an operator's word. `Ok` is both as they become, and the
/// kind of the event.
///
/// # Errors
/// [`Resolved`] with what stands against it; nothing is to be written then.
pub(crate) fn resolve(
    kept: Kept,
    item: &Delivery,
    said: &Resolve,
    now: Timestamp,
) -> Result<(Kept, Delivery, &'static str), Resolved> {
    let Ok(change) = step(item, delivery::Event::Resolve(said.verdict), now) else {
        return Err(match item.lease {
            Some(lease) => Resolved::Owned { until: lease.until },
            None => Resolved::Illegal(IllegalTransition {
                from: Some(kept.record.state),
                event: Event::Resolve(said.verdict),
            }),
        });
    };
    if change.operation == Some(Event::Correct) {
        let (kept, kind) = correct_record(kept, said, now)?;
        return Ok((kept, change.delivery, kind));
    }
    let (mut kept, kind) = resolve_record(kept, EffectSeen::NotLocal, said, now)?;
    let has_proof = said.proof.as_ref().is_some_and(|proof| !proof.trim().is_empty());
    if said.verdict == Verdict::NotApplied && !has_proof && item.unknown_count > 0 {
        // A dead letter's earlier sender may still be at work.
        kept.record.resolution = Some(Resolution::Unproved);
    }
    Ok((kept, change.delivery, kind))
}

/// Why an item of this principal is held back, if it is revoked.
pub(crate) fn revoked_reason(tenant: bool, principal: bool) -> Option<ParkReason> {
    match (tenant, principal) {
        (true, _) => Some(ParkReason::TenantRevoked),
        (false, true) => Some(ParkReason::PrincipalRevoked),
        (false, false) => None,
    }
}

/// The word against a principal among those that are kept.
pub(crate) fn stands_against<'r>(
    mut revoked: impl Iterator<Item = &'r Revoked>,
    tenant: &Tenant,
    principal: &Principal,
) -> Option<ParkReason> {
    let (mut whole, mut one) = (false, false);
    for entry in revoked.by_ref().filter(|entry| entry.tenant == *tenant) {
        match &entry.principal {
            None => whole = true,
            Some(named) => one |= named == principal,
        }
    }
    revoked_reason(whole, one)
}

/// Whether an item is parked for what a restore puts right.
pub(crate) const fn is_parked_for_revocation(item: &Delivery) -> bool {
    matches!(item.park, Some(ParkReason::PrincipalRevoked | ParkReason::TenantRevoked))
}

/// Whether an item still waits for its turn, for a worker, or for what holds it back.
pub(crate) const fn waits(state: State) -> bool {
    matches!(state, State::Queued | State::Leased | State::Sending | State::Parked)
}

/// When a claim may next give something, by when the first item is due or its lease ends.
pub(crate) fn next_due(
    target: &TargetState,
    earliest: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    match target.gate(now) {
        Gate::Open | Gate::Probe => earliest,
        Gate::Shut { until: Some(until) } => earliest.map(|due| due.max(until)),
        Gate::Shut { until: None } => None,
    }
}

/// How many items a claim may lease.
pub(crate) fn claim_count(
    target: &TargetState,
    max_count: usize,
    probe: bool,
    now: Timestamp,
) -> usize {
    match target.gate(now) {
        Gate::Open if !probe => max_count,
        Gate::Open | Gate::Probe => max_count.min(1),
        Gate::Shut { .. } => 0,
    }
}

impl DeliveryQuery {
    /// How many items a page holds.
    pub(crate) fn page_count(&self) -> usize {
        match self.max_count {
            0 => usize::from(DEFAULT_PAGE_COUNT),
            count => count.min(usize::from(MAX_PAGE_COUNT)),
        }
    }

    /// Whether an item is wanted, the cursor apart.
    pub(crate) fn admits(&self, tenant: &Tenant, item: &Delivery) -> bool {
        self.tenant.as_ref().is_none_or(|wanted| wanted == tenant)
            && self.target.as_ref().is_none_or(|wanted| *wanted == item.target)
            && (self.states.is_empty() || self.states.contains(&item.state))
            && self.class.is_none_or(|wanted| {
                item.last_error.as_ref().is_some_and(|(class, _)| *class == wanted)
            })
            && self.accepted_until.is_none_or(|until| item.created_at <= until)
            && self.after.is_none_or(|after: OperationKey| item.key < after)
    }
}

impl<'a> AuditLine<'a> {
    /// A step that an operator ordered.
    pub(crate) fn of_order(
        record: &'a Record,
        kind: &'a str,
        who: &'a str,
        reason: &'a str,
    ) -> Self {
        let identity = record.operation_id.as_str();
        Self { kind, identity, who, reason: Some(reason), proof: None }
    }
}
