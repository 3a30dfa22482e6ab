//! What a cell's files alone show: the verdict on a case from transcripts, exit codes and physical
//! rows, whichever SDK made them. It shares nothing with the cases' own checks.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::ServerRun;
use super::exchange::{Exchange, Said, Settled};
use crate::readback::Rows;

/// The stored result of a partial effect.
const PARTIAL: &str = "created 1; watcher absent; compensation failed";
/// The exit code of a server that ends after its commit and before its reply.
const LOST_REPLY_EXIT: &str = "70";

/// What a cell left behind.
#[derive(Debug)]
pub struct Cell {
    /// Its servers.
    pub runs: Vec<ServerRun>,
    /// Its tool calls.
    pub exchanges: Vec<Exchange>,
    /// Its physical rows.
    pub rows: Rows,
}

/// Whether a cell's files show what its case promises.
///
/// # Errors
/// What is missing.
pub fn judge(case: &str, cell: &Cell) -> anyhow::Result<()> {
    cell.ends()?;
    cell.nothing_grants()?;
    match case {
        "01" => identical(cell),
        "02" => never_sent(cell),
        "03" => lost_and_replayed(cell),
        "04" => changed_answers(cell),
        "05" => two_states(cell),
        "06" => other_principal(cell),
        "07" => authority(cell),
        "08" => two_processes(cell),
        "09" => status_alone(cell),
        "10" => retention(cell),
        "11" => stripped(cell),
        "12" => partial(cell),
        "identical" => duplicate(cell, true),
        "changed" => duplicate(cell, false),
        "after-crash" => duplicate_after_crash(cell),
        "fresh-id" => fresh_id(cell),
        other => bail!("there is no case '{other}'"),
    }
}

fn identical(cell: &Cell) -> anyhow::Result<()> {
    let first = cell.first_settled("applied")?;
    let said = replay_of(&first.1, true);
    cell.after(first.0, |call| call.params == cell.call(first.0).params, &said, "exact retry")?;
    let anew = |call: &Exchange| call.tool == "create_issue" && !call.continues();
    cell.after(first.0, anew, &said, "honest retry from round one")?;
    cell.one_row()
}

fn never_sent(cell: &Cell) -> anyhow::Result<()> {
    ensure!(cell.exchanges.iter().any(|call| is_asked(&call.said)), "no state was minted");
    ensure!(!cell.exchanges.iter().any(Exchange::continues), "a continuation was sent");
    cell.observed("unknown", "no_record")?;
    cell.counts(0, 0)
}

fn lost_and_replayed(cell: &Cell) -> anyhow::Result<()> {
    let lost = cell.lost_reply()?;
    cell.recovered(lost)?;
    let params = &cell.call(lost).params;
    let exact = |call: &Exchange| call.params == *params;
    let made = Settled {
        state: "applied".into(),
        effect_id: 1,
        result: "created 1".into(),
        replayed: true,
    };
    cell.after(lost, exact, &Said::Settled(made), "exact replay on the next server")?;
    cell.one_row()
}

fn changed_answers(cell: &Cell) -> anyhow::Result<()> {
    let (first, _) = cell.first_settled("applied")?;
    let before = cell.call(first);
    let changed = |call: &Exchange| {
        call.continues() && call.state() == before.state() && call.answers() != before.answers()
    };
    cell.after(first, changed, &conflict(), "continuation with changed answers")?;
    cell.one_row()
}

fn two_states(cell: &Cell) -> anyhow::Result<()> {
    let minted = cell.minted();
    ensure!(minted.len() >= 2, "no second state was minted");
    let (first, _) = cell.first_settled("applied")?;
    let used = cell.call(first).state().context("the first effect came without a state")?;
    let second = |call: &Exchange| {
        call.continues() && call.state().is_some_and(|it| it != used && minted.contains(it))
    };
    cell.after(first, second, &conflict(), "continuation with the second state")?;
    let tampered =
        |call: &Exchange| call.continues() && call.state().is_some_and(|it| !minted.contains(it));
    cell.after(first, tampered, &Said::StateRefused, "continuation with a tampered state")?;
    cell.one_row()
}

