//! Who calls: by the token of each request, and by nothing else.

use std::time::Duration;

use counterfoil::tokens::{self, NewToken, Right};
use serde_json::json;

use crate::client::Request;
use crate::gated::GatedStore;
use crate::server::{Server, Start, caller, now};

const ID: &str = "0123456789abcdef";

fn good() -> Request {
    Request::create(&json!(1), ID, "t")
}

#[tokio::test]
async fn each_kind_of_bad_login_has_its_answer() {
    // Promise: missing and wrong are 401, malformed is 400, a missing right is 403; only the
    // challenge tells them apart, and nobody learns whether a token was ever good.
    let server = Server::start().await;
    let good_token = server.token("alice");
    let (revoked_id, revoked) = server.token_in("acme", "alice");
    tokens::revoke(&server.tokens, &revoked_id, now()).expect("it is there");
    let new = |rights, expires_at| NewToken { caller: caller("acme", "alice"), rights, expires_at };
    let expired = server.new_token(&new(vec![Right::Tools], Some(now()))).1;
    let metrics = server.new_token(&new(vec![Right::Metrics], None)).1;
    let with = |value: &str| good().with("Authorization", value);
    let bearer = |token: &str| with(&format!("Bearer {token}"));
    let invalid = Some("error=\"invalid_token\"");
    let malformed = Some("error=\"invalid_request\"");
    let cases: Vec<(&str, Request, u16, Option<&str>)> = vec![
        ("none", good(), 401, None),
        ("another scheme", with("Basic YWxpY2U6eA=="), 401, None),
        ("wrong", bearer("cf_wrong"), 401, invalid),
        ("of the right form", bearer(&format!("cf_{}", "A".repeat(43))), 401, invalid),
        ("cut", bearer(&good_token[..good_token.len() - 1]), 401, invalid),
        ("longer", bearer(&format!("{good_token}A")), 401, invalid),
        ("other case", bearer(&good_token.to_uppercase()), 401, invalid),
        ("revoked", bearer(&revoked), 401, invalid),
        ("expired", bearer(&expired), 401, invalid),
        ("no token", with("Bearer"), 400, malformed),
        ("two words", bearer("a b"), 400, malformed),
        ("two headers", bearer(&good_token).with("Authorization", "Bearer x"), 400, malformed),
        ("for metrics alone", bearer(&metrics), 403, Some("error=\"insufficient_scope\"")),
        ("good", bearer(&good_token), 200, None),
        ("good, other case of the scheme", with(&format!("bearer {good_token}")), 200, None),
    ];
    let mut invalid_replies = Vec::new();
    for (name, request, status, expected) in cases {
        let reply = server.ask(&request).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
        let challenge = reply.header("www-authenticate").unwrap_or_default().to_owned();
        match expected {
            Some(words) => assert!(challenge.contains(words), "{name}: {challenge}"),
            None if status == 401 => assert_eq!(challenge, "Bearer", "{name}"),
            None => assert_eq!(challenge, "", "{name}"),
        }
        if expected == invalid {
            invalid_replies.push((challenge, reply.text()));
        }
        assert!(!reply.text().contains(&good_token), "{name}");
    }
    invalid_replies.dedup();
    assert_eq!(invalid_replies.len(), 1, "one answer, whatever is wrong with a token");
    server.stop().await;
}

#[tokio::test]
async fn principals_and_tenants_see_what_is_theirs() {
    // Promise: the token says whose operation it is; another principal conflicts and learns
    // nothing, and another tenant has an ID space of its own.
    let server = Server::start().await;
    let alice = server.token("alice");
    let bob = server.token("bob");
    let other = server.token_in("other", "alice").1;
    let first = server.ask(&good().by(&alice)).await;
    assert_eq!(first.state(), "applied", "{}", first.text());
    let conflict = server.ask(&good().by(&bob)).await;
    assert_eq!(conflict.refusal(), "operation_conflict");
    let changed = server.ask(&Request::create(&json!(1), ID, "changed").by(&alice)).await;
    assert_eq!(changed.text(), conflict.text(), "both conflicts are one and the same");
    assert_eq!(server.ask(&Request::status_of(ID).by(&bob)).await.state(), "unknown");
    assert_eq!(
        server.ask(&good().by(&other)).await.json()["result"]["structuredContent"]["replayed"],
        false
    );
    let status = server.ask(&Request::status_of(ID).by(&alice)).await;
    assert_eq!(status.state(), "applied");
    assert_eq!(status.json()["result"]["structuredContent"]["principal"], "alice");
    server.stop().await;
}

