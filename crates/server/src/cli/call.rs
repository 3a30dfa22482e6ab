//! `counterfoil call`: calls one tool of a server, and survives a lost reply.

mod pending;
mod plan;
mod read;
mod report;
mod screen;
mod server;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use counterfoil_client::{
    Call, ConnectError, Connector, Consumer, HttpProblem, Journal, LostReason, NotSent, Outcome,
    Question, Reading, Sent, Settled, ToolReply, Who,
};
use counterfoil_core::consumer::Expected;
use counterfoil_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use crate::serve::shutdown_signal;
use plan::{Plan, Target};
use report::Report;
use screen::Screen;
use server::{HttpArgs, Server};

const USAGE: &str = "counterfoil call [OPTIONS] <TOOL> -- <SERVER>...
       counterfoil call [OPTIONS] <TOOL> --url <URL> [--token-file <FILE> | --token-env <VAR>]
       counterfoil call --pending [--json] [--journal <FILE>]";

const EXAMPLE: &str = "\
Example: create an issue, and answer the question for its body

  counterfoil call create_issue --args '{\"title\":\"Broken link\"}' --answer body=Hello \\
      -- counterfoil serve --stdio

or over HTTP, as the principal of a token:

  counterfoil call create_issue --args '{\"title\":\"Broken link\"}' --answer body=Hello \\
      --url http://127.0.0.1:8787/mcp --token-file alice.token

The operation's ID is written to the journal before anything is sent. If the reply is lost, the
call is never sent again: `get_operation_status` is asked, and the stored result is printed. If
even that does not settle it, the exit code is 3 and the command that asks again is printed:

  counterfoil call get_operation_status --args '{\"operation_id\":\"...\"}' \\
      -- counterfoil serve --stdio

This one only reads: it has no journal entry and no ID of its own; but what it learns closes the
call's entry. list_operations is called as a plain read too, if the server announces a ledger and
marks the tool as a read. Of any other tool a server's word proves nothing: it is called as a write,
unless --read is given.

Over HTTP each request has a connection of its own, nothing is sent twice, redirects are not
followed and proxies are not used. The token is in no argument, address, journal or log.

The journal is $XDG_STATE_HOME/counterfoil/calls.jsonl, without that variable
~/.local/state/counterfoil/calls.jsonl, or what --journal names. Only its owner has access. It has
the ID, the tool, the server's program or address and the time of each call, and what became of it;
no arguments and no token. `counterfoil call --pending` lists the calls whose outcome is still unknown.

On SIGINT (Ctrl-C) and SIGTERM the command says what is known and ends: with 1 if nothing was sent,
with 3 if the call may have been.

Exit codes:
  0    applied; the result is on stdout. With --pending: listed
  1    not applied, applied in part, an error of the tool, or nothing was sent: no session with
       the server, or interrupted
  2    bad input: arguments, answers, an unknown tool, or input that the tool still asks for
  3    the outcome is unknown: ask again, do not send again
  4    refused: conflict, expired, in progress, over a limit, or no authority
  127  the server's command was not found

With --json, stdout has one object with operationId, submission, effect, action, state, recovered
and result; where there is one, also observation, refused, missing, doubt and next. A read has
read, isError and result.";

/// Call one tool of an MCP server, once, and recover its result if the reply is lost.
#[derive(Clone, clap::Args)]
#[command(after_help = EXAMPLE, override_usage = USAGE)]
pub(super) struct CallArgs {
    /// The tool to call
    #[arg(required_unless_present = "pending")]
    pub tool: Option<String>,
    /// The tool's arguments, a JSON object; @FILE reads a file, - reads stdin
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    pub arguments: String,
    /// The operation's ID; without it a new one is made and printed
    #[arg(long, value_name = "ID")]
    pub operation_id: Option<String>,
    /// The answer to a question of the tool, by the name of the form's field; repeatable
    #[arg(long = "answer", value_name = "KEY=TEXT")]
    pub answers: Vec<String>,
    /// Where identities are saved [default: $XDG_STATE_HOME/counterfoil/calls.jsonl, else
    /// ~/.local/state/counterfoil/calls.jsonl]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Your principal; an account for another one is then not believed
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
    /// The tool only reads: make no ID, keep no journal, recover nothing
    #[arg(long, conflicts_with_all = ["operation_id", "answers"])]
    pub read: bool,
    /// How long the call may take, and then how long asking may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Print one JSON object, and nothing on stderr but errors and, on a terminal, further tries
    #[arg(long)]
    pub json: bool,
    /// List the calls whose outcome is still unknown; calls nothing and starts no server
    #[arg(long, conflicts_with_all = ["tool", "arguments", "operation_id", "answers", "principal",
          "timeout", "server", "url", "read"])]
    pub pending: bool,
    /// The server's command and its arguments, after --
    #[arg(last = true, required_unless_present_any = ["pending", "url"], num_args = 1..,
          value_name = "SERVER")]
    pub server: Vec<OsString>,
    // The last, as its heading is that of all arguments after it.
    #[command(flatten)]
    http: HttpArgs,
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
/// If stdout or stderr cannot be written, or signals cannot be watched for.
pub(super) async fn run(args: CallArgs) -> anyhow::Result<Exit> {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let tells_tries = !args.json || err.is_terminal();
    run_on(args, tells_tries, shutdown_signal, &mut out, &mut err).await
}

