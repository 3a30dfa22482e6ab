"""The control: a server without a ledger makes duplicates, and the detector sees each of them.

A test that never saw a duplicate proves nothing about the server that makes none.
"""

from cases import rows
from cases.checks import LabTest
from cases.lab import OP, issue


class Control(LabTest):
    """The same tools and tables, unguarded; and the guarded server under a fresh ID."""

    async def test_unguarded_an_identical_retry_makes_a_duplicate(self):
        """Promise: the detector sees the duplicate that an identical retry makes."""
        bench = self.bench("--unguarded")
        async with bench.serve() as session:
            state = await session.ask(issue(OP))
            await session.answer(issue(OP), state)
            await session.answer(issue(OP), state)
        self.check_duplicate(bench, [OP, OP])

    async def test_unguarded_a_changed_retry_makes_a_duplicate(self):
        """Promise: the detector sees the duplicate that a changed retry makes."""
        bench = self.bench("--unguarded")
        async with bench.serve() as session:
            state = await session.ask(issue(OP))
            await session.answer(issue(OP), state, "One text.")
            await session.answer(issue(OP), state, "Another text.")
        facts = self.check_duplicate(bench, [OP, OP])
        bodies = [row["body"] for row in facts["issues"]]
        self.assertEqual(bodies, ["One text.", "Another text."])

    async def test_unguarded_a_retry_after_a_crash_makes_a_duplicate(self):
        """Promise: the detector sees the duplicate that a retry after a lost reply makes."""
        bench = self.bench("--unguarded")
        dies = ("--cut", "store.after_commit=exit:70")
        async with bench.serve(*dies, exit_code=70) as session:
            state = await session.ask(issue(OP))
            lost = await session.answer(issue(OP), state)
        self.assertEqual(lost.kind, "lost")
        async with bench.serve() as session:
            await session.answer(issue(OP), state)
        self.check_duplicate(bench, [OP, OP])

    async def test_guarded_a_fresh_id_makes_a_second_issue(self):
        """Promise: the guard refuses repeats and not work: a new ID is a new operation."""
        bench = self.bench()
        async with bench.serve() as session:
            for effect, operation in ((1, "first-operation-id"), (2, "second-operation-id")):
                state = await session.ask(issue(operation))
                made = await session.answer(issue(operation), state)
                self.check_applied(made, operation, effect=effect)
        facts = self.check_rows(bench, issues=2, operations=2)
        made = [(row["id"], row["operation_id"]) for row in facts["issues"]]
        self.assertEqual(made, [(1, "first-operation-id"), (2, "second-operation-id")])

    def check_duplicate(self, bench, operations):
        """The issues that were made, and that the detector names them."""
        facts = bench.facts()
        self.assertEqual([row["operation_id"] for row in facts["issues"]], operations)
        self.assertEqual(rows.duplicates(facts), {OP: [1, 2]})
        return facts
