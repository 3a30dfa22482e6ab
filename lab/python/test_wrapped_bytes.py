"""Whether `counterfoil wrap` changes a byte that it need not, with the real servers of the presets.

The servers are where COUNTERFOIL_WRAPPED_NODE and COUNTERFOIL_WRAPPED_PYTHON say; ./test installs
them. COUNTERFOIL_LAB_KEEP=DIR keeps the transcripts, a folder a test.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from cases import wrapped_calls
from cases.raw_frames import find, raw, without
from cases.settings import MODERN
from cases.wrapped_session import Kept, RawSession, compare, modern_meta, read_kept, views

NODE = os.environ.get("COUNTERFOIL_WRAPPED_NODE")
PYTHON = os.environ.get("COUNTERFOIL_WRAPPED_PYTHON")
# IDs in several spellings of JSON; each is made unique by a number.
IDS = ("{}", '"{}"', '"\\u00e9-{}"', "-{}", '"{} 🦀\\n"', "9007199254740993{}")
# Members in another order, and blanks between them.
LINES = (
    '{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}',
    '{{ "params" : {params} , "method":"{method}",\t"id" :{id} , "jsonrpc" : "2.0" }}',
)
# The least that a promise of transparency is shown with.
LEAST = 50


class Comparison(unittest.TestCase):
    """The comparison itself."""

    FAR = (
        Kept("client", '{"id":1,"method":"tools/call","params":{"arguments":{"a":1.0}}}'),
        Kept("server", '{"method":"n","params":{"x":1}}'),
        Kept("server", '{"result":{"content":[1.0, "\\u00e9"]},"id":1}'),
    )
    NEAR = (
        Kept(
            "client",
            '{"id":"c","method":"tools/call",'
            '"params":{"arguments":{"operation_id":"o","a":1.0}}}',
        ),
        Kept("server", '{"method":"n","params":{"x":1}}'),
        Kept(
            "server",
            '{"result":{"content":[1.0, "\\u00e9"],'
            '"_meta":{"io.counterfoil/operation":{}}},"id":"c"}',
        ),
    )

    def test_what_may_differ_and_what_may_not(self):
        """Promise: one byte that is not among those that may differ is found."""
        self.assertEqual(len(compare(self.NEAR, self.FAR).passed), 1)
        changes = [
            ("1.0, ", "1.0,"),
            ("1.0, ", "1, "),
            ("\\u00e9", "é"),
            ('{"x":1}', '{"x":2}'),
            ('"io.counterfoil/operation"', '"else"'),
            ('{"result":', '{ "result":'),
        ]
        for old, new in changes:
            with self.subTest(old=old, new=new):
                call, *told = self.NEAR
                near = [call, *(it._replace(text=it.text.replace(old, new)) for it in told)]
                self.assertNotEqual(near, list(self.NEAR))
                with self.assertRaises(AssertionError):
                    compare(near, self.FAR)


@unittest.skipUnless(NODE and PYTHON, "the servers to wrap are installed by ./test")
class WrappedBytes(unittest.TestCase):
    """Each preset's server, with a relay on either side of the wrap."""

    maxDiff = None

    def setUp(self):
        kept = os.environ.get("COUNTERFOIL_LAB_KEEP")
        if kept:
            self.folder = pathlib.Path(kept) / self.id()
            self.folder.mkdir(parents=True)
        else:
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            self.folder = pathlib.Path(folder.name).resolve()
        self.root = self.folder / "root"
        self.root.mkdir()

    def check(self, preset, command, calls, revision, environment=None):
        """Makes the calls one after the other, then those that change nothing all at once."""
        if revision == MODERN:
            calls = [(method, with_meta(params)) for method, params in calls]
        lines = [line_of(number, *call) for number, call in enumerate(calls)]
        anonymous = [call for call in calls if operation_of(call[1]) is None]
        at_once = [line_of(1000 + n, *call) for n, call in enumerate(anonymous[-LEAST // 3 :])]
        with RawSession(self.folder, preset, command, environment) as session:
            session.open(revision)
            for line in lines:
                session.ask(line)
            for line in at_once:
                session.send(line)
            for line in at_once:
                session.wait(raw(line, "id"))
        near, far = read_kept(session.near), read_kept(session.far)
        compared = compare(near, far)
        self.assertEqual(session.lines, [frame.text for frame in near if frame.sender == "server"])
        self.assertEqual(set(compared.own) - {"tools/list"}, set(), "nothing is sent unasked")
        self.assertGreaterEqual(len(compared.passed), LEAST)
        again = self.check_replays(session, lines)
        self.assertEqual(compared.answered, again, "the server sees every other call")

    def check_replays(self, session, lines):
        """What was asked again is answered with the same bytes; gives the IDs of those requests."""
        first, again = {}, []
        for line in lines:
            operation, identity = operation_of(raw(line, "params")), raw(line, "id")
            if operation in first:
                replies = [session.replies[it] for it in (first[operation], identity)]
                seen = [views([raw(reply, "result")]) for reply in replies]
                self.assertTrue(seen[0] & seen[1], f"{operation} is replayed with other bytes")
                again.append(json.loads(identity))
            elif operation is not None:
                first[operation] = identity
        return again

    def test_filesystem(self):
        """Promise: a client cannot tell a wrapped filesystem server by its bytes."""
        script = f"{NODE}/@modelcontextprotocol/server-filesystem/dist/index.js"
        calls = wrapped_calls.filesystem(str(self.root))
        self.check("filesystem", ["node", script, self.root], calls, "2025-11-25")

    def test_memory(self):
        """Promise: a client cannot tell a wrapped memory server by its bytes."""
        script = f"{NODE}/@modelcontextprotocol/server-memory/dist/index.js"
        place = {"MEMORY_FILE_PATH": str(self.root / "memory.jsonl")}
        self.check("memory", ["node", script], wrapped_calls.memory(self.root), "2025-06-18", place)

    def test_sqlite(self):
        """Promise: a client cannot tell a wrapped sqlite server by its bytes."""
        command = [f"{PYTHON}/sqlite/bin/mcp-server-sqlite", "--db-path", self.root / "data.db"]
        self.check("sqlite", command, wrapped_calls.sqlite(self.root), "2025-11-25")

    def test_git(self):
        """Promise: a client cannot tell a wrapped git server by its bytes."""
        self.check_git("2025-06-18")

    def test_git_without_a_handshake(self):
        """Promise: nor can a client of the newest revision."""
        self.check_git(MODERN)

    def check_git(self, revision):
        git = ["git", "-C", str(self.root)]
        (self.root / "a.txt").write_text("a\n", encoding="utf-8")
        for words in (
            ["init", "-q", "-b", "main"],
            ["config", "user.name", "n"],
            ["config", "user.email", "n@example.test"],
            ["add", "."],
            ["commit", "-q", "-m", "first"],
        ):
            subprocess.run([*git, *words], check=True)
        for name, text in wrapped_calls.TEXTS.items():
            (self.root / f"{name} é.txt").write_bytes(f"{name}\n{text[:5000]}".encode())
        command = [f"{PYTHON}/git/bin/mcp-server-git", "--repository", self.root]
        self.check("git", command, wrapped_calls.git(str(self.root)), revision)


def line_of(number, method, params):
    """One request, in one of the spellings."""
    identity = IDS[number % len(IDS)].format(number)
    return LINES[number % len(LINES)].format(id=identity, method=method, params=params)


def with_meta(params):
    """Params that say of themselves what a request of 2026-07-28 has to."""
    meta = json.dumps(modern_meta(), ensure_ascii=False)
    own = raw(params, "_meta")
    if own:
        meta = f"{meta[:-1]},{own[1:]}"
        params = without(params, "_meta")[0]
    comma = "," if json.loads(params) else ""
    return f'{{"_meta":{meta}{comma}{params.lstrip()[1:]}'


def operation_of(params):
    """The operation that a call names, or None."""
    places = ("arguments", "operation_id"), ("_meta", "io.counterfoil/operationId")
    named = [raw(params, *place) for place in places if find(params, place[0])]
    return next((json.loads(name) for name in named if name), None)
