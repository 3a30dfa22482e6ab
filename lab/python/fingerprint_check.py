"""Checks the published fingerprint vectors with an implementation of its own.

It implements profile strict-v1 from its description alone and shares nothing with the Rust
code, so that vectors and code cannot be wrong together. It reads the same vector file as the
Rust tests, and needs the standard library only.

    python3 lab/python/fingerprint_check.py
"""

import hashlib
import hmac
import json
import pathlib
import unittest
from decimal import Decimal

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = ROOT / "crates/core/tests/data/fingerprint-strict-v1.json"

SAFE_INTEGER = 2**53 - 1
KEY_BYTES_MIN = 32
PLAIN_FIELDS = ("principal", "tool_id", "tool_version", "arguments")
KEYED_FIELDS = ("continuation_state", "input_responses")


class Refused(ValueError):
    """The input has no strict-v1 form."""


def parse(text):
    """Reads JSON; refuses duplicate keys, and numbers that are not JSON's."""
    # Fractions stay decimal, so that nothing is rounded before it is judged.
    return json.loads(
        text,
        object_pairs_hook=_object,
        parse_float=Decimal,
        parse_constant=lambda name: _refuse(f"{name} is not JSON"),
    )


def canonical(value):
    """The strict-v1 bytes of a parsed JSON value."""
    return _render(value).encode("utf-8")


def fingerprint(key, request):
    """The strict-v1 fingerprint in lower-case hex."""
    if len(key) < KEY_BYTES_MIN:
        _refuse(f"a key of {len(key)} bytes is shorter than {KEY_BYTES_MIN}")
    bound = {field: request[field] for field in PLAIN_FIELDS}
    for field in KEYED_FIELDS:
        message = field.encode() + b"\x00" + canonical(request[field])
        bound[field] = hmac.new(key, message, hashlib.sha256).hexdigest()
    return hashlib.sha256(canonical(bound)).hexdigest()


def _refuse(why):
    raise Refused(why)


def _object(pairs):
    seen = dict(pairs)
    if len(seen) != len(pairs):
        _refuse("an object has a key twice")
    return seen


def _render(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return _number(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_render, value)) + "]"
    # Python orders texts by code point, which is the order by Unicode scalar value.
    members = (_string(key) + ":" + _render(value[key]) for key in sorted(value))
    return "{" + ",".join(members) + "}"


def _number(value):
    # Compared as decimals, so that 1e400 costs no 400 digits.
    if abs(value) > SAFE_INTEGER:
        _refuse("a number is outside plus or minus 2^53-1")
    if value != int(value):
        _refuse("a number is not integral")
    return str(int(value))


def _string(value):
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused("a text holds an unpaired surrogate") from None
    short = {
        "\b": "\\b",
        "\t": "\\t",
        "\n": "\\n",
        "\f": "\\f",
        "\r": "\\r",
        '"': '\\"',
        "\\": "\\\\",
    }
    escape = lambda c: short.get(c) or (f"\\u{ord(c):04x}" if c < " " else c)  # noqa: E731
    return '"' + "".join(map(escape, value)) + '"'


class FingerprintVectors(unittest.TestCase):
    """One identity and content gives one digest, whoever computes it."""

    @classmethod
    def setUpClass(cls):
        # Both kinds of case are read by the strict parser: 1.0 and -0.0 must arrive unrounded.
        vectors = parse(VECTORS.read_text(encoding="utf-8"))
        cls.key = bytes.fromhex(vectors["key_hex"])
        cls.accept, cls.reject = vectors["accept"], vectors["reject"]

    def test_accepted_requests_have_the_published_fingerprint(self):
        # Defends: the published digests follow from the profile's description.
        self.assertGreater(len(self.accept), 0)
        for case in self.accept:
            with self.subTest(case["name"]):
                self.assertEqual(fingerprint(self.key, case["request"]), case["fingerprint"])

    def test_different_requests_have_different_fingerprints(self):
        # Defends: no binding is left out. Equal digests belong to equal canonical requests.
        forms = {case["fingerprint"]: canonical(case["request"]) for case in self.accept}
        for case in self.accept:
            with self.subTest(case["name"]):
                self.assertEqual(canonical(case["request"]), forms[case["fingerprint"]])

    def test_rejected_inputs_are_refused(self):
        # Defends: what has no exact form is refused and never rounded or repaired.
        self.assertGreater(len(self.reject), 0)
        request = dict.fromkeys(PLAIN_FIELDS + KEYED_FIELDS)
        for case in self.reject:
            key = bytes.fromhex(case["key_hex"]) if "key_hex" in case else self.key
            with self.subTest(case["name"]), self.assertRaises(Refused):
                fingerprint(key, {**request, "arguments": parse(case["arguments"])})


if __name__ == "__main__":
    unittest.main()
