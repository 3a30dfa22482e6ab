//! The client's link when the client started this process: our own stdin and stdout.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// The two ends, as the client made them.
pub(super) type Ends = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Our stdin and stdout. Pipes and sockets (some clients make these) are polled; a terminal or a
/// file is read by a thread.
pub(super) fn ends() -> Ends {
    (input(), output())
}

fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let stdin = io::stdin();
    match kind(stdin.as_fd()) {
        Kind::Pipe => reopened(stdin.as_fd(), false)
            .and_then(|file| pipe::Receiver::from_file(file).ok())
            .map_or_else(|| Box::new(tokio::io::stdin()) as _, |pipe| Box::new(pipe) as _),
        Kind::Socket => socket(stdin.as_fd())
            .map_or_else(|_| Box::new(tokio::io::stdin()) as _, |socket| Box::new(socket) as _),
        Kind::Other => Box::new(tokio::io::stdin()),
    }
}

fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let stdout = io::stdout();
    match kind(stdout.as_fd()) {
        Kind::Pipe => reopened(stdout.as_fd(), true)
            .and_then(|file| pipe::Sender::from_file(file).ok())
            .map_or_else(|| Box::new(tokio::io::stdout()) as _, |pipe| Box::new(pipe) as _),
        Kind::Socket => socket(stdout.as_fd())
            .map_or_else(|_| Box::new(tokio::io::stdout()) as _, |socket| Box::new(socket) as _),
        Kind::Other => Box::new(tokio::io::stdout()),
    }
}

enum Kind {
    Pipe,
    Socket,
    Other,
}

fn kind(fd: BorrowedFd<'_>) -> Kind {
    let kind = fd.try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    match kind.map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_fifo() => Kind::Pipe,
        Ok(kind) if kind.is_socket() => Kind::Socket,
        _ => Kind::Other,
    }
}

/// The same pipe with a description of its own, so that not blocking stays our own affair: a
/// terminal's pipeline may share the old one.
fn reopened(fd: BorrowedFd<'_>, write: bool) -> Option<File> {
    let path = format!("/dev/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(!write).write(write).custom_flags(flags).open(path).ok()
}

fn socket(fd: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let owned: OwnedFd = fd.try_clone_to_owned()?;
    let socket = StdUnixStream::from(owned);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
