//! Streamable HTTP in front of a server that speaks over stdio, so that the official suite, which
//! speaks HTTP alone, reaches `counterfoil wrap`. Messages pass as they came, to the byte; only
//! what says where a message belongs is looked at.
//!
//! Deliberately absent: what a real front checks of names, origins and headers. That is judged
//! where the product itself serves HTTP.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use anyhow::Context as _;
use clap::Args;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::process::say_ready;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// The first revision without sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// What the bridge is told.
#[derive(Debug, Args)]
pub struct BridgeArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR")]
    http: SocketAddr,
    /// The server's command and its arguments, behind --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The members of a message that say where it belongs.
#[derive(Debug, Deserialize)]
struct Seen<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    error: Option<SeenError>,
}

#[derive(Debug, Deserialize)]
struct SeenError {
    code: i64,
}

#[derive(Debug, Default, Deserialize)]
struct SeenParams<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<SeenMeta<'a>>,
    #[serde(borrow, rename = "progressToken")]
    progress: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct SeenMeta<'a> {
    #[serde(borrow, rename = "progressToken")]
    progress: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<&'a RawValue>,
}

/// What goes to a client: a message, and whether it is the answer.
type Out = (String, bool, Option<i64>);

/// A request that waits for its answer.
#[derive(Debug)]
struct Waiting {
    id: String,
    progress: Option<String>,
    out: UnboundedSender<Out>,
}

/// One server behind the bridge.
#[derive(Debug)]
struct Session {
    input: UnboundedSender<String>,
    waiting: Mutex<Vec<Waiting>>,
    /// The client's standing stream.
    stream: Mutex<Option<UnboundedSender<Out>>>,
}

