//! One cell: a call through the proxy, its fault, and what a client does then by a clean way under
//! the same operation ID: ask, send again, ask.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use counterfoil_client::{
    Answers, Call, ConnectError, Connection, Connector, Consumer, HttpConnector, Journal, Limits,
    Reply as Answer, Sent, Settled, Watcher, Who as Believed,
};
use counterfoil_core::identity::OperationId;
use counterfoil_store::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::client::{Ask, call_over};
use super::lane::Lane;
use super::plan::{Plan, Position, Who, Wire};
use super::proxy::{Kept, Proxy};
use crate::history::{Recorder, Saw};
use crate::session::{Issue, Reply};
use crate::within::within;

/// A client gives up this long after the fault.
const DEADLINE: Duration = Duration::from_millis(250);

/// What happened in a cell.
#[derive(Debug)]
pub(super) struct Happened {
    pub struck: bool,
    /// Effects of the operation when the fault was about to happen.
    pub effects_at_fault: Option<u64>,
    /// What the call that met the fault came to.
    pub first: Option<Saw>,
    /// What asking and sending again came to.
    pub then: Vec<Option<Saw>>,
    pub kept: Kept,
}

/// Runs a cell. The history goes to the recorder.
pub(super) async fn run(
    lane: &Lane,
    plan: Plan,
    operation: &str,
    recorder: &Recorder,
) -> anyhow::Result<Happened> {
    let (mut proxy, mut hears) = Proxy::new(plan, operation);
    let to = match plan.wire {
        Wire::Stdio => None,
        Wire::HttpJson | Wire::HttpSse => Some(proxy.listen(lane.clean.to)?),
    };
    let gives_up = CancellationToken::new();
    let at_fault = OnceLock::new();
    let watch = async {
        if hears.recv().await.is_some() {
            let _ = at_fault.set(lane.effect_count(operation));
            proxy.go_on();
            tokio::time::sleep(DEADLINE).await;
            gives_up.cancel();
        }
        std::future::pending::<()>().await;
    };
    let issue = Issue::new(operation, "Export fails", "It stops at row 65,536.");
    let course = Course { lane, plan, issue: &issue, recorder, proxy: &proxy, to };
    let driven = async {
        match plan.who {
            Who::Raw => course.raw(&gives_up).await,
            Who::Recovering => Box::pin(course.recovering(&gives_up)).await,
        }
    };
    let course = async {
        tokio::select! {
            driven = driven => driven,
            () = watch => anyhow::bail!("a watch has no end"),
        }
    };
    let (first, mut then) = within("a call ends", course).await??;
    let struck = proxy.struck();
    let finished = tokio::task::spawn_blocking(move || proxy.finish());
    let kept = within("the connections end", finished).await???;
    // Whatever was late has come by now.
    let last = ask_raw(lane, &issue, recorder).await;
    then.push(Saw::from_reply(&last));
    let effects_at_fault = at_fault.into_inner().transpose()?;
    Ok(Happened { struck, effects_at_fault, first: Saw::from_reply(&first), then, kept })
}

struct Course<'a> {
    lane: &'a Lane,
    plan: Plan,
    issue: &'a Issue,
    recorder: &'a Recorder,
    proxy: &'a Proxy,
    to: Option<std::net::SocketAddr>,
}

type Ended = (Reply, Vec<Option<Saw>>);

