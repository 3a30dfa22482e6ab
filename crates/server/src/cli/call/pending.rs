//! `counterfoil call --pending`: the calls whose outcome is still unknown, from the journal alone.

use std::io::{self, Write};
use std::path::Path;

use counterfoil_client::{Entry, Journal, JournalError};
use serde_json::{Value, json};

use super::plan::{Question, journal_of};
use super::server::words_of;
use super::{CallArgs, Exit};

/// Lists them on stdout, the oldest first, each with the command that asks.
///
/// # Errors
/// If stdout or stderr cannot be written.
pub(super) fn run(args: &CallArgs, out: &mut impl Write, err: &mut impl Write) -> io::Result<Exit> {
    let path = match journal_of(args.journal.clone()) {
        Ok(path) => path,
        Err(problem) => {
            writeln!(err, "error: {problem}")?;
            return Ok(Exit::Usage);
        }
    };
    let pending = match Journal::pending(&path) {
        Ok(pending) => pending,
        Err(error) => {
            writeln!(err, "error: {}", unreadable(&error))?;
            return Ok(Exit::Failed);
        }
    };
    let given = args.journal.as_deref();
    if args.json {
        let calls: Vec<Value> = pending.iter().map(|entry| to_json(entry, given)).collect();
        writeln!(out, "{}", json!({"journal": path, "pending": calls}))?;
        return Ok(Exit::Done);
    }
    for entry in &pending {
        writeln!(out, "{}", line(entry, given))?;
    }
    let place = path.display();
    match pending.len() {
        0 => writeln!(err, "no call of unknown outcome in {place}")?,
        count => writeln!(
            err,
            "{count} of unknown outcome in {place}. The journal has no arguments and no token: put \
             the server's own in place of `...`. Do not send one of these calls under another ID"
        )?,
    }
    Ok(Exit::Done)
}

fn unreadable(error: &JournalError) -> String {
    match error {
        JournalError::Io { path, source, .. } => {
            format!("the journal {} cannot be read: {source}", path.display())
        }
        error @ JournalError::Open { .. } => error.to_string(),
    }
}

fn line(entry: &Entry, journal: Option<&Path>) -> String {
    let Entry { operation_id, tool, server, saved_at } = entry;
    let id = operation_id.as_ref().map_or("(no ID)", |id| id.as_str());
    let next = next(entry, journal);
    let next = next.as_deref().unwrap_or("without an ID nothing can be asked");
    format!("{id}  {tool}  {server}  {saved_at}\n  {next}")
}

fn to_json(entry: &Entry, journal: Option<&Path>) -> Value {
    let Entry { operation_id, tool, server, saved_at } = entry;
    let next = next(entry, journal);
    json!({"operationId": operation_id, "tool": tool, "server": server, "savedAt": saved_at,
           "next": next})
}

/// The command that asks, with an ellipsis for the arguments that the journal does not have.
fn next(entry: &Entry, journal: Option<&Path>) -> Option<String> {
    let operation_id = entry.operation_id.as_ref()?;
    let command = Question { operation_id, principal: None, journal };
    Some(format!("{} ...", command.to(&words_of(&entry.server))))
}
