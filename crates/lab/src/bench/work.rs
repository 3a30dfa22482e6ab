//! The operations that are measured: made before the clock starts, and the same bytes for the
//! ledger and for raw SQLite.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use counterfoil::tools::issue_effect::{CreateIssue, Mode};
use counterfoil_core::admission::{Admitted, Attempt, Authority, Call};
use counterfoil_core::delivery::{Contract, TargetName, Terms};
use counterfoil_core::fingerprint::{KeyId, KeyRing, Profile, SecretKey};
use counterfoil_core::identity::{
    BootId, Caller, Nonce, OperationId, OperationKey, Principal, Tenant, ToolId, ToolVersion,
};
use counterfoil_core::json::{Object, Value};
use counterfoil_core::time::Span;
use counterfoil_store::Submission;
use counterfoil_store::outbox::Acceptance;

use crate::random::Random;

/// Bytes of an issue's title.
pub const TITLE_BYTES: usize = 40;
/// Bytes of an issue's body.
pub const BODY_BYTES: usize = 256;

/// For rounds that end when their work is done.
pub const ENDLESS: Duration = Duration::from_secs(600);

/// How many operations begin in a millisecond.
const PER_MS: i64 = 40;

/// What callers name their operations by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// UUIDs of version 7, in order of time.
    TimeOrdered,
    /// Random UUIDs.
    Random,
}

impl Ids {
    /// Its name in the results.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimeOrdered => "UUIDv7 IDs",
            Self::Random => "random IDs",
        }
    }
}

/// Makes operations, one unlike the other.
#[derive(Debug)]
pub struct Workload {
    ids: Ids,
    random: Random,
    keys: KeyRing,
    caller: Caller,
    tool_id: ToolId,
    tool_version: ToolVersion,
    boot: BootId,
    start_ms: i64,
    count: i64,
}

/// One operation as raw SQLite gets it.
#[derive(Debug)]
pub struct Row {
    /// The row's key.
    pub key: [u8; 16],
    /// The caller's ID.
    pub operation_id: OperationId,
    /// Stands for the full fingerprint.
    pub fingerprint: [u8; 32],
    /// Stands for the call fingerprint.
    pub call_fingerprint: [u8; 32],
    /// The run.
    pub boot: [u8; 16],
    /// The attempt.
    pub nonce: [u8; 16],
    /// Stands for the digest of the issue's row.
    pub effect_digest: [u8; 32],
    /// Stands for the digest of the operation's row.
    pub row_check: [u8; 16],
    /// The issue's title.
    pub title: String,
    /// The issue's body.
    pub body: String,
}

impl Row {
    /// A frozen request of the usual length.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        vec![b'r'; REQUEST_BYTES]
    }
}

/// The target of every delivery.
pub const TARGET: &str = "bench";
/// A frozen request: method, address, a few fields, title and body.
const REQUEST_BYTES: usize = 600;

impl Workload {
    /// Operations of a new seed, so that two workloads never share an ID.
    ///
    /// # Errors
    /// If the system gives no randomness.
    pub fn new(ids: Ids) -> anyhow::Result<Self> {
        let mut random = Random::new(getrandom::u64()?);
        let key = SecretKey::from_bytes(&[7; 32])?;
        let boot = BootId::from_bytes(random_bytes(&mut random));
        Ok(Self {
            ids,
            random,
            keys: KeyRing::new(KeyId(1), [(KeyId(1), key)])?,
            caller: Caller {
                tenant: Tenant::parse("local")?,
                principal: Principal::parse("alice")?,
            },
            tool_id: ToolId::parse("create_issue")?,
            tool_version: ToolVersion::parse("1")?,
            boot,
            start_ms: now_ms(),
            count: 0,
        })
    }

    /// The keys under which the operations' fingerprints are made.
    #[must_use]
    pub const fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// The next operation's ID and texts.
    pub fn issue(&mut self) -> (OperationId, String, String) {
        self.count += 1;
        let title = format!("{:<width$}", format!("Issue {}", self.count), width = TITLE_BYTES);
        let body = "The pump in hall 3 loses pressure. ".chars().cycle().take(BODY_BYTES).collect();
        (self.operation_id(), title, body)
    }

