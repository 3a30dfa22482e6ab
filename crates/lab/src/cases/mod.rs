//! The twelve cases and the controls with the Rust SDK's client: what each is called, and how one
//! is run on a bench.

mod bench;
pub mod checks;
pub mod control;
pub mod twelve;

use std::future::Future;
use std::pin::Pin;

use clap::ValueEnum;

pub use bench::{Bench, Server};

use crate::evidence::TRANSPORTS;

/// How servers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Over {
    /// One client to a process, by its pipes.
    Stdio,
    /// Streamable HTTP on this machine.
    Http,
}

impl Over {
    /// Its name in a cell.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdio => TRANSPORTS[0],
            Self::Http => TRANSPORTS[1],
        }
    }
}

/// What a run shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The twelve cases.
    Cases,
    /// The controls.
    Controls,
}

impl Suite {
    /// Its name in a bundle.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cases => "cases",
            Self::Controls => "controls",
        }
    }

    /// The suite of a bundle.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Cases, Self::Controls].into_iter().find(|suite| suite.as_str() == name)
    }

    /// Names of its cases, with what each shows in a few words, in the order of a table.
    #[must_use]
    pub const fn cases(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Cases => &TWELVE,
            Self::Controls => &CONTROLS,
        }
    }
}

const TWELVE: [(&str, &str); 12] = [
    ("01", "identical retry"),
    ("02", "the continuation is never sent"),
    ("03", "commit, lost reply, status, replay"),
    ("04", "changed answers"),
    ("05", "two states, a tampered state"),
    ("06", "another principal"),
    ("07", "authority ends"),
    ("08", "two processes at once"),
    ("09", "commit, lost reply, status only"),
    ("10", "retention ends"),
    ("11", "the state is stripped"),
    ("12", "partial effect"),
];

const CONTROLS: [(&str, &str); 4] = [
    ("identical", "unguarded: an identical retry duplicates"),
    ("changed", "unguarded: a changed retry duplicates"),
    ("after-crash", "unguarded: a retry after a crash duplicates"),
    ("fresh-id", "guarded: a fresh ID makes issue 2"),
];

/// Runs one case on an empty bench.
///
/// # Errors
/// If there is no such case, or the lab itself fails: no server, no read-back.
///
/// # Panics
/// If a promise does not hold.
pub async fn run(case: &str, bench: &Bench) -> anyhow::Result<()> {
    // Some are large futures.
    let running: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + '_>> = match case {
        "01" => Box::pin(twelve::case_01_identical_retry(bench)),
        "02" => Box::pin(twelve::case_02_the_continuation_is_never_sent(bench)),
        "03" => Box::pin(twelve::case_03_the_reply_is_lost(bench)),
        "04" => Box::pin(twelve::case_04_changed_answers(bench)),
        "05" => Box::pin(twelve::case_05_two_states_for_one_operation(bench)),
        "06" => Box::pin(twelve::case_06_another_principal(bench)),
        "07" => Box::pin(twelve::case_07_authority_ends(bench)),
        "08" => Box::pin(twelve::case_08_two_processes_at_once(bench)),
        "09" => Box::pin(twelve::case_09_status_alone_recovers(bench)),
        "10" => Box::pin(twelve::case_10_retention_ends(bench)),
        "11" => Box::pin(twelve::case_11_the_state_is_stripped(bench)),
        "12" => Box::pin(twelve::case_12_a_partial_effect(bench)),
        "identical" => Box::pin(control::identical(bench)),
        "changed" => Box::pin(control::changed(bench)),
        "after-crash" => Box::pin(control::after_crash(bench)),
        "fresh-id" => Box::pin(control::fresh_id(bench)),
        other => anyhow::bail!("there is no case '{other}'"),
    };
    running.await
}
