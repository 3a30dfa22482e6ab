//! A ledger with deliveries in every state, put there through the outbox's own contract.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::data_dir::LEDGER_FILE;
use counterfoil::keys;
use counterfoil::tools::issue_effect::tables;
use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::delivery::{
    Contract, ErrorClass, ParkReason, SendEnd, TargetName, Terms, Then,
};
use counterfoil_core::fingerprint::{KeyRing, Profile};
use counterfoil_core::identity::{
    BackendId, BootId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId,
    ToolVersion,
};
use counterfoil_core::json::Value;
use counterfoil_core::record::StoredResult;
use counterfoil_core::time::Span;
use counterfoil_store::outbox::{
    Acceptance, Accepted, BeginSend, Begun, Claim, ClaimedItem, Happened, Report, TargetAction,
    TargetOrder,
};
use counterfoil_store::sqlite::{SqliteOptions, SqliteStore};
use counterfoil_store::{Clock, Outbox, Store, UnderWay};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);
pub(crate) const KEY: Contract = Contract::Key { lifetime: DAY };
const HOUR: Duration = Duration::from_secs(3600);
const BOOT: BootId = BootId::from_bytes([9; 16]);

/// The ledger, open in the test's own process.
pub(crate) struct Outboxed {
    runtime: tokio::runtime::Runtime,
    pub(crate) store: Arc<SqliteStore>,
    ring: KeyRing,
    accepted_count: u64,
}

/// The terms of most items: one attempt, so that a failure is a dead letter at once.
pub(crate) fn once(contract: Contract) -> Terms {
    let terms = Terms {
        contract,
        max_attempts_count: 1,
        backoff_base: Duration::from_secs(1),
        backoff_cap: Duration::from_secs(60),
        send_limit: Duration::from_secs(10),
        deliver_within: None,
    };
    terms.check().expect("good terms")
}

pub(crate) fn name(target: &str) -> TargetName {
    TargetName::parse(target).expect("a name")
}

impl Outboxed {
    /// Makes the ledger, or opens it.
    pub(crate) fn open(dir: &Path, clock: Arc<dyn Clock>) -> Self {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).expect("made");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (store, ring) = runtime.block_on(async {
            let store = SqliteStore::open(&SqliteOptions {
                backend_id: Some(BackendId::parse("desk").expect("valid")),
                clock,
                tables: tables(),
                ..SqliteOptions::new(dir.join(LEDGER_FILE))
            })
            .expect("a ledger");
            let info = store.info().await.expect("read");
            let ring = keys::load_or_generate(&dir.join("keys"), None, &info).expect("keys");
            store.bind_keys(&ring).await.expect("bound");
            (Arc::new(store), ring)
        });
        Self { runtime, store, ring, accepted_count: 0 }
    }

    pub(crate) fn run<T>(&self, done: impl Future<Output = T>) -> T {
        self.runtime.block_on(done)
    }

    pub(crate) fn close(self) {
        self.run(self.store.close()).expect("closed");
    }

    /// Accepts a call of alice's, of the tenant `local`.
    pub(crate) fn accept(&mut self, id: &str, target: &str, terms: Terms) -> OperationKey {
        self.accept_for(("local", "alice"), id, target, terms)
    }

    pub(crate) fn accept_for(
        &mut self,
        (tenant, principal): (&str, &str),
        id: &str,
        target: &str,
        terms: Terms,
    ) -> OperationKey {
        // Other ledgers' openings of one test go on from where the last one was.
        self.accepted_count += 1;
        let place = (u128::from(id.len() as u64) << 96) | u128::from(self.accepted_count);
        let mut key = place.to_be_bytes();
        for (byte, letter) in key[4..12].iter_mut().zip(id.bytes()) {
            *byte = letter;
        }
        let caller = Caller {
            tenant: Tenant::parse(tenant).expect("valid"),
            principal: Principal::parse(principal).expect("valid"),
        };
        let arguments = Value::from("sentinel-argument");
        let call = Call {
            caller: &caller,
            tool_id: &ToolId::parse("submit").expect("valid"),
            tool_version: &ToolVersion::parse("1").expect("valid"),
            profile: Profile::JcsV1,
            operation_id: &OperationId::parse(id).expect("valid"),
            arguments: &arguments,
            call_arguments: &arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        };
        let attempt = Attempt {
            key: OperationKey::from_bytes(key),
            nonce: Nonce::from_bytes(key),
            boot: BOOT,
        };
        let retention = Span::from_secs(86_400);
        let admitted = Admitted::admit(&call, &self.ring, retention, attempt).expect("admitted");
        let acceptance =
            Acceptance { admitted, target: name(target), terms, request: request().into() };
        match self.run(self.store.accept(acceptance)).expect("the ledger works") {
            Accepted::Fresh(view) => view.delivery.key,
            other => panic!("{id}: {other:?}"),
        }
    }

    /// Leases what is due of a target.
    pub(crate) fn claim(&self, target: &str, max_count: usize) -> Vec<ClaimedItem> {
        let claim = Claim {
            target: name(target),
            boot: BOOT,
            lease: HOUR,
            max_count,
            probe: false,
            under_way: UnderWay::default(),
        };
        self.run(self.store.claim(claim)).expect("the ledger works").items
    }

    /// Leases what is due and begins to send it.
    pub(crate) fn sending(&self, target: &str, max_count: usize) -> Vec<ClaimedItem> {
        let items = self.claim(target, max_count);
        let begin = |item: &ClaimedItem| BeginSend {
            key: item.delivery.key,
            boot: BOOT,
            fence: item.delivery.fence,
            lease: HOUR,
        };
        let begins = items.iter().map(begin).collect();
        let begun = self.run(self.store.begin_send(begins)).expect("the ledger works");
        assert!(begun.iter().all(|begun| *begun == Begun::Send), "{begun:?}");
        items
    }

    /// One attempt of each item that is due, with this end.
    pub(crate) fn attempt(&self, target: &str, max_count: usize, end: &SendEnd) {
        let items = self.sending(target, max_count);
        assert!(!items.is_empty(), "nothing is due for {target}");
        self.report(&items, &Happened::Sent(end.clone()));
    }

    pub(crate) fn report(&self, items: &[ClaimedItem], what: &Happened) {
        let report = |item: &ClaimedItem| Report {
            key: item.delivery.key,
            boot: BOOT,
            fence: item.delivery.fence,
            seed: 0,
            what: what.clone(),
        };
        let reports = items.iter().map(report).collect();
        let reported = self.run(self.store.report(reports)).expect("the ledger works");
        assert!(reported.iter().all(|reported| !reported.fenced), "{reported:?}");
    }

    pub(crate) fn pause(&self, target: &str) {
        let order = TargetOrder {
            target: name(target),
            action: TargetAction::Pause,
            who: "olga".into(),
            reason: "maintenance".into(),
        };
        self.run(self.store.direct_target(order)).expect("the ledger works");
    }
}

