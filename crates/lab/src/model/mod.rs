//! The model check: the product's own decisions in every order of losses, delays, deaths, expiries
//! and operators' orders that fits in stated bounds. `docs/evidence.md` says what it shows.

pub mod call;
pub mod delivery;
pub mod plan;
mod rules;
pub mod run;
mod shown;
mod world;

pub use rules::Rule;
pub use run::{ModelArgs, run_command};
