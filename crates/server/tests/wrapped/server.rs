//! A real MCP server over its stdio, asked without an SDK: its bytes are what is tested.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A server that runs.
pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next_id: u64,
}

/// A script of a package of `lab/wrapped`. `None` outside `./test`.
pub(crate) fn node(package: &str) -> Option<Vec<PathBuf>> {
    let modules = PathBuf::from(std::env::var_os("COUNTERFOIL_WRAPPED_NODE")?);
    let script = modules.join(package).join("dist/index.js");
    assert!(script.exists(), "{} is missing; ./test installs it", script.display());
    Some(vec!["node".into(), script])
}

/// A program of one of the environments in `.cache/wrapped`. `None` outside `./test`.
pub(crate) fn python(environment: &str) -> Option<Vec<PathBuf>> {
    let all = PathBuf::from(std::env::var_os("COUNTERFOIL_WRAPPED_PYTHON")?);
    let program = all.join(environment).join(format!("bin/mcp-server-{environment}"));
    assert!(program.exists(), "{} is missing; ./test installs it", program.display());
    Some(vec![program])
}

impl Server {
    /// Starts one and shakes hands.
    pub(crate) fn start(
        command: &[PathBuf],
        arguments: &[&Path],
        variables: &[(&str, &Path)],
    ) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(arguments.iter().map(|it| -> &OsStr { it.as_ref() }))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut server = Self { child, input, output, next_id: 0 };
        server.ask(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "counterfoil-test", "version": "1" },
            }),
        );
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        server
    }

    /// The bytes of the `result` of one call.
    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> String {
        let arguments: Value = serde_json::from_str(arguments).expect("arguments");
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The bytes of the `result` of one request.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> String {
        #[derive(serde::Deserialize)]
        struct Reply<'a> {
            id: Option<Value>,
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).expect("readable");
            assert!(length > 0, "the server ended before it answered {method}");
            let reply: Reply<'_> = serde_json::from_str(&line).expect(&line);
            if reply.id == Some(id.into()) {
                return reply.result.unwrap_or_else(|| panic!("{method}: {line}")).get().to_owned();
            }
        }
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("open");
        writeln!(input, "{message}").expect("the server reads");
        input.flush().expect("the server reads");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
