//! Cut points by name: where a child ends itself, and how.

use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use counterfoil_store::cut::{self, Cut};

/// Every place that can be cut. A mistyped name would cut nothing and prove nothing.
pub const POINTS: [&str; 11] = [
    "store.after_ledger_insert",
    "store.after_outbox_insert",
    "store.after_effect_insert",
    "store.after_first_commit",
    "store.after_commit",
    "store.after_claim",
    "store.after_begin_send",
    "store.after_report",
    "store.after_direct_begin",
    "store.after_direct_dispatch",
    "store.after_direct_conclude",
];

/// Those that a call with a local effect passes.
pub const LOCAL_POINTS: [&str; 4] = [
    "store.after_ledger_insert",
    "store.after_effect_insert",
    "store.after_first_commit",
    "store.after_commit",
];

/// A place and what happens there: `POINT=exit:CODE` or `POINT=kill`, with `POINT@N` for the Nth
/// time that the place is reached (the first is 1, the default).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutSpec {
    point: &'static str,
    nth: usize,
    end: End,
}

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At once, with this exit code.
    Exit(i32),
    /// By SIGKILL.
    Kill,
}

impl CutSpec {
    /// Ends the process when it first reaches `point`.
    ///
    /// # Panics
    /// If there is no such point.
    #[must_use]
    pub fn first(point: &str, end: End) -> Self {
        Self::nth(point, 1, end)
    }

    /// Ends the process when it reaches `point` for the `nth` time, counted from 1.
    ///
    /// # Panics
    /// If there is no such point, or `nth` is zero.
    #[must_use]
    pub fn nth(point: &str, nth: usize, end: End) -> Self {
        assert!(nth > 0);
        Self { point: known(point).expect("a point of the list"), nth, end }
    }

    /// Arms the cut for the rest of the process's life.
    pub fn arm(&self) {
        let end = self.end;
        cut::arm(Cut {
            at: self.point.to_owned(),
            after: self.nth - 1,
            action: Box::new(move |_| end.now()),
        });
    }
}

impl End {
    fn now(self) {
        if let Self::Exit(code) = self {
            std::process::exit(code);
        }
        let this = rustix::process::getpid();
        // SIGKILL cannot be held back: nothing after this call runs.
        let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        std::process::abort();
    }
}

impl FromStr for CutSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (place, end) =
            text.split_once('=').context("write POINT=exit:CODE or POINT=kill, e.g. a.b=kill")?;
        let (point, nth) = match place.split_once('@') {
            None => (place, 1),
            Some((point, nth)) => (point, nth.parse().context("the N of POINT@N is a number")?),
        };
        ensure!(nth > 0, "the N of POINT@N counts from 1");
        let end = match end.split_once(':') {
            None if end == "kill" => End::Kill,
            Some(("exit", code)) => End::Exit(code.parse().context("exit:CODE is a number")?),
            _ => bail!("`{end}` is neither `kill` nor `exit:CODE`"),
        };
        let point = known(point).with_context(|| {
            format!("there is no cut point `{point}`; there are {}", POINTS.join(", "))
        })?;
        Ok(Self { point, nth, end })
    }
}

impl std::fmt::Display for CutSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}=", self.point, self.nth)?;
        match self.end {
            End::Exit(code) => write!(f, "exit:{code}"),
            End::Kill => f.write_str("kill"),
        }
    }
}

fn known(point: &str) -> Option<&'static str> {
    POINTS.into_iter().find(|known| *known == point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_read_or_refused_with_the_rule() {
        // Promise: a mistyped cut is an error, not a test that cuts nothing.
        let point = "store.after_commit";
        for (text, nth, end) in [
            (format!("{point}=kill"), 1, End::Kill),
            (format!("{point}=exit:70"), 1, End::Exit(70)),
            (format!("{point}@3=exit:9"), 3, End::Exit(9)),
        ] {
            let cut: CutSpec = text.parse().expect("a cut");
            assert_eq!(cut, CutSpec { point, nth, end }, "{text}");
            assert_eq!(cut.to_string().parse::<CutSpec>().expect("its own text"), cut);
        }
        for (text, words) in [
            ("store.after_comit=kill", "no cut point `store.after_comit`"),
            ("store.after_commit", "POINT=exit:CODE"),
            ("store.after_commit=exit", "neither"),
            ("store.after_commit=exit:x", "a number"),
            ("store.after_commit@0=kill", "from 1"),
        ] {
            let error = text.parse::<CutSpec>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
