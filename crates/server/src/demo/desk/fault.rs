//! What the help desk does wrong, request after request: a list that is used up, then chance.

use std::str::FromStr;

/// One way to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Answers 503 with JSON.
    Error,
    /// Answers 502 with a page of HTML, as proxies do.
    Html,
    /// Answers 429 and asks for a second of patience.
    Busy,
    /// Resets the connection.
    Reset,
    /// Never answers.
    Hang,
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What the client sees.
    pub kind: Kind,
    /// Whether the ticket is filed all the same.
    pub applied: bool,
}

/// Every fault, by its word on the command line.
const WORDS: [(&str, Fault); 9] = [
    ("error", Fault { kind: Kind::Error, applied: false }),
    ("error-applied", Fault { kind: Kind::Error, applied: true }),
    ("html", Fault { kind: Kind::Html, applied: false }),
    ("html-applied", Fault { kind: Kind::Html, applied: true }),
    // 429 says that nothing was done, so there is no other kind of it.
    ("busy", Fault { kind: Kind::Busy, applied: false }),
    ("reset", Fault { kind: Kind::Reset, applied: false }),
    ("reset-applied", Fault { kind: Kind::Reset, applied: true }),
    ("hang", Fault { kind: Kind::Hang, applied: false }),
    ("hang-applied", Fault { kind: Kind::Hang, applied: true }),
];

impl Fault {
    /// The word on the command line.
    ///
    /// # Panics
    /// Never for a fault that was parsed; a 429 that files a ticket has no word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let known = WORDS.iter().find(|(_, fault)| *fault == self);
        known.expect("every fault that is made has its word").0
    }
}

/// A word that names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no fault; use error, html, reset or hang, each also with -applied, or busy, and *N \
     behind it for N requests, such as html-applied*3"
)]
pub struct UnknownFault(String);

/// The same fault several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The fault.
    pub fault: Fault,
    /// How many requests it hits.
    pub count: u32,
}

impl FromStr for Faults {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let unknown = || UnknownFault(text.to_owned());
        let (word, count) = match text.split_once('*') {
            Some((word, count)) => (word, count.parse().map_err(|_| unknown())?),
            None => (text, 1),
        };
        let known = WORDS.iter().find(|(name, _)| *name == word);
        known.map(|(_, fault)| Self { fault: *fault, count }).ok_or_else(unknown)
    }
}

/// The faults that are still to come.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The next one last.
    listed: Vec<Fault>,
    chance: Option<(u8, u64)>,
}

impl Plan {
    /// First `listed`, a fault for each request; then a fault of chance for `percent` of the
    /// requests, always the same ones for the same `seed`.
    #[must_use]
    pub fn new(listed: &[Faults], percent: u8, seed: u64) -> Self {
        let each = listed.iter().rev();
        let listed = each.flat_map(|it| (0..it.count).map(|_| it.fault)).collect();
        Self { listed, chance: (percent > 0).then_some((percent, seed)) }
    }

    /// What happens to the next request.
    pub fn next_fault(&mut self) -> Option<Fault> {
        if let Some(fault) = self.listed.pop() {
            return Some(fault);
        }
        let (percent, state) = self.chance.as_mut()?;
        let drawn = split_mix(state);
        let is_hit = drawn % 100 < u64::from(*percent);
        let which = usize::try_from(split_mix(state) % WORDS.len() as u64).expect("below nine");
        is_hit.then(|| WORDS[which].1)
    }
}

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_their_order_and_then_by_a_seed() {
        // Promise: a desk goes wrong as it was told, and the same way every time.
        let listed: Vec<Faults> =
            ["html-applied*2", "busy"].iter().map(|text| text.parse().unwrap()).collect();
        let draw = |seed| {
            let mut plan = Plan::new(&listed, 50, seed);
            (0..40).map(|_| plan.next_fault().map(Fault::as_str)).collect::<Vec<_>>()
        };
        let drawn = draw(7);
        assert_eq!(drawn[..3], [Some("html-applied"), Some("html-applied"), Some("busy")]);
        assert!(drawn[3..].contains(&None) && drawn[3..].iter().any(Option::is_some));
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        let mut plan = Plan::new(&listed, 0, 7);
        assert_eq!((0..9).filter(|_| plan.next_fault().is_some()).count(), 3);
    }

    #[test]
    fn a_word_that_names_no_fault_is_refused() {
        // Promise: a slip in a knob is told, and never a desk that works by accident.
        for text in ["", "hangs", "busy-applied", "html*", "html*-1", "html*two"] {
            let told = text.parse::<Faults>().expect_err(text).to_string();
            assert!(
                told.contains(&format!("`{text}`")) && told.contains("html-applied*3"),
                "{told}"
            );
        }
    }
}
