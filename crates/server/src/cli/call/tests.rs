//! The command against small servers made of shell script: what is printed, and the exit code.

use std::path::Path;

use clap::Parser;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    call: CallArgs,
}

/// A server that appends what it is called with to `$1/seen`, and does with a write what `$2`
/// says: `reply`, `refuse` or `die`; with a status, what `$3` says: `applied` or `absent`.
const SERVER: &str = r#"
dir=$1; onwrite=$2; onstatus=$3
id_of() { printf '%s' "$line" | sed -n 's/.*"operation_id":"\([^"]*\)".*/\1/p'; }
send() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
done_() { send "\"result\":{\"resultType\":\"complete\",$1}"; }
said() { printf '"_meta":{"io.counterfoil/operation":{"operationId":"%s","state":"%s","replayed":false,"retry":"%s"}}' "$op" "$1" "$2"; }
account() {
  printf '"content":[],"structuredContent":{"operationId":"%s","principal":"alice","backend":"b","state":"%s","authoritative":%s,"freshWriteAuthorized":false,"observedAt":"2026-01-31T09:30:00Z","scope":"words","scopeBinding":{"operationId":"%s","principal":"alice","backend":"b"},"matchingIds":%s,"detail":"%s","storedResult":%s}' "$op" "$1" "$2" "$op" "$3" "$4" "$5"
}
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  op=$(id_of)
  case "$line" in
    *server/discover*) done_ '"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"' ;;
    *tools/list*) done_ '"ttlMs":0,"cacheScope":"private","tools":[{"name":"create_issue","inputSchema":{"type":"object","properties":{"operation_id":{"type":"string"}}}}]' ;;
    *get_operation_status*)
      echo "status $op" >> "$dir/seen"
      case $onstatus in
        applied) done_ "$(account applied true '[1]' settled '"created 1"')" ;;
        *) done_ "$(account unknown false '[]' no_record null)" ;;
      esac ;;
    *create_issue*)
      echo "write $op" >> "$dir/seen"
      case $onwrite in
        reply) done_ "\"content\":[{\"type\":\"text\",\"text\":\"created 1\"}],$(said applied none)" ;;
        refuse) done_ "\"isError\":true,\"content\":[],\"structuredContent\":{\"error\":{\"code\":\"operation_conflict\",\"message\":\"bound\"}},$(said unknown none)" ;;
        *) exit 7 ;;
      esac ;;
  esac
done
"#;

struct Ran {
    exit: Exit,
    out: String,
    err: String,
    /// What the servers were called with, one call a line.
    seen: String,
    journal: String,
}

async fn run_line(dir: &Path, words: &[&str], server: &[&str]) -> Ran {
    let journal = dir.join("calls.jsonl");
    let journal_word = journal.to_string_lossy().into_owned();
    let mut line = vec!["call", "--journal", &journal_word];
    line.extend(words);
    line.push("--");
    line.extend(server);
    let args = Line::try_parse_from(line).expect("a good command line").call;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run_on(args, &mut out, &mut err).await.expect("a Vec can be written");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    Ran {
        exit,
        out: String::from_utf8(out).expect("UTF-8"),
        err: String::from_utf8(err).expect("UTF-8"),
        seen: read(&dir.join("seen")),
        journal: read(&journal),
    }
}

async fn run_script(words: &[&str], on_write: &str, on_status: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_string_lossy().into_owned();
    let server = ["sh", "-c", SERVER, "server", &path, on_write, on_status];
    run_line(dir.path(), words, &server).await
}

