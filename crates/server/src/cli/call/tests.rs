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
/// says: `reply`, `refuse`, `ask`, `bad`, `leave` (before the write) or `die`; with a status, what
/// `$3` says: `applied`, `late` (leaves once, then applied) or a detail of an unknown state.
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
    *tools/list*) test "$onwrite" != leave || exit 5
      done_ '"ttlMs":0,"cacheScope":"private","tools":[{"name":"create_issue","inputSchema":{"type":"object","properties":{"operation_id":{"type":"string"},"title":{"type":"string"},"body":{"type":"string"}}}}]' ;;
    *get_operation_status*)
      echo "status $op" >> "$dir/seen"
      case $onstatus in
        applied) done_ "$(account applied true '[1]' settled '"created 1"')" ;;
        late) test -e "$dir/late" || { : > "$dir/late"; exit 7; }
          done_ "$(account applied true '[1]' settled '"created 1"')" ;;
        *) done_ "$(account unknown false '[]' "$onstatus" null)" ;;
      esac ;;
    *create_issue*)
      echo "write $op" >> "$dir/seen"
      case $onwrite in
        reply) done_ "\"content\":[{\"type\":\"text\",\"text\":\"created 1\"}],$(said applied none)" ;;
        refuse) done_ "\"isError\":true,\"content\":[],\"structuredContent\":{\"error\":{\"code\":\"operation_conflict\",\"message\":\"bound\"}},$(said unknown none)" ;;
        ask) send '"error":{"code":-32021,"message":"declare elicitation.form"}' ;;
        bad) send '"error":{"code":-32602,"message":"too long"}' ;;
        *) exit 7 ;;
      esac ;;
  esac
done
"#;

