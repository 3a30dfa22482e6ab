"""Starts real servers with fixed clocks over some transport, and connects the official SDK to them.

    bench = Bench(folder, transport)
    async with bench.serve(at_ms=60_000) as session:
        state = await session.ask(issue(OP))
        reply = await session.answer(issue(OP), state, "a body")

A server is one process on the bench's ledger; the next one finds what the last one left. When its
session closes, its exit code and all that it said are checked.
"""

import asyncio
import contextlib
import dataclasses
import json
from typing import Any

import mcp
from mcp import types
from mcp.shared.exceptions import MCPError

from cases import over_stdio, replies, rows
from cases.edits import for_revision
from cases.settings import MODERN, PATIENCE_S, START_MS, Server

# An operation, where a test has but one. Over HTTP an ID has to be hard to guess.
OP = "the-operation-id"
TITLE = "Export fails"
BODY = "It stops at row 65,536."
# What every bearer token begins with.
TOKEN_PREFIX = "cf_"


def issue(operation_id, **more):
    """The arguments of create_issue."""
    return {"operation_id": operation_id, "title": TITLE, **more}


def accepted(body=BODY):
    """What a user answers."""
    return types.ElicitResult(action="accept", content={"body": body})


async def accepts(_context, _params):
    """A user who fills every form with the same text."""
    return accepted()


@dataclasses.dataclass
class Reply:
    """What came back from one call; `kind` is lost | error | asked | result | refused."""

    kind: str
    body: dict[str, Any] = dataclasses.field(default_factory=dict)
    operation: dict[str, Any] | None = None
    state: str | None = None
    questions: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_error(cls, error):
        """Of a protocol error. The SDK gives a closed connection a code of its own."""
        if error.error.code == types.CONNECTION_CLOSED and error.error.data is None:
            return cls("lost")
        return cls("error", error.error.model_dump(mode="json"))

    @classmethod
    def of_result(cls, result):
        """Of a result, as the SDK read it."""
        operation = (result.meta or {}).get(replies.OPERATION)
        if isinstance(result, types.InputRequiredResult):
            questions = {k: q.params for k, q in (result.input_requests or {}).items()}
            return cls("asked", {}, operation, result.request_state, questions)
        kind = "refused" if result.is_error else "result"
        return cls(kind, result.structured_content, operation)


class User:
    """Answers the forms that a client shows, in order; the last answer repeats."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.forms = []

    async def __call__(self, _context, params):
        self.forms.append(params)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Session:
    """The SDK's client on one server process."""

    def __init__(self, client, transcript):
        self.client = client
        # The relay's file.
        self.transcript = transcript
        # Everything that crossed the relay; read when the session has closed.
        self.frames = []

    async def call(self, name, arguments, *, state=None, answers=None, meta=None):
        """One call and nothing more: no round is driven, nothing is sent again."""
        try:
            result = await self.client.session.call_tool(
                name,
                arguments,
                request_state=state,
                input_responses=answers,
                meta=meta,
                allow_input_required=True,
            )
        except MCPError as error:
            return Reply.of_error(error)
        return Reply.of_result(result)

    async def create(self, arguments, **more):
        """create_issue, one leg."""
        return await self.call("create_issue", arguments, **more)

    async def ask(self, arguments):
        """Round one: gives the sealed state."""
        reply = await self.create(arguments)
        if reply.kind != "asked":
            raise AssertionError(f"the server did not ask: {reply}")
        return reply.state

    async def answer(self, arguments, state, body=BODY):
        """The continuation."""
        return await self.create(arguments, state=state, answers={"body": accepted(body)})

    async def status(self, operation_id):
        """The observation. `call_tool` would first list the tools, to learn their schemas; the
        plain request sends nothing else."""
        params = types.CallToolRequestParams(
            name="get_operation_status", arguments={"operation_id": operation_id}
        )
        request = types.CallToolRequest(params=params)
        result = await self.client.session.send_request(request, types.CallToolResult)
        return result.structured_content

    def sent(self):
        """What the client sent that wants an answer: methods, and names of tools."""
        return replies.asked_for(self.frames)

    def calls(self):
        """The tool calls with their replies."""
        return replies.exchanges(self.frames)


