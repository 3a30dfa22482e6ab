//! One history from one seed: processes, clients, an operator, deaths and clock jumps; then peace, and
//! what is left is judged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::admission::{Admitted, Authority, Call};
use counterfoil_core::consumer::{self, Expected};
use counterfoil_core::delivery::{Contract, Ended, State, TargetName, Terms, Withdrawal};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile as Digests, SecretKey};
use counterfoil_core::identity::{Caller, OperationId, Principal, Tenant, ToolId, ToolVersion};
use counterfoil_core::json::Value;
use counterfoil_core::observation::{Observation, ObservedState};
use counterfoil_core::operation::Verdict;
use counterfoil_core::refusal::Code;
use counterfoil_core::time::Lifetimes;
use counterfoil_engine::{CancellationToken, Deliverer, DelivererOptions, Engine, Target};
use counterfoil_store::outbox::{
    Accepted, Action, DeliveryQuery, DeliveryView, Order, RevokeOrder, TargetAction, TargetOrder,
    Which,
};
use counterfoil_store::{MemoryStore, Outbox as _, Resolve, Store as _};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::disk::Disk;
use super::plan::{Chance, Profile};
use super::target::Modelled;
use super::world::{Life, SEND_LIMIT, Shared, empty_store, lock};
use super::{History, Twin};
use crate::history::{Course, Told, check_courses};

const CLIENTS_COUNT: u64 = 4;
const OPERATIONS_COUNT: u64 = 30;
const PROCESSES_COUNT: usize = 2;
const NAMES: [&str; 5] = ["key", "lookup", "look-only", "never", "at-least-once"];

fn contract(profile: Profile, name: &str) -> Contract {
    match name {
        "key" => Contract::Key { lifetime: Duration::from_secs(86_400) },
        // Absence is proved by the wall clock where another process was the sender: a contract that
        // proves it rests on a clock that does not jump.
        "lookup" if profile != Profile::Clocks => {
            Contract::Lookup { absence_after: Some(Duration::from_secs(20)) }
        }
        "lookup" | "look-only" => Contract::Lookup { absence_after: None },
        "never" => Contract::Never,
        _ => Contract::AtLeastOnce,
    }
}

struct Process {
    engine: Arc<Engine>,
    life: Life,
    worker: JoinHandle<()>,
}

struct World {
    shared: Arc<Shared>,
    store: Arc<MemoryStore>,
    processes: Mutex<Vec<Process>>,
    courses: Mutex<BTreeMap<String, Course>>,
    wrong: Mutex<Vec<String>>,
    /// What came about, and how often.
    reached: Mutex<BTreeMap<&'static str, u64>>,
}

fn caller(name: &str) -> Caller {
    Caller {
        tenant: Tenant::parse("local").expect("valid"),
        principal: Principal::parse(name).expect("valid"),
    }
}

fn operation(id: &str) -> OperationId {
    OperationId::parse(id).expect("valid")
}

fn target(name: &str) -> TargetName {
    TargetName::parse(name).expect("valid")
}

fn name_of(id: &str) -> &'static str {
    let number: usize = id.rsplit('-').next().and_then(|end| end.parse().ok()).unwrap_or(0);
    NAMES[number % NAMES.len()]
}

impl World {
    async fn start(&self, number: u64) -> Process {
        let (shared, life) = (Arc::clone(&self.shared), Life::new(number));
        let inner = Arc::clone(&self.store);
        let disk = Arc::new(Disk { inner, shared: Arc::clone(&shared), life: life.clone() });
        let key = SecretKey::from_bytes(&[1; 32]).expect("long enough");
        let keys = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
        let engine = Engine::open_with_outbox(disk, keys, Lifetimes::default()).await;
        let engine = Arc::new(engine.expect("opens").with_randomness(shared.seeded()));
        let targets = NAMES.iter().map(|name| {
            Arc::new(Modelled {
                name: target(name),
                contract: contract(shared.profile, name),
                shared: Arc::clone(&shared),
                life: life.clone(),
            }) as Arc<dyn Target>
        });
        let options = DelivererOptions::default();
        let worker = Deliverer::new(Arc::clone(&engine), targets.collect(), options);
        let worker = tokio::spawn(worker.expect("good targets").run(CancellationToken::new()));
        shared.note(&format!("p{number} starts"));
        Process { engine, life, worker }
    }

