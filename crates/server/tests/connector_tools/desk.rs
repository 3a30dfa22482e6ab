//! A help desk over HTTP that does as it is told, and counts its effects.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use serde_json::{Value, json};

/// What the desk does with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Does it, once for each key.
    Up,
    /// Answers nothing until told otherwise.
    Hold,
    /// Does nothing, and answers with this status and body.
    Refuse(u16, &'static str),
    /// Does it, and says that it failed.
    DoAndFail,
}

pub(crate) struct Desk {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    mode: Mutex<Mode>,
    changed: Condvar,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// How often each key came, and the number of what it made.
    keys: BTreeMap<String, (usize, usize)>,
    effects_count: usize,
    bodies: Vec<Value>,
}

impl Desk {
    pub(crate) fn open(mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (mode, seen) = (Mutex::new(mode), Mutex::default());
        let state = Arc::new(State { mode, changed: Condvar::new(), seen });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.serve(&stream));
            }
        });
        Self { address, state }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.state.mode.lock().expect("no panic") = mode;
        self.state.changed.notify_all();
    }

    pub(crate) fn effects(&self) -> usize {
        self.seen().effects_count
    }

    /// Every key that came, with how often.
    pub(crate) fn keys(&self) -> Vec<(String, usize)> {
        self.seen().keys.iter().map(|(key, (count, _))| (key.clone(), *count)).collect()
    }

    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.seen().bodies.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.state.seen.lock().expect("no panic")
    }
}

impl State {
    fn serve(&self, mut stream: &TcpStream) {
        let Some((key, body)) = read(stream) else { return };
        let mut mode = self.mode.lock().expect("no panic");
        while *mode == Mode::Hold {
            mode = self.changed.wait(mode).expect("no panic");
        }
        let mode = mode.clone();
        let does = matches!(mode, Mode::Up | Mode::DoAndFail);
        let number = self.note(key, body, does);
        let (status, text) = match mode {
            Mode::Refuse(status, text) => (status, text.to_owned()),
            Mode::DoAndFail => (500, "<h1>sorry</h1>".to_owned()),
            _ => (201, json!({ "id": format!("T-{number}"), "number": number }).to_string()),
        };
        // The worker may have left.
        let _ = write!(
            stream,
            "HTTP/1.1 {status} Answer\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        );
    }

    fn note(&self, key: Option<String>, body: Value, does: bool) -> usize {
        let mut seen = self.seen.lock().expect("no panic");
        let seen = &mut *seen;
        seen.bodies.push(body);
        let known = key.as_ref().and_then(|key| seen.keys.get(key)).map_or(0, |known| known.1);
        let number = if does && known == 0 {
            seen.effects_count += 1;
            seen.effects_count
        } else {
            known
        };
        if let Some(key) = key {
            let entry = seen.keys.entry(key).or_default();
            *entry = (entry.0 + 1, number);
        }
        number
    }
}

/// The idempotency key and the body of a request.
fn read(stream: &TcpStream) -> Option<(Option<String>, Value)> {
    let mut reader = BufReader::new(stream);
    let (mut key, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.to_owned()),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((key, serde_json::from_slice(&body).unwrap_or_default()))
}
