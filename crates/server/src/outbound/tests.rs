//! A client for services against servers that misbehave. Each server counts the requests that reached
//! it: what is reported must fit that count.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;

use super::*;
use crate::connector::Network;

const LIMITS: OutboundLimits = OutboundLimits {
    connect: Duration::from_secs(5),
    total: Duration::from_secs(20),
    max_answer_bytes: 64 * 1024,
    keep_idle: None,
};

fn tls() -> Option<Arc<ClientConfig>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("rustls has versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Some(Arc::new(config))
}

fn client(limits: OutboundLimits) -> Outbound {
    let loopback = ["127.0.0.0/8", "::1"].map(|text| Network::parse(text).expect("a network"));
    Outbound::new(limits, AddressPolicy::new(loopback.into()), tls())
}

fn request(uri: &str) -> OutboundRequest {
    OutboundRequest {
        method: Method::POST,
        uri: uri.parse().expect("a URI"),
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"{\"a\":1}"),
    }
}

fn deadline() -> std::time::Instant {
    std::time::Instant::now() + Duration::from_secs(60)
}

/// What a server does with one request that it has read whole.
#[derive(Debug, Clone, Copy)]
enum Behaviour {
    /// Writes these bytes and closes.
    Say(&'static str),
    /// Writes these bytes and waits for another request.
    SayAndStay(&'static str),
    /// Writes the head, then this again and again.
    Forever(&'static str, &'static str),
    /// Resets the connection.
    Reset,
    /// Answers nothing.
    Hang,
}

struct Server {
    url: String,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/things?x=1", listener.local_addr().expect("bound"));
        let requests = Arc::new(AtomicUsize::new(0));
        let connections = Arc::new(AtomicUsize::new(0));
        let counts = (Arc::clone(&requests), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counts.1.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, behaviour, Arc::clone(&counts.0)));
            }
        });
        Self { url, requests, connections }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Reads a request to the end of its body; `None` if the client has gone.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut seen = Vec::new();
    while !seen.ends_with(b"{\"a\":1}") {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => seen.extend_from_slice(&piece[..count]),
        }
    }
    Some(String::from_utf8(seen).expect("text"))
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, requests: Arc<AtomicUsize>) {
    while read_request(&mut stream).await.is_some() {
        requests.fetch_add(1, Ordering::SeqCst);
        match behaviour {
            Behaviour::Say(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                return;
            }
            Behaviour::SayAndStay(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
            }
            Behaviour::Forever(head, piece) => {
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(piece.as_bytes()).await.is_ok() {
                    tokio::task::yield_now().await;
                }
                return;
            }
            Behaviour::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
            Behaviour::Hang => std::future::pending().await,
        }
    }
}

fn status(fetched: &Fetched) -> u16 {
    match fetched {
        Fetched::Answer(answer) => answer.status.as_u16(),
        other => panic!("no answer: {other:?}"),
    }
}

fn class(fetched: &Fetched) -> ErrorClass {
    match fetched {
        Fetched::NotSent { class, .. } => *class,
        other => panic!("it was sent: {other:?}"),
    }
}

fn body(fetched: Fetched) -> Body {
    match fetched {
        Fetched::Answer(answer) => answer.body,
        other => panic!("no answer: {other:?}"),
    }
}

