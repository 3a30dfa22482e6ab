//! The worker over the store in memory and targets that count their effects. Time is the runtime's
//! own, which stands still until everybody sleeps: nothing here waits for real.

mod clocks;
mod fake;
mod faults;
mod faulty;
mod limits;
mod once;
mod stalls;
mod stops;
mod upkeep;
mod waking;
mod world;
