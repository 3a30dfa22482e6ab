//! MCP over HTTP, by clients that write raw bytes.

mod auth;
mod calls;
mod cancel;
mod client;
mod command;
mod drain;
mod gated;
mod headers;
mod health;
mod legacy;
mod limits;
mod mounts;
mod server;
mod tls;
mod wire;
