//! Random kills under load: clients write concurrently, a server dies by SIGKILL at a random moment
//! or between two of its statements, the next one opens what is left, whatever is unknown is asked
//! for. At the end the checker and the physical rows must agree.
//!
//! The seed fixes the plan: which operations, after how many replies and how much later a kill from
//! outside comes, or at which cut point the server kills itself. When exactly a kill from outside
//! hits is the machine's.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::child::ChildOptions;
use crate::cuts::{CutSpec, End, LOCAL_POINTS};
use crate::delivery::campaign;
use crate::history::{Event, Physical, Recorder, Saw, check, check_courses, courses_of};
use crate::process::{Ended, Launch};
use crate::random::Random;
use crate::readback;
use crate::session::{Caller, Issue, Protocol, Reply, Session};
use crate::wrapped::campaign as wrapped;
use crate::wrapped::world::Kind;

/// A kill comes after at most this many replies.
const MOST_REPLIES: u64 = 40;
/// And at most this much later, in microseconds: about what two commits take.
const MOST_DELAY_US: u64 = 5000;
/// A cut point is passed at most this often before the server kills itself there.
const MOST_PASSES: u64 = 12;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct KillsArgs {
    /// How many servers are killed
    #[arg(long, default_value_t = 200)]
    count: u32,
    /// The plan; another one each time if it is left out
    #[arg(long)]
    seed: Option<u64>,
    /// How many servers share the ledger
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    servers: u8,
    /// As a control, servers without a ledger, a target that gets repeats, or a client that gives a
    /// lost call a new ID: violations must be found
    #[arg(long)]
    unguarded: bool,
    /// Kill server, worker and help desk of accepted deliveries instead
    #[arg(long, conflicts_with = "servers")]
    delivery: bool,
    /// Kill `counterfoil wrap` and the server behind it instead
    #[arg(long, requires = "server", conflicts_with_all = ["servers", "delivery"])]
    wrap: bool,
    /// Which server is wrapped
    #[arg(long, value_enum, requires = "wrap")]
    server: Option<Kind>,
    /// Keep the ledger here; a directory that does not exist
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The lab's binary.
    pub lab: PathBuf,
    /// Where the ledger is.
    pub data_dir: PathBuf,
    /// How many servers are killed, one after the other.
    pub kill_count: u32,
    /// The plan.
    pub seed: u64,
    /// How many servers share the ledger at each time.
    pub server_count: usize,
    /// How many clients each server has.
    pub client_count: usize,
    /// Whether the servers keep no ledger: then violations must be found.
    pub unguarded: bool,
}

/// What was done and found.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The plan.
    pub seed: u64,
    /// Servers that died by SIGKILL.
    pub kill_count: u32,
    /// Requests sent.
    pub call_count: usize,
    /// Requests whose reply never came.
    pub lost_count: usize,
    /// Lost writes that a status showed to be settled.
    pub recovered_count: usize,
    /// Physical issues.
    pub issue_count: u64,
    /// Recorded operations.
    pub operation_count: u64,
    /// Recorded operations that a kill left between their two steps.
    pub in_progress_count: usize,
    /// What the checker found.
    pub violations: Vec<String>,
    /// How long it took.
    pub elapsed_ms: u128,
}

/// Runs a campaign from the command line and gives its summary as JSON.
///
/// # Errors
/// If a server does not die as it should or the checker finds a violation.
pub async fn run_command(args: &KillsArgs) -> anyhow::Result<String> {
    let fresh = || getrandom::u64().context("the system gave no random seed");
    let temporary = tempfile::tempdir()?;
    let data_dir = args.data_dir.clone().unwrap_or_else(|| temporary.path().join("data"));
    ensure!(!data_dir.exists(), "{} exists; give a new directory", data_dir.display());
    let seed = args.seed.map_or_else(fresh, Ok)?;
    if args.delivery {
        return of_deliveries(args, data_dir, seed).await;
    }
    if let Some(kind) = args.server {
        return of_wraps(args, kind, data_dir, seed).await;
    }
    let campaign = Campaign {
        lab: std::env::current_exe()?,
        data_dir,
        kill_count: args.count,
        seed,
        server_count: args.servers.into(),
        client_count: 8,
        unguarded: args.unguarded,
    };
    let summary = run(&campaign).await.with_context(|| format!("seed {}", campaign.seed))?;
    let text = serde_json::to_string_pretty(&summary)?;
    let as_it_should = summary.violations.is_empty() != args.unguarded;
    ensure!(as_it_should, "violations, and whether a ledger was kept, do not agree:\n{text}");
    Ok(text)
}

async fn of_deliveries(args: &KillsArgs, place: PathBuf, seed: u64) -> anyhow::Result<String> {
    let campaign = campaign::Campaign {
        lab: std::env::current_exe()?,
        place,
        kill_count: args.count,
        seed,
        reckless: args.unguarded,
    };
    let summary = campaign::run(&campaign).await.with_context(|| format!("seed {seed}"))?;
    let text = serde_json::to_string_pretty(&summary)?;
    let as_it_should = summary.violations.is_empty() != args.unguarded;
    ensure!(as_it_should, "violations, and what was promised, do not agree:\n{text}");
    Ok(text)
}

