//! The proxy: threads between a client and a real server that pass bytes on, keep what both sides
//! wrote and read, and do to one message what the plan says.
//!
//! It halts at the fault, before a byte of that message went on, until the lab has looked at the
//! rows: so what comes before the commit and what comes after it is seen and not assumed.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::frames::{Frame, Frames};
use super::plan::{Direction, Fault, Plan, Wire};
use super::tamper::{Step, steps};
use crate::transcript::Side;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Opened once, for everybody.
#[derive(Debug, Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*open {
            open = self.1.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The bytes of both sides, each as it wrote and as it read them.
#[derive(Debug, Default, Clone)]
pub(super) struct Kept {
    pub client_wrote: Vec<u8>,
    pub server_read: Vec<u8>,
    pub server_wrote: Vec<u8>,
    pub client_read: Vec<u8>,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    operation: String,
    struck: AtomicBool,
    stopping: AtomicBool,
    says: UnboundedSender<()>,
    go: Gate,
    release: Gate,
    kept: Mutex<Kept>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    children: Mutex<Vec<Child>>,
}

/// A proxy for one call.
#[derive(Debug)]
pub(super) struct Proxy {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
}

/// One client's way to the server, as its two pumps see it.
struct Joint {
    /// The JSON-RPC ID of the call whose reply is meant.
    target: Mutex<Option<Value>>,
    swallow: AtomicBool,
    cut: Box<dyn Fn() + Send + Sync>,
    /// Where a request that is sent again goes; over stdio it goes the same way.
    again: Option<SocketAddr>,
}

impl Proxy {
    /// For calls of this operation. The receiver hears of the fault, which waits for
    /// [`Proxy::go_on`].
    pub(super) fn new(plan: Plan, operation: &str) -> (Self, UnboundedReceiver<()>) {
        let (says, hears) = unbounded_channel();
        let shared = Shared {
            plan,
            operation: operation.to_owned(),
            struck: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            says,
            go: Gate::default(),
            release: Gate::default(),
            kept: Mutex::default(),
            threads: Mutex::default(),
            children: Mutex::default(),
        };
        (Self { shared: Arc::new(shared), address: None }, hears)
    }

    /// Listens for clients of the server at this address.
    pub(super) fn listen(&mut self, to: SocketAddr) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port")?;
        let address = listener.local_addr()?;
        self.address = Some(address);
        let shared = Arc::clone(&self.shared);
        self.shared.spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                // What cannot be joined ends at once, as with a server that is gone.
                let _ = join_http(&shared, client, to);
            }
        });
        Ok(address)
    }

    /// Starts a server and gives the client's end of the way to it.
    pub(super) fn start(&self, mut command: Command) -> anyhow::Result<UnixStream> {
        let (client, ours) = UnixStream::pair()?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let input = child.stdin.take().context("no stdin")?;
        let output = child.stdout.take().context("no stdout")?;
        self.shared.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        let (from, back) = (ours.try_clone()?, ours.try_clone()?);
        let cut = Box::new(move || drop(back.shutdown(Shutdown::Both)));
        let joint = Arc::new(Joint::new(cut, None));
        let (shared, up) = (Arc::clone(&self.shared), Arc::clone(&joint));
        self.shared.spawn(move || {
            pump(&shared, &up, Direction::Request, Frames::lines(Side::Client), from, input);
        });
        let shared = Arc::clone(&self.shared);
        self.shared.spawn(move || {
            let end = ours.try_clone();
            pump(&shared, &joint, Direction::Reply, Frames::lines(Side::Server), output, ours);
            let _ = end.and_then(|end| end.shutdown(Shutdown::Both));
        });
        Ok(client)
    }

    /// Lets the fault happen.
    pub(super) fn go_on(&self) {
        self.shared.go.open();
    }

    /// Says that the client is done: what is held goes on.
    pub(super) fn release(&self) {
        self.shared.release.open();
    }

    /// Whether the fault happened.
    pub(super) fn struck(&self) -> bool {
        self.shared.struck.load(Ordering::SeqCst)
    }

    /// Waits until every connection has ended and every server that was started; gives what was
    /// kept. The clients must be gone.
    pub(super) fn finish(self) -> anyhow::Result<Kept> {
        self.stop();
        loop {
            let thread = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(thread) = thread else { break };
            anyhow::ensure!(thread.join().is_ok(), "a thread of the proxy panicked");
        }
        let mut children = self.shared.children.lock().unwrap_or_else(PoisonError::into_inner);
        for child in children.iter_mut() {
            child.wait().context("a server did not end")?;
        }
        Ok(self.shared.kept().clone())
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.go_on();
        self.release();
        // Wakes the listener.
        drop(self.address.map(TcpStream::connect));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(work);
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }

    fn keep(&self, direction: Direction, came: &[u8]) {
        let mut kept = self.kept();
        match direction {
            Direction::Request => kept.client_wrote.extend_from_slice(came),
            Direction::Reply => kept.server_wrote.extend_from_slice(came),
        }
    }

    fn keep_passed(&self, direction: Direction, went: &[u8]) {
        let mut kept = self.kept();
        match direction {
            Direction::Request => kept.server_read.extend_from_slice(went),
            Direction::Reply => kept.client_read.extend_from_slice(went),
        }
    }

    /// Whether this message is the one.
    fn is_meant(&self, joint: &Joint, direction: Direction, frame: &Frame) -> bool {
        let values = frame.messages.iter().filter_map(|text| serde_json::from_slice(text).ok());
        for value in values {
            let value: Value = value;
            let mut target = joint.target.lock().unwrap_or_else(PoisonError::into_inner);
            let meant = match direction {
                Direction::Request if self.makes_the_effect(&value) => {
                    *target = Some(value["id"].clone());
                    true
                }
                Direction::Request => false,
                Direction::Reply => {
                    value.get("method").is_none() && target.as_ref() == value.get("id")
                }
            };
            drop(target);
            if meant && self.plan.direction == direction {
                return !self.struck.swap(true, Ordering::SeqCst);
            }
        }
        false
    }

    /// Whether a request is the call that makes the effect.
    fn makes_the_effect(&self, request: &Value) -> bool {
        let params = &request["params"];
        if request["method"] == "tools/call" && params["name"] == "add_note" {
            return params.to_string().contains(&self.operation);
        }
        let complete =
            params.get("requestState").is_some() || params["arguments"].get("body").is_some();
        request["method"] == "tools/call"
            && params["name"] == "create_issue"
            && complete
            && params.to_string().contains(&self.operation)
    }
}

