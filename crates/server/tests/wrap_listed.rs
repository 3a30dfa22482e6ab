//! A call that comes before the server's list of tools is known: where its ID stands is not guessed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The first life of this server ends when it is asked for its tools; the later ones are whole.
const SERVER: &str = r#"
if mkdir "$0" 2>/dev/null; then
    sed -u '/"tools\/list"/Q' | "$1" demo notes --file "$2"
else
    exec "$1" demo notes --file "$2"
fi
"#;

struct Session {
    process: Child,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Session {
    fn say(&mut self, message: &Value) {
        let input = self.process.stdin.as_mut().expect("piped");
        input.write_all(format!("{message}\n").as_bytes()).expect("the gateway reads");
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("text") > 0, "the gateway has ended");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Adds the note under one ID; what the reply says of the operation.
    fn add(&mut self) -> Value {
        let arguments = json!({ "text": "a note", "operation_id": "op-1" });
        let reply = self.ask("tools/call", &json!({ "name": "add_note", "arguments": arguments }));
        reply["result"]["_meta"]["io.counterfoil/operation"].clone()
    }
}

#[test]
fn an_id_among_the_arguments_is_never_taken_for_the_tools_own() {
    // Promise: as long as the server has not told its tools, a call is not sent; with a list that was
    // lost on the way the same operation is still done once.
    let room = tempfile::tempdir().expect("a temporary directory");
    let notes = room.path().join("notes.txt");
    let mut process = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .args(["wrap", "--name", "notes", "--data-dir"])
        .arg(room.path().join("data"))
        .args(["--", "sh", "-c", SERVER])
        .arg(room.path().join("first-life"))
        .arg(env!("CARGO_BIN_EXE_counterfoil"))
        .arg(&notes)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let output = BufReader::new(process.stdout.take().expect("piped"));
    let mut session = Session { process, output, last_id: 0 };
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    session.ask("initialize", &hello);
    session.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));

    // This client lists nothing: it has the list from an earlier session.
    let first = session.add();
    assert_eq!((&first["operationId"], &first["state"]), (&json!("op-1"), &json!("applied")));
    let again = session.add();
    assert_eq!(again["replayed"], true, "{again}");
    drop(session.process.stdin.take());
    session.process.wait().expect("ends");
    let text = std::fs::read_to_string(notes).expect("the notes");
    assert_eq!(text.lines().count(), 1, "{text}");
}
