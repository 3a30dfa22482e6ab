//! Whether the rules hold after a step, as far as two states show it; what only the step itself shows
//! is noted where it is taken.

use counterfoil_core::observation::{Detail, ObservedState};

use super::CallModel;
use super::desk::{Asks, Desk, Phase};
use crate::model::rules::Rule;

impl CallModel {
    pub(super) fn judge(&self, before: &Desk, desk: &mut Desk) {
        let maker = desk.record.map(|rec| rec.maker.asks);
        let owner = if maker == Some(Asks::Stranger) { Asks::Stranger } else { Asks::First };
        let other = if owner == Asks::First { Asks::Stranger } else { Asks::First };
        let shown = self.status(desk, owner);
        let mut broken = desk.broken;
        broken.unless(desk.made <= 1, Rule::OneEffect);

        let is_known = |state| {
            desk.clients.iter().any(|client| client.phase == Phase::Knows(state))
                || (shown.state == state)
        };
        let happened = is_known(ObservedState::Applied) || is_known(ObservedState::Partial);
        broken.unless(!happened || desk.has_row, Rule::NothingLost);
        broken
            .unless(!is_known(ObservedState::NotApplied) || !desk.has_row, Rule::NotAppliedIsTrue);

        broken.unless(
            match desk.told {
                None => true,
                Some(told) => told == shown.state || desk.is_forgotten,
            },
            Rule::StaysSettled,
        );
        if shown.state != ObservedState::Unknown {
            desk.told = Some(shown.state);
        }
        let is_settled = desk.record.is_some_and(|rec| rec.state.is_terminal());
        let to_others = self.status(desk, other);
        broken.unless(
            (is_settled || shown.state == ObservedState::Unknown)
                && to_others.state == ObservedState::Unknown,
            Rule::UnsettledIsUnknown,
        );
        broken.unless(!shown.grants && !to_others.grants, Rule::NothingGrants);
        broken.unless(
            shown.believed
                && !matches!(shown.detail, Detail::Quarantined | Detail::EffectMissing)
                && before.record.is_none_or(|rec| {
                    !rec.state.is_terminal() || desk.record.is_none_or(|now| now.state == rec.state)
                }),
            Rule::RecordAgrees,
        );
        let is_recorded = desk.record.is_some() || desk.is_forgotten;
        broken.unless(is_recorded || !desk.has_row, Rule::CommittedTogether);
        desk.broken = broken;
    }
}
