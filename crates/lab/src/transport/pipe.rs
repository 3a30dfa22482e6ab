//! `counterfoil-lab fault-pipe`: a program between two others that speak MCP over pipes, with one
//! fault for one call of `add_note`. It stands before `counterfoil wrap`, or between that and the
//! server that is wrapped.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use tokio::io::AsyncWriteExt as _;

use super::plan::{Direction, Fault, Plan, Position, Who, Wire};
use super::proxy::Proxy;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct PipeArgs {
    /// What happens
    #[arg(long)]
    pub fault: Fault,
    /// To the request or to its reply
    #[arg(long)]
    pub direction: Direction,
    /// Where in the message
    #[arg(long, value_parser = position)]
    pub position: Position,
    /// A text that the call has in it
    #[arg(long)]
    pub call: String,
    /// Made when the fault happens; once it is there, every byte passes as it is
    #[arg(long, value_name = "FILE")]
    pub once: PathBuf,
    /// The program behind, and its arguments
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

fn position(text: &str) -> Result<Position, String> {
    match text {
        "first" => Ok(Position::First),
        "middle" => Ok(Position::Middle),
        "last" => Ok(Position::Last),
        "after" => Ok(Position::After),
        _ => Err(format!("{text} is no position; take first, middle, last or after")),
    }
}

/// Stands between its own pipes and those of the program until one of both has ended.
///
/// # Errors
/// If the program cannot be started, or a pipe fails.
pub async fn run(args: &PipeArgs) -> anyhow::Result<()> {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    if args.once.exists() {
        return Err(command.exec().into());
    }
    let PipeArgs { fault, direction, position, .. } = *args;
    let plan = Plan { wire: Wire::Stdio, who: Who::Raw, fault, direction, position };
    let (proxy, mut hears) = Proxy::new(plan, &args.call);
    let stream = proxy.start(command)?;
    stream.set_nonblocking(true)?;
    let (mut from, mut to) = tokio::net::UnixStream::from_std(stream)?.into_split();
    let up = async {
        let copied = tokio::io::copy(&mut tokio::io::stdin(), &mut to).await;
        // Whoever is gone has given up: what was held goes on now.
        proxy.release();
        copied.and(to.shutdown().await)
    };
    let down = async {
        let mut out = tokio::io::stdout();
        tokio::io::copy(&mut from, &mut out).await?;
        out.flush().await
    };
    let strikes = async {
        if hears.recv().await.is_some() {
            OpenOptions::new().write(true).create_new(true).open(&args.once)?;
            proxy.go_on();
        }
        std::future::pending::<std::io::Result<()>>().await
    };
    let both = async {
        // The client's end is no end: replies still come. The program's end is one.
        tokio::pin!(up, down);
        tokio::select! {
            ended = &mut down => ended,
            _ = &mut up => down.await,
        }
    };
    tokio::select! { ended = both => ended?, failed = strikes => failed? }
    // A read of stdin that nobody answers would keep the process.
    std::process::exit(0)
}
