//! The real `counterfoil wrap` with its ledger between a client that speaks raw lines and a server
//! that does as each call tells it.

mod changed;
mod child;
mod client;
mod crash;
mod ends;
mod join;
mod lost;
mod outcomes;
mod people;
mod rounds;
mod settled;
mod texts;
mod world;
