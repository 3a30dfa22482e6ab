"""A client of raw lines on `counterfoil wrap`, with a recording relay on either side of it:

    client - relay - counterfoil wrap - relay - server

What crossed both relays is compared byte for byte when the session has ended.
"""

import json
import os
import pathlib
import subprocess
import threading
from typing import NamedTuple

from cases.raw_frames import find, masked, raw, without
from cases.settings import BINARY, MODERN, PATIENCE_S, PRODUCT

HANDSHAKE = ("initialize", "server/discover")
OURS_IN_META = {"io.counterfoil/operation", "io.modelcontextprotocol/serverInfo"}


class Kept(NamedTuple):
    """One frame that crossed a relay."""

    sender: str  # client | server
    text: str

    def is_request(self):
        return find(self.text, "method") is not None and find(self.text, "id") is not None

    def is_reply(self):
        return find(self.text, "method") is None

    def id(self):
        return raw(self.text, "id")

    def method(self):
        method = raw(self.text, "method")
        return method and json.loads(method)


class RawSession:
    """One client and what it started."""

    def __init__(self, folder, preset, command, environment=None):
        self.folder = pathlib.Path(folder)
        self.near = self.folder / "client-side.jsonl"
        self.far = self.folder / "server-side.jsonl"
        relay = [BINARY, "relay", "--transcript"]
        wrap = [PRODUCT, "wrap", "--data-dir", self.folder / "data"]
        wrap += ["--name", preset, "--preset", preset]
        line = [*relay, self.near, "--", *wrap, "--", *relay, self.far, "--", *command]
        with open(self.folder / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [str(word) for word in line],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | (environment or {}),
            )
        # A server that hangs ends the test and not the patience of whoever waits for it.
        self._watch = threading.Timer(4 * PATIENCE_S, self.process.kill)
        self._watch.start()
        # Lines as they came, and replies by the text of their ID.
        self.lines = []
        self.replies = {}

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        code = self.process.wait()
        self._watch.cancel()
        if code != 0:
            log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
            raise AssertionError(f"counterfoil wrap ended with {code}; it said:\n{log}")

    def send(self, line):
        """Writes one line."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, identity):
        """The reply to the request of this ID, as JSON text tells it."""
        while identity not in self.replies:
            line = self.process.stdout.readline()
            if not line:
                log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
                raise AssertionError(f"the end came before the reply to {identity}:\n{log}")
            text = line.decode().removesuffix("\n")
            self.lines.append(text)
            if Kept("server", text).is_reply():
                self.replies[raw(text, "id")] = text
        return self.replies[identity]

    def ask(self, line):
        """Sends one request and waits for its reply."""
        self.send(line)
        return self.wait(raw(line, "id"))

    def open(self, revision):
        """The handshake of a revision; from 2026-07-28 on it is a question that may be left out."""
        if revision == MODERN:
            params = {"_meta": modern_meta()}
            message = {"jsonrpc": "2.0", "id": "open", "method": "server/discover"}
            return self.ask(json.dumps(message | {"params": params}))
        params = {
            "protocolVersion": revision,
            "capabilities": {"elicitation": {}, "sampling": {}},
            "clientInfo": {"name": "counterfoil-lab", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}
        reply = self.ask(json.dumps(message))
        self.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return reply


def modern_meta():
    """What each request says of itself where there is no handshake."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "counterfoil-lab", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}},
    }


def read_kept(path):
    """The frames of a relay's transcript, of each sender, as the bytes they were."""
    frames = []
    # Not splitlines, which ends lines at characters that JSON may hold.
    for line in path.read_bytes().decode().split("\n")[:-1]:
        kept = json.loads(line)
        if "utf8" not in kept or not kept.get("whole", True):
            raise AssertionError(f"a frame is not UTF-8, or was cut short: {line}")
        frames.append(Kept(kept["from"], kept["utf8"]))
    return frames


class Compared(NamedTuple):
    """What came out of a comparison that found no fault."""

    # Requests of the client that reached the server, with replies that came back.
    passed: list
    # IDs of requests that were answered in between.
    answered: list
    # Methods of requests that the wrap sent of itself.
    own: list


