//! The server behind the `counterfoil` binary: the MCP wire, the built-in tools, configuration and
//! the command line.

pub mod demo;
pub mod handler;
pub mod serve;
pub mod tools;
pub mod wire;
