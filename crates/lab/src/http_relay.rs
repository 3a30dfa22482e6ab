//! `counterfoil-lab http-relay`: stands between a client and a server that speak HTTP, passes every
//! byte on, and keeps each MCP message raw. What breaks on one side is broken on the other.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::http_bodies::Bodies;
use crate::process;
use crate::transcript::{Side, Transcript};

/// Bytes that are passed on at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// The command's arguments.
#[derive(Debug, Args)]
pub struct HttpRelayArgs {
    /// The transcript; the file must not exist.
    #[arg(long)]
    transcript: PathBuf,
    /// Where the server listens.
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
}

/// Relays from a port of its own, which its `ready` line on stderr names, until stdin ends.
///
/// # Errors
/// If it cannot listen or the transcript cannot be begun. A connection that cannot be kept ends the
/// process with code 1: evidence with a gap is none.
pub fn run(args: &HttpRelayArgs) -> anyhow::Result<()> {
    let transcript = Transcript::create(&args.transcript)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen on")?;
    let bound = listener.local_addr().context("the listener has no address")?;
    let to = args.to;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A server that is gone: the client's connection ends at once.
            if let Ok(server) = TcpStream::connect(to) {
                connect(client, server, &transcript).unwrap_or_else(|error| give_up(&error));
            }
        }
    });
    process::say_ready(Some(bound))?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).context("stdin cannot be read")?;
    Ok(())
}

/// Joins two connections.
fn connect(client: TcpStream, server: TcpStream, kept: &Transcript) -> anyhow::Result<()> {
    let clones = (client.try_clone()?, server.try_clone()?);
    for (from, source, sink) in [(Side::Client, client, server), (Side::Server, clones.1, clones.0)]
    {
        // Small messages must not wait for acknowledgements that the ends themselves do not await.
        sink.set_nodelay(true)?;
        let kept = kept.clone();
        std::thread::spawn(move || {
            pump(from, source, sink, &kept).unwrap_or_else(|error| give_up(&error));
        });
    }
    Ok(())
}

/// Copies bytes until the source has ended, and ends the sink. A source whose sink is gone is read
/// on: closed at once, it could lose what was sent to it before.
fn pump(
    from: Side,
    mut source: TcpStream,
    mut sink: TcpStream,
    transcript: &Transcript,
) -> anyhow::Result<()> {
    let mut bodies = Bodies::new(from);
    let mut piece = vec![0; PIECE_BYTES];
    let mut sink_takes = true;
    // A connection that was reset has ended like any other.
    while let Ok(count @ 1..) = source.read(&mut piece) {
        for mut message in bodies.feed(&piece[..count])? {
            message.push(b'\n');
            transcript.keep(from, &message)?;
        }
        sink_takes = sink_takes && sink.write_all(&piece[..count]).is_ok();
    }
    if let Some(cut) = bodies.cut() {
        transcript.keep(from, &cut)?;
    }
    // It may be gone already.
    let _ = sink.shutdown(Shutdown::Write);
    Ok(())
}

fn give_up(error: &anyhow::Error) {
    // A closed stderr must not keep the process alive.
    let _ = writeln!(io::stderr(), "counterfoil-lab http-relay: {error:#}");
    std::process::exit(1);
}
