//! The server of these tests. It is this test program itself, started by [`command`], and does what
//! the arguments of each call tell it, step by step, each call in a thread of its own.
//!
//! The test harness writes to stdout, so the protocol runs over a copy of stdout that a shell makes
//! before it gives way to this program (`exec`: the process stays the same).

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

/// Set in the server's environment: it is a server, and this is its directory.
const DIR: &str = "WRAP_GUARD_SERVER";

/// The effects that were made, one a line: the arguments of the calls.
pub(crate) const EFFECTS: &str = "effects";
/// The calls that arrived, as they arrived.
pub(crate) const CALLS: &str = "calls";
/// The process ID of each server that was started.
pub(crate) const BIRTHS: &str = "births";
/// While it is there, `initialize` is not answered.
pub(crate) const HOLD: &str = "hold-initialize";
/// While it is there, the tool `look` fails.
pub(crate) const BLIND: &str = "blind";
/// The `result` of `tools/list`, if it is there.
pub(crate) const TOOLS: &str = "tools";
/// If it is there, the server ends when it is asked for its tools, once.
pub(crate) const SHY: &str = "shy";
/// If it is there at the start: SIGTERM and the end of stdin are ignored.
pub(crate) const DEAF: &str = "deaf";
/// What the client answered to what the server asked.
pub(crate) const HEARD: &str = "heard";

/// The tools that are listed where no file says otherwise.
const LISTED: &str = concat!(
    r#"{"tools":[{"name":"act","inputSchema":{"type":"object","properties":{"n":{}}}},"#,
    r#"{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}"#,
);

