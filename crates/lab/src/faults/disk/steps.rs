//! The work that a trial interrupts: steps that a caller takes, and what they lead to.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::delivery::{Contract, SendEnd, TargetName, Terms, Withdrawal};
use counterfoil_core::direct::{Leg, Meaning, Reply, ReplyKind, Report as DirectReport, Upstream};
use counterfoil_core::identity::Principal;
use counterfoil_core::observation::Snapshot;
use counterfoil_core::operation::Verdict;
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_store::direct::{
    Begin, Begun as DirectBegun, Concluded, Conclusion, Hold, Identity, WhichDirect,
};
use counterfoil_store::outbox::{
    Acceptance, Accepted, Action, BeginSend, Begun, Claim, DeliveryView, Directed, Happened, Order,
    Report, RevokeOrder, TargetAction, TargetOrder, Which,
};
use counterfoil_store::{
    Answer, DirectLedger, Finish, Outbox, Purge, Resolve, Resolved, SqliteStore, Store, StoreError,
    Submission, UnderWay,
};

use super::scene::{BOOT, Note, admit, operation_id, ring, tenant};

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);

/// Why a step did not come to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The store said so.
    Store(StoreError),
    /// The store answered, and not what is true.
    Wrong(String),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn wrong<T>(what: &impl std::fmt::Debug) -> Result<T, Stop> {
    Err(Stop::Wrong(format!("an answer that fits nothing: {what:?}")))
}

/// Something whose state a step moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Schema,
    Operation(&'static str),
    Delivery(&'static str),
    Direct(&'static str),
    Kept(&'static str),
    Target,
    Revocation,
    Key(u32),
}

/// One thing that a caller asks of the store.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// Opening the ledger; done by whoever runs the steps.
    Open,
    Submit,
    SubmitLarge,
    SubmitFirst,
    Finish,
    Accept,
    Claim,
    BeginSend,
    Report,
    Begin,
    Dispatch,
    Conclude,
    Resolve,
    Cancel,
    Pause,
    Revoke,
    Purge,
    BindFirstKey,
    BindKeys,
}

/// A step: what is done, to what, and how that stands afterwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step(pub(super) Act, pub(super) Subject, pub(super) &'static str);

/// How a thing stands where nothing was done yet.
pub(super) const ABSENT: &str = "absent";

fn target() -> TargetName {
    TargetName::parse("desk").expect("valid")
}

async fn record(store: &SqliteStore, id: &str) -> Result<Option<Record>, Stop> {
    match store.look_up(&tenant(), &operation_id(id)).await? {
        Snapshot::Found { record, .. } => Ok(Some(*record)),
        Snapshot::Absent => Ok(None),
        Snapshot::Quarantined => wrong(&"quarantined"),
    }
}

async fn view(store: &SqliteStore, id: &str) -> Result<Option<DeliveryView>, Stop> {
    Ok(store.delivery(Which::Operation(tenant(), operation_id(id))).await?)
}

/// How a thing stands now.
pub(super) async fn look(store: &SqliteStore, subject: Subject) -> Result<String, Stop> {
    let absent = || ABSENT.to_owned();
    Ok(match subject {
        Subject::Schema => store.info().await?.schema_version.to_string(),
        Subject::Operation(id) => {
            record(store, id).await?.map_or_else(absent, |it| format!("{:?}", it.state))
        }
        Subject::Delivery(id) => {
            view(store, id).await?.map_or_else(absent, |it| format!("{:?}", it.delivery.state))
        }
        Subject::Direct(id) => {
            let found = store.direct_view(WhichDirect::Id(tenant(), operation_id(id))).await?;
            found.map_or_else(absent, |it| format!("{:?}", it.record.state))
        }
        Subject::Kept(id) => match record(store, id).await? {
            Some(record) if record.purged => "purged".into(),
            Some(_) => "kept".into(),
            None => absent(),
        },
        Subject::Target => {
            let found = store.targets().await?.into_iter().find(|it| it.target == target());
            found.filter(|it| it.state.paused.is_some()).map_or_else(absent, |_| "paused".into())
        }
        Subject::Revocation if store.revoked().await?.is_empty() => absent(),
        Subject::Revocation => "revoked".into(),
        Subject::Key(id) if store.info().await?.key_ids.contains(&id) => "kept".into(),
        Subject::Key(_) => absent(),
    })
}

fn id_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Operation(id)
        | Subject::Delivery(id)
        | Subject::Direct(id)
        | Subject::Kept(id) => id,
        _ => "one",
    }
}