#[tokio::test]
async fn an_answer_comes_back_whole_and_the_request_arrives_once() {
    // Promise: one request, one arrival, the answer as it was given.
    let server =
        Server::start(Behaviour::Say("HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")).await;
    let fetched = client(LIMITS).fetch(request(&server.url), deadline()).await;
    assert_eq!(status(&fetched), 201);
    assert_eq!(body(fetched), Body::Whole(Bytes::from_static(b"{}")));
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn what_was_not_sent_is_known_to_be_unsent() {
    // Promise: only what surely did not leave is called unsent.
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = closed.local_addr().expect("bound").port();
    drop(closed);
    let cases = [
        (format!("http://127.0.0.1:{port}/"), ErrorClass::Connect),
        ("http://no-such-host.invalid/".into(), ErrorClass::Dns),
        ("http://user:pass@127.0.0.1:1/".into(), ErrorClass::Local),
    ];
    for (url, expected) in cases {
        let fetched = client(LIMITS).fetch(request(&url), deadline()).await;
        assert_eq!(class(&fetched), expected, "{url}");
    }
    // A server that speaks no TLS, and one whose certificate nobody vouches for.
    let plain = Server::start(Behaviour::Hang).await;
    let talker = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = talker.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = talker.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let fetched =
        client(LIMITS).fetch(request(&format!("https://127.0.0.1:{port}/")), deadline()).await;
    assert_eq!(class(&fetched), ErrorClass::Tls);
    assert_eq!(plain.requests(), 0);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_before_anything_is_sent() {
    // Promise: nothing of a request goes to whoever merely answers under the name.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    let config =
        crate::http::tls::load(&folder.join("server.cert.pem"), &folder.join("server.key.pem"))
            .expect("a server's certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let arrived = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&arrived);
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        while let Ok((stream, _)) = listener.accept().await {
            if acceptor.accept(stream).await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let fetched =
        client(LIMITS).fetch(request(&format!("https://localhost:{port}/")), deadline()).await;
    assert_eq!(class(&fetched), ErrorClass::Tls);
    assert_eq!(arrived.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn addresses_are_vetted_after_resolution_in_every_spelling() {
    // Promise: neither a name nor an odd spelling leads into the machine or its network.
    let server = Server::start(Behaviour::Hang).await;
    let port = server.url.rsplit(':').next().and_then(|rest| rest.split('/').next()).expect("port");
    let public = Outbound::new(LIMITS, AddressPolicy::default(), tls());
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
    ] {
        let fetched = public.fetch(request(&format!("http://{host}:{port}/")), deadline()).await;
        assert_eq!(class(&fetched), ErrorClass::Dns, "{host}");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    // Promise: a service cannot send us anywhere, least of all with our credential.
    let elsewhere = Server::start(Behaviour::Hang).await;
    let to: &'static str = Box::leak(
        format!("HTTP/1.1 307 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", elsewhere.url)
            .into_boxed_str(),
    );
    let server = Server::start(Behaviour::Say(to)).await;
    let fetched = client(LIMITS).fetch(request(&server.url), deadline()).await;
    assert_eq!(status(&fetched), 307);
    assert_eq!(elsewhere.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn bodies_that_cannot_be_read_whole_are_never_taken_for_whole() {
    // Promise: a body of a gigabyte, one that drips, one that breaks off and one that is compressed
    // cost little and say nothing.
    let limits = OutboundLimits { total: Duration::from_millis(300), ..LIMITS };
    let cases = [
        (
            Behaviour::Say("HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\nx"),
            "it is longer than allowed",
        ),
        (
            Behaviour::Forever("HTTP/1.1 200 OK\r\n\r\n", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
            "it is longer than allowed",
        ),
        (Behaviour::Say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"), "it ended too soon"),
        (
            Behaviour::Say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"),
            "it ended too soon",
        ),
        (
            Behaviour::SayAndStay("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc"),
            "it did not end in time",
        ),
        (
            Behaviour::Say(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}",
            ),
            "it came encoded, which was not asked for",
        ),
    ];
    for (behaviour, expected) in cases {
        let server = Server::start(behaviour).await;
        let fetched = client(limits.clone()).fetch(request(&server.url), deadline()).await;
        assert_eq!(status(&fetched), 200, "{behaviour:?}");
        assert_eq!(body(fetched), Body::Unreadable(expected), "{behaviour:?}");
        assert_eq!(server.requests(), 1);
    }
}

#[tokio::test]
async fn what_left_and_got_no_answer_is_lost_and_never_sent_again() {
    // Promise: a reset, a silence, endless headers and noise are all unknown, and the service got
    // the request once.
    let limits = OutboundLimits { total: Duration::from_millis(300), ..LIMITS };
    for keep_idle in [None, Some(Duration::from_secs(5))] {
        let limits = OutboundLimits { keep_idle, ..limits.clone() };
        for behaviour in [
            Behaviour::Reset,
            Behaviour::Hang,
            Behaviour::Say(""),
            Behaviour::Say("SSH-2.0-OpenSSH_9.2\r\n"),
            Behaviour::Say("HTTP/1.1 200"),
            Behaviour::Forever("HTTP/1.1 200 OK\r\n", "x-header: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"),
            Behaviour::Forever(
                "HTTP/1.1 200 OK\r\nx: ",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            ),
        ] {
            let server = Server::start(behaviour).await;
            let fetched = client(limits.clone()).fetch(request(&server.url), deadline()).await;
            assert!(matches!(fetched, Fetched::Lost { .. }), "{behaviour:?}: {fetched:?}");
            assert_eq!(server.requests(), 1, "{behaviour:?}");
        }
    }
}

#[tokio::test]
async fn a_sender_without_enough_of_its_lease_sends_nothing() {
    // Promise: a process that was held up does not write when the item may be another's.
    let server = Server::start(Behaviour::Hang).await;
    let soon = std::time::Instant::now() + Duration::from_secs(1);
    let fetched = client(LIMITS).fetch(request(&server.url), soon).await;
    assert_eq!(class(&fetched), ErrorClass::Local);
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn idle_connections_are_used_again_only_where_that_is_allowed() {
    // Promise: reuse saves connections where the contract bears a lost request, and nowhere else.
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    for (keep_idle, connections) in [(None, 5), (Some(Duration::from_secs(30)), 1)] {
        let server = Server::start(Behaviour::SayAndStay(ok)).await;
        let client = client(OutboundLimits { keep_idle, ..LIMITS });
        for _ in 0..5 {
            assert_eq!(status(&client.fetch(request(&server.url), deadline()).await), 200);
        }
        assert_eq!(server.connections.load(Ordering::SeqCst), connections);
        assert_eq!(server.requests(), 5);
    }
}

#[tokio::test]
async fn a_service_that_closes_idle_connections_gets_nothing_twice() {
    // Promise: a request that met a closing connection is either known to be unsent, and goes out
    // on a new one, or is lost; it never arrives twice.
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let server = Server::start(Behaviour::Say(ok)).await;
    let keep_idle = Some(Duration::from_secs(30));
    let client = client(OutboundLimits { keep_idle, ..LIMITS });
    let mut answered = 0;
    for round in 1..=200 {
        match client.fetch(request(&server.url), deadline()).await {
            Fetched::Answer(_) => answered += 1,
            Fetched::Lost { .. } => {}
            Fetched::NotSent { words, .. } => panic!("the server was there: {words}"),
        }
        assert!(server.requests() <= round, "one arrival for a request at most");
        assert!(server.requests() >= answered);
    }
}

#[tokio::test]
async fn the_address_that_was_vetted_is_the_one_that_is_connected_to() {
    // Promise: a name that resolves to an allowed address when it is looked at, and to another one a
    // moment later, leads nowhere else: each connection resolves once, and goes to what was vetted.
    let answer = "HTTP/1.1 201 Made\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let good = TcpListener::bind("127.0.0.2:0").await.expect("a port");
    let port = good.local_addr().expect("bound").port();
    let trap = TcpListener::bind(("127.0.0.1", port)).await.expect("the same port");
    let counts = [(good, Arc::new(AtomicUsize::new(0))), (trap, Arc::new(AtomicUsize::new(0)))]
        .map(|(listener, count)| {
            let requests = Arc::clone(&count);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Behaviour::Say(answer), Arc::clone(&requests)));
                }
            });
            count
        });
    let asked = Arc::new(AtomicUsize::new(0));
    let questions = Arc::clone(&asked);
    let only = Network::parse("127.0.0.2").expect("a network");
    let mut client = Outbound::new(LIMITS, AddressPolicy::only(vec![only]), None);
    client.names = names::Names::Told(Box::new(move |host| {
        assert_eq!(host, "desk.example");
        let number = questions.fetch_add(1, Ordering::SeqCst);
        vec![if number == 0 { [127, 0, 0, 2] } else { [127, 0, 0, 1] }.into()]
    }));
    let url = format!("http://desk.example:{port}/things");
    let first = client.fetch(request(&url), deadline()).await;
    assert!(matches!(&first, Fetched::Answer(answer) if answer.status == 201), "{first:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one connection asks once");
    let second = client.fetch(request(&url), deadline()).await;
    assert!(matches!(&second, Fetched::NotSent { class: ErrorClass::Dns, .. }), "{second:?}");
    let reached = counts.map(|count| count.load(Ordering::SeqCst));
    assert_eq!((reached, asked.load(Ordering::SeqCst)), ([1, 0], 2));
}
