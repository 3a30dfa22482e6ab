"""MCP Inspector's command line works through `counterfoil wrap`.

COUNTERFOIL_INSPECTOR is where ./test installed it (lab/inspector), with a Node.js of its own.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cases.settings import PATIENCE_S, PRODUCT
from cases.wrapped_notes import PRESET, SERVER

PLACE = os.environ.get("COUNTERFOIL_INSPECTOR")
SCRIPT = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@unittest.skipUnless(PLACE, "the Inspector is installed by ./test")
class Inspector(unittest.TestCase):
    """One small server, asked by one command at a time."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ask(self, *arguments):
        """What one command prints."""
        node = next(pathlib.Path(PLACE).glob("node_modules/node-*/bin/node"))
        data = self.folder / "data"
        wrap = [PRODUCT, "wrap", "--data-dir", data, "--name", "notes", "--preset", PRESET]
        servers = {"notes": {"command": str(wrap[0]), "args": [str(word) for word in wrap[1:]]}}
        servers["notes"]["args"] += ["--", sys.executable, str(SERVER), str(self.folder)]
        config = self.folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        command = [node, pathlib.Path(PLACE) / SCRIPT, "--cli", "--config", config]
        done = subprocess.run(
            [*map(str, command), "--server", "notes", *arguments],
            capture_output=True,
            check=False,
            encoding="utf-8",
            # Whatever it keeps of itself, it keeps it here.
            env=os.environ | {"HOME": str(self.folder), "NO_COLOR": "1"},
            timeout=2 * PATIENCE_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_tools(self):
        """Promise: tools are listed, a call is made once under its ID, and its status is told."""
        tools = {tool["name"]: tool for tool in self.ask("--method", "tools/list")["tools"]}
        self.assertIn("operation_id", tools["add_note"]["inputSchema"]["properties"])
        self.assertIn("get_operation_status", tools)
        call = ["--method", "tools/call", "--tool-name", "add_note"]
        call += ["--tool-arg", "text=grün 🦀", "--tool-arg", "operation_id=op-1"]
        for replayed in (False, True):
            result = self.ask(*call)
            self.assertEqual(result["content"], [{"type": "text", "text": "added grün 🦀"}])
            operation = result["_meta"]["io.counterfoil/operation"]
            self.assertEqual(operation["operationId"], "op-1")
            self.assertEqual((operation["state"], operation["replayed"]), ("applied", replayed))
        status = ["--method", "tools/call", "--tool-name", "get_operation_status"]
        seen = self.ask(*status, "--tool-arg", "operation_id=op-1")
        self.assertEqual(seen["structuredContent"]["state"], "applied")
        kept = (self.folder / "notes.txt").read_text(encoding="utf-8")
        self.assertEqual(kept, "grün 🦀\n")