impl Joint {
    fn new(cut: Box<dyn Fn() + Send + Sync>, again: Option<SocketAddr>) -> Self {
        Self { target: Mutex::default(), swallow: AtomicBool::new(false), cut, again }
    }
}

fn join_http(shared: &Arc<Shared>, client: TcpStream, to: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ends = (client.try_clone()?, server.try_clone()?);
    let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
    let cut = Box::new(move || {
        // Whichever is gone already needs no end.
        let _ = ends.0.shutdown(Shutdown::Both);
        let _ = ends.1.shutdown(Shutdown::Both);
    });
    let joint = Arc::new(Joint::new(cut, Some(to)));
    let (up_shared, up) = (Arc::clone(shared), Arc::clone(&joint));
    shared.spawn(move || {
        let end = server.try_clone();
        pump(&up_shared, &up, Direction::Request, Frames::http(Side::Client), from_client, server);
        // A request that was held outlives its client: its end is not passed on before its reply.
        let is_late = up_shared.plan.fault == Fault::Delay
            && up.target.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !is_late {
            let _ = end.and_then(|end| end.shutdown(Shutdown::Write));
        }
    });
    let down_shared = Arc::clone(shared);
    shared.spawn(move || {
        let frames = Frames::http(Side::Server);
        pump(&down_shared, &joint, Direction::Reply, frames, from_server, client);
        (joint.cut)();
    });
    Ok(())
}

/// Passes messages on until the source has ended or the fault ends it.
fn pump(
    shared: &Shared,
    joint: &Joint,
    direction: Direction,
    mut frames: Frames,
    mut source: impl Read,
    mut sink: impl Write,
) {
    let mut piece = vec![0; PIECE_BYTES];
    // A sink that is gone: the source is read on, for what its side wrote is kept.
    let mut pass = |bytes: &[u8]| {
        let takes = !joint.swallow.load(Ordering::SeqCst);
        if takes && sink.write_all(bytes).and_then(|()| sink.flush()).is_ok() {
            shared.keep_passed(direction, bytes);
        }
    };
    while let Ok(count @ 1..) = source.read(&mut piece) {
        shared.keep(direction, &piece[..count]);
        for frame in frames.feed(&piece[..count]) {
            if !shared.is_meant(joint, direction, &frame) {
                pass(&frame.bytes);
            } else if !strike(shared, joint, direction, &frame, &mut pass) {
                return;
            }
            let is_http = shared.plan.wire != Wire::Stdio;
            // The client of a late request is gone, and nobody else ends its connection.
            let answered = direction == Direction::Reply
                && joint.target.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if is_http && answered && shared.plan.fault == Fault::Delay {
                return;
            }
        }
    }
    pass(&frames.rest());
}

/// Does what the plan says; `false` if that ends the connection.
fn strike(
    shared: &Shared,
    joint: &Joint,
    direction: Direction,
    frame: &Frame,
    pass: &mut impl FnMut(&[u8]),
) -> bool {
    // A lab that has gone lets everything go on.
    let _ = shared.says.send(());
    shared.go.pass();
    for step in steps(&shared.plan, frame, &shared.operation) {
        match step {
            Step::Pass(bytes) => pass(&bytes),
            Step::Hold => shared.release.pass(),
            Step::Again(bytes) => match (direction, joint.again) {
                (Direction::Request, Some(server)) => resend(shared, server, &bytes),
                _ => pass(&bytes),
            },
            Step::Swallow => joint.swallow.store(true, Ordering::SeqCst),
            Step::Cut => {
                (joint.cut)();
                return false;
            }
        }
    }
    true
}

/// Sends a request over a connection of its own and reads its reply, which nobody gets.
fn resend(shared: &Shared, server: SocketAddr, bytes: &[u8]) {
    let Ok(mut stream) = TcpStream::connect(server) else { return };
    if stream.write_all(bytes).is_err() {
        return;
    }
    shared.keep_passed(Direction::Request, bytes);
    let mut frames = Frames::http(Side::Server);
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        shared.keep(Direction::Reply, &piece[..count]);
        if !frames.feed(&piece[..count]).is_empty() {
            return;
        }
    }
}
