//! The program under challenge: one question a line, one answer a line.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// No answer is longer.
const MOST_BYTES: u64 = 64 * 1024;

/// A running program.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    patience: Duration,
}

impl Program {
    /// Starts it by a shell. Its stderr goes where ours goes.
    pub(super) fn start(command_line: &str, patience: Duration) -> anyhow::Result<Self> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", command_line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("no shell can be started")?;
        let input = child.stdin.take().context("no stdin")?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self { child, input, output, patience })
    }

    /// Asks one question.
    ///
    /// # Errors
    /// If the program ends, says nothing in time, or says what is not one JSON object.
    pub(super) async fn ask(&mut self, question: &Value) -> anyhow::Result<Value> {
        let line = format!("{question}\n");
        let sent = timeout(self.patience, self.input.write_all(line.as_bytes())).await;
        sent.context("the program does not read")?.context("the program has ended")?;
        let mut answer = Vec::new();
        let mut output = (&mut self.output).take(MOST_BYTES);
        let read = timeout(self.patience, output.read_until(b'\n', &mut answer)).await;
        read.with_context(|| {
            format!("no answer within {} s to {question}", self.patience.as_secs())
        })?
        .context("the program's stdout cannot be read")?;
        ensure!(!answer.is_empty(), "the program ended before it answered {question}");
        match serde_json::from_slice(&answer) {
            Ok(answer @ Value::Object(_)) => Ok(answer),
            _ => bail!("the answer to {question} is not one JSON object on one line"),
        }
    }

    /// Lets it go; one that stays is killed.
    pub(super) async fn end(self) {
        let Self { mut child, input, output, patience } = self;
        drop((input, output));
        // Its exit code is its own affair.
        if timeout(patience, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }
}
