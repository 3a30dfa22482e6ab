//! The official conformance suite of MCP against the product's wire layer, and through `wrap`.

mod acts;
pub mod fixtures;
pub mod server;
