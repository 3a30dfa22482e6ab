"""Messages that are changed on their way out, as something between client and server would."""

import dataclasses

from mcp import types

from cases.settings import LEGACY, MODERN


def edited(stream, edit):
    """A write stream whose messages `edit` may change; the stream itself without one."""
    return _Edited(stream, edit) if edit else stream


def for_revision(revision, edit):
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
