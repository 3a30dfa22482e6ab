//! `counterfoil init`: wraps the servers in a client's settings, and takes that back.

mod diff;
mod write;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use self::write::{NEWEST_KEPT, backup, restored, thin_out, write};
use super::UsageError;
use super::exit::Exit;
use crate::output;
use crate::wrap::clients::{ClientFile, Server, ServerKind, Wrapping};

/// Wrap the MCP servers in a client's settings
///
/// Reads the JSON file in which a client keeps its servers (`mcpServers`, or `servers` as in VS Code),
/// shows what would change, asks, keeps a copy of the file beside it, and writes. Only command and
/// arguments of the servers that you pick change; comments, order and blanks stay.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil init ~/.cursor/mcp.json                      # asks for each server
  counterfoil init .mcp.json --server memory --dry-run     # shows the change, writes nothing
  counterfoil init .vscode/mcp.json --all --yes
  counterfoil init .mcp.json --undo")]
pub(super) struct InitArgs {
    /// The client's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A server to wrap; may be given more than once
    #[arg(long = "server", value_name = "NAME", conflicts_with = "all")]
    servers: Vec<String>,
    /// Wrap every server that can be
    #[arg(long)]
    all: bool,
    /// Take it back: the servers are started as before
    #[arg(long)]
    undo: bool,
    /// Write without asking
    #[arg(long)]
    yes: bool,
    /// Show the change and write nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Name no preset for the servers that have one
    #[arg(long)]
    no_preset: bool,
    /// What the client starts [default: counterfoil if it is in PATH, else this program's own path]
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read, understood or written; a server that is not in it.
pub(super) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    // Who keeps a link to the file keeps it.
    let path = args.file.canonicalize().map_err(|cause| {
        UsageError(format!("{}: the file cannot be found: {cause}", args.file.display()))
    })?;
    let text =
        std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let file = ClientFile::read(text)
        .map_err(|error| UsageError(format!("{}: {error}", args.file.display())))?;
    let picked = pick(args, &file)?;
    tell_of_presets(args, &file, &picked);
    let changed = if args.undo {
        restored(&path, &file, &picked).unwrap_or_else(|| file.unwrapped(&picked))
    } else {
        file.wrapped(&picked, &wrapping(args))
    };
    if changed == file.text() {
        output::note("nothing changes");
        return Ok(Exit::Done);
    }
    let shown = diff::between(file.text(), &changed);
    output::data(format_args!("{}", output::printable(&shown)))?;
    if args.dry_run {
        output::note("nothing was written");
        return Ok(Exit::Done);
    }
    if !args.yes && !asked(&format!("Write {}?", args.file.display()))? {
        output::note("nothing was written");
        return Ok(Exit::Done);
    }
    let copy = backup(&path, file.text())?;
    write(&path, file.text(), &changed)?;
    output::note(format_args!(
        "{} was written; as it was: {}",
        args.file.display(),
        copy.display()
    ));
    let removed = thin_out(&path)?;
    if removed > 0 {
        output::note(format_args!(
            "of the copies the first and the newest {NEWEST_KEPT} are kept; older ones removed: {removed}"
        ));
    }
    output::note("restart the client, so that it starts its servers anew");
    Ok(Exit::Done)
}

/// The names of the servers that are wrapped, or unwrapped.
fn pick(args: &InitArgs, file: &ClientFile) -> anyhow::Result<Vec<String>> {
    for name in &args.servers {
        if !file.servers().iter().any(|it| it.name == *name) {
            let known: Vec<&str> = file.servers().iter().map(|it| it.name.as_str()).collect();
            let words = format!("there is no server {name}; the file has: {}", known.join(", "));
            return Err(UsageError(words).into());
        }
    }
    let is_named =
        |server: &&Server| args.servers.is_empty() || args.servers.contains(&server.name);
    let considered: Vec<&Server> = file.servers().iter().filter(is_named).collect();
    let fits = |server: &Server| match server.kind {
        ServerKind::Command(_) => !args.undo,
        ServerKind::Wrapped(_) => args.undo,
        ServerKind::Ours | ServerKind::Remote | ServerKind::Unclear => false,
    };
    for server in considered.iter().filter(|it| !fits(it)) {
        output::note(format_args!("{}: {}", server.name, why_left(server, args.undo)));
    }
    let candidates = considered.into_iter().filter(|it| fits(it));
    if args.undo || args.all || !args.servers.is_empty() {
        return Ok(candidates.map(|it| it.name.clone()).collect());
    }
    let candidates: Vec<&Server> = candidates.collect();
    if !candidates.is_empty() && !io::stdin().is_terminal() {
        let names: Vec<&str> = candidates.iter().map(|it| it.name.as_str()).collect();
        let words = format!(
            "name what to wrap with --server, or give --all; there are: {}",
            names.join(", ")
        );
        return Err(UsageError(words).into());
    }
    let mut picked = Vec::new();
    for server in candidates {
        let preset = server.preset().filter(|_| !args.no_preset);
        let with = preset.map(|it| format!(" with the preset {}", it.name)).unwrap_or_default();
        if asked(&format!("Wrap {}{with}?", server.name))? {
            picked.push(server.name.clone());
        }
    }
    Ok(picked)
}

/// Says for which of the picked servers there is no preset.
fn tell_of_presets(args: &InitArgs, file: &ClientFile, picked: &[String]) {
    let is_bare = |it: &&Server| picked.contains(&it.name) && it.preset().is_none();
    if args.undo || args.no_preset {
        return;
    }
    for server in file.servers().iter().filter(is_bare) {
        output::note(format_args!(
            "{}: no preset known: each of its tools is guarded, those that only read too, and what is \
             lost stays in doubt for a person; counterfoil wrap --explain -- COMMAND shows it, and \
             [wrap.tools.NAME] in the configuration says more",
            output::printable(&server.name)
        ));
    }
}

fn why_left(server: &Server, is_undo: bool) -> &'static str {
    match server.kind {
        ServerKind::Command(_) if is_undo => "is not wrapped; left as it is",
        ServerKind::Command(_) => "left as it is",
        ServerKind::Wrapped(_) => "is wrapped already; left as it is",
        ServerKind::Ours => "is counterfoil itself, which is not wrapped; left as it is",
        ServerKind::Remote => {
            "is reached over HTTP, and only servers that are started by a command can be wrapped; \
             left as it is"
        }
        ServerKind::Unclear => "has no command with arguments that are texts; left as it is",
    }
}

fn wrapping(args: &InitArgs) -> Wrapping {
    let command = args.command.clone().unwrap_or_else(own_command);
    Wrapping { command, uses_presets: !args.no_preset, mark: Wrapping::mark_of(&args.file) }
}

/// The short name where the client's shell would find this program by it.
fn own_command() -> String {
    const NAME: &str = "counterfoil";
    let Ok(own) = std::env::current_exe() else { return NAME.to_owned() };
    let same = |dir: PathBuf| is_same(&dir.join(NAME), &own);
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).find(|dir| dir.join(NAME).is_file()).is_some_and(same) {
        return NAME.to_owned();
    }
    own.to_str().map_or(NAME.to_owned(), str::to_owned)
}

fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b)
}

/// Asks a person.
///
/// # Errors
/// [`UsageError`] where nobody can be asked.
fn asked(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        let words = "nobody can be asked here: give --yes to write, or --dry-run to see the change";
        return Err(UsageError(words.into()).into());
    }
    output::ask(format_args!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("the answer cannot be read")?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