impl Course<'_> {
    /// What was held goes on before the client asks, or after it has sent again.
    fn release_early(&self) {
        if self.plan.position == Position::First {
            self.proxy.release();
        }
    }

    async fn raw(&self, gives_up: &CancellationToken) -> anyhow::Result<Ended> {
        let write = Ask {
            id: format!("call-{}", self.issue.operation_id),
            tool: "create_issue",
            arguments: self.issue.arguments_with_body(),
            operation: &self.issue.operation_id,
        };
        let call = self.recorder.invoke_write(self.issue);
        let mut stream = self.stdio()?;
        let first = match (&mut stream, self.to) {
            (Some(stream), _) => call_over(stream, &write, gives_up).await,
            (None, to) => {
                let mut way = self.lane.clean.clone();
                way.to = to.context("a proxy of HTTP has an address")?;
                way.call(&write, gives_up).await
            }
        };
        self.recorder.ended(call, &first);
        self.release_early();
        let asked = ask_raw(self.lane, self.issue, self.recorder).await;
        let call = self.recorder.invoke_write(self.issue);
        let again = self.lane.clean.call(&write, &CancellationToken::new()).await;
        self.recorder.ended(call, &again);
        self.proxy.release();
        // Until here it was open: what came late could still be read.
        drop(stream);
        Ok((first, vec![Saw::from_reply(&asked), Saw::from_reply(&again)]))
    }

    fn stdio(&self) -> anyhow::Result<Option<UnixStream>> {
        if self.plan.wire != Wire::Stdio {
            return Ok(None);
        }
        let client = self.proxy.start(self.lane.stdio_server(&self.issue.operation_id)?)?;
        client.set_nonblocking(true)?;
        Ok(Some(UnixStream::from_std(client)?))
    }

    async fn recovering(&self, gives_up: &CancellationToken) -> anyhow::Result<Ended> {
        let clean = self.lane.connector(self.lane.clean.to)?;
        let faulty = match self.to {
            Some(to) => Through::Http(self.lane.connector(to)?),
            None => Through::Stdio(self),
        };
        let journal = self.lane.folder.join(format!("{}.journal", self.issue.operation_id));
        let consumer =
            Consumer::new(Journal::open(journal)?, Believed::default(), Limits::default());
        let call = self.recorder.invoke_write(self.issue);
        let prepared = consumer.prepare(self.call()?, "lab", SystemClock.wall())?;
        let sent = Box::pin(prepared.send_watched(&faulty, &GivesUp(gives_up))).await;
        let mut then = Vec::new();
        let first = match sent {
            Ok(Sent::Lost(lost)) => {
                let first = Reply::Lost(lost.reason().to_string());
                self.recorder.ended(call, &first);
                self.release_early();
                let asked = self.recorder.invoke_status(&self.issue.operation_id);
                let told = told(&Box::pin(lost.reconcile(&clean)).await);
                self.recorder.ended(asked, &told);
                then.push(Saw::from_reply(&told));
                first
            }
            Ok(Sent::Finished(finished)) => {
                let first = answered(finished.reply);
                self.recorder.ended(call, &first);
                self.release_early();
                first
            }
            Err(error) => anyhow::bail!("nothing was sent: {error}"),
        };
        // Its user gives the same order again.
        let call = self.recorder.invoke_write(self.issue);
        let prepared = consumer.prepare(self.call()?, "lab", SystemClock.wall())?;
        let again = match Box::pin(prepared.send(&clean)).await? {
            Sent::Finished(finished) => answered(finished.reply),
            Sent::Lost(lost) => Reply::Lost(lost.reason().to_string()),
        };
        self.recorder.ended(call, &again);
        self.proxy.release();
        then.push(Saw::from_reply(&again));
        Ok((first, then))
    }

    fn call(&self) -> anyhow::Result<Call> {
        let arguments = json!({ "title": self.issue.title, "mode": self.issue.mode });
        Ok(Call {
            tool: "create_issue".into(),
            arguments: arguments.as_object().context("an object")?.clone(),
            operation_id: Some(OperationId::parse(&self.issue.operation_id)?),
            answers: Answers::from_items([format!("body={}", self.issue.body).as_str()])?,
        })
    }
}

async fn ask_raw(lane: &Lane, issue: &Issue, recorder: &Recorder) -> Reply {
    let operation = &issue.operation_id;
    let arguments = json!({ "operation_id": operation });
    let id = format!("ask-{operation}");
    let ask = Ask { id, tool: "get_operation_status", arguments, operation };
    let call = recorder.invoke_status(operation);
    let reply = lane.clean.call(&ask, &CancellationToken::new()).await;
    recorder.ended(call, &reply);
    reply
}

/// A faulty way for the recovering client.
enum Through<'a> {
    Http(HttpConnector),
    Stdio(&'a Course<'a>),
}

impl Connector for Through<'_> {
    async fn connect(&self, answers: &Answers) -> Result<Connection, ConnectError> {
        match self {
            Self::Http(connector) => connector.connect(answers).await,
            Self::Stdio(course) => {
                let words = |error: anyhow::Error| ConnectError::Handshake(format!("{error:#}"));
                let opened = course.stdio().and_then(|stream| stream.context("a server"));
                Connection::open(opened.map_err(words)?.into_split(), answers).await
            }
        }
    }

    fn name(&self) -> &str {
        "lab"
    }
}

/// A user who waits no longer.
struct GivesUp<'a>(&'a CancellationToken);

impl Watcher for GivesUp<'_> {
    async fn stopped(&self) {
        self.0.cancelled().await;
    }

    fn asks_again(&self, _number: u32, _most: u32) {}
}

/// An answer as the history takes it.
fn answered(answer: Answer) -> Reply {
    match answer {
        Answer::Result(reply) => {
            Reply::Result { content: reply.value, is_error: reply.is_error, operation: Value::Null }
        }
        Answer::Refused(refused) => Reply::Result {
            content: json!({ "error": { "code": refused.code } }),
            is_error: true,
            operation: Value::Null,
        },
        Answer::InputMissing(_) => Reply::InputRequired { state: None },
    }
}

/// What asking led to, as the history takes it.
fn told(settled: &Settled) -> Reply {
    match &settled.observation {
        Some(seen) => Reply::Result {
            content: serde_json::to_value(seen).unwrap_or_default(),
            is_error: false,
            operation: Value::Null,
        },
        None => Reply::Lost(settled.doubt.clone().unwrap_or_default()),
    }
}
