//! What the suite starts as a client: the product's own `counterfoil call`, with the call that the
//! scenario expects.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use clap::Args;
use tokio::process::Command;

/// What the suite hands over, besides `MCP_CONFORMANCE_SCENARIO`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// The suite's server
    url: String,
}

/// Tool, arguments, and whether it is a read, by scenario. Of others nothing is claimed.
const CALLS: &[(&str, &str, &str)] = &[
    ("initialize", "test_tool", "{}"),
    ("tools_call", "add_numbers", r#"{"a":5,"b":3}"#),
    ("request-metadata", "test_tool", "{}"),
    ("http-standard-headers", "test_headers", "{}"),
    ("json-schema-ref-no-deref", "test_tool", "{}"),
    ("elicitation-sep1034-client-defaults", "test_client_elicitation_defaults", "{}"),
    ("sse-retry", "test_reconnection", "{}"),
    ("sep-2322-client-request-state", "test_tool", "{}"),
];

/// Makes the call of the scenario.
///
/// # Errors
/// If the client fails.
pub async fn run(args: &ClientArgs) -> anyhow::Result<()> {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").context("no scenario is named")?;
    let call = CALLS.iter().find(|(name, ..)| *name == scenario);
    let (_, tool, arguments) = call.copied().unwrap_or(("", "test_tool", "{}"));
    let product = std::env::current_exe()?.with_file_name("counterfoil");
    let status = Command::new(product)
        .args(["call", tool, "--read", "--args", arguments, "--timeout", "10", "--url", &args.url])
        .stdin(Stdio::null())
        .status()
        .await
        .context("the client does not start")?;
    ensure!(status.success(), "the client ended with {status}");
    Ok(())
}
