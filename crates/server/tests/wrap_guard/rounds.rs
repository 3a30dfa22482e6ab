//! Servers that ask for input before they go on.

use serde_json::{Value, json};

use crate::child::CALLS;
use crate::client::{Client, MODERN, check_answered, check_refused, operation, said, text};
use crate::world::{World, until};

/// States as a server may write them: the bytes must come back, whatever they spell.
const STATE: &str = r#""\u00e9\/ \"x\" #1""#;
const STATE_2: &str = r#""  2 \ud83d\ude00#2""#;

fn asks(question: &str, state: &str) -> String {
    format!(
        r#"result:{{"resultType":"input_required","inputRequests":{{"{question}":{{"method":"elicitation/create","params":{{}}}}}},"requestState":{state}}}"#
    )
}

/// Asks twice, then does it.
fn call() -> Value {
    json!({
        "operation_id": "op-1", "n": 1,
        "steps": [asks("q1", STATE)],
        "then1": [asks("q2", STATE_2)],
        "then2": ["effect", "ok:both"],
    })
}

/// A continuation.
fn answer(client: &Client, id: &str, call: &Value, state: &Value, answers: Value) -> Value {
    let params = json!({ "name": "act", "arguments": call, "requestState": state,
        "inputResponses": answers });
    client.ask(id, "tools/call", params)
}

fn state(reply: &Value) -> Value {
    let state = &reply["result"]["requestState"];
    assert!(state.is_string(), "{reply}");
    state.clone()
}

fn check_asks(reply: &Value, question: &str, replayed: bool) {
    assert_eq!(reply["result"]["resultType"], "input_required", "{reply}");
    assert!(reply["result"]["inputRequests"][question].is_object(), "{reply}");
    check_answered(reply, "unknown", replayed);
}

/// The one answer to a state that was not issued for the call, whatever the cause.
fn check_unfit(reply: &Value) -> Value {
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    assert_eq!(reply["error"]["data"]["retry"], "status_only", "{reply}");
    reply["error"].clone()
}

#[test]
fn a_server_that_asks_gets_its_own_state_back_across_a_kill() {
    // Promise: each round's request leaves once, with the server's exact state; a round that was
    // answered gives what it asked then, freshly sealed; the gateway may be killed in between.
    let world = World::new("");
    let client = world.open(MODERN);
    let call = call();
    let first = client.act("1", &call);
    check_asks(&first, "q1", false);
    let sealed = state(&first);
    assert!(!sealed.to_string().contains('é'), "the server's state is not shown");
    // Round one once more mints nothing, and seals anew.
    let again = client.act("1b", &call);
    check_asks(&again, "q1", true);
    assert_ne!(state(&again), sealed);
    assert_eq!(world.calls(), 1);
    client.kill();

    let client = world.open(MODERN);
    let second = answer(&client, "2", &call, &sealed, json!({ "q1": 1 }));
    check_asks(&second, "q2", false);
    let last = world.lines(CALLS).pop().expect("a call");
    assert!(last.contains(&format!("\"requestState\":{STATE}")), "{last}");
    // The answered round, by the other seal: its own question, freshly sealed.
    let replayed = answer(&client, "2b", &call, &state(&again), json!({ "q1": 1 }));
    check_asks(&replayed, "q2", true);
    assert_ne!(state(&replayed), state(&second));
    // Other answers to a round that was answered.
    let changed = answer(&client, "2c", &call, &sealed, json!({ "q1": 2 }));
    check_refused(&changed, "operation_conflict", "none");
    assert_eq!(world.calls(), 2);
    client.kill();

    let client = world.open(MODERN);
    let done = answer(&client, "3", &call, &state(&replayed), json!({ "q2": true }));
    check_answered(&done, "applied", false);
    assert_eq!(text(&done), "done both");
    let last = world.lines(CALLS).pop().expect("a call");
    assert!(last.contains(&format!("\"requestState\":{STATE_2}")), "{last}");
    for (id, reply) in [
        ("4", answer(&client, "4", &call, &state(&second), json!({ "q2": true }))),
        ("5", client.act("5", &call)),
    ] {
        check_answered(&reply, "applied", true);
        assert_eq!(text(&reply), "done both", "{id}");
    }
    let changed = answer(&client, "6", &call, &state(&second), json!({ "q2": false }));
    check_refused(&changed, "operation_conflict", "none");
    assert_eq!((world.calls(), world.effects()), (3, 1));
    assert_eq!(client.status("s", "op-1")["state"], "applied");
}

