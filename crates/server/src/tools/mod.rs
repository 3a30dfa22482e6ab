//! The server's own tools. Each says what it takes and gives (schemas), and does one thing with
//! the engine; none of them knows a database.

pub mod answer;
pub mod arguments;
pub mod create_issue;
pub mod issue_effect;
pub mod list_operations;
pub mod operation_status;
pub mod reply;
