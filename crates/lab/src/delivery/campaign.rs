//! `counterfoil-lab kills --delivery`: MCP clients file tickets without a pause while the server that
//! accepts them, a worker beside it and the help desk die by SIGKILL, alone or together, and are
//! started again. At the end everything comes to rest, and the judge holds the ledger against the
//! desk's log.
//!
//! The seed fixes the plan: who dies in which round, after how many answers and how much later. When
//! exactly the kill hits is the machine's.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::front::{self, TOOLS, Taken, Told};
use super::judge::{self, Calls, Left};
use crate::process::{Ended, Launch, Pipes, Process};
use crate::random::Random;
use crate::session::{Caller, Protocol, Session};
use crate::within::within;

/// A kill comes after at most this many answers.
const MOST_REPLIES: u64 = 25;
/// And at most this much later, in microseconds: some requests' time.
const MOST_DELAY_US: u64 = 30_000;
/// A call that was refused, or lost, is made again at the latest at the end, so often.
const MOST_TRIES: usize = 20;
const CLIENTS: usize = 6;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The lab's binary.
    pub lab: PathBuf,
    /// An empty directory for ledger and log.
    pub place: PathBuf,
    /// How many times somebody is killed.
    pub kill_count: u32,
    /// The plan.
    pub seed: u64,
    /// Whether the connector that promises nothing repeats all the same, as a control: duplicates
    /// must be found.
    pub reckless: bool,
}

/// What was done and found.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The plan.
    pub seed: u64,
    /// Rounds, each with one to three processes killed together.
    pub kill_count: u32,
    /// Servers that died.
    pub server_kills_count: u32,
    /// Workers that died.
    pub worker_kills_count: u32,
    /// Help desks that died.
    pub desk_kills_count: u32,
    /// Operations whose acceptance was answered.
    pub accepted_count: usize,
    /// Of them those whose answer had the effect's own result.
    pub applied_at_once_count: usize,
    /// Calls whose answer never came.
    pub lost_answers_count: usize,
    /// Items of the ledger by their state.
    pub states: std::collections::BTreeMap<&'static str, usize>,
    /// Requests that were begun.
    pub attempts_count: u64,
    /// Tickets of the desk.
    pub effects_count: usize,
    /// Operations with more than one of them.
    pub duplicates_count: usize,
    /// What the judge found.
    pub violations: Vec<String>,
    /// How long it took.
    pub elapsed_ms: u128,
}

/// Runs a campaign.
///
/// # Errors
/// If a process does not start, does not die as it should, or something never comes to rest. What
/// the judge finds is in the summary.
pub async fn run(campaign: &Campaign) -> anyhow::Result<Summary> {
    let begun = Instant::now();
    let mut random = Random::new(campaign.seed);
    let mut cast = Cast::start(campaign, &mut random).await?;
    let load = Arc::new(Load::default());
    let mut kills = [0; 3];
    for round in 0..campaign.kill_count {
        let plan = Plan::make(&mut random);
        cast.round(&load, &plan, &mut random)
            .await
            .with_context(|| format!("round {} of seed {}", round + 1, campaign.seed))?;
        for (count, dies) in kills.iter_mut().zip(plan.dies) {
            *count += u32::from(dies);
        }
    }
    cast.settle_calls(&load).await?;
    let (engine, caller) = judge::open(&campaign.place).await?;
    let rest = async {
        while !judge::is_settled(&engine).await? {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    };
    within("every item comes to rest", rest).await??;
    let calls = cast.calls(&load).await;
    cast.end().await?;
    let log = log_of(&campaign.place);
    let Left { states, effects_count, duplicates_count, attempts_count, violations } =
        judge::judge((&engine, &caller), &log, &calls).await?;
    engine.close().await?;
    let [server_kills_count, worker_kills_count, desk_kills_count] = kills;
    Ok(Summary {
        seed: campaign.seed,
        kill_count: campaign.kill_count,
        server_kills_count,
        worker_kills_count,
        desk_kills_count,
        accepted_count: calls.accepted.len(),
        applied_at_once_count: calls.accepted.iter().filter(|told| told.is_applied).count(),
        lost_answers_count: load.lost_count.load(Ordering::SeqCst) as usize,
        states,
        attempts_count,
        effects_count,
        duplicates_count,
        violations,
        elapsed_ms: begun.elapsed().as_millis(),
    })
}

/// What happens in a round.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Server, worker, desk.
    dies: [bool; 3],
    replies_count: u64,
    delay: Duration,
}

impl Plan {
    fn make(random: &mut Random) -> Self {
        let dies = 1 + random.below(7);
        Self {
            dies: [dies & 1 > 0, dies & 2 > 0, dies & 4 > 0],
            replies_count: random.below(MOST_REPLIES),
            delay: Duration::from_micros(random.below(MOST_DELAY_US)),
        }
    }
}

