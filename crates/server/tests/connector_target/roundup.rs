//! connectors/roundup.toml against Roundup itself, an issue tracker that nobody here wrote, behind a
//! proxy that cuts connections at random places.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use counterfoil_core::delivery::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::desk;
use crate::world::World;

const PASSWORD: &str = "r0undup-sentinel";
const TICKETS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(240);

/// The tracker, in a folder of its own. It ends with this value.
struct Roundup {
    server: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Roundup {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Where Roundup's programs are: beside the tests' own Python. `None` outside `./test`.
fn programs() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("COUNTERFOIL_TEST_PYTHON")?);
    let folder = python.parent().expect("a program lies in a folder").to_owned();
    assert!(
        folder.join("roundup-server").exists(),
        "{} lacks roundup-server; ./test installs it from lab/python/requirements.txt",
        folder.display()
    );
    Some(folder)
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {told}{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// Whom the server becomes when it is started as root, which it refuses to stay unasked: nobody, if
/// nobody can read the programs and their Python.
fn user_for(programs: &Path) -> &'static str {
    let is_open =
        |folder: &Path| fs::metadata(folder).is_ok_and(|it| it.permissions().mode() & 0o001 != 0);
    let can_read = |path: &Path| {
        let real = fs::canonicalize(path).expect("it is there");
        real.ancestors().all(is_open)
    };
    if can_read(programs) && can_read(&programs.join("python")) { "nobody" } else { "root" }
}

impl Roundup {
    /// Installs a tracker whose own address is the proxy's, and starts it.
    fn start(programs: &Path, proxy: u16) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own");
        let home = folder.path().join("tracker");
        fs::create_dir(&home).expect("a folder");
        let admin = || {
            let mut command = Command::new(programs.join("roundup-admin"));
            command.arg("-i").arg(&home).env_remove("PYTHONPATH");
            command
        };
        let settings = format!(
            "mail_domain=example.test,mail_host=localhost,tracker_web=http://127.0.0.1:{proxy}/t/"
        );
        run(admin().args(["install", "classic", "sqlite", &settings]));
        run(admin().args(["initialise", PASSWORD]));
        let password = format!("password={PASSWORD}");
        let user = ["username=counterfoil", &password, "address=c@example.test", "roles=User"];
        run(admin().args(["create", "user"]).args(user));
        let user = user_for(programs);
        if is_root() {
            run(Command::new("chown").arg("-R").arg(user).arg(&home));
        }
        let port = free_port();
        let mut server = Command::new(programs.join("roundup-server"))
            .args(["-u", user, "-p", &port.to_string(), "-n", "127.0.0.1"])
            .arg(format!("t={}", home.display()))
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let told = BufReader::new(server.stdout.take().expect("a pipe"));
        let mut lines = told.lines();
        let is_up = lines.by_ref().any(|it| it.is_ok_and(|it| it.contains("server started")));
        assert!(is_up, "the tracker did not start");
        // What it says later must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { server, port, _folder: folder }
    }

