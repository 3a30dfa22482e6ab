//! A help desk to try connectors against: a real HTTP service with a file of tickets, which honours
//! idempotency keys and can be told to go wrong. It is a target; nothing of the product knows it.

mod answer;
mod ask;
mod book;
mod fault;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

pub use ask::{account, tickets};
pub use book::{Book, Filed, Ticket};
pub use fault::{Fault, Faults, Kind, Plan, UnknownFault};

use crate::output;

/// A help desk to try a connector against: POST /tickets with subject and description
///
/// Keeps its tickets in a file, makes one ticket for each Idempotency-Key, and goes wrong as it is
/// told. GET /tickets lists them, GET /account counts. Prints its address when it listens, and runs
/// until it is stopped.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Faults hit the POST requests in their order, one each:
  error   503 with JSON          html    502 with a page of HTML
  busy    429, Retry-After: 1    reset   the connection is reset
  hang    no answer, ever
With -applied the ticket is filed first, and only the answer goes wrong (not for busy).

Examples:
  counterfoil demo desk --address 127.0.0.1:9000
  counterfoil demo desk --address 127.0.0.1:9000 --fault html-applied*3 --fault busy")]
pub struct DeskArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub address: SocketAddr,
    /// The file of tickets, made if it is not there
    #[arg(long, value_name = "FILE", default_value = "tickets.jsonl")]
    pub tickets: PathBuf,
    /// A fault for the next request, or *N for the next N; may be given more than once
    #[arg(long = "fault", value_name = "FAULT[*N]")]
    pub faults: Vec<Faults>,
    /// Then so many of a hundred requests go wrong, in ways of chance
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub fault_percent: u8,
    /// Where chance begins: the same seed makes the same faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Make a ticket of every request, whatever its key
    #[arg(long)]
    pub ignore_keys: bool,
    /// Let only those in who send the value of this environment variable as a bearer token
    #[arg(long, value_name = "VARIABLE")]
    pub token_env: Option<String>,
}

/// What the desk counts: its tickets for good, the rest since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeskAccount {
    /// The tickets.
    pub tickets: u64,
    /// Those that say what an earlier one says.
    pub duplicates: u64,
    /// Requests for a ticket.
    pub requests: u64,
    /// Those whose key had made a ticket before.
    pub repeats: u64,
    /// Those that are waiting for an answer that will not come.
    pub hanging: u64,
}

/// Runs the desk until the process is stopped.
///
/// # Errors
/// If the address or the file cannot be used, or the token is not there.
pub async fn run(args: &DeskArgs) -> anyhow::Result<()> {
    let token = match &args.token_env {
        Some(name) => Some(std::env::var(name).with_context(|| {
            format!("there is no token in the environment variable {name}; set it")
        })?),
        None => None,
    };
    // First the address: it keeps a second desk off the file.
    let listener = TcpListener::bind(args.address)
        .await
        .with_context(|| format!("cannot listen on {}; give another --address", args.address))?;
    let bound = listener.local_addr().context("the listener has no address")?;
    let book = Book::open(&args.tickets)
        .with_context(|| format!("cannot use the file of tickets {}", args.tickets.display()))?;
    let plan = Plan::new(&args.faults, args.fault_percent, args.seed);
    let desk = Desk::new(book, plan).ignoring_keys(args.ignore_keys).with_token(token);
    output::data(format_args!("http://{bound}"))?;
    Ok(desk.serve(listener).await?)
}

/// The desk.
#[derive(Debug)]
pub struct Desk {
    book: Mutex<Book>,
    plan: Mutex<Plan>,
    ignores_keys: bool,
    token: Option<String>,
    requests: AtomicU64,
    repeats: AtomicU64,
    hanging: AtomicU64,
}

impl Desk {
    /// A desk that honours keys and asks for no token.
    #[must_use]
    pub fn new(book: Book, plan: Plan) -> Self {
        Self {
            book: Mutex::new(book),
            plan: Mutex::new(plan),
            ignores_keys: false,
            token: None,
            requests: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            hanging: AtomicU64::new(0),
        }
    }

    /// With `true`, every request makes a ticket.
    #[must_use]
    pub const fn ignoring_keys(mut self, ignores_keys: bool) -> Self {
        self.ignores_keys = ignores_keys;
        self
    }

    /// Asks for this bearer token.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Answers until the task is dropped.
    ///
    /// # Errors
    /// [`io::Error`] if the listener cannot be used any more.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let desk = Arc::new(self);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer::connection(Arc::clone(&desk), stream));
        }
    }

    /// What was counted.
    #[must_use]
    pub fn account(&self) -> DeskAccount {
        let book = self.book();
        DeskAccount {
            tickets: book.tickets().len() as u64,
            duplicates: book.duplicates() as u64,
            requests: self.requests.load(Ordering::Relaxed),
            repeats: self.repeats.load(Ordering::Relaxed),
            hanging: self.hanging.load(Ordering::Relaxed),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A book is whole between its calls, whoever panicked.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_fault(&self) -> Option<Fault> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).next_fault()
    }
}
