//! `counterfoil-lab desk`: a small help desk over HTTP that can be killed at any moment. Each ticket
//! is one line of its log, on the disk before it is answered; what it did is read there.
//!
//! `POST /key` files a ticket once for each `Idempotency-Key`, `POST /lookup` files one for each
//! request and lists those of a marker, `POST /never` files one for each request and tells nobody.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;

use crate::plain_http::{Request, Response, serve};
use crate::process::say_ready;
use crate::random::Random;

/// One request in so many is refused before anything is done.
const BUSY_ONE_IN: u64 = 25;
/// One ticket in so many is filed and never answered.
const SILENT_ONE_IN: u64 = 25;

/// The desk's command line.
#[derive(Debug, Clone, Args)]
pub struct DeskArgs {
    /// The log of its tickets; made if it is missing
    #[arg(long)]
    pub log: PathBuf,
    /// Where it listens; its address stands behind `ready` on stderr
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Which requests it refuses, and which answers it keeps to itself
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A ticket that was filed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Its number.
    pub id: u64,
    /// The path that it came by.
    pub way: String,
    /// The request's idempotency key.
    pub key: Option<String>,
    /// What it is found by.
    pub marker: String,
    /// Its title: the operation's ID.
    pub title: String,
}

/// Every ticket of a log whose desk has ended. What a killed desk wrote half was never answered, and
/// is no ticket.
///
/// # Errors
/// If the log cannot be read, or a whole line is no ticket.
pub fn tickets(log: &Path) -> anyhow::Result<Vec<Ticket>> {
    let text = std::fs::read_to_string(log)
        .with_context(|| format!("the desk's log {} cannot be read", log.display()))?;
    whole_lines(&text)
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("no ticket: {line}")))
        .collect()
}

/// Serves until it is killed, or stdin ends.
///
/// # Errors
/// If its log or its address cannot be used.
pub async fn run(args: &DeskArgs) -> anyhow::Result<()> {
    let desk = Arc::new(Mutex::new(Desk::open(&args.log, args.seed)?));
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("the desk cannot listen on {}", args.listen))?;
    say_ready(Some(listener.local_addr()?))?;
    let answer = move |request: Request| {
        let desk = Arc::clone(&desk);
        async move {
            // It waits for the disk.
            let answered = tokio::task::spawn_blocking(move || {
                desk.lock().unwrap_or_else(PoisonError::into_inner).answer(&request)
            });
            answered.await.ok()?.ok()?
        }
    };
    tokio::select! {
        served = serve(listener, answer) => served,
        () = stdin_ends() => Ok(()),
    }
}

/// Returns when whoever started this process lets go of it.
pub(crate) async fn stdin_ends() {
    let mut input = tokio::io::stdin();
    // However it ends, nobody holds it any more.
    let _ = tokio::io::copy(&mut input, &mut tokio::io::sink()).await;
}

#[derive(Debug)]
struct Desk {
    log: File,
    by_key: HashMap<String, u64>,
    by_marker: HashMap<String, Vec<u64>>,
    last_id: u64,
    random: Random,
}

#[derive(Debug, Deserialize)]
struct Filed {
    title: String,
    marker: String,
}

impl Desk {
    fn open(path: &Path, seed: u64) -> anyhow::Result<Self> {
        let mut log =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        let kept = whole_lines(&text).len() as u64;
        log.set_len(kept)?;
        log.seek(SeekFrom::Start(kept))?;
        log.sync_all()?;
        let mut desk = Self {
            log,
            by_key: HashMap::new(),
            by_marker: HashMap::new(),
            last_id: 0,
            random: Random::new(seed ^ kept),
        };
        tickets(path)?.into_iter().for_each(|ticket| desk.note(&ticket));
        Ok(desk)
    }

    fn note(&mut self, ticket: &Ticket) {
        self.last_id = ticket.id;
        if let Some(key) = ticket.key.clone().filter(|_| ticket.way == "/key") {
            self.by_key.insert(key, ticket.id);
        }
        self.by_marker.entry(ticket.marker.clone()).or_default().push(ticket.id);
    }

    /// `None` closes the connection without an answer.
    fn answer(&mut self, request: &Request) -> anyhow::Result<Option<Response>> {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        if request.method == "GET" {
            let marker = query.strip_prefix("marker=").unwrap_or_default();
            let found = self.by_marker.get(marker).map_or(&[][..], Vec::as_slice);
            let items: Vec<_> =
                found.iter().map(|id| json!({ "id": id, "marker": marker })).collect();
            return Ok(Some(Response::json(200, &json!({ "items": items }))));
        }
        if self.random.chance(1, BUSY_ONE_IN) {
            return Ok(Some(Response::text(503, "busy")));
        }
        let filed: Filed = serde_json::from_slice(&request.body)?;
        let known = request.key.as_ref().filter(|_| path == "/key");
        let id = match known.and_then(|key| self.by_key.get(key)) {
            Some(id) => *id,
            None => self.file(path, request.key.clone(), filed)?,
        };
        let is_silent = self.random.chance(1, SILENT_ONE_IN);
        Ok((!is_silent).then(|| Response::json(201, &json!({ "id": id }))))
    }

    fn file(&mut self, way: &str, key: Option<String>, filed: Filed) -> anyhow::Result<u64> {
        let Filed { title, marker } = filed;
        let ticket = Ticket { id: self.last_id + 1, way: way.into(), key, marker, title };
        let mut line = serde_json::to_vec(&ticket)?;
        line.push(b'\n');
        self.log.write_all(&line)?;
        self.log.sync_data()?;
        self.note(&ticket);
        Ok(ticket.id)
    }
}

fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |last| &text[..=last])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(path: &str, key: &str) -> Request {
        let body = br#"{"title": "t", "marker": "m"}"#.to_vec();
        Request { method: "POST".into(), target: path.into(), key: Some(key.into()), body }
    }

    #[test]
    fn a_desk_knows_after_its_death_what_it_filed() {
        // Promise: the desk that judges the deliveries keeps each ticket over its own death, counts
        // a half line for nothing, and honours keys on the one way that promises it.
        let place = tempfile::tempdir().expect("a directory");
        let log = place.path().join("log");
        for round in 1..=3 {
            let mut desk = Desk::open(&log, round).expect("opens");
            for path in ["/key", "/never"] {
                // It may be busy, and it may be silent.
                for _ in 0..20 {
                    let _ = desk.answer(&post(path, "k")).expect("answers");
                }
            }
            desk.log.write_all(br#"{"id": 7, "#).expect("written");
        }
        let tickets = tickets(&log).expect("readable");
        let of = |way: &str| tickets.iter().filter(|ticket| ticket.way == way).count();
        assert_eq!(of("/key"), 1, "{tickets:?}");
        assert!(of("/never") > 3, "{tickets:?}");
    }
}
