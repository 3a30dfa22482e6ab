//! The server of these tests. It is this test program itself, started by [`command`].
//!
//! The test harness writes to stdout, so the protocol runs over a copy of stdout that a shell makes
//! before it gives way to this program (`exec`: the process stays the same).

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

/// Set in the server's environment: it is a server, with this behaviour.
const ROLE: &str = "WRAP_TEST_SERVER";

/// Its tools.
const TOOLS: &[&str] =
    &["received", "raw", "big", "silent", "slow", "ask", "progress", "exit", "orphan"];

/// Settings that have each tool passed on.
pub(crate) fn settings() -> String {
    let reads = TOOLS.iter().map(|tool| format!("[wrap.tools.{tool}]\neffect = \"read\"\n"));
    reads.collect()
}

/// The command line of a server that behaves as `role` says: words such as `deaf-to-term`.
pub(crate) fn command(role: &str) -> Vec<String> {
    let own = std::env::current_exe().expect("a path").display().to_string();
    let script = format!(
        "exec 3>&1 1>/dev/null; {ROLE}='{role}' exec '{own}' --exact scripted::server --nocapture"
    );
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

/// Not a test, unless it is started as a server.
#[test]
fn server() {
    if let Ok(role) = std::env::var(ROLE) {
        let server = Server { role, output: open("/dev/fd/3"), asked: 0 };
        std::process::exit(server.serve());
    }
}

fn open(path: &str) -> File {
    OpenOptions::new().append(true).open(path).expect("opened")
}

struct Server {
    role: String,
    output: File,
    asked: u64,
}

impl Server {
    fn serve(mut self) -> i32 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        if self.is("deaf-to-term") {
            let _guard = runtime.enter();
            let kind = tokio::signal::unix::SignalKind::terminate();
            // Taken for as long as the process lives.
            Box::leak(Box::new(tokio::signal::unix::signal(kind).expect("a handler")));
        }
        if let Some(file) = self.value("births") {
            writeln!(open_or_create(&file), "{}", std::process::id()).expect("written");
        }
        if self.is("banner") {
            self.raw(b"Server ready\n\xff\xfe\n");
        }
        for line in std::io::stdin().lock().lines() {
            let line = line.expect("text");
            if let Some(code) = self.take(&line) {
                return code;
            }
        }
        if self.is("stays") {
            std::thread::park();
        }
        0
    }

    fn is(&self, word: &str) -> bool {
        self.role.split(' ').any(|one| one == word)
    }

    fn value(&self, name: &str) -> Option<String> {
        let words = self.role.split(' ');
        words
            .filter_map(|word| word.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, v)| v.to_owned())
    }

    /// Acts on one message; a code to end with.
    fn take(&mut self, line: &str) -> Option<i32> {
        if let Some(file) = self.value("log") {
            writeln!(open_or_create(&file), "{line}").expect("written");
        }
        let message: Value = serde_json::from_str(line).expect("JSON");
        let id = message["id"].clone();
        match message["method"].as_str() {
            None => {
                // The answer to what the tool `ask` asked: the tool's answer is that line.
                let to = id.as_str().and_then(|id| id.strip_prefix("ask-")).unwrap_or("0");
                self.reply(&to.parse().unwrap_or(Value::Null), json!({ "answer": line }));
            }
            Some("initialize") => {
                let version = self.version();
                let capabilities = json!({ "tools": {}, "logging": {}, "resources": {} });
                let info = json!({ "name": "scripted", "version": "1" });
                self.reply(
                    &id,
                    json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": info }),
                );
            }
            Some("server/discover") if self.is("modern-unknown") => {
                self.message(&json!({ "jsonrpc": "2.0", "id": id,
                    "error": { "code": -32601, "message": "unknown method" } }));
            }
            Some("server/discover") => {
                let versions = json!(["2026-07-28"]);
                self.reply(
                    &id,
                    json!({ "supportedVersions": versions, "capabilities": { "tools": {} }, "resultType": "complete" }),
                );
            }
            Some("subscriptions/listen") => {
                let meta = json!({ "io.modelcontextprotocol/subscriptionId": id });
                for method in ["notifications/subscriptions/acknowledged", "notifications/x"] {
                    self.message(
                        &json!({ "jsonrpc": "2.0", "method": method, "params": { "_meta": meta } }),
                    );
                }
            }
            Some("tools/list") => {
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                let tools: Vec<_> = TOOLS.iter().map(tool).collect();
                self.reply(&id, json!({ "received": line, "tools": tools }));
            }
            Some("tools/call") => return self.call(&id, &message["params"], line),
            Some("test/received") | Some("resources/subscribe") | Some("logging/setLevel") => {
                self.reply(&id, json!({ "received": line }));
            }
            Some(_) if !id.is_null() => self.reply(&id, json!({ "received": line })),
            Some(_) => {}
        }
        None
    }

    /// Another version after the first birth, if told so.
    fn version(&self) -> String {
        let births = self.value("births").and_then(|file| std::fs::read_to_string(file).ok());
        let is_first = births.is_none_or(|births| births.lines().count() <= 1);
        match self.value("then-version") {
            Some(version) if !is_first => version,
            _ => self.value("version").unwrap_or_else(|| "2025-11-25".to_owned()),
        }
    }

    fn call(&mut self, id: &Value, params: &Value, line: &str) -> Option<i32> {
        let arguments = &params["arguments"];
        match params["name"].as_str().expect("a name") {
            "received" => self.reply(id, json!({ "received": line })),
            // Writes what it is told, with its own id in the place of ID.
            "raw" => {
                let text = arguments["text"].as_str().expect("text");
                let unescaped = text.replace("ID", &id.to_string()).replace("\\xff", "\u{1}");
                let bytes: Vec<u8> =
                    unescaped.bytes().map(|byte| if byte == 1 { 0xff } else { byte }).collect();
                self.raw(&bytes);
            }
            "big" => {
                let count = arguments["bytes"].as_u64().expect("a number");
                let error = arguments["isError"].as_bool().unwrap_or(false);
                let text = "x".repeat(usize::try_from(count).expect("small"));
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"isError\":{error},\"t\":\"{text}\"}}}}\n"
                );
                self.raw(line.as_bytes());
            }
            "silent" => {}
            "slow" => {
                std::thread::sleep(Duration::from_millis(arguments["ms"].as_u64().expect("ms")));
                self.reply(id, json!({}));
            }
            "ask" => {
                self.asked += 1;
                let asked = format!("ask-{id}");
                self.message(
                    &json!({ "jsonrpc": "2.0", "id": asked, "method": "sampling/createMessage",
                    "params": { "n": self.asked, "_meta": { "progressToken": "down" } } }),
                );
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                self.message(&json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": token, "progress": 1 } }));
                self.reply(id, json!({}));
            }
            "exit" => return Some(3),
            "orphan" => {
                // A process of its own session, which nobody but a subreaper would find.
                let file = arguments["file"].as_str().expect("a file");
                let script = format!("(setsid sh -c 'echo $$ >> {file}; exec sleep 1000' &)");
                let ended = std::process::Command::new("sh").args(["-c", &script]).status();
                assert!(ended.expect("ran").success());
                while std::fs::read_to_string(file).map_or(true, |pids| !pids.ends_with('\n')) {
                    std::thread::yield_now();
                }
                self.reply(id, json!({}));
            }
            other => panic!("no tool {other}"),
        }
        None
    }

    fn reply(&mut self, id: &Value, result: Value) {
        self.message(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    fn message(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    fn raw(&mut self, bytes: &[u8]) {
        // A client that has gone is no matter of ours.
        let _ = self.output.write_all(bytes);
    }
}

fn open_or_create(path: &str) -> File {
    OpenOptions::new().append(true).create(true).open(path).expect("opened")
}
