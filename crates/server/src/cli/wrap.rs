//! `counterfoil wrap`: puts the guard in front of any MCP server that speaks over stdio.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tokio_util::sync::CancellationToken;

use crate::cli::UsageError;
use crate::cli::exit::Exit;
use crate::config::{Environment, Flags, Settings, SettingsArgs};
use crate::wrap::settings::{UpstreamKey, WrapSettings};
use crate::wrap::{
    DEFAULT_MAX_LINE_BYTES, REAPER_COMMAND, StartError, StopTimes, WrapError, WrapOptions, explain,
    guarded, reaper,
};
use crate::{output, serve};

/// Guard an MCP server that knows nothing of operations
///
/// Starts the server and relays between it and the client, which speaks over our stdin and stdout
/// as it would with the server itself. Each call of a tool that may change something is recorded
/// before it is sent; if its reply is lost it is never sent again: it is looked for, or stays in doubt
/// until somebody looks. Everything else travels as it came. The server's stderr is passed on behind
/// its name. A server that ends by itself is started again and told what the session had agreed on.
/// When the client leaves, or on SIGTERM, guarded calls that are under way have the time of --drain to
/// be answered. Then the server's stdin is closed; 5 s later (1 s after a SIGTERM to us) it is sent
/// SIGTERM, and SIGKILL another 2 s later. It has ended, with all processes that came of it, when this
/// one has, even if this one is killed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil wrap -- npx -y @modelcontextprotocol/server-memory
  counterfoil wrap --preset memory --explain -- npx -y @modelcontextprotocol/server-memory
  counterfoil wrap --name files --preset filesystem -- \\
      npx -y @modelcontextprotocol/server-filesystem /srv/files

In the configuration of an MCP client (`counterfoil init` writes it for you):
  {\"mcpServers\": {\"memory\": {\"command\": \"counterfoil\",
    \"args\": [\"wrap\", \"--\", \"npx\", \"-y\", \"@modelcontextprotocol/server-memory\"]}}}

The exit code is 0 when the client has left or this process was told to stop, however the server
ended then; 127 if the server's command was not found; 1 if it could not be started otherwise, came
back as another one after a restart, or the ledger could not be opened.")]
pub(super) struct WrapArgs {
    /// The server's name: before each line of its stderr, and its key in the ledger
    ///
    /// Operations belong to the key, so that a server that is started in another way finds its own
    /// again. Default: the command's file name, and in the ledger a digest of command, arguments and
    /// directory.
    #[arg(long, value_name = "NAME", value_parser = UpstreamKey::parse)]
    name: Option<UpstreamKey>,
    /// Settings for a known server: filesystem, git, memory, sqlite, or a file; may be given more
    /// than once
    #[arg(long = "preset", value_name = "NAME|FILE")]
    presets: Vec<String>,
    /// Start the server, show what happens to each of its tools and why, and end
    #[arg(long)]
    explain: bool,
    /// With --explain: JSON on stdout
    #[arg(long, requires = "explain")]
    json: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    /// The server's command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Guards a server until the client leaves. One thread: a relay waits for others nearly all of its
/// time.
///
/// # Errors
/// A server that cannot be started, or that changed; settings or a ledger that cannot be used.
pub(super) fn run(args: WrapArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.settings), env)?;
    let mut rules = WrapSettings::load(&args.presets, settings.config_file.as_deref())?;
    check_ages(rules.join_age, settings.lifetimes.retention.as_duration())?;
    if let Some(name) = &args.name {
        rules.name = Some(name.clone());
    }
    let options = WrapOptions {
        name: rules.name.as_ref().map_or_else(|| default_name(&args.command), ToString::to_string),
        command: args.command,
        program: own_program()?,
        max_line_bytes: DEFAULT_MAX_LINE_BYTES.max(rules.max_result_bytes.saturating_mul(2)),
        stop_times: StopTimes { settle: settings.drain, ..StopTimes::default() },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the process cannot start its runtime")?;
    let ended = runtime.block_on(async {
        let stop = serve::shutdown_signal().context("the process cannot watch for SIGTERM")?;
        if args.explain {
            return explain(options, Arc::new(rules), args.json, stop).await;
        }
        guarded::run(options, settings, Arc::new(rules), env, stop).await
    });
    // A read of a terminal's stdin must not hold the process.
    runtime.shutdown_background();
    match ended {
        Ok(()) => Ok(Exit::Done),
        Err(error) if is_not_found(&error) => {
            output::error(&error);
            Ok(Exit::NotFound)
        }
        Err(error) => Err(error),
    }
}

/// What is forgotten cannot be joined: an equal call would be refused, and then be new work.
fn check_ages(join_age: Duration, retention: Duration) -> Result<(), UsageError> {
    if join_age <= retention {
        return Ok(());
    }
    Err(UsageError(format!(
        "wrap.join_age ({join_age:?}) is longer than lifetimes.retention ({retention:?}): an answer \
         that an equal call may still join must be kept as long; shorten the one or lengthen the other"
    )))
}

fn is_not_found(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(WrapError::Start(StartError::NotFound(_))))
}

