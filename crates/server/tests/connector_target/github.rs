//! connectors/github-issues.toml against a fake of GitHub's REST interface, written from its public
//! documentation: <https://docs.github.com/en/rest/issues/issues> (creating and listing issues),
//! <https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api> and
//! <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>.

use std::time::Duration;

use counterfoil_core::delivery::{ErrorClass, State};

use crate::desk::{Desk, Seen, Shelf, Wire, answer};
use crate::world::World;

const ARGUMENTS: &str = r#"{"owner":"octo-org","repository":"hello","title":"It burns","body":"A lot.","labels":["bug"]}"#;
const REFUSED: &str = r#"{"message":"Validation Failed","errors":[],"documentation_url":"https://docs.github.com/rest/issues/issues#create-an-issue","status":"422"}"#;
const PER_PAGE: usize = 3;

/// What the fake does to a request that creates.
#[derive(Debug, Clone, Copy)]
enum Mood {
    Well,
    /// Creates it and loses the answer, once.
    LosesAnswer,
    /// Loses the first request.
    LosesRequest,
    Answers(u16, &'static str, &'static str),
}

fn issue(number: usize, body: &str) -> String {
    format!(
        r#"{{"id":{number}1,"number":{number},"title":"It burns","body":{},"html_url":"https://github.com/octo-org/hello/issues/{number}","state":"open"}}"#,
        if body.is_empty() { "null".to_owned() } else { serde_json::json!(body).to_string() }
    )
}

/// A page of the list, the newest first, with a Link header to the next.
fn list(seen: &Seen, shelf: &Shelf, origin: &str) -> Wire {
    let (path, query) = seen.path.split_once('?').expect("a query");
    assert_eq!(path, "/repos/octo-org/hello/issues");
    for part in ["creator=counterfoil-bot", "state=all", "per_page=100"] {
        assert!(query.split('&').any(|it| it == part), "{query}");
    }
    let page: usize = query
        .split('&')
        .find_map(|it| it.strip_prefix("page="))
        .map_or(1, |page| page.parse().expect("a number"));
    // Others were made in the meantime, one of them without a text.
    let mut all: Vec<String> = (0..7).map(|at| issue(90 + at, "")).collect();
    let made = shelf.effects.iter().enumerate();
    all.extend(made.map(|(at, it)| issue(at + 1, &it.member("body"))));
    let pages = all.len().div_ceil(PER_PAGE);
    let shown: Vec<String> = all.into_iter().skip((page - 1) * PER_PAGE).take(PER_PAGE).collect();
    let base = query.split("&page=").next().expect("a query");
    let link = if page < pages {
        let next = page + 1;
        format!(
            "link: <{origin}{path}?{base}&page={next}>; rel=\"next\", \
             <{origin}{path}?{base}&page={pages}>; rel=\"last\"\r\n"
        )
    } else {
        String::new()
    };
    answer(200, &link, &format!("[{}]", shown.join(",")))
}

async fn github(mood: Mood) -> (Desk, World) {
    let service = Desk::start(move |seen, shelf| {
        assert_eq!(seen.header("authorization"), "Bearer gh-token");
        assert_eq!(seen.header("x-github-api-version"), "2022-11-28");
        assert!(!seen.header("user-agent").is_empty(), "GitHub refuses requests without one");
        if seen.method == "GET" {
            return list(seen, shelf, &format!("http://{}", seen.header("host")));
        }
        assert_eq!(seen.path, "/repos/octo-org/hello/issues");
        let is_first = shelf.seen.len() == 1;
        match mood {
            Mood::Answers(status, headers, body) => return answer(status, headers, body),
            Mood::LosesRequest if is_first => return Wire::Reset,
            _ => shelf.make(seen),
        }
        if matches!(mood, Mood::LosesAnswer) && is_first {
            return Wire::Reset;
        }
        answer(201, "", &issue(shelf.effects.len(), &seen.member("body")))
    })
    .await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../connectors/github-issues.toml");
    let toml = std::fs::read_to_string(file).expect("readable");
    assert!(toml.contains("*Not verified live*"));
    let toml = toml
        .replace("https://api.github.com", &service.origin())
        .replace("contract = \"lookup\"", "contract = \"lookup\"\nallow_networks = [\"127.0.0.1\"]")
        .replace("rate = 1\n", "");
    let mut world = World::new(&toml).await;
    world.env = [("GITHUB_TOKEN", "gh-token")].into_iter().collect();
    (service, world)
}

