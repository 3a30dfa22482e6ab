//! Services that mean harm, or have gone mad.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil_core::delivery::{Delivery, ErrorClass, State};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::desk::{Desk, Wire, answer, created};
use crate::world::{World, desk};

const ARGUMENTS: &str = r#"{"subject":"printer"}"#;

/// Trusts nobody.
pub(crate) fn tls() -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("rustls has versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Arc::new(config)
}

/// What becomes of one item of a connector.
async fn outcome(toml: &str) -> (Delivery, Option<ErrorClass>) {
    let world = World::new(toml).await;
    let key = world.submit("op-1", ARGUMENTS).await;
    let item = world.settle(key).await.delivery;
    let class = item.last_error.as_ref().map(|(class, _)| *class);
    (item, class)
}

#[tokio::test]
async fn answers_without_end_cost_little_and_prove_nothing() {
    // Promise: a body of a gigabyte or without end, endless headers, a slow drip and a compressed
    // bomb end at a limit of ours, are unknown, and the request was sent once.
    let head = "HTTP/1.1 201 Created\r\n";
    let long = "a".repeat(16 * 1024);
    let cases = [
        (answer(201, "content-encoding: gzip\r\n", "\u{1f}bomb"), ErrorClass::Unreadable),
        (
            answer(201, "content-encoding: identity, br\r\n", r#"{"id":"t"}"#),
            ErrorClass::Unreadable,
        ),
        (
            answer(
                201,
                "content-encoding: identity\r\ncontent-encoding: gzip\r\n",
                r#"{"id":"t"}"#,
            ),
            ErrorClass::Unreadable,
        ),
        (Wire::Say(format!("{head}content-length: 1073741824\r\n\r\n{{")), ErrorClass::Unreadable),
        (Wire::Forever("HTTP/1.1 201 Created\r\n\r\n", long.clone()), ErrorClass::Unreadable),
        (Wire::Forever("HTTP/1.1 201 Created\r\n", format!("x: {long}\r\n")), ErrorClass::NoReply),
        (Wire::Forever("HTTP/1.1 201 Created\r\nx: ", long), ErrorClass::NoReply),
        (Wire::Forever("", "HTTP/1.1 100 Continue\r\n\r\n".into()), ErrorClass::NoReply),
        (
            Wire::Forever(
                "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n",
                "1\r\n \r\n".into(),
            ),
            ErrorClass::Unreadable,
        ),
    ];
    for (wire, expected) in cases {
        let mut told = format!("{wire:?}");
        told.truncate(120);
        let service = Desk::start(move |_, _| wire.clone()).await;
        let (item, class) = outcome(&desk("never", &service.origin(), "/tickets")).await;
        assert_eq!((item.state, class), (State::InDoubt, Some(expected)), "{told}: {item:?}");
        assert_eq!(service.requests(), 1, "{told}");
    }
}

#[tokio::test]
async fn a_redirect_to_the_metadata_service_goes_nowhere() {
    // Promise: no answer sends us anywhere, with or without our credential.
    let elsewhere = Desk::start(|_, _| created()).await;
    let own = elsewhere.origin();
    for location in ["http://169.254.169.254/latest/", "http://[fd00:ec2::254]/", own.as_str()] {
        for status in [301, 302, 303, 307, 308] {
            let wire = answer(status, &format!("location: {location}\r\n"), "");
            let service = Desk::start(move |_, _| wire.clone()).await;
            let (item, class) = outcome(&desk("never", &service.origin(), "/tickets")).await;
            let expected = (State::InDoubt, Some(ErrorClass::Undeclared));
            assert_eq!((item.state, class), expected, "{status} {location}");
        }
    }
    assert_eq!(elsewhere.requests(), 0);
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_gets_no_request() {
    // Promise: a failed handshake is known to have sent nothing.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    let config = counterfoil::http::tls::load(
        &folder.join("server.cert.pem"),
        &folder.join("server.key.pem"),
    );
    let acceptor = tokio_rustls::TlsAcceptor::from(config.expect("a server's certificate"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let shaken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&shaken);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let done = acceptor.accept(stream).await.is_ok();
            counted.fetch_add(usize::from(done), Ordering::SeqCst);
        }
    });
    let origin = format!("https://localhost:{port}");
    let (item, class) = outcome(&desk("never", &origin, "/tickets")).await;
    assert_eq!((item.state, class), (State::DeadLetter, Some(ErrorClass::Tls)), "{item:?}");
    assert!(item.is_proved_absent());
    assert_eq!(shaken.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_is_vetted_by_where_it_leads_and_not_by_what_it_is_called() {
    // Promise: whatever a name resolved to when it was checked, the address that is connected to is
    // the one that was vetted: a name of this machine leads nowhere unless its network is named.
    let service = Desk::start(|_, _| created()).await;
    let toml = desk("never", &format!("http://localhost:{}", service.port), "/tickets");
    let other = toml.replace(r#""127.0.0.0/8", "::1""#, r#""10.0.0.0/8""#);
    let (item, class) = outcome(&other).await;
    assert_eq!((item.state, class), (State::DeadLetter, Some(ErrorClass::Dns)), "{item:?}");
    let words = item.last_error.expect("told").1;
    assert!(words.contains("localhost") && words.contains("allow_networks"), "{words}");
    assert_eq!(service.requests(), 0);
    // Of two addresses the one that is allowed is taken.
    let (item, _) = outcome(&toml.replace(r#", "::1""#, "")).await;
    assert_eq!(item.state, State::Delivered, "{item:?}");
}

#[tokio::test]
async fn a_credential_goes_to_no_public_address_without_tls() {
    // Promise: a name that is meant for the private network, and that somebody makes lead to the
    // internet, gets no request in the clear.
    let toml = desk("never", "http://8.8.8.8:9", "/tickets");
    let (item, class) = outcome(&toml.replace(r#""127.0.0.0/8", "::1""#, r#""10.0.0.0/8""#)).await;
    assert_eq!((item.state, class), (State::DeadLetter, Some(ErrorClass::Dns)), "{item:?}");
    assert!(item.is_proved_absent());
}
