//! connectors/slack-webhook.toml against a fake of Slack's incoming webhooks, written from the public
//! documentation: <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/>,
//! <https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks> and
//! <https://docs.slack.dev/apis/web-api/rate-limits/>.

use counterfoil_core::delivery::{ErrorClass, State};

use crate::desk::{Desk, Wire, answer};
use crate::world::World;

const PATH: &str = "T00000000/B00000000/pathOfAWebhookForTests01";

async fn slack(wire: Wire) -> (Desk, World) {
    let service = Desk::start(move |seen, shelf| {
        shelf.make(seen);
        wire.clone()
    })
    .await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors/slack-webhook.toml");
    let toml = std::fs::read_to_string(file).expect("readable");
    assert!(toml.contains("*Not verified live*"));
    let toml = toml.replace("https://hooks.slack.com", &service.origin()).replace(
        "contract = \"never\"\nc",
        "contract = \"never\"\nallow_networks = [\"127.0.0.1\"]\nc",
    );
    let mut world = World::new(&toml).await;
    world.env = [("SLACK_WEBHOOK_PATH", PATH)].into_iter().collect();
    (service, world)
}

#[tokio::test]
async fn a_message_is_posted_to_the_secret_address_and_cannot_mention_anybody() {
    // Promise: the request fits the documentation, the caller's text is escaped, and the secret part
    // of the address is in no file of the ledger.
    let (service, world) = slack(answer(200, "", "ok")).await;
    let key = world.submit("op-1", r#"{"text":"<!channel> R&D"}"#).await;
    let view = world.settle(key).await;
    assert_eq!(view.delivery.state, State::Delivered, "{:?}", view.delivery);
    let seen = service.shelf().seen[0].clone();
    assert_eq!((&*seen.method, &*seen.path), ("POST", &*format!("/services/{PATH}")));
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.body, r#"{"text":"&lt;!channel&gt; R&amp;D"}"#);
    let bytes = world.bytes();
    assert!(!bytes.windows(PATH.len()).any(|it| it == PATH.as_bytes()));
}

#[tokio::test]
async fn slack_s_answers_mean_what_it_says() {
    // Promise: a refusal ends the item, a webhook that is gone parks the target, and what does not
    // say `ok` is in doubt, each after one request.
    let cases = [
        (200, "", "no_such_thing", State::InDoubt, ErrorClass::Unreadable),
        (400, "", "invalid_payload", State::DeadLetter, ErrorClass::Rejected),
        (400, "", "user_not_found", State::DeadLetter, ErrorClass::Rejected),
        (400, "", "<html></html>", State::InDoubt, ErrorClass::Undeclared),
        (403, "", "action_prohibited", State::Queued, ErrorClass::Credential),
        (404, "", "channel_not_found", State::Queued, ErrorClass::Missing),
        (410, "", "channel_is_archived", State::Queued, ErrorClass::Missing),
        (429, "retry-after: 30\r\n", "rate_limited", State::Queued, ErrorClass::RateLimited),
        (500, "", "rollup_error", State::InDoubt, ErrorClass::ServerError),
    ];
    for (status, headers, body, state, class) in cases {
        let (service, world) = slack(answer(status, headers, body)).await;
        let key = world.submit("op-1", r#"{"text":"hello"}"#).await;
        let worker = world.work();
        service.arrived(1).await;
        worker.stop().await;
        let item = world.view(key).await.delivery;
        let found = item.last_error.clone().map(|(class, _)| class);
        assert_eq!((item.state, found), (state, Some(class)), "{status} {body}");
        assert_eq!(service.requests(), 1, "{status} {body}");
    }
}
