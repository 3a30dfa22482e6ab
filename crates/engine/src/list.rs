//! A caller's own operations, page by page: for one that forgot its IDs.

use counterfoil_core::cursor::{self, ListOf};
use counterfoil_core::identity::Caller;
use counterfoil_core::listing::{Listed, PageLimit, Stage};
use counterfoil_core::refusal::{Code, Refusal};
use counterfoil_core::time::Timestamp;
use counterfoil_store::{Cursor, ListQuery};

use crate::engine::Engine;
use crate::reply::refusal_from_store;

/// Which page a caller asks for.
#[derive(Debug, Clone, Default)]
pub struct ListRequest {
    /// Only operations that are in progress or in doubt.
    pub unsettled_only: bool,
    /// How many operations at most.
    pub limit: PageLimit,
    /// The cursor that the last page came with; `None` begins at the newest.
    pub cursor: Option<String>,
}

/// One page of a caller's operations.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The operations, the newest first. There may be none while there is a cursor.
    pub operations: Vec<Listed>,
    /// Where the next page begins, for this caller and this list alone; `None` at the end.
    pub next_cursor: Option<String>,
    /// When the page was read, on the ledger's clock.
    pub observed_at: Timestamp,
}

impl Engine {
    /// A page of the caller's own operations, the newest first. Writes nothing.
    ///
    /// # Errors
    /// [`Refusal`] with `invalid_argument` if the cursor was not given to this caller for this
    /// list, `store_unavailable` if the ledger cannot be read.
    pub async fn list(&self, caller: &Caller, request: &ListRequest) -> Result<Listing, Refusal> {
        let of = ListOf {
            tenant: caller.tenant.as_str(),
            principal: caller.principal.as_str(),
            list: if request.unsettled_only { "unsettled" } else { "all" },
        };
        let after = request.cursor.as_deref().map(|text| cursor::open(self.keys(), &of, text));
        let after = after
            .transpose()
            .map_err(|refused| Refusal::new(Code::InvalidArgument, refused.to_string(), None))?;
        let unsettled: &[Stage] = if request.unsettled_only { &Stage::UNSETTLED } else { &[] };
        let query = ListQuery {
            principal: Some(caller.principal.clone()),
            stages: unsettled.to_vec(),
            limit: request.limit,
            after: after.map(Cursor::from_bytes),
            ..ListQuery::of_tenant(caller.tenant.clone())
        };
        let page = self.store.list(query).await;
        let page = page.map_err(|error| refusal_from_store(&error, None))?;
        if page.damaged_count > 0 {
            tracing::error!(
                count = page.damaged_count,
                "damaged records were left out of a list; run `counterfoil store check`"
            );
        }
        let mut operations = page.operations;
        self.tell_more(caller, &mut operations).await?;
        Ok(Listing {
            operations,
            next_cursor: page.next.map(|next| cursor::seal(self.keys(), &of, next.as_bytes())),
            observed_at: self.now(),
        })
    }
}
