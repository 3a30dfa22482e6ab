//! The help desk's tickets: a file with a line for each, written through before anybody is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A ticket as the desk keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The desk's own name for it.
    pub id: String,
    /// The idempotency key of the request that made it, if it had one.
    pub key: Option<String>,
    /// What it is about.
    pub subject: String,
    /// The text.
    pub description: String,
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filed {
    /// A new ticket of this ID.
    New(String),
    /// The key was known: the ticket of then.
    Again(String),
    /// The key is known with other texts.
    KeyReused,
}

/// The tickets.
#[derive(Debug)]
pub struct Book {
    file: File,
    tickets: Vec<Ticket>,
    by_key: BTreeMap<String, usize>,
}

impl Book {
    /// Opens the file, or makes it. A last line without its end was never answered: it is taken
    /// off.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be used, or holds a line that is no ticket.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        let mut book = Self { file, tickets: Vec::new(), by_key: BTreeMap::new() };
        for line in text[..whole].lines() {
            book.remember(serde_json::from_str(line)?);
        }
        Ok(book)
    }

    /// Files a ticket, or finds the one that the key made. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`io::Error`] if it cannot be written.
    pub fn file(
        &mut self,
        key: Option<&str>,
        subject: &str,
        description: &str,
    ) -> io::Result<Filed> {
        if let Some(at) = key.and_then(|key| self.by_key.get(key)) {
            let known = &self.tickets[*at];
            let is_same = known.subject == subject && known.description == description;
            return Ok(if is_same { Filed::Again(known.id.clone()) } else { Filed::KeyReused });
        }
        let ticket = Ticket {
            id: format!("T-{}", self.tickets.len() + 1),
            key: key.map(str::to_owned),
            subject: subject.to_owned(),
            description: description.to_owned(),
        };
        let mut line = serde_json::to_string(&ticket)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        let id = ticket.id.clone();
        self.remember(ticket);
        Ok(Filed::New(id))
    }

    /// All of them, the oldest first.
    #[must_use]
    pub fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    /// How many tickets say what an earlier one says.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        let texts: BTreeSet<(&str, &str)> =
            self.tickets.iter().map(|it| (&*it.subject, &*it.description)).collect();
        self.tickets.len() - texts.len()
    }

    fn remember(&mut self, ticket: Ticket) {
        if let Some(key) = &ticket.key {
            self.by_key.entry(key.clone()).or_insert(self.tickets.len());
        }
        self.tickets.push(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_makes_one_ticket_over_every_restart() {
        // Promise: the desk honours keys for good, and what was half written was never a ticket.
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("tickets.jsonl");
        let mut book = Book::open(&path).unwrap();
        assert_eq!(book.file(Some("a"), "s", "d").unwrap(), Filed::New("T-1".into()));
        assert_eq!(book.file(Some("a"), "s", "d").unwrap(), Filed::Again("T-1".into()));
        drop(book);
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"{\"id\":\"T-2\",\"ke").unwrap();
        let mut book = Book::open(&path).unwrap();
        assert_eq!(book.file(Some("a"), "s", "d").unwrap(), Filed::Again("T-1".into()));
        assert_eq!(book.file(Some("a"), "s", "other").unwrap(), Filed::KeyReused);
        assert_eq!(book.file(Some("b"), "t", "d").unwrap(), Filed::New("T-2".into()));
        assert_eq!((book.tickets().len(), book.duplicates()), (2, 0));
        assert_eq!(book.file(None, "s", "d").unwrap(), Filed::New("T-3".into()));
        assert_eq!(Book::open(&path).unwrap().duplicates(), 1, "a double is seen for what it is");
    }
}