/// Works until so many requests came, and lets time pass.
async fn until(world: &World, service: &Desk, count: usize) {
    let worker = world.work();
    service.arrived(count).await;
    worker.stop().await;
    world.clock.advance(Duration::from_secs(3600));
}

#[tokio::test]
async fn an_issue_is_created_as_the_documentation_says() {
    // Promise: the request and the result fit the documented interface.
    let (service, world) = github(Mood::Well).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    let view = world.settle(key).await;
    assert_eq!(view.delivery.state, State::Delivered, "{:?}", view.delivery);
    assert_eq!(view.delivery.external_id.as_deref(), Some("1"));
    let result = view.record.result.expect("kept").as_json().to_owned();
    assert!(result.contains("https://github.com/octo-org/hello/issues/1"), "{result}");
    let sent: serde_json::Value =
        serde_json::from_str(&service.shelf().effects[0].body).expect("JSON");
    assert_eq!(sent["title"], "It burns");
    assert_eq!(sent["labels"], serde_json::json!(["bug"]));
    assert!(sent["body"].as_str().expect("text").starts_with("A lot.\n\n<!-- counterfoil cf"));
}

#[tokio::test]
async fn a_lost_answer_is_found_on_the_last_page() {
    // Promise: the lookup reads every page that the Link header names, and finds the one issue.
    let (service, world) = github(Mood::LosesAnswer).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    until(&world, &service, 1).await;
    let item = world.settle(key).await.delivery;
    assert_eq!(
        (item.state, item.external_id.as_deref()),
        (State::Delivered, Some("1")),
        "{item:?}"
    );
    assert_eq!((service.effects(), service.requests()), (1, 4));
}

#[tokio::test]
async fn a_lost_request_is_sent_again_once_its_absence_is_proved() {
    // Promise: after a lost request and a complete list without it, one issue is there.
    let (service, world) = github(Mood::LosesRequest).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    until(&world, &service, 1).await;
    let item = world.settle(key).await.delivery;
    assert_eq!(item.state, State::Delivered, "{item:?}");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn github_s_refusals_mean_what_it_says() {
    // Promise: validation errors, missing repositories, switched-off issues and both rate limits end
    // as documented; a page of a proxy proves nothing.
    let used_up = "x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 1\r\n";
    let cases = [
        (Mood::Answers(422, "", REFUSED), State::DeadLetter, ErrorClass::Rejected),
        (Mood::Answers(404, "", REFUSED), State::DeadLetter, ErrorClass::Missing),
        (Mood::Answers(410, "", REFUSED), State::DeadLetter, ErrorClass::Missing),
        (Mood::Answers(403, "", REFUSED), State::DeadLetter, ErrorClass::Credential),
        (Mood::Answers(403, used_up, REFUSED), State::Queued, ErrorClass::RateLimited),
        (
            Mood::Answers(403, "retry-after: 60\r\n", REFUSED),
            State::Queued,
            ErrorClass::RateLimited,
        ),
        (
            Mood::Answers(429, "retry-after: 60\r\n", REFUSED),
            State::Queued,
            ErrorClass::RateLimited,
        ),
        (Mood::Answers(422, "", "<html></html>"), State::Queued, ErrorClass::Undeclared),
        (Mood::Answers(503, "", ""), State::Queued, ErrorClass::ServerError),
    ];
    for (mood, state, class) in cases {
        let (service, world) = github(mood).await;
        let key = world.submit("op-1", ARGUMENTS).await;
        until(&world, &service, 1).await;
        let item = world.view(key).await.delivery;
        let (found, words) = item.last_error.clone().expect("told");
        assert_eq!((item.state, found), (state, class), "{mood:?}: {words}");
        assert!(!words.contains("docs.github.com"), "{words}");
    }
}
