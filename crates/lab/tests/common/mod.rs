//! What the lab's tests share: a data directory, servers on it, and the facts that are left.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use counterfoil::data_dir::{DataDir, TOKENS_FILE};
use counterfoil::tokens::{self, NewToken, Right};
use counterfoil_lab::child::ChildOptions;
use counterfoil_lab::process::{Ended, Launch};
use counterfoil_lab::readback::{self, Rows};
use counterfoil_lab::session::{HttpWay, Protocol, Reply, Session};
use counterfoil_lab::transcript::{self, Frame, Side};
use counterfoil_store::{Clock as _, SystemClock};
use serde_json::{Value, json};

/// The lab's binary.
pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_counterfoil-lab");

/// A data directory, and a directory for the transcripts of the servers on it.
#[derive(Debug)]
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    transcripts: PathBuf,
    opened_count: AtomicU32,
    over: Over,
}

/// How servers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Stdio,
    Http,
}

/// Every revision over stdio, and the newest one over HTTP: where an older client may resume its
/// stream, a lost reply would not stay lost.
pub(crate) const WAYS: [(Protocol, Over); 4] = [
    (Protocol::V2026_07_28, Over::Stdio),
    (Protocol::V2026_07_28, Over::Http),
    (Protocol::V2025_11_25, Over::Stdio),
    (Protocol::V2025_06_18, Over::Stdio),
];

impl Bench {
    /// An empty bench. The transcripts stay under the build directory, by this name, until the next
    /// run; the ledger goes with the bench.
    pub(crate) fn new(name: &str) -> Self {
        let transcripts = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if transcripts.exists() {
            std::fs::remove_dir_all(&transcripts).expect("old transcripts can be removed");
        }
        std::fs::create_dir_all(&transcripts).expect("transcripts can be kept");
        let folder = tempfile::tempdir().expect("a folder for the ledger");
        Self { folder, transcripts, opened_count: AtomicU32::new(0), over: Over::Stdio }
    }

    /// A bench for one case in one protocol.
    pub(crate) fn of_case(case: &str, protocol: Protocol, over: Over) -> Self {
        let name = format!("{case}-{}-{over:?}", protocol.as_str()).to_lowercase();
        Self { over, ..Self::new(&name) }
    }

    /// A path in the bench's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A child's defaults on the bench's data directory.
    pub(crate) fn options(&self) -> ChildOptions {
        ChildOptions::new(&self.path("data"))
    }

    /// The ledger's file.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.options().ledger()
    }

    /// The command line of a child behind a relay, and its transcript.
    pub(crate) fn relayed(&self, options: &ChildOptions) -> (Launch, PathBuf) {
        let (_, transcript) = self.next_transcript(options);
        (launch(options).through_relay(Path::new(LAB), &transcript), transcript)
    }

    fn next_transcript(&self, options: &ChildOptions) -> (u32, PathBuf) {
        let number = self.opened_count.fetch_add(1, Ordering::SeqCst) + 1;
        let name = format!("{number:02}-{}.jsonl", options.principal);
        (number, self.transcripts.join(name))
    }

    /// A new bearer token for the caller of these options.
    fn token(&self, options: &ChildOptions) -> String {
        let dir = &options.data_dir;
        DataDir::prepare(dir, None).expect("a data directory can be made");
        let caller = options.caller().expect("a name");
        let new = NewToken { caller, rights: vec![Right::Tools], expires_at: None };
        let made = tokens::create(&dir.join(TOKENS_FILE), &new, SystemClock.wall());
        made.expect("a token can be made").secret.reveal().to_owned()
    }

    async fn open_http(&self, options: &ChildOptions) -> (Session, PathBuf) {
        let (number, transcript) = self.next_transcript(options);
        let address = Some((Ipv4Addr::LOCALHOST, 0).into());
        let options = ChildOptions { http: address, ..options.clone() };
        let way = HttpWay {
            lab: Path::new(LAB),
            transcript: &transcript,
            socket: &self.path(&format!("{number}.sock")),
            token: &self.token(&options),
        };
        (Session::open_http(&launch(&options), &way).await.expect("the child serves"), transcript)
    }

    /// Starts a child behind a relay, and a client on it.
    pub(crate) async fn open(&self, options: &ChildOptions, protocol: Protocol) -> Session {
        self.open_kept(options, protocol).await.0
    }

    /// The same, with the path of the transcript.
    pub(crate) async fn open_kept(
        &self,
        options: &ChildOptions,
        protocol: Protocol,
    ) -> (Session, PathBuf) {
        if self.over == Over::Http {
            assert!(protocol.is_modern(), "over HTTP the lab's client speaks the newest revision");
            return self.open_http(options).await;
        }
        let (launch, transcript) = self.relayed(options);
        (Session::open(&launch, protocol).await.expect("the child serves"), transcript)
    }

    /// The physical rows.
    pub(crate) fn rows(&self) -> Rows {
        readback::read(&self.ledger()).expect("the ledger can be read back")
    }

    /// Checks the physical rows: as many issues, and exactly these operations in these states.
    #[track_caller]
    pub(crate) fn check_rows(&self, issue_count: u64, states: &[(&str, &str)]) -> Rows {
        let rows = self.rows();
        let found: Vec<(String, String)> = rows.states().into_iter().collect();
        let mut expected: Vec<(String, String)> =
            states.iter().map(|(id, state)| ((*id).into(), (*state).into())).collect();
        expected.sort();
        assert_eq!(found, expected, "operations");
        assert_eq!(rows.count("issues"), issue_count, "issues");
        rows
    }
}