/// Takes a step. `Ok` is an acknowledgement of exactly that step.
pub(super) async fn take(store: &SqliteStore, step: Step) -> Result<(), Stop> {
    let id = id_of(step.1);
    match step.0 {
        Act::Open => Ok(()),
        Act::Submit => submit(store, id, "note".into(), false).await,
        Act::SubmitLarge => submit(store, id, "x".repeat(200_000), false).await,
        Act::SubmitFirst => submit(store, id, "note".into(), true).await,
        Act::Finish => finish(store, id).await,
        Act::Accept | Act::Claim | Act::BeginSend | Act::Report => deliver(store, step.0, id).await,
        Act::Begin | Act::Dispatch | Act::Conclude => direct(store, step.0, id).await,
        Act::Resolve | Act::Cancel | Act::Pause | Act::Revoke => order(store, step.0, id).await,
        Act::Purge => {
            let purged = store.purge(Purge::new(30 * DAY)).await?;
            if purged.results_count == 1 { Ok(()) } else { wrong(&purged) }
        }
        Act::BindFirstKey => Ok(store.bind_keys(&ring(&[1])).await?),
        Act::BindKeys => Ok(store.bind_keys(&ring(&[2, 1])).await?),
    }
}

async fn submit(store: &SqliteStore, id: &str, text: String, two_steps: bool) -> Result<(), Stop> {
    let effect = Arc::new(Note { text, two_steps });
    let submission = Submission { admitted: admit(id), effect };
    match store.submit(submission).await?.into_answer() {
        Answer::Fresh(_) | Answer::Replayed(_) => Ok(()),
        // Sent again after an error: its first step is on record.
        Answer::Refused(_) if two_steps && record(store, id).await?.is_some() => Ok(()),
        other @ Answer::Refused(_) => wrong(&other),
    }
}

async fn finish(store: &SqliteStore, id: &str) -> Result<(), Stop> {
    let Some(record) = record(store, id).await? else { return wrong(&"no first step") };
    let effect = Arc::new(Note { text: "note".into(), two_steps: true });
    let finish = Finish { key: record.key, boot: BOOT, fence: 1, effect };
    match store.finish(finish).await?.into_answer() {
        Answer::Fresh(_) | Answer::Replayed(_) => Ok(()),
        other @ Answer::Refused(_) => wrong(&other),
    }
}

fn acceptance(id: &str) -> Acceptance {
    let terms = Terms {
        contract: Contract::Key { lifetime: DAY },
        max_attempts_count: 3,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(1),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    };
    let request = Arc::from(b"POST one".as_slice());
    let terms = terms.check().expect("good terms");
    Acceptance { admitted: admit(id), target: target(), terms, request }
}

