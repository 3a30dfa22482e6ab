//! `counterfoil demo`: a real client calls a real server over stdio, the effect commits, the reply
//! vanishes, and the ledger answers. Nothing is simulated but the loss of the reply, which the
//! hidden child brings about by dying before it writes it.

mod account;
pub mod child;
pub mod desk;
pub mod outage;
mod tee;
pub mod wrap;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use counterfoil_core::consumer::{self, Action, Expected};
use counterfoil_core::identity::{OperationId, Principal};
use counterfoil_core::observation::Observation;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    ElicitationCapability, FormElicitationCapability, Implementation, InputResponses,
    ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::{RoleClient, ServiceError};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use account::Account;
use tee::Tee;

const CASE: &str = "case-03";
const PRINCIPAL: &str = "alice";

/// What the demo saw, as JSON on stdout.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    case: &'static str,
    input_required: bool,
    operation_id: &'static str,
    transport_after_commit: String,
    status: Value,
    replay: Value,
    physical_issue_rows: u64,
    physical_operation_rows: u64,
    raw_artifacts: PathBuf,
}

/// Runs the demo in `directory`, which must not exist yet.
///
/// # Errors
/// If anything happens that the product promises will not.
pub async fn run(directory: &Path, quiet: bool) -> anyhow::Result<DemoReport> {
    make_new(directory)?;
    let account = Account::new(quiet);
    let data_dir = directory.join("data");
    account.intro("The lost reply, recovered (case 03, SQLite).", directory);

    account.step(1, "A client calls create_issue. The server asks for the issue's text.");
    let first = connect(&data_dir, &directory.join("first.jsonl"), child::Mode::LoseReply).await?;
    let call = create_issue();
    let asked = match first.client.call_tool_once(call.clone()).await? {
        CallToolResponse::InputRequired(asked) => asked,
        other => bail!("the server did not ask for input but answered {other:?}"),
    };
    let state = asked.request_state.context("the server asked without a sealed state")?;
    account.fact("input_required: nothing is written yet; the state is sealed");

    account.step(2, "The client answers. The server commits record and issue in one transaction…");
    let continuation = call.with_input_responses(answer()).with_request_state(state);
    let lost = match first.client.call_tool_once(continuation.clone()).await {
        Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_))) => error,
        other => bail!("the reply was to vanish, and yet this came: {other:?}"),
    };
    let code = first.ended().await?;
    ensure!(code == Some(child::EXIT_BEFORE_REPLY), "the server ended with {code:?}");
    account.loss(&format!("…and dies before the reply leaves ({lost}; server exit code 70)"));
    let belief = consumer::after_transport_failure();
    ensure!(belief.action == Action::Reconcile, "a lost reply leads to a question");
    account.fact("the client knows nothing now: did it happen? It does not send again. It asks.");

    account.step(3, "The server starts again. The client asks get_operation_status, read-only.");
    let second = connect(&data_dir, &directory.join("second.jsonl"), child::Mode::Serve).await?;
    let status = status(&second.client).await?;
    account.answer(&format!(
        "the record answers: state {}, stored result {}",
        status["state"], status["storedResult"]
    ));

    account.step(4, "To be sure, the very same continuation is sent once more.");
    let replay = complete(second.client.call_tool_once(continuation).await?)?;
    account.answer(&format!(
        "the stored result comes back: effect {}, replayed {}",
        replay["effectId"], replay["replayed"]
    ));
    second.close().await?;

    let rows = physical_rows(&data_dir)?;
    let report = DemoReport {
        case: "03",
        input_required: true,
        operation_id: CASE,
        transport_after_commit: "unknown; no reply".into(),
        status: pick(
            &status,
            &[
                "operationId",
                "principal",
                "backend",
                "state",
                "authoritative",
                "freshWriteAuthorized",
                "matchingIds",
                "storedResult",
            ],
        ),
        replay: pick(&replay, &["operationId", "effectId", "replayed", "state"]),
        physical_issue_rows: rows[0],
        physical_operation_rows: rows[1],
        raw_artifacts: directory.to_owned(),
    };
    ensure!(rows == [1, 1], "the ledger holds {} issues and {} operations", rows[0], rows[1]);
    account.outro(&format!("One call, one lost reply, one retry: {} issue. Done.", rows[0]));
    Ok(report)
}

