"""JSON-RPC frames as text: where their parts stand, so that two frames can be compared byte for
byte but for parts that may differ. Nothing is written anew: what is compared is what was sent.
"""

import json
import re
from typing import NamedTuple

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


class Member(NamedTuple):
    """One member of an object: its name, and where it and its value stand in the text."""

    name: str
    start: int
    value: int
    end: int


def members(text, at=0):
    """The members of the object that begins at `at`."""
    found = []
    at = _skip(text, at)
    if text[at] != "{":
        return found
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        name, at = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(Member(name, start, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def find(text, *path):
    """The member at a path of names, or None."""
    at, found = 0, None
    for name in path:
        found = next((one for one in members(text, at) if one.name == name), None)
        if found is None:
            return None
        at = found.value
    return found


def raw(text, *path):
    """The text of the value at a path, or None."""
    member = find(text, *path)
    return None if member is None else text[member.value : member.end]


def masked(text, *paths):
    """The text with a 0 in the place of the value at each path that it has."""
    for path in paths:
        member = find(text, *path)
        if member is not None:
            text = f"{text[: member.value]}0{text[member.end :]}"
    return text


def without(text, *path):
    """The text without the member at a path, once with the comma before it taken along and once
    with the one behind it; the text alone if it has no such member."""
    member = find(text, *path)
    if member is None:
        return [text]
    before = re.search(r"(,[ \t\r\n]*)?$", text[: member.start]).start()
    behind = re.match(r"([ \t\r\n]*,[ \t\r\n]*)?", text[member.end :]).end() + member.end
    cuts = []
    if before < member.start:
        cuts.append((before, member.end))
    if behind > member.end or not cuts:
        cuts.append((member.start, behind))
    return [text[:start] + text[end:] for start, end in cuts]


def _skip(text, at):
    return _SPACE.match(text, at).end()
