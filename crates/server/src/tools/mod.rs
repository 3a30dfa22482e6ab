//! The server's own tools. Each says what it takes and gives (schemas), and does one thing with
//! the engine; none of them knows a database.

pub mod accept;
pub mod answer;
pub mod arguments;
pub mod create_issue;
pub mod delivered;
pub mod issue_effect;
pub mod list_operations;
pub mod operation_audit;
pub mod operation_status;
pub mod output_schema;
pub mod reply;
pub mod support_ticket;
pub mod toolbox;

pub use toolbox::Toolbox;
