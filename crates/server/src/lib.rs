//! Counterfoil as a server: the MCP wire and, above it, the tools that it serves.

pub mod wire;
