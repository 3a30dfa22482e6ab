//! What Counterfoil decides, without IO: identity, canonical JSON, fingerprints, deadlines, the
//! operation state machine, and the rules of observation. No clock, no randomness, no runtime:
//! time and new identities come in as values.
//!
//! Where to look: a fingerprint is made in [`fingerprint`], a call is decided in [`admission`], a
//! state changes in [`operation`], what others see is made in [`observation`], and what a client
//! may conclude from it in [`consumer`].

pub mod admission;
pub mod canonical;
pub mod consumer;
pub mod cursor;
pub mod delivery;
pub mod direct;
pub mod fingerprint;
pub mod identity;
pub mod json;
pub mod limits;
pub mod listing;
pub mod observation;
pub mod operation;
pub mod record;
pub mod refusal;
pub mod retry;
pub mod seal;
pub mod time;
