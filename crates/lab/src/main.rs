//! The lab's command: the child under test, the relay that keeps its bytes, and random kills.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use counterfoil_lab::conformance::{bridge, client, server};
use counterfoil_lab::delivery::role;
use counterfoil_lab::evidence::verify;
use counterfoil_lab::{
    bench, challenge, child, conformance, desk, echo, http_relay, kills, matrix, model, relay,
    seal_state,
};

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
    /// Serve what the official conformance suite expects of a server
    #[command(hide = true)]
    ConformanceServer(server::ServerArgs),
    /// Put HTTP in front of a server that speaks over stdio
    #[command(hide = true)]
    ConformanceBridge(bridge::BridgeArgs),
    /// Call what a scenario of the official suite expects of a client
    #[command(hide = true)]
    ConformanceClient(client::ClientArgs),
    /// Run the official conformance suite against the wire, through wrap, and with the client
    Conformance(conformance::ConformanceArgs),
    /// Print a sealed state as a server would issue it
    SealState(seal_state::SealStateArgs),
    /// Pass every byte on and do nothing else
    #[command(hide = true)]
    Copy(echo::CopyArgs),
    /// Answer calls of tools over stdio as fast as may be
    #[command(hide = true)]
    Echo,
    /// File tickets for anybody over HTTP, durably
    #[command(hide = true)]
    Desk(desk::DeskArgs),
    /// Accept and deliver on one ledger
    #[command(hide = true)]
    Delivering(role::DeliveringArgs),
    /// Run the twelve cases, or the controls, with every SDK, and write evidence
    Matrix(matrix::MatrixArgs),
    /// Check such evidence again; exit code 0: intact and all passed, 1: refused, 3: intact, but some
    /// cell did not pass
    Verify(verify::VerifyArgs),
    /// Put the rules of continuation replay to any program, over JSON lines
    Challenge(challenge::ChallengeArgs),
    /// Kill servers at random moments under load and check what is left
    Kills(kills::KillsArgs),
    /// Check the product's decisions in every order of what can go wrong, within bounds
    Model(model::ModelArgs),
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
    if let Command::Verify(args) = command {
        let (printed, passed) = verify::run(&args)?;
        writeln!(std::io::stdout(), "{printed}")?;
        return Ok(ExitCode::from(if passed { 0 } else { 3 }));
    }
    if let Command::Echo = command {
        echo::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Copy(args) = command {
        echo::copy(&args)?;
        // Ends the read that may still wait for the client.
        std::process::exit(0);
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
        Command::ConformanceServer(args) => {
            server::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::ConformanceBridge(args) => {
            bridge::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::ConformanceClient(args) => {
            client::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Conformance(args) => return judged(conformance::run(&args).await?),
        Command::Desk(args) => {
            desk::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Delivering(args) => {
            role::run(&args).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Matrix(args) => return judged(matrix::run(&args).await?),
        Command::Challenge(args) => return judged(challenge::run(&args).await?),
        Command::SealState(args) => seal_state::run(&args).await?,
        Command::Kills(args) => kills::run_command(&args).await?,
        Command::Model(args) => model::run_command(&args)?,
        Command::Bench(command) => bench::run(&command).await?,
        Command::Relay(_)
        | Command::HttpRelay(_)
        | Command::Verify(_)
        | Command::Copy(_)
        | Command::Echo => {
            unreachable!("it has a runtime of its own, or none, and was run above")
        }
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a verdict; the exit code is 0 only if all passed.
fn judged((printed, passed): (String, bool)) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(ExitCode::from(u8::from(!passed)))
}
