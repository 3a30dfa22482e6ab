//! `counterfoil wrap` in front of servers that know nothing of it, killed at random: the server, the
//! relay that stands before it, and the gateway itself.

pub mod campaign;
pub mod gateway;
pub mod judge;
pub mod marked;
pub mod world;
