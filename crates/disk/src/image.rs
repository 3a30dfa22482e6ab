//! What is on a file's medium, and what is only on its way there.

/// What becomes of that which was not synchronised when the power goes off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All of it is lost.
    Everything,
    /// All of it arrived, as when only the process dies.
    Nothing,
    /// The first changes of each file arrived, up to some point.
    Prefix,
    /// The last changes of each file arrived, from some point on.
    Suffix,
    /// Any of the changes arrived, each whole.
    Subset,
    /// Any of the sectors of the changes arrived; a sector has so many bytes.
    Torn(u64),
}

impl Loss {
    /// Every kind, with the two usual sizes of a sector.
    pub const ALL: [Self; 7] = [
        Self::Everything,
        Self::Nothing,
        Self::Prefix,
        Self::Suffix,
        Self::Subset,
        Self::Torn(512),
        Self::Torn(4096),
    ];
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) const fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// From zero to `end`, both included.
    fn up_to(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX - 1);
        usize::try_from(self.next() % (end + 1)).unwrap_or(0)
    }
}

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Truncate { length: u64 },
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => put(content, *at, bytes),
            Self::Truncate { length } => content.resize(place(*length), 0),
        }
    }
}

fn put(content: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (from, to) = (place(at), place(at) + bytes.len());
    if content.len() < to {
        content.resize(to, 0);
    }
    content[from..to].copy_from_slice(bytes);
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("the lab's files fit into memory")
}

/// One file: what was synchronised, and what was written since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    durable: Vec<u8>,
    pending: Vec<Change>,
}

impl Image {
    pub(crate) const fn durable(content: Vec<u8>) -> Self {
        Self { durable: content, pending: Vec::new() }
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.pending.push(change);
    }

    pub(crate) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// What a program that reads the file sees.
    pub(crate) fn live(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        self.pending.iter().for_each(|change| change.apply(&mut content));
        content
    }

    /// What is left of it after the power went off.
    pub(crate) fn survivor(&self, loss: Loss, random: &mut Random) -> Vec<u8> {
        let mut content = self.durable.clone();
        let count = self.pending.len();
        let (from, to) = match loss {
            Loss::Everything => (0, 0),
            Loss::Nothing | Loss::Subset | Loss::Torn(_) => (0, count),
            Loss::Prefix => (0, random.up_to(count)),
            Loss::Suffix => (random.up_to(count), count),
        };
        for change in &self.pending[from..to] {
            match (loss, change) {
                (Loss::Torn(sector), Change::Write { at, bytes }) => {
                    tear(&mut content, *at, bytes, sector, random);
                }
                (Loss::Subset | Loss::Torn(_), _) if random.coin() => {}
                _ => change.apply(&mut content),
            }
        }
        content
    }
}

/// Writes each sector of a change, or does not.
fn tear(content: &mut Vec<u8>, at: u64, bytes: &[u8], sector: u64, random: &mut Random) {
    let mut done = 0;
    while done < bytes.len() {
        let start = at + done as u64;
        let room = place(sector - start % sector);
        let end = bytes.len().min(done + room);
        if random.coin() {
            put(content, start, &bytes[done..end]);
        }
        done = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, bytes: &[u8]) -> Change {
        Change::Write { at, bytes: bytes.to_vec() }
    }

    fn half_synced() -> Image {
        let mut image = Image::default();
        image.change(write(0, &[1; 2048]));
        image.sync();
        image.change(write(1024, &[2; 2048]));
        image.change(Change::Truncate { length: 2560 });
        image
    }

    #[test]
    fn what_was_synchronised_survives_every_loss() {
        // Promise: a power loss takes nothing that was synchronised and not written again.
        let image = half_synced();
        for loss in Loss::ALL {
            for seed in 0..50 {
                let left = image.survivor(loss, &mut Random::new(seed));
                assert_eq!(left[..1024], [1; 1024], "{loss:?} {seed}");
            }
        }
        assert_eq!(image.survivor(Loss::Everything, &mut Random::new(1)), [1; 2048]);
        assert_eq!(image.survivor(Loss::Nothing, &mut Random::new(1)), image.live());
    }

    #[test]
    fn a_torn_write_is_torn_at_sectors_and_nowhere_else() {
        // Promise: each sector is old or new; some seeds mix them, or tearing tests nothing.
        let image = half_synced();
        let mut mixed = 0;
        for seed in 0..50 {
            let left = image.survivor(Loss::Torn(512), &mut Random::new(seed));
            let sectors: Vec<&[u8]> = left[1024..2048].chunks(512).collect();
            for sector in &sectors {
                assert!(sector.iter().all(|byte| byte == &sector[0]), "{seed}");
            }
            mixed += usize::from(sectors[0] != sectors[1]);
        }
        assert!(mixed > 0);
    }
}
