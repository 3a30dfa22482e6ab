//! A server behind something, and the cheapest client that can be: what stands between is what is
//! measured.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::figures::Round;

/// The text of every call.
pub const TEXT_BYTES: usize = 256;
/// What the echo server's tools do.
const SETTINGS: &str = "\
[wrap]
name = \"echo\"

[wrap.tools.echo]
effect = \"read\"

[wrap.tools.note]
effect = \"write\"
";
const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n"
);

/// Which tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// The one that is passed on.
    Echo,
    /// The one that is guarded.
    Note,
}

/// A running relay with its server.
#[derive(Debug)]
pub struct Side {
    process: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    buffer: Vec<u8>,
    last_id: u64,
    text: String,
    /// After how long the server had its first byte.
    pub first_byte: Duration,
    /// From the start of the relay to the server's first answer.
    pub first_answer: Duration,
}

impl Side {
    /// The relay that only copies.
    ///
    /// # Errors
    /// If it does not start.
    pub fn copier(lab: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(lab);
        command.arg("copy").arg("--").arg(lab).arg("echo");
        Self::start(command)
    }

    /// `counterfoil wrap` on a ledger in `place`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn guarded(lab: &Path, place: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(place)?;
        let settings = place.join("wrap.toml");
        std::fs::write(&settings, SETTINGS)?;
        let mut command = Command::new(lab.with_file_name("counterfoil"));
        let words: [OsString; 4] =
            ["--data-dir".into(), data_dir(place).into(), "--preset".into(), settings.into()];
        command.arg("wrap").args(words).arg("--").arg(lab).arg("echo");
        Self::start(command)
    }

    fn start(mut command: Command) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{command:?} cannot be started; build it first"))?;
        let mut input = process.stdin.take().context("piped")?;
        input.write_all(HELLO.as_bytes())?;
        let output = process.stdout.take().context("piped")?;
        let none = Duration::ZERO;
        let mut side = Self {
            process,
            input: Some(input),
            output,
            buffer: Vec::with_capacity(1 << 16),
            last_id: 0,
            text: "x".repeat(TEXT_BYTES),
            first_byte: none,
            first_answer: none,
        };
        let hello: Value = serde_json::from_slice(&side.line()?)?;
        side.first_answer = begun.elapsed();
        let first_byte_us = hello["result"]["_meta"]["firstByteUs"].as_u64();
        side.first_byte = Duration::from_micros(first_byte_us.context("no echo server")?);
        side.say(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(side)
    }

    /// Keeps `in_flight` calls under way until the time is over.
    ///
    /// # Errors
    /// If the server has gone, or a call is not answered as it should be.
    pub fn round(
        &mut self,
        tool: Tool,
        in_flight: usize,
        slice: Duration,
    ) -> anyhow::Result<Round> {
        let mut sent = HashMap::with_capacity(in_flight);
        let mut latencies = Vec::new();
        let mut requests = Vec::new();
        let (start, mut wanted) = (Instant::now(), in_flight);
        loop {
            for _ in 0..wanted {
                if start.elapsed() < slice {
                    let id = self.push_call(tool, &mut requests);
                    sent.insert(id, Instant::now());
                }
            }
            if sent.is_empty() {
                return Ok(Round::new(start.elapsed(), latencies));
            }
            self.say(&requests)?;
            requests.clear();
            self.fill()?;
            let arrived = Instant::now();
            wanted = 0;
            let whole = self.buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in self.buffer[..whole].split_inclusive(|byte| *byte == b'\n') {
                let begun = sent.remove(&answered(line, tool)?).context("an answer to nothing")?;
                latencies.push(arrived.duration_since(begun));
                wanted += 1;
            }
            self.buffer.drain(..whole);
        }
    }

    /// One call that is answered with `bytes` bytes; how many came.
    ///
    /// # Errors
    /// If it is not answered.
    pub fn large(&mut self, tool: Tool, bytes: usize) -> anyhow::Result<usize> {
        let mut request = Vec::new();
        self.push(tool, &format!("\"bytes\":{bytes}"), &mut request);
        self.say(&request)?;
        let line = self.line()?;
        answered(&line, tool)?;
        Ok(line.len())
    }

    fn push_call(&mut self, tool: Tool, requests: &mut Vec<u8>) -> u64 {
        let text = format!("\"text\":\"{}\"", self.text);
        self.push(tool, &text, requests)
    }

    fn push(&mut self, tool: Tool, arguments: &str, requests: &mut Vec<u8>) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let (name, own) = match tool {
            Tool::Echo => ("echo", String::new()),
            Tool::Note => ("note", format!("\"operation_id\":\"{}\",", operation_id())),
        };
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":\
             {{\"name\":\"{name}\",\"arguments\":{{{own}{arguments}}}}}}}\n"
        );
        requests.extend_from_slice(request.as_bytes());
        id
    }

    fn say(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.input.as_mut().context("open")?.write_all(bytes).context("the relay has gone")
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let at = self.buffer.len();
        self.buffer.resize(at + (1 << 16), 0);
        let count = self.output.read(&mut self.buffer[at..])?;
        self.buffer.truncate(at + count);
        ensure!(count > 0, "the relay has gone");
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut looked = 0;
        loop {
            if let Some(at) = self.buffer[looked..].iter().position(|byte| *byte == b'\n') {
                return Ok(self.buffer.drain(..=looked + at).collect());
            }
            looked = self.buffer.len();
            self.fill()?;
        }
    }

    /// The relay's process ID, and that of the process that looks after its server.
    ///
    /// # Errors
    /// If there is none.
    pub fn pids(&self) -> anyhow::Result<[u32; 2]> {
        let own = self.process.id();
        let path = format!("/proc/{own}/task/{own}/children");
        let children = std::fs::read_to_string(path).context("the relay's children")?;
        let first = children.split(' ').next().and_then(|pid| pid.parse().ok());
        Ok([own, first.context("the relay has no child")?])
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it does not end well.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.input = None;
        let status = self.process.wait()?;
        ensure!(status.success(), "a relay ended with {status}");
        Ok(())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

/// Where the ledger is.
#[must_use]
pub fn data_dir(place: &Path) -> std::path::PathBuf {
    place.join("data")
}

/// A UUIDv7, as a client that does it well makes them.
fn operation_id() -> String {
    let now_ms = super::work::now_ms() as u64;
    let tail = getrandom::u64().unwrap_or_default();
    let (high, low) = (now_ms >> 16, now_ms & 0xffff);
    let (a, b) = (tail & 0xfff, tail >> 16);
    format!("{high:08x}-{low:04x}-7{a:03x}-8{:03x}-{:012x}", b & 0xfff, tail >> 16)
}

/// The ID of the request that a line answers, if it was done.
fn answered(line: &[u8], tool: Tool) -> anyhow::Result<u64> {
    // The text of a large answer is not looked at.
    let ends = |at: usize| &line[..line.len().min(at)];
    let head = String::from_utf8_lossy(ends(64));
    let tail = String::from_utf8_lossy(&line[line.len().saturating_sub(400)..]);
    let is_done = head.contains("\"result\":{\"content\"");
    let is_guarded = tail.contains("\"state\":\"applied\"");
    ensure!(is_done && is_guarded == (tool == Tool::Note), "{head} ... {tail}");
    let (_, rest) = head.split_once("\"id\":").context("no ID")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Ok(rest[..end].parse()?)
}
