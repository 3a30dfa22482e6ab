//! `counterfoil-lab http-relay`: stands between a client and a server that speak HTTP, passes every
//! byte on, and keeps each MCP message raw. What breaks on one side is broken on the other.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
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
    /// Listen at this path: the Rust SDK's own HTTP client without `reqwest` speaks to such sockets
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
}

/// An end of a connection.
trait Stream: Read + Write + Send + Sized + 'static {
    /// The same connection again.
    fn again(&self) -> io::Result<Self>;
    /// Sends the end of what is sent.
    fn end_sending(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn again(&self) -> io::Result<Self> {
        // Small messages must not wait for acknowledgements that the ends themselves do not await.
        self.set_nodelay(true)?;
        self.try_clone()
    }

    fn end_sending(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for UnixStream {
    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end_sending(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Relays from a port of its own, which its `ready` line on stderr names, until stdin ends.
///
/// # Errors
/// If it cannot listen or the transcript cannot be begun. A connection that cannot be kept ends the
/// process with code 1: evidence with a gap is none.
pub fn run(args: &HttpRelayArgs) -> anyhow::Result<()> {
    let transcript = Transcript::create(&args.transcript)?;
    let to = args.to;
    let bound = if let Some(path) = &args.unix {
        let listener = UnixListener::bind(path).context("no such socket can be made")?;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                connect(client, to, &transcript);
            }
        });
        None
    } else {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port to listen on")?;
        let bound = listener.local_addr().context("the listener has no address")?;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                connect(client, to, &transcript);
            }
        });
        Some(bound)
    };
    process::say_ready(bound)?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).context("stdin cannot be read")?;
    Ok(())
}

/// Joins a client with the server. If that is gone, the client's connection ends at once.
fn connect<C: Stream>(client: C, to: SocketAddr, kept: &Transcript) {
    let Ok(server) = TcpStream::connect(to) else { return };
    let clones = client.again().and_then(|client| Ok((client, server.again()?)));
    match clones {
        Ok((to_client, from_server)) => {
            spawn_pump(Side::Client, client, server, kept);
            spawn_pump(Side::Server, from_server, to_client, kept);
        }
        Err(error) => give_up(&error.into()),
    }
}

fn spawn_pump<A: Stream, B: Stream>(from: Side, source: A, sink: B, kept: &Transcript) {
    let kept = kept.clone();
    std::thread::spawn(move || {
        pump(from, source, sink, &kept).unwrap_or_else(|error| give_up(&error));
    });
}

/// Copies bytes until the source has ended, and ends the sink. A source whose sink is gone is read
/// on: closed at once, it could lose what was sent to it before.
fn pump(
    from: Side,
    mut source: impl Stream,
    mut sink: impl Stream,
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
    let _ = sink.end_sending();
    Ok(())
}

fn give_up(error: &anyhow::Error) {
    // A closed stderr must not keep the process alive.
    let _ = writeln!(io::stderr(), "counterfoil-lab http-relay: {error:#}");
    std::process::exit(1);
}
