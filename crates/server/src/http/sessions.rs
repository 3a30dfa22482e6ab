//! The sessions of older clients: capped, each bound to who opened it, and never a proof of who
//! sends a request.
//!
//! Inside a session the SDK is given a number of ours for every request, as on stdio: its router
//! goes by ID alone, and two requests with one ID would get each other's answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use counterfoil_core::identity::Caller;
use futures_util::{Stream, StreamExt};
use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification,
    JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};

use super::numbers::Numbers;
use crate::metrics::{Gauge, Held};

/// A principal has at most this part of all sessions.
const SHARE_OF_ONE: usize = 4;

/// All sessions of a server.
#[derive(Debug)]
pub(super) struct Sessions {
    inner: LocalSessionManager,
    max_count: usize,
    table: Arc<Mutex<Table>>,
    gauge: Arc<Gauge>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<SessionId, Entry>,
    /// Places that were given out for sessions that are being opened.
    reserved: HashMap<Caller, usize>,
}

#[derive(Debug)]
struct Entry {
    owner: Caller,
    used_at: Instant,
    /// Requests and streams under way.
    in_use: usize,
    numbers: Arc<Numbers>,
    _counted: Held,
}

/// No place is left for another session of this principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoPlace;

/// The right to open one session.
#[derive(Debug)]
pub(super) struct Reservation {
    table: Arc<Mutex<Table>>,
    owner: Caller,
}

/// A session that is being used. It is not closed to make room meanwhile.
#[derive(Debug)]
pub(super) struct InUse {
    table: Arc<Mutex<Table>>,
    id: SessionId,
}

impl Sessions {
    pub(super) fn new(max_count: usize, idle: Duration, gauge: Arc<Gauge>) -> Arc<Self> {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = Some(idle);
        Arc::new(Self { inner, max_count, table: Arc::default(), gauge })
    }

    /// A place for a new session. If the principal has as many as it may, the one that it has not
    /// used for longest is closed.
    pub(super) async fn reserve(&self, owner: &Caller) -> Result<Reservation, NoPlace> {
        let closing = {
            let mut table = lock(&self.table);
            let full = table.open.len() + table.reserved.values().sum::<usize>() >= self.max_count;
            let closing = if full || table.count_of(owner) >= self.max_of_one() {
                Some(table.remove_stalest_of(owner).ok_or(NoPlace)?)
            } else {
                None
            };
            *table.reserved.entry(owner.clone()).or_default() += 1;
            closing
        };
        let reservation = Reservation { table: Arc::clone(&self.table), owner: owner.clone() };
        if let Some(id) = closing {
            // It may have ended by itself; either way it is gone.
            let _ = self.inner.close_session(&id).await;
        }
        Ok(reservation)
    }

    /// Binds a session that was just opened to its owner.
    pub(super) async fn bind(&self, id: &str, reservation: Reservation) {
        let id = SessionId::from(id);
        let entry = Entry {
            owner: reservation.owner.clone(),
            used_at: Instant::now(),
            in_use: 0,
            numbers: Arc::default(),
            _counted: self.gauge.hold(),
        };
        lock(&self.table).open.insert(Arc::clone(&id), entry);
        drop(reservation);
        // It may have ended before it was known here.
        if !matches!(self.inner.has_session(&id).await, Ok(true)) {
            lock(&self.table).open.remove(&id);
        }
    }

    /// Uses a session; `None` if there is none of that name, or it is somebody else's.
    pub(super) fn use_by(&self, id: &str, caller: &Caller) -> Option<InUse> {
        let mut table = lock(&self.table);
        let (id, entry) = table.open.get_key_value(id)?;
        if entry.owner != *caller {
            return None;
        }
        let id = Arc::clone(id);
        let entry = table.open.get_mut(&id)?;
        entry.in_use += 1;
        entry.used_at = Instant::now();
        Some(InUse { table: Arc::clone(&self.table), id })
    }

    fn max_of_one(&self) -> usize {
        (self.max_count / SHARE_OF_ONE).max(1)
    }

    fn numbers(&self, id: &SessionId) -> Result<Arc<Numbers>, LocalSessionManagerError> {
        let table = lock(&self.table);
        let entry = table.open.get(id);
        let numbers = entry.map(|entry| Arc::clone(&entry.numbers));
        numbers.ok_or_else(|| LocalSessionManagerError::SessionNotFound(Arc::clone(id)))
    }
}

impl Table {
    fn count_of(&self, owner: &Caller) -> usize {
        let open = self.open.values().filter(|entry| entry.owner == *owner).count();
        open + self.reserved.get(owner).copied().unwrap_or(0)
    }

