//! The settings of MCP clients: which servers they start, and how a server is wrapped there and
//! unwrapped again, without a change to any other byte of the file.

mod edit;
#[cfg(test)]
mod tests;

use std::fmt;

use sha2::{Digest, Sha256};

use super::raw::{Edits, Member, Raw, Span, only};
use super::settings::{Preset, UpstreamKey, preset_for_package};

/// A byte order mark, which editors of Windows write.
const BOM: &[u8] = b"\xef\xbb\xbf";
/// Where the servers stand, in the files of known clients.
const PLACES: &[&[&str]] = &[&["mcpServers"], &["servers"], &["mcp", "servers"]];

/// Why a client's settings cannot be used. Names places, never values: those may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableClient {
    /// It is no JSON, comments and trailing commas allowed.
    #[error("the file is no JSON{at}; correct it in an editor first")]
    NotJson {
        /// Line and column, if they are known.
        at: String,
    },
    /// No servers stand in it.
    #[error(
        "there are no MCP servers in the file: neither `mcpServers` nor `servers` is an object; name \
         the file in which your client keeps its servers"
    )]
    NoServers,
    /// Readers would not agree which of two is meant.
    #[error("the server {name} stands in the file twice; remove one")]
    Twice {
        /// The server.
        name: String,
    },
}

/// A client's settings.
#[derive(Clone)]
pub struct ClientFile {
    text: Vec<u8>,
    servers: Vec<Server>,
}

/// One server in a client's settings.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// What it is to us.
    pub kind: ServerKind,
    /// The whole entry.
    span: Span,
}

/// What a server is to us.
#[derive(Debug, Clone)]
pub enum ServerKind {
    /// A command, which can be wrapped.
    Command(Started),
    /// It is wrapped already.
    Wrapped(Started),
    /// It is a server of ours, which guards itself.
    Ours,
    /// It is reached over HTTP, which `wrap` does not do yet.
    Remote,
    /// Its entry cannot be understood.
    Unclear,
}

/// How a server is started.
#[derive(Clone)]
pub struct Started {
    /// The command and its arguments, decoded.
    pub words: Vec<String>,
    /// The command as it is written.
    command: Span,
    /// The list of arguments with its elements, if there is one.
    args: Option<(Span, Vec<Span>)>,
    /// The member `command`.
    member: Member,
}

/// How servers are wrapped.
#[derive(Debug, Clone)]
pub struct Wrapping {
    /// The command that stands for `counterfoil`.
    pub command: String,
    /// Whether a preset is named for servers that have one.
    pub uses_presets: bool,
    /// Stands behind each name, and differs from client file to client file: two clients may have
    /// servers of one name that are not the same server, and one ledger must not take them for it.
    pub mark: String,
}

