//! `counterfoil-lab relay`: stands between a client and its server, passes every byte on, and keeps
//! each frame raw. It decodes nothing.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context as _;
use clap::Args;

use crate::transcript::{Side, Transcript};

/// The command's arguments.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// The transcript; the file must not exist.
    #[arg(long, required_unless_present = "into")]
    transcript: Option<PathBuf>,
    /// Instead: a new transcript in this directory, for a server that is started again and again
    #[arg(long, value_name = "DIR", conflicts_with = "transcript")]
    into: Option<PathBuf>,
    /// The server and its arguments.
    #[arg(last = true, required = true)]
    server: Vec<OsString>,
}

impl RelayArgs {
    fn file(&self) -> anyhow::Result<PathBuf> {
        if let Some(directory) = &self.into {
            // A process ID may come again.
            let name = format!("{}-{:016x}.jsonl", std::process::id(), getrandom::u64()?);
            return Ok(directory.join(name));
        }
        self.transcript.clone().context("a transcript has a file")
    }
}

/// Relays until the server has ended, and gives its exit code; 128 and the signal's number for a
/// server that a signal ended.
///
/// # Errors
/// If the server does not start or the transcript cannot be written.
pub fn run(args: &RelayArgs) -> anyhow::Result<i32> {
    let transcript = Transcript::create(&args.file()?)?;
    let (program, arguments) = args.server.split_first().context("name a server after --")?;
    let mut server = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let input = server.stdin.take().context("the server has no stdin")?;
    let output = server.stdout.take().context("the server has no stdout")?;
    let kept = transcript.clone();
    // Detached: it may wait for a client that sends nothing more while the server has ended.
    std::thread::spawn(move || pump(Side::Client, std::io::stdin().lock(), input, &kept));
    pump(Side::Server, output, std::io::stdout().lock(), &transcript)?;
    Ok(code(server.wait().context("cannot wait for the server")?))
}

/// Copies frames until either end is gone. Both ends are closed then.
fn pump(
    from: Side,
    source: impl Read,
    mut sink: impl Write,
    transcript: &Transcript,
) -> anyhow::Result<()> {
    let mut source = BufReader::new(source);
    let mut frame = Vec::new();
    loop {
        frame.clear();
        let read = source.read_until(b'\n', &mut frame);
        if frame.is_empty() {
            return Ok(());
        }
        transcript.keep(from, &frame)?;
        if read.is_err() || sink.write_all(&frame).and_then(|()| sink.flush()).is_err() {
            return Ok(());
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
