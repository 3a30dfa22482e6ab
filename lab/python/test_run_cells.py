"""Holds run_cells.py to what it promises of verdicts that are no pass."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from unittest import mock

import mcp

import run_cells


async def old_call_tool(self, name, arguments=None):
    """As an SDK has it that knows nothing of rounds."""


class Broken(unittest.TestCase):
    """Tests that do not pass, for different reasons."""

    def promise(self):
        self.assertEqual(1, 2, "a promise")

    def machinery(self):
        raise OSError("no server")


class RunCellsTest(unittest.TestCase):
    def test_an_sdk_without_what_a_case_needs_is_named(self):
        """Promise: an unsupported cell says which API is missing, and nothing runs."""
        self.assertEqual(run_cells.missing_api("stdio"), [])
        self.assertEqual(run_cells.missing_api("http"), [])
        out = io.StringIO()
        with mock.patch.object(mcp.ClientSession, "call_tool", old_call_tool):
            with contextlib.redirect_stdout(out):
                run_cells.main("cases", "stdio")
        versions, *cells = [json.loads(line) for line in out.getvalue().splitlines()]
        self.assertIn("mcp", versions["versions"])
        self.assertEqual([cell["case"] for cell in cells], [f"{n:02}" for n in range(1, 13)])
        self.assertEqual({cell["status"] for cell in cells}, {"unsupported"})
        self.assertIn("ClientSession.call_tool(request_state=)", cells[0]["words"])

    def test_a_broken_promise_is_not_a_broken_lab(self):
        """Promise: a failed check is a failure; anything else is the lab's own error."""
        with tempfile.TemporaryDirectory() as kept:
            with mock.patch.dict(os.environ, {"COUNTERFOIL_LAB_KEEP": kept}):
                promise = run_cells.run("01", Broken("promise"))
                machinery = run_cells.run("02", Broken("machinery"))
        self.assertEqual((promise["case"], promise["status"]), ("01", "fail"))
        self.assertIn("a promise", promise["words"])
        self.assertEqual(machinery["status"], "machinery_error")
        self.assertIn("no server", machinery["words"])

    def test_every_cell_has_its_test(self):
        """Promise: the twelve cases and the four controls are all there, over both transports."""
        for transport in ("stdio", "http"):
            cases = run_cells.suite_of("cases", transport)
            self.assertEqual(sorted(cases), [f"{n:02}" for n in range(1, 13)])
            controls = run_cells.suite_of("controls", transport)
            self.assertEqual(set(controls), set(run_cells.CONTROLS))


