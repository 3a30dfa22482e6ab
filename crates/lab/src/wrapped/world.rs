//! The servers that are wrapped, and their effects: what a call asks for, and what stands of it in
//! the server's own files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

/// The settings for the server of notes, as its demo has them.
const NOTES: &str = include_str!("../../../server/src/demo/wrap/wrap.toml");
const NODE: &str = "COUNTERFOIL_WRAPPED_NODE";
const PYTHON: &str = "COUNTERFOIL_WRAPPED_PYTHON";
/// What a file holds before it is edited.
const BEFORE: &str = "begin";

/// A server that knows nothing of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `@modelcontextprotocol/server-filesystem`.
    Filesystem,
    /// `@modelcontextprotocol/server-memory`.
    Memory,
    /// `mcp-server-git`.
    Git,
    /// `mcp-server-sqlite`.
    Sqlite,
    /// `counterfoil demo notes`.
    Notes,
}

/// A server's command and files.
#[derive(Debug)]
pub struct World {
    kind: Kind,
    files: PathBuf,
    command: Vec<OsString>,
    preset: OsString,
}

/// The text that one operation's effect has, and no other's.
#[must_use]
pub fn token(number: u64) -> String {
    format!("effect-{number:06}")
}

impl Kind {
    /// Whether its program is installed: that of `demo notes` always is.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            Self::Filesystem | Self::Memory => std::env::var_os(NODE).is_some(),
            Self::Git | Self::Sqlite => std::env::var_os(PYTHON).is_some(),
            Self::Notes => true,
        }
    }

    /// The tools that have effects here.
    const fn tools(self) -> &'static [&'static str] {
        match self {
            Self::Filesystem => &["write_file", "edit_file"],
            Self::Memory => &["create_entities", "add_observations"],
            Self::Git => &["git_commit", "git_create_branch"],
            Self::Sqlite => &["write_query", "create_table"],
            Self::Notes => &["add_note"],
        }
    }

    /// How many calls are under way at once. Two of these servers read their state, change it and
    /// write it whole; calls side by side undo each other, which is not what is tested. For the same
    /// reason two lives of theirs must not meet.
    #[must_use]
    pub const fn callers(self) -> usize {
        match self {
            Self::Memory | Self::Git => 1,
            Self::Filesystem | Self::Sqlite | Self::Notes => 4,
        }
    }
}

