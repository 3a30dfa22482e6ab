//! `counterfoil-lab kills --wrap`: clients write through `counterfoil wrap` to a server that knows
//! nothing of it, while server, relay and gateway die by SIGKILL, alone or one after the other. The
//! clients go by what the replies say. At the end the judge holds what was told and recorded against
//! the server's own files and against the relay's transcripts.
//!
//! The seed fixes the plan: who dies in which round, after how many replies and how much later. When
//! exactly the kill hits is the machine's.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::gateway::{Gateway, May, Told};
use super::judge::{self, Found};
use super::marked::{self, MARK, Role};
use super::world::{Kind, World, token};
use crate::process::{Ended, Launch, Process};
use crate::random::Random;
use crate::within::within;

/// A kill comes after at most this many replies.
const MOST_REPLIES: u64 = 10;
/// And at most this much later, in microseconds: some calls' time.
const MOST_DELAY_US: u64 = 20_000;
/// In one round a caller asks so often for an operation that is not settled; then later ones do.
const MOST_ASKED: u32 = 4;
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);
/// What a gateway that died had in hand is in doubt by then: its lease, and the search for it.
const SETTLED_BY: Duration = Duration::from_secs(90);
/// A gateway sees its server die so often at most: the pauses between its starts grow.
const MOST_LIVES: u32 = 2;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The lab's binary; the product's is beside it.
    pub lab: PathBuf,
    /// An empty directory for ledger, files and transcripts.
    pub place: PathBuf,
    /// The server.
    pub kind: Kind,
    /// How many processes are killed.
    pub kill_count: u32,
    /// The plan.
    pub seed: u64,
    /// Whether a lost call is sent again under a new ID, as a control: violations must be found.
    pub reckless: bool,
}

/// What was done and found.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The server.
    pub kind: Kind,
    /// The plan.
    pub seed: u64,
    /// Processes that were killed.
    pub kill_count: u32,
    /// Gateways of them.
    pub gateway_kills_count: u32,
    /// Servers, behind the relay.
    pub server_kills_count: u32,
    /// Relays: the server that the gateway itself started.
    pub relay_kills_count: u32,
    /// Operations that were asked for.
    pub operation_count: u64,
    /// Calls and questions.
    pub call_count: u64,
    /// Those that got no reply.
    pub lost_count: u64,
    /// Replies that were kept ones.
    pub replayed_count: u64,
    /// Calls that the server got.
    pub dispatch_count: usize,
    /// Effects in its files.
    pub effect_count: usize,
    /// Operations by their state in the ledger.
    pub states: BTreeMap<&'static str, usize>,
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
    let mut stage = Stage::set(campaign, &mut random)?;
    let load = Arc::new(Load::new(campaign, Arc::clone(&stage.world)));
    let mut gateway = stage.start().await?;
    let (mut kills, mut lives) = ([0; 3], 0);
    while kills.iter().sum::<u32>() < campaign.kill_count {
        let plan = Plan::make(&mut random, lives);
        let number = kills.iter().sum::<u32>() + 1;
        let round = stage.round(&mut gateway, &load, &plan, &mut random);
        let killed =
            round.await.with_context(|| format!("kill {number} of seed {}", campaign.seed))?;
        for role in &killed {
            kills[*role as usize] += 1;
        }
        lives = if killed.contains(&Victim::Gateway) { 0 } else { lives + 1 };
    }
    settle(&stage, &gateway, &load, &mut random).await?;
    let Running { mut process, client } = gateway;
    client.close().await;
    let ended = process.ended().await?;
    ensure!(ended == Ended::Code(0), "the last gateway ended with {ended:?}: {}", process.stderr());
    let left = marked::none(&stage.mark).await;
    let found = judge::judge(&stage.world, &stage.place, &load.told(), left)?;
    let Found { states, dispatch_count, effect_count, violations } = found;
    let [gateway_kills_count, server_kills_count, relay_kills_count] = kills;
    let count = |number: &AtomicU64| number.load(Ordering::SeqCst);
    Ok(Summary {
        kind: campaign.kind,
        seed: campaign.seed,
        kill_count: kills.iter().sum(),
        gateway_kills_count,
        server_kills_count,
        relay_kills_count,
        operation_count: count(&load.next),
        call_count: count(&load.call_count),
        lost_count: count(&load.lost_count),
        replayed_count: count(&load.replayed_count),
        dispatch_count,
        effect_count,
        states,
        violations,
        elapsed_ms: begun.elapsed().as_millis(),
    })
}