async fn run_on<O: Write, E: Write + Send>(
    args: CallArgs,
    tells_tries: bool,
    signals: impl FnOnce() -> io::Result<CancellationToken>,
    out: &mut O,
    err: &mut E,
) -> anyhow::Result<Exit> {
    let json = args.json;
    if args.pending {
        return Ok(pending::run(&args, out, err)?);
    }
    let (plan, server) = match prepare(args) {
        Ok(prepared) => prepared,
        Err(words) => {
            writeln!(err, "error: {words}")?;
            return Ok(Exit::Usage);
        }
    };
    // Not before: while stdin is read, a signal ends the process, as nothing is at stake yet.
    let stop = signals().context("the process cannot watch for signals")?;
    let screen = Screen::new(err, tells_tries, stop);
    let ended = match &server {
        Server::Child(child) => Box::pin(perform(plan, child, &screen)).await,
        Server::Http(http) => Box::pin(perform(plan, http, &screen)).await,
    };
    drop(screen);
    match ended {
        Ok(Ended::Reported(report)) => {
            report.print(json, out, err)?;
            Ok(report.exit())
        }
        Ok(Ended::Read(reply)) => Ok(read::print(&reply, json, out, err)?),
        Err(failure) => {
            writeln!(err, "error: {}", failure.words)?;
            Ok(failure.exit)
        }
    }
}

/// Checks the command line; what is wrong with it, in words.
fn prepare(args: CallArgs) -> Result<(Plan, Server), String> {
    let plan = Plan::new(args).map_err(|problem| problem.to_string())?;
    let server = plan.server.connector().map_err(|problem| problem.to_string())?;
    Ok((plan, server))
}

/// How a call ended that was made.
enum Ended {
    Reported(Report),
    Read(ToolReply),
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
            NotSent::Connect(ConnectError::Http(problem)) if problem.is_authority() => {
                Exit::Refused
            }
            NotSent::NoSuchTool(_) | NotSent::TwoIds(_) => Exit::Usage,
            NotSent::Connect(_) | NotSent::NoTools(_) | NotSent::Interrupted => Exit::Failed,
        };
        let remedy = match &error {
            NotSent::Connect(ConnectError::Http(HttpProblem::Status {
                status: 401,
                had_token: false,
                ..
            })) => ", by --token-file FILE or --token-env VAR",
            _ => "",
        };
        Self { exit, words: format!("{error}{remedy}; nothing was sent") }
    }
}

async fn perform<C: Connector, E: Write + Send>(
    plan: Plan,
    server: &C,
    screen: &Screen<'_, E>,
) -> Result<Ended, Failure> {
    let again = plan.ask_again();
    let who = Who { principal: plan.principal.clone(), backend: None };
    let (operation_id, arguments) = match plan.target {
        Target::Read { arguments, is_told } => {
            let reading = Reading::new(plan.tool, arguments, is_told);
            let reply = reading.send_watched(server, &plan.limits, screen).await;
            return reply.map(Ended::Read).map_err(read::failure);
        }
        Target::Status(operation_id) => {
            let principal = who.principal;
            let question = Question::new(Expected { operation_id, principal, backend: None });
            let settled = question.ask_watched(server, &plan.limits, screen).await;
            if let Some(journal) = &plan.journal {
                close_entry(journal, &settled, server.name());
            }
            return Ok(Ended::Reported(Report::of_settled(settled, None, again)));
        }
        Target::Write { operation_id, arguments } => (operation_id, arguments),
    };
    if !plan.json {
        let new = if plan.is_new { " (new)" } else { "" };
        screen.say(&format!("operation ID: {operation_id}{new}"));
    }
    let journal = plan.journal.expect("the plan of a write has one");
    let journal = Journal::open(&journal).map_err(|error| failed(&error))?;
    let consumer = Consumer::new(journal, who, plan.limits);
    let operation_id = Some(operation_id);
    let call = Call { tool: plan.tool, arguments, operation_id, answers: plan.answers };
    let prepared = consumer.prepare(call, server.name(), now()).map_err(|error| failed(&error))?;
    let lost = match Box::pin(prepared.send_watched(server, screen)).await? {
        Sent::Finished(finished) => {
            return Ok(Ended::Reported(Report::of_finished(finished, again)));
        }
        Sent::Lost(lost) => lost,
    };
    let reason = lost.reason().clone();
    let settled = if reason == LostReason::Interrupted {
        lost.unasked()
    } else {
        if !plan.json {
            screen.say(&format!("{reason}; the effect is unknown: asking, not sending again"));
        }
        lost.reconcile_watched(server, screen).await
    };
    Ok(Ended::Reported(Report::of_settled(settled, Some(reason), again)))
}

/// Notes what a question settled, if the journal has the call. A failure costs the note alone.
fn close_entry(journal: &Path, settled: &Settled, server: &str) {
    let Some(outcome) = Outcome::of(settled.belief.effect) else { return };
    let id = settled.operation_id.as_ref();
    let noted = Journal::pending(journal).and_then(|pending| {
        // A question alone makes no journal, and adds no line about what is not in it.
        if pending.iter().all(|entry| entry.operation_id.as_ref() != id || entry.server != server) {
            return Ok(());
        }
        Journal::open(journal)?.settle(id, server, outcome)
    });
    if let Err(error) = noted {
        tracing::warn!(%error, "the outcome is not noted in the journal");
    }
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
