//! The process that owns the wrapped server: our own binary under a hidden command.
//!
//! If the gateway is killed it cannot clean up after itself; this process sees the end of its
//! control socket and ends the server with all that came of it. As a child subreaper (Linux) it is
//! given the server's orphans, so that it finds those that made themselves daemons too. It holds
//! none of the server's pipes and stands in no message's way.
//!
//! The gateway orders by single bytes ([`START`] carries the server's three ends of its pipes);
//! this process reports by [`Report`]s.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

/// Starts the server.
pub(super) const START: u8 = b'S';
/// Sends SIGTERM to the server's process group.
pub(super) const TERM: u8 = b'T';
/// Sends SIGKILL to the server and everything that came of it.
pub(super) const KILL: u8 = b'K';
/// Length of a report.
pub(super) const REPORT_BYTES: usize = 5;

/// Longest pause between two looks while something is to be ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a server may still run after the gateway was killed (its stdin is closed then), before
/// SIGTERM.
const AFTER_GATEWAY: Duration = Duration::from_secs(2);
/// From SIGTERM to SIGKILL after that, and for what a server leaves behind when it ends.
const AFTER_TERM: Duration = Duration::from_secs(2);
const LEFT_BEHIND: Duration = Duration::from_millis(300);
/// When this process gives up waiting for what it killed (in the kernel, out of any signal's reach).
const GIVE_UP: Duration = Duration::from_secs(8);

/// What became of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It runs, with this process ID, which is its process group's too.
    Started(i32),
    /// It could not be started, by this error number.
    Failed(i32),
    /// It has ended with this code.
    Exited(i32),
    /// It was ended by this signal.
    Killed(i32),
}

impl Report {
    fn encode(self) -> [u8; REPORT_BYTES] {
        let (kind, number) = match self {
            Self::Started(pid) => (b'P', pid),
            Self::Failed(errno) => (b'F', errno),
            Self::Exited(code) => (b'X', code),
            Self::Killed(signal) => (b'K', signal),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    /// `None` for what no reaper says.
    pub(super) fn decode([kind, a, b, c, d]: [u8; REPORT_BYTES]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            b'P' => Self::Started(number),
            b'F' => Self::Failed(number),
            b'X' => Self::Exited(number),
            b'K' => Self::Killed(number),
            _ => return None,
        })
    }
}

/// Serves the gateway that holds the other end of our stdin, until that end is closed and nothing
/// of the server is left.
///
/// # Errors
/// [`io::Error`] if stdin is no socket, or the process cannot set itself up.
pub fn run(command: &[OsString]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let mut reaper = Reaper { control, command, server: None, leftovers: None, orphaned: None };
    while reaper.turn()? {}
    Ok(())
}

struct Reaper<'a> {
    control: UnixStream,
    command: &'a [OsString],
    server: Option<Server>,
    /// Since when the server has ended and others of it may be left.
    leftovers: Option<Ending>,
    /// Since when the gateway is gone.
    orphaned: Option<Ending>,
}

struct Server {
    group: Pid,
    /// Readable once the server has ended; `None` where there is no such thing.
    ended: Option<OwnedFd>,
}

/// An end in two steps.
struct Ending {
    since: Instant,
    termed: bool,
}

impl Ending {
    fn now() -> Self {
        Self { since: Instant::now(), termed: false }
    }
}

