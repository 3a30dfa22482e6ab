//! The course of one call: decided, recorded, sent, reported.

use std::time::Duration;

use counterfoil_core::direct::{Meaning, Reply, Report};
use counterfoil_core::identity::OperationId;
use counterfoil_core::operation::{Phase, State};
use counterfoil_core::record::{Record, StoredResult};
use counterfoil_core::refusal::Refusal;
use counterfoil_core::time::Timestamp;
use counterfoil_store::direct::{Begin, Begun, Concluded, Conclusion, Hold, Replayed};
use counterfoil_store::{DirectLedger, StoreError};
use tokio::time::{Instant, sleep, timeout};

use super::keeper::{Keeper, LEASE};
use super::{DirectAnswer, DirectCall, NeverReady, Sent, no_ledger};
use crate::engine::{Engine, FINISH_RETRY, passes};
use crate::reply::refusal_from_store;

/// Between two tries to reach an upstream that took nothing.
const SEND_RETRY: Duration = Duration::from_millis(20);

/// How a request ended, before it is on record.
struct Ended {
    report: Report,
    reply: Option<Reply>,
    result: Option<StoredResult>,
    why: Option<String>,
}

impl Ended {
    const fn plain(report: Report, why: String) -> Self {
        Self { report, reply: None, result: None, why: Some(why) }
    }
}

impl Engine {
    /// The whole course of a call.
    pub(super) async fn course(&self, call: DirectCall) -> DirectAnswer {
        let id = call.admitted.operation_id().clone();
        let Some(keeper) = &self.direct else {
            return DirectAnswer::Refused { refusal: no_ledger(id), joined: false };
        };
        let since = Instant::now();
        let told = keeper.take_told();
        let begin = Begin {
            admitted: call.admitted.clone(),
            upstream: call.upstream.clone(),
            leg: call.leg,
            identity: call.identity.clone(),
            ready: call.sender.is_ready(),
            lease: LEASE,
            memo: call.memo.clone(),
            told: told.clone(),
        };
        let begun = match keeper.ledger().begin(begin).await {
            Ok(begun) => begun,
            Err(error) => {
                keeper.give_back(told);
                let refusal = refusal_from_store(&error, Some(&id));
                return DirectAnswer::Refused { refusal, joined: false };
            }
        };
        let (hold, record, dispatched) = match begun {
            Begun::Send(hold, record) => (hold, record, true),
            Begun::Wait(hold, record) => (hold, record, false),
            Begun::Replay(replayed) => return replay(*replayed),
            Begun::Refused { refusal, joined } => return DirectAnswer::Refused { refusal, joined },
            Begun::Unfit => return DirectAnswer::Unfit,
        };
        keeper.hold(hold, since);
        // However this ends, its lease is not prolonged any more.
        let _held = LetGo { keeper, hold };
        let asked_until = self.authority_of(&record);
        // The call may have joined an operation of another ID than its own.
        let id = record.operation_id.clone();
        let rest = self.carry(keeper, &call, &record, hold, dispatched, asked_until);
        let caller = call.admitted.caller().clone();
        self.noting(&caller, &id, &call.cancelled, rest).await
    }

    /// From the record to the report.
    async fn carry(
        &self,
        keeper: &Keeper,
        call: &DirectCall,
        record: &Record,
        hold: Hold,
        dispatched: bool,
        asked_until: Timestamp,
    ) -> DirectAnswer {
        let (hold, ended) = self.send_once(keeper, call, record, hold, dispatched).await;
        let asked = ended.report == Report::Answer(Meaning::Asks);
        let why = ended.why.clone();
        let report = ended.report;
        let conclusion = Conclusion {
            hold,
            report,
            reply: ended.reply,
            result: ended.result,
            asked_until: asked.then_some(asked_until),
            why: ended.why,
        };
        let id = &record.operation_id;
        match self.conclude(keeper.ledger().as_ref(), id, conclusion).await {
            Ok(concluded) => tell_end(concluded, report, hold.leg, why.unwrap_or_default()),
            Err(refusal) => DirectAnswer::Refused { refusal, joined: false },
        }
    }

