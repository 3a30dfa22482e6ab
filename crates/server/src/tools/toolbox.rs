//! The tools of one server: what is listed, and which of them answers a call.

use std::sync::Arc;

use counterfoil_engine::Engine;
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, Tool};

use super::arguments::check_unguessable;
use super::{
    create_issue, delivered, list_operations, operation_audit, operation_status, support_ticket,
};
use crate::connector::Connectors;
use crate::handler::{CallError, ClientSide, GatedCall};
use crate::metrics::TOOL_WORDS;

/// The word under which calls of connectors' own tools are counted.
const CONNECTOR_WORD: &str = "connector";
/// The same of calls of no tool.
const OTHER_WORD: &str = "other";

/// The tools over one engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Toolbox {
    engine: Arc<Engine>,
    connectors: Arc<Connectors>,
    /// In the order in which they are listed.
    tools: Arc<[Tool]>,
}

impl From<Arc<Engine>> for Toolbox {
    fn from(engine: Arc<Engine>) -> Self {
        Self::new(engine, Connectors::default())
    }
}

impl Toolbox {
    /// The tools of our own, and those of the connectors.
    #[must_use]
    pub fn new(engine: Arc<Engine>, connectors: Connectors) -> Self {
        let mut tools = vec![
            create_issue::definition(),
            operation_status::definition(),
            list_operations::definition(),
            operation_audit::definition(),
        ];
        // By name, so that the list is the same at every start.
        for connector in connectors.iter() {
            if connector.is_support_ticket() {
                tools.push(support_ticket::submit_definition(connector));
                tools.push(support_ticket::status_definition());
            } else {
                tools.push(delivered::definition(connector));
            }
        }
        Self { engine, connectors: Arc::new(connectors), tools: tools.into() }
    }

    /// The engine beneath.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What is listed.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The word under which calls of a tool are counted: of our own tools their name.
    #[must_use]
    pub fn word(&self, name: &str) -> &'static str {
        match TOOL_WORDS.into_iter().find(|own| *own == name) {
            Some(own) => own,
            None if self.get(name).is_some() => CONNECTOR_WORD,
            None => OTHER_WORD,
        }
    }

    /// Answers one call. `is_shared`: strangers share the network that it came by.
    ///
    /// # Errors
    /// [`CallError`]: a refusal, or a protocol error.
    pub(crate) async fn call(
        &self,
        name: &str,
        GatedCall { caller, raw }: &GatedCall,
        client: &ClientSide<'_>,
        is_shared: bool,
    ) -> Result<CallToolResponse, CallError> {
        let engine = &self.engine;
        let result = match name {
            operation_status::NAME => operation_status::call(engine, caller, raw).await?,
            list_operations::NAME => list_operations::call(engine, caller, raw).await?,
            operation_audit::NAME => operation_audit::call(engine, caller, raw).await?,
            support_ticket::STATUS_NAME if self.get(name).is_some() => {
                support_ticket::status(engine, caller, raw).await?
            }
            _ => {
                let connector = self.connectors.by_tool(name);
                if connector.is_none() && name != create_issue::NAME {
                    return Err(self.no_such_tool(name).into());
                }
                if is_shared {
                    // An ID that is tried must not be found.
                    check_unguessable(raw)?;
                }
                match connector {
                    None => return create_issue::call(engine, caller, raw, client).await,
                    Some(desk) if desk.is_support_ticket() => {
                        support_ticket::submit(engine, caller, raw, desk, client).await?
                    }
                    Some(desk) => delivered::call(engine, caller, raw, desk, client).await?,
                }
            }
        };
        Ok(result.into())
    }

    fn no_such_tool(&self, name: &str) -> ErrorData {
        let shown: String = name.chars().take(64).collect();
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_ref()).collect();
        let message = match names.split_last() {
            Some((last, rest)) if names.len() <= 20 => {
                format!(
                    "there is no tool `{shown}`; this server has {} and {last}",
                    rest.join(", ")
                )
            }
            _ => format!("there is no tool `{shown}`; tools/list has all"),
        };
        ErrorData::invalid_params(message, None)
    }
}