fn other_principal(cell: &Cell) -> anyhow::Result<()> {
    let (first, _) = cell.first_settled("applied")?;
    let (owner, state) = (&cell.call(first).principal, cell.call(first).state());
    let others = |call: &Exchange| call.principal != *owner;
    let stolen = |call: &Exchange| others(call) && call.continues() && call.state() == state;
    cell.after(first, stolen, &Said::StateRefused, "use of the other's state")?;
    let anew =
        |call: &Exchange| others(call) && call.tool == "create_issue" && call.state().is_none();
    cell.after(first, anew, &conflict(), "request of the other principal")?;
    let asks = |call: &Exchange| others(call) && call.tool == "get_operation_status";
    for call in cell.matching(first, asks, "status for the other principal")? {
        let Said::Observed(seen) = &call.said else { bail!("a status was not answered") };
        let shown = (&seen["state"], &seen["detail"], &seen["storedResult"]);
        ensure!(
            shown == (&"unknown".into(), &"no_record".into(), &Value::Null),
            "the status reveals something to another principal: {shown:?}"
        );
    }
    cell.one_row()
}

fn authority(cell: &Cell) -> anyhow::Result<()> {
    let (first, _) = cell.first_settled("applied")?;
    let made = cell.call(first);
    let ends_ms = cell.end_of("--authority-s", made)?;
    let state_ends_ms = cell.end_of("--state-s", made)?;
    let late = |call: &Exchange| {
        call.params == made.params && (ends_ms..state_ends_ms).contains(&call.clock_ms)
    };
    let refused = Said::Refused("operation_authority_expired".into());
    cell.after(first, late, &refused, "exact retry after authority and before the state ended")?;
    let status = cell.observed_after(first, made.operation_id(), ends_ms)?;
    ensure!(status["state"] == "applied", "the status does not recover the result");
    cell.one_row()
}

fn two_processes(cell: &Cell) -> anyhow::Result<()> {
    let behind: BTreeSet<usize> =
        cell.runs.iter().filter(|run| run.has("--barrier")).map(|run| run.number).collect();
    ensure!(behind.len() == 2, "{} servers stood at the barrier, not two", behind.len());
    let calls: Vec<&Exchange> =
        cell.exchanges.iter().filter(|call| behind.contains(&call.server)).collect();
    let [one, other] = calls[..] else { bail!("{} calls were sent, not two", calls.len()) };
    ensure!(one.server != other.server, "both calls went to one process");
    ensure!(one.params == other.params && one.continues(), "the continuations differ");
    let replayed = |call: &Exchange| match &call.said {
        Said::Settled(made) if made.state == "applied" && made.effect_id == 1 => {
            Some(made.replayed)
        }
        _ => None,
    };
    let said = BTreeSet::from([replayed(one), replayed(other)]);
    ensure!(
        said == BTreeSet::from([Some(false), Some(true)]),
        "there was not one apply and one replay: {:?}, {:?}",
        one.said,
        other.said
    );
    cell.one_row()
}

fn status_alone(cell: &Cell) -> anyhow::Result<()> {
    let lost = cell.lost_reply()?;
    cell.recovered(lost)?;
    let after = &cell.exchanges[lost + 1..];
    ensure!(
        after.iter().all(|call| call.tool == "get_operation_status"),
        "after the lost reply more was sent than a status"
    );
    cell.one_row()
}

