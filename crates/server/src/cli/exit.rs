//! The one table of exit codes.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: failed.
    Failed,
    /// 2: bad input or usage.
    Usage,
    /// 3: the outcome is unknown.
    Unknown,
    /// 4: refused: conflict, expired, no authority.
    Refused,
    /// 127: a command to run was not found.
    NotFound,
}

impl Exit {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unknown => 3,
            Self::Refused => 4,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The table for `--help`.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    bad input or usage
  3    the outcome is unknown: ask again, do not send again
  4    refused: conflict, expired, or no authority
  127  a command to run was not found";