/// A server that knows no method.
const NO_MCP: &str = r#"
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}\n' "$id"
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
    if !server.is_empty() {
        line.push("--");
        line.extend(server);
    }
    let args = Line::try_parse_from(line).expect("a good command line").call;
    let tells_tries = !args.json;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ran = run_on(args, tells_tries, no_signals, &mut out, &mut err).await;
    let exit = ran.expect("a Vec can be written");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    Ran {
        exit,
        out: String::from_utf8(out).expect("UTF-8"),
        err: String::from_utf8(err).expect("UTF-8"),
        seen: read(&dir.join("seen")),
        journal: read(&journal),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as the real signals, which can fail")]
fn no_signals() -> io::Result<CancellationToken> {
    Ok(CancellationToken::new())
}

async fn run_script(words: &[&str], on_write: &str, on_status: &str) -> Ran {
    let dir = tempfile::tempdir().expect("a directory");
    run_script_in(dir.path(), words, on_write, on_status).await
}

async fn run_script_in(dir: &Path, words: &[&str], on_write: &str, on_status: &str) -> Ran {
    let path = dir.to_string_lossy().into_owned();
    let server = ["sh", "-c", SERVER, "server", &path, on_write, on_status];
    run_line(dir, words, &server).await
}

const CALL: [&str; 5] =
    ["create_issue", "--operation-id", "op-1", "--args", r#"{"title":"s3cret"}"#];

#[tokio::test]
async fn a_lost_reply_is_recovered_and_the_write_is_sent_once() {
    // Promise: result on stdout, account on stderr, exit code by the effect; one write; the
    // arguments are in no output and not in the journal.
    type Case = (&'static str, &'static str, Exit, &'static str, &'static str, &'static str);
    let cases: [Case; 4] = [
        (
            "reply",
            "-",
            Exit::Done,
            "created 1\n",
            "operation ID: op-1\noperation op-1: applied",
            "write op-1\n",
        ),
        (
            "die",
            "applied",
            Exit::Done,
            "created 1\n",
            "learned by asking",
            "write op-1\nstatus op-1\n",
        ),
        (
            "die",
            "no_record",
            Exit::Unknown,
            "",
            "Do not send it again",
            "write op-1\nstatus op-1\n",
        ),
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
    let ran = run_script(&CALL, "die", "no_record").await;
    let ask =
        "counterfoil call get_operation_status --args '{\"operation_id\":\"op-1\"}' --journal /";
    assert!(ran.err.contains(ask), "{}", ran.err);
    assert!(ran.err.contains("calls.jsonl -- sh -c"), "{}", ran.err);
    assert!(ran.err.contains("UNKNOWN") && ran.err.contains("no record"), "{}", ran.err);

    let question = ["get_operation_status", "--args", r#"{"operation_id":"op-1"}"#];
    let ran = run_script(&question, "die", "applied").await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "created 1\n"), "{}", ran.err);
    assert_eq!((ran.seen.as_str(), ran.journal.as_str()), ("status op-1\n", ""));
    let ran = run_script(&question, "die", "no_record").await;
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
    let ran = run_script(&json_call, "die", "no_record").await;
    let said = read(&ran);
    assert_eq!((ran.exit, &said["effect"]), (Exit::Unknown, &json!("unknown")));
    assert!(said["next"].as_str().expect("a command").starts_with("counterfoil call get_op"));
    let ran = run_script(&json_call, "refuse", "-").await;
    assert_eq!(read(&ran)["refused"]["code"], "operation_conflict");
}

#[tokio::test]
async fn a_refusal_and_a_missing_record_say_what_helps() {
    // Promise: who may correct the call is told how, by names; that the same call is safe to send
    // is said where the ledger has no record, and nowhere else; further tries are seen.
    type Case =
        (&'static str, &'static str, &'static [&'static str], Exit, &'static [&'static str]);
    let cases: [Case; 7] = [
        (
            "ask",
            "-",
            &[],
            Exit::Usage,
            &[
                "refused (missing client capability, -32021): declare elicitation.form",
                "nothing was done; add --answer body=TEXT or put body into --args",
            ],
        ),
        ("ask", "-", &["--answer", "body=x"], Exit::Usage, &["correct the call and send it again"]),
        (
            "bad",
            "-",
            &[],
            Exit::Usage,
            &["(invalid params, -32602): too long", "correct the call and send it again"],
        ),
        ("refuse", "-", &[], Exit::Refused, &["bound\nthere is nothing to send again"]),
        (
            "die",
            "no_record",
            &[],
            Exit::Unknown,
            &[
                "The call was sent and no reply came: `sh` ended (exit code 7) before it answered.",
                "to the same ledger cannot do it twice",
                "Another ID could",
            ],
        ),
        ("die", "in_doubt", &[], Exit::Unknown, &["only a lookup or an operator"]),
        ("die", "late", &[], Exit::Done, &["still asking, try 2 of 8\n", "learned by asking"]),
    ];
    for (on_write, on_status, more, exit, expected) in cases {
        let ran = run_script(&[&CALL[..], more].concat(), on_write, on_status).await;
        assert_eq!(ran.exit, exit, "{on_write} {on_status}: {}", ran.err);
        for words in expected {
            assert!(ran.err.contains(words), "{on_write} {on_status}: {}", ran.err);
        }
        let is_safe = ran.err.contains("cannot do it twice");
        assert_eq!(is_safe, on_status == "no_record", "{on_write} {on_status}: {}", ran.err);
    }
    let ran = run_script(&[&CALL[..], &["--json"]].concat(), "ask", "-").await;
    let said: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!((&said["missing"], &said["refused"]["code"]), (&json!(["body"]), &json!("-32021")));
}

#[test]
fn the_same_call_is_called_safe_only_without_a_record() {
    // Promise: a record that is in progress, in doubt or broken is a reason to send nothing.
    let details = ["no_record", "in_progress", "first_step_committed", "in_doubt", "quarantined"];
    for detail in details {
        let account = json!({
            "operationId": "op-1", "principal": "alice", "backend": "b", "state": "unknown",
            "authoritative": false, "freshWriteAuthorized": false,
            "observedAt": "2026-01-31T09:30:00.000Z", "scope": "words",
            "scopeBinding": {"operationId": "op-1", "principal": "alice", "backend": "b"},
            "matchingIds": [], "detail": detail, "storedResult": null});
        let settled = Settled {
            operation_id: None,
            belief: counterfoil_core::consumer::after_transport_failure(),
            observation: Some(Box::new(serde_json::from_value(account).expect("an account"))),
            doubt: None,
            questions_count: 1,
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let report = Report::of_settled(settled, None, String::new());
        report.print(false, &mut out, &mut err).expect("a Vec can be written");
        let err = String::from_utf8(err).expect("UTF-8");
        assert_eq!(err.contains("cannot do it twice"), detail == "no_record", "{detail}: {err}");
    }
}

#[tokio::test]
async fn pending_lists_what_is_unknown_until_a_status_settles_it() {
    // Promise: the journal tells lost calls from those that were refused, never sent or settled,
    // without a server; a question that settles a call closes its entry.
    let dir = tempfile::tempdir().expect("a directory");
    let pending = ["--pending"];
    let ran = run_line(dir.path(), &pending, &[]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, ""), "{}", ran.err);
    assert!(ran.err.contains("no call of unknown outcome in /"), "{}", ran.err);
    assert!(!dir.path().join("calls.jsonl").exists(), "a list makes no journal");

    let at = |id| ["create_issue", "--operation-id", id];
    for (id, on_write) in [("r", "refuse"), ("a", "reply"), ("b", "bad"), ("n", "leave")] {
        run_script_in(dir.path(), &at(id), on_write, "-").await;
    }
    run_script_in(dir.path(), &["create_isue"], "reply", "-").await;
    run_line(dir.path(), &at("m"), &["/no/such/program"]).await;
    let ran = run_line(dir.path(), &pending, &[]).await;
    assert_eq!(ran.out, "", "{}", ran.journal);

    run_script_in(dir.path(), &at("lost"), "die", "no_record").await;
    let ran = run_line(dir.path(), &pending, &[]).await;
    let ask =
        "counterfoil call get_operation_status --args '{\"operation_id\":\"lost\"}' --journal";
    assert!(ran.out.starts_with("lost  create_issue  sh  20"), "{}", ran.out);
    assert!(ran.out.contains(ask) && ran.out.ends_with(" -- sh ...\n"), "{}", ran.out);
    let ran = run_line(dir.path(), &["--pending", "--json"], &[]).await;
    let listed: Value = serde_json::from_str(&ran.out).expect("JSON");
    let [only] = &listed["pending"].as_array().expect("an array")[..] else { panic!("{listed}") };
    assert_eq!((&only["operationId"], &only["tool"]), (&json!("lost"), &json!("create_issue")));
    assert_eq!((&only["server"], ran.err.as_str()), (&json!("sh"), ""));
    assert!(only["next"].as_str().expect("a command").starts_with(ask), "{listed}");

    let question = ["get_operation_status", "--args", r#"{"operation_id":"lost"}"#];
    run_script_in(dir.path(), &question, "-", "no_record").await;
    let ran = run_line(dir.path(), &pending, &[]).await;
    assert!(ran.out.starts_with("lost "), "asked in vain: {}", ran.out);
    let settled = run_script_in(dir.path(), &question, "-", "applied").await;
    let ran = run_line(dir.path(), &pending, &[]).await;
    assert_eq!((settled.exit, ran.out.as_str()), (Exit::Done, ""), "{}", ran.journal);
    let again = run_script_in(dir.path(), &question, "-", "applied").await;
    assert_eq!(again.journal, settled.journal, "what is closed is not closed twice");
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
    let by_hand = "before it answered; run it by hand to see why";
    let path = dir.path().to_string_lossy().into_owned();
    let leaves = ["sh", "-c", SERVER, "server", &path, "leave", "-"];
    let cases: [(&[&str], Exit, &str); 7] = [
        (&["/no/such/program", "s3cret"], Exit::NotFound, "`/no/such/program` was not found"),
        (&["true"], Exit::Failed, &format!("`true` ended (exit code 0) {by_hand}")),
        (
            &["/bin/sh", "-c", "exit 9"],
            Exit::Failed,
            &format!("`sh` ended (exit code 9) {by_hand}"),
        ),
        (&["sh", "-c", "kill -9 $$"], Exit::Failed, &format!("`sh` ended (signal 9) {by_hand}")),
        (&leaves, Exit::Failed, &format!("`sh` ended (exit code 5) {by_hand}")),
        (
            &["sh", "-c", "exec >&- <&-; exec sleep 2"],
            Exit::Failed,
            "`sh` closed its stdin or stdout",
        ),
        (&["sh", "-c", NO_MCP], Exit::Failed, "server: method not found (-32601): what?; is it an"),
    ];
    for (server, exit, words) in cases {
        let ran = run_line(dir.path(), &CALL, server).await;
        assert!(!ran.err.contains("rmcp"), "no text of a library: {}", ran.err);
        assert_eq!(ran.exit, exit, "{}", ran.err);
        assert!(ran.err.contains(words) && ran.err.contains("nothing was sent"), "{}", ran.err);
        assert!(!ran.err.contains("s3cret") && !ran.journal.contains("s3cret"), "{}", ran.err);
    }
    let ran = run_script(&["create_isue"], "reply", "-").await;
    assert_eq!((ran.exit, ran.seen.as_str()), (Exit::Usage, ""), "{}", ran.err);
    let full = ["create_issue", "--journal", "/dev/full"];
    let mut line = vec!["call"];
    line.extend(full);
    line.extend(["--", "sh", "-c", SERVER, "server", &path, "reply", "-"]);
    let args = Line::try_parse_from(line).expect("good").call;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ran = run_on(args, true, no_signals, &mut out, &mut err).await;
    let exit = ran.expect("a Vec can be written");
    assert_eq!(exit, Exit::Failed);
    assert!(!dir.path().join("seen").exists(), "nothing is sent without a saved identity");
}

#[test]
fn the_help_teaches_with_an_example_and_debug_shows_no_argument() {
    // Promise: `--help` has an example that can be pasted, and the table of exit codes.
    use clap::CommandFactory;
    let help = Line::command().render_long_help().to_string();
    let journal = "$XDG_STATE_HOME/counterfoil/calls.jsonl";
    let call = "counterfoil call create_issue";
    for words in [call, "get_operation_status", "3    the outcome", journal, "--pending"] {
        assert!(help.contains(words), "{help}");
    }
    let args = Line::try_parse_from(["call", "t", "--args", "s3cret", "--", "s", "s3cret"]);
    assert!(!format!("{:?}", args.expect("good").call).contains("s3cret"));
    for bad in [
        &["call", "t"][..],
        &["call", "t", "--timeout", "0", "--", "s"],
        &["call", "--", "s"],
        &["call", "--pending", "t"],
        &["call", "--pending", "--", "s"],
        &["call", "--pending", "--timeout", "1"],
        &["call", "--pending", "--url", "http://h/mcp"],
        &["call", "t", "--url", "http://h/mcp", "--", "s"],
        &["call", "t", "--token-env", "V", "--", "s"],
        &["call", "t", "--connect-timeout", "1", "--", "s"],
        &["call", "t", "--token-env", "V"],
        &["call", "t", "--read", "--operation-id", "i", "--", "s"],
    ] {
        assert!(Line::try_parse_from(bad).is_err(), "{bad:?}");
    }
}
