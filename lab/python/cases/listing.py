"""list_operations: a caller that forgot its IDs finds its own operations, and nobody else's.

Every reply here, refusals too, is also held against the tool's declared output schema.
"""

from cases.checks import LabTest
from cases.lab import issue
from cases.settings import MODERN, START_MS

NAME = "list_operations"
STARTED_AT = "2027-01-15T08:00:00.000Z"
# A process that dies after the first of two commits leaves its operation unfinished.
DIES_BETWEEN = ("--cut", "store.after_first_commit=exit:73")


def line(operation_id, state="applied", detail="settled", settled_at=STARTED_AT, **more):
    """One operation of a page."""
    retry = "status_only" if state == "unknown" else "none"
    return {
        "operationId": operation_id,
        "tool": "create_issue",
        "state": state,
        "detail": detail,
        "createdAt": STARTED_AT,
        "settledAt": settled_at,
        "retry": retry,
        **more,
    }


class Listing(LabTest):
    """The list over a real transport."""

    async def names(self, session, **arguments):
        """The IDs of one page, and its cursor."""
        reply = await session.call(NAME, arguments)
        self.assertEqual(reply.kind, "result", reply)
        self.assertIsNone(reply.operation, "a list is about no single operation")
        return [o["operationId"] for o in reply.body["operations"]], reply.body["nextCursor"]

    async def test_what_a_crash_left_is_found_without_its_id(self):
        """Promise: unsettled operations are found by asking, and are told as the status tells."""
        bench = self.bench()
        async with bench.serve(*DIES_BETWEEN, exit_code=73) as session:
            body = {"body": "text"}
            await session.create(issue("settled", **body))
            lost = await session.create(issue("half", mode="partial", **body))
        self.assertEqual(lost.kind, "lost", lost)
        async with bench.serve(at_ms=60_000) as session:
            unsettled = await session.call(NAME, {"unsettled_only": True})
            everything = await session.call(NAME, {})
            seen = await session.status("half")
        half = line("half", "unknown", "first_step_committed", None)
        found = {"nextCursor": None, "observedAt": "2027-01-15T08:01:00.000Z"}
        self.assertEqual(unsettled.body, {"operations": [half], **found})
        by_id = {o["operationId"]: o for o in everything.body["operations"]}
        self.assertEqual(by_id, {"half": half, "settled": line("settled")})
        self.assertEqual((seen["state"], seen["detail"]), (half["state"], half["detail"]))
        self.assertEqual(len(bench.facts()["issues"]), 2, "a list changes nothing")

    async def test_pages_hold_each_operation_once(self):
        """Promise: following nextCursor shows every operation once and ends."""
        bench = self.bench()
        expected = [f"op-{n}" for n in range(5)]
        async with bench.serve() as session:
            for operation_id in expected:
                await session.create(issue(operation_id, body="text"))
            seen, cursor = await self.names(session, limit=2)
        # The next page is asked of another process: a cursor outlives its server.
        async with bench.serve(at_ms=1000) as session:
            while cursor is not None:
                page, cursor = await self.names(session, limit=2, cursor=cursor)
                seen += page
        self.assertEqual(sorted(seen), expected)

    async def test_a_foreign_cursor_is_refused_and_a_foreign_operation_never_shown(self):
        """Promise: no list and no cursor tells anything of another principal."""
        bench = self.bench()
        async with bench.serve() as session:
            for operation_id in ("op-1", "op-2"):
                await session.create(issue(operation_id, body="text"))
            _, cursor = await self.names(session, limit=1)
        async with bench.serve(principal="bob") as session:
            self.assertEqual(await self.names(session), ([], None))
            foreign = await session.call(NAME, {"limit": 1, "cursor": cursor})
            made_up = await session.call(NAME, {"limit": 1, "cursor": "cl1.AAAA"})
        self.assertEqual(foreign.kind, "refused", foreign)
        self.assertEqual(foreign.body["error"]["code"], "invalid_argument")
        self.assertEqual(foreign.body, made_up.body)

    async def test_arguments_that_break_a_rule_are_refused_with_it(self):
        """Promise: a page is bounded, and a slip is named instead of ignored."""
        bench = self.bench()
        bad = {
            "1 to 200": ({"limit": 0}, {"limit": 201}, {"limit": -1}),
            "a whole number": ({"limit": "7"}, {"limit": 1.5}, {"limit": None}),
            "true or false": ({"unsettled_only": "yes"}, {"unsettled_only": 1}),
            "must be a JSON string": ({"cursor": 7},),
            "empty or blank": ({"cursor": ""},),
            "at most 256": ({"cursor": "x" * 257},),
            "did you mean `unsettled_only`": ({"unsettled": True},),
        }
        async with bench.serve() as session:
            for words, cases in bad.items():
                for arguments in cases:
                    with self.subTest(arguments):
                        reply = await session.call(NAME, arguments)
                        self.assertEqual(reply.kind, "refused", reply)
                        self.assertIn(words, reply.body["error"]["message"])
            self.assertEqual(await self.names(session, limit=200, unsettled_only=False), ([], None))

    async def test_the_tool_is_declared_as_reading_only(self):
        """Promise: a host can let an agent list without asking its user."""
        bench = self.bench()
        async with bench.serve(revision=MODERN) as session:
            tools = {t.name: t for t in (await session.client.list_tools()).tools}
        self.assertTrue(tools[NAME].annotations.read_only_hint)
        self.assertFalse(tools[NAME].annotations.open_world_hint)