/// All of them.
#[derive(Debug)]
struct Bridge {
    command: Vec<OsString>,
    scratch: PathBuf,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

/// Serves until stdin ends.
///
/// # Errors
/// If it cannot listen.
pub async fn run(args: &BridgeArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let bridge = Arc::new(Bridge {
        command: args.command.clone(),
        scratch: scratch.path().into(),
        sessions: Mutex::default(),
    });
    let listener = TcpListener::bind(args.http).await?;
    say_ready(Some(listener.local_addr()?))?;
    let (gone, stdin_ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // However it ends, nobody holds the bridge any more.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = gone.send(());
    });
    let accepting = async {
        while let Ok((stream, _)) = listener.accept().await {
            let bridge = Arc::clone(&bridge);
            tokio::spawn(async move {
                let answer = service_fn(move |request| {
                    let bridge = Arc::clone(&bridge);
                    async move { Ok::<_, Infallible>(bridge.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer);
                // A client that goes is not waited for.
                let _ = connection.await;
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = stdin_ended => {}
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let header = |name: &str| {
            request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (session, version) = (header(SESSION), header(VERSION));
        match *request.method() {
            Method::POST => {
                let Ok(body) = collect(request.into_body()).await else {
                    return plain(StatusCode::BAD_REQUEST);
                };
                self.post(&body, session, version).await
            }
            Method::GET => match session.and_then(|id| lock(&self.sessions).get(&id).cloned()) {
                Some(session) => {
                    let (out, waits) = unbounded_channel();
                    *lock(&session.stream) = Some(out);
                    stream(Answer::standing(waits, None))
                }
                None => plain(StatusCode::METHOD_NOT_ALLOWED),
            },
            Method::DELETE => {
                let ended = session.and_then(|id| lock(&self.sessions).remove(&id));
                plain(if ended.is_some() { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
            }
            _ => plain(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    async fn post(
        &self,
        body: &str,
        session: Option<String>,
        version: Option<String>,
    ) -> Response<Answer> {
        let Ok(seen) = serde_json::from_str::<Seen<'_>>(body) else {
            return plain(StatusCode::BAD_REQUEST);
        };
        let modern = version.as_deref() == Some(WITHOUT_SESSIONS)
            || (session.is_none() && seen.method.as_deref() != Some("initialize"));
        let opens = !modern && seen.method.as_deref() == Some("initialize");
        let name = match (modern, opens, session) {
            (true, ..) => WITHOUT_SESSIONS.to_owned(),
            (_, true, _) => random_name(),
            (_, _, session) => session.unwrap_or_default(),
        };
        let known = lock(&self.sessions).get(&name).cloned();
        let served = match known {
            Some(served) => served,
            None if modern || opens => match self.open(&name) {
                Ok(served) => served,
                Err(_) => return plain(StatusCode::INTERNAL_SERVER_ERROR),
            },
            None => return plain(StatusCode::NOT_FOUND),
        };
        // A line of its own, whatever line ends stand between its members.
        let line = body.replace(['\r', '\n'], " ");
        let (Some(id), Some(_)) = (seen.id, &seen.method) else {
            let sent = served.input.send(line).is_ok();
            return plain(if sent { StatusCode::ACCEPTED } else { StatusCode::BAD_GATEWAY });
        };
        let params = seen.params.map(RawValue::get);
        let params: SeenParams<'_> =
            params.and_then(|params| serde_json::from_str(params).ok()).unwrap_or_default();
        let progress = params.meta.unwrap_or_default().progress.map(|token| token.get().to_owned());
        let (out, waits) = unbounded_channel();
        let id = id.get().to_owned();
        lock(&served.waiting).push(Waiting { id: id.clone(), progress, out });
        if served.input.send(line).is_err() {
            return plain(StatusCode::BAD_GATEWAY);
        }
        let mut answer = first(waits, &served, id, modern).await;
        if opens && let Ok(name) = name.parse() {
            answer.headers_mut().insert(SESSION, name);
        }
        answer
    }

    /// Starts a server of its own for a session.
    fn open(&self, name: &str) -> anyhow::Result<Arc<Session>> {
        let program = self.command.first().context("no command")?;
        let mut child = Command::new(program)
            .args(&self.command[1..])
            .env("COUNTERFOIL_DATA_DIR", self.scratch.join(name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", Path::new(program).display()))?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (input, mut lines) = unbounded_channel::<String>();
        let session =
            Arc::new(Session { input, waiting: Mutex::default(), stream: Mutex::default() });
        lock(&self.sessions).insert(name.to_owned(), Arc::clone(&session));
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if stdin.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    break;
                }
            }
            drop(stdin);
            // It ends by itself when its input has ended.
            let _ = child.wait().await;
        });
        tokio::spawn(read(stdout, Arc::downgrade(&session)));
        Ok(session)
    }
}

/// Hands out what a server says.
async fn read(stdout: ChildStdout, session: std::sync::Weak<Session>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Some(session) = session.upgrade() else { return };
        session.hand_out(line);
    }
    if let Some(session) = session.upgrade() {
        lock(&session.waiting).clear();
    }
}

impl Session {
    fn hand_out(&self, line: String) {
        let Ok(seen) = serde_json::from_str::<Seen<'_>>(&line) else { return };
        let mut waiting = lock(&self.waiting);
        if let (Some(id), None) = (seen.id, &seen.method) {
            let code = seen.error.map(|error| error.code);
            if let Some(at) = waiting.iter().position(|one| one.id == id.get()) {
                // Whoever has gone needs no answer.
                let _ = waiting.remove(at).out.send((line, true, code));
            }
            return;
        }
        let params = seen.params.map(RawValue::get);
        let params: SeenParams<'_> =
            params.and_then(|params| serde_json::from_str(params).ok()).unwrap_or_default();
        let token = params.progress.map(RawValue::get);
        let subscription = params.meta.unwrap_or_default().subscription.map(RawValue::get);
        let named =
            |id: &str, raw: &str| id == raw || id.trim_matches('"') == raw.trim_matches('"');
        let by_name = waiting.iter().find(|one| {
            subscription.is_some_and(|id| named(&one.id, id))
                || (token.is_some() && one.progress.as_deref() == token)
        });
        // Stdio does not say to which request anything else belongs; the newest is the likeliest.
        let to = by_name.or_else(|| waiting.last()).map(|one| one.out.clone());
        if let Some(to) = to.or_else(|| lock(&self.stream).clone()) {
            let _ = to.send((line, false, None));
        }
    }
}

/// The answer to a request: one message, or a stream if something else comes first.
async fn first(
    mut waits: UnboundedReceiver<Out>,
    served: &Arc<Session>,
    id: String,
    modern: bool,
) -> Response<Answer> {
    match waits.recv().await {
        None => plain(StatusCode::BAD_GATEWAY),
        Some((message, true, code)) => {
            let status = match code {
                _ if !modern => StatusCode::OK,
                Some(-32601) => StatusCode::NOT_FOUND,
                Some(-32700 | -32600 | -32602 | -32020..=-32020 | -32022 | -32021) => {
                    StatusCode::BAD_REQUEST
                }
                _ => StatusCode::OK,
            };
            let mut answer = Response::new(Answer::whole(message));
            *answer.status_mut() = status;
            answer.headers_mut().insert("content-type", "application/json".parse().expect("ASCII"));
            answer
        }
        Some((message, false, _)) => {
            let left = modern.then(|| Left { session: Arc::clone(served), id });
            let mut body = Answer::standing(waits, left);
            body.first = Some(event(&message));
            stream(body)
        }
    }
}

fn event(message: &str) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

fn stream(body: Answer) -> Response<Answer> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert("content-type", "text/event-stream".parse().expect("ASCII"));
    answer
}

fn plain(status: StatusCode) -> Response<Answer> {
    let mut answer = Response::new(Answer::whole(String::new()));
    *answer.status_mut() = status;
    answer
}

fn random_name() -> String {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).expect("the system has random numbers");
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn collect(mut body: Incoming) -> anyhow::Result<String> {
    let mut all = Vec::new();
    while let Some(frame) =
        std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        if let Ok(data) = frame?.into_data() {
            all.extend_from_slice(&data);
        }
    }
    Ok(String::from_utf8(all)?)
}

/// Tells the server when a client has closed a stream before its answer.
#[derive(Debug)]
struct Left {
    session: Arc<Session>,
    id: String,
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut waiting = lock(&self.session.waiting);
        if let Some(at) = waiting.iter().position(|one| one.id == self.id) {
            waiting.remove(at);
            let id = &self.id;
            let cancel = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            // A server that has ended has nothing to cancel.
            let _ = self.session.input.send(cancel);
        }
    }
}

/// A body: a whole, or a stream of events.
#[derive(Debug)]
struct Answer {
    first: Option<Bytes>,
    waits: Option<UnboundedReceiver<Out>>,
    _left: Option<Left>,
}

impl Answer {
    fn whole(text: String) -> Self {
        let first = (!text.is_empty()).then(|| Bytes::from(text));
        Self { first, waits: None, _left: None }
    }

    const fn standing(waits: UnboundedReceiver<Out>, left: Option<Left>) -> Self {
        Self { first: None, waits: Some(waits), _left: left }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(waits) = self.waits.as_mut() else { return Poll::Ready(None) };
        match waits.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some((message, last, _))) => {
                if last {
                    self.waits = None;
                }
                Poll::Ready(Some(Ok(Frame::data(event(&message)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.waits.is_none()
    }
}
