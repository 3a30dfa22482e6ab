//! The lives of the wrapped server: started, watched, told again what was agreed on, ended.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::retry::backoff;
use rustix::io::Errno;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::child::{Child, Handle, Launcher, StartError, Status, StopTimes};
use super::handshake::Mismatch;
use super::link::{Item, Link, Outlet};
use super::router::Relay;
use super::{Generation, UpstreamReply};

/// Pauses between a child's end and the next start grow from the first to the second of these.
const BACKOFF_BASE: Duration = Duration::from_millis(100);
const BACKOFF_CAP: Duration = Duration::from_secs(30);
/// A child that lived for so long starts the pauses anew.
const LIVED: Duration = Duration::from_secs(10);
/// How long a restarted child may take to answer what it is told again.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);
/// How long, once a child has ended, what it wrote may still take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(400);
/// The same while the client does not take it.
const CROWDED_LIMIT: Duration = Duration::from_secs(30);

/// How the last life ended.
#[derive(Debug)]
pub(super) enum LifeEnd {
    /// As it was told to.
    Stopped,
    /// It could not be started at all.
    NotStarted(StartError),
    /// It came back as another one.
    Changed(Mismatch),
}

/// Why one life ended.
enum Cause {
    Stop,
    /// It ended by itself, or stopped reading or writing.
    Died,
    /// It was not ready in time.
    Slow,
    Changed(Mismatch),
}

/// What ends a server.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) now: CancellationToken,
    /// It was a signal, or one came since.
    pub(super) hurry: CancellationToken,
    pub(super) times: StopTimes,
}

/// Keeps a server running until it is to stop.
pub(super) async fn live(
    relay: Arc<Relay>,
    mut launcher: Launcher,
    command: String,
    stop: Stop,
) -> LifeEnd {
    let mut tries = 0;
    for generation in 1.. {
        let generation = Generation(generation);
        let born = Instant::now();
        let child = match launcher.launch() {
            Ok(child) => child,
            Err(error) => return LifeEnd::NotStarted(error),
        };
        let (cause, status) = one_life(&relay, child, generation, &stop).await;
        match (cause, status) {
            (_, Status::Failed(errno)) if generation.0 == 1 => {
                return LifeEnd::NotStarted(start_error(command, errno));
            }
            (Cause::Stop, _) => return LifeEnd::Stopped,
            (Cause::Changed(mismatch), _) => return LifeEnd::Changed(mismatch),
            (_, status) => tracing::warn!(
                server = %relay.name, ?status,
                "the server has ended by itself; it is started again"
            ),
        }
        tries = if born.elapsed() >= LIVED { 0 } else { tries + 1 };
        let seed = getrandom::u64().unwrap_or(u64::MAX / 2);
        let pause = backoff(BACKOFF_BASE, BACKOFF_CAP, tries, seed);
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.now.cancelled() => {
                relay.shut(generation, true);
                return LifeEnd::Stopped;
            }
        }
    }
    LifeEnd::Stopped
}

fn start_error(command: String, errno: i32) -> StartError {
    if errno == Errno::NOENT.raw_os_error() {
        return StartError::NotFound(command);
    }
    StartError::Failed { command, source: std::io::Error::from_raw_os_error(errno) }
}

async fn one_life(
    relay: &Arc<Relay>,
    child: Child,
    generation: Generation,
    stop: &Stop,
) -> (Cause, Status) {
    let Child { link: Link { source, outlet, writer }, mut handle } = child;
    let mut pump = tokio::spawn(Arc::clone(relay).pump_child(source));
    let cause = {
        let ready = prepare(relay, generation, &outlet);
        tokio::pin!(ready);
        let mut is_ready = false;
        loop {
            break tokio::select! {
                biased;
                () = stop.now.cancelled() => Cause::Stop,
                prepared = &mut ready, if !is_ready => match prepared {
                    Ok(()) => {
                        is_ready = true;
                        continue;
                    }
                    Err(cause) => cause,
                },
                _ = handle.over() => Cause::Died,
                _ = &mut pump => Cause::Died,
                () = outlet.closed().cancelled() => Cause::Died,
            };
        }
    };
    let is_over = matches!(cause, Cause::Stop | Cause::Changed(_));
    relay.shut(generation, is_over);
    drop(outlet);
    let status = end(&cause, &mut handle, stop).await;
    hear_out(relay, &mut pump).await;
    relay.take_back(writer.unsent(LAST_WORDS).await);
    let why = match status {
        Status::Killed(signal) => format!("was ended by signal {signal}"),
        Status::Exited(code) => format!("ended with code {code}"),
        _ => "ended".to_owned(),
    };
    relay.give_up_lost(&why, matches!(status, Status::Failed(_))).await;
    handle.quiet().await;
    (cause, status)
}

/// Sees a child to its end.
async fn end(cause: &Cause, handle: &mut Handle, stop: &Stop) -> Status {
    match cause {
        Cause::Stop | Cause::Changed(_) => handle.end(stop.times, &stop.hurry).await,
        // One that only closed its pipes can be of no use any more.
        Cause::Died => match timeout(LAST_WORDS, handle.over()).await {
            Ok(status) => status,
            Err(_) => handle.kill().await,
        },
        Cause::Slow => handle.kill().await,
    }
}

/// Reads what a child that has ended left in its pipe. The client may be slow to take it.
async fn hear_out(relay: &Relay, pump: &mut JoinHandle<()>) {
    let begun = Instant::now();
    while !pump.is_finished() && timeout(LAST_WORDS, &mut *pump).await.is_err() {
        if !relay.client.is_crowded() || begun.elapsed() > CROWDED_LIMIT {
            pump.abort();
            return;
        }
    }
}

/// Tells a child what the one before it was told, then lets the client's messages through.
async fn prepare(relay: &Relay, generation: Generation, outlet: &Outlet) -> Result<(), Cause> {
    let told_initialized = match timeout(REPLAY_LIMIT, replay(relay, outlet)).await {
        Ok(told) => told?,
        Err(_) => return Err(Cause::Slow),
    };
    relay.open(generation, outlet.clone(), told_initialized).await;
    Ok(())
}

/// Whether the child was told that the handshake is finished.
async fn replay(relay: &Relay, outlet: &Outlet) -> Result<bool, Cause> {
    let replay = relay.lock().session.replay();
    if let Some((method, agreed)) = replay.first {
        let reply = relay.ask_at(outlet.clone(), method, &agreed.params).await;
        let Ok(UpstreamReply::Whole(reply)) = reply else { return Err(Cause::Slow) };
        agreed.check(&relay.name, reply.frame()).map_err(Cause::Changed)?;
    }
    let told_initialized = replay.initialized.is_some();
    if let Some(initialized) = replay.initialized {
        let _ = outlet.put(Item::new(initialized)).await;
    }
    for (method, params) in replay.rest {
        // A refusal leaves the server as it is; the client did not ask for this.
        if relay.ask_at(outlet.clone(), method, &params).await.is_err() {
            return Err(Cause::Slow);
        }
    }
    Ok(told_initialized)
}
