"""Starts real servers with fixed clocks behind a relay, and connects the official SDK to them.

    bench = Bench(folder)
    async with bench.serve(at_s=60) as session:
        state = await session.ask(issue("op"))
        reply = await session.answer(issue("op"), state, "a body")

A server is one process on the bench's ledger; the next one finds what the last one left. When its
session closes, its exit code and all that it said are checked.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
from typing import Any

import mcp
from mcp import types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from cases import replies, rows

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = pathlib.Path(
    os.environ.get("COUNTERFOIL_LAB_BIN") or ROOT / "target" / "debug" / "counterfoil-lab"
)

# The clocks of all cases begin here: 2027-01-15T08:00:00Z.
START_MS = 1_800_000_000_000
MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18")
# A bound that keeps a hung server from hanging the tests; nothing is asserted of time.
PATIENCE_S = 60
TITLE = "Export fails"
BODY = "It stops at row 65,536."


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

    def __init__(self, client):
        self.client = client
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

    def __init__(self, folder, *flags):
        self.folder = folder
        self.data = folder / "data"
        self.flags = flags
        self.served = 0

    @contextlib.asynccontextmanager
    async def serve(
        self,
        *flags,
        at_ms=0,
        principal="alice",
        revision=MODERN,
        user=accepts,
        edit=None,
        exit_code=0,
    ):
        """A server whose clock stands `at_ms` after the start, and a client that is connected.

        `user` answers forms; without one the client declares no elicitation. `edit` sees each
        message before it leaves, as something between client and server would.
        """
        self.served += 1
        place = self.folder / f"server-{self.served}"
        child = [BINARY, "child", "--data-dir", self.data, "--principal", principal]
        child += ["--clock-ms", START_MS + at_ms, *self.flags, *flags]
        relay = [BINARY, "relay", "--transcript", place.with_suffix(".jsonl"), "--", *child]
        transport = _transport(relay, place, _for_revision(revision, edit))
        mode = "auto" if revision == MODERN else "legacy"
        client = mcp.Client(
            transport, mode=mode, elicitation_callback=user, read_timeout_seconds=PATIENCE_S
        )
        session = Session(client)
        with _plain_failures():
            async with client:
                if client.protocol_version != revision:
                    raise AssertionError(f"{client.protocol_version} was agreed on, not {revision}")
                yield session
        session.frames = replies.read_transcript(place.with_suffix(".jsonl"))
        self._check_end(place, exit_code)
        if "--unguarded" not in self.flags:
            replies.check(session.frames, await declared_schemas(self.folder))

    def _check_end(self, place, exit_code):
        log = place.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
        code = place.with_suffix(".exit")
        ended = code.read_text(encoding="utf-8").strip() if code.exists() else "by a signal"
        if ended != str(exit_code):
            raise AssertionError(f"the server ended with {ended}, not {exit_code}; it said:\n{log}")
        if "panicked" in log:
            raise AssertionError(f"the server panicked:\n{log}")

    def facts(self):
        """The physical rows. Every writer must have left."""
        return rows.read(self.data / "ledger.db")


@contextlib.contextmanager
def _plain_failures():
    """The SDK's task groups wrap what a case raises; a lone exception is unwrapped again."""
    try:
        yield
    except Exception as error:
        while len(getattr(error, "exceptions", ())) == 1:
            error = error.exceptions[0]
        raise error from None


_schemas = {}


async def declared_schemas(folder):
    """The output schemas that the tools declare, asked for once."""
    if not _schemas:
        place = folder / "schemas"
        child = [BINARY, "child", "--data-dir", folder / "schemas-data", "--clock-ms", START_MS]
        async with mcp.Client(_transport(child, place)) as client:
            for tool in (await client.list_tools()).tools:
                _schemas[tool.name] = tool.output_schema
    return _schemas


@contextlib.asynccontextmanager
async def _transport(command, place, edit=None):
    # The SDK's transport keeps its process to itself: a shell notes how it ended.
    note = ["-c", '"$@"; echo "$?" >"$0"', place.with_suffix(".exit")]
    arguments = [str(word) for word in [*note, *command]]
    server = StdioServerParameters(command="/bin/sh", args=arguments)
    with open(place.with_suffix(".log"), "w", encoding="utf-8") as log:
        async with stdio_client(server, errlog=log) as (incoming, outgoing):
            yield incoming, _Edited(outgoing, edit) if edit else outgoing


def _for_revision(revision, edit):
    """The SDK offers its newest older revision alone: an older client offers another one."""
    if revision == LEGACY[0] or revision == MODERN:
        return edit

    def offer(message):
        if message.get("method") == "initialize":
            message["params"]["protocolVersion"] = revision
        if edit:
            edit(message)

    return offer


class _Edited:
    """A write stream that changes messages on their way out."""

    def __init__(self, stream, edit):
        self._stream = stream
        self._edit = edit

    async def send(self, item):
        message = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        self._edit(message)
        changed = types.jsonrpc_message_adapter.validate_python(message, by_name=False)
        await self._stream.send(dataclasses.replace(item, message=changed))

    async def aclose(self):
        await self._stream.aclose()

    async def __aenter__(self):
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error):
        return await self._stream.__aexit__(*error)