    fn remove_stalest_of(&mut self, owner: &Caller) -> Option<SessionId> {
        let idle = self.open.iter().filter(|(_, e)| e.owner == *owner && e.in_use == 0);
        let id = Arc::clone(idle.min_by_key(|(_, entry)| entry.used_at)?.0);
        self.open.remove(&id);
        Some(id)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = lock(&self.table);
        if let Some(count) = table.reserved.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                table.reserved.remove(&self.owner);
            }
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(entry) = lock(&self.table).open.get_mut(&self.id) {
            entry.in_use -= 1;
            entry.used_at = Instant::now();
        }
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.inner.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.inner.has_session(id).await
    }

    /// Called too when a session has ended by itself.
    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        lock(&self.table).open.remove(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let numbers = self.numbers(id)?;
        let message = match message {
            JsonRpcMessage::Request(mut request) => {
                request.id = numbers.give(request.id);
                JsonRpcMessage::Request(request)
            }
            other => other,
        };
        Ok(restored(self.inner.create_stream(id, message).await?, numbers))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let JsonRpcMessage::Notification(notification) = &message else {
            return self.inner.accept_message(id, message).await;
        };
        let ClientNotification::CancelledNotification(cancelled) = &notification.notification
        else {
            return self.inner.accept_message(id, message).await;
        };
        // A cancellation that names no request under way is dropped.
        let Some(named) = &cancelled.params.request_id else { return Ok(()) };
        for number in self.numbers(id)?.cancel(named) {
            let reason = cancelled.params.reason.clone();
            let params = CancelledNotificationParam::new(Some(number), reason);
            let message = JsonRpcMessage::notification(ClientNotification::from(
                CancelledNotification::new(params),
            ));
            self.inner.accept_message(id, message).await?;
        }
        Ok(())
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let numbers = self.numbers(id)?;
        Ok(restored(self.inner.create_standalone_stream(id).await?, numbers))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let numbers = self.numbers(id)?;
        Ok(restored(self.inner.resume(id, last_event_id).await?, numbers))
    }
}

/// Puts the client's own IDs back.
fn restored(
    stream: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    numbers: Arc<Numbers>,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    stream.filter_map(move |mut event| {
        let known = match event.message.take() {
            None => true,
            Some(message) => {
                event.message = numbers.restore(message);
                event.message.is_some()
            }
        };
        std::future::ready(known.then_some(event))
    })
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use counterfoil_core::identity::{Principal, Tenant};

    use super::*;

    fn caller(principal: &str) -> Caller {
        Caller {
            tenant: Tenant::parse("t").unwrap(),
            principal: Principal::parse(principal).unwrap(),
        }
    }

    async fn open(sessions: &Sessions, who: &Caller) -> Result<String, NoPlace> {
        let reservation = sessions.reserve(who).await?;
        let (id, _transport) = sessions.create_session().await.expect("made in memory");
        sessions.bind(&id, reservation).await;
        Ok(id.to_string())
    }

    #[tokio::test]
    async fn sessions_are_capped_and_belong_to_who_opened_them() {
        // Promise: a flood of sessions closes the flooder's own oldest ones and nobody else's.
        let gauge = Arc::new(Gauge::default());
        let sessions = Sessions::new(8, Duration::from_secs(60), Arc::clone(&gauge));
        let (alice, bob) = (caller("alice"), caller("bob"));
        let bobs = open(&sessions, &bob).await.unwrap();
        let first = open(&sessions, &alice).await.unwrap();
        let second = open(&sessions, &alice).await.unwrap();
        assert!(sessions.use_by(&first, &bob).is_none(), "a session is no proof of identity");
        let using = sessions.use_by(&first, &alice).expect("alice's own");
        // Two are what one of four may have; the one in use is kept.
        let third = open(&sessions, &alice).await.unwrap();
        assert!(sessions.use_by(&second, &alice).is_none(), "the stalest was closed");
        let _using_third = sessions.use_by(&third, &alice).expect("open");
        assert_eq!(open(&sessions, &alice).await, Err(NoPlace), "both are in use");
        drop(using);
        open(&sessions, &alice).await.unwrap();
        assert!(sessions.use_by(&first, &alice).is_none());
        assert!(sessions.use_by(&bobs, &bob).is_some());
        assert_eq!(gauge.get(), 3);
        sessions.close_session(&bobs.as_str().into()).await.unwrap();
        assert!(sessions.use_by(&bobs, &bob).is_none());
        assert_eq!(gauge.get(), 2);
    }

    #[tokio::test]
    async fn a_place_that_was_not_used_is_given_back() {
        // Promise: handshakes that fail do not use the sessions up.
        let sessions = Sessions::new(4, Duration::from_secs(60), Arc::default());
        let alice = caller("alice");
        for _ in 0..100 {
            drop(sessions.reserve(&alice).await.unwrap());
        }
        let _held = sessions.reserve(&alice).await.unwrap();
        assert!(sessions.reserve(&alice).await.is_err(), "one of four is alice's whole share");
    }
}