/// Asks until nothing is under way any more; what stays is settled or in doubt.
async fn settle(
    stage: &Stage,
    gateway: &Running,
    load: &Arc<Load>,
    random: &mut Random,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let open = load.lock().open.split_off(0);
        let mut moving = 0;
        for number in open {
            if load.is_at_rest(&stage.place, number)? {
                load.ask(&gateway.client, number).await;
            } else {
                // What was taken and never sent goes on with the same call alone.
                load.pursue(&gateway.client, number, &mut random.fork()).await;
                moving += u32::from(!load.is_at_rest(&stage.place, number)?);
            }
        }
        moving = moving.max(judge::in_progress(&stage.place, !load.reckless)?);
        if moving == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < SETTLED_BY, "{moving} operations do not come to rest");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Who may die. The numbers are places in the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Gateway = 0,
    Server = 1,
    Relay = 2,
}

impl Victim {
    const fn role(self) -> Role {
        match self {
            Self::Gateway => Role::Gateway,
            Self::Server => Role::Server,
            Self::Relay => Role::Relay,
        }
    }
}

/// What happens in a round.
#[derive(Debug, Clone)]
struct Plan {
    /// In this order.
    dies: Vec<Victim>,
    replies_count: u64,
    delay: Duration,
    /// Between the first and the second.
    between: Duration,
}

impl Plan {
    fn make(random: &mut Random, lives: u32) -> Self {
        use Victim::{Gateway, Relay, Server};
        let orders: [&[Victim]; 6] = [
            &[Server],
            &[Relay],
            &[Gateway],
            &[Server, Gateway],
            &[Gateway, Server],
            &[Relay, Gateway],
        ];
        // Those without the gateway stand first.
        let from = if lives < MOST_LIVES { 0 } else { 2 };
        let at = from + random.below(orders.len() as u64 - from);
        Self {
            dies: orders[at as usize].to_vec(),
            replies_count: random.below(MOST_REPLIES),
            delay: Duration::from_micros(random.below(MOST_DELAY_US)),
            between: Duration::from_micros(random.below(MOST_DELAY_US) / 4),
        }
    }
}

/// A gateway and its client.
struct Running {
    process: Process,
    client: Gateway,
}

/// Where it all happens.
struct Stage {
    lab: PathBuf,
    place: PathBuf,
    mark: String,
    world: Arc<World>,
    callers: usize,
}

impl Stage {
    fn set(campaign: &Campaign, random: &mut Random) -> anyhow::Result<Self> {
        std::fs::create_dir_all(campaign.place.join("dispatches"))?;
        let place = std::fs::canonicalize(&campaign.place)?;
        let world = World::make(campaign.kind, &place, &product(&campaign.lab))?;
        // Campaigns of one seed may run side by side.
        let mark = format!("{:x}-{:x}", random.next(), std::process::id());
        let mark = format!("{mark}-{}", campaign.kind as u8);
        let callers = campaign.kind.callers();
        Ok(Self { lab: campaign.lab.clone(), place, mark, world: Arc::new(world), callers })
    }

    async fn start(&self) -> anyhow::Result<Running> {
        let mut words: Vec<OsString> = vec!["wrap".into(), "--data-dir".into()];
        words.push(judge::data_dir(&self.place).into());
        words.extend(["--name", "lab", "--preset"].map(OsString::from));
        words.extend([self.world.preset().clone(), "--".into(), self.lab.clone().into()]);
        words.extend(["relay".into(), "--into".into(), judge::dispatches(&self.place).into()]);
        words.push("--".into());
        words.extend(self.world.command().iter().cloned());
        let mut launch = Launch::server(&product(&self.lab), words).env(MARK, &self.mark);
        if let Some((name, value)) = self.world.environment() {
            launch = launch.env(name, value);
        }
        let (process, pipes) = launch.start().await?;
        let client = Gateway::open(pipes).await;
        let client = client.with_context(|| format!("no gateway: {}", process.stderr()))?;
        Ok(Running { process, client })
    }

    /// Loads the gateway until the plan's processes die; it is there again when this returns. Gives
    /// who died.
    async fn round(
        &mut self,
        gateway: &mut Running,
        load: &Arc<Load>,
        plan: &Plan,
        random: &mut Random,
    ) -> anyhow::Result<Vec<Victim>> {
        let (replied, mut replies) = mpsc::unbounded_channel();
        load.stop.store(false, Ordering::SeqCst);
        let mut clients = JoinSet::new();
        for _ in 0..self.callers {
            let (client, load) = (gateway.client.clone(), Arc::clone(load));
            clients.spawn(write(client, load, replied.clone(), random.fork()));
        }
        drop(replied);
        for _ in 0..plan.replies_count {
            let counted = within("an operation is settled", replies.recv()).await?;
            counted.context("all clients stopped before the kill")?;
        }
        tokio::time::sleep(plan.delay).await;
        let mut killed = Vec::new();
        for victim in &plan.dies {
            if !killed.is_empty() {
                tokio::time::sleep(plan.between).await;
            }
            let there = marked::all(&self.mark)?;
            let dies = there.into_iter().find(|one| one.role == victim.role());
            if dies.is_some_and(|one| one.kill(&self.mark)) {
                killed.push(*victim);
            }
        }
        load.stop.store(true, Ordering::SeqCst);
        if killed.contains(&Victim::Gateway) {
            let ended = gateway.process.ended().await?;
            ensure!(ended == Ended::Signal(9), "killed, and yet it ended with {ended:?}");
        }
        while let Some(ended) = within("the clients end", clients.join_next()).await? {
            ended??;
        }
        if killed.contains(&Victim::Gateway) {
            // Clients start it again at once; only where two servers would undo each other not.
            if self.callers == 1 {
                marked::none(&self.mark).await?;
                self.world.tidy()?;
            }
            *gateway = self.start().await?;
        } else {
            self.world.tidy()?;
        }
        Ok(killed)
    }
}

