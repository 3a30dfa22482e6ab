//! Sealed continuation state: issued after a first round that found nothing, opened when the
//! continuation brings it back.

use counterfoil_core::admission::{Admitted, Authority};
use counterfoil_core::seal::{self, Expected, StateClaims, StateRefused};
use counterfoil_core::time::Timestamp;

use crate::engine::{Engine, random};

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
                nonce: random::<1>()[0],
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
