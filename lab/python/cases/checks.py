"""What every case checks in the same way."""

import asyncio
import os
import pathlib
import tempfile
import unittest

from cases import lab, rows
from cases.over_stdio import Stdio
from cases.settings import START_MS


class LabTest(unittest.IsolatedAsyncioTestCase):
    """A test on a bench of its own."""

    maxDiff = None
    # How servers are reached.
    transport = Stdio()

    def setUp(self):
        kept = os.environ.get("COUNTERFOIL_LAB_KEEP")
        if kept:
            # Evidence is never overwritten: a folder that is there already is an error.
            self.folder = pathlib.Path(kept) / self.id()
            self.folder.mkdir(parents=True)
        else:
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            self.folder = pathlib.Path(folder.name)

    async def asyncSetUp(self):
        # unittest's debug mode reports every step of a busy machine as slow.
        asyncio.get_running_loop().set_debug(False)

    def bench(self, *flags, name="bench"):
        """A new data directory."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return lab.Bench(folder, self.transport, *flags)

    def check_applied(self, reply, operation_id, *, replayed=False, effect=1):
        """The whole of a result that says `applied`."""
        self.assertEqual(reply.kind, "result", reply)
        expected = {"operationId": operation_id, "state": "applied", "replayed": replayed}
        expected |= {"result": f"created {effect}", "effectId": effect}
        self.assertEqual(reply.body, expected)
        expected = {"operationId": operation_id, "state": "applied", "replayed": replayed}
        self.assertEqual(reply.operation, expected | {"retry": "none"})

    def check_refused(self, reply, operation_id, code, retry):
        """A refusal of ours: a tool error that says what may be done next."""
        self.assertEqual(reply.kind, "refused", reply)
        error = dict(reply.body["error"])
        words = error.pop("message")
        self.assertEqual(error, {"code": code, "operationId": operation_id, "retry": retry})
        self.assertGreater(len(words), 20, "words for an agent, which sees no headers")
        expected = {"operationId": operation_id, "state": "unknown", "replayed": False}
        self.assertEqual(reply.operation, expected | {"retry": retry})

    def check_conflict(self, reply, operation_id):
        """The ID is bound to another request."""
        self.check_refused(reply, operation_id, "operation_conflict", "none")

    def check_state_refused(self, reply):
        """A state that is not usable: one protocol error, whatever the cause."""
        self.assertEqual(reply.kind, "error", reply)
        self.assertEqual(reply.body["code"], -32602)
        self.assertEqual(reply.body["data"], {"retry": "status_only"})

    def check_status(self, seen, operation_id, state, *, ids=(), result=None, detail="settled"):
        """The parts of an observation that a case is about."""
        self.assertEqual(seen["operationId"], operation_id)
        self.assertEqual(seen["state"], state)
        self.assertEqual(seen["matchingIds"], list(ids))
        self.assertEqual(seen["storedResult"], result)
        self.assertEqual(seen["detail"], detail)
        self.assertIs(seen["authoritative"], state != "unknown")
        self.assertIs(seen["freshWriteAuthorized"], False)

    def check_rows(self, bench, *, issues, operations, state="applied"):
        """Physical rows: how many, all operations in one state, and no issue made twice."""
        facts = bench.facts()
        self.assertEqual(len(facts["issues"]), issues, facts)
        self.assertEqual(len(facts["operations"]), operations, facts)
        self.assertEqual({row["state"] for row in facts["operations"]} - {state}, set(), facts)
        self.assertEqual(rows.duplicates(facts), {})
        return facts

    def check_one_row(self, bench, operation_id, *, body=lab.BODY, at_ms=0):
        """One operation, one issue, in every column as they were asked for."""
        facts = self.check_rows(bench, issues=1, operations=1)
        (operation,) = facts["operations"]
        made = {"id": 1, "title": lab.TITLE, "body": body, "operation_id": operation_id}
        made |= {"created_at_ms": START_MS + at_ms}
        # By this key the issue belongs to its record.
        made |= {"operation_key": operation.pop("operation_key")}
        self.assertEqual(facts["issues"], [made])
        expected = {"operation_id": operation_id, "principal": "alice", "tool_id": "create_issue"}
        self.assertEqual(operation, expected | {"state": "applied", "result": "created 1"})
        return facts