    fn engine(&self) -> Arc<Engine> {
        let place = usize::try_from(self.shared.roll(PROCESSES_COUNT as u64)).expect("small");
        Arc::clone(&lock(&self.processes)[place].engine)
    }

    fn wrong(&self, words: String) {
        self.shared.note(&format!("WRONG {words}"));
        lock(&self.wrong).push(words);
    }

    fn reached(&self, what: &'static str) {
        *lock(&self.reached).entry(what).or_default() += 1;
    }

    fn reached_at_the_end(&self, view: Option<&DeliveryView>, end: &Told) {
        let Some(view) = view else { return self.reached("never recorded") };
        self.reached(view.delivery.state.as_str());
        self.reached(match end {
            Told::Unknown => "told unknown",
            Told::Applied(_) => "told applied",
            Told::NotApplied => "told not_applied",
        });
        if view.delivery.late_contradiction {
            self.reached("late contradiction");
        }
        match view.delivery.ended {
            None => {}
            Some(Ended::Cancelled) => self.reached("ended by cancel"),
            Some(Ended::Abandoned) => self.reached("ended by abandon"),
            Some(Ended::Resolved) => self.reached("ended by resolve"),
        }
    }

    fn course(&self, id: &str, change: impl FnOnce(&mut Course)) {
        change(lock(&self.courses).entry(id.to_owned()).or_default());
    }
}

fn admit(engine: &Engine, id: &str, words: &str) -> Admitted {
    let arguments = Value::from(words);
    let admitted = engine.admit(&Call {
        caller: &caller("alice"),
        tool_id: &ToolId::parse("tool").expect("valid"),
        tool_version: &ToolVersion::parse("1").expect("valid"),
        profile: Digests::JcsV1,
        operation_id: &operation(id),
        arguments: &arguments,
        call_arguments: &arguments,
        continuation_state: None,
        input_responses: None,
        authority: Authority::Present,
    });
    admitted.expect("canonical")
}

/// Asks for an effect, by any process, and asks again with the same identity while no reply comes.
async fn ask(world: &World, id: &str, words: &str) -> Option<Result<Accepted, Code>> {
    let shared = &world.shared;
    let name = name_of(id);
    let terms = Terms {
        contract: contract(shared.profile, name),
        max_attempts_count: 6,
        backoff_base: Duration::from_millis(200),
        backoff_cap: Duration::from_secs(20),
        send_limit: SEND_LIMIT,
        deliver_within: None,
    };
    for _ in 0..30 {
        let engine = world.engine();
        let call =
            engine.accept(admit(&engine, id, words), target(name), terms, id.as_bytes().into());
        let answer = timeout(Duration::from_secs(30), call).await;
        match answer {
            Ok(_) if shared.is_hit(Chance::ClientLost) => shared.note(&format!("{id}: lost")),
            Err(_) => shared.note(&format!("{id}: no reply")),
            Ok(Err(refusal)) if refusal.code() == Code::StoreUnavailable => {}
            Ok(answer) => return Some(answer.map_err(|refusal| refusal.code())),
        }
        sleep(Duration::from_millis(500 + shared.roll(2000))).await;
    }
    None
}

/// Reads an account as a consumer does.
fn read(world: &World, id: &str, seen: &Observation) -> Told {
    let expected = Expected {
        operation_id: operation(id),
        principal: Some(caller("alice").principal),
        backend: None,
    };
    if let Err(error) = consumer::accept(&expected, seen) {
        world.wrong(format!("{id}: {error}"));
    }
    let name = seen.stored_result.as_ref().map(|raw| raw.get().trim_matches('"').to_owned());
    match seen.state {
        ObservedState::Applied => Told::Applied(name.filter(|name| name.starts_with("ext-"))),
        ObservedState::NotApplied => Told::NotApplied,
        ObservedState::Partial | ObservedState::Unknown => Told::Unknown,
    }
}

