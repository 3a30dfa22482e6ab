//! What a status tells of every pair of record and item, asked of the product once.

use counterfoil_core::delivery::{self, Delivery};
use counterfoil_core::operation;

pub(super) use crate::model::shown::Shown;
use crate::model::world::{Word, account_of, deferred};

use super::desk::Desk;
use super::item::Mould;

const WORDS: [Option<Word>; 3] = [None, Some(Word::Proved), Some(Word::Unproved)];

/// The product's answers.
#[derive(Debug, Clone)]
pub(super) struct Table(Vec<Shown>);

impl Table {
    pub(super) fn new(mould: &Mould) -> Self {
        let accepted = mould.cast(&mould.accepted());
        let mut answers = Vec::new();
        for state in operation::ALL_STATES {
            for item_state in delivery::ALL_STATES {
                for late_contradiction in [false, true] {
                    let item =
                        Delivery { state: item_state, late_contradiction, ..accepted.clone() };
                    for word in WORDS {
                        answers.push(account_of(&deferred(state, word), &item));
                    }
                }
            }
        }
        Self(answers)
    }

    pub(super) fn of(&self, desk: &Desk) -> Shown {
        let state = operation::ALL_STATES
            .iter()
            .position(|state| *state == desk.operation)
            .expect("ALL_STATES has all of them");
        let item = usize::try_from(desk.item.state.code()).expect("a place in ALL_STATES");
        let word = match desk.word {
            None => 0,
            Some(Word::Proved) => 1,
            Some(Word::Unproved) => 2,
        };
        self.0[((state * 8 + item) * 2 + usize::from(desk.item.contradicted)) * 3 + word]
    }
}