#[test]
fn a_state_that_was_not_issued_for_the_call_is_refused_in_one_way() {
    // Promise: a state that is foreign, changed, cut, the server's own, of another tool or other
    // arguments, or that is missing beside answers is refused with one message, and nothing is sent.
    let world = World::new("");
    let client = world.open(MODERN);
    let call = call();
    let sealed = state(&client.act("1", &call));
    let mut second = call.clone();
    second["operation_id"] = "op-2".into();
    let foreign = state(&client.act("2", &second));
    let mut other = call.clone();
    other["n"] = 2.into();
    let text = sealed.as_str().expect("text");
    let mut flipped = text.to_owned().into_bytes();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).expect("text");
    let elsewhere = World::new("");
    let stranger = elsewhere.open(MODERN);
    let strange = state(&stranger.act("1", &call));
    let cases = [
        ("another operation's", &call, foreign.clone()),
        ("other arguments", &other, sealed.clone()),
        ("changed", &call, flipped.into()),
        ("cut", &call, text[..text.len() - 4].into()),
        ("empty", &call, "".into()),
        ("the server's own", &call, serde_json::from_str(STATE).expect("JSON")),
        ("a number", &call, 7.into()),
        ("another ledger's", &call, strange),
        ("none", &call, Value::Null),
    ];
    let calls = world.calls();
    let mut refusals = Vec::new();
    for (at, (case, call, state)) in cases.iter().enumerate() {
        let reply = answer(&client, &format!("c{at}"), call, state, json!({ "q1": 1 }));
        assert!(reply.get("error").is_some(), "{case}: {reply}");
        refusals.push(check_unfit(&reply));
    }
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    // Another tool.
    let params = json!({ "name": "act2", "arguments": call, "requestState": sealed,
        "inputResponses": { "q1": 1 } });
    assert_eq!(check_unfit(&client.ask("t", "tools/call", params)), refusals[0]);
    assert_eq!(world.calls(), calls);
    // The true one still stands.
    check_asks(&answer(&client, "9", &call, &sealed, json!({ "q1": 1 })), "q2", false);
}

#[test]
fn a_round_that_is_lost_is_in_doubt() {
    // Promise: a server that dies in a later round leaves an unknown outcome; no round of that
    // operation is sent again.
    let world = World::new("");
    let client = world.open(MODERN);
    let call = json!({ "operation_id": "op-1", "n": 1,
        "steps": [asks("q1", STATE)], "then1": ["effect", "die"] });
    let sealed = state(&client.act("1", &call));
    let lost = answer(&client, "2", &call, &sealed, json!({ "q1": 1 }));
    check_refused(&lost, "operation_in_doubt", "status_only");
    for reply in [client.act("3", &call), answer(&client, "4", &call, &sealed, json!({ "q1": 1 }))]
    {
        check_refused(&reply, "operation_in_doubt", "status_only");
    }
    assert_eq!((world.calls(), world.effects()), (2, 1));
}

#[test]
fn a_refusal_in_a_later_round_proves_nothing() {
    // Promise: after a round that may have had its effect no error is a proof that nothing was done.
    let world = World::new("[wrap.tools.act]\nerror_means = \"not_applied\"\n");
    let client = world.open(MODERN);
    for (at, step) in [
        r#"error:{"code":-32602,"message":"m"}"#,
        r#"result:{"content":[{"type":"text","text":"no"}],"isError":true}"#,
    ]
    .iter()
    .enumerate()
    {
        let id = format!("op-{at}");
        let call =
            json!({ "operation_id": id, "n": at, "steps": [asks("q1", STATE)], "then1": [step] });
        let sealed = state(&client.act(&format!("1{at}"), &call));
        answer(&client, &format!("2{at}"), &call, &sealed, json!({ "q1": 1 }));
        let status = client.status(&format!("s{at}"), &id);
        assert_eq!(
            (&status["state"], &status["detail"]),
            (&json!("unknown"), &json!("answered_with_error"))
        );
    }
}