/// What was asked for so far.
#[derive(Debug, Default)]
struct Load {
    next: AtomicU64,
    lost_count: AtomicU64,
    stop: AtomicBool,
    accepted: Mutex<Vec<Told>>,
    /// Answers that no call may get.
    wrong: Mutex<Vec<String>>,
    /// Not answered, or refused: asked for again.
    open: Mutex<Vec<u64>>,
}

fn id_of(number: u64) -> String {
    format!("ticket-{number}")
}

const fn tool_of(number: u64) -> &'static str {
    TOOLS[(number % TOOLS.len() as u64) as usize]
}

impl Load {
    fn take_open(&self) -> Vec<u64> {
        std::mem::take(&mut *locked(&self.open))
    }

    /// Asks for one operation; whether it was answered.
    async fn ask(&self, caller: &Caller, number: u64) -> bool {
        let id = id_of(number);
        match front::file(caller, tool_of(number), &id).await {
            Taken::Accepted(told) => locked(&self.accepted).push(told),
            Taken::Refused(why) => {
                tracing::debug!(id, why, "refused");
                locked(&self.open).push(number);
            }
            Taken::Wrong(words) => locked(&self.wrong).push(words),
            Taken::Lost => {
                self.lost_count.fetch_add(1, Ordering::SeqCst);
                locked(&self.open).push(number);
                return false;
            }
        }
        true
    }
}

fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files tickets until its server is gone or the round is over. One in eight is asked for twice.
async fn client(caller: Caller, load: Arc<Load>, replied: mpsc::UnboundedSender<()>) {
    while !load.stop.load(Ordering::SeqCst) {
        let number = load.next.fetch_add(1, Ordering::SeqCst);
        let (is_there, _) = tokio::join!(load.ask(&caller, number), async {
            if number % 8 == 7 {
                front::file(&caller, tool_of(number), &id_of(number)).await
            } else {
                Taken::Lost
            }
        });
        if !is_there {
            return;
        }
        // Nobody counts any more once the kill is due.
        let _ = replied.send(());
    }
}

/// The processes.
#[derive(Debug)]
struct Cast {
    lab: PathBuf,
    place: PathBuf,
    desk_at: SocketAddr,
    server: Session,
    worker: (Process, Pipes),
    desk: (Process, Pipes),
}

impl Cast {
    async fn start(campaign: &Campaign, random: &mut Random) -> anyhow::Result<Self> {
        let (lab, place) = (campaign.lab.clone(), campaign.place.clone());
        std::fs::create_dir_all(&place)?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let desk = start_desk(&lab, &place, any, random.next()).await?;
        let desk_at = desk.0.address().context("the desk says where it listens")?;
        let text = configuration(desk_at, campaign.reckless);
        std::fs::write(place.join("counterfoil.toml"), text)?;
        let server = start_server(&lab, &place).await?;
        let worker = start_worker(&lab, &place).await?;
        Ok(Self { lab, place, desk_at, server, worker, desk })
    }

    /// Loads the server until the plan's processes die; they are there again when it returns.
    async fn round(
        &mut self,
        load: &Arc<Load>,
        plan: &Plan,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let caller = self.server.caller().clone();
        let (replied, mut replies) = mpsc::unbounded_channel();
        load.stop.store(false, Ordering::SeqCst);
        let mut clients = JoinSet::new();
        let open = load.take_open();
        let (again, asked) = (Arc::clone(load), caller.clone());
        clients.spawn(async move {
            for number in open {
                again.ask(&asked, number).await;
            }
        });
        for _ in 0..CLIENTS {
            clients.spawn(client(caller.clone(), Arc::clone(load), replied.clone()));
        }
        drop(replied);
        for _ in 0..plan.replies_count {
            let counted = within("a call is answered", replies.recv()).await?;
            counted.context("all clients stopped before the kill")?;
        }
        tokio::time::sleep(plan.delay).await;
        self.kill(plan).await?;
        load.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = within("the clients end", clients.join_next()).await? {
            ended?;
        }
        self.start_again(plan, random).await
    }

    /// All at once, as far as signals go; then each is waited for.
    async fn kill(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let all = [self.server.process(), &mut self.worker.0, &mut self.desk.0];
        let mut dying: Vec<&mut Process> =
            all.into_iter().zip(plan.dies).filter(|(_, dies)| *dies).map(|(it, _)| it).collect();
        for process in &dying {
            process.signal(Signal::KILL)?;
        }
        for process in &mut dying {
            let ended = process.ended().await?;
            ensure!(
                ended == Ended::Signal(9),
                "killed, and yet it ended with {ended:?}: {}",
                process.stderr()
            );
        }
        Ok(())
    }

    async fn start_again(&mut self, plan: &Plan, random: &mut Random) -> anyhow::Result<()> {
        let [server, worker, desk] = plan.dies;
        // The others go on meanwhile: the desk that is back last is missed longest.
        if server {
            self.server = start_server(&self.lab, &self.place).await?;
        }
        if worker {
            self.worker = start_worker(&self.lab, &self.place).await?;
        }
        if desk {
            self.desk = start_desk(&self.lab, &self.place, self.desk_at, random.next()).await?;
        }
        Ok(())
    }

