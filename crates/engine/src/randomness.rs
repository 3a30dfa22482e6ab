//! Where the engine's randomness comes from: the system's, but for a simulation that must repeat.

use std::fmt::Debug;

/// A source of random bytes. Keys of rows, nonces, the names of runs and the seeds of pauses are made
/// of them, so whoever can foretell them in production can forge what tells attempts apart.
pub trait Randomness: Debug + Send + Sync + 'static {
    /// Fills all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the system has randomness; without it nothing is safe");
    }
}
