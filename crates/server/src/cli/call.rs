//! `counterfoil call`: calls one tool of a server, and survives a lost reply.

mod plan;
mod report;

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use counterfoil_client::{
    Call, ChildConnector, ConnectError, Connector, Consumer, Journal, NotSent, Question, Sent, Who,
};
use counterfoil_core::consumer::Expected;
use counterfoil_core::time::Timestamp;

use super::exit::Exit;
use plan::{Plan, Target};
use report::Report;

const EXAMPLE: &str = "\
Example: create an issue, and answer the question for its body

  counterfoil call create_issue --args '{\"title\":\"Broken link\"}' --answer body=Hello \\
      -- counterfoil serve --stdio

The operation's ID is written to the journal before anything is sent. If the reply is lost, the
call is never sent again: `get_operation_status` is asked, and the stored result is printed. If
even that does not settle it, the exit code is 3 and the command that asks again is printed:

  counterfoil call get_operation_status --args '{\"operation_id\":\"...\"}' \\
      -- counterfoil serve --stdio

This one only reads: it has no journal entry and no ID of its own.

Exit codes:
  0    applied; the result is on stdout
  1    not applied, applied in part, an error of the tool, or no session with the server
  2    bad input: arguments, answers, an unknown tool, or input that the tool still asks for
  3    the outcome is unknown: ask again, do not send again
  4    refused: conflict, expired, in progress, or no authority
  127  the server's command was not found

With --json, stdout has one object with operationId, submission, effect, action, state, recovered
and result; where there is one, also observation, refused, missing, doubt and next.";

/// Call one tool of an MCP server, once, and recover its result if the reply is lost.
#[derive(Clone, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(super) struct CallArgs {
    /// The tool to call
    pub tool: String,
    /// The tool's arguments, a JSON object; @FILE reads a file, - reads stdin
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// The operation's ID; without it a new one is made and printed
    #[arg(long, value_name = "ID")]
    pub operation_id: Option<String>,
    /// The answer to a question of the tool, by the name of the form's field; repeatable
    #[arg(long = "answer", value_name = "KEY=TEXT")]
    pub answers: Vec<String>,
    /// Where identities are saved [default: counterfoil/calls.jsonl in the XDG state directory]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Your principal; an account for another one is then not believed
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
    /// How long the call may take, and then how long asking may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print one JSON object, and nothing on stderr but errors
    #[arg(long)]
    pub json: bool,
    /// The server's command and its arguments, after --
    #[arg(last = true, required = true, num_args = 1.., value_name = "SERVER")]
    pub server: Vec<OsString>,
}

impl fmt::Debug for CallArgs {
    /// Arguments, answers and the server's command line may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallArgs").field("tool", &self.tool).finish_non_exhaustive()
    }
}

/// Runs the command on the process's own stdout and stderr.
///
/// # Errors
/// If stdout or stderr cannot be written.
pub(super) async fn run(args: CallArgs) -> anyhow::Result<Exit> {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    run_on(args, &mut out, &mut err).await
}

async fn run_on<O: Write, E: Write>(
    args: CallArgs,
    out: &mut O,
    err: &mut E,
) -> anyhow::Result<Exit> {
    let json = args.json;
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(problem) => {
            writeln!(err, "error: {problem}")?;
            return Ok(Exit::Usage);
        }
    };
    let report = match Box::pin(perform(plan, err)).await? {
        Ok(report) => report,
        Err(failure) => {
            writeln!(err, "error: {}", failure.words)?;
            return Ok(failure.exit);
        }
    };
    report.print(json, out, err)?;
    Ok(report.exit())
}

/// Nothing was sent.
struct Failure {
    exit: Exit,
    words: String,
}

impl From<NotSent> for Failure {
    fn from(error: NotSent) -> Self {
        let exit = match &error {
            NotSent::Connect(ConnectError::NotFound(_)) => Exit::NotFound,
            NotSent::NoSuchTool(_) | NotSent::TwoIds(_) => Exit::Usage,
            NotSent::Connect(_) | NotSent::NoTools(_) => Exit::Failed,
        };
        Self { exit, words: format!("{error}; nothing was sent") }
    }
}

async fn perform<E: Write>(plan: Plan, err: &mut E) -> anyhow::Result<Result<Report, Failure>> {
    let (program, rest) = plan.server.split_first().expect("clap requires at least one word");
    let server = ChildConnector::new(program.clone(), rest.to_vec(), Vec::new());
    let again = plan.ask_again();
    let who = Who { principal: plan.principal.clone(), backend: None };
    let (operation_id, arguments) = match plan.target {
        Target::Status(operation_id) => {
            let principal = who.principal;
            let question = Question::new(Expected { operation_id, principal, backend: None });
            let settled = question.ask(&server, &plan.limits).await;
            return Ok(Ok(Report::of_settled(settled, None, again)));
        }
        Target::Write { operation_id, arguments } => (operation_id, arguments),
    };
    if plan.is_new && !plan.json {
        writeln!(err, "operation ID: {operation_id} (new)")?;
    }
    let consumer = match Journal::open(&plan.journal) {
        Ok(journal) => Consumer::new(journal, who, plan.limits),
        Err(error) => return Ok(Err(failed(&error))),
    };
    let operation_id = Some(operation_id);
    let call = Call { tool: plan.tool, arguments, operation_id, answers: plan.answers };
    let prepared = match consumer.prepare(call, server.name(), now()) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(failed(&error))),
    };
    let lost = match prepared.send(&server).await {
        Ok(Sent::Finished(finished)) => return Ok(Ok(Report::of_finished(finished, again))),
        Ok(Sent::Lost(lost)) => lost,
        Err(error) => return Ok(Err(error.into())),
    };
    let reason = lost.reason().to_string();
    if !plan.json {
        writeln!(err, "{reason}; the effect is unknown: asking, not sending again")?;
    }
    let settled = lost.reconcile(&server).await;
    Ok(Ok(Report::of_settled(settled, Some(reason), again)))
}

fn failed(error: &counterfoil_client::JournalError) -> Failure {
    Failure { exit: Exit::Failed, words: error.to_string() }
}

/// The wall clock, for the journal's own record of when it was written.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ms = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Timestamp::from_ms(ms)
}

#[cfg(test)]
#[path = "call/tests.rs"]
mod tests;