async fn of_wraps(
    args: &KillsArgs,
    kind: Kind,
    place: PathBuf,
    seed: u64,
) -> anyhow::Result<String> {
    let lab = std::env::current_exe()?;
    let (kill_count, reckless) = (args.count, args.unguarded);
    let campaign = wrapped::Campaign { lab, place, kind, kill_count, seed, reckless };
    let summary = wrapped::run(&campaign).await.with_context(|| format!("seed {seed}"))?;
    let text = serde_json::to_string_pretty(&summary)?;
    let as_it_should = summary.violations.is_empty() != args.unguarded;
    ensure!(as_it_should, "violations, and how the client retries, do not agree:\n{text}");
    Ok(text)
}

/// Runs a campaign.
///
/// # Errors
/// If a server does not start, does not die as it should, or the ledger cannot be read back. What
/// the checker finds is in the summary.
pub async fn run(campaign: &Campaign) -> anyhow::Result<Summary> {
    let begun = Instant::now();
    let mut random = Random::new(campaign.seed);
    let recorder = Arc::new(Recorder::default());
    let mut unknown = Vec::new();
    let mut recovered_count = 0;
    for round in 0..campaign.kill_count {
        let how = How::plan(&mut random, campaign);
        let servers = open(campaign, how.cut()).await?;
        // Whoever is about to die may do it here, too: then the next one is asked.
        let reconciler = servers[0].caller();
        let asked = reconcile(reconciler, &recorder, unknown, &mut random).await;
        recovered_count += asked.recovered_count;
        let load = Load::new(&recorder, round);
        unknown = round_of_load(campaign, servers, load, &how)
            .await
            .with_context(|| format!("kill {} of seed {}", round + 1, campaign.seed))?;
        unknown.extend(asked.still_unknown);
    }
    let mut servers = open(campaign, None).await?.into_iter();
    let last = servers.next().context("a campaign has at least one server")?;
    let asked = reconcile(last.caller(), &recorder, unknown, &mut random).await;
    ensure!(asked.still_unknown.is_empty(), "the last server did not answer");
    recovered_count += asked.recovered_count;
    for server in servers.chain([last]) {
        let ended = server.close().await?;
        ensure!(ended == Ended::Code(0), "the last server ended with {ended:?}");
    }
    judge(campaign, &recorder.history(), recovered_count, begun)
}

fn judge(
    campaign: &Campaign,
    history: &[Event],
    recovered_count: usize,
    begun: Instant,
) -> anyhow::Result<Summary> {
    let rows = readback::read(&ChildOptions::new(&campaign.data_dir).ledger())?;
    let physical = match campaign.unguarded {
        true => Physical::of_unguarded(&rows),
        false => Physical::of_ledger(&rows),
    };
    let courses = check_courses(&courses_of(history, &physical));
    let violations = check(history, &physical);
    let mut violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
    violations.extend(courses.iter().map(ToString::to_string));
    let count = |wanted: fn(&Event) -> bool| history.iter().filter(|event| wanted(event)).count();
    Ok(Summary {
        seed: campaign.seed,
        kill_count: campaign.kill_count,
        call_count: count(|event| matches!(event, Event::Invoke { .. })),
        lost_count: count(|event| matches!(event, Event::Lost { .. })),
        recovered_count,
        issue_count: rows.count("issues"),
        operation_count: rows.count("operations"),
        in_progress_count: rows.states().values().filter(|state| *state == "in_progress").count(),
        violations,
        elapsed_ms: begun.elapsed().as_millis(),
    })
}

/// How a round's server dies.
#[derive(Debug, Clone)]
enum How {
    /// From outside, after this many replies and this much later.
    Outside { reply_count: u64, delay: Duration },
    /// By itself, at a cut point.
    AtCut(CutSpec),
}

impl How {
    fn plan(random: &mut Random, campaign: &Campaign) -> Self {
        // Without a ledger there is nothing to cut.
        if !campaign.unguarded && random.chance(1, 3) {
            let point = LOCAL_POINTS[random.below(LOCAL_POINTS.len() as u64) as usize];
            // One pass in ten is a first commit; waiting for many of them takes long.
            let most = if point == "store.after_first_commit" { 3 } else { MOST_PASSES };
            let nth = 1 + random.below(most) as usize;
            return Self::AtCut(CutSpec::nth(point, nth, End::Kill));
        }
        Self::Outside {
            reply_count: random.below(MOST_REPLIES),
            delay: Duration::from_micros(random.below(MOST_DELAY_US)),
        }
    }

    const fn cut(&self) -> Option<&CutSpec> {
        match self {
            Self::Outside { .. } => None,
            Self::AtCut(cut) => Some(cut),
        }
    }
}

/// Starts a round's servers. The first one is the one that dies.
async fn open(campaign: &Campaign, cut: Option<&CutSpec>) -> anyhow::Result<Vec<Session>> {
    let mut sessions = Vec::new();
    for number in 0..campaign.server_count {
        let mut options = ChildOptions::new(&campaign.data_dir);
        options.unguarded = campaign.unguarded;
        options.cut.extend(cut.filter(|_| number == 0).cloned());
        let launch = Launch::child(&campaign.lab, options.to_arguments());
        sessions.push(Session::open(&launch, Protocol::V2026_07_28).await?);
    }
    Ok(sessions)
}

