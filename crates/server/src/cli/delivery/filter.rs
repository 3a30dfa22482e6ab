//! Which deliveries are meant, where they are not named one by one.

use std::time::Duration;

use clap::Args;
use counterfoil_core::delivery::{ALL_STATES, ErrorClass, State, TargetName};
use counterfoil_core::identity::Tenant;
use counterfoil_core::time::Timestamp;
use counterfoil_store::outbox::{DeliveryQuery, Outbox};

use crate::config::parse_span;

// No documentation of its own: it would become that of the command.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct FilterArgs {
    /// Only those for this target
    #[arg(long, value_name = "NAME", value_parser = TargetName::parse, help_heading = "Which")]
    target: Option<TargetName>,
    /// Only those in this state; repeatable
    #[arg(long = "state", value_name = "STATE", value_parser = state, help_heading = "Which")]
    states: Vec<State>,
    /// Only those whose last failure was of this class
    #[arg(long, value_name = "CLASS", value_parser = class, help_heading = "Which")]
    class: Option<ErrorClass>,
    /// Only those accepted at least so long ago
    #[arg(long, value_name = "SPAN", value_parser = parse_span, help_heading = "Which")]
    #[arg(allow_hyphen_values = true)]
    older_than: Option<Duration>,
}

impl FilterArgs {
    /// That the target, if one is meant, is one of the ledger's.
    ///
    /// # Errors
    /// If it is not: the known ones are named. Or if the ledger cannot be read.
    pub(super) async fn check_target(&self, outbox: &dyn Outbox) -> anyhow::Result<()> {
        let Some(wanted) = &self.target else { return Ok(()) };
        let known = outbox.targets().await?;
        if known.iter().any(|view| view.target == *wanted) {
            return Ok(());
        }
        let names: Vec<&str> = known.iter().map(|view| view.target.as_str()).collect();
        let ledger = outbox.backend_id();
        anyhow::bail!(match names.is_empty() {
            true => format!(
                "the ledger `{ledger}` has no target `{wanted}`, nor any other: nothing was ever \
                 accepted for delivery"
            ),
            false => format!(
                "the ledger `{ledger}` has no target `{wanted}`; its targets are: {}",
                names.join(", ")
            ),
        })
    }

    /// Whether nothing is filtered.
    pub(super) const fn is_empty(&self) -> bool {
        self.target.is_none()
            && self.states.is_empty()
            && self.class.is_none()
            && self.older_than.is_none()
    }

    /// The query from its first page on. `of_no_state` are the states that are meant where none is
    /// given; empty for all.
    pub(super) fn query(
        &self,
        tenant: Option<Tenant>,
        of_no_state: &[State],
        now: Timestamp,
    ) -> DeliveryQuery {
        let given = if self.states.is_empty() { of_no_state } else { &self.states };
        let before = |span: Duration| {
            let ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_ms(now.as_ms().saturating_sub(ms))
        };
        DeliveryQuery {
            tenant,
            target: self.target.clone(),
            states: given.to_vec(),
            class: self.class,
            accepted_until: self.older_than.map(before),
            ..DeliveryQuery::default()
        }
    }
}

fn state(word: &str) -> Result<State, String> {
    State::from_word(word).ok_or_else(|| {
        let known = ALL_STATES.map(State::as_str).join(", ");
        format!("there is no such state; use one of: {known}")
    })
}

fn class(word: &str) -> Result<ErrorClass, String> {
    ErrorClass::from_word(word).ok_or_else(|| {
        let known = ErrorClass::ALL.map(ErrorClass::as_str).join(", ");
        format!("there is no such class; use one of: {known}")
    })
}