impl World {
    /// Makes the server's files below `place`.
    ///
    /// # Errors
    /// If they cannot be made, or the server is not installed.
    pub fn make(kind: Kind, place: &Path, product: &Path) -> anyhow::Result<Self> {
        ensure!(
            kind.is_here(),
            "{kind:?} is not installed; run ./test, or set {NODE} and {PYTHON}"
        );
        let files = place.join("files");
        std::fs::create_dir_all(&files)?;
        let files = std::fs::canonicalize(&files)?;
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from).unwrap_or_default();
        let script = |package: &str| {
            let at = path(NODE).join("@modelcontextprotocol").join(package).join("dist/index.js");
            vec![OsString::from("node"), at.into()]
        };
        let program = |name: &str| {
            let at = path(PYTHON).join(name).join("bin").join(format!("mcp-server-{name}"));
            OsString::from(at)
        };
        let command = match kind {
            Kind::Filesystem => [script("server-filesystem"), vec![files.clone().into()]].concat(),
            Kind::Memory => script("server-memory"),
            Kind::Git => vec![program("git"), "--repository".into(), files.clone().into()],
            Kind::Sqlite => {
                vec![program("sqlite"), "--db-path".into(), files.join("a.db").into()]
            }
            Kind::Notes => {
                let file = files.join("notes.txt");
                let words = ["demo", "notes", "--file"].map(OsString::from);
                [&[product.into()], &words[..], &[file.into()]].concat()
            }
        };
        let preset = match kind {
            Kind::Filesystem => "filesystem".into(),
            Kind::Memory => "memory".into(),
            Kind::Git => "git".into(),
            Kind::Sqlite => "sqlite".into(),
            Kind::Notes => {
                let at = place.join("notes.toml");
                std::fs::write(&at, NOTES)?;
                at.into()
            }
        };
        let world = Self { kind, files, command, preset };
        world.begin()?;
        Ok(world)
    }

    fn begin(&self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Git => {
                self.git(&["init", "-q", "-b", "main"])?;
                self.git(&["config", "user.name", "lab"])?;
                self.git(&["config", "user.email", "lab@example.test"])?;
                self.git(&["commit", "-q", "--allow-empty", "-m", "first"])?;
            }
            Kind::Sqlite => {
                let connection = self.database()?;
                connection.execute("CREATE TABLE notes (text TEXT)", [])?;
            }
            Kind::Memory => {
                let all = json!({
                    "type": "entity", "name": "all", "entityType": "t", "observations": [],
                });
                std::fs::write(self.files.join("graph.jsonl"), all.to_string())?;
            }
            Kind::Filesystem | Kind::Notes => {}
        }
        Ok(())
    }

    /// The server's command line.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// What `--preset` gets.
    #[must_use]
    pub fn preset(&self) -> &OsString {
        &self.preset
    }

    /// Variables of the server.
    #[must_use]
    pub fn environment(&self) -> Option<(&'static str, PathBuf)> {
        (self.kind == Kind::Memory).then(|| ("MEMORY_FILE_PATH", self.files.join("graph.jsonl")))
    }

    /// What an operation asks for, by its number.
    #[must_use]
    pub fn call(&self, number: u64) -> (&'static str, Value) {
        let text = token(number);
        let odd = (number % 2) as usize;
        let tool = self.kind.tools()[odd % self.kind.tools().len()];
        let path = || self.files.join(format!("{text}.txt"));
        let arguments = match tool {
            "write_file" => json!({ "path": path(), "content": text }),
            "edit_file" => json!({
                "path": path(),
                "edits": [{ "oldText": BEFORE, "newText": format!("{BEFORE} {text}") }],
            }),
            "create_entities" => json!({
                "entities": [{ "name": text, "entityType": "t", "observations": [text] }],
            }),
            "add_observations" => json!({
                "observations": [{ "entityName": "all", "contents": [text] }],
            }),
            "git_commit" => json!({ "repo_path": self.files, "message": text }),
            "git_create_branch" => json!({ "repo_path": self.files, "branch_name": text }),
            "write_query" => json!({ "query": format!("INSERT INTO notes VALUES ('{text}')") }),
            "create_table" => json!({ "query": format!("CREATE TABLE \"{text}\" (a INTEGER)") }),
            _ => json!({ "text": text }),
        };
        (tool, arguments)
    }

    /// Makes what a call needs, before it is made for the first time.
    ///
    /// # Errors
    /// If that fails.
    pub fn prepare(&self, number: u64) -> anyhow::Result<()> {
        let (tool, _) = self.call(number);
        let file = self.files.join(format!("{}.txt", token(number)));
        match tool {
            "edit_file" => std::fs::write(file, BEFORE)?,
            "git_commit" => {
                std::fs::write(&file, token(number))?;
                let add = ["add", &format!("{}.txt", token(number))];
                if self.git(&add).is_err() {
                    self.tidy()?;
                    self.git(&add)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Does what a person would after a crash: takes away the locks of a git that died.
    ///
    /// # Errors
    /// If that fails.
    pub fn tidy(&self) -> anyhow::Result<()> {
        if self.kind != Kind::Git {
            return Ok(());
        }
        let git = self.files.join(".git");
        for place in [git.clone(), git.join("refs/heads")] {
            for entry in std::fs::read_dir(place)? {
                let path = entry?.path();
                if path.extension().is_some_and(|it| it == "lock") {
                    // Its owner may have been quicker.
                    let _ = std::fs::remove_file(path);
                }
            }
        }
        Ok(())
    }

    /// Whether a frame that the server got asks for an effect, and for which operation's.
    #[must_use]
    pub fn asked_for(&self, frame: &Value) -> Option<u64> {
        let tool = frame["params"]["name"].as_str()?;
        if frame["method"] != "tools/call" || !self.kind.tools().contains(&tool) {
            return None;
        }
        number_in(&frame["params"]["arguments"].to_string())
    }

    /// The effects that stand in the server's files: how many each operation has.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn effects(&self) -> anyhow::Result<BTreeMap<u64, usize>> {
        let texts: Vec<String> = match self.kind {
            Kind::Filesystem => self.of_files()?,
            Kind::Memory => self.of_graph()?,
            Kind::Git => {
                let commits = self.git(&["log", "--all", "--format=%s"])?;
                let branches = self.git(&["branch", "--format=%(refname:short)"])?;
                format!("{commits}{branches}").lines().map(str::to_owned).collect()
            }
            Kind::Sqlite => self.of_database()?,
            Kind::Notes => match std::fs::read_to_string(self.files.join("notes.txt")) {
                Ok(text) => text.lines().map(str::to_owned).collect(),
                Err(_) => Vec::new(),
            },
        };
        let mut effects = BTreeMap::new();
        for number in texts.iter().filter_map(|text| number_in(text)) {
            *effects.entry(number).or_default() += 1;
        }
        Ok(effects)
    }

    /// One text for each effect of each file.
    fn of_files(&self) -> anyhow::Result<Vec<String>> {
        let mut texts = Vec::new();
        for entry in std::fs::read_dir(&self.files)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // What a killed server has not moved into place yet has no effect.
            let Some(own) = name.strip_suffix(".txt") else { continue };
            let text = std::fs::read_to_string(entry.path())?;
            texts.extend(text.matches(own).map(str::to_owned));
        }
        Ok(texts)
    }

    fn of_graph(&self) -> anyhow::Result<Vec<String>> {
        let path = self.files.join("graph.jsonl");
        let text = std::fs::read_to_string(path)?;
        let mut texts = Vec::new();
        for line in text.lines() {
            let one: Value = serde_json::from_str(line).context("a line of the graph")?;
            let observations = one["observations"].as_array().into_iter().flatten();
            texts.extend(observations.filter_map(Value::as_str).map(str::to_owned));
        }
        Ok(texts)
    }

    fn of_database(&self) -> anyhow::Result<Vec<String>> {
        let connection = self.database()?;
        let mut texts = Vec::new();
        for query in
            ["SELECT text FROM notes", "SELECT name FROM sqlite_master WHERE type = 'table'"]
        {
            let mut statement = connection.prepare(query)?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            for text in rows {
                texts.push(text?);
            }
        }
        Ok(texts)
    }

    fn database(&self) -> anyhow::Result<rusqlite::Connection> {
        Ok(rusqlite::Connection::open(self.files.join("a.db"))?)
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let done = Command::new("git")
            .arg("-C")
            .arg(&self.files)
            .args(arguments)
            .output()
            .context("git is not there")?;
        let errors = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "git {arguments:?}: {errors}");
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

/// The number of the operation that a text is of.
fn number_in(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("effect-")?;
    rest.get(..6)?.parse().ok()
}
