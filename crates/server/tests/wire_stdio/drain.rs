//! The end of a connection: what is in flight is settled first.

use std::time::Duration;

use counterfoil::wire::{DrainCause, Ended, StdioTransport, WireLimits};
use futures_util::FutureExt;
use rmcp::model::{EmptyResult, JsonRpcMessage, ServerJsonRpcMessage, ServerResult};
use rmcp::transport::Transport;
use serde_json::json;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio_util::sync::CancellationToken;

use crate::support::{Client, call, within};

fn ended(cause: DrainCause) -> Ended {
    Ended { cause, opened: true, unanswered_count: 0 }
}

#[tokio::test]
async fn requests_in_flight_are_answered_after_the_end_of_input() {
    // Promise: closing standard input loses no reply.
    let mut client = Client::connect();
    for id in ["1", "2"] {
        client.send(call(id, "wait", "{}")).await;
        client.entered().await;
    }
    client.send(call("3", "echo", "{}")).await;
    client.close_input();
    assert_eq!(client.reply().await["id"], 3);
    client.tools.gate.add_permits(2);
    let mut ids = [client.reply().await["id"].take(), client.reply().await["id"].take()];
    ids.sort_by_key(|id| id.as_i64());
    assert_eq!(ids, [json!(1), json!(2)]);
    assert_eq!(client.line().await, None);
    assert_eq!(client.ended().await, ended(DrainCause::EndOfInput));
}

#[tokio::test]
async fn shutdown_finishes_what_was_begun_and_begins_nothing() {
    // Promise: after the signal, requests in flight are answered and new ones are refused as not
    // started.
    let mut client = Client::connect();
    client.send(call("1", "wait", "{}")).await;
    client.entered().await;
    client.shutdown.cancel();
    tokio::task::yield_now().await;
    client.send(call("2", "echo", "{}")).await;
    let refused = client.reply().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32603)));
    client.tools.gate.add_permits(1);
    assert_eq!(client.reply().await["id"], 1);
    assert_eq!(client.completed_count(), 1);
    assert_eq!(client.ended().await, ended(DrainCause::Shutdown));
}

#[tokio::test]
async fn a_closed_output_lets_effects_settle_and_then_ends() {
    // Promise: when nobody reads our replies, what is in flight is finished, nothing panics, and
    // the connection ends by itself, although standard input is still open.
    let mut client = Client::connect();
    for id in ["1", "2", "3"] {
        client.send(call(id, "wait", "{}")).await;
        client.entered().await;
    }
    client.close_output();
    client.tools.gate.add_permits(3);
    let tools = client.tools.clone();
    assert_eq!(client.ended().await, ended(DrainCause::OutputClosed));
    assert_eq!(tools.completed.load(std::sync::atomic::Ordering::SeqCst), 3);
}

/// A transport without the SDK's loop, with one request taken and none answered.
async fn bare(limits: WireLimits) -> (StdioTransport, DuplexStream, CancellationToken) {
    let (mut input, server_input) = duplex(4096);
    let shutdown = CancellationToken::new();
    let mut transport =
        StdioTransport::spawn(server_input, tokio::io::sink(), limits, shutdown.clone());
    input.write_all(call("\"a\"", "echo", "{}").as_bytes()).await.unwrap();
    input.write_all(b"\n").await.unwrap();
    let request = within(transport.receive()).await;
    assert!(matches!(request, Some(JsonRpcMessage::Request(_))));
    (transport, input, shutdown)
}

/// Whether the transport, after everything that can happen has happened, still waits.
async fn still_waits(transport: &mut StdioTransport) -> bool {
    for _ in 0..100 {
        tokio::task::yield_now().await;
        if transport.receive().now_or_never().is_some() {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn the_end_waits_for_the_reply_or_the_cancellation() {
    // Promise: the SDK hears of the end only when no request waits for its answer.
    for by_signal in [false, true] {
        for cancelled in [false, true] {
            let (mut transport, mut input, shutdown) = bare(WireLimits::default()).await;
            assert!(still_waits(&mut transport).await);
            if cancelled {
                let frame = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
                input.write_all(frame).await.unwrap();
                input.write_all(b"\n").await.unwrap();
                let message = within(transport.receive()).await;
                assert!(matches!(message, Some(JsonRpcMessage::Notification(_))));
            }
            let input = if by_signal {
                shutdown.cancel();
                Some(input)
            } else {
                drop(input);
                None
            };
            if !cancelled {
                assert!(still_waits(&mut transport).await);
                let result = ServerResult::EmptyResult(EmptyResult {});
                let reply =
                    ServerJsonRpcMessage::response(result, rmcp::model::RequestId::Number(1));
                within(transport.send(reply)).await.unwrap();
            }
            assert!(within(transport.receive()).await.is_none());
            assert!(within(transport.receive()).await.is_none());
            drop(input);
        }
    }
}

#[tokio::test]
async fn the_drain_limit_ends_the_wait() {
    // Promise: a request that is never answered cannot keep the process for ever.
    let limits = WireLimits { drain_limit: Duration::ZERO, ..WireLimits::default() };
    let (mut transport, input, _shutdown) = bare(limits).await;
    drop(input);
    assert!(within(transport.receive()).await.is_none());
}