#[test]
fn a_server_without_a_state_gets_none() {
    // Promise: where the server gave no state, it gets none of ours either.
    let world = World::new("");
    let client = world.open(MODERN);
    let ask = r#"result:{"resultType":"input_required","inputRequests":{}}"#;
    let call = json!({ "n": 1, "steps": [ask], "then1": ["effect", "ok"] });
    let first = client.act("1", &call);
    check_answered(&first, "unknown", false);
    // It brought no ID, and goes on by its state alone.
    let done = answer(&client, "2", &call, &state(&first), json!({}));
    check_answered(&done, "applied", false);
    assert_eq!(operation(&done), operation(&first));
    let last = world.lines(CALLS).pop().expect("a call");
    assert!(!last.contains("requestState"), "{last}");
}

#[test]
fn rounds_have_an_end() {
    // Promise: a server that asks for ever is stopped after a bounded number of rounds, and its
    // operation is not called settled.
    let world = World::new("");
    let client = world.open(MODERN);
    let mut call = json!({ "operation_id": "op-1", "n": 1, "steps": ["endless"] });
    for round in 1..100 {
        call[format!("then{round}")] = json!(["endless"]);
    }
    let mut reply = client.act("0", &call);
    let mut rounds = 1;
    while reply["result"]["resultType"] == "input_required" {
        assert!(rounds < 100, "it goes on for ever");
        reply = answer(&client, &rounds.to_string(), &call, &state(&reply), json!({}));
        rounds += 1;
    }
    assert_eq!(said(&reply)["retry"], "status_only", "{reply}");
    assert_eq!(world.calls(), 16);
    assert_eq!(client.status("s", "op-1")["state"], "unknown");
}

#[test]
fn a_state_has_an_end_and_the_call_gets_another() {
    // Promise: an expired state is refused like a foreign one; the same call is asked again, with a
    // state that is good, and nothing is sent twice.
    let world = World::new("");
    let short = world.open_with(MODERN, "COUNTERFOIL_LIFETIMES_STATE", "1ms");
    let call = call();
    let sealed = state(&short.act("1", &call));
    let issued = std::time::Instant::now();
    until("the state's end", || issued.elapsed() > std::time::Duration::from_millis(2));
    let expired = check_unfit(&answer(&short, "2", &call, &sealed, json!({ "q1": 1 })));
    let foreign = answer(&short, "3", &call, &"x".into(), json!({ "q1": 1 }));
    assert_eq!(check_unfit(&foreign), expired);
    assert_eq!(world.calls(), 1);
    let client = world.open(MODERN);
    let again = client.act("4", &call);
    check_asks(&again, "q1", true);
    check_asks(&answer(&client, "5", &call, &state(&again), json!({ "q1": 1 })), "q2", false);
    assert_eq!(world.calls(), 2);
}

#[test]
fn a_question_that_nobody_answers_has_an_end() {
    // Promise: an operation whose server waits for an answer is in doubt when the time for it is
    // over, and not in progress for ever.
    let world = World::new("");
    let client = world.open_with(MODERN, "COUNTERFOIL_LIFETIMES_AUTHORITY", "5s");
    let call = call();
    let sealed = state(&client.act("1", &call));
    until("its end", || client.status("s", "op-1")["detail"] == "in_doubt");
    check_refused(&client.act("2", &call), "operation_in_doubt", "status_only");
    let late = answer(&client, "3", &call, &sealed, json!({ "q1": 1 }));
    check_refused(&late, "operation_authority_expired", "status_only");
    assert_eq!(world.calls(), 1);
}
