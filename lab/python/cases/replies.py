"""Judges what a server said, from the bytes that the relay kept, not from what an SDK made of it.

Every reply to a tool call is held against the output schema that the tool declared, and against
what the server promises of each reply; a case then only looks at what is special to it.
"""

import json
import re
from typing import Any, NamedTuple

import jsonschema

OPERATION = "io.counterfoil/operation"
OPERATION_ID = "io.counterfoil/operationId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
ASKED = "input_required"
# Codes that the specification leaves to implementations: no reply of ours may carry one.
IMPLEMENTATION_CODES = range(-32019, -31999)


class Frame(NamedTuple):
    """One frame as it crossed the relay."""

    sender: str  # client | server
    text: str
    message: dict[str, Any]


class Exchange(NamedTuple):
    """A client's request and the one reply to it; None if none came."""

    request: dict[str, Any]
    reply: Frame | None

    def words(self):
        """The reply's bytes without its JSON-RPC ID, to compare replies byte for byte."""
        if self.reply is None:
            raise AssertionError(f"no reply came to {self.request}")
        return re.sub(r'"id":[^,]+,', "", self.reply.text, count=1)


def read_transcript(path):
    """The frames of a relay's transcript, in the order in which they crossed it."""
    return _frames(path.read_text(encoding="utf-8"))


def kept_so_far(path):
    """The same while the relay still writes: a line that has no end yet does not count."""
    return _frames(path.read_text(encoding="utf-8").rpartition("\n")[0])


def _frames(transcript):
    frames = []
    for line in transcript.splitlines():
        kept = json.loads(line)
        if "utf8" not in kept or not kept.get("whole", True):
            raise AssertionError(f"a frame is not UTF-8, or was cut short: {line}")
        frames.append(Frame(kept["from"], kept["utf8"], json.loads(kept["utf8"])))
    return frames


def exchanges(frames, method="tools/call"):
    """The client's requests of one method, each with its reply, in the order they were sent."""
    replies = {}
    for frame in frames:
        if frame.sender == "server" and "method" not in frame.message:
            identity = json.dumps(frame.message.get("id"))
            if identity in replies:
                raise AssertionError(f"two replies to request {identity}")
            replies[identity] = frame
    requests = [f.message for f in frames if f.sender == "client"]
    return [
        Exchange(request, replies.get(json.dumps(request["id"])))
        for request in requests
        if request.get("method") == method
    ]


def asked_for(frames):
    """What the client sent that wants an answer: its methods, and its tools' names."""
    sent = (f.message for f in frames if f.sender == "client" and "id" in f.message)
    return [m["params"].get("name", m["method"]) for m in sent if "method" in m]


def check(frames, schemas):
    """Holds every reply to a tool call against what the server declares and promises."""
    for exchange in exchanges(frames):
        if exchange.reply is None:
            continue
        message = exchange.reply.message
        if "error" in message:
            _check_error(message["error"])
        else:
            _check_result(exchange.request["params"], message["result"], schemas)


def _check_error(error):
    _ensure(error["code"] not in IMPLEMENTATION_CODES, f"a code that is not ours: {error}")
    _ensure(-32768 <= error["code"] <= -32000, f"not a standard code: {error}")


def _check_result(params, result, schemas):
    meta = result.get("_meta", {})
    _ensure(meta.get(SERVER_INFO, {}).get("name") == "counterfoil", f"no server info in {meta}")
    operation = meta.get(OPERATION)
    identity = _identity(params)
    if identity is not None:
        _ensure(operation is not None, f"the reply names no operation: {result}")
        _ensure(set(operation) == {"operationId", "state", "replayed", "retry"}, f"{operation}")
        _ensure(operation["operationId"] == identity, f"another operation: {operation}")
    if result.get("resultType") == ASKED:
        _check_question(result)
        return
    body = result["structuredContent"]
    jsonschema.Draft202012Validator(schemas[params["name"]]).validate(body)
    texts = [block["text"] for block in result["content"] if block["type"] == "text"]
    _ensure(texts and json.loads(texts[0]) == body, f"the text does not repeat the JSON: {texts}")
    _ensure(result.get("isError", False) is ("error" in body), f"isError and body differ: {result}")
    if operation is not None:
        said = body.get("error", body)
        for name in set(operation) & set(said):
            _ensure(operation[name] == said[name], f"_meta and body differ in {name}: {result}")


def _identity(params):
    """The operation that a call is about; None if it names none, or two."""
    given = {(params.get("arguments") or {}).get("operation_id")}
    given |= {(params.get("_meta") or {}).get(OPERATION_ID)}
    given -= {None}
    return given.pop() if len(given) == 1 else None


def _check_question(result):
    _ensure(isinstance(result["requestState"], str), f"no sealed state: {result}")
    for question in result["inputRequests"].values():
        schema = question["params"]["requestedSchema"]
        kinds = {field["type"] for field in schema["properties"].values()}
        _ensure(question["method"] == "elicitation/create", f"not a form: {question}")
        _ensure(kinds <= {"string", "number", "integer", "boolean"}, f"not flat: {schema}")


def _ensure(holds, reason):
    if not holds:
        raise AssertionError(reason)
