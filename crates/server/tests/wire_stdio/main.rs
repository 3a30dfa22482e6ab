//! The stdio wire, driven by raw bytes over in-memory pipes, with the SDK's own loop behind it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod drain;
mod flight;
mod frames;
mod support;
mod versions;
