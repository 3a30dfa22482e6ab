//! `counterfoil connector`: targets over HTTP, looked at without sending anything.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use counterfoil_core::delivery::{TargetIdentity, TargetName};
use counterfoil_core::fingerprint::KeyRing;
use counterfoil_core::identity::{BackendId, OperationId, Tenant};
use counterfoil_core::json::{self, JsonLimits};
use serde_json::{Value, json};

use super::{UsageError, ledger};
use crate::cli::exit::Exit;
use crate::config::{ConfigError, Environment, Flags, LocationArgs, Settings, StoreKind};
use crate::connector::{Connector, Connectors, FrozenCall, FrozenRequest, read_files};
use crate::data_dir::DataDir;
use crate::keys;
use crate::output::{self, printable};

/// Look at the connectors: targets over HTTP that tools deliver to
///
/// A connector is a table [connector.NAME] in counterfoil.toml, or in a file that its setting
/// `connectors` names. No command here sends anything.
#[derive(Debug, Args)]
pub(super) struct ConnectorArgs {
    #[command(subcommand)]
    command: ConnectorCommand,
}

#[derive(Debug, Subcommand)]
enum ConnectorCommand {
    Check(CheckArgs),
    List(ListArgs),
    Test(TestArgs),
}

/// Check connectors, and tell every mistake with file, line and column
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil connector check
  counterfoil connector check connectors/*.toml

Exits with 2 if a connector cannot be used.")]
struct CheckArgs {
    /// Files or directories of connectors, checked as one configuration [default: all of the
    /// configuration]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Tell the outcome as JSON on stdout, and nothing on stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// List the connectors of the configuration
#[derive(Debug, Args)]
struct ListArgs {
    /// List as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// Show the exact request that a call would send, with secrets masked; nothing is sent
///
/// The arguments are checked against the tool's schema first. The idempotency key and the marker
/// are those of the ledger if it is there, else examples.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  counterfoil connector test roundup --file connectors/roundup.toml \\
    --args '{\"title\": \"The printer is on fire\"}'

Exits with 2 if the arguments do not make a request.")]
struct TestArgs {
    /// The connector
    #[arg(value_parser = TargetName::parse)]
    name: TargetName,
    /// The call's arguments, a JSON object
    #[arg(long, value_name = "JSON")]
    args: String,
    /// The call's operation ID
    #[arg(long, value_name = "ID", default_value = "example-operation", value_parser = OperationId::parse)]
    operation_id: OperationId,
    /// The caller's tenant [default: the one of an exclusive credential, else local]
    #[arg(long, value_parser = Tenant::parse)]
    tenant: Option<Tenant>,
    /// A file of connectors, instead of the configuration
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Show as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: LocationArgs,
}

/// Runs the verb.
///
/// # Errors
/// Mistakes in connectors or settings, arguments that make no request, an unreadable ledger.
pub(super) async fn run(args: ConnectorArgs, env: &Environment) -> anyhow::Result<Exit> {
    match args.command {
        ConnectorCommand::Check(args) => check(&args, env),
        ConnectorCommand::List(args) => list(&args, env),
        ConnectorCommand::Test(args) => Box::pin(test(&args, env)).await,
    }
}

fn read(
    files: &[PathBuf],
    location: &LocationArgs,
    env: &Environment,
) -> Result<Connectors, ConfigError> {
    match files {
        [] => Settings::load_with_connectors(&Flags::from(location), env).map(|(_, it)| it),
        files => read_files(files),
    }
}

fn check(args: &CheckArgs, env: &Environment) -> anyhow::Result<Exit> {
    let read = read(&args.files, &args.location, env);
    if !args.json {
        let connectors = read?;
        output::data(match connectors.len() {
            0 => "no connectors".to_owned(),
            1 => "1 connector can be used".to_owned(),
            count => format!("{count} connectors can be used"),
        })?;
        return Ok(Exit::Done);
    }
    let (usable, connectors, problems) = match &read {
        Ok(connectors) => (true, connectors.iter().map(as_json).collect(), Vec::new()),
        Err(error) => (false, Vec::new(), error.problems().collect::<Vec<String>>()),
    };
    output::json(&json!({"usable": usable, "connectors": connectors, "problems": problems}))?;
    Ok(if usable { Exit::Done } else { Exit::Usage })
}

fn list(args: &ListArgs, env: &Environment) -> anyhow::Result<Exit> {
    let connectors = read(&[], &args.location, env)?;
    if args.json {
        output::json(&connectors.iter().map(as_json).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![["NAME", "TOOL", "CONTRACT", "TARGET", "DECLARED"].map(str::to_owned)];
    rows.extend(connectors.iter().map(|it| {
        let target = format!("{} {}", it.method(), it.origin());
        let contract = it.terms.contract.as_str().to_owned();
        [it.name.to_string(), it.tool.to_string(), contract, target, printable(&it.declared_at())]
    }));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
        format!("{}{}", cells.collect::<String>(), row[4])
    };
    output::data(rows.iter().map(line).collect::<Vec<_>>().join("\n"))?;
    Ok(Exit::Done)
}

fn as_json(connector: &Arc<Connector>) -> Value {
    json!({
        "name": connector.name.as_str(),
        "tool": connector.tool.as_str(),
        "version": connector.version.as_str(),
        "contract": connector.terms.contract.as_str(),
        "method": connector.method(),
        "target": connector.origin(),
        "account": connector.credential.as_ref().map(|it| &it.account),
        "declaredAt": connector.declared_at(),
    })
}

/// Under which names the target would know the operation.
struct Naming {
    keys: KeyRing,
    backend: BackendId,
    /// They are not those of a ledger.
    is_example: bool,
}

async fn test(args: &TestArgs, env: &Environment) -> anyhow::Result<Exit> {
    let settings = Settings::load(&Flags::from(&args.location), env)?;
    let connectors = read(args.file.as_slice(), &args.location, env)?;
    let connector = connectors.get(&args.name).ok_or_else(|| unknown(args, &connectors))?;
    let arguments = json::parse(args.args.as_bytes(), &JsonLimits::default())
        .map_err(|error| UsageError(format!("--args is no JSON: {error}")))?;
    let exclusive = connector.credential.as_ref().and_then(|it| it.exclusive_to.clone());
    let tenant = args.tenant.clone().or(exclusive);
    let tenant = tenant.unwrap_or_else(|| Tenant::parse("local").expect("a good name"));
    let naming = naming(&settings).await?;
    let identity =
        TargetIdentity { backend: &naming.backend, tenant: &tenant, operation: &args.operation_id };
    let frozen = connector
        .freeze(&arguments, identity, &naming.keys)
        .map_err(|error| UsageError(error.to_string()))?;
    if args.json {
        output::json(&shown_as_json(connector, &frozen, naming.is_example))?;
    } else {
        output::data(printable(&shown(connector, &frozen)))?;
        if naming.is_example && (frozen.idempotency_key.is_some() || frozen.marker.is_some()) {
            output::note("note: there is no ledger here, so key and marker are examples");
        }
        let secret = connector.credential.as_ref().map(|it| it.secret(env));
        if let Some(Err(error)) = secret {
            output::note(format_args!("warning: {error}"));
        }
        output::note("nothing was sent");
    }
    Ok(Exit::Done)
}

fn unknown(args: &TestArgs, connectors: &Connectors) -> UsageError {
    let known: Vec<&str> = connectors.iter().map(|it| it.name.as_str()).collect();
    UsageError(match known.is_empty() {
        true => format!("there is no connector {}: none is configured", args.name),
        false => format!("there is no connector {}; use one of {}", args.name, known.join(", ")),
    })
}

/// Those of the ledger, if there is one.
async fn naming(settings: &Settings) -> anyhow::Result<Naming> {
    let example = || BackendId::parse("example").expect("a good name");
    let backend = settings.backend_id.clone();
    let dir = settings.data_dir().ok().filter(|dir| dir.exists());
    if let (StoreKind::Sqlite, Some(dir)) = (settings.store, dir) {
        let dir = DataDir::existing(dir, settings.filesystem_override)?;
        if let Some(info) = ledger::info(settings, &dir).await? {
            let keys = keys::load(&dir.keys(), settings.active_key)?;
            return Ok(Naming { keys, backend: info.backend_id, is_example: false });
        }
    }
    let backend = backend.unwrap_or_else(example);
    Ok(Naming { keys: keys::ephemeral()?, backend, is_example: true })
}

/// One request as it would go over the wire, its credential masked.
fn call_lines(connector: &Connector, call: &FrozenCall) -> Vec<String> {
    let (header, secret) = connector.credential.as_ref().map(|it| it.masked()).unzip();
    let (header, secret) = (header.flatten(), secret.unwrap_or_default());
    let end = if header.is_none() { secret.as_str() } else { "" };
    let mut lines = vec![format!("{} {}{end}", call.method, call.url)];
    lines.extend(call.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    lines.extend(header.map(|name| format!("{name}: {secret}")));
    if let Some(body) = &call.body {
        lines.push(String::new());
        lines.push(body.clone());
    }
    lines
}

fn shown(connector: &Connector, frozen: &FrozenRequest) -> String {
    let mut lines = call_lines(connector, &frozen.request);
    if let Some(lookup) = &frozen.lookup {
        lines.push(String::new());
        lines.push("lookup:".to_owned());
        lines.extend(call_lines(connector, &lookup.request));
        if !lookup.expected.is_empty() {
            lines.push(format!("looks for: {}", lookup.expected));
        }
    }
    lines.push(String::new());
    lines.push(format!("contract: {}", connector.terms.contract.as_str()));
    lines.extend(frozen.account.iter().map(|account| format!("account: {account}")));
    lines.join("\n")
}

fn call_json(connector: &Connector, call: &FrozenCall) -> Value {
    let (header, secret) = connector.credential.as_ref().map(|it| it.masked()).unzip();
    let (header, secret) = (header.flatten(), secret.unwrap_or_default());
    let end = if header.is_none() { secret.as_str() } else { "" };
    let mut headers: Vec<Value> =
        call.headers.iter().map(|(name, value)| json!([name, value])).collect();
    headers.extend(header.map(|name| json!([name, secret])));
    json!({
        "method": call.method,
        "url": format!("{}{end}", call.url),
        "headers": headers,
        "body": call.body,
    })
}

fn shown_as_json(connector: &Connector, frozen: &FrozenRequest, is_example: bool) -> Value {
    let lookup = frozen.lookup.as_ref().map(|lookup| {
        json!({
            "request": call_json(connector, &lookup.request),
            "looksFor": lookup.expected,
        })
    });
    json!({
        "connector": connector.name.as_str(),
        "tool": connector.tool.as_str(),
        "contract": connector.terms.contract.as_str(),
        "sent": false,
        "request": call_json(connector, &frozen.request),
        "lookup": lookup,
        "idempotencyKey": frozen.idempotency_key,
        "marker": frozen.marker,
        "keysAreExamples": is_example,
        "account": frozen.account,
    })
}
