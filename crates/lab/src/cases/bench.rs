//! A data directory with servers on it, one after the other or together, over one transport; what
//! each server was told, said and came to is kept.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use counterfoil::data_dir::{DataDir, TOKENS_FILE};
use counterfoil::tokens::{self, NewToken, Right};
use counterfoil_store::{Clock as _, SystemClock};

use super::Over;
use crate::child::ChildOptions;
use crate::evidence::ServerRun;
use crate::process::{Ended, Launch};
use crate::readback::{self, Rows};
use crate::session::{Caller, HttpWay, Protocol, Session};

/// A data directory, a directory for the transcripts of the servers on it, and how they are
/// reached.
#[derive(Debug)]
pub struct Bench {
    lab: PathBuf,
    folder: PathBuf,
    transcripts: PathBuf,
    protocol: Protocol,
    over: Over,
    unguarded: bool,
    runs: Runs,
}

type Runs = Arc<Mutex<Vec<ServerRun>>>;

/// A client on a server of a bench.
#[derive(Debug)]
pub struct Server {
    session: Session,
    transcript: PathBuf,
    index: usize,
    runs: Runs,
}

impl Bench {
    /// An empty bench of these two directories, which exist. `folder` gets the ledger and sockets,
    /// so its path has to be a short one. `lab` is the lab's program.
    #[must_use]
    pub fn new(lab: &Path, folder: &Path, transcripts: &Path) -> Self {
        Self {
            lab: lab.into(),
            folder: folder.into(),
            transcripts: transcripts.into(),
            protocol: Protocol::V2026_07_28,
            over: Over::Stdio,
            unguarded: false,
            runs: Runs::default(),
        }
    }

    /// The same in another revision and over another transport.
    #[must_use]
    pub fn by(self, protocol: Protocol, over: Over) -> Self {
        Self { protocol, over, ..self }
    }

    /// The same with servers that keep no ledger: then the cases have to fail.
    #[must_use]
    pub fn unguarded(self) -> Self {
        Self { unguarded: true, ..self }
    }

    /// The revision that its clients speak.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A path in the bench's own folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A child's defaults on the bench's data directory.
    #[must_use]
    pub fn options(&self) -> ChildOptions {
        let unguarded = self.unguarded;
        ChildOptions { unguarded, ..ChildOptions::new(&self.path("data")) }
    }

