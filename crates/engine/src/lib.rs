//! The async shell: admit, execute, observe. One path for every local effect; it holds the keys,
//! the randomness and the tasks, and leaves every decision to the core and every write to the
//! store.
//!
//! An embedder makes an [`Engine`] over a store, implements [`Effect`] for its own table, and calls
//! [`Engine::execute`]; the server crate's example `refund_desk` is a whole server in a page.

mod accept;
mod cancel;
mod deliver;
mod direct;
mod engine;
mod list;
mod look;
mod randomness;
mod reply;
mod retention;
mod state;
mod target;
mod wakes;

pub use counterfoil_store::{Clock, LocalEffect as Effect, SystemClock};
pub use deliver::{
    BreakerState, Deliverer, DelivererError, DelivererOptions, DeliveryNumbers, Outcome,
    TargetNumbers,
};
pub use direct::{DirectAnswer, DirectCall, NeverReady, Sender, SenderFuture, Sent};
pub use engine::{Engine, FirstRound};
pub use list::{ListRequest, Listing};
pub use randomness::{Randomness, SystemRandomness};
pub use reply::{Settled, refusal_from_store};
pub use state::{LegState, StateBinding};
pub use target::{Target, TargetFuture, TargetLimits};
pub use tokio_util::sync::CancellationToken;
