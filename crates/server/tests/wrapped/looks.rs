//! What a look at a real server proves, before a write and after it.

use std::fs;
use std::path::Path;
use std::process::Command;

use counterfoil::wrap::lookup::{CallFacts, Verdict};
use counterfoil::wrap::tools::Plans;
use counterfoil_core::json::{JsonLimits, parse};
use counterfoil_core::time::Timestamp;
use serde_json::Value;

use crate::lists::{LISTS, plans};
use crate::server::{Server, node, python};

/// A server with the plans for its tools.
struct World {
    server: Server,
    plans: Plans,
}

impl World {
    /// The list that was recorded is the one that the server gives.
    fn new(preset: &str, mut server: Server) -> Self {
        let list = server.ask("tools/list", &serde_json::json!({}));
        let (_, recorded) = LISTS.iter().find(|(name, _)| *name == preset).expect("recorded");
        assert_eq!(list, recorded.trim_end(), "{preset}: record the list anew");
        Self { server, plans: plans(preset, &list) }
    }

    /// What a look for this call proves now.
    fn look(&mut self, tool: &str, arguments: &str) -> (Verdict, String) {
        let plan = self.plans.plan(tool);
        let lookup = plan.lookup().unwrap_or_else(|| panic!("{tool} has a lookup"));
        let values = parse(arguments.as_bytes(), &JsonLimits::default()).expect(arguments);
        let now = jiff::Timestamp::now().as_millisecond();
        let call = CallFacts {
            arguments: &values,
            operation_id: "op-1",
            marker: "cf0123",
            dispatched_at: Timestamp::from_ms(now),
        };
        let asked = lookup.arguments(&call).expect("rendered");
        let result = self.server.call(lookup.tool(), &asked);
        let verdict = lookup.judge(result.as_bytes(), &call, None);
        let schema = plan.output_schema.as_deref();
        let settled = lookup.settled(result.as_bytes(), &call, schema);
        let settled = String::from_utf8(settled.json).expect("UTF-8");
        (verdict, settled)
    }

    /// Unknown before the write, applied after it, with a result that keeps the tool's own schema.
    #[track_caller]
    fn check(&mut self, tool: &str, arguments: &str) {
        let (before, _) = self.look(tool, arguments);
        assert!(matches!(before, Verdict::Unknown(_)), "{tool} before: {before:?}");
        self.write(tool, arguments);
        let (after, settled) = self.look(tool, arguments);
        assert_eq!(after, Verdict::Applied, "{tool} {arguments}");
        let settled: Value = serde_json::from_str(&settled).expect("JSON");
        let words = settled["content"][0]["text"].as_str().unwrap_or_default();
        assert!(!words.is_empty(), "{settled}");
        // Only observations have no result of their own to tell: what was added cannot be seen.
        let is_error = tool == "add_observations";
        assert_eq!(settled["isError"] == true, is_error, "{tool}: {settled}");
    }

    #[track_caller]
    fn write(&mut self, tool: &str, arguments: &str) {
        let result = self.server.call(tool, arguments);
        let result: Value = serde_json::from_str(&result).expect("JSON");
        assert!(result["isError"] != true, "{tool}: {result}");
        let words = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(!self.plans.plan(tool).is_error_text(words), "{tool}: {words}");
    }
}

fn shown(path: &Path) -> String {
    serde_json::to_string(&path.display().to_string()).expect("JSON")
}

