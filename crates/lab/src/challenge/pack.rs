//! The challenges themselves: what is asked, and which answers hold the rule.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::program::Program;

/// One challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// Its name.
    pub name: &'static str,
    /// What an implementation must do.
    pub rule: &'static str,
    /// How it begins: each begins with one effect, but for what is lost before it arrives.
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Identical,
    ChangedAnswers,
    NewNonce,
    OtherPrincipal,
    StrippedState,
    LostReply,
    NoRecord,
}

const fn challenge(name: &'static str, kind: Kind, rule: &'static str) -> Challenge {
    Challenge { name, rule, kind }
}

/// All of them.
pub const CHALLENGES: [Challenge; 7] = [
    challenge("identical", Kind::Identical, "an identical retry replays the stored result"),
    challenge("changed-answers", Kind::ChangedAnswers, "changed accepted input conflicts"),
    challenge("new-nonce", Kind::NewNonce, "a state of another issuance conflicts"),
    challenge("other-principal", Kind::OtherPrincipal, "another principal conflicts"),
    challenge("stripped-state", Kind::StrippedState, "answers without their state are rejected"),
    challenge("lost-reply", Kind::LostReply, "after a lost reply only a status is sent"),
    challenge("no-record", Kind::NoRecord, "a lost reply without a record stops, unknown"),
];

/// Puts one challenge to a program.
pub(super) async fn put(
    challenge: &Challenge,
    program: &mut Program,
    operation_id: &str,
) -> anyhow::Result<()> {
    let mut exam = Exam { program, operation_id };
    match challenge.kind {
        Kind::LostReply => return exam.lost_reply().await,
        Kind::NoRecord => return exam.no_record().await,
        Kind::StrippedState => {
            exam.begin("alice").await?;
            exam.expect(exam.resume("alice", &Value::Null, "one"), "reject").await?;
            return exam.effects(0).await;
        }
        _ => {}
    }
    let state = exam.begin("alice").await?;
    let first = exam.resume("alice", &state, "one");
    let made = exam.expect(first.clone(), "applied").await?;
    ensure!(!made["result"].is_null(), "an applied call has no 'result': {made}");
    match challenge.kind {
        Kind::Identical => {
            let again = exam.expect(first.clone(), "replay").await?;
            let (one, other) = (&made["result"], &again["result"]);
            ensure!(one == other, "the replay gives {other} and not the stored {one}");
        }
        Kind::ChangedAnswers => {
            exam.expect(exam.resume("alice", &state, "two"), "conflict").await?;
        }
        Kind::NewNonce => {
            let other = exam.begin("alice").await?;
            ensure!(other != state, "two issues for one operation gave one state: it has no nonce");
            exam.expect(exam.resume("alice", &other, "one"), "conflict").await?;
        }
        Kind::OtherPrincipal => {
            exam.expect(exam.resume("bob", &state, "one"), "conflict").await?;
        }
        Kind::StrippedState | Kind::LostReply | Kind::NoRecord => {}
    }
    if challenge.kind != Kind::Identical {
        // The refusal left the first one as it was.
        exam.expect(first, "replay").await?;
    }
    exam.effects(1).await
}

struct Exam<'a> {
    program: &'a mut Program,
    operation_id: &'a str,
}

impl Exam<'_> {
    async fn begin(&mut self, principal: &str) -> anyhow::Result<Value> {
        let question = json!({
            "do": "begin", "principal": principal, "operation_id": self.operation_id,
            "arguments": { "title": "Export fails" },
        });
        let answer = self.program.ask(&question).await?;
        let state = answer["state"].as_str().filter(|state| !state.is_empty());
        let state = state.with_context(|| format!("{question} was answered without a state"))?;
        Ok(state.into())
    }

    fn resume(&self, principal: &str, state: &Value, body: &str) -> Value {
        json!({
            "do": "continue", "principal": principal, "operation_id": self.operation_id,
            "arguments": { "title": "Export fails" }, "state": state, "answers": { "body": body },
        })
    }

    async fn expect(&mut self, question: Value, outcome: &str) -> anyhow::Result<Value> {
        let answer = self.program.ask(&question).await?;
        ensure!(
            answer["outcome"] == outcome,
            "{question} was to be answered by the outcome '{outcome}', and not by {answer}"
        );
        Ok(answer)
    }

    /// As many effects as there may be.
    async fn effects(&mut self, count: u64) -> anyhow::Result<()> {
        let question = json!({ "do": "effects", "operation_id": self.operation_id });
        let answer = self.program.ask(&question).await?;
        ensure!(answer["count"] == count, "there were to be {count} effects: {answer}");
        Ok(())
    }

    /// What the client of the implementation sends when no reply came.
    async fn next_is_status(&mut self) -> anyhow::Result<()> {
        let question =
            json!({ "do": "lost", "principal": "alice", "operation_id": self.operation_id });
        let answer = self.program.ask(&question).await?;
        ensure!(
            answer["send"] == "status",
            "after a lost reply nothing but a status may be sent, and not {answer}"
        );
        Ok(())
    }

    async fn status(&mut self, state: &str) -> anyhow::Result<Value> {
        let question =
            json!({ "do": "status", "principal": "alice", "operation_id": self.operation_id });
        let answer = self.program.ask(&question).await?;
        ensure!(answer["state"] == state, "the status was to be '{state}', and not {answer}");
        Ok(answer)
    }

    /// What the client makes of a status.
    async fn conclude(&mut self, status: &Value) -> anyhow::Result<Value> {
        let question = json!({
            "do": "conclude", "principal": "alice", "operation_id": self.operation_id,
            "status": status,
        });
        self.program.ask(&question).await
    }

    async fn lost_reply(&mut self) -> anyhow::Result<()> {
        let state = self.begin("alice").await?;
        let made = self.expect(self.resume("alice", &state, "one"), "applied").await?;
        // The lab keeps that answer to itself: to the client it is lost.
        self.next_is_status().await?;
        let status = self.status("applied").await?;
        let belief = self.conclude(&status).await?;
        ensure!(
            belief["action"] == "return_stored_result" && belief["effect"] == "applied",
            "an applied status was to give its stored result, and not {belief}"
        );
        let (one, other) = (&made["result"], &belief["result"]);
        ensure!(one == other, "the client returns {other} and not the stored {one}");
        self.effects(1).await
    }

    async fn no_record(&mut self) -> anyhow::Result<()> {
        self.begin("alice").await?;
        // The continuation never arrives.
        self.next_is_status().await?;
        let status = self.status("unknown").await?;
        let belief = self.conclude(&status).await?;
        ensure!(
            belief["action"] == "stop" && belief["effect"] == "unknown",
            "without a record the client stops and knows nothing; it must not {belief}"
        );
        self.effects(0).await
    }
}