/// Starts the server, asks it for its tools, and shows the plan for each.
async fn explain(
    options: WrapOptions,
    rules: Arc<WrapSettings>,
    json: bool,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let plans = guarded::plans_of(options, rules, stop).await?;
    if json {
        output::json(&explain::json(&plans))?;
    } else {
        output::data(explain::text(&plans))?;
    }
    Ok(())
}

/// The server's command and its arguments, if that is a reaper's command line: it is for
/// `counterfoil wrap` alone, and no part of ours.
pub(super) fn reaper_of(arguments: &[OsString]) -> Option<&[OsString]> {
    match arguments {
        [_, name, dashes, command @ ..]
            if name == REAPER_COMMAND && dashes == "--" && !command.is_empty() =>
        {
            Some(command)
        }
        _ => None,
    }
}

/// What a person who left out the `--` of a wrap is told besides: a word stands where only options do.
pub(super) fn hint_of(arguments: &[OsString], error: &clap::Error) -> Option<&'static str> {
    let is_wrap = arguments.get(1).is_some_and(|name| name == "wrap");
    let has_dashes = arguments.iter().any(|word| word == "--");
    let is_word = error.kind() == ErrorKind::UnknownArgument
        && matches!(
            error.get(ContextKind::InvalidArg),
            Some(ContextValue::String(word)) if !word.starts_with('-')
        );
    (is_wrap && is_word && !has_dashes).then_some(
        "the server's command stands behind --, as in: counterfoil wrap -- npx -y SERVER",
    )
}

/// Looks after a server until the wrap that started this process is gone; its orders come over its
/// stdin.
///
/// # Errors
/// A stdin that is no wrap's.
pub(super) fn run_reaper(command: &[OsString]) -> anyhow::Result<Exit> {
    reaper::run(command).context("this command is for `counterfoil wrap` alone")?;
    Ok(Exit::Done)
}

fn default_name(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    output::printable(&program.to_string_lossy())
}

/// This binary, even if its file was replaced since.
fn own_program() -> anyhow::Result<std::path::PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() {
        return Ok(own.to_owned());
    }
    std::env::current_exe().context("the process cannot find its own binary")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_reaper_is_started_by_its_own_words_alone() {
        // Promise: no slip of a person starts a reaper, or is told of one.
        let check = |line, expected: Option<&str>| {
            let line = words(line);
            assert_eq!(reaper_of(&line).map(<[_]>::to_vec), expected.map(words), "{line:?}");
        };
        check("counterfoil wrap-reaper -- npx -y x", Some("npx -y x"));
        check("counterfoil wrap-reaper --", None);
        check("counterfoil wrap-reaper x", None);
        check("counterfoil wrap -- wrap-reaper -- x", None);
        let names: Vec<_> =
            crate::cli::command().get_subcommands().map(|it| it.get_name().to_owned()).collect();
        assert!(!names.iter().any(|name| name == REAPER_COMMAND), "{names:?}");
    }

    #[test]
    fn who_leaves_out_the_dashes_is_told_of_them() {
        // Promise: a word where the `--` is missing is told of; no other slip is.
        let check = |line: &str, is_told| {
            let line = words(line);
            let error = crate::cli::command().try_get_matches_from(&line).expect_err("a slip");
            assert_eq!(hint_of(&line, &error).is_some(), is_told, "{line:?}");
        };
        check("counterfoil wrap npx -y x", true);
        check("counterfoil wrap --name x npx", true);
        check("counterfoil wrap", false);
        check("counterfoil wrap --name x", false);
        check("counterfoil wrap --nmae x", false);
        check("counterfoil wrap --nmae x -- npx", false);
        check("counterfoil wrap npx -- x", false);
        check("counterfoil wrap --help", false);
        check("counterfoil serve npx", false);
    }

    #[test]
    fn what_may_be_joined_is_kept() {
        // Promise: no setting lets an answer be forgotten while an equal call may still join it.
        let hour = Duration::from_secs(3600);
        assert!(check_ages(hour, hour).is_ok());
        let refused = check_ages(hour * 2, hour).expect_err("too long").to_string();
        for words in ["wrap.join_age (7200s)", "lifetimes.retention (3600s)", "shorten the one"] {
            assert!(refused.contains(words), "{refused}");
        }
    }
}
