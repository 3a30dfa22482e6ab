//! The fault lab: servers with fixed clocks and armed faults, clients that keep every byte, and
//! judges that share no code with what they judge. Never shipped.
//!
//! - what runs under test: [`child`] (the product's server, with a clock, cuts and store faults
//!   injected) and [`unguarded`] (the same tools without a ledger, which duplicates);
//! - what drives it: [`process`] (start, ready handshake, kill, how it ended), [`session`] (an MCP
//!   client of any served revision), [`raw`] (a client that writes bytes), [`relay`] and
//!   [`http_relay`] (keep both directions of a connection raw);
//! - what judges it: [`readback`] (the physical rows, read by a program that knows the schema
//!   only), [`history`] (what concurrent clients saw, against those rows);
//! - what puts it together: [`cases`] (the twelve cases and the controls), [`matrix`] (all of them
//!   with every SDK), [`kills`] (random kills under load), [`delivery`] and [`wrapped`] (the same for
//!   deliveries, and for servers behind `counterfoil wrap`);
//! - what it leaves for others: [`evidence`] (bundles, and their verifier), [`challenge`] (the
//!   rules as questions to any implementation);
//! - what needs no process at all: [`model`] (the product's decisions in every order, within
//!   bounds);
//! - what measures it: [`bench`].

pub mod bench;
pub mod cases;
pub mod challenge;
pub mod child;
pub mod clock;
pub mod conformance;
pub mod cuts;
pub mod delivery;
pub mod desk;
pub mod echo;
pub mod evidence;
pub mod history;
pub mod http_bodies;
pub mod http_relay;
pub mod kills;
pub mod matrix;
pub mod model;
pub mod plain_http;
pub mod process;
pub mod random;
pub mod raw;
pub mod readback;
pub mod relay;
pub mod seal_state;
pub mod session;
pub mod store_faults;
pub mod transcript;
pub mod unguarded;
pub mod within;
pub mod wrapped;