/// What asking for unknown operations came to.
#[derive(Default)]
struct Asked {
    /// Settled after all.
    recovered_count: usize,
    /// Not answered: the server died meanwhile.
    still_unknown: Vec<Planned>,
}

/// Asks for every unknown operation, and sends half of those that stay unknown again under their
/// own ID, which is safe and finds out more than asking.
async fn reconcile(
    caller: &Caller,
    recorder: &Recorder,
    unknown: Vec<Planned>,
    random: &mut Random,
) -> Asked {
    let mut asked = Asked::default();
    for planned in unknown {
        let id = &planned.issue.operation_id;
        let call = recorder.invoke_status(id);
        let reply = caller.status(id).await;
        recorder.ended(call, &reply);
        match Saw::from_reply(&reply) {
            None => asked.still_unknown.push(planned),
            Some(Saw::Settled(_)) => asked.recovered_count += 1,
            Some(_) if random.chance(1, 2) => {
                if let Reply::Lost(_) = planned.send(caller, recorder).await {
                    asked.still_unknown.push(planned);
                }
            }
            Some(_) => {}
        }
    }
    asked
}

/// Loads the servers until the first one dies, and lets the others end. Gives the writes whose
/// replies were lost.
async fn round_of_load(
    campaign: &Campaign,
    mut servers: Vec<Session>,
    load: Load,
    how: &How,
) -> anyhow::Result<Vec<Planned>> {
    let load = Arc::new(load);
    let (replied, replies) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for server in &servers {
        for _ in 0..campaign.client_count {
            let (caller, load) = (server.caller().clone(), Arc::clone(&load));
            clients.spawn(client(caller, load, replied.clone()));
        }
    }
    drop(replied);
    let victim = servers[0].process();
    match how {
        How::Outside { reply_count, delay } => {
            wait(replies, *reply_count, *delay).await?;
            victim.kill().await?;
        }
        How::AtCut(cut) => {
            let ended = victim.ended().await?;
            ensure!(ended == Ended::Signal(9), "armed with {cut}, and yet it ended with {ended:?}");
        }
    }
    load.stop.store(true, Ordering::SeqCst);
    let mut unknown = Vec::new();
    while let Some(lost) = clients.join_next().await {
        unknown.extend(lost?);
    }
    for survivor in servers.into_iter().skip(1) {
        let ended = survivor.close().await?;
        ensure!(ended == Ended::Code(0), "a server that was not killed ended with {ended:?}");
    }
    Ok(unknown)
}

async fn wait(
    mut replies: mpsc::UnboundedReceiver<()>,
    count: u64,
    delay: Duration,
) -> anyhow::Result<()> {
    for _ in 0..count {
        replies.recv().await.context("all clients stopped before the kill")?;
    }
    let until = Instant::now() + delay;
    while Instant::now() < until {
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// What all clients of a round share.
struct Load {
    recorder: Arc<Recorder>,
    round: u32,
    next: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    fn new(recorder: &Arc<Recorder>, round: u32) -> Self {
        let recorder = Arc::clone(recorder);
        Self { recorder, round, next: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }

    /// Every operation is asked for twice, at about the same time and mostly by two clients.
    fn plan(&self) -> Planned {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        Planned::new(self.round, number / 2, number % 2 == 1)
    }
}

/// One write.
#[derive(Debug, Clone)]
struct Planned {
    issue: Issue,
    /// Whether the user is asked, and the call continued.
    in_rounds: bool,
}

impl Planned {
    fn new(round: u32, operation: u64, again: bool) -> Self {
        let id = format!("kill-{round}-{operation}");
        let mut issue = Issue::new(&id, &format!("title of {id}"), &format!("body of {id}"));
        if operation % 5 == 4 {
            issue = issue.partial();
        }
        let in_rounds = operation % 3 == 2;
        if again && !in_rounds && operation % 8 == 1 {
            // The same ID for something else: a conflict, whichever comes first.
            issue = issue.body("something else");
        }
        Self { issue, in_rounds }
    }

    async fn send(&self, caller: &Caller, recorder: &Recorder) -> Reply {
        let call = recorder.invoke_write(&self.issue);
        let reply = if self.in_rounds {
            caller.create_issue(&self.issue).await
        } else {
            caller.call("create_issue", self.issue.arguments_with_body()).await
        };
        recorder.ended(call, &reply);
        reply
    }
}

/// Writes until its server is gone or the round is over. Gives the write whose reply was lost.
async fn client(
    caller: Caller,
    load: Arc<Load>,
    replied: mpsc::UnboundedSender<()>,
) -> Option<Planned> {
    while !load.stop.load(Ordering::SeqCst) {
        let planned = load.plan();
        if let Reply::Lost(_) = planned.send(&caller, &load.recorder).await {
            return Some(planned);
        }
        // Nobody counts any more once the kill is due.
        let _ = replied.send(());
    }
    None
}
