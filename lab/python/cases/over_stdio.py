"""The stdio transport: the SDK's own, which starts the server, behind a relay that keeps its bytes.

A transport is how a bench reaches a server. It has a name and

    async with transport.start(server) as running:
        async with running.join(principal, transcript, edit) as streams: ...

`streams` is what the SDK's client connects by. When it has left, `running.end()` gives the server's
exit code, as text, and its log. `edit` sees each message before it leaves and may change it.
`transport.broke(error)` says whether an error is what becomes of a client whose server died.
"""

import contextlib

from mcp.client.stdio import StdioServerParameters, stdio_client

from cases.edits import edited
from cases.settings import BINARY


class Stdio:
    """One client to a server, which lives as long as the client."""

    name = "stdio"

    @contextlib.asynccontextmanager
    async def start(self, server):
        """Nothing starts yet: the client does it."""
        yield _Running(server)

    def broke(self, _error):
        """The SDK takes the end of a server as the end of its input."""
        return False


class _Running:
    def __init__(self, server):
        self._server = server

    @contextlib.asynccontextmanager
    async def join(self, principal, transcript, edit=None):
        """The streams of the one client; its principal is the server's."""
        relay = [BINARY, "relay", "--transcript", transcript, "--"]
        command = [*relay, *self._server.command("--principal", principal)]
        yield streams(command, self._server.place, edit)

    async def end(self):
        """How the server ended, and what it said."""
        place = self._server.place
        code, log = place.with_suffix(".exit"), place.with_suffix(".log")
        ended = code.read_text(encoding="utf-8").strip() if code.exists() else "by a signal"
        return ended, log.read_text(encoding="utf-8", errors="replace")


@contextlib.asynccontextmanager
async def streams(command, place, edit=None):
    """The SDK's transport over a command that it starts."""
    # The SDK's transport keeps its process to itself: a shell notes how it ended.
    note = ["-c", '"$@"; echo "$?" >"$0"', place.with_suffix(".exit")]
    arguments = [str(word) for word in [*note, *command]]
    server = StdioServerParameters(command="/bin/sh", args=arguments)
    with open(place.with_suffix(".log"), "w", encoding="utf-8") as log:
        async with stdio_client(server, errlog=log) as (incoming, outgoing):
            yield incoming, edited(outgoing, edit)
