//! The presets against the servers that they are for: the lists that were recorded, and the servers
//! themselves where `./test` has installed them.

mod lists;
mod looks;
mod server;