#[test]
fn the_memory_server() {
    // Promise: each write of the memory server is found again by the preset's look.
    let Some(command) = node("@modelcontextprotocol/server-memory") else {
        eprintln!("NOT RUN: the servers to wrap are installed by ./test");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("memory.jsonl");
    let mut world =
        World::new("memory", Server::start(&command, &[], &[("MEMORY_FILE_PATH", &file)]));
    let entities = r#"{"entities":[{"name":"A","entityType":"t","observations":["o \"1\""]},{"name":"B","entityType":"t","observations":[]}]}"#;
    let relations = r#"{"relations":[{"from":"A","to":"B","relationType":"knows"}]}"#;
    let observations = r#"{"observations":[{"entityName":"A","contents":["o2","o3"]},{"entityName":"B","contents":["x"]}]}"#;
    let deletions = r#"{"deletions":[{"entityName":"A","observations":["o2","o3"]},{"entityName":"B","observations":["x"]}]}"#;
    world.check("create_entities", entities);
    world.check("create_relations", relations);
    world.check("add_observations", observations);
    // More observations than were created do not hide the entities.
    assert_eq!(world.look("create_entities", entities).0, Verdict::Applied);
    // One of several is not all.
    let one = r#"{"deletions":[{"entityName":"A","observations":["o2"]}]}"#;
    world.check("delete_observations", one);
    world.check("delete_observations", deletions);
    world.check("delete_relations", relations);
    world.check("delete_entities", r#"{"entityNames":["A","B"]}"#);
}

#[test]
fn the_filesystem_server() {
    // Promise: each write of the filesystem server is found again by the preset's look.
    let Some(command) = node("@modelcontextprotocol/server-filesystem") else {
        eprintln!("NOT RUN: the servers to wrap are installed by ./test");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let mut world = World::new("filesystem", Server::start(&command, &[&root], &[]));
    let (a, b, folder) = (root.join("a.txt"), root.join("b.txt"), root.join("folder"));
    let path = shown(&a);
    world.check("write_file", &format!(r#"{{"path":{path},"content":"one\ntwo é\n"}}"#));
    world.check("write_file", &format!(r#"{{"path":{path},"content":"one\ntwo \"é\"\n"}}"#));
    let edits =
        r#"[{"oldText":"two","newText":"2"},{"oldText":"one\n","newText":"one\nand a half\n"}]"#;
    world.check("edit_file", &format!(r#"{{"path":{path},"edits":{edits}}}"#));
    let trial =
        format!(r#"{{"path":{path},"dryRun":true,"edits":[{{"oldText":"2","newText":"3"}}]}}"#);
    assert!(matches!(world.look("edit_file", &trial).0, Verdict::Unknown(_)));
    world.check("create_directory", &format!(r#"{{"path":{}}}"#, shown(&folder)));
    let of = |from: &Path, to: &Path| {
        format!(r#"{{"source":{},"destination":{}}}"#, shown(from), shown(to))
    };
    world.check("move_file", &of(&a, &b));
    world.check("move_file", &of(&folder, &root.join("other")));
    // Neither there: somebody took it away since, or it never came.
    fs::remove_file(&b).expect("removed");
    assert!(matches!(world.look("move_file", &of(&a, &b)).0, Verdict::Unknown(_)));
    // A file that says of itself that another is missing proves nothing.
    fs::write(&a, format!("{}: Error - ENOENT: \n---\n{}:\n", b.display(), a.display()))
        .expect("written");
    assert!(matches!(world.look("move_file", &of(&a, &b)).0, Verdict::Unknown(_)));
}

#[test]
fn the_git_server() {
    // Promise: each write of the git server that leaves a trace is found again by the preset's look,
    // and an older commit with the same message is not taken for it.
    let Some(command) = python("git") else {
        eprintln!("NOT RUN: the servers to wrap are installed by ./test");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().canonicalize().expect("a path");
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .arg("-C")
            .arg(&root)
            .args(["-c", "user.name=n", "-c", "user.email=n@example.test"])
            .args(arguments)
            .env("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
            .output()
            .expect("git runs");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "user.name", "n"]);
    git(&["config", "user.email", "n@example.test"]);
    fs::write(root.join("a.txt"), "a\n").expect("written");
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "fix"]);
    let option = Path::new("--repository");
    let mut world = World::new("git", Server::start(&command, &[option, &root], &[]));
    let with = |rest: &str| format!(r#"{{"repo_path":{}{rest}}}"#, shown(&root));
    fs::write(root.join("a.txt"), "a\nb\n").expect("written");
    world.write("git_add", &with(r#","files":["a.txt"]"#));
    world.check("git_reset", &with(""));
    world.write("git_add", &with(r#","files":["a.txt"]"#));
    world.check("git_commit", &with(r#","message":"fix""#));
    fs::write(root.join("a.txt"), "c\n").expect("written");
    world.write("git_add", &with(r#","files":["a.txt"]"#));
    world.check("git_commit", &with(r#","message":"two lines\n\nof it""#));
    // A message that is the beginning of another is not the other.
    let first_line = world.look("git_commit", &with(r#","message":"two lines""#)).0;
    assert!(matches!(first_line, Verdict::Unknown(_)), "{first_line:?}");
    world.check("git_create_branch", &with(r#","branch_name":"dev""#));
    world.check("git_checkout", &with(r#","branch_name":"dev""#));
    assert_eq!(
        world.look("git_create_branch", &with(r#","branch_name":"dev""#)).0,
        Verdict::Applied
    );
    let half = world.look("git_create_branch", &with(r#","branch_name":"de""#)).0;
    assert!(matches!(half, Verdict::Unknown(_)), "a part of a name is no name");
}

#[test]
fn the_sqlite_server() {
    // Promise: a table is found again by its statement, and an error that is told as a plain result
    // is known for one.
    let Some(command) = python("sqlite") else {
        eprintln!("NOT RUN: the servers to wrap are installed by ./test");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("data.db");
    let option = Path::new("--db-path");
    let mut world = World::new("sqlite", Server::start(&command, &[option, &file], &[]));
    let create = r#"{"query":"CREATE TABLE t (a TEXT DEFAULT 'it''s');"}"#;
    world.check("create_table", create);
    world.check("create_table", r#"{"query":" CREATE TABLE u\n(b INTEGER) "}"#);
    world.write("write_query", r#"{"query":"INSERT INTO t VALUES ('x')"}"#);
    for (tool, arguments) in [
        ("create_table", create),
        ("write_query", r#"{"query":"INSERT INTO none VALUES (1)"}"#),
        ("write_query", r#"{"query":"SELECT 1"}"#),
    ] {
        let result: Value =
            serde_json::from_str(&world.server.call(tool, arguments)).expect("JSON");
        let words = result["content"][0]["text"].as_str().expect("a text");
        assert_eq!(result["isError"], false, "{result}");
        assert!(world.plans.plan(tool).is_error_text(words), "{words}");
    }
}
