//! The server behind the `counterfoil` binary: the MCP wire, the built-in tools, configuration and
//! the command line.

pub mod cli;
pub mod config;
pub mod data_dir;
pub mod demo;
pub mod handler;
pub mod keys;
pub mod ledger;
pub mod logging;
pub mod mounts;
pub mod output;
pub mod serve;
pub mod tools;
pub mod wire;
