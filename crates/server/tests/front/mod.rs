//! What stands between `counterfoil call` and a server over HTTP: it writes down each request, and
//! does to one what the test says. And the server itself, as a process.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Only against a hang of the test itself: nothing asserts on time.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A server that runs, killed with the value.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
            .args(["serve", "--http", "127.0.0.1:0", "--data-dir"])
            .arg(data_dir)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut told = BufReader::new(child.stderr.take().expect("piped"));
        let address = loop {
            let mut line = String::new();
            assert!(told.read_line(&mut line).expect("stderr") > 0, "it ended");
            let Some((_, rest)) = line.trim().split_once("serving MCP at ") else { continue };
            let (_, rest) = rest.split_once("://").expect("a URL");
            break rest.strip_suffix("/mcp").expect("the path").parse().expect("an address");
        };
        thread::spawn(move || io::copy(&mut told, &mut io::sink()));
        Self { child, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Such as `POST tools/call create_issue`.
    pub(crate) what: String,
    pub(crate) head: String,
    pub(crate) id: Value,
    bytes: Vec<u8>,
}

/// What is done with a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// It is passed on, and its answer back.
    Pass,
    /// It is passed on, and the connection is closed without an answer.
    LoseReply,
    /// It is passed on, and half of its answer back.
    LoseHalf,
    /// It is passed on, and answered with something else.
    PassAndSay(String),
    /// It is passed on no further, and answered with this.
    Say(String),
    /// It is passed on no further, and the connection is closed.
    Swallow,
    /// It is passed on no further, and never answered.
    Hold,
    /// It is passed on, and its answer back; no connection is taken from then on.
    PassAndLeave,
}

/// The listener.
pub(crate) struct Front {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Front {
    /// In front of a server.
    pub(crate) fn of(server: &Server, act: impl Fn(&Seen) -> Act + Send + 'static) -> Self {
        Self::start(Some(server.address), act)
    }

    /// With nothing behind it.
    pub(crate) fn alone(act: impl Fn(&Seen) -> Act + Send + 'static) -> Self {
        Self::start(None, act)
    }

    fn start(behind: Option<SocketAddr>, act: impl Fn(&Seen) -> Act + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("bound"));
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let all = seen.clone();
        // One connection after the other: the client has one request on each, and waits for it.
        thread::spawn(move || {
            let mut listener = Some(listener);
            let mut held = Vec::new();
            while let Some(open) = &listener {
                let Ok((stream, _)) = open.accept() else { return };
                let Ok(request) = read_request(&stream) else { continue };
                let act = act(&request);
                if matches!(act, Act::PassAndLeave) {
                    listener = None;
                }
                let bytes = request.bytes.clone();
                all.lock().expect("no panic").push(request);
                if matches!(act, Act::Hold) {
                    held.push(stream);
                } else {
                    answer(stream, &bytes, behind, act);
                }
            }
        });
        Self { url, seen }
    }

    /// What came so far, without the heads.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").iter().map(|seen| seen.what.clone()).collect()
    }

    /// How often something came.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.seen().iter().filter(|seen| seen.starts_with(what)).count()
    }

    /// The heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").iter().map(|seen| seen.head.clone()).collect()
    }
}

/// A raw answer with a status and a type.
pub(crate) fn say(status: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{more}content-length: {length}\r\n\r\n{body}")
}

/// A raw answer of JSON-RPC.
pub(crate) fn say_json(status: &str, more: &str, body: &Value) -> String {
    say(status, &format!("content-type: application/json\r\n{more}"), &body.to_string())
}

/// A server of revision 2025-11-25 with sessions, which does with the call what `call` says.
pub(crate) fn legacy(call: Act) -> impl Fn(&Seen) -> Act + Send + 'static {
    move |seen| {
        let reply = |result: Value| json!({"jsonrpc": "2.0", "id": seen.id, "result": result});
        let session = "mcp-session-id: s-1\r\n";
        match seen.what.as_str() {
            "POST server/discover" => {
                let error = json!({"code": -32600, "message": "no session"});
                let body = json!({"jsonrpc": "2.0", "id": null, "error": error});
                Act::Say(say_json("400 Bad Request", "", &body))
            }
            "POST initialize" => {
                let result = json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "1"}});
                Act::Say(say_json("200 OK", session, &reply(result)))
            }
            "POST notifications/initialized" => Act::Say(say("202 Accepted", "", "")),
            "POST tools/list" => {
                let tool = json!({"name": "create_issue", "inputSchema": {"type": "object"}});
                Act::Say(say_json("200 OK", "", &reply(json!({"tools": [tool]}))))
            }
            "POST tools/call create_issue" => call.clone(),
            _ => Act::Say(say("200 OK", "", "")),
        }
    }
}

fn read_request(mut stream: &TcpStream) -> io::Result<Seen> {
    stream.set_read_timeout(Some(WATCHDOG))?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let mut some = [0; 4096];
        match stream.read(&mut some)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => bytes.extend(&some[..count]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().expect("number"))
    });
    let mut rest = vec![0; (end + length.unwrap_or(0)).saturating_sub(bytes.len())];
    stream.read_exact(&mut rest)?;
    bytes.extend(rest);
    let body: Value = serde_json::from_slice(&bytes[end..]).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verb = head.split(' ').next().unwrap_or_default();
    let what = format!("{verb} {} {}", word(&body["method"]), word(&body["params"]["name"]));
    Ok(Seen { what: what.trim().to_owned(), head, id: body["id"].clone(), bytes })
}

fn answer(mut stream: TcpStream, request: &[u8], behind: Option<SocketAddr>, act: Act) {
    let pass = || {
        let mut server = TcpStream::connect(behind.expect("a server behind")).expect("it listens");
        server.set_read_timeout(Some(WATCHDOG)).expect("set");
        server.write_all(request).expect("it reads");
        let mut reply = Vec::new();
        // The request asks for the connection to be closed after it.
        server.read_to_end(&mut reply).expect("it answers");
        reply
    };
    let reply = match act {
        Act::Pass | Act::PassAndLeave => pass(),
        Act::LoseReply => {
            pass();
            Vec::new()
        }
        Act::LoseHalf => {
            let mut reply = pass();
            reply.truncate(reply.len() / 2);
            reply
        }
        Act::PassAndSay(other) => {
            pass();
            other.into_bytes()
        }
        Act::Say(other) => other.into_bytes(),
        Act::Swallow | Act::Hold => Vec::new(),
    };
    // The client may have left.
    let _ = stream.write_all(&reply);
    let _ = stream.shutdown(Shutdown::Both);
}