    /// The ledger's file.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.options().ledger()
    }

    /// Where the transcripts are.
    #[must_use]
    pub fn transcripts(&self) -> &Path {
        &self.transcripts
    }

    /// What every server that was opened so far was told, and how it ended.
    #[must_use]
    pub fn runs(&self) -> Vec<ServerRun> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The command line of a child behind a relay, and its transcript.
    #[must_use]
    pub fn relayed(&self, options: &ChildOptions) -> (Launch, PathBuf) {
        let (_, transcript) = self.begin(options);
        let launch = Launch::child(&self.lab, options.to_arguments());
        (launch.through_relay(&self.lab, &transcript), transcript)
    }

    /// Starts a child behind a relay, and a client on it.
    ///
    /// # Errors
    /// If they do not start, or cannot agree.
    pub async fn open(&self, options: &ChildOptions) -> anyhow::Result<Server> {
        let (index, transcript) = self.begin(options);
        let session = match self.over {
            Over::Stdio => {
                let launch = Launch::child(&self.lab, options.to_arguments());
                let launch = launch.through_relay(&self.lab, &transcript);
                Session::open(&launch, self.protocol).await?
            }
            Over::Http => self.open_http(options, index, &transcript).await?,
        };
        Ok(Server { session, transcript, index, runs: Arc::clone(&self.runs) })
    }

    async fn open_http(
        &self,
        options: &ChildOptions,
        index: usize,
        transcript: &Path,
    ) -> anyhow::Result<Session> {
        anyhow::ensure!(
            self.protocol.is_modern(),
            "over HTTP the lab's client speaks the newest revision"
        );
        let address = Some((Ipv4Addr::LOCALHOST, 0).into());
        let options = ChildOptions { http: address, ..options.clone() };
        let way = HttpWay {
            lab: &self.lab,
            transcript,
            socket: &self.path(&format!("{index}.sock")),
            token: &new_token(&options)?,
        };
        Session::open_http(&Launch::child(&self.lab, options.to_arguments()), &way).await
    }

    /// Notes a server that is about to start, and names its transcript.
    fn begin(&self, options: &ChildOptions) -> (usize, PathBuf) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let index = runs.len();
        let name = format!("{:02}-{}.jsonl", index + 1, options.principal);
        runs.push(ServerRun {
            number: index + 1,
            principal: options.principal.clone(),
            clock_ms: options.clock_ms,
            flags: flags(options),
            transcript: name.clone(),
            exit: None,
        });
        (index, self.transcripts.join(name))
    }

    /// The physical rows.
    ///
    /// # Errors
    /// If they cannot be read back.
    pub fn rows(&self) -> anyhow::Result<Rows> {
        readback::read(&self.ledger())
    }

    /// Checks the physical rows: as many issues, and exactly these operations in these states.
    ///
    /// # Errors
    /// If they cannot be read back.
    ///
    /// # Panics
    /// If they are others.
    #[track_caller]
    pub fn check_rows(&self, issue_count: u64, states: &[(&str, &str)]) -> anyhow::Result<Rows> {
        let rows = self.rows()?;
        let found: Vec<(String, String)> = rows.states().into_iter().collect();
        let mut expected: Vec<(String, String)> =
            states.iter().map(|(id, state)| ((*id).into(), (*state).into())).collect();
        expected.sort();
        assert_eq!(found, expected, "operations");
        assert_eq!(rows.count("issues"), issue_count, "issues");
        Ok(rows)
    }
}

impl Server {
    /// The side that sends; a clone can be used from another task.
    #[must_use]
    pub const fn caller(&self) -> &Caller {
        self.session.caller()
    }

    /// The relay's transcript. It is whole when the server has ended.
    #[must_use]
    pub fn transcript(&self) -> &Path {
        &self.transcript
    }

    /// Closes the connection; the server ends in order.
    ///
    /// # Errors
    /// If it does not end.
    ///
    /// # Panics
    /// If it ends with another code than 0.
    pub async fn close(self) -> anyhow::Result<()> {
        let ended = self.session.close().await?;
        note(&self.runs, self.index, ended);
        assert_eq!(ended, Ended::Code(0), "the server was to end in order");
        Ok(())
    }

    /// Waits for a server that ends by itself.
    ///
    /// # Errors
    /// If it does not end.
    ///
    /// # Panics
    /// If it ends with another code.
    pub async fn ends_with(self, code: i32) -> anyhow::Result<()> {
        let ended = self.session.ended().await?;
        note(&self.runs, self.index, ended);
        assert_eq!(ended, Ended::Code(code), "the server was to end at its cut");
        Ok(())
    }
}

fn note(runs: &Runs, index: usize, ended: Ended) {
    let text = match ended {
        Ended::Code(code) => code.to_string(),
        Ended::Signal(signal) => format!("signal {signal}"),
    };
    runs.lock().unwrap_or_else(PoisonError::into_inner)[index].exit = Some(text);
}

/// A child's flags but for what names places of this machine.
fn flags(options: &ChildOptions) -> Vec<String> {
    let words = options.to_arguments().into_iter().skip(3);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A new bearer token for the caller of these options.
fn new_token(options: &ChildOptions) -> anyhow::Result<String> {
    let dir = &options.data_dir;
    DataDir::prepare(dir, None)?;
    let new = NewToken { caller: options.caller()?, rights: vec![Right::Tools], expires_at: None };
    let made = tokens::create(&dir.join(TOKENS_FILE), &new, SystemClock.wall());
    Ok(made.context("no token can be made")?.secret.reveal().to_owned())
}
