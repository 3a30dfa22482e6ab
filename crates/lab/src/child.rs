//! `counterfoil-lab child`: the product's server on stdio or over HTTP, with a clock that stands
//! still, armed cut points and store faults injected. What handles a call is the product's own code.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use counterfoil::data_dir::{DataDir, TOKENS_FILE};
use counterfoil::http::{Auth, HttpLimits, HttpOptions};
use counterfoil::tokens::LiveTokens;
use counterfoil::tools::issue_effect;
use counterfoil::wire::WireLimits;
use counterfoil::{http, keys, serve};
use counterfoil_core::identity::{BackendId, Caller, Principal, Tenant};
use counterfoil_core::time::{Lifetimes, Span};
use counterfoil_engine::Engine;
use counterfoil_store::Store;
use counterfoil_store::memory::{MemoryOptions, MemoryStore};
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use tokio_util::sync::CancellationToken;

use crate::clock::FixedClock;
use crate::cuts::CutSpec;
use crate::process::say_ready;
use crate::store_faults::{BarrierSpec, Faults, FaultyStore};
use crate::unguarded::{self, Unguarded};

/// The moment at which the lab's clocks stand unless told otherwise: 2027-01-15T08:00:00Z.
pub const START_MS: i64 = 1_800_000_000_000;

/// The child's command line; also how the lab's tests write one.
#[derive(Debug, Clone, Args)]
pub struct ChildOptions {
    /// Where ledger and keys are
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Who calls on stdio
    #[arg(long, default_value = "alice")]
    pub principal: String,
    /// Serve over HTTP at this address, by the tokens of the data directory, until stdin ends
    #[arg(long, value_name = "ADDR")]
    pub http: Option<SocketAddr>,
    /// Most requests of one principal in a second over HTTP; 0 does not limit
    #[arg(long, default_value_t = HttpLimits::default().max_rate)]
    pub http_max_rate: u32,
    /// The ledger's ID
    #[arg(long, default_value = "lab")]
    pub backend_id: String,
    /// The moment at which the wall clock stands, in milliseconds since the Unix epoch
    #[arg(long, default_value_t = START_MS, allow_negative_numbers = true)]
    pub clock_ms: i64,
    /// Use the machine's clocks
    #[arg(long, conflicts_with = "clock_ms")]
    pub real_clock: bool,
    /// How long a sealed state can be used, in seconds
    #[arg(long, default_value_t = 600)]
    pub state_s: u64,
    /// How long a continuation may write, in seconds
    #[arg(long, default_value_t = 3600)]
    pub authority_s: u64,
    /// How long a settled record can be replayed, in seconds
    #[arg(long, default_value_t = 30 * 86_400)]
    pub retention_s: u64,
    /// How long a write waits for another process's lock, in milliseconds; 0 does not wait
    #[arg(long, default_value_t = 1000)]
    pub lock_wait_ms: u64,
    /// Where operations are kept
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    pub store: StoreKind,
    /// Where the process ends: POINT=exit:CODE or POINT=kill; POINT@N for the Nth time
    #[arg(long, value_name = "CUT")]
    pub cut: Vec<CutSpec>,
    /// Wait before the first submit until N processes have come
    #[arg(long, value_name = "DIR:N")]
    pub barrier: Option<BarrierSpec>,
    /// Wait between the two steps of the first partial until N processes have come
    #[arg(long, value_name = "DIR:N")]
    pub finish_barrier: Option<BarrierSpec>,
    /// Let the first effect fail after its insert
    #[arg(long)]
    pub fail_effect_once: bool,
    /// The same tools and tables without a ledger
    #[arg(long)]
    pub unguarded: bool,
}

/// Where operations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// `ledger.db` in the data directory.
    Sqlite,
    /// In memory.
    Memory,
}