const CALL: [&str; 5] =
    ["create_issue", "--operation-id", "op-1", "--args", r#"{"title":"s3cret"}"#];

#[tokio::test]
async fn a_lost_reply_is_recovered_and_the_write_is_sent_once() {
    // Promise: result on stdout, account on stderr, exit code by the effect; one write; the
    // arguments are in no output and not in the journal.
    type Case = (&'static str, &'static str, Exit, &'static str, &'static str, &'static str);
    let cases: [Case; 4] = [
        ("reply", "-", Exit::Done, "created 1\n", "operation op-1: applied", "write op-1\n"),
        (
            "die",
            "applied",
            Exit::Done,
            "created 1\n",
            "learned by asking",
            "write op-1\nstatus op-1\n",
        ),
        ("die", "absent", Exit::Unknown, "", "Do not send it again", "write op-1\nstatus op-1\n"),
        ("refuse", "-", Exit::Refused, "", "refused (operation_conflict): bound", "write op-1\n"),
    ];
    for (on_write, on_status, exit, out, err, seen) in cases {
        let ran = run_script(&CALL, on_write, on_status).await;
        assert_eq!(ran.exit, exit, "{on_write}: {}", ran.err);
        assert_eq!(ran.out, out, "{on_write}");
        assert!(ran.err.contains(err), "{on_write}: {}", ran.err);
        assert_eq!(ran.seen, seen, "{on_write}");
        assert!(ran.journal.contains("\"operationId\":\"op-1\""), "{}", ran.journal);
        assert!(ran.journal.contains("\"server\":\"sh\""), "{}", ran.journal);
        for text in [&ran.out, &ran.err, &ran.journal] {
            assert!(!text.contains("s3cret"), "{on_write}: {text}");
        }
    }
}

#[tokio::test]
async fn an_unknown_outcome_prints_the_command_that_asks_again() {
    // Promise: exit 3 says what is known, what not to do, and the exact command, which only reads
    // and leaves no journal entry.
    let ran = run_script(&CALL, "die", "absent").await;
    let ask = "counterfoil call get_operation_status --args '{\"operation_id\":\"op-1\"}' -- sh -c";
    assert!(ran.err.contains(ask), "{}", ran.err);
    assert!(ran.err.contains("UNKNOWN") && ran.err.contains("no record"), "{}", ran.err);

    let question = ["get_operation_status", "--args", r#"{"operation_id":"op-1"}"#];
    let ran = run_script(&question, "die", "applied").await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "created 1\n"), "{}", ran.err);
    assert_eq!((ran.seen.as_str(), ran.journal.as_str()), ("status op-1\n", ""));
    let ran = run_script(&question, "die", "absent").await;
    assert_eq!(ran.exit, Exit::Unknown, "{}", ran.err);
    let foreign = [&question[..], &["--principal", "bob"]].concat();
    let ran = run_script(&foreign, "die", "applied").await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Unknown, ""), "{}", ran.err);
    assert!(ran.err.contains("principal is not the one that asked"), "{}", ran.err);
}

#[tokio::test]
async fn json_has_one_object_on_stdout_and_nothing_on_stderr() {
    // Promise: the fields for programs are stable.
    let json_call = [&CALL[..], &["--json"]].concat();
    let read = |ran: &Ran| serde_json::from_str::<Value>(&ran.out).expect("one JSON value");
    let ran = run_script(&json_call, "die", "applied").await;
    let mut said = read(&ran);
    assert_eq!(said["observation"]["state"], "applied");
    said.as_object_mut().expect("an object").remove("observation");
    let lost = said.as_object_mut().expect("an object").remove("lost").expect("there");
    assert!(lost.as_str().expect("words").starts_with("no reply came"), "{lost}");
    assert_eq!(
        said,
        json!({"operationId": "op-1", "submission": "admitted", "effect": "applied",
               "action": "return_stored_result", "state": "applied", "recovered": true,
               "result": "created 1"})
    );
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Done, ""));

    let ran = run_script(&json_call, "reply", "-").await;
    let said = read(&ran);
    assert_eq!((&said["recovered"], &said["result"]), (&json!(false), &json!("created 1")));
    let ran = run_script(&json_call, "die", "absent").await;
    let said = read(&ran);
    assert_eq!((ran.exit, &said["effect"]), (Exit::Unknown, &json!("unknown")));
    assert!(said["next"].as_str().expect("a command").starts_with("counterfoil call get_op"));
    let ran = run_script(&json_call, "refuse", "-").await;
    assert_eq!(read(&ran)["refused"]["code"], "operation_conflict");
}