fn retention(cell: &Cell) -> anyhow::Result<()> {
    let (first, _) = cell.first_settled("applied")?;
    let made = cell.call(first);
    let ends_ms = cell.end_of("--retention-s", made)?;
    let state_ends_ms = cell.end_of("--state-s", made)?;
    let expired = Said::Refused("operation_retention_expired".into());
    let exact = |call: &Exchange| call.params == made.params;
    let retained = |call: &Exchange| exact(call) && call.clock_ms >= ends_ms;
    let by_record = |call: &Exchange| retained(call) && call.clock_ms < state_ends_ms;
    cell.after(first, by_record, &expired, "exact retry while its state is valid")?;
    let by_state = |call: &Exchange| retained(call) && call.clock_ms >= state_ends_ms;
    cell.after(first, by_state, &Said::StateRefused, "exact retry after its state ended")?;
    let anew = |call: &Exchange| {
        call.tool == "create_issue" && call.clock_ms >= ends_ms && call.state().is_none()
    };
    cell.after(first, anew, &expired, "fresh round for the old ID")?;
    let later_state = |call: &Exchange| {
        call.continues() && call.clock_ms >= state_ends_ms && call.state() != made.state()
    };
    cell.after(first, later_state, &expired, "use of a state of a later round")?;
    cell.one_row()
}

fn stripped(cell: &Cell) -> anyhow::Result<()> {
    let without = |call: &Exchange| call.continues() && call.state().is_none();
    let at = cell.exchanges.iter().position(without).context("no state was stripped")?;
    ensure!(cell.call(at).said == Said::StateRefused, "answers without a state were not refused");
    let (first, _) = cell.first_settled("applied")?;
    ensure!(at < first, "the effect came before the state was stripped");
    let between = &cell.exchanges[at..first];
    let seen = between
        .iter()
        .any(|call| matches!(&call.said, Said::Observed(seen) if seen["state"] == "unknown"));
    ensure!(seen, "no status after the stripped state said that nothing is known");
    ensure!(cell.call(first).state().is_some(), "the fresh round came without a state");
    cell.one_row()
}

fn partial(cell: &Cell) -> anyhow::Result<()> {
    let (first, made) = cell.first_settled("partial")?;
    ensure!(
        made.result == PARTIAL && made.effect_id == 1,
        "the partial result is another: {made:?}"
    );
    let exact = |call: &Exchange| call.params == cell.call(first).params;
    cell.after(first, exact, &replay_of(&made, true), "exact retry")?;
    let status = cell.observed_after(first, cell.call(first).operation_id(), i64::MIN)?;
    ensure!(
        status["state"] == "partial" && status["storedResult"] == PARTIAL,
        "the status does not say what happened in part"
    );
    cell.counts(1, 1)?;
    ensure!(cell.rows.count("watchers") == 0, "there is a watcher");
    let operation_id = cell.call(first).operation_id();
    let events = cell.rows.rows("audit_events").iter();
    let failed: Vec<&Value> =
        events.filter(|event| event["kind"] == "compensation_failed").collect();
    let [failed] = failed[..] else {
        bail!("{} failed compensations are on record, not one", failed.len());
    };
    let own = failed["identity"].as_str().unwrap_or_default();
    ensure!(!own.is_empty() && own != operation_id, "the compensation has no identity of its own");
    Ok(())
}

fn duplicate(cell: &Cell, same_answers: bool) -> anyhow::Result<()> {
    let (first, _) = cell.first_settled("applied")?;
    let before = cell.call(first);
    let again = |call: &Exchange| {
        call.continues()
            && call.operation_id() == before.operation_id()
            && (call.answers() == before.answers()) == same_answers
    };
    for call in cell.matching(first, again, "retry")? {
        ensure!(matches!(call.said, Said::Settled(_)), "the retry was not carried out");
    }
    cell.made_twice()
}

fn duplicate_after_crash(cell: &Cell) -> anyhow::Result<()> {
    let lost = cell.lost_reply()?;
    let exact = |call: &Exchange| call.params == cell.call(lost).params;
    cell.matching(lost, exact, "retry after the crash")?;
    cell.made_twice()
}