class Bench:
    """One data directory, and the servers that run on it one after the other or together."""

    def __init__(self, folder, transport, *flags):
        self.folder = folder
        self.transport = transport
        self.data = folder / "data"
        self.flags = flags
        self.served = 0

    @contextlib.asynccontextmanager
    async def serve(self, *flags, at_ms=0, principal="alice", exit_code=0, **options):
        """A server whose clock stands `at_ms` after the start, and a client that is connected.

        `options` are those of `_client`.
        """
        async with self._server(flags, at_ms) as (running, place):
            number = self.served
            joined = self._client(running, place, principal, dies=exit_code != 0, **options)
            async with joined as session:
                yield session
            ended, log = await running.end()
            self._note(number, principal, START_MS + at_ms, flags, session.transcript, ended)
            _check_end(ended, log, exit_code)
        await self._check_replies(session)

    @contextlib.asynccontextmanager
    async def share(self, *principals):
        """One server, and for each principal a client: gives the server and the clients."""
        async with self._server((), 0) as (running, place):
            async with contextlib.AsyncExitStack() as stack:
                sessions = []
                for principal in principals:
                    own = place.with_name(f"{place.name}-{principal}")
                    joined = self._client(running, own, principal)
                    sessions.append(await stack.enter_async_context(joined))
                yield running, *sessions
            _check_end(*await running.end(), 0)
        for session in sessions:
            await self._check_replies(session)

    @contextlib.asynccontextmanager
    async def _server(self, flags, at_ms):
        self.served += 1
        place = self.folder / f"server-{self.served}"
        server = Server(place, self.data, START_MS + at_ms, (*self.flags, *flags))
        async with self.transport.start(server) as running:
            yield running, place

    @contextlib.asynccontextmanager
    async def _client(
        self, running, place, principal, *, revision=MODERN, user=accepts, edit=None, dies=False
    ):
        """`user` answers forms; without one the client declares no elicitation. `edit` sees each
        message before it leaves, as something between client and server would.
        """
        transcript = place.with_suffix(".jsonl")
        async with running.join(principal, transcript, for_revision(revision, edit)) as streams:
            mode = "auto" if revision == MODERN else "legacy"
            client = mcp.Client(
                streams, mode=mode, elicitation_callback=user, read_timeout_seconds=PATIENCE_S
            )
            session = Session(client, transcript)
            may_break = self.transport.broke if dies else lambda _error: False
            async with _connected(client, may_break):
                if client.protocol_version != revision:
                    raise AssertionError(f"{client.protocol_version} was agreed on, not {revision}")
                yield session
        session.frames = replies.read_transcript(transcript)

    async def _check_replies(self, session):
        if "--unguarded" not in self.flags:
            replies.check(session.frames, await declared_schemas(self.folder))

    def _note(self, number, principal, clock_ms, flags, transcript, ended):
        """Keeps what a server was told and how it ended, for those who judge by files alone."""
        run = {"number": number, "principal": principal, "clock_ms": clock_ms}
        run |= {"flags": [str(flag) for flag in (*self.flags, *flags)]}
        run |= {"transcript": str(transcript.relative_to(self.folder)), "exit": ended}
        with open(self.folder / "servers.jsonl", "a", encoding="utf-8") as file:
            print(json.dumps(run), file=file)

    def facts(self):
        """The physical rows. Every writer must have left."""
        return rows.read(self.data / "ledger.db")


def _check_end(ended, log, exit_code):
    if ended != str(exit_code):
        raise AssertionError(f"the server ended with {ended}, not {exit_code}; it said:\n{log}")
    if "panicked" in log:
        raise AssertionError(f"the server panicked:\n{log}")
    if TOKEN_PREFIX in log:
        raise AssertionError("a token is in the log")


@contextlib.asynccontextmanager
async def _connected(client, may_break):
    """Keeps a client connected, in a task of its own: a transport that breaks ends the task that
    it runs in, and whoever waits for a reply has to learn of it."""
    connected, leave = asyncio.Event(), asyncio.Event()

    async def stay():
        async with client:
            connected.set()
            await leave.wait()

    task = asyncio.create_task(stay())
    task.add_done_callback(lambda _task: connected.set())
    await connected.wait()
    if task.done():
        raise _plain(task.exception())
    try:
        yield
    finally:
        leave.set()
        await asyncio.wait({task})
    error = task.exception()
    if error is not None and not may_break(error):
        raise _plain(error)


def _plain(error):
    """The SDK's task groups wrap what breaks; a lone exception is unwrapped again."""
    while len(getattr(error, "exceptions", ())) == 1:
        error = error.exceptions[0]
    return error


_schemas = {}


async def declared_schemas(folder):
    """The output schemas that the tools declare, asked for once."""
    if not _schemas:
        server = Server(folder / "schemas", folder / "schemas-data", START_MS, ())
        async with mcp.Client(over_stdio.streams(server.command(), server.place)) as client:
            for tool in (await client.list_tools()).tools:
                _schemas[tool.name] = tool.output_schema
    return _schemas
