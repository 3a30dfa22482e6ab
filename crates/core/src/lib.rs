//! What Counterfoil decides, without IO: identity, canonical JSON, fingerprints, deadlines, the
//! operation state machine, and the rules of observation. No clock, no randomness, no runtime:
//! time and new identities come in as values.

pub mod canonical;
pub mod fingerprint;
pub mod identity;
pub mod json;
pub mod limits;
pub mod seal;
pub mod time;
