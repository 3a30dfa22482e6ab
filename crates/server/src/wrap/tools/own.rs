//! The tool of our own that a wrapped server shows beside its own.

use super::Plans;
use crate::tools::operation_status;

/// Names for it, in the order of preference.
const NAMES: &[&str] = &[operation_status::NAME, "counterfoil_get_operation_status"];

impl Plans {
    /// Under which name `get_operation_status` is shown: its own, unless the server has a tool of
    /// that name.
    #[must_use]
    pub fn status_tool(&self) -> String {
        let is_free = |name: &str| !self.known.contains_key(name);
        let numbered = (2..).map(|n| format!("{}_{n}", NAMES[1]));
        let mut names = NAMES.iter().map(|it| (*it).to_owned()).chain(numbered);
        names.find(|name| is_free(name)).expect("there are more numbers than tools")
    }

    /// Its definition, written out.
    pub(super) fn status_definition(&self) -> String {
        let mut tool = operation_status::definition();
        tool.name = self.status_tool().into();
        serde_json::to_string(&tool).expect("a tool's definition is plain JSON")
    }
}
