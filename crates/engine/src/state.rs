//! Sealed continuation state: issued after a first round that found nothing, opened when the
//! continuation brings it back.

use counterfoil_core::admission::{Admitted, Authority};
use counterfoil_core::record::Record;
use counterfoil_core::seal::{self, Expected, StateClaims, StateRefused};
use counterfoil_core::time::Timestamp;

use crate::engine::Engine;

/// What a state is bound to besides the call itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateBinding {
    /// The protocol's method, for example `tools/call`.
    pub method: &'static str,
}

impl Engine {
    /// Issues a sealed state for the continuation of this call. It carries the deadline of the
    /// continuation's authority; issuing it again for a later round never moves that deadline,
    /// because the same sealed text is handed out again.
    ///
    /// # Errors
    /// [`seal::SealError`] if the lifetimes make no deadline after now; the clock stands at the end
    /// of time.
    pub fn issue_state(
        &self,
        call: &Admitted,
        binding: StateBinding,
    ) -> Result<String, seal::SealError> {
        let now = self.now();
        let lifetimes = self.lifetimes();
        seal::seal(
            self.keys(),
            &StateClaims {
                operation_id: call.operation_id().to_string(),
                tenant: call.caller().tenant.to_string(),
                principal: call.caller().principal.to_string(),
                method: binding.method.into(),
                tool_id: call.tool_id().to_string(),
                tool_version: call.tool_version().to_string(),
                arguments_digest: call.binding().call.to_bytes(),
                issued_at_ms: now.as_ms(),
                expires_at_ms: now.plus(lifetimes.state.as_duration()).as_ms(),
                authority_ends_at_ms: now.plus(lifetimes.authority.as_duration()).as_ms(),
                nonce: self.random::<1>()[0],
            },
        )
    }

    /// Opens a state that a continuation brought and checks that it was issued for this very call.
    /// Gives the authority that it carries.
    ///
    /// # Errors
    /// [`StateRefused`], the same for every cause.
    pub fn open_state(
        &self,
        sealed: &str,
        call: &Admitted,
        binding: StateBinding,
    ) -> Result<Authority, StateRefused> {
        let claims = seal::open(self.keys(), sealed)?;
        // The state may have been sealed before the active key changed.
        let digest = call.call_digest_like(&claims.arguments_digest);
        let expected = Expected {
            operation_id: call.operation_id().as_str(),
            tenant: call.caller().tenant.as_str(),
            principal: call.caller().principal.as_str(),
            method: binding.method,
            tool_id: call.tool_id().as_str(),
            tool_version: call.tool_version().as_str(),
            arguments_digest: &digest,
        };
        claims.permits(&expected, self.now().as_ms())?;
        Ok(Authority::Until(Timestamp::from_ms(claims.authority_ends_at_ms)))
    }
}

/// What a continuation of a direct operation brought in its sealed state, checked for its seal alone.
#[derive(Debug, Clone)]
pub struct LegState {
    claims: StateClaims,
    leg: u32,
}

/// The word in a state that says which request of an operation it is for.
const LEG_METHOD: &str = "tools/call/";

impl LegState {
    /// The operation that it speaks of.
    #[must_use]
    pub fn operation_id(&self) -> &str {
        &self.claims.operation_id
    }

    /// Which request of the operation the continuation is, counted from 1; at least 2.
    #[must_use]
    pub const fn leg(&self) -> u32 {
        self.leg
    }

    /// Until when the continuation may write.
    #[must_use]
    pub fn authority(&self) -> Authority {
        Authority::Until(Timestamp::from_ms(self.claims.authority_ends_at_ms))
    }
}

impl Engine {
    /// Seals the state for the request that follows request `leg` of a direct operation. Its
    /// authority ends a fixed time after the operation was recorded, however often it is sealed.
    ///
    /// # Errors
    /// [`seal::SealError`] if that time has passed.
    pub fn issue_leg(&self, record: &Record, leg: u32) -> Result<String, seal::SealError> {
        let (now, lifetimes) = (self.now(), self.lifetimes());
        seal::seal(
            self.keys(),
            &StateClaims {
                operation_id: record.operation_id.to_string(),
                tenant: record.tenant.to_string(),
                principal: record.principal.to_string(),
                method: format!("{LEG_METHOD}{}", leg + 1),
                tool_id: record.tool_id.to_string(),
                tool_version: record.tool_version.to_string(),
                arguments_digest: record.binding.call.to_bytes(),
                issued_at_ms: now.as_ms(),
                expires_at_ms: now.plus(lifetimes.state.as_duration()).as_ms(),
                authority_ends_at_ms: self.authority_of(record).as_ms(),
                nonce: self.random::<1>()[0],
            },
        )
    }

    /// Until when requests may follow the first of a direct operation.
    pub(crate) fn authority_of(&self, record: &Record) -> Timestamp {
        record.created_at.plus(self.lifetimes().authority.as_duration())
    }

    /// Opens the state of a continuation: whose operation it speaks of. Whether it fits the call is
    /// for [`check_leg`](Self::check_leg).
    ///
    /// # Errors
    /// [`StateRefused`], the same for every cause.
    pub fn open_leg(&self, sealed: &str) -> Result<LegState, StateRefused> {
        let claims = seal::open(self.keys(), sealed)?;
        let leg = claims.method.strip_prefix(LEG_METHOD).and_then(|leg| leg.parse().ok());
        let leg = leg.filter(|leg| *leg >= 2).ok_or(StateRefused)?;
        Ok(LegState { claims, leg })
    }

    /// Checks that a state was sealed for this very call.
    ///
    /// # Errors
    /// [`StateRefused`], the same for every cause.
    pub fn check_leg(&self, state: &LegState, call: &Admitted) -> Result<(), StateRefused> {
        let claims = &state.claims;
        let digest = call.call_digest_like(&claims.arguments_digest);
        let expected = Expected {
            operation_id: call.operation_id().as_str(),
            tenant: call.caller().tenant.as_str(),
            principal: call.caller().principal.as_str(),
            method: &claims.method,
            tool_id: call.tool_id().as_str(),
            tool_version: call.tool_version().as_str(),
            arguments_digest: &digest,
        };
        claims.permits(&expected, self.now().as_ms())
    }
}