/// The issues and the operations that are physically there.
fn physical_rows(data_dir: &Path) -> anyhow::Result<[u64; 2]> {
    let found = counterfoil_store::sqlite::check(data_dir.join("ledger.db"))?;
    ensure!(found.is_sound(), "the ledger is not sound: {}", found.problems.join("; "));
    let issues = found.effect_tables.get("issues").copied().unwrap_or_default();
    Ok([issues, found.operations_count])
}

fn make_new(directory: &Path) -> anyhow::Result<()> {
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make {}", parent.display()))?;
    }
    std::fs::create_dir(directory).with_context(|| {
        format!("{} must not exist yet; give another --output-dir", directory.display())
    })
}

fn create_issue() -> CallToolRequestParams {
    let arguments = json!({ "operation_id": CASE, "title": "Export fails" });
    CallToolRequestParams::new("create_issue").with_arguments(rmcp::model::object(arguments))
}

fn answer() -> InputResponses {
    let accepted = json!({ "action": "accept", "content": { "body": "It stops at row 65,536." } });
    InputResponses::from([("body".to_owned(), accepted)])
}

/// Asks, and believes the answer only if the consumer's rules do.
async fn status(client: &RunningService<RoleClient, ClientConfig>) -> anyhow::Result<Value> {
    let arguments = rmcp::model::object(json!({ "operation_id": CASE }));
    let call = CallToolRequestParams::new("get_operation_status").with_arguments(arguments);
    let status = complete(client.call_tool_once(call).await?)?;
    let observation: Observation = serde_json::from_value(status.clone())?;
    let expected = Expected {
        operation_id: OperationId::parse(CASE)?,
        principal: Some(Principal::parse(PRINCIPAL)?),
        backend: None,
    };
    let belief = consumer::accept(&expected, &observation)?;
    ensure!(belief.action == Action::ReturnStoredResult, "the effect was not settled: {status}");
    Ok(status)
}

fn complete(response: CallToolResponse) -> anyhow::Result<Value> {
    let CallToolResponse::Complete(CallToolResult { structured_content, is_error, .. }) = response
    else {
        bail!("the server asked for more input");
    };
    let content = structured_content.context("the result has no structured content")?;
    ensure!(is_error != Some(true), "the server refused: {content}");
    Ok(content)
}

fn pick(from: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), from[*name].clone())).collect()
}

/// A client on a child process of its own.
struct Connection {
    client: RunningService<RoleClient, ClientConfig>,
    child: Child,
}

impl Connection {
    /// Waits for the child, which ends by itself, and gives its exit code.
    async fn ended(mut self) -> anyhow::Result<Option<i32>> {
        let status = self.child.wait().await.context("cannot wait for the server")?;
        self.client.close().await?;
        Ok(status.code())
    }

    async fn close(mut self) -> anyhow::Result<()> {
        self.client.close().await?;
        let status = self.child.wait().await.context("cannot wait for the server")?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

async fn connect(
    data_dir: &Path,
    transcript: &Path,
    mode: child::Mode,
) -> anyhow::Result<Connection> {
    let mut command = own_command()?;
    command.args(child::arguments(data_dir, PRINCIPAL, mode));
    connect_to(command, transcript).await
}

/// This very program.
fn own_command() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    Ok(Command::new(program))
}

/// Starts a server, and a client of revision 2026-07-28 that keeps what passes in `transcript`.
async fn connect_to(mut command: Command, transcript: &Path) -> anyhow::Result<Connection> {
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the server")?;
    let input = child.stdin.take().context("the server has no stdin")?;
    let output = child.stdout.take().context("the server has no stdout")?;
    let log = tee::Transcript::create(transcript)?;
    let transport =
        (Tee::new(output, "server", log.clone()), Tee::new(input, "client", log.clone()));
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let mut capabilities = ClientCapabilities::default();
    let forms = ElicitationCapability::new().with_form(FormElicitationCapability::new());
    capabilities.elicitation = Some(forms);
    let info = ClientConfig::new(capabilities, Implementation::new("counterfoil-demo", "1"));
    let client = info
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .context("the server did not answer the handshake")?;
    Ok(Connection { client, child })
}