    /// Sends the request at most once. It is tried again only after not one byte left.
    async fn send_once(
        &self,
        keeper: &Keeper,
        call: &DirectCall,
        record: &Record,
        mut hold: Hold,
        mut dispatched: bool,
    ) -> (Hold, Ended) {
        let until = Instant::now() + call.patience;
        let mut unsent = String::from("the upstream did not get ready");
        let mut tried = false;
        loop {
            if !call.sender.is_ready()
                && let Err(ended) = wait_ready(call, until, &unsent).await
            {
                return (hold, ended);
            }
            // What is on record as sent is sent: a caller that wrote its call and left, as at the end
            // of a pipe, wanted it.
            let waited = !dispatched || tried;
            if waited && call.cancelled.is_cancelled() {
                return (hold, Ended::plain(Report::Withdrawn, WITHDRAWN.into()));
            }
            tried = true;
            if !dispatched {
                let since = Instant::now();
                match keeper.ledger().dispatch(hold, LEASE).await {
                    Ok(Some(new)) => (hold, dispatched) = (new, true),
                    Ok(None) => return (hold, Ended::plain(Report::NotSent, TAKEN.into())),
                    Err(error) => {
                        return (hold, Ended::plain(Report::NotSent, error.to_string()));
                    }
                }
                keeper.hold(hold, since);
            }
            if !keeper.surely_holds(&hold) && !keeper.renew_now(hold).await {
                return (hold, Ended::plain(Report::NotSent, TAKEN.into()));
            }
            match call.sender.send(record).await {
                Sent::Answered { meaning, reply, result } => {
                    let report = Report::Answer(meaning);
                    return (hold, Ended { report, reply, result, why: None });
                }
                Sent::Lost(why) => return (hold, Ended::plain(Report::Lost, why)),
                Sent::Not(why) if Instant::now() >= until => {
                    return (hold, Ended::plain(Report::NotSent, why));
                }
                Sent::Not(why) => unsent = why,
            }
            sleep(SEND_RETRY).await;
        }
    }

    /// Reports for as long as the process lives: what was sent is never left without its end because
    /// the ledger was busy for a while.
    async fn conclude(
        &self,
        ledger: &dyn DirectLedger,
        id: &OperationId,
        conclusion: Conclusion,
    ) -> Result<Concluded, Refusal> {
        let mut pause = FINISH_RETRY.start;
        loop {
            match ledger.conclude(vec![conclusion.clone()]).await {
                Ok(mut answers) => {
                    return answers.pop().ok_or_else(|| Refusal::in_progress(id.clone()));
                }
                Err(error) if !passes(&error) => {
                    tracing::error!(
                        error = error.kind(),
                        "the end of an operation could not be recorded; it stays in doubt"
                    );
                    return Err(Refusal::in_doubt(id.clone()));
                }
                Err(error) => wait_for(&error, &mut pause).await,
            }
        }
    }
}

/// Lets go of what was held, when it is dropped.
struct LetGo<'a> {
    keeper: &'a Keeper,
    hold: Hold,
}

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.keeper.let_go(&self.hold);
    }
}

const WITHDRAWN: &str = "the caller took the call back before it was sent";
const TAKEN: &str = "another process took the operation over before it was sent";

async fn wait_for(error: &StoreError, pause: &mut Duration) {
    tracing::warn!(error = error.kind(), "the end of an operation waits for the ledger");
    sleep(*pause).await;
    *pause = (*pause * 2).min(FINISH_RETRY.end);
}

async fn wait_ready(call: &DirectCall, until: Instant, unsent: &str) -> Result<(), Ended> {
    let left = until.saturating_duration_since(Instant::now());
    let ready = timeout(left, call.sender.ready());
    tokio::select! {
        biased;
        () = call.cancelled.cancelled() => {
            Err(Ended::plain(Report::Withdrawn, WITHDRAWN.into()))
        }
        ready = ready => match ready {
            Ok(Ok(())) => Ok(()),
            Ok(Err(NeverReady(why))) => Err(Ended::plain(Report::NotSent, why)),
            Err(_) => Err(Ended::plain(Report::NotSent, unsent.to_owned())),
        }
    }
}

fn replay(replayed: Replayed) -> DirectAnswer {
    let Replayed { view, leg, joined } = replayed;
    DirectAnswer::Answer { view, leg, replayed: true, joined }
}

/// What the caller is told, by what is on record now.
fn tell_end(concluded: Concluded, report: Report, leg: u32, why: String) -> DirectAnswer {
    let (view, moved) = match concluded {
        Concluded::Moved(view) => (*view, true),
        Concluded::Stale(view) => (*view, false),
        Concluded::LateContradiction(view) => {
            tracing::error!(
                operation = %view.record.operation_id,
                "an upstream did what is settled as not applied; an operator must look"
            );
            (*view, false)
        }
    };
    match report {
        // It was put back, and only the word of that was lost.
        Report::NotSent
            if matches!(
                view.record.state,
                State::InProgress(Phase::Claimed | Phase::AwaitingInput)
            ) =>
        {
            DirectAnswer::NotSent { view, why }
        }
        // Somebody else went on with it meanwhile.
        _ if !moved && view.record.state.ages() => {
            DirectAnswer::Answer { view, leg, replayed: true, joined: false }
        }
        _ if !moved => DirectAnswer::Unknown { view, why },
        Report::Answer(Meaning::Unknown) | Report::Lost => DirectAnswer::Unknown { view, why },
        Report::NotSent | Report::Withdrawn => DirectAnswer::NotSent { view, why },
        Report::Answer(_) => DirectAnswer::Answer { view, leg, replayed: false, joined: false },
    }
}