/// Writes until the gateway is gone or the round is over. What earlier rounds left open comes first.
async fn write(
    gateway: Gateway,
    load: Arc<Load>,
    replied: mpsc::UnboundedSender<()>,
    mut random: Random,
) -> anyhow::Result<()> {
    while !load.stop.load(Ordering::SeqCst) {
        let open = if random.chance(1, 2) { load.lock().open.pop_front() } else { None };
        let number = match open {
            Some(number) => number,
            None => load.begin()?,
        };
        if load.pursue(&gateway, number, &mut random).await == Some(false) {
            return Ok(());
        }
        // Nobody counts any more once the kill is due.
        let _ = replied.send(());
    }
    Ok(())
}

/// What was asked for so far.
struct Load {
    world: Arc<World>,
    reckless: bool,
    next: AtomicU64,
    call_count: AtomicU64,
    lost_count: AtomicU64,
    replayed_count: AtomicU64,
    stop: AtomicBool,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Not settled as far as anybody was told.
    open: VecDeque<u64>,
    /// The last state that was told of each operation; empty before that.
    told: BTreeMap<u64, String>,
    /// With how many new IDs a reckless client tried.
    ids: BTreeMap<u64, u32>,
}

impl Load {
    fn new(campaign: &Campaign, world: Arc<World>) -> Self {
        Self {
            world,
            reckless: campaign.reckless,
            next: AtomicU64::new(0),
            call_count: AtomicU64::new(0),
            lost_count: AtomicU64::new(0),
            replayed_count: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            shared: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> BTreeMap<u64, String> {
        self.lock().told.clone()
    }

    /// A new operation.
    fn begin(&self) -> anyhow::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.world.prepare(number)?;
        self.lock().told.insert(number, String::new());
        Ok(number)
    }

    fn id(&self, number: u64) -> String {
        match self.lock().ids.get(&number) {
            None => token(number),
            Some(tries) => format!("{}-{tries}", token(number)),
        }
    }

    fn is_at_rest(&self, place: &Path, number: u64) -> anyhow::Result<bool> {
        judge::is_at_rest(place, &self.id(number))
    }

    /// Asks once how an operation stands.
    async fn ask(&self, gateway: &Gateway, number: u64) {
        self.call_count.fetch_add(1, Ordering::SeqCst);
        match gateway.status(&self.id(number)).await {
            Told::Reply { state, may: May::Rest, .. } => {
                self.lock().told.insert(number, state);
            }
            _ => self.lock().open.push_back(number),
        }
    }

    /// Goes after one operation by what the replies say; `Some(true)` once it is settled, `None` if
    /// that takes longer, `Some(false)` if the gateway is gone.
    async fn pursue(&self, gateway: &Gateway, number: u64, random: &mut Random) -> Option<bool> {
        let (tool, arguments) = self.world.call(number);
        let is_new = self.lock().told.get(&number).is_some_and(String::is_empty);
        // After a lost reply both are right: to ask, and to send the same call again.
        let mut asks = !is_new && random.chance(1, 2);
        for _ in 0..MOST_ASKED {
            let id = self.id(number);
            self.call_count.fetch_add(1, Ordering::SeqCst);
            let told = match asks {
                true => gateway.status(&id).await,
                false => gateway.call(tool, arguments.clone(), &id).await,
            };
            let Told::Reply { state, may, replayed } = told else {
                self.lost_count.fetch_add(1, Ordering::SeqCst);
                self.leave_open(number, "unknown");
                return Some(false);
            };
            self.replayed_count.fetch_add(u64::from(replayed), Ordering::SeqCst);
            asks = may == May::Ask;
            // Whoever knows that it is settled may repeat it all the same.
            if may == May::Rest && (replayed || !random.chance(1, 4)) {
                self.lock().told.insert(number, state);
                return Some(true);
            }
            if may != May::Rest {
                self.lock().told.insert(number, "unknown".into());
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.leave_open(number, "unknown");
        None
    }

    fn leave_open(&self, number: u64, state: &str) {
        let mut shared = self.lock();
        shared.told.insert(number, state.into());
        shared.open.push_back(number);
        if self.reckless {
            *shared.ids.entry(number).or_default() += 1;
        }
    }
}

fn product(lab: &Path) -> PathBuf {
    lab.with_file_name("counterfoil")
}
