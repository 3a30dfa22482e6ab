"""A small MCP server that knows nothing of Counterfoil, for tests to wrap.

    notes_server.py FOLDER

It keeps notes, a line each, in FOLDER/notes.txt. A file FOLDER/die makes it end after its next
write and before it answers; FOLDER/silent keeps it from answering a write at all. It speaks the
revisions with a handshake and 2026-07-28, and uses the standard library alone.
"""

import json
import os
import pathlib
import sys

HANDSHAKES = ("2025-11-25", "2025-06-18")
MODERN = "2026-07-28"
VERSION_IN_META = "io.modelcontextprotocol/protocolVersion"
INFO = {"name": "notes", "version": "1"}
TOLD = {"capabilities": {"tools": {}, "resources": {}, "prompts": {}}, "serverInfo": INFO}
TEXT = {"type": "string"}


def tool(name, **properties):
    """A tool as the list tells it."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"{name} of notes", "inputSchema": schema}


TOOLS = [
    tool("add_note", text=TEXT),
    tool("list_notes"),
    tool("count", to={"type": "integer"}),
    tool("ask_user", question=TEXT),
    tool("ask_model", prompt=TEXT),
]
RESOURCE = {"uri": "notes://all", "name": "all notes", "mimeType": "text/plain"}
PROMPT = {"name": "summary", "arguments": [{"name": "style"}]}


class Server:
    """One session over stdio."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.notes = self.folder / "notes.txt"
        self.asked = 0
        # What our own open requests are about: the call to answer.
        self.open = {}

    def serve(self):
        """Answers until its input ends."""
        for line in sys.stdin.buffer:
            self.take(json.loads(line))

    def take(self, message):
        """Acts on one message."""
        if "method" not in message:
            call, is_modern = self.open.pop(message["id"])
            self.reply(call, said(message["result"]), is_modern)
        elif "id" in message:
            params = message.get("params", {})
            is_modern = VERSION_IN_META in params.get("_meta", {})
            self.answer(message["id"], message["method"], params, is_modern)

    def answer(self, request, method, params, is_modern):
        """Answers one request."""
        if method == "tools/call":
            return self.call(request, params, is_modern)
        lists = {"ttlMs": 0, "cacheScope": "private"} if is_modern else {}
        results = {
            "server/discover": {**lists, "supportedVersions": [MODERN], **TOLD},
            "ping": {},
            "tools/list": {"tools": TOOLS, **lists},
            "resources/list": {"resources": [RESOURCE], **lists},
            "prompts/list": {"prompts": [PROMPT], **lists},
        }
        if method == "initialize":
            asked = params["protocolVersion"]
            version = asked if asked in HANDSHAKES else HANDSHAKES[0]
            result = {"protocolVersion": version, **TOLD}
        elif method == "resources/read" and params["uri"] == RESOURCE["uri"]:
            content = {"uri": RESOURCE["uri"], "mimeType": "text/plain", "text": self.text()}
            result = {"contents": [content], **lists}
        elif method == "prompts/get" and params["name"] == PROMPT["name"]:
            words = f"Sum up, {params['arguments']['style']}:\n{self.text()}"
            message = {"role": "user", "content": {"type": "text", "text": words}}
            result = {"messages": [message]}
        elif method in results:
            result = results[method]
        else:
            error = {"code": -32601, "message": f"there is no {method} é"}
            return self.send({"id": request, "error": error})
        return self.reply(request, result, is_modern)

    def call(self, request, params, is_modern):
        """Calls one tool."""
        name, arguments = params["name"], params.get("arguments", {})
        if name == "add_note":
            return self.add(request, arguments["text"], is_modern)
        if name == "list_notes":
            return self.reply(request, said_text(self.text()), is_modern)
        if name == "count":
            token = params.get("_meta", {}).get("progressToken")
            for step in range(1, arguments["to"] + 1):
                progress = {"progressToken": token, "progress": step, "total": arguments["to"]}
                if token is not None:
                    self.send({"method": "notifications/progress", "params": progress})
            return self.reply(request, said_text(str(arguments["to"])), is_modern)
        if name in ("ask_user", "ask_model"):
            return self.ask(request, question(name, arguments), params, is_modern)
        return self.reply(request, {**said_text(f"no tool {name}"), "isError": True}, is_modern)

    def add(self, request, text, is_modern):
        """Adds a note, and then answers unless it is told not to."""
        with open(self.notes, "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        dies = self.folder / "die"
        if dies.exists():
            dies.unlink()
            os._exit(9)
        if not (self.folder / "silent").exists():
            self.reply(request, said_text(f"added {text}"), is_modern)

    def ask(self, request, asked, params, is_modern):
        """Asks the client in the way of its revision."""
        if not is_modern:
            self.asked += 1
            identity = f"ask-{self.asked}"
            self.open[identity] = (request, is_modern)
            self.send({"id": identity, **asked})
        elif "inputResponses" in params:
            if params.get("requestState") != "state of notes":
                raise AssertionError(f"another state came back: {params}")
            self.reply(request, said(params["inputResponses"]["it"]), is_modern)
        else:
            result = {"inputRequests": {"it": asked}, "requestState": "state of notes"}
            self.send({"id": request, "result": {"resultType": "input_required", **result}})

    def text(self):
        """All notes."""
        return self.notes.read_text(encoding="utf-8") if self.notes.exists() else ""

    def reply(self, request, result, is_modern):
        """Sends a result."""
        kind = {"resultType": "complete"} if is_modern else {}
        self.send({"id": request, "result": {**kind, **result}})

    def send(self, message):
        """Writes one line."""
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()


def question(name, arguments):
    """What a tool asks of the client."""
    if name == "ask_user":
        schema = {"type": "object", "properties": {"answer": TEXT}, "required": ["answer"]}
        params = {"mode": "form", "message": arguments["question"], "requestedSchema": schema}
        return {"method": "elicitation/create", "params": params}
    content = {"type": "text", "text": arguments["prompt"]}
    params = {"messages": [{"role": "user", "content": content}], "maxTokens": 9}
    return {"method": "sampling/createMessage", "params": params}


def said(answer):
    """The result that repeats what a user or a model answered."""
    if "action" in answer:
        return said_text(f"the user said {answer.get('content', {}).get('answer')}")
    return said_text(f"the model said {answer['content']['text']}")


def said_text(text):
    """A result of one text."""
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    Server(sys.argv[1]).serve()