/// The command line of a server with this directory.
pub(crate) fn command(dir: &Path) -> Vec<String> {
    let own = std::env::current_exe().expect("a path").display().to_string();
    let dir = dir.display();
    let script = format!(
        "exec 3>&1 1>/dev/null; {DIR}='{dir}' exec '{own}' --exact child::server --nocapture"
    );
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

/// Not a test, unless it is started as a server.
#[test]
fn server() {
    if let Ok(dir) = std::env::var(DIR) {
        let output = OpenOptions::new().append(true).open("/dev/fd/3").expect("opened");
        let server = Server { dir: dir.into(), output: Mutex::new(output) };
        std::process::exit(Arc::new(server).serve());
    }
}

struct Server {
    dir: PathBuf,
    output: Mutex<File>,
}

impl Server {
    fn serve(self: Arc<Self>) -> i32 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let deaf = self.has(DEAF);
        if deaf {
            let _guard = runtime.enter();
            let kind = tokio::signal::unix::SignalKind::terminate();
            // Taken for as long as the process lives.
            Box::leak(Box::new(tokio::signal::unix::signal(kind).expect("a handler")));
        }
        self.note(BIRTHS, &std::process::id().to_string());
        for line in std::io::stdin().lock().lines() {
            self.take(&line.expect("text"));
        }
        if deaf {
            std::thread::park();
        }
        0
    }

    fn has(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    /// Adds a line to a file, in one write.
    fn note(&self, name: &str, line: &str) {
        let path = self.dir.join(name);
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("opened");
        file.write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    fn wait(&self, done: impl Fn() -> bool) {
        while !done() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn take(self: &Arc<Self>, line: &str) {
        let message: Value = serde_json::from_str(line).expect("JSON");
        let id = message["id"].clone();
        let params = message["params"].clone();
        match message["method"].as_str() {
            None => self.note(HEARD, line),
            Some("initialize") => {
                self.wait(|| !self.has(HOLD));
                let result = json!({
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "scripted", "version": "1" },
                });
                self.result(&id, &result.to_string());
            }
            Some("server/discover") => self.result(
                &id,
                r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}"#,
            ),
            Some("tools/list") => {
                if fs::remove_file(self.dir.join(SHY)).is_ok() {
                    std::process::exit(3);
                }
                let listed = fs::read_to_string(self.dir.join(TOOLS));
                let listed = listed.unwrap_or_else(|_| LISTED.to_owned());
                self.result(&id, listed.trim_end());
            }
            Some("tools/call") if params["name"] == "look" => self.look(&id, &params),
            Some("tools/call") => {
                self.note(CALLS, line);
                let server = Arc::clone(self);
                std::thread::spawn(move || server.act(&id, &params));
            }
            Some(_) if !id.is_null() => self.result(&id, "{}"),
            Some(_) => {}
        }
    }

    /// How often the effect with a number was made, if it can be seen.
    fn look(&self, id: &Value, params: &Value) {
        if self.has(BLIND) {
            return self.result(id, r#"{"content":[],"isError":true}"#);
        }
        let effects = fs::read_to_string(self.dir.join(EFFECTS)).unwrap_or_default();
        let is_it = |line: &&str| {
            let made: Value = serde_json::from_str(line).expect("JSON");
            made["n"] == params["arguments"]["n"]
        };
        let count = effects.lines().filter(is_it).count();
        let found = json!({ "content": [], "structuredContent": { "count": count } });
        self.result(id, &found.to_string());
    }

    /// Takes the steps of a call. Of a continuation those that stand under its number: the digits
    /// at the end of its state.
    fn act(&self, id: &Value, params: &Value) {
        let arguments = &params["arguments"];
        let round = match params["requestState"].as_str() {
            Some(state) => state.rsplit('#').next().and_then(|end| end.parse().ok()).unwrap_or(1),
            None => usize::from(!params["inputResponses"].is_null()),
        };
        let name = if round == 0 { "steps".to_owned() } else { format!("then{round}") };
        for step in arguments[&name].as_array().into_iter().flatten() {
            self.step(id, params, step.as_str().expect("text"));
        }
    }

    fn step(&self, id: &Value, params: &Value, step: &str) {
        let (verb, rest) = step.split_once(':').unwrap_or((step, ""));
        match verb {
            "effect" => self.note(EFFECTS, &params["arguments"].to_string()),
            "touch" => self.note(rest, ""),
            "wait" => self.wait(|| self.has(rest)),
            // Idle time that no test waits for otherwise.
            "idle" => std::thread::sleep(Duration::from_secs(rest.parse().expect("seconds"))),
            "once" => {
                let (name, step) = rest.split_once(':').expect("a name and a step");
                if !self.has(name) {
                    self.note(name, "");
                    self.step(id, params, step);
                }
            }
            "ok" => {
                let text = json!(format!("done {rest}"));
                self.result(
                    id,
                    &format!("{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}]}}"),
                );
            }
            "result" => self.result(id, rest),
            "error" => self.line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{rest}}}")),
            "raw" => self.line(&rest.replace("ID", &id.to_string())),
            "big" => {
                let text = "x".repeat(rest.parse().expect("a number"));
                self.result(
                    id,
                    &format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}"),
                );
            }
            "endless" => {
                let state = params["requestState"].as_str().unwrap_or("0").parse::<u64>();
                let next = state.expect("a number") + 1;
                self.result(id, &format!("{{\"resultType\":\"input_required\",\"inputRequests\":{{}},\"requestState\":\"{next}\"}}"));
            }
            "sample" => {
                self.line(
                    r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}"#,
                );
                self.wait(|| self.has(HEARD));
            }
            "exit" => std::process::exit(3),
            "die" => kill_process(getpid(), Signal::KILL).expect("killed"),
            other => panic!("no step {other}"),
        }
    }

    fn result(&self, id: &Value, result: &str) {
        self.line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"));
    }

    /// Writes a line; `\xff` in it is that byte.
    fn line(&self, text: &str) {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        for (at, part) in text.split("\\xff").enumerate() {
            if at > 0 {
                bytes.push(0xff);
            }
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes.push(b'\n');
        self.output.lock().expect("whole").write_all(&bytes).expect("written");
    }
}
