//! A service on the loopback that reads requests whole, does what it is told, and counts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Every byte of it.
    pub(crate) raw: Vec<u8>,
}

impl Seen {
    /// The value of a header; empty without it.
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// What stands in a member of its JSON body.
    pub(crate) fn member(&self, name: &str) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).expect("a JSON body");
        body[name].as_str().unwrap_or_default().to_owned()
    }
}

/// What the service knows.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Every request that arrived whole, in order.
    pub(crate) seen: Vec<Seen>,
    /// What was made.
    pub(crate) effects: Vec<Seen>,
    keys: BTreeSet<String>,
}

impl Shelf {
    /// Makes another effect.
    pub(crate) fn make(&mut self, seen: &Seen) {
        self.effects.push(seen.clone());
    }

    /// Makes an effect unless the request's key is known.
    pub(crate) fn make_once(&mut self, seen: &Seen) {
        let key = seen.header("idempotency-key").to_owned();
        assert!(!key.is_empty(), "a request without its key");
        if self.keys.insert(key) {
            self.make(seen);
        }
    }
}

/// What happens on the wire.
#[derive(Debug, Clone)]
pub(crate) enum Wire {
    /// These bytes, and the end.
    Say(String),
    /// The first, then the second again and again.
    Forever(&'static str, String),
    /// The connection is reset.
    Reset,
    /// Nothing, until the client leaves.
    Hang,
}

/// An answer with a body of its own.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Wire {
    let length = body.len();
    Wire::Say(format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}"))
}

/// The answer that a desk promises.
pub(crate) fn created() -> Wire {
    answer(201, "", r#"{"id":"t-1"}"#)
}

type Rule = dyn Fn(&Seen, &mut Shelf) -> Wire + Send + Sync;

/// A running service.
pub(crate) struct Desk {
    pub(crate) port: u16,
    shelf: Arc<Mutex<Shelf>>,
    count: watch::Receiver<usize>,
}

impl Desk {
    /// Starts one that answers each request by `rule`. The request is on the shelf already.
    pub(crate) async fn start(
        rule: impl Fn(&Seen, &mut Shelf) -> Wire + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let (told, count) = watch::channel(0);
        let (known, rule): (_, Arc<Rule>) = (Arc::clone(&shelf), Arc::new(rule));
        let told = Arc::new(told);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let told = Arc::clone(&told);
                tokio::spawn(serve(stream, Arc::clone(&known), Arc::clone(&rule), told));
            }
        });
        Self { port, shelf, count }
    }

    /// `http://127.0.0.1:PORT`.
    pub(crate) fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().expect("no rule panics")
    }

    /// How many requests arrived.
    pub(crate) fn requests(&self) -> usize {
        self.shelf().seen.len()
    }

    /// How many effects there are.
    pub(crate) fn effects(&self) -> usize {
        self.shelf().effects.len()
    }

    /// Waits until so many requests have arrived.
    pub(crate) async fn arrived(&self, count: usize) {
        let mut counted = self.count.clone();
        counted.wait_for(|it| *it >= count).await.expect("the desk lives");
    }
}

async fn serve(
    mut stream: TcpStream,
    shelf: Arc<Mutex<Shelf>>,
    rule: Arc<Rule>,
    told: Arc<watch::Sender<usize>>,
) {
    let Some(seen) = read(&mut stream).await else { return };
    let (wire, count) = {
        let mut shelf = shelf.lock().expect("no rule panics");
        shelf.seen.push(seen.clone());
        (rule(&seen, &mut shelf), shelf.seen.len())
    };
    told.send_replace(count);
    match wire {
        Wire::Say(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Wire::Forever(head, piece) => {
            let _ = stream.write_all(head.as_bytes()).await;
            while stream.write_all(piece.as_bytes()).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
        Wire::Reset => {
            let _ = stream.set_zero_linger();
        }
        Wire::Hang => {
            let _ = stream.read(&mut [0]).await;
        }
    }
}

/// Reads a request to the end of its body; `None` if the client has gone before.
pub(crate) async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let mut seen: Option<(Seen, usize)> = None;
    loop {
        if let Some((mut seen, start)) = seen.clone() {
            let wanted = seen.header("content-length").parse().unwrap_or(0);
            if bytes.len() - start >= wanted {
                seen.body = String::from_utf8(bytes[start..].to_vec()).expect("text");
                seen.raw = bytes;
                return Some(seen);
            }
        }
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        if seen.is_none() {
            seen = head(&bytes);
        }
    }
}

/// The head, once it is whole, and where the body begins.
fn head(bytes: &[u8]) -> Option<(Seen, usize)> {
    let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..end]).expect("text");
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some((Seen { method, path, headers, body: String::new(), raw: Vec::new() }, end + 4))
}
