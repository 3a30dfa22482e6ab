//! Ends with work in flight, over the product's own binary: a closed output, a closed input, a
//! signal. What was begun settles, and the process ends in order. Work is held in flight by a lock
//! on the ledger, which this process holds.

mod common;

use std::path::Path;

use common::{Bench, HeldLock, check_raw_applied, product_server};
use counterfoil_lab::process::Ended;
use counterfoil_lab::raw::{RawClient, continuation, tool_call};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The longest wait there is: who waits for the lock gets it.
const PATIENT: [&str; 2] = ["--lock-wait", "1m"];

fn arguments(id: &str) -> Value {
    json!({ "operation_id": id, "title": "Export fails", "body": "It stops at row 65,536." })
}

async fn start(data_dir: &Path) -> RawClient {
    RawClient::start(&product_server(data_dir, &PATIENT)).await.expect("it starts")
}

/// A server with one call in flight that waits for the lock.
async fn in_flight(bench: &Bench) -> (RawClient, HeldLock) {
    let mut client = start(&bench.path("data")).await;
    // A first reply shows that the ledger is there.
    client.call("get_operation_status", &json!({ "operation_id": "k" })).await.expect("it serves");
    let lock = HeldLock::take(&bench.ledger());
    let call = tool_call(&json!("flight"), "create_issue", &arguments("k").to_string());
    client.send(call).await.expect("it reads");
    // Frames are read in order, so a reply to a later one shows that the call was taken in.
    client.call("get_operation_status", &json!({ "operation_id": "k" })).await.expect("it serves");
    (client, lock)
}

fn check_quiet(client: &mut RawClient) {
    let stderr = client.process().stderr();
    assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
}

#[tokio::test]
async fn the_reader_of_our_output_leaves() {
    // Promise: a client that no longer reads loses a reply and no effect; the server ends by
    // itself, in order.
    let bench = Bench::new("ends-epipe");
    let (mut client, lock) = in_flight(&bench).await;
    client.close_output();
    lock.release();
    assert_eq!(client.process().ended().await.expect("it ends"), Ended::Code(0));
    check_quiet(&mut client);
    bench.check_rows(1, &[("k", "applied")]);
}

#[tokio::test]
async fn the_input_ends() {
    // Promise: a client that closes its side gets the reply to what it sent, and then the end.
    let bench = Bench::new("ends-eof");
    let (mut client, lock) = in_flight(&bench).await;
    client.close_input();
    lock.release();
    let reply = client.reply().await.expect("it answers");
    assert_eq!(reply["id"], "flight");
    check_raw_applied(&reply, false);
    assert_eq!(client.rest().await.expect("the output ends"), "");
    assert_eq!(client.process().ended().await.expect("it ends"), Ended::Code(0));
    check_quiet(&mut client);
    bench.check_rows(1, &[("k", "applied")]);
}

#[tokio::test]
async fn a_signal_asks_it_to_stop() {
    // Promise: SIGTERM and SIGINT let what was begun end and be answered, and begin nothing new.
    for signal in [Signal::TERM, Signal::INT] {
        let bench = Bench::new(&format!("ends-signal-{}", signal.as_raw()));
        let (mut client, lock) = in_flight(&bench).await;
        client.process().signal(signal).expect("it lives");
        lock.release();
        let reply = client.reply().await.expect("it answers");
        assert_eq!(reply["id"], "flight");
        check_raw_applied(&reply, false);
        assert_eq!(client.rest().await.expect("the output ends"), "");
        assert_eq!(client.process().ended().await.expect("it ends"), Ended::Code(0));
        check_quiet(&mut client);
        bench.check_rows(1, &[("k", "applied")]);
    }
}

#[tokio::test]
async fn a_client_that_never_speaks_is_no_error() {
    // Promise: a probe that connects and leaves ends the server quietly.
    let bench = Bench::new("ends-silent");
    let mut client = start(&bench.path("data")).await;
    client.close_input();
    assert_eq!(client.rest().await.expect("the output ends"), "");
    assert_eq!(client.process().ended().await.expect("it ends"), Ended::Code(0));
    assert_eq!(client.process().stderr(), "");
}

#[tokio::test]
async fn one_request_over_two_connections_at_once() {
    // Promise: the same ID and payload on two connections make one effect, and both are told of
    // the same operation.
    let bench = Bench::new("two-connections");
    let dir = bench.path("data");
    let mut clients = [start(&dir).await, start(&dir).await];
    for client in &mut clients {
        let asked = client.call("get_operation_status", &json!({ "operation_id": "k" })).await;
        asked.expect("it serves");
    }
    let lock = HeldLock::take(&bench.ledger());
    for client in &mut clients {
        let call = tool_call(&json!(1), "create_issue", &arguments("k").to_string());
        client.send(call).await.expect("it reads");
    }
    lock.release();
    let mut replayed = Vec::new();
    for mut client in clients {
        let reply = client.reply().await.expect("it answers");
        let content = &reply["result"]["structuredContent"];
        assert_eq!(content["operationId"], "k", "{reply}");
        assert_eq!((&content["state"], &content["effectId"]), (&json!("applied"), &json!(1)));
        replayed.push(content["replayed"].as_bool().expect("a boolean"));
        assert_eq!(client.close().await.expect("it ends"), Ended::Code(0));
    }
    replayed.sort_unstable();
    assert_eq!(replayed, [false, true]);
    bench.check_rows(1, &[("k", "applied")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_together_share_one_new_ledger() {
    // Promise: two servers that find an empty directory make one ledger with one key: what one
    // seals the other opens, and all that both write is there.
    const WRITES: usize = 20;
    for round in 0..5 {
        let bench = Bench::new(&format!("start-together-{round}"));
        let dir = bench.path("data");
        let write = |name: &'static str| {
            let dir = dir.clone();
            tokio::spawn(async move {
                let mut client = start(&dir).await;
                for number in 0..WRITES {
                    let id = format!("{name}-{number}");
                    let reply = client.call("create_issue", &arguments(&id)).await;
                    check_raw_applied(&reply.expect("it answers"), false);
                }
                let question = json!({ "operation_id": "shared", "title": "t" });
                let asked = client.call("create_issue", &question).await.expect("it answers");
                (client, asked["result"]["requestState"].clone())
            })
        };
        let (one, other) = tokio::join!(write("one"), write("other"));
        let ((one, state), (mut other, _)) = (one.expect("no panic"), other.expect("no panic"));
        let answer = continuation(
            &json!(1),
            r#"{"operation_id":"shared","title":"t"}"#,
            r#"{"body":{"action":"accept","content":{"body":"b"}}}"#,
            &state.to_string(),
        );
        other.send(answer).await.expect("it reads");
        check_raw_applied(&other.reply().await.expect("it answers"), false);
        for client in [one, other] {
            assert_eq!(client.close().await.expect("it ends"), Ended::Code(0));
        }
        assert_eq!(bench.rows().count("issues"), 2 * WRITES as u64 + 1);
    }
}