/// The command line of a child.
pub(crate) fn launch(options: &ChildOptions) -> Launch {
    Launch::child(Path::new(LAB), options.to_arguments())
}

/// Ends a session in the normal way.
#[track_caller]
pub(crate) fn close(session: Session) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let ended = session.close().await.expect("the server ends");
        assert_eq!(ended, Ended::Code(0), "closed at {place}");
    }
}

/// What a reply to `create_issue` says.
#[track_caller]
pub(crate) fn check_settled(
    reply: &Reply,
    state: &str,
    effect_id: i64,
    result: &str,
    replayed: bool,
) {
    let content = reply.content();
    let said = (&content["state"], &content["effectId"], &content["result"], &content["replayed"]);
    assert_eq!(
        said,
        (&json!(state), &json!(effect_id), &json!(result), &json!(replayed)),
        "{content}"
    );
}

/// The one issue of a case, made now or before.
#[track_caller]
pub(crate) fn check_applied(reply: &Reply, replayed: bool) {
    check_settled(reply, "applied", 1, "created 1", replayed);
}

/// The code of a refusal, and what the caller may do next.
#[track_caller]
pub(crate) fn check_refused(reply: &Reply, code: &str, retry: &str) {
    let refusal = reply.refusal();
    assert_eq!((&refusal["code"], &refusal["retry"]), (&json!(code), &json!(retry)), "{refusal}");
}

/// The one answer to a state that cannot be used.
#[track_caller]
pub(crate) fn check_state_refused(reply: &Reply) {
    match reply {
        Reply::Error { code: -32602, message, data } => {
            assert!(message.starts_with("the continuation state is not usable"), "{message}");
            assert_eq!(data, &json!({ "retry": "status_only" }));
        }
        other => panic!("the state was to be refused: {other:?}"),
    }
}

/// A status that settles nothing.
#[track_caller]
pub(crate) fn check_unknown(reply: &Reply, detail: &str) {
    let content = reply.content();
    assert_eq!(content["state"], "unknown", "{content}");
    assert_eq!(content["detail"], detail, "{content}");
    assert_eq!(content["authoritative"], false, "{content}");
    assert_eq!(content["freshWriteAuthorized"], false, "{content}");
    assert_eq!(content["matchingIds"], json!([]), "{content}");
    assert_eq!(content["storedResult"], Value::Null, "{content}");
}