impl Reaper<'_> {
    /// Waits for something and sees to it; whether there is more to do.
    fn turn(&mut self) -> io::Result<bool> {
        let is_ordered = self.wait()?;
        let any_left = self.reap();
        if is_ordered {
            self.obey()?;
        }
        if let Some(ending) = &mut self.orphaned {
            let age = ending.since.elapsed();
            if !any_left || age > GIVE_UP {
                return Ok(false);
            }
            match &self.server {
                Some(server) => {
                    end(ending, Some(server.group), AFTER_GATEWAY, AFTER_GATEWAY + AFTER_TERM);
                }
                None => end(ending, None, Duration::ZERO, LEFT_BEHIND),
            }
        } else if let Some(ending) = &mut self.leftovers {
            if any_left {
                end(ending, None, Duration::ZERO, LEFT_BEHIND);
            } else {
                self.leftovers = None;
            }
        }
        Ok(true)
    }

    /// Waits for an order or an end; whether there is an order, or the gateway has gone.
    fn wait(&self) -> io::Result<bool> {
        let ended = self.server.as_ref().and_then(|server| server.ended.as_ref());
        let looks = self.orphaned.is_some()
            || self.leftovers.is_some()
            || (self.server.is_some() && ended.is_none());
        // Orphans of a living server are collected at every look.
        let pause = match (looks, &self.server) {
            (true, _) => Some(LOOK_EVERY),
            (false, Some(_)) => Some(Duration::from_secs(1)),
            (false, None) => None,
        };
        let pause = pause.map(|pause| Timespec::try_from(pause).expect("a short time"));
        let mut polled = Vec::with_capacity(2);
        if self.orphaned.is_none() {
            polled.push(PollFd::new(&self.control, PollFlags::IN));
        }
        if let Some(ended) = ended {
            polled.push(PollFd::new(ended, PollFlags::IN));
        }
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.orphaned.is_none() && !polled[0].revents().is_empty())
    }

    /// Collects who has ended; whether any child is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if self.server.as_ref().is_some_and(|server| server.group == pid) {
                        self.server = None;
                        self.leftovers = Some(Ending::now());
                        self.report(match status.terminating_signal() {
                            Some(signal) => Report::Killed(signal),
                            None => Report::Exited(status.exit_status().unwrap_or(-1)),
                        });
                        // What is left of its group has lost its leader.
                        let _ = kill_process_group(pid, Signal::TERM);
                    }
                }
                Ok(None) => return true,
                // No children, or nothing that could be waited for.
                Err(_) => return false,
            }
        }
    }

    fn obey(&mut self) -> io::Result<()> {
        let Some((order, ends)) = receive(&self.control)? else {
            self.orphaned = Some(Ending::now());
            return Ok(());
        };
        let group = self.server.as_ref().map(|server| server.group);
        match order {
            START => self.start(ends),
            TERM => {
                if let Some(group) = group {
                    let _ = kill_process_group(group, Signal::TERM);
                }
            }
            KILL => {
                if let Some(group) = group {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                signal_children(Signal::KILL);
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, ends: Vec<OwnedFd>) {
        self.clear_away();
        let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(ends) else {
            return self.report(Report::Failed(Errno::INVAL.raw_os_error()));
        };
        let [program, arguments @ ..] = self.command else {
            return self.report(Report::Failed(Errno::INVAL.raw_os_error()));
        };
        let started = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::from(stderr))
            .process_group(0)
            .spawn();
        match started {
            Ok(child) => {
                let group = Pid::from_child(&child);
                self.server = Some(Server { group, ended: ended(group) });
                self.report(Report::Started(group.as_raw_nonzero().get()));
            }
            Err(error) => {
                let unknown = Errno::INVAL.raw_os_error();
                self.report(Report::Failed(error.raw_os_error().unwrap_or(unknown)));
            }
        }
    }

    /// Ends what an earlier server left, so that it is not taken for the new one's.
    fn clear_away(&mut self) {
        let begun = Instant::now();
        self.server = None;
        while self.reap() && begun.elapsed() < Duration::from_secs(2) {
            signal_children(Signal::KILL);
            std::thread::sleep(Duration::from_millis(2));
        }
        self.leftovers = None;
    }

    fn report(&mut self, report: Report) {
        // A gateway that has gone is seen at the next turn.
        let _ = self.control.write_all(&report.encode());
    }
}

/// SIGTERM at the age `term`, SIGKILL from the age `kill` on.
fn end(ending: &mut Ending, group: Option<Pid>, term: Duration, kill: Duration) {
    let age = ending.since.elapsed();
    let signal = match (age >= kill, age >= term && !ending.termed) {
        (true, _) => Signal::KILL,
        (false, true) => Signal::TERM,
        (false, false) => return,
    };
    ending.termed = true;
    if let Some(group) = group {
        let _ = kill_process_group(group, signal);
    }
    signal_children(signal);
}

/// Our children: the server, and orphans that came of it. None of them can be confused with another
/// process, since an ended one keeps its ID until we collect it.
fn signal_children(signal: Signal) {
    let own = rustix::process::getpid().as_raw_nonzero();
    let listed = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    for pid in listed.unwrap_or_default().split_whitespace() {
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
            // It may lead a group of its own by now.
            let _ = kill_process_group(pid, signal);
        }
    }
}

#[cfg(target_os = "linux")]
fn ended(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn ended(_pid: Pid) -> Option<OwnedFd> {
    None
}

/// One order and the ends that came with it; `None` when the gateway has gone.
fn receive(control: &UnixStream) -> io::Result<Option<(u8, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut order = [0];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let received = loop {
        match recvmsg(control, &mut [IoSliceMut::new(&mut order)], &mut ancillary, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    let mut ends = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            ends.extend(fds);
        }
    }
    Ok((received.bytes > 0).then_some((order[0], ends)))
}