impl ChildOptions {
    /// The defaults on this directory.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.into(),
            principal: "alice".into(),
            http: None,
            http_max_rate: HttpLimits::default().max_rate,
            backend_id: "lab".into(),
            clock_ms: START_MS,
            real_clock: false,
            state_s: 600,
            authority_s: 3600,
            retention_s: 30 * 86_400,
            lock_wait_ms: 1000,
            store: StoreKind::Sqlite,
            cut: Vec::new(),
            barrier: None,
            finish_barrier: None,
            fail_effect_once: false,
            unguarded: false,
        }
    }

    /// The ledger's file.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.data_dir.join(counterfoil::data_dir::LEDGER_FILE)
    }

    /// The command line that gives these options.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut line: Vec<OsString> =
            vec!["child".into(), "--data-dir".into(), self.data_dir.clone().into()];
        let store = match self.store {
            StoreKind::Sqlite => "sqlite",
            StoreKind::Memory => "memory",
        };
        let mut option = |name: &str, value: String| line.extend([name.into(), value.into()]);
        option("--principal", self.principal.clone());
        self.http.iter().for_each(|address| option("--http", address.to_string()));
        option("--http-max-rate", self.http_max_rate.to_string());
        option("--backend-id", self.backend_id.clone());
        if !self.real_clock {
            option("--clock-ms", self.clock_ms.to_string());
        }
        option("--state-s", self.state_s.to_string());
        option("--authority-s", self.authority_s.to_string());
        option("--retention-s", self.retention_s.to_string());
        option("--lock-wait-ms", self.lock_wait_ms.to_string());
        option("--store", store.into());
        self.cut.iter().for_each(|cut| option("--cut", cut.to_string()));
        self.barrier.iter().for_each(|barrier| option("--barrier", barrier.to_string()));
        self.finish_barrier.iter().for_each(|it| option("--finish-barrier", it.to_string()));
        let switches = [
            ("--real-clock", self.real_clock),
            ("--fail-effect-once", self.fail_effect_once),
            ("--unguarded", self.unguarded),
        ];
        line.extend(switches.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.into()));
        line
    }

    /// Opens the ledger and the engine over it.
    ///
    /// # Errors
    /// Whatever the store, the keys or the options refuse.
    pub async fn engine(&self) -> anyhow::Result<Engine> {
        let span = |seconds: u64| Span::from_secs_f64(seconds as f64);
        let lifetimes = Lifetimes {
            state: span(self.state_s)?,
            authority: span(self.authority_s)?,
            retention: span(self.retention_s)?,
        };
        let dir = DataDir::prepare(&self.data_dir, None)?;
        let store = self.open_store().await?;
        let keys = keys::load_or_generate(&dir.keys(), None, &store.info().await?)?;
        let faults = Faults {
            submit_barrier: self.barrier.clone(),
            finish_barrier: self.finish_barrier.clone(),
            fail_effect_once: self.fail_effect_once,
        };
        let store = Arc::new(FaultyStore::new(store, faults));
        Ok(Engine::open(store, keys, lifetimes).await?)
    }

    async fn open_store(&self) -> anyhow::Result<Arc<dyn Store>> {
        let mut options = SqliteOptions::new(self.ledger());
        options.backend_id = Some(BackendId::parse(&self.backend_id)?);
        if !self.real_clock {
            options.clock = Arc::new(FixedClock::at_ms(self.clock_ms));
        }
        options.lock_wait = Duration::from_millis(self.lock_wait_ms);
        options.tables = issue_effect::tables();
        Ok(match self.store {
            StoreKind::Sqlite => Arc::new(SqliteStore::open(&options)?),
            StoreKind::Memory => {
                let mut memory = MemoryOptions::new(BackendId::parse(&self.backend_id)?);
                memory.clock = options.clock;
                memory.tables = options.tables;
                Arc::new(MemoryStore::new(&memory)?)
            }
        })
    }

    fn unguarded_handler(&self) -> anyhow::Result<Unguarded> {
        Ok(match self.store {
            StoreKind::Sqlite => Unguarded::open(&self.ledger())?,
            StoreKind::Memory => Unguarded::in_memory(),
        })
    }

    /// Who calls.
    ///
    /// # Errors
    /// If the principal is no name.
    pub fn caller(&self) -> anyhow::Result<Caller> {
        let tenant = Tenant::parse("local").expect("a valid name");
        Ok(Caller { tenant, principal: Principal::parse(&self.principal)? })
    }
}

/// Serves until the client leaves, or a cut is reached.
///
/// # Errors
/// If the server cannot start.
pub async fn run(options: &ChildOptions) -> anyhow::Result<()> {
    options.cut.iter().for_each(CutSpec::arm);
    let shutdown = serve::shutdown_signal()?;
    let engine = Arc::new(options.engine().await?);
    if let Some(address) = options.http {
        return over_http(options, engine, address, shutdown).await;
    }
    let streams = rmcp::transport::stdio_pipes();
    let limits = WireLimits::default();
    if options.unguarded {
        // The ledger was opened for its tables alone.
        engine.close().await?;
        let handler = options.unguarded_handler()?;
        say_ready(None)?;
        return unguarded::serve(handler, streams, limits, shutdown).await;
    }
    let caller = options.caller()?;
    say_ready(None)?;
    serve::stdio(engine, caller, streams, limits, shutdown).await?;
    Ok(())
}

async fn over_http(
    options: &ChildOptions,
    engine: Arc<Engine>,
    address: SocketAddr,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let tokens = LiveTokens::open(&options.data_dir.join(TOKENS_FILE))?;
    let served = HttpOptions {
        auth: Auth::Tokens(Arc::new(tokens)),
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        limits: HttpLimits { max_rate: options.http_max_rate, ..HttpLimits::default() },
        tls: None,
        drain_limit: WireLimits::default().drain_limit,
    };
    let listener = http::bind(address)?;
    end_with_stdin(shutdown.clone());
    say_ready(Some(listener.local_addr()?))?;
    if options.unguarded {
        let handler = options.unguarded_handler()?;
        http::serve_handler(handler, engine, listener, served, shutdown).await?;
    } else {
        serve::http(engine, listener, served, shutdown).await?;
    }
    Ok(())
}

/// Stops the server when whoever started it lets go of it, by its will or its death.
fn end_with_stdin(shutdown: CancellationToken) {
    std::thread::spawn(move || {
        // However it ends, nobody holds it any more.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        shutdown.cancel();
    });
}
