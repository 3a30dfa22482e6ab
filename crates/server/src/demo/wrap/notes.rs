//! A server of notes that knows nothing of us: two tools over stdio, and a file. It can be told to
//! die after a note is written and before it is answered.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use clap::Args;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

/// The exit code of a server that dies after its write.
pub const EXIT_AFTER_WRITE: i32 = 9;

/// A server of notes to try `counterfoil wrap` with: add_note and find_notes over stdio
///
/// Appends each note to a file and knows nothing of operations.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Examples:
  counterfoil wrap --name notes -- counterfoil demo notes --file notes.txt
  counterfoil demo notes --file notes.txt --die-after 1")]
pub struct NotesArgs {
    /// The file of notes, one a line; made if it is not there
    #[arg(long, value_name = "FILE", default_value = "notes.txt")]
    pub file: PathBuf,
    /// Die (exit code 9) when the file gets its Nth note, after the write and before the answer
    #[arg(long, value_name = "N")]
    pub die_after: Option<u64>,
}

/// Serves until the client leaves.
///
/// # Errors
/// If the file cannot be used, or the handshake fails.
pub async fn run(args: &NotesArgs) -> anyhow::Result<()> {
    let unusable = || format!("the file of notes {} cannot be used", args.file.display());
    let file = OpenOptions::new().create(true).append(true).read(true).open(&args.file);
    let notes = Notes {
        file: Arc::new(file.with_context(unusable)?),
        path: args.file.clone(),
        written: Arc::new(AtomicU64::new(lines(&args.file).with_context(unusable)?.len() as u64)),
        die_after: args.die_after,
    };
    let running = notes.serve(rmcp::transport::stdio()).await.context("the handshake failed")?;
    running.waiting().await.context("the server was stopped")?;
    Ok(())
}

/// The notes in a file.
///
/// # Errors
/// [`std::io::Error`] if it cannot be read.
pub fn lines(file: &Path) -> std::io::Result<Vec<String>> {
    Ok(std::fs::read_to_string(file)?.lines().map(str::to_owned).collect())
}

#[derive(Debug, Clone)]
struct Notes {
    file: Arc<File>,
    path: PathBuf,
    written: Arc<AtomicU64>,
    die_after: Option<u64>,
}

impl Notes {
    fn add(&self, text: &str) -> std::io::Result<CallToolResult> {
        let line = format!("{}\n", text.replace(['\n', '\r'], " "));
        (&*self.file).write_all(line.as_bytes())?;
        self.file.sync_data()?;
        let count = self.written.fetch_add(1, Ordering::Relaxed) + 1;
        if self.die_after == Some(count) {
            std::process::exit(EXIT_AFTER_WRITE);
        }
        Ok(said(json!({ "number": count })))
    }

    fn find(&self, text: &str) -> std::io::Result<CallToolResult> {
        let found: Vec<Value> = lines(&self.path)?
            .into_iter()
            .enumerate()
            .filter(|(_, line)| line.contains(text))
            .map(|(at, line)| json!({ "number": at + 1, "text": line }))
            .collect();
        Ok(said(json!({ "notes": found })))
    }
}

fn said(value: Value) -> CallToolResult {
    CallToolResult::structured(value)
}

fn tool(name: &'static str, description: &'static str) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string" } },
        "required": ["text"],
    });
    Tool::new(name, description, Arc::new(rmcp::model::object(schema)))
}

impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("notes", "1"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![
            tool("add_note", "Adds a note."),
            tool("find_notes", "Finds the notes that contain a text."),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let Some(text) = arguments.get("text").and_then(Value::as_str) else {
            return Err(ErrorData::invalid_params("the argument text must be a string", None));
        };
        let done = match &*request.name {
            "add_note" => self.add(text),
            "find_notes" => self.find(text),
            other => {
                return Err(ErrorData::invalid_params(format!("there is no tool {other}"), None));
            }
        };
        Ok(done
            .unwrap_or_else(|why| CallToolResult::error(vec![ContentBlock::text(why.to_string())]))
            .into())
    }
}