    /// The next operation for the ledger.
    pub fn submission(&mut self) -> Submission {
        let (operation_id, title, body) = self.issue();
        let attempt = Attempt {
            key: OperationKey::from_bytes(self.time_ordered()),
            nonce: Nonce::from_bytes(random_bytes(&mut self.random)),
            boot: self.boot,
        };
        let (arguments, call_arguments) = arguments(&operation_id, &title, &body);
        let call = Call {
            caller: &self.caller,
            tool_id: &self.tool_id,
            tool_version: &self.tool_version,
            profile: Profile::StrictV1,
            operation_id: &operation_id,
            arguments: &arguments,
            call_arguments: &call_arguments,
            continuation_state: None,
            input_responses: None,
            authority: Authority::Present,
        };
        let retention = Span::from_secs(30 * 86_400);
        let admitted = Admitted::admit(&call, &self.keys, retention, attempt)
            .expect("texts have a canonical form");
        let effect = CreateIssue { title, body, mode: Mode::Atomic };
        Submission { admitted, effect: Arc::new(effect) }
    }

    /// The next call for the outbox.
    pub fn acceptance(&mut self) -> Acceptance {
        let Submission { admitted, effect: _ } = self.submission();
        let terms = Terms {
            contract: Contract::Key { lifetime: Duration::from_secs(86_400) },
            max_attempts_count: 10,
            backoff_base: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(300),
            send_limit: Duration::from_secs(30),
            deliver_within: None,
        };
        let target = TargetName::parse(TARGET).expect("a valid name");
        Acceptance { admitted, target, terms, request: Arc::from(vec![b'r'; REQUEST_BYTES]) }
    }

    /// The next operation for raw SQLite. Digests are random bytes: raw SQLite makes none.
    pub fn row(&mut self) -> Row {
        let (operation_id, title, body) = self.issue();
        let key = self.time_ordered();
        let random = &mut self.random;
        Row {
            key,
            operation_id,
            fingerprint: random_bytes(random),
            call_fingerprint: random_bytes(random),
            boot: *self.boot.as_bytes(),
            nonce: random_bytes(random),
            effect_digest: random_bytes(random),
            row_check: random_bytes(random),
            title,
            body,
        }
    }

    fn operation_id(&mut self) -> OperationId {
        let bytes = match self.ids {
            Ids::TimeOrdered => self.time_ordered(),
            Ids::Random => {
                let mut bytes: [u8; 16] = random_bytes(&mut self.random);
                bytes[6] = 0x40 | (bytes[6] & 0x0f);
                bytes[8] = 0x80 | (bytes[8] & 0x3f);
                bytes
            }
        };
        OperationId::parse(&uuid_text(&bytes)).expect("a UUID is a valid ID")
    }

    /// A UUIDv7 (RFC 9562, section 5.7), random within its millisecond. Operations are prepared
    /// faster than they are made, so their times follow their count and not the clock: else more
    /// of them would share a millisecond than ever do.
    fn time_ordered(&mut self) -> [u8; 16] {
        let ms = self.start_ms + self.count / PER_MS;
        let mut bytes: [u8; 16] = random_bytes(&mut self.random);
        bytes[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        bytes
    }
}

/// The arguments with and without the operation ID.
fn arguments(id: &OperationId, title: &str, body: &str) -> (Value, Value) {
    let text = |text: &str| Value::String(text.to_owned());
    let mut object = Object::default();
    object.insert("title", text(title));
    object.insert("body", text(body));
    let without = Value::Object(object.clone());
    object.insert("operation_id", text(id.as_str()));
    (Value::Object(object), without)
}

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

fn random_bytes<const N: usize>(random: &mut Random) -> [u8; N] {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_be_bytes()[..chunk.len()]);
    }
    bytes
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// What the callers of one round take from, until it is empty or the time is up.
#[derive(Debug)]
pub struct Pool<T> {
    work: Mutex<VecDeque<T>>,
    duration: Duration,
}

impl<T> Pool<T> {
    /// `count` operations, for at most `duration`.
    pub fn fill(count: usize, duration: Duration, make: impl FnMut() -> T) -> Self {
        let work = std::iter::repeat_with(make).take(count).collect();
        Self { work: Mutex::new(work), duration }
    }

    /// The next operation of a round that began at `start`.
    pub fn take(&self, start: Instant) -> Option<T> {
        if start.elapsed() >= self.duration {
            return None;
        }
        self.work.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
