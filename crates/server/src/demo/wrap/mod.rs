//! `counterfoil demo wrap`: a server that knows nothing of us dies in mid-call, after its effect. The
//! guard in front of it says so, looks, and gives the result to whoever asks again.

pub mod notes;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig};
use rmcp::service::RunningService;
use serde::Serialize;
use serde_json::{Value, json};

use super::account::Account;
use super::{PRINCIPAL, connect_to, make_new, own_command};

const OPERATION: &str = "demo-note-1";
const TEXT: &str = "Call the bank about invoice 4711";
/// What has not happened by then will not.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions.
const LOOK: Duration = Duration::from_millis(100);

/// What was seen, as JSON on stdout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WrapReport {
    /// What the caller of the lost request was told: `retry` of its refusal.
    pub after_loss: String,
    /// The state that the status tells then.
    pub status: String,
    /// Whether the same call with the same ID gave the result again, without another effect.
    pub replayed: bool,
    /// Whether an equal call without an ID, after that answer, was new work.
    pub new_work: bool,
    /// Notes in the server's own file, with the text of the lost call.
    pub effects_of_lost_call: u64,
    /// Notes in the server's own file.
    pub effects: u64,
}

type Client = RunningService<RoleClient, ClientConfig>;

/// Runs the demo in `directory`, which must not exist yet.
///
/// # Errors
/// If anything happens that the product promises will not.
pub async fn run(directory: &Path, quiet: bool) -> anyhow::Result<WrapReport> {
    make_new(directory)?;
    let account = Account::new(quiet);
    account.intro("A server that knows nothing of us dies in mid-call (stdio, SQLite).", directory);
    let file = directory.join("notes.txt");
    let server = connect_to(guarded(directory, &file)?, &directory.join("client.jsonl")).await?;

    account.step(1, "A client adds a note through the guard. The server writes it, and dies.");
    let lost = call(&server.client, "add_note", note(Some(OPERATION))).await?;
    let said = &lost["_meta"]["io.counterfoil/operation"];
    ensure!(lost["isError"] == true, "the call's own answer was lost, and yet: {lost}");
    let after_loss = text(&said["retry"])?;
    account.loss(&format!("no answer came; the guard says: {}", text(&said["error"]["code"])?));
    account.fact("it is not sent again, by nobody: it may have happened");

    account
        .step(2, "The server is started again. The guard looks, with the server's own find_notes.");
    let status = settled(&server.client).await?;
    account.answer(&format!("found: the operation is {status}"));

    account.step(3, "The client sends the very same call again.");
    let again = call(&server.client, "add_note", note(Some(OPERATION))).await?;
    let said = &again["_meta"]["io.counterfoil/operation"];
    ensure!(said["state"] == "applied", "the same call with the same ID is answered: {again}");
    account.answer(&format!("the result comes back: replayed {}", said["replayed"]));
    let replayed = said["replayed"] == true;
    let after_replay = notes::lines(&file)?.len();

    account.step(4, "A call that is meant as a second one, and says so by its own ID.");
    let fresh = call(&server.client, "add_note", note(Some("demo-note-2"))).await?;
    ensure!(fresh["isError"] != true, "a new operation is new work: {fresh}");
    server.close().await?;

    let effects = notes::lines(&file)?.len();
    let report = WrapReport {
        after_loss,
        status,
        replayed,
        new_work: effects == after_replay + 1,
        effects_of_lost_call: after_replay as u64,
        effects: effects as u64,
    };
    ensure!(after_replay == 1, "one call, and {after_replay} notes");
    ensure!(report.new_work && report.replayed, "a promise was broken: {report:?}");
    let found = counterfoil_store::sqlite::check(directory.join("data").join("ledger.db"))?;
    ensure!(found.is_sound(), "the ledger is not sound: {}", found.problems.join("; "));
    account.outro("One lost call, one retry: 1 note. One more call: 2 notes. Done.");
    Ok(report)
}

/// `counterfoil wrap` around the server of notes, which dies after its first note.
fn guarded(directory: &Path, file: &Path) -> anyhow::Result<tokio::process::Command> {
    let settings = directory.join("wrap.toml");
    std::fs::write(&settings, include_str!("wrap.toml")).context("cannot write the settings")?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = std::fs::File::create(directory.join("guard.log")).context("cannot make a log")?;
    let mut command = own_command()?;
    command.args(["wrap", "--data-dir"]).arg(directory.join("data"));
    command.args(["--principal", PRINCIPAL, "--preset"]).arg(&settings).arg("--");
    command.arg(program).args(["demo", "notes", "--die-after", "1", "--file"]).arg(file);
    command.stderr(log);
    Ok(command)
}

fn note(id: Option<&str>) -> Value {
    let mut arguments = json!({ "text": TEXT });
    if let Some(id) = id {
        arguments["operation_id"] = id.into();
    }
    arguments
}

/// The result of a call as JSON, `_meta` and all.
async fn call(client: &Client, tool: &'static str, arguments: Value) -> anyhow::Result<Value> {
    let arguments = rmcp::model::object(arguments);
    let call = CallToolRequestParams::new(tool).with_arguments(arguments);
    match client.call_tool_once(call).await? {
        CallToolResponse::Complete(result) => complete(&result),
        other => anyhow::bail!("the server did not answer at once: {other:?}"),
    }
}

fn complete(result: &CallToolResult) -> anyhow::Result<Value> {
    serde_json::to_value(result).context("a result is JSON")
}

/// Asks until the operation is settled; its state.
async fn settled(client: &Client) -> anyhow::Result<String> {
    let begun_at = Instant::now();
    loop {
        let arguments = json!({ "operation_id": OPERATION });
        let said = call(client, "get_operation_status", arguments).await?;
        let state = text(&said["structuredContent"]["state"])?;
        if state != "unknown" {
            return Ok(state);
        }
        ensure!(begun_at.elapsed() < PATIENCE, "the operation stays unknown: {said}");
        tokio::time::sleep(LOOK).await;
    }
}

fn text(value: &Value) -> anyhow::Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("a text is missing: {value}"))
}
