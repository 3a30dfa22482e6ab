//! The counterfoil server.

pub mod config;
pub mod data_dir;
pub mod keys;
pub mod mounts;
