//! What a watcher is told, and what remains known of a call that its user waits for no longer.

mod fake;

use std::sync::{Arc, Mutex};

use counterfoil_client::{Journal, Reply, Sent};
use counterfoil_core::time::Timestamp;
use fake::script::{applied, call, consumer, describe, done, id, unknown, word, world};
use fake::{Do, Fake, Onlooker, World};
use serde_json::{Value, json};

/// Runs a changed world to its end: what was concluded, the further tries, and the open entries.
async fn watched(change: impl FnOnce(&mut World)) -> (String, Vec<(u32, u32)>, usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("calls.jsonl");
    let consumer = consumer(&path);
    let mut world = world(&path);
    change(&mut world);
    let onlooker = Onlooker { stop: world.stop.subscribe(), tries: Mutex::default() };
    let fake = Fake(Arc::new(Mutex::new(world)));
    let prepared =
        consumer.prepare(call(Some(id()), &[]), "fake", Timestamp::from_ms(0)).expect("saved");
    let said = match prepared.send_watched(&fake, &onlooker).await {
        Err(error) => error.to_string(),
        Ok(Sent::Finished(finished)) => finished.belief.effect.as_str().to_owned(),
        Ok(Sent::Lost(lost)) => {
            let reason = word(lost.reason());
            let settled = lost.reconcile_watched(&fake, &onlooker).await;
            format!("{reason}: {}; {}", describe(&settled), settled.doubt.unwrap_or_default())
        }
    };
    let world = fake.0.lock().expect("not poisoned");
    let counts = format!("; writes {}, asks {}", world.writes.len(), world.asks.len());
    let pending = Journal::pending(&path).expect("read").len();
    (said + &counts, onlooker.tries.into_inner().expect("not poisoned"), pending)
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_is_not_sent_or_its_effect_is_unknown() {
    // Promise: whoever stops waiting learns whether a write may have left, the journal keeps what
    // may have, and nothing more is sent.
    type Change = fn(&mut World);
    let cases: [(Change, &str, usize); 4] = [
        (|world| world.sessions.push_back(Do::Stop), "interrupted; writes 0, asks 0", 0),
        (
            |world| world.legs.push_back(Do::Stop),
            "interrupted: unknown stop -; the asking was interrupted; writes 1, asks 0",
            1,
        ),
        (
            |world| world.statuses.push_back(Do::Stop),
            "no reply: unknown stop -; the asking was interrupted; writes 1, asks 1",
            1,
        ),
        (|world| world.legs.push_back(Do::Reply(done())), "applied; writes 1, asks 0", 0),
    ];
    for (change, expected, pending) in cases {
        let (said, tries, open) = watched(change).await;
        assert_eq!((said.as_str(), open), (expected, pending));
        assert_eq!(tries, []);
    }
}

#[tokio::test(start_paused = true)]
async fn every_further_try_is_told() {
    // Promise: whoever waits for a silent server sees that it is asked, and how often still.
    let cases = [
        (vec![applied()], vec![]),
        (vec![unknown("in_progress"), Do::Die, applied()], vec![(2, 8), (3, 8)]),
        (vec![], (2..=8).map(|number| (number, 8)).collect()),
    ];
    for (statuses, expected) in cases {
        let (said, tries, _) = watched(|world| world.statuses = statuses.into()).await;
        assert_eq!(tries, expected, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_question_names_the_texts_that_were_not_given() {
    // Promise: where the tool wants to ask and no form was announced, the arguments that it may
    // ask for are named: free texts, neither given nor the ID.
    let schema = json!({"type": "object", "properties": {
        "operation_id": {"type": "string"}, "title": {"type": "string"},
        "body": {"type": "string"}, "mode": {"type": "string", "enum": ["a"]},
        "kind": {"type": "string", "default": "k"}, "count": {"type": "integer"}}});
    let cases: [(i32, &[&str], &[&str]); 3] =
        [(-32021, &[], &["body"]), (-32021, &["body=x"], &[]), (-32602, &[], &[])];
    for (code, answers, expected) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.jsonl");
        let consumer = consumer(&path);
        let mut world = world(&path);
        world.schema = schema.clone();
        world.legs.push_back(Do::Error(code, "no", Value::Null));
        let fake = Fake(Arc::new(Mutex::new(world)));
        let call = call(Some(id()), answers);
        let prepared = consumer.prepare(call, "fake", Timestamp::from_ms(0)).expect("saved");
        let sent = prepared.send(&fake).await.expect("sent");
        let Sent::Finished(finished) = sent else { panic!("{code}: {sent:?}") };
        let Reply::Refused(refused) = finished.reply else { panic!("{code}: {finished:?}") };
        assert_eq!(refused.not_given, expected, "{code} {answers:?}");
    }
}
