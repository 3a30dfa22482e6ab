//! Fuzzing on stable Rust: whatever comes from outside is read without a panic, damage is never
//! accepted, and what is accepted means the same to a second, independent reader. This is a smoke
//! test; with `./test --full` each property gets twenty times as many cases.

mod bundles;
mod canonical;
mod declared;
mod state;
mod wire;

use proptest::prelude::*;

/// So many cases, or twenty times as many.
fn cases(count: u32) -> ProptestConfig {
    let full = std::env::var("COUNTERFOIL_TEST_FULL").is_ok_and(|value| value == "1");
    let cases = if full { count * 20 } else { count };
    ProptestConfig { cases, ..ProptestConfig::default() }
}

/// One change of some bytes. It may change nothing.
#[derive(Debug, Clone)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    let pieces = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..4),
        prop::sample::select(vec![
            "\"", "{", "]", ",", "\\ud800", "1e999", "null", "{{", "\0", "é"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        (at(), 0_u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        at().prop_map(Damage::Cut),
        at().prop_map(Damage::Remove),
        (at(), pieces).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        (at(), at()).prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

impl Damage {
    fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if bytes.is_empty() {
            return bytes;
        }
        let length = bytes.len();
        match self {
            Self::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Remove(at) => {
                bytes.remove(at.index(length));
            }
            Self::Insert(at, piece) => {
                let at = at.index(length);
                bytes.splice(at..at, piece.iter().copied());
            }
            Self::Repeat(one, other) => {
                let (one, other) = (one.index(length), other.index(length));
                let piece = bytes[one.min(other)..one.max(other)].to_vec();
                bytes.splice(one..one, piece);
            }
        }
        bytes
    }
}
