//! A target as the ledger knows it: open, parked by what it answered, or paused by an operator.
//! Its circuit breaker is each process's own and is not kept.

use std::time::Duration;

use crate::delivery::outcome::ErrorClass;
use crate::time::Timestamp;

/// The name of a target: what the configuration calls its connector. 1 to 64 of `a-z`, `0-9`,
/// `_` and `-`, a letter first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetName(String);

impl TargetName {
    /// Takes a name as it was given.
    ///
    /// # Errors
    /// [`String`] with the rule if it is not such a name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let good = (1..=64).contains(&text.len())
            && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
            && text.starts_with(|c: char| c.is_ascii_lowercase());
        if good {
            return Ok(Self(text.to_owned()));
        }
        let shown: String = text.chars().take(64).collect();
        Err(format!(
            "`{shown}` cannot name a target; use 1 to 64 lower-case letters, digits, `_` and `-`, \
             a letter first"
        ))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TargetName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the ledger keeps of a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetState {
    /// Set by an answer that stops everybody.
    pub parked: Option<Parked>,
    /// Set by an operator.
    pub paused: Option<Paused>,
}

/// Why nothing is sent to a target but one item now and then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// The kind of answer that parked it.
    pub class: ErrorClass,
    /// For people.
    pub words: String,
    /// Since when.
    pub since: Timestamp,
    /// How often it was tried in vain since then, in count.
    pub probes_count: u32,
    /// When the next item may be tried.
    pub probe_at: Timestamp,
}

/// An operator's pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    /// Who.
    pub who: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// Whether items may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// As many as are due.
    Open,
    /// One, to see whether the target is well again.
    Probe,
    /// None, until then; `None` until somebody changes it.
    Shut {
        /// When to ask again.
        until: Option<Timestamp>,
    },
}

/// The first pause before a parked target is tried.
const PROBE_BASE: Duration = Duration::from_secs(5);
/// A parked target is tried at least so often.
pub(super) const PROBE_CAP: Duration = Duration::from_secs(300);

impl TargetState {
    /// Whether items may be claimed at `now`.
    #[must_use]
    pub fn gate(&self, now: Timestamp) -> Gate {
        match (&self.paused, &self.parked) {
            (Some(_), _) => Gate::Shut { until: None },
            (None, None) => Gate::Open,
            (None, Some(parked)) if now >= parked.probe_at => Gate::Probe,
            (None, Some(parked)) => Gate::Shut { until: Some(parked.probe_at) },
        }
    }

    /// Parks it, or notes that it is still unwell; says whether that is news. `hold` is the pause
    /// that the target asked for.
    pub fn park(
        &mut self,
        class: ErrorClass,
        words: &str,
        hold: Option<Duration>,
        now: Timestamp,
    ) -> bool {
        let is_news = self.parked.is_none();
        let parked = self.parked.get_or_insert_with(|| Parked {
            class,
            words: String::new(),
            since: now,
            probes_count: 0,
            probe_at: now,
        });
        parked.class = class;
        words.clone_into(&mut parked.words);
        let pause = hold.unwrap_or_default().max(probe_pause(parked.probes_count));
        parked.probe_at = now.plus(pause.min(PROBE_CAP.max(hold.unwrap_or_default())));
        is_news
    }

    /// An item is on its way to see: nobody else tries before the next turn.
    pub fn take_probe(&mut self, now: Timestamp) {
        if let Some(parked) = &mut self.parked {
            parked.probes_count = parked.probes_count.saturating_add(1);
            parked.probe_at = now.plus(probe_pause(parked.probes_count));
        }
    }

    /// It answered again; says whether it was parked.
    pub fn open(&mut self) -> bool {
        self.parked.take().is_some()
    }

    /// An operator says that it is well: no pause, and the next item is tried at once.
    pub fn resume(&mut self, now: Timestamp) {
        self.paused = None;
        if let Some(parked) = &mut self.parked {
            parked.probe_at = now;
        }
    }
}

/// Doubles from [`PROBE_BASE`] to [`PROBE_CAP`].
fn probe_pause(tries: u32) -> Duration {
    PROBE_BASE.saturating_mul(1 << tries.min(10)).min(PROBE_CAP)
}