async fn look(world: &World, id: &str) {
    let (engine, from) = (world.engine(), world.shared.now_ms());
    world.shared.count_step();
    let (alice, mallory, asked) = (caller("alice"), caller("mallory"), operation(id));
    let seen = engine.observe(&alice, &asked);
    let Ok(Ok(seen)) = timeout(Duration::from_secs(30), seen).await else { return };
    let told = read(world, id, &seen);
    let until = world.shared.now_ms();
    world.shared.note(&format!("{id}: told {told:?} since {from}"));
    world.course(id, |course| course.tells.push((from, until, told)));
    let foreign = engine.observe(&mallory, &asked);
    if let Ok(Ok(seen)) = timeout(Duration::from_secs(30), foreign).await
        && seen.state != ObservedState::Unknown
    {
        world.wrong(format!("{id}: another principal is told {:?}", seen.state));
    }
}

async fn client(world: Arc<World>, number: u64) {
    for count in 0..OPERATIONS_COUNT {
        let id = format!("op-{number}-{count}");
        let answer = ask(&world, &id, "an argument").await;
        world.shared.note(&format!(
            "{id}: {}",
            match &answer {
                Some(Ok(Accepted::Fresh(_))) => "fresh".to_owned(),
                Some(Ok(Accepted::Duplicate(_))) => "duplicate".to_owned(),
                other => format!("{other:?}"),
            }
        ));
        let accepted = matches!(answer, Some(Ok(_)));
        if matches!(answer, Some(Ok(Accepted::Duplicate(_)))) {
            world.reached("replayed");
        }
        let once_more = name_of(&id) == "at-least-once";
        world.course(&id, |course| {
            course.accepted = accepted;
            course.at_least_once = once_more;
        });
        if accepted && world.shared.is_rolled(6) {
            match ask(&world, &id, "another argument").await {
                None | Some(Err(_)) => {}
                Some(Ok(_)) => world.wrong(format!("{id}: changed arguments were accepted")),
            }
        }
        for _ in 0..3 {
            sleep(Duration::from_millis(world.shared.roll(1500))).await;
            look(&world, &id).await;
        }
        // What was settled long ago, or by an operator since, is asked for again.
        let earlier = format!("op-{number}-{}", world.shared.roll(count + 1));
        look(&world, &earlier).await;
    }
}

/// Kills a process now and then; another takes its place.
async fn killer(world: Arc<World>) {
    let mut number = PROCESSES_COUNT as u64;
    loop {
        sleep(Duration::from_millis(3000 + world.shared.roll(25_000))).await;
        let place = usize::try_from(world.shared.roll(PROCESSES_COUNT as u64)).expect("small");
        {
            let processes = lock(&world.processes);
            processes[place].life.end();
            processes[place].worker.abort();
        }
        world.shared.note(&format!("a process dies in place {place}"));
        sleep(Duration::from_millis(world.shared.roll(5000))).await;
        let next = world.start(number).await;
        number += 1;
        lock(&world.processes)[place] = next;
    }
}

async fn jumper(world: Arc<World>) {
    loop {
        sleep(Duration::from_millis(5000 + world.shared.roll(30_000))).await;
        let by = i64::try_from(world.shared.roll(4 * 86_400_000)).expect("four days");
        world.shared.jump(by - 86_400_000);
    }
}

/// Gives orders, mostly about what is open.
async fn operator(world: Arc<World>) {
    let (who, reason) = ("olga".to_owned(), "as the plan says".to_owned());
    loop {
        sleep(Duration::from_millis(300 + world.shared.roll(2000))).await;
        let Some(id) = pick(&world).await else { continue };
        let kind = world.shared.roll(8);
        world.shared.note(&format!("order {kind} on {id}"));
        let which = vec![Which::Operation(caller("alice").tenant, operation(&id))];
        let action = match kind {
            0 => Action::Redrive,
            1 => Action::Withdraw(Withdrawal::Cancel),
            2 => Action::Withdraw(Withdrawal::Abandon),
            3..=5 => {
                settle_by_word(&world, &id, (&who, &reason)).await;
                continue;
            }
            _ => {
                // Orders go on meanwhile: what is held back is what can be cancelled.
                tokio::spawn(interrupt(Arc::clone(&world), id, kind == 6));
                continue;
            }
        };
        let order = Order { which, action, who: who.clone(), reason: reason.clone() };
        let _ = world.store.direct(order).await;
    }
}

