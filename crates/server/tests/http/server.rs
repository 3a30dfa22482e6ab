//! A real server on a port of this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::http::{self, Auth, HttpLimits, HttpOptions};
use counterfoil::serve;
use counterfoil::tokens::{self, LiveTokens, NewToken, Right};
use counterfoil::tools::issue_effect;
use counterfoil_core::fingerprint::{KeyId, KeyRing, SecretKey};
use counterfoil_core::identity::{BackendId, Caller, Principal, Tenant};
use counterfoil_core::time::{Lifetimes, Timestamp};
use counterfoil_engine::Engine;
use counterfoil_store::{Clock as _, MemoryOptions, MemoryStore, Store, SystemClock};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Reply, Request, WATCHDOG};

/// A server that runs, with its tokens' file.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tokens: PathBuf,
    pub(crate) running: JoinHandle<std::io::Result<()>>,
    _room: TempDir,
}

/// How to start one.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: HttpLimits,
    pub(crate) bind: &'static str,
    pub(crate) local_only: bool,
    pub(crate) origins: &'static [&'static str],
    pub(crate) tls: Option<(PathBuf, PathBuf)>,
    pub(crate) drain_limit: Duration,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            store: memory(),
            limits: HttpLimits::default(),
            bind: "127.0.0.1:0",
            local_only: false,
            origins: &[],
            tls: None,
            drain_limit: WATCHDOG,
        }
    }
}

/// A ledger in memory with the tables of the tools.
pub(crate) fn memory() -> Arc<dyn Store> {
    let mut options = MemoryOptions::new(BackendId::parse("test").expect("a name"));
    options.tables = issue_effect::tables();
    Arc::new(MemoryStore::new(&options).expect("the tables are good"))
}

pub(crate) fn caller(tenant: &str, principal: &str) -> Caller {
    Caller {
        tenant: Tenant::parse(tenant).expect("a name"),
        principal: Principal::parse(principal).expect("a name"),
    }
}

pub(crate) fn now() -> Timestamp {
    SystemClock.wall()
}

impl Start {
    pub(crate) async fn run(self) -> Server {
        let room = tempfile::tempdir().expect("a temporary directory");
        let tokens = room.path().join("tokens.json");
        let key = SecretKey::from_bytes(&[7; 32]).expect("long enough");
        let ring = KeyRing::new(KeyId(1), [(KeyId(1), key)]).expect("one key");
        let engine = Engine::open(self.store, ring, Lifetimes::default()).await.expect("opens");
        let listener = http::bind(self.bind.parse().expect("an address")).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let auth = if self.local_only {
            Auth::LocalOnly(caller("local", "local"))
        } else {
            Auth::Tokens(Arc::new(LiveTokens::open(&tokens).expect("absent is fine")))
        };
        let origins = self.origins.iter().map(|text| http::OriginRule::parse(text));
        let options = HttpOptions {
            auth,
            allowed_hosts: Vec::new(),
            allowed_origins: origins.collect::<Result<_, _>>().expect("good origins"),
            limits: self.limits,
            tls: self.tls.map(|(cert, key)| http::tls::load(&cert, &key).expect("a good pair")),
            drain_limit: self.drain_limit,
        };
        let shutdown = CancellationToken::new();
        let running =
            tokio::spawn(serve::http(Arc::new(engine), listener, options, shutdown.clone()));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Server { address, shutdown, tokens, running, _room: room }
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Start::default().run().await
    }

    pub(crate) async fn with_limits(limits: HttpLimits) -> Self {
        Start { limits, ..Start::default() }.run().await
    }

    /// A token for that principal in the tenant `acme`.
    pub(crate) fn token(&self, principal: &str) -> String {
        self.token_in("acme", principal).1
    }

    /// ID and text of a token.
    pub(crate) fn token_in(&self, tenant: &str, principal: &str) -> (String, String) {
        self.new_token(&NewToken {
            caller: caller(tenant, principal),
            rights: vec![Right::Tools],
            expires_at: None,
        })
    }

    pub(crate) fn new_token(&self, new: &NewToken) -> (String, String) {
        let made = tokens::create(&self.tokens, new, now()).expect("the file can be written");
        (made.id, made.secret.reveal().to_owned())
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, request: &Request) -> Reply {
        self.connect().await.ask(request).await
    }

    /// The value of one sample of the metrics; 0 if it is not there.
    pub(crate) async fn metric(&self, sample: &str) -> f64 {
        let text = self.ask(&Request::get("/metrics")).await.text();
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Waits until a sample of the metrics has that value.
    pub(crate) async fn until(&self, sample: &str, value: f64) {
        let reached = async {
            while (self.metric(sample).await - value).abs() > f64::EPSILON {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WATCHDOG, reached).await.expect("it never came to that");
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(WATCHDOG, self.running).await;
        ended.expect("it ends").expect("no panic").expect("no error");
    }
}
