//! TLS that the server ends itself.

use std::path::PathBuf;
use std::sync::Arc;

use counterfoil::http::tls;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::{Client, Request};
use crate::server::Start;

/// Certificates for `localhost`, made for these tests and trusted by nobody.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

#[tokio::test]
async fn a_server_with_a_certificate_speaks_tls_and_nothing_else() {
    // Promise: calls go through TLS; whoever speaks plain HTTP to it gets nothing.
    let tls = Some((file("server.cert.pem"), file("server.key.pem")));
    let server = Start { tls, ..Start::default() }.run().await;
    let token = server.token("alice");
    let request = Request::create(&json!(1), "0123456789abcdef", "t").by(&token);
    let mut plain = server.connect().await;
    plain.send(request.bytes()).await;
    // The TLS layer may send an alert; it is no answer of HTTP.
    assert!(plain.line().await.is_none_or(|line| !line.starts_with("HTTP/")));
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(file("server.cert.pem")).expect("PEM");
    roots.add(certificate).expect("usable");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let mut client = Client::over(stream.expect("a handshake"));
    assert_eq!(client.ask(&request).await.state(), "applied");
    drop(client);
    server.stop().await;
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    // Promise: the error names the file, what is wrong with it and what to give instead, and
    // nothing of a key.
    let (cert, key) = (file("server.cert.pem"), file("server.key.pem"));
    let cases = [
        (file("absent.pem"), key.clone(), vec!["absent.pem", "a certificate", "--tls-cert"]),
        (cert.clone(), file("absent.pem"), vec!["absent.pem", "a private key", "--tls-key"]),
        (key.clone(), key.clone(), vec!["server.key.pem", "no CERTIFICATE"]),
        (cert.clone(), cert.clone(), vec!["server.cert.pem", "no such section"]),
        (cert.clone(), file("other.key.pem"), vec!["server.cert.pem", "other.key.pem", "together"]),
    ];
    for (cert, key, words) in cases {
        let error = tls::load(&cert, &key).expect_err("unusable").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    assert!(tls::load(&cert, &key).is_ok());
}