/// An operation: in three of four cases one that is open, as an operator's list shows them.
async fn pick(world: &World) -> Option<String> {
    let mut ids: Vec<String> = lock(&world.courses).keys().cloned().collect();
    if !world.shared.is_rolled(4) {
        let states = vec![State::Queued, State::Parked, State::DeadLetter, State::InDoubt];
        let query = DeliveryQuery { states, max_count: 100, ..DeliveryQuery::default() };
        let page = world.store.deliveries(query).await.expect("it reads");
        let open = page.items.iter().map(|view| view.record.operation_id.as_str().to_owned());
        ids = open.collect();
    }
    let count = ids.len() as u64;
    if count == 0 {
        return None;
    }
    let place = usize::try_from(world.shared.roll(count)).expect("small");
    Some(ids.swap_remove(place))
}

/// Settles by word what was looked up at the target and what nobody sends now. One word in four is
/// given too early: it may be wrong, and then it is the operator's fault and not the ledger's.
async fn settle_by_word(world: &World, id: &str, (who, reason): (&str, &str)) {
    let which = Which::Operation(caller("alice").tenant, operation(id));
    let Ok(Some(view)) = world.store.delivery(which).await else { return };
    let item = &view.delivery;
    let is_contradicted = item.state == State::Cancelled && item.late_contradiction;
    let is_open = matches!(item.state, State::InDoubt | State::DeadLetter) || is_contradicted;
    let is_early = world.shared.may_come(id, item.key);
    if !is_open || (is_early && !world.shared.is_rolled(4)) {
        return;
    }
    let is_there = !world.shared.effects(id).is_empty();
    // Too early, nobody looks: a reply that did not come is taken for an effect that is not there.
    let is_mistaken = is_early && !is_contradicted;
    let verdict = if is_there && !is_mistaken { Verdict::Applied } else { Verdict::NotApplied };
    let resolve = Resolve {
        tenant: caller("alice").tenant,
        operation_id: operation(id),
        verdict,
        who: who.into(),
        reason: reason.into(),
        proof: Some("the target's own log".into()),
    };
    if is_mistaken {
        world.course(id, |course| course.mistaken = true);
    }
    let _ = world.store.resolve(resolve).await;
}

/// Pauses a target for a while, or revokes the caller for a while.
async fn interrupt(world: Arc<World>, id: String, is_pause: bool) {
    for is_first in [true, false] {
        if is_pause {
            let action = if is_first { TargetAction::Pause } else { TargetAction::Resume };
            direct_target(&world, name_of(&id), action).await;
        } else {
            revoke(&world, is_first).await;
        }
        sleep(Duration::from_millis(world.shared.roll(3000))).await;
    }
}

async fn direct_target(world: &World, name: &str, action: TargetAction) {
    let (who, reason) = ("olga".to_owned(), "as the plan says".to_owned());
    let order = TargetOrder { target: target(name), action, who, reason };
    let _ = world.store.direct_target(order).await;
}

async fn revoke(world: &World, revoked: bool) {
    let Caller { tenant, principal } = caller("alice");
    let (who, reason) = ("olga".to_owned(), "as the plan says".to_owned());
    let order = RevokeOrder { tenant, principal: Some(principal), revoked, who, reason };
    let _ = world.store.set_revoked(order).await;
}

