"""The official SDK's client on a small server behind `counterfoil wrap`."""

import contextlib
import os
import signal
import sys

import mcp
from mcp import types
from mcp.client.stdio import StdioServerParameters, stdio_client

from cases.edits import edited, for_revision
from cases.settings import MODERN, PATIENCE_S, PRODUCT, ROOT

SERVER = ROOT / "lab" / "wrapped" / "notes_server.py"
PRESET = SERVER.with_name("notes.toml")


class Notes:
    """The notes of one folder, a ledger, and the wraps that run on both, one after the other."""

    def __init__(self, folder, revision):
        self.folder = folder
        self.revision = revision
        self.pid = folder / "wrap.pid"
        # What the user and the model were asked, in order.
        self.asked = []

    def tell(self, name):
        """Leaves a file that tells the server what to do."""
        (self.folder / name).touch()

    def untell(self, name):
        """Takes it away."""
        (self.folder / name).unlink()

    def kept(self):
        """The notes, a line each."""
        file = self.folder / "notes.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def kill(self):
        """Kills the wrap that was started last."""
        os.kill(int(self.pid.read_text(encoding="utf-8")), signal.SIGKILL)

    @contextlib.asynccontextmanager
    async def client(self):
        """A client that is connected."""
        data, server = self.folder / "data", [sys.executable, SERVER, self.folder]
        wrap = [PRODUCT, "wrap", "--data-dir", data, "--name", "notes", "--preset", PRESET]
        # The SDK keeps its process to itself: a shell notes who it is.
        line = ["-c", 'echo $$ >"$0"; exec "$@"', self.pid, *wrap, "--", *server]
        start = StdioServerParameters(command="/bin/sh", args=[str(word) for word in line])
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            client = mcp.Client(
                self._streams(start, log),
                mode="auto" if self.revision == MODERN else "legacy",
                elicitation_callback=self._user,
                sampling_callback=self._model,
                read_timeout_seconds=PATIENCE_S,
            )
            async with client:
                if client.protocol_version != self.revision:
                    raise AssertionError(f"{client.protocol_version}, not {self.revision}")
                yield client

    @contextlib.asynccontextmanager
    async def _streams(self, start, log):
        async with stdio_client(start, errlog=log) as (incoming, outgoing):
            yield incoming, edited(outgoing, for_revision(self.revision, None))

    async def _user(self, _context, params):
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "ja é 🦀"})

    async def _model(self, _context, params):
        self.asked.append(params.messages[0].content.text)
        content = types.TextContent(type="text", text="tokens é")
        return types.CreateMessageResult(role="assistant", content=content, model="m")


def said(result):
    """The texts of a result."""
    return [block.text for block in result.content]


def stands(result):
    """How the operation stands that a result is of."""
    return result.meta["io.counterfoil/operation"]
