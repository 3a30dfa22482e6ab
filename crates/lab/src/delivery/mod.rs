//! Server, worker and target killed at random under load, and what is left of their deliveries.

pub mod campaign;
pub mod front;
pub mod judge;
pub mod role;
