//! The server behind the `counterfoil` binary: the MCP wire, the built-in tools, configuration and
//! the command line.

pub mod cli;
pub mod config;
pub mod connector;
pub mod data_dir;
pub mod demo;
pub mod handler;
pub mod http;
pub mod keys;
pub mod ledger;
pub mod logging;
pub mod metrics;
pub mod mounts;
pub mod outbound;
pub mod output;
pub mod serve;
pub mod tokens;
pub mod tools;
pub mod wire;
pub mod worker;
pub mod wrap;