def compare(near, far):
    """Holds the frames on the two sides of a wrap against each other. Only these may differ:
    request IDs and progress tokens, `_meta`, the arguments that are ours, and the results of the
    handshake and of `tools/list`."""
    far_requests = [frame for frame in far if frame.sender == "client" and frame.is_request()]
    far_replies = _replies(far)
    near_replies = _replies(near)
    passed, answered = [], []
    for frame in near:
        if frame.sender != "client" or not frame.is_request():
            continue
        sent = next((one for one in far_requests if _same_request(frame, one)), None)
        if sent is None:
            answered.append(json.loads(frame.id()))
            continue
        far_requests.remove(sent)
        _check_reply(frame.method(), near_replies[frame.id()], far_replies[sent.id()])
        passed.append(frame)
    for sender in ("client", "server"):
        _check_notifications(sender, near, far)
    return Compared(passed, answered, [frame.method() for frame in far_requests])


def _replies(frames):
    replies = {}
    for frame in frames:
        if frame.sender == "server" and frame.is_reply():
            if frame.id() in replies:
                raise AssertionError(f"two replies to request {frame.id()}")
            replies[frame.id()] = frame.text
    return replies


def _same_request(near, far):
    if near.method() != far.method():
        return False
    if near.method() != "tools/call":
        return bool(views([near.text], "params") & views([far.text], "params"))
    # A guarded call is told anew, with the same params but for what is ours.
    candidates = [raw(near.text, "params")]
    for name in ("operation_id", "repeat_of"):
        candidates = [cut for one in candidates for cut in without(one, "arguments", name)]
    return bool(views(candidates) & views([raw(far.text, "params")]))


def views(texts, *parent):
    """The texts with their ID masked: with `_meta` masked too, and without `_meta`, since one that
    held nothing but ours may be gone, and one may be there that was not."""
    found = set()
    for text in texts:
        text = masked(text, ("id",))
        found.add(masked(text, (*parent, "_meta")))
        found.update(without(text, *parent, "_meta"))
    return found


def _check_reply(method, near, far):
    if method in HANDSHAKE:
        return _check_parts(near, far, ("result",), {"capabilities", "supportedVersions", "_meta"})
    if method == "tools/list" and find(far, "result"):
        return _check_list(near, far)
    if not views([near], "result") & views([far], "result"):
        raise AssertionError(f"{method}: the server wrote\n{far}\nand the client read\n{near}")
    _check_meta(near, far)


def _check_meta(near, far):
    """What the server says in `_meta` stays; what is added is ours."""
    kept = json.loads(raw(far, "result", "_meta") or "{}")
    seen = json.loads(raw(near, "result", "_meta") or "{}")
    added = set(seen) - set(kept)
    if not added <= OURS_IN_META or any(seen.get(name) != kept[name] for name in kept):
        raise AssertionError(f"the server says {kept}, the client reads {seen}")


def _check_parts(near, far, path, free):
    """Each member of an object is the same text, but for the free ones; none is missing or new."""
    at = [json.loads(text) for text in (raw(near, *path), raw(far, *path))]
    names = [[name for name in one if name not in free] for one in at]
    if names[0] != names[1]:
        raise AssertionError(f"members {names[1]} became {names[0]}")
    for name in names[0]:
        if raw(near, *path, name) != raw(far, *path, name):
            raise AssertionError(f"{name}: {raw(far, *path, name)} became {raw(near, *path, name)}")


def _check_list(near, far):
    """Every tool of the server is there, in its order, as the server tells it: but for the two
    arguments that are ours. One tool more comes last."""
    _check_parts(near, far, ("result",), {"tools", "_meta"})
    seen, told = (json.loads(raw(text, "result", "tools")) for text in (near, far))
    names = [tool["name"] for tool in seen]
    if names != [tool["name"] for tool in told] + ["get_operation_status"]:
        raise AssertionError(f"the list has {names}")
    for ours, theirs in zip(seen, told):
        properties = ours["inputSchema"].get("properties", {})
        for name in ("operation_id", "repeat_of"):
            properties.pop(name, None)
        if not properties and "properties" not in theirs["inputSchema"]:
            ours["inputSchema"].pop("properties", None)
        if ours != theirs:
            raise AssertionError(f"{theirs} became {ours}")


def _check_notifications(sender, near, far):
    def of(frames):
        told = [f for f in frames if f.sender == sender and f.method() and not f.is_request()]
        tokens = ("params", "progressToken"), ("params", "requestId")
        return [views([masked(frame.text, *tokens)], "params") for frame in told]

    ours, theirs = of(near), of(far)
    if len(ours) != len(theirs) or not all(a & b for a, b in zip(ours, theirs)):
        raise AssertionError(f"notifications of the {sender}: {theirs} became {ours}")
