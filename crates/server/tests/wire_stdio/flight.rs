//! Requests in flight: IDs, cancellation, limits, panics.

use std::collections::HashMap;

use counterfoil::wire::WireLimits;
use serde_json::{Value, json};

use crate::support::{Client, call, modern, text};

fn cancel(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

#[tokio::test]
async fn each_request_in_flight_gets_its_own_answer_with_its_own_id() {
    // Promise: 1 and "1" are two requests, and an ID comes back with its type and digits.
    let mut client = Client::connect();
    let ids =
        ["1", "\"1\"", "2.0", "9007199254740993", "18446744073709551616", "\"é\\\"\"", "\"\""];
    for id in ids {
        client.send(call(id, "wait", &format!("{{\"for\":{id}}}"))).await;
        client.entered().await;
    }
    client.tools.gate.add_permits(ids.len());
    let mut answered = Vec::new();
    for _ in ids {
        let line = client.line().await.unwrap();
        let reply: Value = serde_json::from_str(&line).unwrap();
        let id =
            ids.iter().find(|id| line.starts_with(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},")));
        let id = id.unwrap_or_else(|| panic!("foreign ID: {line}"));
        assert_eq!(text(&reply), format!("{{\"for\":{id}}}"));
        answered.push(*id);
    }
    answered.sort_unstable();
    let mut expected = ids.to_vec();
    expected.sort_unstable();
    assert_eq!(answered, expected);
}

#[tokio::test]
async fn an_id_in_flight_cannot_be_used_again() {
    // Promise: the second request is refused by rule, the first keeps its reply, and the ID is
    // free again after that. The refusal carries no ID: with it, it would be the reply to the first
    // request, of which it would say that it was never taken.
    let mut client = Client::connect();
    client.send(call("1", "wait", r#"{"first":true}"#)).await;
    client.entered().await;
    for id in ["1", "1.0"] {
        client.send(call(id, "echo", "{}")).await;
        let reply = client.reply().await;
        assert_eq!(reply["error"]["code"], -32600, "{reply}");
        assert_eq!(reply.get("id"), None, "{reply}");
    }
    client.tools.gate.add_permits(1);
    assert_eq!(text(&client.reply().await), r#"{"first":true}"#);
    client.send(call("1", "echo", r#"{"again":true}"#)).await;
    assert_eq!(text(&client.reply().await), r#"{"again":true}"#);
    assert_eq!(client.completed_count(), 2);
}

#[tokio::test]
async fn the_reply_of_a_cancelled_request_never_answers_its_successor() {
    // Promise: an ID used again after a cancellation is answered by its own handler alone, even
    // while the cancelled one still runs.
    let mut client = Client::connect();
    client.send(call("7", "wait", r#"{"call":1}"#)).await;
    client.entered().await;
    client.send(cancel("7")).await;
    client.send(call("7", "wait", r#"{"call":2}"#)).await;
    client.entered().await;
    // The semaphore is fair: the cancelled call gets the first permit.
    client.tools.gate.add_permits(1);
    client.send(call("8", "echo", "{}")).await;
    assert_eq!(client.reply().await["id"], 8);
    client.tools.gate.add_permits(1);
    let reply = client.reply().await;
    assert_eq!((&reply["id"], text(&reply)), (&json!(7), r#"{"call":2}"#));
    client.close_input();
    assert_eq!(client.line().await, None, "nothing else is ever sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_gets_at_most_one_reply() {
    // Promise: cancelling between a handler's end and its reply yields one reply or none, the
    // effect stays, and the connection ends without waiting for what was cancelled.
    const ROUNDS: usize = 1000;
    let mut client = Client::connect();
    let mut replies: HashMap<String, usize> = HashMap::new();
    for round in 0..ROUNDS {
        client.send(call(&round.to_string(), "wait", "{}")).await;
        client.entered().await;
        client.tools.gate.add_permits(1);
        client.send(cancel(&round.to_string())).await;
        client.send(call(&format!("\"after {round}\""), "echo", "{}")).await;
        let after = json!(format!("after {round}"));
        loop {
            let reply = client.reply().await;
            *replies.entry(reply["id"].to_string()).or_default() += 1;
            if reply["id"] == after {
                break;
            }
        }
        client.entered().await;
    }
    client.close_input();
    while let Some(line) = client.line().await {
        let reply: Value = serde_json::from_str(&line).unwrap();
        *replies.entry(reply["id"].to_string()).or_default() += 1;
    }
    assert_eq!(client.completed_count(), 2 * ROUNDS, "every effect happened");
    assert!(replies.values().all(|count| *count == 1), "{replies:?}");
    assert!(replies.len() >= ROUNDS, "those not cancelled were all answered");
    assert_eq!(client.ended().await.unanswered_count, 0);
}

#[tokio::test]
async fn requests_past_the_limit_are_refused_at_once() {
    // Promise: a client cannot pile up work without bound; the refusal says that nothing began.
    for limits in [
        WireLimits { max_in_flight_count: 1, ..WireLimits::default() },
        // A request alone is always taken, however large.
        WireLimits { max_in_flight_bytes: 1, ..WireLimits::default() },
    ] {
        let mut client = Client::connect_with(limits);
        client.send(call("1", "wait", "{}")).await;
        client.entered().await;
        client.send(call("2", "echo", "{}")).await;
        let reply = client.reply().await;
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(2), &json!(-32603)));
        client.tools.gate.add_permits(1);
        assert_eq!(client.reply().await["id"], 1);
        client.send(call("3", "echo", "{}")).await;
        assert_eq!(client.reply().await["id"], 3);
    }
}

#[tokio::test]
async fn a_handler_that_panics_is_answered() {
    // Promise: no caller waits for ever, and the connection outlives the panic.
    let mut client = Client::connect();
    client.send(call("1", "panic", r#"{"v":"s3cret"}"#)).await;
    let reply = client.reply().await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(1), &json!(-32603)));
    assert!(!reply.to_string().contains("s3cret"));
    client.send(call("2", "echo", "{}")).await;
    assert_eq!(client.reply().await["id"], 2);
}

#[tokio::test]
async fn a_subscription_is_named_by_the_id_that_opened_it() {
    // Promise: the numbers that the SDK is given in place of IDs never reach the client.
    let mut client = Client::connect();
    let filter = r#""notifications":{"toolsListChanged":true}"#;
    client.send(modern("\"sub\"", "subscriptions/listen", filter)).await;
    let key = "io.modelcontextprotocol/subscriptionId";
    let acknowledged = client.reply().await;
    assert_eq!(acknowledged["params"]["_meta"][key], "sub", "{acknowledged}");
    let result = client.reply().await;
    assert_eq!(result["id"], "sub");
    assert_eq!(result["result"]["_meta"][key], "sub", "{result}");
}
