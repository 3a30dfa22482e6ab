//! Connectors end to end: the declared files, the real client, the worker and a ledger in a file,
//! against services that misbehave and count what they did.

mod answers;
mod contracts;
mod desk;
mod github;
mod hostile;
mod roundup;
mod secrets;
mod settings;
mod slack;
mod world;