    /// Every issue's title, read from the tracker directly.
    async fn titles(&self) -> Vec<String> {
        let pair = STANDARD.encode(format!("admin:{PASSWORD}"));
        let request = format!(
            "GET /t/rest/data/issue?@fields=title HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Accept: application/json\r\nX-Requested-With: rest\r\nAuthorization: Basic {pair}\r\n\r\n"
        );
        let answer = exchange(self.port, request.as_bytes()).await;
        let text = String::from_utf8(answer).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{text}");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let items = body["data"]["collection"].as_array().expect("a list");
        items.iter().map(|it| it["title"].as_str().expect("a title").to_owned()).collect()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Sends to the tracker and reads to the end of the answer.
async fn exchange(port: u16, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    stream.write_all(request).await.expect("it reads");
    let mut answer = Vec::new();
    // A tracker that closes early says all it will.
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

/// Where a connection is cut.
#[derive(Debug, Clone, Copy)]
enum Cut {
    BeforeRequest,
    MidRequest,
    AfterRequest,
    MidResponse,
    Nowhere,
}

/// Numbers from a seed (splitmix64).
#[derive(Debug)]
struct Random(AtomicU64);

impl Random {
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Three of ten connections are cut.
    fn cut(&self) -> Cut {
        match self.next() % 40 {
            0..=2 => Cut::BeforeRequest,
            3..=5 => Cut::MidRequest,
            6..=8 => Cut::AfterRequest,
            9..=11 => Cut::MidResponse,
            _ => Cut::Nowhere,
        }
    }

    /// A place inside `length` bytes.
    fn place(&self, length: usize) -> usize {
        let length = u64::try_from(length.max(1)).expect("small");
        usize::try_from(self.next() % length).expect("small")
    }
}

/// Carries one request to the tracker, or part of it.
async fn carry(mut client: TcpStream, to: u16, random: Arc<Random>, cuts: Arc<AtomicUsize>) {
    let cut = random.cut();
    if !matches!(cut, Cut::Nowhere) {
        cuts.fetch_add(1, Ordering::SeqCst);
    }
    if matches!(cut, Cut::BeforeRequest) {
        return;
    }
    let Some(seen) = desk::read(&mut client).await else { return };
    let mut tracker = TcpStream::connect(("127.0.0.1", to)).await.expect("it listens");
    if matches!(cut, Cut::MidRequest) {
        let part = random.place(seen.raw.len());
        let _ = tracker.write_all(&seen.raw[..part]).await;
        return;
    }
    tracker.write_all(&seen.raw).await.expect("it reads");
    if matches!(cut, Cut::AfterRequest) {
        drop(client);
        // The tracker gets to its end, unseen.
        let _ = tracker.read_to_end(&mut Vec::new()).await;
        return;
    }
    let mut answer = Vec::new();
    let _ = tracker.read_to_end(&mut answer).await;
    let whole = answer.len();
    let told = if matches!(cut, Cut::MidResponse) { random.place(whole) } else { whole };
    let _ = client.write_all(&answer[..told]).await;
    let _ = client.shutdown().await;
}

/// The connector's file with this tracker's address, and numbers that a test can wait for.
fn connector(proxy: u16) -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors/roundup.toml");
    let mut toml = fs::read_to_string(file).expect("readable");
    let origin = format!("http://127.0.0.1:{proxy}");
    for (from, to) in [
        ("Origin = \"https://tracker.example.test\"", format!("Origin = \"{origin}\"")),
        ("https://tracker.example.test", format!("{origin}/t")),
        ("# allow_networks", "allow_networks".to_owned()),
        ("\ntimeout = \"30s\"", "\ntimeout = \"5s\"".to_owned()),
        ("absence_after = \"90s\"", "absence_after = \"5s\"".to_owned()),
        ("backoff_base = \"2s\"", "backoff_base = \"50ms\"".to_owned()),
        ("backoff_cap = \"5m\"", "backoff_cap = \"1s\"".to_owned()),
        ("max_attempts = 10", "max_attempts = 50".to_owned()),
    ] {
        assert!(toml.contains(from), "the file has no {from}");
        toml = toml.replace(from, &to);
    }
    toml
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tickets_through_a_cut_line_make_a_hundred_issues() {
    // Promise: at a tracker that knows no idempotency keys, by a marker and a search, each ticket
    // becomes one issue, wherever its connections were cut.
    let Some(programs) = programs() else {
        eprintln!("NOT RUN: Roundup is installed by ./test");
        return;
    };
    let seed = std::env::var("COUNTERFOIL_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed} (COUNTERFOIL_TEST_SEED)");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let proxy = listener.local_addr().expect("bound").port();
    let tracker = Roundup::start(&programs, proxy);
    let (random, cuts) = (Arc::new(Random(AtomicU64::new(seed))), Arc::new(AtomicUsize::new(0)));
    let (to, counted) = (tracker.port, Arc::clone(&cuts));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, to, Arc::clone(&random), Arc::clone(&counted)));
        }
    });
    let mut world = World::new(&connector(proxy)).await;
    world.env = [("ROUNDUP_PASSWORD", PASSWORD)].into_iter().collect();
    let mut keys = Vec::new();
    for number in 0..TICKETS {
        let arguments = format!(r#"{{"title":"Ticket {number:03}","priority":"bug"}}"#);
        keys.push(world.submit(&format!("op-{number}"), &arguments).await);
    }
    let worker = world.work();
    let mut attempts = 0;
    for key in keys {
        let view = world.engine.wait_for_delivery(key, PATIENCE).await.expect("there");
        assert_eq!(view.delivery.state, State::Delivered, "seed {seed}: {:?}", view.delivery);
        assert!(view.delivery.external_id.is_some());
        attempts += view.delivery.attempts_count;
    }
    worker.stop().await;
    let mut titles = tracker.titles().await;
    titles.sort();
    let shown: Vec<&str> = titles.iter().map(|title| &title[.."Ticket 000".len()]).collect();
    let expected: Vec<String> = (0..TICKETS).map(|number| format!("Ticket {number:03}")).collect();
    assert_eq!(shown, expected, "seed {seed}");
    let cuts = cuts.load(Ordering::SeqCst);
    println!("{TICKETS} issues, {attempts} attempts, {cuts} connections cut");
    assert!(cuts > TICKETS / 10, "seed {seed}: the line was hardly cut");
}