pub(crate) fn applied() -> SendEnd {
    let result = StoredResult::from_text("sentinel-result");
    SendEnd::Applied { external_id: Some("HD-7".into()), result }
}

pub(crate) fn refused() -> SendEnd {
    let words = "the target refused it".into();
    SendEnd::NotApplied { class: ErrorClass::Rejected, words, then: Then::DeadLetter }
}

pub(crate) fn unreachable() -> SendEnd {
    let words = "connection refused".into();
    let then = Then::Retry { after: None };
    SendEnd::NotApplied { class: ErrorClass::Connect, words, then }
}

pub(crate) fn unknown() -> SendEnd {
    let words = "the connection ended".into();
    SendEnd::Unknown { class: ErrorClass::NoReply, words, retry_after: None }
}

pub(crate) fn unauthorized() -> SendEnd {
    let words = "401: the credential is refused".into();
    SendEnd::NotApplied { class: ErrorClass::Credential, words, then: Then::ParkTarget }
}

/// A request as a connector freezes it.
pub(crate) fn request() -> Vec<u8> {
    let frozen = serde_json::json!({
        "v": 1,
        "request": {
            "method": "POST",
            "url": "https://desk.example/tickets",
            "headers": [["idempotency-key", "k-1"]],
            "body": "{\"title\":\"sentinel-argument\"}",
        },
        "idempotency_key": "k-1",
        "account": "desk-bot",
    });
    frozen.to_string().into_bytes()
}

/// The states that [`every_state`] leaves behind, by the operation's ID; each has a target of its
/// own, called the same.
pub(crate) const EVERY: [&str; 13] = [
    "queued",
    "leased",
    "sending",
    "delivered",
    "dead",
    "dead-unknown",
    "dead-forgotten",
    "parked",
    "parked-account",
    "in-doubt",
    "cancelled",
    "paused",
    "stopped",
];

/// Leaves a ledger with an item in each state, and says under which keys.
pub(crate) fn every_state(dir: &Path) -> std::collections::BTreeMap<&'static str, OperationKey> {
    let mut keys = std::collections::BTreeMap::new();
    let mut past = Outboxed::open(dir, Arc::new(super::ledger::AnHourAgo));
    let short = Contract::Key { lifetime: Duration::from_secs(600) };
    keys.insert("dead-forgotten", past.accept("dead-forgotten", "dead-forgotten", once(short)));
    past.attempt("dead-forgotten", 1, &unknown());
    past.close();
    let mut ledger = Outboxed::open(dir, Arc::new(counterfoil_store::SystemClock));
    let never = ["in-doubt"];
    for id in EVERY.into_iter().filter(|id| *id != "dead-forgotten") {
        let contract = if never.contains(&id) { Contract::Never } else { KEY };
        keys.insert(id, ledger.accept(id, id, once(contract)));
    }
    ledger.claim("leased", 1);
    ledger.sending("sending", 1);
    ledger.attempt("delivered", 1, &applied());
    ledger.attempt("dead", 1, &refused());
    ledger.attempt("dead-unknown", 1, &unknown());
    let items = ledger.claim("parked", 1);
    ledger.report(&items, &Happened::Blocked(ParkReason::TargetUnknown));
    let items = ledger.claim("parked-account", 1);
    ledger.report(&items, &Happened::Blocked(ParkReason::AccountChanged));
    ledger.attempt("in-doubt", 1, &unknown());
    ledger.attempt("stopped", 1, &unauthorized());
    ledger.pause("paused");
    let cancel = counterfoil_store::outbox::Order {
        which: vec![counterfoil_store::outbox::Which::Key(keys["cancelled"])],
        action: counterfoil_store::outbox::Action::Withdraw(
            counterfoil_core::delivery::Withdrawal::Cancel,
        ),
        who: "olga".into(),
        reason: "called off".into(),
    };
    ledger.run(ledger.store.direct(cancel)).expect("the ledger works");
    ledger.close();
    keys
}
