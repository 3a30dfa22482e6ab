//! The demo's hidden server: the real one, which in one mode dies in place of writing the reply
//! that says `applied`. The product's own `serve` has no such switch.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use clap::Args;
use tokio::io::AsyncWrite;

use crate::cli::exit::Exit;
use crate::config::{Flags, Settings};
use crate::wire::WireLimits;
use crate::{ledger, serve};

/// The exit code of a server that died after its commit and before its reply.
pub const EXIT_BEFORE_REPLY: i32 = 70;

/// What the child does with its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Sends them.
    Serve,
    /// Dies before the first one that says that an effect was applied.
    LoseReply,
}

/// The hidden command's arguments.
#[derive(Debug, Args)]
pub struct DemoChildArgs {
    /// Where the ledger is.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Who asks.
    #[arg(long)]
    pub principal: String,
    /// Die before the reply that says `applied`.
    #[arg(long)]
    pub lose_reply: bool,
}

/// The command line that starts the child.
#[must_use]
pub fn arguments(data_dir: &Path, principal: &str, mode: Mode) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["demo-child".into(), "--data-dir".into(), data_dir.into()];
    arguments.extend(["--principal".into(), principal.into()]);
    if mode == Mode::LoseReply {
        arguments.push("--lose-reply".into());
    }
    arguments
}

/// Serves over stdio.
///
/// # Errors
/// Whatever keeps the server from starting.
pub async fn run(args: DemoChildArgs) -> anyhow::Result<Exit> {
    let variables = [
        ("COUNTERFOIL_DATA_DIR", args.data_dir.as_os_str().to_owned()),
        ("COUNTERFOIL_PRINCIPAL", args.principal.into()),
    ];
    let settings = Settings::load(&Flags::default(), &variables.into_iter().collect())?;
    let engine = ledger::open_engine(&settings).await?;
    let caller = serve::stdio_caller(settings.principal.clone());
    let shutdown = serve::shutdown_signal()?;
    let limits = WireLimits::default();
    let (input, output) = rmcp::transport::stdio_pipes();
    if args.lose_reply {
        let streams = (input, VanishingReply(output));
        serve::stdio(engine, caller, streams, limits, shutdown).await?;
    } else {
        serve::stdio(engine, caller, (input, output), limits, shutdown).await?;
    }
    Ok(Exit::Done)
}

/// A writer that ends the process in place of writing a frame that says `applied`.
#[derive(Debug)]
pub struct VanishingReply<W>(pub W);

impl<W: AsyncWrite + Unpin> AsyncWrite for VanishingReply<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if says_applied(bytes) {
            std::process::exit(EXIT_BEFORE_REPLY);
        }
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Whether the frame is the reply of a call that made its effect.
fn says_applied(frame: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(frame).is_ok_and(|message| {
        let content = message.pointer("/result/structuredContent");
        // A status says `applied` too; only a call's own reply says whether it was replayed.
        content.is_some_and(|content| content["state"] == "applied" && content["replayed"] == false)
    })
}