fn fresh_id(cell: &Cell) -> anyhow::Result<()> {
    ensure!(!cell.runs.iter().any(|run| run.has("--unguarded")), "this control has a ledger");
    let made: Vec<(&str, i64)> = cell
        .exchanges
        .iter()
        .filter_map(|call| match &call.said {
            Said::Settled(made) if !made.replayed => Some((call.operation_id(), made.effect_id)),
            _ => None,
        })
        .collect();
    let [(one, 1), (other, 2)] = made[..] else { bail!("the effects are not 1 and 2: {made:?}") };
    ensure!(one != other, "the second effect has the ID of the first");
    cell.counts(2, 2)
}

impl Cell {
    fn call(&self, at: usize) -> &Exchange {
        &self.exchanges[at]
    }

    /// Every server ended as it was told to.
    fn ends(&self) -> anyhow::Result<()> {
        ensure!(!self.runs.is_empty(), "no server ran");
        for run in &self.runs {
            let cut = run.flag("--cut").and_then(|cut| cut.rsplit_once("exit:"));
            let exit = run.exit.as_deref().context("a server's exit was not seen")?;
            // A probe of a server that is to die leaves before its cut.
            let fits = exit == "0" || cut.is_some_and(|(_, code)| code == exit);
            ensure!(fits, "server {} ended with {exit}", run.number);
        }
        Ok(())
    }

    /// No observation grants a write, and none contradicts its own authority.
    fn nothing_grants(&self) -> anyhow::Result<()> {
        for call in &self.exchanges {
            if let Said::Observed(seen) = &call.said {
                ensure!(seen["freshWriteAuthorized"] == false, "an observation grants a write");
                let settles = seen["state"] != "unknown";
                ensure!(seen["authoritative"] == settles, "authority and state differ");
            }
        }
        Ok(())
    }

    /// The first effect that was made now.
    fn first_settled(&self, state: &str) -> anyhow::Result<(usize, Settled)> {
        let mut calls = self.exchanges.iter().enumerate();
        calls
            .find_map(|(at, call)| match &call.said {
                Said::Settled(made) if made.state == state && !made.replayed => {
                    Some((at, made.clone()))
                }
                _ => None,
            })
            .with_context(|| format!("no reply says that an effect is {state}"))
    }

    /// Later calls of a kind, at least one.
    fn matching(
        &self,
        from: usize,
        wanted: impl Fn(&Exchange) -> bool,
        what: &str,
    ) -> anyhow::Result<Vec<&Exchange>> {
        let later = self.exchanges[from + 1..].iter();
        let found: Vec<&Exchange> = later.filter(|call| wanted(call)).collect();
        ensure!(!found.is_empty(), "there was no {what}");
        Ok(found)
    }

    /// There are later calls of a kind, and each got one of these answers.
    fn after(
        &self,
        from: usize,
        wanted: impl Fn(&Exchange) -> bool,
        said: &Said,
        what: &str,
    ) -> anyhow::Result<()> {
        for call in self.matching(from, wanted, what)? {
            ensure!(*said == call.said, "the {what} was answered by {:?}", call.said);
        }
        Ok(())
    }

    /// The continuation whose server exited between commit and reply.
    fn lost_reply(&self) -> anyhow::Result<usize> {
        let died: BTreeSet<usize> = self
            .runs
            .iter()
            .filter(|run| run.exit.as_deref() == Some(LOST_REPLY_EXIT))
            .map(|run| run.number)
            .collect();
        let calls = self.exchanges.iter();
        let mut lost = calls.enumerate().filter(|(_, call)| call.said == Said::Lost);
        let (at, call) = lost.next().context("no reply was lost")?;
        ensure!(lost.next().is_none(), "more than one reply was lost");
        ensure!(call.continues() && died.contains(&call.server), "another reply was lost");
        Ok(at)
    }

