//! The command line: one module for each noun, data on stdout, everything else on stderr.

mod audit;
mod call;
mod completions;
mod config;
mod connector;
mod delivery;
mod demo;
pub mod exit;
mod fingerprint;
mod init;
mod key;
mod ledger;
mod operation;
mod revoke;
mod serve;
mod store;
mod table;
mod target;
mod ticket;
mod token;
mod version;
mod who;
mod worker;
mod wrap;

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{ConfigError, Environment, LOG_VARIABLE};
use crate::demo::child::DemoChildArgs;
use crate::logging::{self, LoggingError};
use crate::output;
use exit::{EXIT_CODES_HELP, Exit};

const ABOUT: &str = "Makes the side effects of AI agents' tool calls safe: a missing reply never \
                     grants a fresh write";

/// The settings' sources and the exit codes, below every help.
const SETTINGS_HELP: &str = "\
Settings come from, the stronger last: defaults, the configuration's file, the environment, flags.
The setting lifetimes.state is the variable COUNTERFOIL_LIFETIMES_STATE and, where a command has it,
the flag --lifetimes-state. A SPAN is a number of seconds, or such as 10m, 36h, 30d, 1h30m.
";

#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, long_version = version::long(), about = ABOUT, max_term_width = 100)]
#[command(after_help = EXIT_CODES_HELP, after_long_help = format!("{SETTINGS_HELP}\n{EXIT_CODES_HELP}"))]
struct Cli {
    /// What is logged to stderr: off, error, warn, info, debug, trace, or such as
    /// counterfoil_store=debug,warn [default: warn]
    ///
    /// Arguments and results are never logged, at no level. [env: COUNTERFOIL_LOG]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // Boxed: it has every setting.
    Serve(Box<serve::ServeArgs>),
    Worker(worker::WorkerArgs),
    Wrap(Box<wrap::WrapArgs>),
    Call(call::CallArgs),
    Operation(operation::OperationArgs),
    Delivery(delivery::DeliveryArgs),
    Target(target::TargetArgs),
    Principal(revoke::PrincipalArgs),
    Tenant(revoke::TenantArgs),
    Audit(audit::AuditArgs),
    Key(key::KeyArgs),
    Token(token::TokenArgs),
    Store(store::StoreArgs),
    Fingerprint(fingerprint::FingerprintArgs),
    Config(config::ConfigArgs),
    Connector(connector::ConnectorArgs),
    Init(init::InitArgs),
    Completions(completions::CompletionsArgs),
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    DemoChild(DemoChildArgs),
}

/// Bad input that only the command itself can recognise.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// The whole command line, for help and its tests.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// The same without what is hidden, for completion: clap can take no command away.
fn public_command() -> clap::Command {
    let whole = command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    clap::Command::new("counterfoil")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown.cloned())
}

/// Runs the command that `arguments` name, the program's own name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Before the command line is built: it is no command of a person's, and it stays as long as its
    // wrap does, with all the pages that it ever touched.
    if let Some(command) = wrap::reaper_of(&arguments) {
        return wrap::run_reaper(command).unwrap_or_else(|error| {
            output::error(&error);
            Exit::Failed
        });
    }
    let given = arguments.clone();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version too come this way. Where nobody reads them, nothing is lost.
            let _ = error.print();
            if let Some(hint) = wrap::hint_of(&given, &error) {
                output::note(hint);
            }
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    logging::install_panic_hook();
    run(cli).unwrap_or_else(|error| {
        output::error(&error);
        exit_of(&error)
    })
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let env = Environment::of_process();
    let variable = env.get(LOG_VARIABLE).map(|filter| filter.to_string_lossy().into_owned());
    logging::init(cli.log.or(variable).as_deref())?;
    // These have a runtime of their own, or none.
    let command = match cli.command {
        Command::Wrap(args) => return wrap::run(*args, &env),
        command => command,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the process cannot start its threads")?;
    let ended = runtime.block_on(async {
        match command {
            Command::Serve(args) => Box::pin(serve::run(*args, &env)).await,
            Command::Worker(args) => Box::pin(worker::run(&args, &env)).await,
            Command::Operation(args) => Box::pin(operation::run(args, &env)).await,
            Command::Delivery(args) => Box::pin(delivery::run(args, &env)).await,
            Command::Target(args) => Box::pin(target::run(args, &env)).await,
            Command::Principal(args) => Box::pin(revoke::run_principal(args, &env)).await,
            Command::Tenant(args) => Box::pin(revoke::run_tenant(args, &env)).await,
            Command::Audit(args) => Box::pin(audit::run(args, &env)).await,
            Command::Key(args) => Box::pin(key::run(args, &env)).await,
            Command::Token(args) => token::run(args, &env),
            Command::Call(args) => Box::pin(call::run(args)).await,
            Command::Demo(args) => Box::pin(demo::run(args)).await,
            Command::DemoChild(args) => Box::pin(crate::demo::child::run(args)).await,
            Command::Store(args) => Box::pin(store::run(args, &env)).await,
            Command::Fingerprint(args) => fingerprint::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Config(args) => config::run(&args, &env),
            Command::Init(args) => init::run(&args),
            Command::Connector(args) => Box::pin(connector::run(args, &env)).await,
            Command::Wrap(_) => unreachable!("run above"),
        }
    });
    // A read of stdin that nobody will answer must not hold the process.
    runtime.shutdown_background();
    ended
}

/// Bad input and bad settings are the caller's to correct; everything else failed.
fn exit_of(error: &anyhow::Error) -> Exit {
    let callers = error.chain().any(|cause| {
        cause.is::<ConfigError>()
            || cause.is::<UsageError>()
            || matches!(cause.downcast_ref(), Some(LoggingError::Filter { .. }))
    });
    if callers { Exit::Usage } else { Exit::Failed }
}
