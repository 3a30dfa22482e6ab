//! What is done to one message on its way: which fault, in which direction, at which of its bytes.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use crate::random::Random;

/// How client and server are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Pipes of a server of its own for each connection.
    Stdio,
    /// HTTP whose replies are JSON bodies (revision 2026-07-28).
    HttpJson,
    /// HTTP whose replies are streams of events (revision 2025-11-25, with a session).
    HttpSse,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The lab's own client: one request that brings everything.
    Raw,
    /// The product's recovering client: a question and its continuation.
    Recovering,
}

/// What the proxy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Swallows what comes from there on; the connection stays open and silent.
    Drop,
    /// Holds what comes from there on until the client has given up, and then passes it on.
    Delay,
    /// Begins the message anew from there; after the message: sends it again when it was answered.
    Duplicate,
    /// Ends the connection there, both ways.
    Truncate,
    /// Changes a byte so that it is no UTF-8; after the message: adds bytes that are none of it.
    Corrupt,
    /// Takes the sealed state out of a continuation.
    StripState,
    /// Gives a reply the operation ID of another call: a result that is not this call's.
    Swap,
    /// Gives a reply the JSON-RPC ID of no call.
    Misname,
}

/// Which message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The call that makes the effect: before the commit.
    Request,
    /// The reply to it: after the commit.
    Reply,
}

/// Where in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// Its first byte; over HTTP the first of the head.
    First,
    /// The middle of what MCP says; over HTTP the middle of the body.
    Middle,
    /// Its last byte.
    Last,
    /// Behind it.
    After,
    /// As many ten-thousandths of it.
    At(u16),
}

impl Position {
    /// How many bytes pass before the fault, of a message of `whole` bytes with a head of `head`.
    #[must_use]
    pub fn offset(self, head: usize, whole: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Middle => head + (whole - head) / 2,
            Self::Last => whole.saturating_sub(1),
            Self::After => whole,
            Self::At(part) => (whole * usize::from(part) / 10_000).min(whole.saturating_sub(1)),
        }
    }
}

/// One fault for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Plan {
    /// How client and server are joined.
    pub wire: Wire,
    /// Who calls.
    pub who: Who,
    /// What happens.
    pub fault: Fault,
    /// To which message.
    pub direction: Direction,
    /// Where in it.
    pub position: Position,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wire, who, fault, direction, position } = self;
        let text = format!("{wire:?}-{who:?}-{fault:?}-{direction:?}-{position:?}");
        f.write_str(&text.to_ascii_lowercase().replace(['(', ')'], ""))
    }
}

/// The ways that are tried: every wire with the lab's client, and with the recovering one those that
/// its newest revision takes.
pub const WAYS: [(Wire, Who); 5] = [
    (Wire::Stdio, Who::Raw),
    (Wire::HttpJson, Who::Raw),
    (Wire::HttpSse, Who::Raw),
    (Wire::Stdio, Who::Recovering),
    (Wire::HttpJson, Who::Recovering),
];

/// Every fault in every place in which it is one.
#[must_use]
pub fn grid((wire, who): (Wire, Who)) -> Vec<Plan> {
    use Position::{After, First, Last, Middle};
    let mut plans = Vec::new();
    let mut add = |fault, direction, position| {
        plans.push(Plan { wire, who, fault, direction, position });
    };
    for direction in [Direction::Request, Direction::Reply] {
        for position in [First, Middle, Last, After] {
            for fault in [Fault::Drop, Fault::Duplicate, Fault::Truncate, Fault::Corrupt] {
                add(fault, direction, position);
            }
            // Nothing is left that could be late.
            if position != After {
                add(Fault::Delay, direction, position);
            }
        }
    }
    if who == Who::Recovering {
        add(Fault::StripState, Direction::Request, First);
    }
    // They change whole texts of one length, wherever those stand.
    add(Fault::Swap, Direction::Reply, First);
    add(Fault::Misname, Direction::Reply, First);
    plans
}

/// A plan by chance.
#[must_use]
pub fn random(random: &mut Random) -> Plan {
    const FAULTS: [Fault; 5] =
        [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Truncate, Fault::Corrupt];
    let mut pick = |count: usize| random.below(count as u64) as usize;
    let (wire, who) = WAYS[pick(WAYS.len())];
    Plan {
        wire,
        who,
        fault: FAULTS[pick(FAULTS.len())],
        direction: [Direction::Request, Direction::Reply][pick(2)],
        position: Position::At(pick(10_000) as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_each_fault_in_each_direction_once() {
        // Promise: no cell of the grid is missing or tried twice, so its table means what it says.
        for way in WAYS {
            let plans = grid(way);
            let mut once = plans.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), plans.len());
            for direction in [Direction::Request, Direction::Reply] {
                for fault in [Fault::Drop, Fault::Delay, Fault::Duplicate, Fault::Truncate] {
                    let found = plans
                        .iter()
                        .filter(|plan| (plan.fault, plan.direction) == (fault, direction));
                    assert_eq!(found.count(), if fault == Fault::Delay { 3 } else { 4 });
                }
            }
        }
    }

    #[test]
    fn a_position_is_inside_its_message_unless_it_is_behind_it() {
        // Promise: a fault hits the message that it is planned for, however short that is.
        for whole in [1, 2, 10, 999] {
            for position in [Position::First, Position::Middle, Position::Last, Position::At(9999)]
            {
                assert!(position.offset(0, whole) < whole, "{position:?} of {whole}");
            }
            assert_eq!(Position::After.offset(0, whole), whole);
        }
        assert_eq!(Position::Middle.offset(100, 200), 150, "the middle of the body");
    }
}