/// Everything works from now on: what is open comes to rest, and is judged.
async fn judge(world: &World) {
    world.shared.heal();
    revoke(world, false).await;
    for name in NAMES {
        direct_target(world, name, TargetAction::Resume).await;
    }
    for place in 0..PROCESSES_COUNT {
        let fresh = world.start(1000 + place as u64).await;
        let old = std::mem::replace(&mut lock(&world.processes)[place], fresh);
        old.life.end();
        old.worker.abort();
    }
    let ids: Vec<String> = lock(&world.courses).keys().cloned().collect();
    let mut open = ids.clone();
    for _ in 0..400 {
        let mut still = Vec::new();
        for id in open {
            let which = Which::Operation(caller("alice").tenant, operation(&id));
            let found = world.store.delivery(which).await.expect("it reads");
            let moves = found.is_some_and(|view| {
                use State::{Leased, Parked, Queued, Sending};
                matches!(view.delivery.state, Queued | Leased | Sending | Parked)
            });
            if moves {
                still.push(id);
            }
        }
        open = still;
        if open.is_empty() {
            break;
        }
        sleep(Duration::from_secs(5)).await;
    }
    open.into_iter().for_each(|id| world.wrong(format!("{id}: does not come to rest")));
    // What was on its way arrives.
    sleep(Duration::from_secs(60)).await;
    for id in ids {
        let which = Which::Operation(caller("alice").tenant, operation(&id));
        let view = world.store.delivery(which).await.expect("it reads");
        let seen = world.engine().observe(&caller("alice"), &operation(&id)).await;
        let end = read(world, &id, &seen.expect("it reads"));
        let state = view.as_ref().map(|view| view.delivery.state.as_str());
        world.reached_at_the_end(view.as_ref(), &end);
        world.shared.note(&format!("{id}: ends {state:?}, told {end:?}"));
        world.course(&id, |course| {
            course.recorded = view.is_some();
            course.at_the_end = Some(end);
        });
    }
    for (id, effects) in world.shared.all_effects() {
        world.course(&id, |course| course.effects = effects);
    }
}

async fn live(seed: u64, profile: Profile, twin: Option<Twin>) -> History {
    let shared = Shared::new(seed, profile, twin);
    let store = Arc::new(empty_store(&shared));
    let world = Arc::new(World {
        shared: Arc::clone(&shared),
        store,
        processes: Mutex::default(),
        courses: Mutex::default(),
        wrong: Mutex::default(),
        reached: Mutex::default(),
    });
    for number in 0..PROCESSES_COUNT as u64 {
        let process = world.start(number).await;
        lock(&world.processes).push(process);
    }
    let mut others = Vec::new();
    if profile.has(Profile::Crashes) {
        others.push(tokio::spawn(killer(Arc::clone(&world))));
    }
    if profile.has(Profile::Clocks) {
        others.push(tokio::spawn(jumper(Arc::clone(&world))));
    }
    if profile.has(Profile::Operators) {
        others.push(tokio::spawn(operator(Arc::clone(&world))));
    }
    let clients: Vec<_> =
        (0..CLIENTS_COUNT).map(|number| tokio::spawn(client(Arc::clone(&world), number))).collect();
    for client in clients {
        if client.await.is_err() {
            world.wrong("a client panicked".into());
        }
    }
    if profile.has(Profile::Operators) {
        // Their last orders are about what is left over; clients go on asking.
        for _ in 0..60 {
            sleep(Duration::from_millis(1000 + shared.roll(3000))).await;
            let number = shared.roll(CLIENTS_COUNT);
            look(&world, &format!("op-{number}-{}", shared.roll(OPERATIONS_COUNT))).await;
        }
    }
    others.iter().for_each(JoinHandle::abort);
    judge(&world).await;
    let courses = lock(&world.courses).clone();
    let mut violations = lock(&world.wrong).clone();
    violations.extend(check_courses(&courses).iter().map(ToString::to_string));
    History {
        text: shared.history(),
        operations_count: courses.len() as u64,
        steps_count: shared.steps_count(),
        violations,
        reached: lock(&world.reached).clone(),
    }
}

/// Runs a seed.
pub(super) fn run(seed: u64, profile: Profile, twin: Option<Twin>) -> std::io::Result<History> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(Box::pin(live(seed, profile, twin))))
}
