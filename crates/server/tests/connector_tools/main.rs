//! Tools whose effects are delivered: the real binary on SQLite, a help desk over HTTP that counts
//! what it did, and clients of the official SDK over stdio and HTTP.

#[path = "../command/mod.rs"]
mod command;
mod desk;
#[path = "../front/mod.rs"]
mod front;
mod late;
mod over_http;
mod session;
mod tickets;
mod tools;
mod world;
