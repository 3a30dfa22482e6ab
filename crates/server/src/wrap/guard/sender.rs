//! How the engine sends one request: through the call's port, as the relay has it.

use std::time::Duration;

use counterfoil_core::record::Record;
use counterfoil_engine::{NeverReady, Sender, SenderFuture, Sent};
use tokio::time::Instant;

use super::asked::Request;
use super::shape::Reading;
use crate::wrap::{CallPort, Lost, UpstreamState};

/// An upstream that is not there for so long is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// One request of one call.
#[derive(Debug)]
pub(super) struct PortSender {
    pub(super) port: CallPort,
    pub(super) request: Request,
    pub(super) reading: Reading,
}

impl Sender for PortSender {
    fn is_ready(&self) -> bool {
        matches!(self.port.upstream_state(), UpstreamState::Ready(_))
    }

    fn ready(&self) -> SenderFuture<'_, Result<(), NeverReady>> {
        Box::pin(async {
            let ready = self.port.wait_ready(Instant::now() + LOOK_AGAIN).await;
            ready.map(|_| ()).ok_or_else(|| NeverReady("the server has ended for good".into()))
        })
    }

    fn send<'a>(&'a self, record: &'a Record) -> SenderFuture<'a, Sent> {
        Box::pin(async {
            let params = match self.request.params(record) {
                Ok(params) => params,
                Err(why) => return Sent::Not(why),
            };
            match self.port.send(&params).await {
                Ok(reply) => self.reading.read(&reply),
                Err(Lost::NotSent(why)) => Sent::Not(why),
                Err(Lost::Unknown(why)) => Sent::Lost(why),
            }
        })
    }
}