    /// Asks again until every call has its answer.
    async fn settle_calls(&self, load: &Load) -> anyhow::Result<()> {
        for _ in 0..MOST_TRIES {
            let open = load.take_open();
            if open.is_empty() {
                return Ok(());
            }
            for number in open {
                load.ask(self.server.caller(), number).await;
            }
        }
        anyhow::bail!("calls are still refused")
    }

    /// What was told of every call, and what is told of the same operations at the end.
    async fn calls(&self, load: &Load) -> Calls {
        let accepted = std::mem::take(&mut *locked(&load.accepted));
        let wrong = std::mem::take(&mut *locked(&load.wrong));
        let mut calls = Calls { accepted, at_the_end: Vec::new(), wrong };
        for told in &calls.accepted {
            match front::status(self.server.caller(), &told.id).await {
                Taken::Accepted(told) => calls.at_the_end.push(told),
                other => calls.wrong.push(format!("the status of {}: {other:?}", told.id)),
            }
        }
        calls
    }

    /// Ends all three as they should.
    async fn end(self) -> anyhow::Result<()> {
        let Self { server, worker, desk, .. } = self;
        let mut ends = vec![server.close().await?];
        for (mut process, pipes) in [worker, desk] {
            drop(pipes);
            ends.push(process.ended().await?);
        }
        ensure!(ends == [Ended::Code(0); 3], "server, worker and desk ended with {ends:?}");
        Ok(())
    }
}

fn log_of(place: &Path) -> PathBuf {
    place.join("desk.log")
}

async fn start_desk(
    lab: &Path,
    place: &Path,
    listen: SocketAddr,
    seed: u64,
) -> anyhow::Result<(Process, Pipes)> {
    let mut arguments = vec!["desk".into(), "--log".into(), log_of(place).into()];
    for word in ["--listen", &listen.to_string(), "--seed", &seed.to_string()] {
        arguments.push(word.into());
    }
    Launch::child(lab, arguments).start().await.context("the desk does not start")
}

fn role(lab: &Path, place: &Path, more: &[&str]) -> Launch {
    let mut arguments = vec!["delivering".into(), "--data-dir".into(), place.into()];
    arguments.extend(more.iter().map(Into::into));
    Launch::child(lab, arguments)
}

/// A server delivers by itself, as the product's does.
async fn start_server(lab: &Path, place: &Path) -> anyhow::Result<Session> {
    let launch = role(lab, place, &["--accepts", "--delivers"]);
    let opened = Session::open(&launch, Protocol::V2026_07_28).await;
    opened.context("the server does not start")
}

async fn start_worker(lab: &Path, place: &Path) -> anyhow::Result<(Process, Pipes)> {
    role(lab, place, &["--delivers"]).start().await.context("the worker does not start")
}

/// One connector for each contract. Everything is short: what a killed process held comes back, and
/// a pause ends, within a few seconds.
fn configuration(desk: SocketAddr, reckless: bool) -> String {
    let never = if reckless { "at_least_once" } else { "never" };
    let mut text = "lock_wait = \"30s\"\n".to_owned();
    for (name, contract, terms) in [
        ("key", "key", "key_lifetime = \"24h\"\nmax_attempts = 30\n"),
        ("lookup", "lookup", "absence_after = \"4s\"\nmax_attempts = 30\n"),
        ("never", never, "max_attempts = 30\n"),
    ] {
        text.push_str(&connector(desk, name, contract, terms));
    }
    text.push_str(&format!(
        "[connector.key.idempotency]\nheader = \"Idempotency-Key\"\n\n\
         [connector.lookup.lookup]\nurl = \"http://{desk}/lookup?marker={{{{ marker }}}}\"\n\
         items = \"/items\"\nfield = \"/marker\"\nequals = \"{{{{ marker }}}}\"\n\
         complete = true\nexternal_id = \"/id\"\n\n\
         [connector.lookup.lookup.result]\ntext = \"Found ticket {{{{ external_id }}}}\"\n"
    ));
    text
}

fn connector(desk: SocketAddr, name: &str, contract: &str, terms: &str) -> String {
    format!(
        r#"
[connector.{name}]
tool = "file_by_{name}"
description = "Files a ticket."
contract = "{contract}"
url = "http://{desk}/{name}"
connect_timeout = "500ms"
timeout = "1s"
wait = "20ms"
allow_networks = ["127.0.0.1"]

[connector.{name}.arguments]
type = "object"
required = ["title"]
properties.title.type = "string"

[connector.{name}.json]
title = "{{{{ args.title }}}}"
marker = "{{{{ marker }}}}"

[connector.{name}.success]
status = [201]
external_id = "/id"

[[connector.{name}.answer]]
status = [503]
text = ["busy"]
means = "not_applied"

[connector.{name}.result]
text = "Filed ticket {{{{ external_id }}}}"

[connector.{name}.delivery]
{terms}backoff_base = "20ms"
backoff_cap = "300ms"

[connector.{name}.limits]
concurrency = 8
breaker_failures = 0

"#
    )
}
