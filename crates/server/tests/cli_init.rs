//! `counterfoil init` on real files: what changes, what stays, and how it is taken back.

mod command;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use command::{Bench, Ended};
use counterfoil::wrap::clients::Wrapping;

const FILE: &str = r#"{
  // servers of mine
  "mcpServers": {
    "memory": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-memory"],
      "env": { "API_KEY": "s3cret" }
    },
    "bare": {
      "command": "/opt/bare"
    },
    "far": { "url": "https://far.test/mcp" },
  }
}
"#;

struct Client {
    bench: Bench,
    dir: tempfile::TempDir,
}

impl Client {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let client = Self { bench: Bench::new(), dir };
        fs::write(client.file(), text).expect("written");
        fs::set_permissions(client.file(), fs::Permissions::from_mode(0o640)).expect("set");
        client
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("mcp.json")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).expect("readable")
    }

    fn init(&self, arguments: &[&str]) -> Ended {
        let file = self.file().display().to_string();
        let whole = [&["init", &file], arguments, &["--command", "counterfoil"]].concat();
        self.bench.run(&whole)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("readable");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("readable").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

#[test]
fn wrapping_changes_what_was_picked_and_undo_takes_it_back() {
    // Promise: a client's file is changed in the picked servers alone, and comes back to the byte.
    let client = Client::new(FILE);
    let ended = client.init(&["--all", "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mark = Wrapping::mark_of(&client.file());
    let memory = r#""args": ["wrap", "--name", "memory-MARK", "--preset", "memory", "--", "npx", "-y", "@modelcontextprotocol/server-memory"],"#;
    let bare = "\"command\": \"counterfoil\",\n      \"args\": [\"wrap\", \"--name\", \"bare-MARK\", \"--\", \"/opt/bare\"]\n";
    let expected = FILE
        .replace("\"command\": \"npx\"", "\"command\": \"counterfoil\"")
        .replace("\"args\": [\"-y\", \"@modelcontextprotocol/server-memory\"],", memory)
        .replace("\"command\": \"/opt/bare\"\n", bare)
        .replace("MARK", &mark);
    assert_eq!(client.text(), expected);
    assert!(ended.stdout.contains("@@ line 5 @@\n-      \"command\": \"npx\",\n"), "{ended:?}");
    assert!(ended.stderr.contains("bare: no preset known"), "{ended:?}");
    assert!(!ended.stderr.contains("memory: no preset"), "{ended:?}");
    assert!(ended.stderr.contains("far: is reached over HTTP"), "{ended:?}");
    assert!(!ended.stdout.contains("s3cret") && !ended.stderr.contains("s3cret"), "{ended:?}");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&client.file()), 0o640);
    let copy = client.dir.path().join("mcp.json.before-counterfoil");
    assert_eq!(fs::read_to_string(&copy).expect("kept"), FILE);
    assert_eq!(mode(&copy), 0o600);

    let again = client.init(&["--all", "--yes"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("memory: is wrapped already"), "{again:?}");
    assert!(again.stderr.contains("nothing changes"), "{again:?}");

    let undone = client.init(&["--undo", "--yes"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert_eq!(client.text(), FILE);
}

#[test]
fn undo_keeps_what_was_changed_since() {
    // Promise: taking it back loses no other change of the file.
    let client = Client::new(FILE);
    client.init(&["--all", "--yes"]);
    let edited = client.text().replace("s3cret", "other").replace("// servers of mine", "// mine");
    fs::write(client.file(), &edited).expect("written");
    let undone = client.init(&["--undo", "--server", "memory", "--yes"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    let text = client.text();
    assert!(
        text.contains("\"args\": [\"-y\", \"@modelcontextprotocol/server-memory\"],"),
        "{text}"
    );
    assert!(text.contains("\"other\"") && text.contains("// mine"), "{text}");
    assert!(text.contains("\"--\", \"/opt/bare\"]"), "only what was named: {text}");
}

#[test]
fn nothing_is_written_unasked() {
    // Promise: where nobody can be asked, and in a trial, the file and its folder stay as they are.
    for (arguments, code, words) in [
        (&["--all", "--dry-run"][..], 0, "nothing was written"),
        (&["--all"], 2, "give --yes to write"),
        (&[], 2, "name what to wrap with --server, or give --all; there are: memory, bare"),
        (
            &["--server", "none", "--yes"],
            2,
            "there is no server none; the file has: memory, bare, far",
        ),
        (&["--server", "far", "--yes"], 0, "nothing changes"),
        (&["--undo", "--yes"], 0, "nothing changes"),
    ] {
        let client = Client::new(FILE);
        let ended = client.init(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {ended:?}");
        assert_eq!(client.text(), FILE);
        assert_eq!(client.files(), ["mcp.json"]);
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_a_remedy() {
    // Promise: a wrong file is told from a broken one, and is left alone.
    for (text, words) in [
        ("{\"mcpServers\": {\"m\": }", "is no JSON (line 1"),
        ("{\"name\": \"app\"}", "no MCP servers in the file"),
    ] {
        let client = Client::new(text);
        let ended = client.init(&["--all", "--yes"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
        assert_eq!(client.text(), text);
    }
    let bench = Bench::new();
    let ended = bench.run(&["init", "/none/mcp.json", "--all"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("cannot be found"), "{ended:?}");
}

#[test]
fn a_link_stays_a_link() {
    // Promise: settings that are kept elsewhere are changed there.
    let client = Client::new(FILE);
    let link = client.dir.path().join("link.json");
    std::os::unix::fs::symlink(client.file(), &link).expect("linked");
    let shown = link.display().to_string();
    let ended = client.bench.run(&["init", &shown, "--server", "bare", "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(client.text().contains("\"--name\", \"bare-"), "{}", client.text());
    assert!(client.text().contains("\"npx\""), "{}", client.text());
    // The program is not in PATH here, so it is named by its own path.
    assert!(client.text().contains(env!("CARGO_BIN_EXE_counterfoil")), "{}", client.text());
}

#[test]
fn copies_do_not_pile_up() {
    // Promise: the file as it first was is never lost, old copies with its secrets do not stay for ever,
    // what a person keeps beside them does, and taking it back works all the same.
    let client = Client::new(FILE);
    let kept = client.dir.path().join("mcp.json.before-counterfoil-mine");
    fs::write(&kept, "mine").expect("written");
    let mut said = String::new();
    for _ in 0..5 {
        said = client.init(&["--all", "--yes"]).stderr;
        client.init(&["--undo", "--yes"]);
        assert_eq!(client.text(), FILE);
    }
    let numbers = ["", "-10", "-6", "-7", "-8", "-9", "-mine"];
    let mut expected = vec!["mcp.json".to_owned()];
    expected.extend(numbers.map(|end| format!("mcp.json.before-counterfoil{end}")));
    assert_eq!(client.files(), expected);
    let first = client.dir.path().join("mcp.json.before-counterfoil");
    assert_eq!(fs::read_to_string(first).expect("kept"), FILE);
    assert!(said.contains("the first and the newest 5 are kept"), "{said}");
}

#[test]
fn a_server_of_ours_is_not_offered() {
    // Promise: what guards itself is not wrapped once more.
    let text = r#"{"mcpServers":{"own":{"command":"counterfoil","args":["serve"]}}}"#;
    let client = Client::new(text);
    let ended = client.init(&["--all", "--yes"]);
    assert_eq!((ended.code, client.text().as_str()), (Some(0), text), "{ended:?}");
    assert!(ended.stderr.contains("own: is counterfoil itself"), "{ended:?}");
}