async fn deliver(store: &SqliteStore, act: Act, id: &str) -> Result<(), Stop> {
    if let Act::Accept = act {
        return match store.accept(acceptance(id)).await? {
            Accepted::Fresh(_) | Accepted::Duplicate(_) => Ok(()),
            other @ Accepted::Refused(_) => wrong(&other),
        };
    }
    let Some(held) = view(store, id).await? else { return wrong(&"no item") };
    let (key, fence) = (held.delivery.key, held.delivery.fence);
    match act {
        Act::Claim => {
            let claim = Claim {
                target: target(),
                boot: BOOT,
                lease: LEASE,
                max_count: 1,
                probe: false,
                under_way: UnderWay::default(),
            };
            let claimed = store.claim(claim).await?;
            if claimed.items.len() == 1 { Ok(()) } else { wrong(&claimed) }
        }
        Act::BeginSend => {
            let begin = BeginSend { key, boot: BOOT, fence, lease: LEASE };
            match &store.begin_send(vec![begin]).await?[..] {
                [Begun::Send] => Ok(()),
                other => wrong(&other),
            }
        }
        _ => {
            let result = StoredResult::from_text("done");
            let what = Happened::Sent(SendEnd::Applied { external_id: None, result });
            let report = Report { key, boot: BOOT, fence, seed: 0, what };
            let reported = store.report(vec![report]).await?;
            if reported.len() == 1 && !reported[0].fenced { Ok(()) } else { wrong(&reported) }
        }
    }
}

async fn direct(store: &SqliteStore, act: Act, id: &str) -> Result<(), Stop> {
    if let Act::Begin = act {
        let begin = Begin {
            admitted: admit(id),
            upstream: Upstream::parse("memory").expect("valid"),
            leg: Leg::First,
            identity: Identity::Given,
            ready: false,
            lease: LEASE,
            memo: None,
            told: Vec::new(),
        };
        return match store.begin(begin).await? {
            DirectBegun::Wait(..) => Ok(()),
            // Sent again after an error: it is on record.
            DirectBegun::Replay(_) | DirectBegun::Refused { .. }
                if record(store, id).await?.is_some() =>
            {
                Ok(())
            }
            other => wrong(&other),
        };
    }
    let found = store.direct_view(WhichDirect::Id(tenant(), operation_id(id))).await?;
    let Some(found) = found else { return wrong(&"no operation") };
    let fence = found.record.owner.map_or(1, |owner| owner.fence);
    let hold = Hold { key: found.record.key, boot: BOOT, fence, leg: 1 };
    if let Act::Dispatch = act {
        let held = store.dispatch(hold, LEASE).await?;
        return if held.is_some() { Ok(()) } else { wrong(&"not held") };
    }
    let json = Arc::from(br#"{"text":"done"}"#.as_slice());
    let reply = Reply { kind: ReplyKind::Result, revision: "2026-07-28".into(), json };
    let report = DirectReport::Answer(Meaning::Applied);
    let reply = Some(reply);
    let conclusion = Conclusion { hold, report, reply, result: None, asked_until: None, why: None };
    match store.conclude(vec![conclusion]).await?.pop() {
        Some(Concluded::Moved(_) | Concluded::Stale(_)) => Ok(()),
        other => wrong(&other),
    }
}

async fn order(store: &SqliteStore, act: Act, id: &str) -> Result<(), Stop> {
    let (who, reason) = ("olga".to_owned(), "seen".to_owned());
    match act {
        Act::Resolve => {
            let verdict = Verdict::Applied;
            let (tenant, operation_id) = (tenant(), operation_id(id));
            let said = Resolve { tenant, operation_id, verdict, who, reason, proof: None };
            match store.resolve(said).await? {
                Resolved::Done(_) | Resolved::Illegal(_) => Ok(()),
                other => wrong(&other),
            }
        }
        Act::Cancel => {
            let action = Action::Withdraw(Withdrawal::Cancel);
            let which = vec![Which::Operation(tenant(), operation_id(id))];
            match store.direct(Order { which, action, who, reason }).await?.pop() {
                Some(Directed::Done(_) | Directed::Illegal(_)) => Ok(()),
                other => wrong(&other),
            }
        }
        Act::Pause => {
            let order = TargetOrder { target: target(), action: TargetAction::Pause, who, reason };
            store.direct_target(order).await.map(drop).map_err(Stop::from)
        }
        _ => {
            let principal = Some(Principal::parse("mallory").expect("valid"));
            let order = RevokeOrder { tenant: tenant(), principal, revoked: true, who, reason };
            store.set_revoked(order).await.map(drop).map_err(Stop::from)
        }
    }
}