/// A status that settles the one issue of a case.
#[track_caller]
pub(crate) fn check_observed(reply: &Reply, state: &str, result: &str) {
    let content = reply.content();
    assert_eq!(content["state"], state, "{content}");
    assert_eq!(content["authoritative"], true, "{content}");
    assert_eq!(content["freshWriteAuthorized"], false, "{content}");
    assert_eq!(content["matchingIds"], json!([1]), "{content}");
    assert_eq!(content["storedResult"], result, "{content}");
}

/// What the client sent, as JSON.
pub(crate) fn sent(transcript: &Path) -> Vec<Value> {
    frames(transcript, Side::Client).iter().map(Frame::json).collect()
}

/// The frames of one side.
pub(crate) fn frames(transcript: &Path, side: Side) -> Vec<Frame> {
    let all = transcript::read(transcript).expect("the relay kept a transcript");
    all.into_iter().filter(|frame| frame.from == side).collect()
}

/// The tools that a transcript's client called.
pub(crate) fn called_tools(transcript: &Path) -> Vec<String> {
    let calls = sent(transcript).into_iter().filter(|frame| frame["method"] == "tools/call");
    calls.map(|call| call["params"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Says something to whoever runs the tests, whether they pass or not.
pub(crate) fn note(words: &str) {
    writeln!(std::io::stderr(), "{words}").expect("stderr is open");
}

/// Whether the long form of the tests was asked for.
pub(crate) fn full() -> bool {
    std::env::var("COUNTERFOIL_TEST_FULL").is_ok_and(|value| value == "1")
}

/// The product's own binary, which cargo builds beside the lab's.
pub(crate) fn product() -> PathBuf {
    let path = Path::new(LAB).with_file_name("counterfoil");
    assert!(path.exists(), "{} is not built: run `cargo build -p counterfoil`", path.display());
    path
}

/// A write lock on a ledger, held by another process than its servers: this one.
#[derive(Debug)]
pub(crate) struct HeldLock(rusqlite::Connection);

impl HeldLock {
    pub(crate) fn take(ledger: &Path) -> Self {
        let connection = rusqlite::Connection::open(ledger).expect("the ledger opens");
        connection.busy_timeout(counterfoil_lab::within::PATIENCE).expect("a time-out can be set");
        connection.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
        Self(connection)
    }

    pub(crate) fn release(self) {
        self.0.execute_batch("ROLLBACK").expect("the lock is held");
        self.0.close().expect("nothing is left open");
    }
}

/// The product's own server on a data directory, as `alice`.
pub(crate) fn product_server(data_dir: &Path, more: &[&str]) -> Launch {
    let mut arguments: Vec<std::ffi::OsString> =
        vec!["serve".into(), "--stdio".into(), "--principal".into(), "alice".into()];
    arguments.extend(["--data-dir".into(), data_dir.into()]);
    arguments.extend(more.iter().map(Into::into));
    // What the tests' own environment sets must not reach it.
    Launch::server(&product(), arguments).env("COUNTERFOIL_LOG", "warn")
}

/// A reply to `create_issue` that came raw.
#[track_caller]
pub(crate) fn check_raw_applied(reply: &Value, replayed: bool) {
    let content = &reply["result"]["structuredContent"];
    assert_eq!(
        (&content["state"], &content["replayed"]),
        (&json!("applied"), &json!(replayed)),
        "{reply}"
    );
}

/// The code of a refusal that came raw.
#[track_caller]
pub(crate) fn check_raw_refused(reply: &Value, code: &str) {
    assert_eq!(reply["result"]["isError"], true, "{reply}");
    assert_eq!(reply["result"]["structuredContent"]["error"]["code"], code, "{reply}");
}

/// A small file system of its own. Unmounted when dropped, at the latest when its users have ended.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Says why if it cannot be had here.
    pub(crate) fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir_all(&path).expect("a mount point can be made");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "counterfoil-lab"])
            .arg(&path)
            .output();
        match output {
            Ok(output) if output.status.success() => return Some(Self(path)),
            Ok(output) => note(String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => note(&format!("mount: {error}")),
        }
        note("NOT RUN: this needs a small tmpfs, and none can be mounted here");
        None
    }

    /// Makes it read-only.
    pub(crate) fn seal(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "it is ours to remount");
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).expect("there is room for a name");
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
