//! Which faults a seed's history has, and how often.

use clap::ValueEnum;

/// A kind of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Nothing fails
    Calm,
    /// The first answer of every request is lost after it was executed; later ones often
    LostReplies,
    /// Requests and answers are lost or late, and targets refuse
    Network,
    /// The ledger is busy, slow, and loses acknowledgements
    Disk,
    /// Processes die and start again, over a bad network and disk
    Crashes,
    /// The wall clock jumps in both directions
    Clocks,
    /// Operators redrive, cancel, abandon, resolve, pause and revoke, over everything but clocks
    Operators,
}

impl Profile {
    /// All, in the order in which seeds take them.
    pub const ALL: [Self; 7] = [
        Self::Calm,
        Self::LostReplies,
        Self::Network,
        Self::Disk,
        Self::Crashes,
        Self::Clocks,
        Self::Operators,
    ];

    /// The profile of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let place = usize::try_from(seed % 7).expect("below seven");
        Self::ALL[place]
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::LostReplies => "lost-replies",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Crashes => "crashes",
            Self::Clocks => "clocks",
            Self::Operators => "operators",
        }
    }

    pub(super) const fn has(self, part: Self) -> bool {
        self as u8 == part as u8
            || matches!(
                (self, part),
                (Self::Crashes, Self::Network | Self::Disk)
                    | (Self::Clocks, Self::Network)
                    | (Self::Operators, Self::Network | Self::Disk | Self::Crashes)
            )
    }

    /// In how many of a thousand cases it happens.
    pub(super) const fn per_mille(self, what: Chance) -> u64 {
        let (part, often) = match what {
            Chance::StoreBusy => (Self::Disk, 40),
            Chance::StoreLostAck => (Self::Disk, 40),
            Chance::StoreStall => (Self::Disk, 60),
            Chance::Refused => (Self::Network, 80),
            Chance::RequestLost => (Self::Network, 80),
            Chance::ReplyLost => (Self::Network, 200),
            Chance::Late => (Self::Network, 60),
            Chance::ClientLost => (Self::Network, 200),
        };
        if self.has(part) { often } else { 0 }
    }
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chance {
    StoreBusy,
    StoreLostAck,
    StoreStall,
    /// The target answers that it did nothing.
    Refused,
    /// The request is lost before the target.
    RequestLost,
    /// It is executed, and its answer is lost.
    ReplyLost,
    /// It is executed after the sender gave up.
    Late,
    /// A client's answer is lost.
    ClientLost,
}
