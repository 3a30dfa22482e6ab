//! The wrapped server as a child process: its pipes, its stderr, its end.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, IoSlice, PipeReader, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child as Process, Command, Stdio};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::link::Link;
use super::reaper::{KILL, REPORT_BYTES, Report, START, TERM};

/// The hidden command of our binary that is the reaper.
pub const REAPER_COMMAND: &str = "wrap-reaper";

/// A line of the server's stderr is cut after this many bytes and goes on behind a new prefix.
const MAX_STDERR_LINE_BYTES: u64 = 16 * 1024;

/// From the end of the child's stdin to SIGTERM, once we were told by a signal to end.
const HURRIED: Duration = Duration::from_secs(1);

/// How long the steps of the end may take.
#[derive(Clone, Copy, Debug)]
pub struct StopTimes {
    /// For the guard's calls to settle, before the child's stdin is closed.
    pub settle: Duration,
    /// From the end of the child's stdin to SIGTERM.
    pub after_close: Duration,
    /// From SIGTERM to SIGKILL.
    pub after_term: Duration,
}

impl Default for StopTimes {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            after_close: Duration::from_secs(5),
            after_term: Duration::from_secs(2),
        }
    }
}

/// Why a server is not there.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the command {0} was not found; give its path, or see to it that PATH has it")]
    NotFound(String),
    #[error("the command {command} cannot be started")]
    Failed { command: String, source: io::Error },
    #[error("the process that looks after the server cannot be started")]
    Reaper(#[source] io::Error),
}

/// Starts the server, and starts it again.
#[derive(Debug)]
pub(super) struct Launcher {
    name: String,
    command: Vec<OsString>,
    /// Our own binary.
    program: PathBuf,
    max_line_bytes: usize,
    reaper: Option<Reaper>,
}

#[derive(Debug)]
struct Reaper {
    process: Process,
    control: StdUnixStream,
    status: watch::Sender<Status>,
}

/// What is known of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Starting,
    Running(i32),
    /// It never ran: the error number.
    Failed(i32),
    Exited(i32),
    Killed(i32),
    /// Nobody looks after it any more.
    Abandoned,
}

impl Status {
    pub(super) fn is_over(self) -> bool {
        !matches!(self, Self::Starting | Self::Running(_))
    }
}

/// One life of the server.
pub(super) struct Child {
    pub(super) link: Link,
    pub(super) handle: Handle,
}

/// What can be done to the server beside talking to it.
#[derive(Debug)]
pub(super) struct Handle {
    control: StdUnixStream,
    pub(super) status: watch::Receiver<Status>,
    /// Changes when its stderr has ended.
    stderr_ended: watch::Receiver<bool>,
}

impl Launcher {
    pub(super) fn new(
        name: String,
        command: Vec<OsString>,
        program: PathBuf,
        max_line_bytes: usize,
    ) -> Self {
        Self { name, command, program, max_line_bytes, reaper: None }
    }

    /// Starts the server. Its pipes take messages before it runs.
    ///
    /// # Errors
    /// [`StartError::Reaper`]. Whether the server itself could be started tells [`Handle::status`].
    pub(super) fn launch(&mut self) -> Result<Child, StartError> {
        let lost = |reaper: &Reaper| *reaper.status.borrow() == Status::Abandoned;
        if self.reaper.as_ref().is_none_or(lost) {
            self.end_reaper();
            self.reaper = Some(self.start_reaper().map_err(StartError::Reaper)?);
        }
        let reaper = self.reaper.as_ref().expect("started above");
        self.start(reaper).map_err(StartError::Reaper)
    }

    fn start(&self, reaper: &Reaper) -> io::Result<Child> {
        let (child_in, our_out) = io::pipe()?;
        let (our_in, child_out) = io::pipe()?;
        let (our_err, child_err) = io::pipe()?;
        let input = pipe::Receiver::from_owned_fd(our_in.into())?;
        let output = pipe::Sender::from_owned_fd(our_out.into())?;
        let (ended, stderr_ended) = watch::channel(false);
        let prefix = format!("[{}] ", self.name).into_bytes();
        std::thread::Builder::new().name("wrapped stderr".to_owned()).spawn(move || {
            pass_stderr(our_err, &prefix);
            ended.send_replace(true);
        })?;
        let ends: [OwnedFd; 3] = [child_in.into(), child_out.into(), child_err.into()];
        reaper.status.send_replace(Status::Starting);
        let status = reaper.status.subscribe();
        let control = reaper.control.try_clone()?;
        order(&control, START, &[ends[0].as_fd(), ends[1].as_fd(), ends[2].as_fd()])?;
        let handle = Handle { control, status, stderr_ended };
        Ok(Child { link: Link::over(input, output, self.max_line_bytes), handle })
    }

