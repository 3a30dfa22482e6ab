//! The server of a call: a command to run, or an address with a token that stands in no argument.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil_client::{
    BearerToken, ChildConnector, HttpConnector, HttpOptions, HttpSetupError, NoToken, ServerUrl,
    UrlError,
};
use zeroize::Zeroizing;

/// A token's file is not read beyond this.
const MOST_TOKEN_BYTES: u64 = 64 * 1024;

/// Where a server over HTTP is, and who calls.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "A server over HTTP")]
pub(super) struct HttpArgs {
    /// The server's MCP endpoint, in place of a command: http(s)://HOST:PORT/PATH
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    pub url: Option<String>,
    /// The file that holds the caller's token, for its owner alone (mode 0600)
    #[arg(long, value_name = "FILE", requires = "url",
          conflicts_with_all = ["server", "token_env"])]
    pub token_file: Option<PathBuf>,
    /// The environment variable that holds the caller's token
    #[arg(long, value_name = "VAR", requires = "url", conflicts_with = "server")]
    pub token_env: Option<String>,
    /// Refused: every process of the machine could read it
    #[arg(long, value_name = "TOKEN", hide = true, num_args = 0..=1)]
    pub token: Option<Option<String>>,
    /// PEM file of the authorities that may certify the server, in place of the system's
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with = "server")]
    pub ca_file: Option<PathBuf>,
    /// How long a connection may take to be there, in seconds; each request has its own
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "url", conflicts_with = "server",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub connect_timeout: u64,
    /// Lets the token go to another machine over plain http, where everybody on the way reads it
    #[arg(long, requires = "url", conflicts_with = "server")]
    pub allow_insecure_http: bool,
}

/// A server as the command line names it.
pub(super) enum GivenServer {
    /// A program with its arguments.
    Command(Vec<OsString>),
    /// An address.
    Http(Box<GivenHttp>),
}

/// An address, and how it is reached.
pub(super) struct GivenHttp {
    url: ServerUrl,
    options: HttpOptions,
    /// The options as they were typed, for the commands that are printed.
    words: Vec<OsString>,
}

/// A server that can be connected to.
pub(super) enum Server {
    Child(ChildConnector),
    Http(HttpConnector),
}

/// What is wrong with the address or the token. No token is shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadServer {
    #[error("--url: {0}")]
    Url(#[from] UrlError),
    #[error(
        "--token: a token among the arguments can be read by every process of this machine; take \
         it for known, revoke it, and give a new one by --token-file FILE or --token-env VAR"
    )]
    TokenInArguments,
    #[error("--token-file {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "--token-file {} has mode {mode:04o}, and only its owner may have access; run `chmod 600` \
         on it", .path.display()
    )]
    Open { path: PathBuf, mode: u32 },
    #[error("--token-file {}: {source}", .path.display())]
    NoTokenInFile { path: PathBuf, source: NoToken },
    #[error("--token-env: the variable {0} is not set")]
    NoVariable(String),
    #[error("--token-env {name}: {source}")]
    NoTokenInVariable { name: String, source: NoToken },
    #[error("{0}; or accept that with --allow-insecure-http")]
    Clear(HttpSetupError),
    #[error("--ca-file: {0}")]
    Setup(HttpSetupError),
}

impl GivenServer {
    /// Reads the token, and tries no connection.
    pub(super) fn new(http: HttpArgs, command: Vec<OsString>) -> Result<Self, BadServer> {
        if http.token.is_some() {
            return Err(BadServer::TokenInArguments);
        }
        let Some(url) = &http.url else { return Ok(Self::Command(command)) };
        let url = ServerUrl::parse(url)?;
        let words = http.words(&url);
        let token = match (&http.token_file, http.token_env) {
            (Some(path), _) => Some(token_in_file(path)?),
            (None, Some(name)) => Some(token_in_variable(name)?),
            (None, None) => None,
        };
        let options = HttpOptions {
            token,
            ca_file: http.ca_file,
            connect_timeout: Duration::from_secs(http.connect_timeout),
            token_in_clear: http.allow_insecure_http,
        };
        Ok(Self::Http(Box::new(GivenHttp { url, options, words })))
    }

    /// What connects to it.
    pub(super) fn connector(&self) -> Result<Server, BadServer> {
        match self {
            Self::Command(words) => {
                let (program, rest) = words.split_first().expect("clap requires a word");
                Ok(Server::Child(ChildConnector::new(program.clone(), rest.to_vec(), Vec::new())))
            }
            Self::Http(http) => HttpConnector::new(http.url.clone(), http.options.clone())
                .map(Server::Http)
                .map_err(|error| match error {
                    HttpSetupError::TokenInClear(_) => BadServer::Clear(error),
                    HttpSetupError::Tls(_) => BadServer::Setup(error),
                }),
        }
    }

    /// The words that name it on a command line.
    pub(super) fn words(&self) -> Vec<OsString> {
        match self {
            Self::Command(words) => [&["--".into()], &words[..]].concat(),
            Self::Http(http) => http.words.clone(),
        }
    }
}

/// The words that name a server of the journal.
pub(super) fn words_of(name: &str) -> Vec<OsString> {
    // A program's name has no slash in it.
    let before = if name.contains("://") { "--url" } else { "--" };
    vec![before.into(), name.into()]
}

impl HttpArgs {
    fn words(&self, url: &ServerUrl) -> Vec<OsString> {
        let mut words = vec!["--url".into(), url.as_str().into()];
        if let Some(path) = &self.token_file {
            words.extend(["--token-file".into(), path.into()]);
        }
        if let Some(name) = &self.token_env {
            words.extend(["--token-env".into(), name.into()]);
        }
        if let Some(path) = &self.ca_file {
            words.extend(["--ca-file".into(), path.into()]);
        }
        if self.allow_insecure_http {
            words.push("--allow-insecure-http".into());
        }
        words
    }
}

impl fmt::Debug for HttpArgs {
    /// The address or a misplaced token may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpArgs").finish_non_exhaustive()
    }
}

fn token_in_file(path: &Path) -> Result<BearerToken, BadServer> {
    let unreadable = |source| BadServer::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.permissions().mode() & 0o7777;
    // A pipe is read by whoever was given it, whatever its mode says.
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(BadServer::Open { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MOST_TOKEN_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    BearerToken::parse(&text)
        .map_err(|source| BadServer::NoTokenInFile { path: path.to_owned(), source })
}

fn token_in_variable(name: String) -> Result<BearerToken, BadServer> {
    let Some(text) = env::var_os(&name) else { return Err(BadServer::NoVariable(name)) };
    let parsed = text.to_str().ok_or(NoToken).and_then(BearerToken::parse);
    parsed.map_err(|source| BadServer::NoTokenInVariable { name, source })
}