#[tokio::test]
async fn a_token_revoked_in_mid_call_ends_no_call_and_begins_none() {
    // Promise: a call that was let in may end and is answered; the next one is refused at once.
    let store = GatedStore::new();
    let server = Start { store: store.clone(), ..Start::default() }.run().await;
    let (id, token) = server.token_in("acme", "alice");
    let mut client = server.connect().await;
    client.send(good().by(&token).bytes()).await;
    store.arrivals(1).await;
    tokens::revoke(&server.tokens, &id, now()).expect("it is there");
    assert_eq!(server.ask(&Request::status_of(ID).by(&token)).await.status, 401);
    store.go.add_permits(1);
    let reply = client.reply().await;
    assert_eq!(reply.state(), "applied", "{}", reply.text());
    let next = client.ask(&Request::status_of(ID).by(&token)).await;
    assert_eq!(next.status, 401, "the connection is no proof of identity: {}", next.text());
    server.stop().await;
}

#[tokio::test]
async fn a_list_of_tokens_that_cannot_be_read_lets_nobody_in() {
    // Promise: a damaged file grants nothing, the server says so, and recovers by itself.
    let server = Server::start().await;
    let token = server.token("alice");
    assert_eq!(server.ask(&good().by(&token)).await.state(), "applied");
    let kept = std::fs::read(&server.tokens).expect("it is there");
    std::fs::write(&server.tokens, "{").expect("written");
    assert_eq!(server.ask(&good().by(&token)).await.status, 503);
    let ready = server.ask(&Request::get("/readyz")).await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("list of tokens"), "{}", ready.text());
    std::fs::write(&server.tokens, kept).expect("written");
    assert_eq!(server.ask(&good().by(&token)).await.state(), "applied");
    assert_eq!(server.ask(&Request::get("/readyz")).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn metrics_need_a_token_where_strangers_can_come() {
    // Promise: on an address of other machines' reach nobody reads the counts without the right.
    let server = Start { bind: "0.0.0.0:0", ..Start::default() }.run().await;
    let tools = server.token("alice");
    let rights = vec![Right::Metrics];
    let metrics = server.new_token(&NewToken {
        caller: caller("ops", "prometheus"),
        rights,
        expires_at: None,
    });
    let get = || Request::get("/metrics");
    assert_eq!(server.ask(&get()).await.status, 401);
    assert_eq!(server.ask(&get().by(&tools)).await.status, 403);
    assert_eq!(server.ask(&get().by(&metrics.1)).await.status, 200);
    assert_eq!(server.ask(&Request::get("/healthz")).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_server_without_tokens_knows_one_caller_and_takes_no_token() {
    // Promise: with the operator's word every local process is the principal of the settings, and
    // nobody who means to be somebody else becomes that one by accident.
    let server = Start { local_only: true, ..Start::default() }.run().await;
    let reply = server.ask(&good()).await;
    assert_eq!(reply.state(), "applied", "{}", reply.text());
    let status = server.ask(&Request::status_of(ID)).await;
    assert_eq!(status.json()["result"]["structuredContent"]["principal"], "local");
    assert_eq!(server.ask(&good().by("cf_x")).await.status, 401);
    server.stop().await;
}

#[tokio::test]
async fn a_token_ends_while_the_server_runs() {
    // Promise: expiry needs no restart and no change of the file.
    let server = Server::start().await;
    let end = now().plus(Duration::from_millis(300));
    let rights = vec![Right::Tools];
    let new = NewToken { caller: caller("acme", "alice"), rights, expires_at: Some(end) };
    let token = server.new_token(&new).1;
    let ended = async {
        while server.ask(&Request::status_of(ID).by(&token)).await.status == 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::client::WATCHDOG, ended).await.expect("it ends");
    assert!(now() >= end);
    server.stop().await;
}