    fn start_reaper(&self) -> io::Result<Reaper> {
        let (control, theirs) = StdUnixStream::pair()?;
        let process = Command::new(&self.program)
            .arg0("counterfoil")
            .arg(REAPER_COMMAND)
            .arg("--")
            .args(&self.command)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A Ctrl-C at the terminal is for the gateway, which ends the server in its order.
            .process_group(0)
            .spawn()?;
        control.set_nonblocking(true)?;
        let reports = UnixStream::from_std(control.try_clone()?)?;
        let status = watch::Sender::new(Status::Starting);
        tokio::spawn(follow(reports, status.clone()));
        Ok(Reaper { process, control, status })
    }

    /// Collects the reaper, which ends when nobody holds its control socket.
    fn end_reaper(&mut self) {
        if let Some(Reaper { mut process, control, .. }) = self.reaper.take() {
            let _ = control.shutdown(std::net::Shutdown::Both);
            // It waits for nothing once its server has ended.
            let _ = process.wait();
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.end_reaper();
    }
}

impl Handle {
    /// Waits until the server has ended. Cancel-safe.
    pub(super) async fn over(&mut self) -> Status {
        match self.status.wait_for(|status| status.is_over()).await {
            Ok(status) => *status,
            Err(_) => Status::Abandoned,
        }
    }

    /// Ends a server whose stdin was closed: waits, SIGTERM, waits, SIGKILL. Who hurries us will
    /// not wait long for it.
    pub(super) async fn end(&mut self, times: StopTimes, hurry: &CancellationToken) -> Status {
        let hurried = async {
            hurry.cancelled().await;
            sleep(HURRIED).await;
        };
        tokio::select! {
            status = self.over() => return status,
            () = sleep(times.after_close) => {}
            () = hurried => {}
        }
        self.signal(TERM);
        if let Ok(status) = timeout(times.after_term, self.over()).await {
            return status;
        }
        self.kill().await
    }

    pub(super) async fn kill(&mut self) -> Status {
        self.signal(KILL);
        // A process that does not end by it is stuck in the kernel.
        timeout(Duration::from_secs(2), self.over()).await.unwrap_or(Status::Abandoned)
    }

    /// Waits, within bounds, until the last of its stderr was passed on.
    pub(super) async fn quiet(&mut self) {
        let ended = self.stderr_ended.wait_for(|ended| *ended);
        let _ = timeout(Duration::from_millis(500), ended).await;
    }

    fn signal(&self, signal: u8) {
        let pid = match *self.status.borrow() {
            Status::Running(pid) => pid,
            _ => 0,
        };
        if order(&self.control, signal, &[]).is_err()
            && let Some(group) = Pid::from_raw(pid)
        {
            // The reaper was killed: the rest is done from here.
            let signal = if signal == TERM { Signal::TERM } else { Signal::KILL };
            let _ = kill_process_group(group, signal);
        }
    }
}

/// Keeps up with the reaper's reports.
async fn follow(mut reports: UnixStream, status: watch::Sender<Status>) {
    let mut report = [0; REPORT_BYTES];
    while reports.read_exact(&mut report).await.is_ok() {
        status.send_replace(match Report::decode(report) {
            Some(Report::Started(pid)) => Status::Running(pid),
            Some(Report::Failed(errno)) => Status::Failed(errno),
            Some(Report::Exited(code)) => Status::Exited(code),
            Some(Report::Killed(signal)) => Status::Killed(signal),
            None => Status::Abandoned,
        });
    }
    let last = *status.borrow();
    if let Status::Running(pid) = last
        && let Some(group) = Pid::from_raw(pid)
    {
        // The reaper was killed, and the server must not outlive whoever looks after it.
        let _ = kill_process_group(group, Signal::KILL);
    }
    status.send_replace(Status::Abandoned);
}

fn order(control: &StdUnixStream, order: u8, ends: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ends.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(ends));
    }
    #[cfg(target_os = "linux")]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::empty();
    sendmsg(control, &[IoSlice::new(&[order])], &mut ancillary, flags)?;
    Ok(())
}

/// Passes a server's stderr on, each line behind `prefix`. A thread, since a stderr that nobody
/// reads must hold up the server alone.
fn pass_stderr(stderr: PipeReader, prefix: &[u8]) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(prefix);
        let mut part = stderr.by_ref().take(MAX_STDERR_LINE_BYTES);
        match part.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        if io::stderr().lock().write_all(&line).is_err() {
            // Nobody hears it; the server must not be held up by that.
            let _ = io::copy(&mut stderr, &mut io::sink());
            return;
        }
    }
}
