//! The guard's way to the server: questions that no client asked in these words.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::frame::Frame;
use super::from_client::request_item;
use super::ids::{Owner, Purpose, Upward};
use super::link::Outlet;
use super::router::{Readiness, Relay};
use super::scan::Field;
use super::seam::{PortBackend, UpstreamBackend};
use super::shell::Shell;
use super::{Generation, Lost, Upstream, UpstreamReply, UpstreamState};

/// What stands behind one call's `CallPort`.
pub(super) struct Port {
    relay: Arc<Relay>,
    cancelled: CancellationToken,
    /// Of the latest reply that this call got.
    shell: Mutex<Option<Shell>>,
}

impl Port {
    pub(super) fn new(relay: Arc<Relay>, cancelled: CancellationToken) -> Self {
        Self { relay, cancelled, shell: Mutex::default() }
    }

    /// What stood around the `result` or `error` that the server answered this call with.
    pub(super) fn take_shell(&self) -> Option<Shell> {
        self.shell.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PortBackend for Port {
    fn upstream(&self) -> Upstream {
        upstream_of(&self.relay)
    }

    fn send(&self, params: &[u8]) -> BoxFuture<'_, Result<UpstreamReply, Lost>> {
        let params = Bytes::copy_from_slice(params);
        Box::pin(async move {
            let reply = self.relay.ask_open("tools/call", &params).await;
            let shell = match &reply {
                Ok(UpstreamReply::Whole(reply)) => Shell::of(reply.frame()),
                Ok(UpstreamReply::TooLarge { .. }) | Err(_) => None,
            };
            *self.shell.lock().unwrap_or_else(PoisonError::into_inner) = shell;
            reply
        })
    }

    fn cancelled(&self) -> CancellationToken {
        self.cancelled.clone()
    }
}

/// A way to the server that does not keep the relay alive.
pub(super) fn upstream_of(relay: &Arc<Relay>) -> Upstream {
    Upstream::new(Arc::new(Handle(Arc::downgrade(relay))))
}

struct Handle(Weak<Relay>);

impl UpstreamBackend for Handle {
    fn state(&self) -> UpstreamState {
        self.0.upgrade().map_or(UpstreamState::NotReady, |relay| relay.upstream_state())
    }

    fn wait_ready(&self, deadline: Instant) -> BoxFuture<'_, Option<Generation>> {
        let readiness = self.0.upgrade().map(|relay| relay.readiness());
        Box::pin(async move {
            let mut readiness = readiness?;
            let settled = readiness.wait_for(|readiness| *readiness != Readiness::NotReady);
            let readiness = *timeout_at(deadline, settled).await.ok()?.ok()?;
            match readiness {
                Readiness::Ready(generation) => Some(generation),
                Readiness::NotReady | Readiness::Over => None,
            }
        })
    }

    fn ask(&self, method: &str, params: &[u8]) -> BoxFuture<'_, Result<UpstreamReply, Lost>> {
        let method = method.to_owned();
        let params = Bytes::copy_from_slice(params);
        Box::pin(async move {
            let Some(relay) = self.0.upgrade() else {
                return Err(Lost::NotSent("the relay to the server has ended".to_owned()));
            };
            let params = relay.lock().session.own_params(&params);
            relay.ask_open(&method, &params).await
        })
    }
}

impl Relay {
    /// Asks the server that is there, if its session is open.
    async fn ask_open(&self, method: &str, params: &[u8]) -> Result<UpstreamReply, Lost> {
        let outlet = {
            let state = self.lock();
            state.outlet().filter(|_| state.session.is_open())
        };
        match outlet {
            Some((_, outlet)) => self.ask_at(outlet, method, params).await,
            None => Err(self.not_sent("is not ready")),
        }
    }

    /// Asks the child behind `outlet`.
    pub(super) async fn ask_at(
        &self,
        outlet: Outlet,
        method: &str,
        params: &[u8],
    ) -> Result<UpstreamReply, Lost> {
        let method = Value::from(method).to_string();
        let line = [
            br#"{"jsonrpc":"2.0","id":0,"method":"#,
            method.as_bytes(),
            br#","params":"#,
            params,
            b"}",
        ];
        let Ok(frame) = Frame::read(line.concat()) else {
            return Err(Lost::NotSent("the params of the request are not JSON".to_owned()));
        };
        let (port, answer) = oneshot::channel();
        let (number, item) = {
            let mut state = self.lock();
            let number = state.ids.number();
            let sent = Arc::new(AtomicBool::new(false));
            let upward = Upward {
                owner: Owner::Port(port),
                purpose: Purpose::Plain,
                sent: Arc::clone(&sent),
                token: frame.bytes(Field::ProgressToken),
            };
            state.ids.open_upward(number, upward);
            (number, request_item(&frame, number, sent))
        };
        if outlet.put(item).await.is_err() {
            self.lock().ids.answered(number, false);
            return Err(self.not_sent("reads no more"));
        }
        // Whoever waits for an answer must not keep the server's stdin open.
        drop(outlet);
        answer.await.unwrap_or_else(|_| {
            Err(Lost::Unknown(format!("the relay to the server `{}` has ended", self.name)))
        })
    }

    fn not_sent(&self, why: &str) -> Lost {
        Lost::NotSent(format!("the server `{}` {why}", self.name))
    }
}
