//! The modelled target: it keeps its own log of effects, and keeps its contract whatever the network
//! does to requests and answers.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use counterfoil_core::delivery::{
    Contract, ErrorClass, LookupEnd, ParkReason, SendEnd, TargetName, Then,
};
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::Timestamp;
use counterfoil_engine::{Target, TargetFuture, TargetLimits};
use tokio::time::{Instant, sleep};

use super::Twin;
use super::plan::{Chance, Profile};
use super::world::{Life, SEND_LIMIT, Shared};

/// One target, as one process reaches it.
#[derive(Debug)]
pub(super) struct Modelled {
    pub(super) name: TargetName,
    pub(super) contract: Contract,
    pub(super) shared: Arc<Shared>,
    pub(super) life: Life,
}

fn unknown() -> SendEnd {
    SendEnd::Unknown { class: ErrorClass::NoReply, words: "lost".into(), retry_after: None }
}

fn nothing(class: ErrorClass) -> SendEnd {
    let then = Then::Retry { after: None };
    SendEnd::NotApplied { class, words: "nothing was done".into(), then }
}

fn result(name: &str) -> StoredResult {
    StoredResult::from_json(format!("\"{name}\"")).expect("a JSON string")
}

impl Modelled {
    async fn answer(&self, id: String, deadline: StdInstant) -> SendEnd {
        self.life.lives().await;
        let left = Instant::from_std(deadline).saturating_duration_since(Instant::now());
        if left < SEND_LIMIT {
            return nothing(ErrorClass::Local);
        }
        let shared = &self.shared;
        shared.count_step();
        let number = shared.arrived(&id);
        if shared.is_hit(Chance::Refused) {
            if shared.is_rolled(4) {
                let (class, then) = (ErrorClass::Rejected, Then::DeadLetter);
                return SendEnd::NotApplied { class, words: "refused for good".into(), then };
            }
            return nothing(ErrorClass::Connect);
        }
        if shared.is_hit(Chance::RequestLost) {
            shared.note(&format!("{id}: request lost"));
            return unknown();
        }
        let once =
            matches!(self.contract, Contract::Key { .. }) && shared.twin != Some(Twin::NoKeys);
        if shared.is_hit(Chance::Late) {
            let (shared, id) = (Arc::clone(shared), id);
            let pause = Duration::from_millis(10_000 + shared.roll(4000));
            shared.in_flight(&id, 1);
            tokio::spawn(async move {
                sleep(pause).await;
                shared.execute(&id, once);
                shared.in_flight(&id, -1);
            });
            sleep(Duration::from_secs(9)).await;
            return unknown();
        }
        // It is on its way: it is executed even if the sender dies now.
        shared.in_flight(&id, 1);
        let (executor, key) = (Arc::clone(shared), id.clone());
        let pause = Duration::from_millis(shared.roll(300));
        let done = tokio::spawn(async move {
            sleep(pause).await;
            let name = executor.execute(&key, once);
            executor.in_flight(&key, -1);
            name
        });
        let Ok(name) = done.await else { return unknown() };
        self.life.lives().await;
        let always = shared.profile == Profile::LostReplies && number == 0;
        let often = shared.profile == Profile::LostReplies && shared.is_rolled(3);
        if always || often || shared.is_hit(Chance::ReplyLost) {
            shared.note(&format!("{id}: executed, reply lost"));
            if shared.twin == Some(Twin::ResendsOnLostReply) {
                shared.execute(&id, once);
            }
            return unknown();
        }
        SendEnd::Applied { external_id: Some(name.clone()), result: result(&name) }
    }
}

impl Target for Modelled {
    fn name(&self) -> &TargetName {
        &self.name
    }

    fn limits(&self) -> TargetLimits {
        TargetLimits {
            concurrency_count: 8,
            rate_per_s: None,
            send_limit: SEND_LIMIT,
            breaker_failures_count: 5,
            breaker_open: (Duration::from_secs(1), Duration::from_secs(20)),
        }
    }

    fn check(&self, _request: &[u8], _maybe_sent: bool) -> Result<(), ParkReason> {
        Ok(())
    }

    fn send(&self, request: Arc<[u8]>, deadline: StdInstant) -> TargetFuture<'_, SendEnd> {
        let id = String::from_utf8_lossy(&request).into_owned();
        Box::pin(self.answer(id, deadline))
    }

    fn look_up(
        &self,
        request: Arc<[u8]>,
        begun_at: Timestamp,
        _deadline: StdInstant,
    ) -> TargetFuture<'_, LookupEnd> {
        Box::pin(async move {
            self.life.lives().await;
            self.shared.count_step();
            let id = String::from_utf8_lossy(&request).into_owned();
            if self.shared.is_hit(Chance::RequestLost) {
                return LookupEnd::Open { words: "lost".into(), retry_after: None };
            }
            let found = self.shared.effects(&id);
            match &found[..] {
                [] => LookupEnd::Absent { begun_at },
                [(_, name)] => {
                    LookupEnd::Found { external_id: Some(name.clone()), result: result(name) }
                }
                _ => LookupEnd::Many,
            }
        })
    }
}
