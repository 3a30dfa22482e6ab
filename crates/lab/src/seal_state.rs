//! `counterfoil-lab seal-state`: mints a state without a server process, by asking the product's
//! own first round over a store in memory. Only the keys of the data directory are used, so that
//! state, expiry and authority are exactly what a server at that time would have issued.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use counterfoil::serve;
use counterfoil::wire::WireLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, duplex};
use tokio_util::sync::CancellationToken;

use crate::child::{ChildOptions, StoreKind};
use crate::raw::tool_call;
use crate::within::within;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct SealStateArgs {
    /// The operation
    #[arg(long)]
    pub operation_id: String,
    /// The title
    #[arg(long)]
    pub title: String,
    /// The mode, if the arguments name one
    #[arg(long)]
    pub mode: Option<String>,
    /// Keys, clock and lifetimes of the server that would have issued it
    #[command(flatten)]
    pub server: ChildOptions,
}

/// The sealed state.
///
/// # Errors
/// If the server would not have issued one.
pub async fn run(args: &SealStateArgs) -> anyhow::Result<String> {
    let options = ChildOptions { store: StoreKind::Memory, ..args.server.clone() };
    let engine = Arc::new(options.engine().await?);
    let (mut input, server_input) = duplex(1 << 16);
    let (output, server_output) = duplex(1 << 16);
    let caller = options.caller()?;
    let streams = (server_input, server_output);
    let shutdown = CancellationToken::new();
    let served =
        tokio::spawn(serve::stdio(engine, caller, streams, WireLimits::default(), shutdown));
    let mut arguments = json!({ "operation_id": args.operation_id, "title": args.title });
    if let Some(mode) = &args.mode {
        arguments["mode"] = mode.as_str().into();
    }
    let call = tool_call(&json!(1), "create_issue", &arguments.to_string());
    input.write_all(format!("{call}\n").as_bytes()).await?;
    let mut line = String::new();
    within("the first round", BufReader::new(output).read_line(&mut line)).await??;
    drop(input);
    within("the server ends", served).await???;
    let reply: Value = serde_json::from_str(&line).context("the first round got no reply")?;
    match reply["result"]["requestState"].as_str() {
        Some(state) => Ok(state.to_owned()),
        None => bail!("the first round issued no state: {reply}"),
    }
}
