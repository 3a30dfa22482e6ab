//! One wrap from its first byte to its last: client, relay, server, and the order of the end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::child::{Launcher, StartError, StopTimes};
use super::life::{self, LifeEnd, Stop};
use super::link::Link;
use super::router::Relay;
use super::{Guard, stdio};

/// Longest line of either side by default, in bytes (16 MiB).
pub const DEFAULT_MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// What is wrapped, and how.
#[derive(Clone, Debug)]
pub struct WrapOptions {
    /// The server's name: before each line of its stderr, and in errors.
    pub name: String,
    /// The server's command and arguments.
    pub command: Vec<OsString>,
    /// Our own binary, which is the reaper too.
    pub program: PathBuf,
    /// Longest line of either side, in bytes without its line end.
    pub max_line_bytes: usize,
    pub stop_times: StopTimes,
}

/// Why a wrap ended otherwise than well.
#[derive(Debug, thiserror::Error)]
pub enum WrapError {
    #[error(transparent)]
    Start(#[from] StartError),
    /// The server came back as another one after a restart.
    #[error("{0}")]
    Changed(String),
}

/// Relays between our stdin and stdout and the server until the client leaves or `stop` is
/// cancelled.
///
/// # Errors
/// [`WrapError`]. The server and all that came of it have ended in any case.
pub async fn over_stdio(
    options: WrapOptions,
    guard: Arc<dyn Guard>,
    stop: CancellationToken,
) -> Result<(), WrapError> {
    let (input, output) = stdio::ends();
    let client = Link::over(input, output, options.max_line_bytes);
    relay(client, options, guard, stop).await
}

/// Relays between `client` and the server.
///
/// # Errors
/// As [`over_stdio`].
pub async fn relay(
    client: Link,
    options: WrapOptions,
    guard: Arc<dyn Guard>,
    stop: CancellationToken,
) -> Result<(), WrapError> {
    let Link { source, outlet, writer } = client;
    // What it could not write is let go of at once: calls wait to hear that.
    drop(writer);
    let WrapOptions { name, command, program, max_line_bytes, stop_times } = options;
    let shown = command.first().map(|word| word.to_string_lossy().into_owned());
    let relay = Relay::new(name.clone(), guard, outlet, max_line_bytes);
    let launcher = Launcher::new(name, command, program, max_line_bytes);
    let end_server = CancellationToken::new();
    let shown = shown.unwrap_or_default();
    let order = Stop { now: end_server.clone(), hurry: stop.clone(), times: stop_times };
    let life = life::live(Arc::clone(&relay), launcher, shown, order);
    let mut life = tokio::spawn(life);
    let mut client = tokio::spawn(Arc::clone(&relay).pump_client(source));
    let early = tokio::select! {
        ended = &mut life => Some(ended),
        _ = &mut client => None,
        () = relay.client_gone().cancelled() => None,
        () = stop.cancelled() => None,
    };
    if client.is_finished() || relay.client_gone().is_cancelled() {
        relay.client_left();
    }
    client.abort();
    relay.calls.close();
    let ended = match early {
        Some(ended) => ended,
        None => {
            // What is guarded ends first, while its server still lives.
            if timeout(stop_times.settle, relay.calls.wait()).await.is_err() {
                tracing::error!("guarded calls did not settle in time; they stay unknown");
            }
            end_server.cancel();
            life.await
        }
    };
    let outcome = match ended.unwrap_or(LifeEnd::Stopped) {
        LifeEnd::Stopped => Ok(()),
        LifeEnd::NotStarted(error) => Err(WrapError::Start(error)),
        LifeEnd::Changed(mismatch) => Err(WrapError::Changed(mismatch.to_string())),
    };
    relay.over();
    let last_words = outcome.as_ref().err().map(ToString::to_string);
    relay.refuse_all(last_words.as_deref().unwrap_or("the server was stopped")).await;
    // Guarded calls that were told so just now write their answers yet.
    let _ = timeout(stop_times.after_term, relay.calls.wait()).await;
    let _ = timeout(stop_times.after_term, relay.client.flush()).await;
    outcome
}
