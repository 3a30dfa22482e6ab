//! The lab's command: the child under test, the relay that keeps its bytes, and random kills.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use counterfoil_lab::delivery::role;
use counterfoil_lab::{bench, child, desk, http_relay, kills, relay, seal_state};

/// The fault lab of counterfoil. It is never shipped.
#[derive(Debug, Parser)]
struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP on stdio or over HTTP as the product does, with a fixed clock and faults
    Child(child::ChildOptions),
    /// Keep the raw bytes of both directions between a client and a server
    Relay(relay::RelayArgs),
    /// The same between a client and a server that speak HTTP
    HttpRelay(http_relay::HttpRelayArgs),
    /// Print a sealed state as a server would issue it
    SealState(seal_state::SealStateArgs),
    /// File tickets for anybody over HTTP, durably
    #[command(hide = true)]
    Desk(desk::DeskArgs),
    /// Accept and deliver on one ledger
    #[command(hide = true)]
    Delivering(role::DeliveringArgs),
    /// Kill servers at random moments under load and check what is left
    Kills(kills::KillsArgs),
    /// Measure what the product costs
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

fn main() -> ExitCode {
    match run(Lab::parse().command) {
        Ok(code) => code,
        Err(error) => {
            // A closed stderr must not turn one failure into another.
            let _ = writeln!(std::io::stderr(), "counterfoil-lab: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    if let Command::Relay(args) = command {
        let code = relay::run(&args)?;
        // Ends the thread that may still wait for the client's next frame.
        std::process::exit(code);
    }
    if let Command::HttpRelay(args) = command {
        http_relay::run(&args)?;
        return Ok(ExitCode::SUCCESS);
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .init();
    let runtime = tokio::runtime::Runtime::new()?;
    let code = runtime.block_on(serve_or_print(command));
    // A blocked read of stdin would keep the runtime for ever.
    runtime.shutdown_background();
    code
}

async fn serve_or_print(command: Command) -> anyhow::Result<ExitCode> {
    let printed = match command {
        Command::Child(options) => {
            child::run(&options).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Desk(args) => {
            desk::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Delivering(args) => {
            role::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::SealState(args) => seal_state::run(&args).await?,
        Command::Kills(args) => kills::run_command(&args).await?,
        Command::Bench(command) => bench::run(&command).await?,
        Command::Relay(_) | Command::HttpRelay(_) => {
            unreachable!("a relay needs no runtime and was run above")
        }
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(ExitCode::SUCCESS)
}
