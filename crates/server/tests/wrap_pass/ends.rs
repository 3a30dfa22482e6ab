//! The kinds of stdin and stdout that clients give us.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::scripted;
use crate::world::call;

/// A wrap with a ledger of its own, in `room`, whose tools only read.
fn wrap(room: &TempDir, stdin: Stdio, stdout: Stdio) -> Command {
    let rules = room.path().join("rules.toml");
    std::fs::write(&rules, scripted::settings()).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(["wrap", "--name", "srv", "--data-dir"]).arg(room.path().join("data"));
    command.arg("--preset").arg(rules).arg("--").args(scripted::command(""));
    command.stdin(stdin).stdout(stdout).stderr(Stdio::null());
    command
}

#[test]
fn sockets_serve_as_pipes_do() {
    // Promise: clients that make sockets (Node does) are served as well.
    let (input, theirs_in) = UnixStream::pair().expect("sockets");
    let (output, theirs_out) = UnixStream::pair().expect("sockets");
    let room = tempfile::tempdir().expect("a folder");
    let (theirs_in, theirs_out) = (OwnedFd::from(theirs_in), OwnedFd::from(theirs_out));
    let mut process = wrap(&room, theirs_in.into(), theirs_out.into());
    let mut running = process.spawn().expect("started");
    // The command holds our copies of their ends.
    drop(process);
    let mut output = BufReader::new(output).lines();
    for n in 0..3 {
        (&input)
            .write_all(format!("{}\n", call(&n.to_string(), "received", "{}")).as_bytes())
            .expect("sent");
        let line = output.next().expect("a line").expect("text");
        assert!(line.contains(&format!("\"id\":{n},")), "{line}");
    }
    drop(input);
    assert!(running.wait().expect("ended").success());
    assert!(output.next().is_none(), "nothing holds the socket open");
}

#[test]
fn files_serve_as_pipes_do() {
    // Promise: a session can be recorded and played from a file.
    let mut input = tempfile::tempfile().expect("a file");
    for n in 0..3 {
        writeln!(input, "{}", call(&n.to_string(), "received", "{}")).expect("written");
    }
    input.rewind().expect("a file");
    let output = tempfile::NamedTempFile::new().expect("a file");
    let file = File::create(output.path()).expect("a file");
    let room = tempfile::tempdir().expect("a folder");
    let status = wrap(&room, input.into(), file.into()).status().expect("ran");
    let lines = std::fs::read_to_string(output.path()).expect("text");
    assert!(status.success() && lines.lines().count() == 3, "{lines}");
}
