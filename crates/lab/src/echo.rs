//! What `counterfoil wrap` is measured with: a server that costs next to nothing, and a relay that
//! only copies bytes, in the shape of ours (one thread, polled pipes).

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe;

/// What is read, and copied, at once.
const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: Arguments<'a>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    /// Answer with so many bytes instead.
    #[serde(default)]
    bytes: usize,
}

/// Serves two tools, `echo` and `note`, which answer with the text that they got, until stdin ends.
/// `initialize` tells in `_meta.firstByteUs` after how long the first byte was there.
///
/// # Errors
/// If stdin or stdout fails.
pub fn serve() -> anyhow::Result<()> {
    let began = Instant::now();
    let mut input = std::io::stdin().lock();
    let mut first = [0];
    if input.read(&mut first)? == 0 {
        return Ok(());
    }
    let first_byte_us = began.elapsed().as_micros();
    let mut output = std::io::stdout().lock();
    let mut line = first.to_vec();
    let mut reply = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        reply.clear();
        answer(&line, first_byte_us, &mut reply)?;
        if !reply.is_empty() {
            output.write_all(&reply)?;
            output.flush()?;
        }
        line.clear();
    }
    Ok(())
}

fn answer(line: &[u8], first_byte_us: u128, reply: &mut Vec<u8>) -> anyhow::Result<()> {
    let request: Request<'_> = serde_json::from_slice(line).context("a request")?;
    let Some(id) = request.id else { return Ok(()) };
    write!(reply, "{{\"jsonrpc\":\"2.0\",\"id\":{id},")?;
    match &*request.method {
        "tools/call" => {
            let params = request.params.context("params")?.get();
            let Params { arguments } = serde_json::from_str(params).context("arguments")?;
            reply.extend_from_slice(b"\"result\":{\"content\":[{\"type\":\"text\",\"text\":");
            match arguments.text.filter(|_| arguments.bytes == 0) {
                Some(text) => reply.extend_from_slice(text.get().as_bytes()),
                None => {
                    reply.push(b'"');
                    reply.resize(reply.len() + arguments.bytes, b'x');
                    reply.push(b'"');
                }
            }
            reply.extend_from_slice(b"}]}}\n");
            return Ok(());
        }
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" },
                "_meta": { "firstByteUs": first_byte_us },
            });
            write!(reply, "\"result\":{result}}}")?;
        }
        "tools/list" => {
            let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["echo", "note"].map(tool);
            write!(reply, "\"result\":{}}}", json!({ "tools": tools }))?;
        }
        "ping" => reply.extend_from_slice(b"\"result\":{}}"),
        _ => reply.extend_from_slice(b"\"error\":{\"code\":-32601,\"message\":\"unknown\"}}"),
    }
    reply.push(b'\n');
    Ok(())
}

/// The copying relay's arguments.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The server and its arguments.
    #[arg(last = true, required = true)]
    server: Vec<OsString>,
}

/// Copies until the server has ended.
///
/// # Errors
/// If the server does not start.
pub fn copy(args: &CopyArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let (program, arguments) = args.server.split_first().context("name a server after --")?;
        let (child_in, our_out) = std::io::pipe()?;
        let (our_in, child_out) = std::io::pipe()?;
        let mut server = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(child_in))
            .stdout(Stdio::from(child_out))
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
        let from_client = pipe::Receiver::from_file(own(std::io::stdin().as_fd())?)?;
        let to_client = pipe::Sender::from_file(own(std::io::stdout().as_fd())?)?;
        let to_server = pipe::Sender::from_owned_fd(OwnedFd::from(our_out))?;
        let from_server = pipe::Receiver::from_owned_fd(OwnedFd::from(our_in))?;
        tokio::spawn(pump(from_client, to_server));
        pump(from_server, to_client).await;
        server.wait().await.context("cannot wait for the server")?;
        anyhow::Ok(())
    });
    runtime.shutdown_background();
    done
}

/// Until either end is gone.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
