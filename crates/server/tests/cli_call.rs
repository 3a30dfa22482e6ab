//! `counterfoil call` under signals, through the real binary.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A server that says on stderr, which the command passes through, how far it got, and then waits
/// for the end of its input: at its start, if `$1` is `start`; else once it got the write.
const SERVER: &str = r#"
test "$1" != start || { echo reached >&2; cat > /dev/null; exit 0; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  done_() { printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",%s}}\n' "$id" "$1"; }
  case "$line" in
    *server/discover*) done_ '"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}' ;;
    *tools/list*) done_ '"tools":[{"name":"create_issue","inputSchema":{"type":"object","properties":{"operation_id":{"type":"string"}}}}]' ;;
    *create_issue*) echo reached >&2; cat > /dev/null; exit 0 ;;
  esac
done
"#;

struct Call {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// What stderr had before the server got as far as it goes.
    before: String,
}

/// Starts a call and waits until its server got as far as it goes.
fn start(state: &std::path::Path, more: &[&str], where_to_wait: &str) -> Call {
    let mut child = Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .args(["call", "create_issue", "--operation-id", "op-1"])
        .args(more)
        .args(["--", "sh", "-c", SERVER, "server", where_to_wait])
        .env("XDG_STATE_HOME", state)
        .env_remove("COUNTERFOIL_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut call = Call { child, stderr, before: String::new() };
    loop {
        let mut line = String::new();
        let length = call.stderr.read_line(&mut line).expect("text");
        assert_ne!(length, 0, "it ended too soon: {}", call.before);
        if line == "reached\n" {
            return call;
        }
        call.before.push_str(&line);
    }
}

/// Gives the signal; returns exit code, stdout and stderr.
fn end(mut call: Call, signal: Signal) -> (Option<i32>, String, String) {
    let pid = Pid::from_raw(i32::try_from(call.child.id()).expect("a number")).expect("not zero");
    kill_process(pid, signal).expect("it still runs");
    let mut stderr = call.before;
    call.stderr.read_to_string(&mut stderr).expect("text");
    let ended = call.child.wait_with_output().expect("ended");
    let stdout = String::from_utf8(ended.stdout).expect("text");
    (ended.status.code(), stdout, stderr)
}

fn pending(state: &std::path::Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let listed = command.args(["call", "--pending"]).env("XDG_STATE_HOME", state).output();
    String::from_utf8(listed.expect("it runs").stdout).expect("text")
}

#[test]
fn a_signal_ends_a_call_with_all_that_is_known() {
    // Promise: whoever presses Ctrl-C learns whether a write may have left, with the ID and the
    // command that asks; the journal keeps a call that may have been sent, and no other.
    let ask = "counterfoil call get_operation_status --args '{\"operation_id\":\"op-1\"}' -- sh -c";
    let unknown = ["operation op-1: UNKNOWN", "may have been sent", "under another ID", ask];
    let cases: [(&str, Signal, i32, &[&str], &str); 4] = [
        ("write", Signal::INT, 3, &unknown, "op-1  create_issue  sh  "),
        ("write", Signal::TERM, 3, &unknown, "op-1  create_issue  sh  "),
        ("start", Signal::INT, 1, &["error: interrupted; nothing was sent"], ""),
        ("start", Signal::TERM, 1, &["error: interrupted; nothing was sent"], ""),
    ];
    for (where_to_wait, signal, code, words, open) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let call = start(dir.path(), &[], where_to_wait);
        assert_eq!(call.before, "operation ID: op-1\n");
        let (ended, stdout, stderr) = end(call, signal);
        assert_eq!((ended, stdout.as_str()), (Some(code), ""), "{stderr}");
        for words in words {
            assert!(stderr.contains(words), "{stderr}");
        }
        let listed = pending(dir.path());
        assert!(listed.starts_with(open) && listed.is_empty() == open.is_empty(), "{listed}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (code, stdout, stderr) = end(start(dir.path(), &["--json"], "write"), Signal::INT);
    assert_eq!((code, stderr.as_str()), (Some(3), ""), "{stdout}");
    for words in ["\"effect\":\"unknown\"", "interrupted", "\"next\":\"counterfoil call get_op"] {
        assert!(stdout.contains(words), "{stdout}");
    }
}
