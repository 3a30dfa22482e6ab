//! Asks a help desk what it counted and what it has, over plain HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{DeskAccount, Ticket};

const LIMIT: Duration = Duration::from_secs(10);

/// What the desk at `address` counted.
///
/// # Errors
/// If no such answer came within 10 s.
pub async fn account(address: SocketAddr) -> anyhow::Result<DeskAccount> {
    get(address, "/account").await
}

/// The tickets of the desk at `address`, the oldest first.
///
/// # Errors
/// As [`account`].
pub async fn tickets(address: SocketAddr) -> anyhow::Result<Vec<Ticket>> {
    #[derive(Deserialize)]
    struct Body {
        tickets: Vec<Ticket>,
    }
    Ok(get::<Body>(address, "/tickets").await?.tickets)
}

async fn get<T: DeserializeOwned>(address: SocketAddr, path: &str) -> anyhow::Result<T> {
    let asked = tokio::time::timeout(LIMIT, exchange(address, path)).await;
    let answer = asked.context("the help desk did not answer in time")??;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no end of head")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "the help desk answered: {head}");
    serde_json::from_str(body).context("the help desk's answer is not what it promises")
}

async fn exchange(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await.context("the help desk is not there")?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