impl Wrapping {
    /// The mark of a client's file.
    #[must_use]
    pub fn mark_of(file: &std::path::Path) -> String {
        let whole = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
        digest[..3].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ClientFile {
    /// Reads a client's settings.
    ///
    /// # Errors
    /// [`UnreadableClient`].
    pub fn read(text: Vec<u8>) -> Result<Self, UnreadableClient> {
        let raw = Raw::with_comments(&text);
        let mark = if text.starts_with(BOM) { BOM.len() } else { 0 };
        let whole = raw.value_from(mark).ok_or_else(|| not_json(&text[mark..]))?;
        let root = raw.members(&whole).ok_or(UnreadableClient::NoServers)?;
        let servers = PLACES.iter().find_map(|path| member_at(&raw, &root, path));
        let servers = servers.ok_or(UnreadableClient::NoServers)?;
        let mut found: Vec<Server> = Vec::new();
        for member in servers {
            let Some(name) = member.name else { continue };
            if found.iter().any(|it| it.name == name) {
                return Err(UnreadableClient::Twice { name });
            }
            let kind = ServerKind::of(&raw, &member.value);
            found.push(Server { name, kind, span: member.value });
        }
        Ok(Self { text, servers: found })
    }

    /// Its servers, in their order.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Its bytes.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The file with these servers wrapped; those that cannot be are left as they are.
    #[must_use]
    pub fn wrapped(&self, names: &[String], wrapping: &Wrapping) -> Vec<u8> {
        let mut edits = Edits::default();
        for server in self.chosen(names) {
            if let ServerKind::Command(started) = &server.kind {
                started.wrap(&self.text, &self.arguments(server, wrapping), wrapping, &mut edits);
            }
        }
        edits.apply(&self.text)
    }

    /// The file with these servers as they were before they were wrapped; those that are not are
    /// left as they are. A server that had no arguments keeps an empty list of them.
    #[must_use]
    pub fn unwrapped(&self, names: &[String]) -> Vec<u8> {
        let mut edits = Edits::default();
        for server in self.chosen(names) {
            if let ServerKind::Wrapped(started) = &server.kind {
                started.unwrap(&self.text, &mut edits);
            }
        }
        edits.apply(&self.text)
    }

    /// The arguments of `counterfoil` for a server, up to `--`.
    #[must_use]
    pub fn arguments(&self, server: &Server, wrapping: &Wrapping) -> Vec<String> {
        let name = format!("{}-{}", self.key_of(server), wrapping.mark);
        let mut arguments = vec!["wrap".to_owned(), "--name".to_owned(), name];
        if let Some(preset) = server.preset().filter(|_| wrapping.uses_presets) {
            arguments.extend(["--preset".to_owned(), preset.name.to_owned()]);
        }
        arguments.push("--".to_owned());
        arguments
    }

    /// The key under which the ledger will know a server: its name, with `-` for what a key cannot
    /// hold, and a number where two names would give one key.
    fn key_of(&self, server: &Server) -> String {
        let own = key_text(&server.name);
        let before = self.servers.iter().take_while(|it| it.name != server.name);
        match before.filter(|it| key_text(&it.name) == own).count() {
            0 => own,
            count => format!("{own}-{}", count + 1),
        }
    }

    fn chosen<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a Server> {
        self.servers.iter().filter(move |it| names.contains(&it.name))
    }
}

impl fmt::Debug for ClientFile {
    /// Without content: settings hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFile").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl fmt::Debug for Started {
    /// Without words, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("words", &self.words.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// The preset for it, if one of ours is for its package.
    #[must_use]
    pub fn preset(&self) -> Option<&'static Preset> {
        match &self.kind {
            ServerKind::Command(started) => {
                started.words.iter().find_map(|word| preset_for_package(word))
            }
            _ => None,
        }
    }

    /// Where its entry stands in the file.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span.clone()
    }
}

impl ServerKind {
    fn of(raw: &Raw<'_>, entry: &Span) -> Self {
        let Some(members) = raw.members(entry) else { return Self::Unclear };
        let Some(command) = only(&members, "command") else {
            let is_remote =
                ["url", "httpUrl", "serverUrl"].iter().any(|it| only(&members, it).is_some());
            return if is_remote { Self::Remote } else { Self::Unclear };
        };
        let Some(program) = raw.string(&command.value) else { return Self::Unclear };
        let mut words = vec![program];
        let args = match only(&members, "args") {
            Some(args) => {
                let Some(elements) = raw.elements(&args.value) else { return Self::Unclear };
                let texts: Option<Vec<String>> = elements.iter().map(|it| raw.string(it)).collect();
                let Some(texts) = texts else { return Self::Unclear };
                words.extend(texts);
                Some((args.value.clone(), elements))
            }
            None if super::raw::has(&members, "args") => return Self::Unclear,
            None => None,
        };
        let started =
            Started { words, command: command.value.clone(), args, member: command.clone() };
        if started.is_wrapped() {
            Self::Wrapped(started)
        } else if started.is_ours() {
            Self::Ours
        } else {
            Self::Command(started)
        }
    }
}

/// The members of the object at a path.
fn member_at(raw: &Raw<'_>, root: &[Member], path: &[&str]) -> Option<Vec<Member>> {
    let (first, further) = path.split_first()?;
    let members = raw.members(&only(root, first)?.value)?;
    if further.is_empty() { Some(members) } else { member_at(raw, &members, further) }
}

/// A text as a key of a server.
fn key_text(name: &str) -> String {
    let of_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let text: String = name.chars().map(|c| if of_key(c) { c } else { '-' }).take(48).collect();
    if UpstreamKey::parse(&text).is_ok() { text } else { "server".to_owned() }
}

fn not_json(text: &[u8]) -> UnreadableClient {
    let at = match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
        Err(error) if !text.contains(&b'/') => {
            format!(" (line {}, column {})", error.line(), error.column())
        }
        _ => String::new(),
    };
    UnreadableClient::NotJson { at }
}
