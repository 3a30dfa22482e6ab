//! `counterfoil wrap` as a pure relay, against a server that does as each test tells it.

mod death;
mod ends;
mod eras;
mod guarded;
mod leftovers;
mod noise;
mod pass;
mod scripted;
mod stop;
mod world;