#[tokio::test]
async fn without_an_id_a_new_one_is_made_and_said() {
    // Promise: every write has an ID that carries its time, and the user is told which.
    let ran = run_script(&["create_issue"], "reply", "-").await;
    let id = ran.seen.trim().strip_prefix("write ").expect("a write");
    let parsed = uuid::Uuid::parse_str(id).expect("a UUID");
    assert_eq!((parsed.get_version_num(), parsed.to_string().as_str()), (7, id));
    assert!(ran.err.contains(&format!("operation ID: {id} (new)")), "{}", ran.err);
    let given = ["create_issue", "--args", r#"{"operation_id":"op-2"}"#];
    let ran = run_script(&given, "reply", "-").await;
    assert_eq!(ran.seen, "write op-2\n");
    assert!(!ran.err.contains("(new)"), "{}", ran.err);
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_written_or_started() {
    // Promise: exit 2 with value, rule and remedy; no journal entry, no server, no secret shown.
    let cases: [(&[&str], &str); 13] = [
        (&["t", "--args", "{\"a\":\"s3cret\",\"a\":1}"], "key twice"),
        (&["t", "--args", "{\"a\":9007199254740993}"], "send it as a string"),
        (&["t", "--args", "[\"s3cret\"]"], "must be a JSON object"),
        (&["t", "--args", "s3cret"], "not valid JSON"),
        (&["t", "--args", "@/no/such/file"], "`/no/such/file`"),
        (&["t", "--answer", "s3cret"], "KEY=TEXT"),
        (&["t", "--answer", "a=s3cret", "--answer", "a=1"], "twice"),
        (&["t", "--operation-id", ""], "operation_id is empty"),
        (&["t", "--operation-id", "a", "--args", "{\"operation_id\":\"b\"}"], "give the ID once"),
        (&["t", "--args", "{\"operation_id\":1}"], "must be text"),
        (&["t", "--principal", " "], "principal is blank"),
        (&["get_operation_status"], "takes `operation_id` and nothing else"),
        (&["get_operation_status", "--args", "{\"operation_id\":\"a\",\"b\":1}"], "nothing else"),
    ];
    for (words, expected) in cases {
        let ran = run_script(words, "reply", "applied").await;
        assert_eq!(ran.exit, Exit::Usage, "{words:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{words:?}: {}", ran.err);
        assert_eq!((ran.out + &ran.seen + &ran.journal).as_str(), "", "{words:?}");
        assert!(!ran.err.contains("s3cret"), "{words:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_called_has_its_own_exit_code() {
    // Promise: 127 for a missing command, 1 for one that speaks no MCP, 2 for an unknown tool, and
    // each says that nothing was sent.
    let dir = tempfile::tempdir().expect("a directory");
    let cases: [(&[&str], Exit, &str); 2] = [
        (&["/no/such/program", "s3cret"], Exit::NotFound, "`/no/such/program` was not found"),
        (&["true"], Exit::Failed, "no MCP session"),
    ];
    for (server, exit, words) in cases {
        let ran = run_line(dir.path(), &CALL, server).await;
        assert_eq!(ran.exit, exit, "{}", ran.err);
        assert!(ran.err.contains(words) && ran.err.contains("nothing was sent"), "{}", ran.err);
        assert!(!ran.err.contains("s3cret") && !ran.journal.contains("s3cret"), "{}", ran.err);
    }
    let ran = run_script(&["create_isue"], "reply", "-").await;
    assert_eq!((ran.exit, ran.seen.as_str()), (Exit::Usage, ""), "{}", ran.err);
    let full = ["create_issue", "--journal", "/dev/full"];
    let path = dir.path().to_string_lossy().into_owned();
    let mut line = vec!["call"];
    line.extend(full);
    line.extend(["--", "sh", "-c", SERVER, "server", &path, "reply", "-"]);
    let args = Line::try_parse_from(line).expect("good").call;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run_on(args, &mut out, &mut err).await.expect("a Vec can be written");
    assert_eq!(exit, Exit::Failed);
    assert!(!dir.path().join("seen").exists(), "nothing is sent without a saved identity");
}

#[test]
fn the_help_teaches_with_an_example_and_debug_shows_no_argument() {
    // Promise: `--help` has an example that can be pasted, and the table of exit codes.
    use clap::CommandFactory;
    let help = Line::command().render_long_help().to_string();
    for words in ["counterfoil call create_issue", "get_operation_status", "3    the outcome"] {
        assert!(help.contains(words), "{help}");
    }
    let args = Line::try_parse_from(["call", "t", "--args", "s3cret", "--", "s", "s3cret"]);
    assert!(!format!("{:?}", args.expect("good").call).contains("s3cret"));
    for bad in [&["call", "t"][..], &["call", "t", "--timeout", "0", "--", "s"]] {
        assert!(Line::try_parse_from(bad).is_err(), "{bad:?}");
    }
}
