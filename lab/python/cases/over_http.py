"""The Streamable HTTP transport: the SDK's own, to a server that any number of clients may reach.

Each client has its bearer token and a relay of its own, which keeps its messages and no header. The
tokens are made by the product's own command, from whose stdout they come: no file and no command
line holds one.
"""

import asyncio
import contextlib
import functools
import json
import subprocess

import httpx2
from mcp.client.streamable_http import streamable_http_client

from cases.edits import edited
from cases.settings import BINARY, PATIENCE_S, PRODUCT

READY = "ready "


class Http:
    """Many clients to a server, which ends when it is let go of."""

    name = "http"

    @contextlib.asynccontextmanager
    async def start(self, server):
        """A server that listens on a port of its own."""
        async with _process(server.command("--http", "127.0.0.1:0")) as child:
            yield _Running(server, child)

    def broke(self, error):
        """The SDK's transport ends by the error of a connection that broke."""
        inner = getattr(error, "exceptions", None)
        if inner:
            return all(self.broke(one) for one in inner)
        return isinstance(error, httpx2.TransportError)


class _Running:
    def __init__(self, server, child):
        self._server = server
        self._child = child
        # Where it can be reached with nothing in between.
        self.url = f"http://{child.address}"

    @contextlib.asynccontextmanager
    async def join(self, principal, transcript, edit=None, *, authorization=...):
        """The streams of one more client, which sends its principal's token, or another header."""
        if authorization is ...:
            authorization = f"Bearer {make_token(self._server.data, principal)['token']}"
        to = ["--to", self._child.address, "--transcript", transcript]
        async with _process([str(word) for word in (BINARY, "http-relay", *to)]) as relay:
            yield _streams(f"http://{relay.address}/mcp", authorization, edit)
            code, log = await relay.end()
            if code != "0":
                raise AssertionError(f"the relay ended with {code}: {log}")

    async def end(self):
        """Lets the server go; how it ended, and what it said."""
        return await self._child.end()


@functools.cache
def make_token(data, principal):
    """ID and text of a principal's token for this data directory, made once."""
    return new_token(data, principal)


def new_token(data, principal):
    """ID and text of one more token."""
    return json.loads(token_command(data, "create", "--principal", principal, "--json"))


def token_command(data, *words):
    """Runs `counterfoil token`, and gives what it printed."""
    command = [PRODUCT, "token", *words, "--data-dir", data]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"no token: {done.stderr}")
    return done.stdout


@contextlib.asynccontextmanager
async def _streams(url, authorization, edit):
    headers = {"Authorization": authorization} if authorization is not None else {}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http_client:
        async with streamable_http_client(url, http_client=http_client) as (incoming, outgoing):
            yield incoming, edited(outgoing, edit)


@contextlib.asynccontextmanager
async def _process(command):
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stderr=pipe)
    try:
        yield await asyncio.wait_for(_Process.when_ready(process), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class _Process:
    """A program of the lab that listens, until its stdin is closed."""

    def __init__(self, process):
        self._process = process
        self._log = []
        self.address = None

    @classmethod
    async def when_ready(cls, process):
        """Waits until the program says where it listens."""
        self = cls(process)
        while line := (await process.stderr.readline()).decode():
            if line.startswith(READY):
                self.address = line.removeprefix(READY).strip()
                # From here on somebody has to read, or a talkative server would wait.
                self._rest = asyncio.create_task(process.stderr.read())
                return self
            self._log.append(line)
        raise AssertionError(f"it ended before it was ready: {''.join(self._log)}")

    async def end(self):
        """Lets it go; its exit code as text, and what it said."""
        self._process.stdin.close()
        rest = await asyncio.wait_for(self._rest, PATIENCE_S)
        self._log.append(rest.decode(errors="replace"))
        return str(await self._process.wait()), "".join(self._log)