    /// On the next server a status tells the result.
    fn recovered(&self, lost: usize) -> anyhow::Result<()> {
        let call = self.call(lost);
        let later = self.exchanges[lost + 1..].iter();
        ensure!(later.clone().all(|it| it.server != call.server), "the same server went on");
        let seen = self.observed_after(lost, call.operation_id(), i64::MIN)?;
        ensure!(
            seen["state"] == "applied"
                && seen["storedResult"] == "created 1"
                && seen["matchingIds"] == serde_json::json!([1]),
            "the status does not tell the result: {seen}"
        );
        Ok(())
    }

    fn observed_after(
        &self,
        from: usize,
        operation_id: &str,
        at_ms: i64,
    ) -> anyhow::Result<&Value> {
        let asks = |call: &Exchange| {
            call.tool == "get_operation_status"
                && call.operation_id() == operation_id
                && call.clock_ms >= at_ms
        };
        match &self.matching(from, asks, "status")?[0].said {
            Said::Observed(seen) => Ok(seen),
            other => bail!("the status was answered by {other:?}"),
        }
    }

    fn observed(&self, state: &str, detail: &str) -> anyhow::Result<()> {
        let seen = self.exchanges.iter().any(|call| {
            matches!(&call.said, Said::Observed(seen)
                if seen["state"] == state && seen["detail"] == detail)
        });
        ensure!(seen, "no status said {state} ({detail})");
        Ok(())
    }

    fn minted(&self) -> BTreeSet<&str> {
        let said = self.exchanges.iter().map(|call| &call.said);
        said.filter_map(
            |said| if let Said::Asked(state) = said { Some(state.as_str()) } else { None },
        )
        .collect()
    }

    /// When a span that all servers of the cell have ends after a call.
    fn end_of(&self, flag: &str, call: &Exchange) -> anyhow::Result<i64> {
        let values: BTreeSet<&str> = self.runs.iter().filter_map(|run| run.flag(flag)).collect();
        let [value] = values.into_iter().collect::<Vec<_>>()[..] else {
            bail!("the servers have no common {flag}");
        };
        let seconds: i64 = value.parse().with_context(|| format!("{flag} {value} is no number"))?;
        Ok(call.clock_ms.saturating_add(seconds.saturating_mul(1000)))
    }

    fn counts(&self, issues: u64, operations: u64) -> anyhow::Result<()> {
        let found = (self.rows.count("issues"), self.rows.count("operations"));
        ensure!(
            found == (issues, operations),
            "there are {} issues and {} operations, not {issues} and {operations}",
            found.0,
            found.1
        );
        Ok(())
    }

    /// One operation of one owner, applied, and its one issue.
    fn one_row(&self) -> anyhow::Result<()> {
        self.counts(1, 1)?;
        let (operation, issue) = (&self.rows.rows("operations")[0], &self.rows.rows("issues")[0]);
        ensure!(operation["state"] == "applied", "the record is {}", operation["state"]);
        ensure!(
            operation["operation_key"] == issue["operation_key"]
                && operation["operation_id"] == issue["operation_id"],
            "the issue belongs to another operation"
        );
        let named = format!("created {}", issue["id"]);
        ensure!(operation["result"] == named.as_str(), "the stored result names another issue");
        Ok(())
    }

    /// Two issues of one operation, on servers without a ledger.
    fn made_twice(&self) -> anyhow::Result<()> {
        ensure!(self.runs.iter().all(|run| run.has("--unguarded")), "a server had a ledger");
        let issues = self.rows.rows("issues");
        let ids: BTreeSet<String> =
            issues.iter().map(|issue| issue["operation_id"].to_string()).collect();
        ensure!(
            issues.len() == 2 && ids.len() == 1,
            "the control did not duplicate ({} issues): it proves nothing",
            issues.len()
        );
        Ok(())
    }
}

fn is_asked(said: &Said) -> bool {
    matches!(said, Said::Asked(_))
}

fn conflict() -> Said {
    Said::Refused("operation_conflict".into())
}

fn replay_of(made: &Settled, replayed: bool) -> Said {
    Said::Settled(Settled { replayed, ..made.clone() })
}
