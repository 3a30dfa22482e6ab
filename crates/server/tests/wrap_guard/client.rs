//! A client of the real `counterfoil wrap` that speaks raw lines, in each revision of the protocol.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::world::PATIENCE;

/// The revision without a handshake.
pub(crate) const MODERN: &str = "2026-07-28";
/// The last one with a handshake.
pub(crate) const LEGACY: &str = "2025-11-25";
pub(crate) const ERAS: [&str; 3] = ["2025-06-18", LEGACY, MODERN];

/// What the guard says of an operation in a reply's `_meta`.
pub(crate) const OPERATION: &str = "io.counterfoil/operation";

pub(crate) struct Client {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    stderr: Option<JoinHandle<String>>,
    /// Lines that came while another was waited for.
    kept: RefCell<VecDeque<String>>,
    era: &'static str,
}

/// How a wrap ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Lines that were not read before.
    pub(crate) rest: Vec<String>,
    pub(crate) stderr: String,
}

impl Client {
    /// Starts the gateway; nothing is said yet.
    pub(crate) fn start(command: &mut Command, era: &'static str) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in output.lines() {
                if sender.send(line.expect("text")).is_err() {
                    return;
                }
            }
        });
        let mut stderr = process.stderr.take().expect("piped");
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let input = process.stdin.take();
        Self {
            process,
            input,
            lines,
            reader: Some(reader),
            stderr: Some(stderr),
            kept: RefCell::default(),
            era,
        }
    }

    /// Opens the session as its revision has it.
    pub(crate) fn opened(self) -> Self {
        if self.era == MODERN {
            let reply = self.ask("open", "server/discover", json!({}));
            assert!(reply["result"]["supportedVersions"].is_array(), "{reply}");
            return self;
        }
        let about = json!({
            "protocolVersion": self.era,
            "capabilities": { "sampling": {} },
            "clientInfo": { "name": "c", "version": "1" },
        });
        let reply = self.ask("open", "initialize", about);
        assert_eq!(reply["result"]["protocolVersion"], self.era, "{reply}");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        self
    }

    pub(crate) fn send(&self, line: &str) {
        let mut input = self.input.as_ref().expect("open");
        input.write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    /// Sends a request; what each request says of itself is added.
    pub(crate) fn request(&self, id: &str, method: &str, mut params: Value) {
        if self.era == MODERN {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "c", "version": "1" });
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.send(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
    }

    pub(crate) fn ask(&self, id: &str, method: &str, params: Value) -> Value {
        self.request(id, method, params);
        self.reply(id)
    }

    /// Sends a call.
    pub(crate) fn send_call(&self, id: &str, tool: &str, arguments: &Value) {
        self.request(id, "tools/call", json!({ "name": tool, "arguments": arguments }));
    }

    /// Calls the tool `act`.
    pub(crate) fn act(&self, id: &str, arguments: &Value) -> Value {
        self.send_call(id, "act", arguments);
        self.reply(id)
    }

    /// Takes a call back.
    pub(crate) fn cancel(&self, id: &str) {
        let line = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": id } });
        self.send(&line.to_string());
    }

    /// What our status tool says of an operation.
    pub(crate) fn status(&self, id: &str, operation: &str) -> Value {
        self.send_call(id, "get_operation_status", &json!({ "operation_id": operation }));
        self.reply(id)["result"]["structuredContent"].clone()
    }

    /// The line that answers a request; what else comes meanwhile is kept.
    pub(crate) fn reply_line(&self, id: &str) -> String {
        let answers = |line: &str| {
            let message: Value = serde_json::from_str(line).expect("JSON");
            message["id"] == id && message.get("method").is_none()
        };
        let kept = self.kept.borrow().iter().position(|line| answers(line));
        if let Some(at) = kept {
            return self.kept.borrow_mut().remove(at).expect("there");
        }
        loop {
            let line =
                self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no reply {id}"));
            if answers(&line) {
                return line;
            }
            self.kept.borrow_mut().push_back(line);
        }
    }

    pub(crate) fn reply(&self, id: &str) -> Value {
        serde_json::from_str(&self.reply_line(id)).expect("JSON")
    }

    /// The next line that was not asked for.
    pub(crate) fn unasked(&self) -> Value {
        let kept = self.kept.borrow_mut().pop_front();
        let line = kept.unwrap_or_else(|| self.lines.recv_timeout(PATIENCE).expect("a line"));
        serde_json::from_str(&line).expect("JSON")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("sent");
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Stops reading, as a client that has crashed: with the next line that comes.
    pub(crate) fn hang_up(&mut self) {
        let (_, nobody) = channel();
        self.lines = nobody;
    }

    /// Waits until nobody has the other end of the gateway's stdout.
    pub(crate) fn wait_for_hang_up(&mut self) {
        self.reader.take().expect("once").join().expect("no panic");
    }

    /// Kills the gateway, with nothing told to anybody.
    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait().signal, Some(9));
    }

    /// Leaves, and waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        self.close_input();
        self.wait()
    }

    pub(crate) fn wait(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().expect("a child") {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "the wrap does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let mut rest: Vec<String> = self.kept.take().into();
        rest.extend(self.lines.iter());
        let stderr = self.stderr.take().expect("once").join().expect("read");
        Ended { code: status.code(), signal: status.signal(), rest, stderr }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the guard says of the operation of a reply.
pub(crate) fn said(reply: &Value) -> &Value {
    &reply["result"]["_meta"][OPERATION]
}

/// The ID of the operation of a reply.
pub(crate) fn operation(reply: &Value) -> String {
    said(reply)["operationId"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// The first text of a reply.
pub(crate) fn text(reply: &Value) -> &str {
    reply["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}"))
}

/// A reply of ours that refuses, by its code and what may be done next.
pub(crate) fn check_refused(reply: &Value, code: &str, retry: &str) {
    let said = said(reply);
    assert_eq!(reply["result"]["isError"], true, "{reply}");
    assert_eq!((&said["error"]["code"], &said["retry"]), (&json!(code), &json!(retry)), "{reply}");
    assert!(text(reply).starts_with(code), "{reply}");
}

/// An answer of the server, as the guard gives it.
pub(crate) fn check_answered(reply: &Value, state: &str, replayed: bool) {
    let said = said(reply);
    assert_eq!((&said["state"], &said["replayed"]), (&json!(state), &json!(replayed)), "{reply}");
}
