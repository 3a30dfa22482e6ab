//! A server as a child process: its pipes as a transport, its end in bounded time, and how it
//! ended, for a caller that waits for its answer in vain.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

/// A child has this long to end after its input was closed, and again after a TERM.
const GRACE: Duration = Duration::from_secs(3);

/// A child that closed its pipes is most likely about to exit; it is waited for this long.
const ABOUT_TO_EXIT: Duration = Duration::from_secs(1);

/// A server that ended, or closed its pipes, before it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    program: String,
    status: Option<ExitStatus>,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = &self.program;
        let Some(status) = self.status else {
            return write!(f, "`{program}` closed its stdin or stdout before it answered");
        };
        match (status.code(), status.signal()) {
            (Some(code), _) => write!(f, "`{program}` ended (exit code {code})")?,
            (None, Some(signal)) => write!(f, "`{program}` ended (signal {signal})")?,
            (None, None) => write!(f, "`{program}` ended")?,
        }
        f.write_str(" before it answered")
    }
}

/// The pipes of a child. Once they are closed or dropped, it is made to end.
pub(crate) struct Pipes {
    inner: AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>,
    process: Process,
    /// Tells the task that owns the child that nobody needs it; by being dropped too.
    unneeded: Option<oneshot::Sender<()>>,
}

/// What is known of a child from outside.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    program: String,
    status: watch::Receiver<Option<ExitStatus>>,
    hung_up: Arc<AtomicBool>,
}

/// Starts a child; its stderr is passed through.
///
/// # Errors
/// [`io::Error`] if the program does not start.
pub(crate) fn spawn(mut command: Command, program: String) -> io::Result<(Pipes, Process)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.kill_on_drop(true).spawn()?;
    let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).expect("both are piped");
    let (unneeded, told) = oneshot::channel();
    let (tell, status) = watch::channel(None);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = child.wait() => ended,
            _ = told => end(&mut child).await,
        };
        match ended {
            Ok(status) => drop(tell.send_replace(Some(status))),
            Err(error) => tracing::warn!(%error, "how the server ended is not known"),
        }
    });
    let process = Process { program, status, hung_up: Arc::default() };
    let inner = AsyncRwTransport::new(stdout, stdin);
    Ok((Pipes { inner, process: process.clone(), unneeded: Some(unneeded) }, process))
}

/// By the shutdown sequence of MCP's stdio transport: wait, TERM, wait, KILL.
async fn end(child: &mut tokio::process::Child) -> io::Result<ExitStatus> {
    if let Ok(ended) = timeout(GRACE, child.wait()).await {
        return ended;
    }
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid {
        // It was not waited for, so the number is still its own. If this fails, KILL follows.
        let _ = kill_process(pid, Signal::TERM);
    }
    if let Ok(ended) = timeout(GRACE, child.wait()).await {
        return ended;
    }
    child.start_kill()?;
    child.wait().await
}

impl Process {
    /// How the server left; `None` if it did not.
    pub(crate) async fn gone(&self) -> Option<Gone> {
        if !self.hung_up.load(Ordering::Acquire) {
            return None;
        }
        let mut status = self.status.clone();
        let ended = timeout(ABOUT_TO_EXIT, status.wait_for(Option::is_some)).await;
        let status = ended.ok().and_then(|status| *status.ok()?);
        Some(Gone { program: self.program.clone(), status })
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let sent = self.inner.send(item);
        let hung_up = self.process.hung_up.clone();
        async move {
            let sent = sent.await;
            if sent.is_err() {
                hung_up.store(true, Ordering::Release);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await;
        if message.is_none() {
            self.process.hung_up.store(true, Ordering::Release);
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await?;
        self.unneeded = None;
        // An error says that the task has gone; then there is nothing to wait for.
        let _ = self.process.status.wait_for(Option::is_some).await;
        Ok(())
    }
}
