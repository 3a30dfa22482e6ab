"""Hard exits, a held lock and a failing effect: what is left in the ledger after each."""

import contextlib
import sqlite3

from cases.checks import LabTest
from cases.lab import OP, issue


class Faults(LabTest):
    """After every fault there is the whole effect with its record, or nothing."""

    async def check_exit(self, point, code, request, *, issues, operations, state):
        """Dies at `point`, checks the rows, and gives the bench and the state to go on with."""
        bench = self.bench(name=f"exit-{code}")
        async with bench.serve("--cut", f"{point}=exit:{code}", exit_code=code) as session:
            sealed = await session.ask(request)
            lost = await session.answer(request, sealed)
        self.assertEqual(lost.kind, "lost", lost)
        self.check_rows(bench, issues=issues, operations=operations, state=state)
        return bench, sealed

    async def test_exit_71_and_72_before_the_commit(self):
        """Promise: a death before the commit leaves nothing, and the same request applies once."""
        for point, code in (("store.after_ledger_insert", 71), ("store.after_effect_insert", 72)):
            with self.subTest(point):
                bench, sealed = await self.check_exit(
                    point, code, issue(OP), issues=0, operations=0, state="applied"
                )
                async with bench.serve() as session:
                    seen = await session.status(OP)
                    made = await session.answer(issue(OP), sealed)
                self.check_status(seen, OP, "unknown", detail="no_record")
                self.check_applied(made, OP)
                self.check_one_row(bench, OP)

    async def test_exit_73_after_the_first_commit_of_a_partial(self):
        """Promise: an unfinished operation is unknown, not replayed, and waits for a person."""
        request = issue(OP, mode="partial")
        bench, sealed = await self.check_exit(
            "store.after_first_commit", 73, request, issues=1, operations=1, state="in_progress"
        )
        async with bench.serve() as session:
            seen = await session.status(OP)
            replay = await session.answer(request, sealed)
            anew = await session.create(request)
        self.check_status(seen, OP, "unknown", detail="first_step_committed")
        for reply in (replay, anew):
            self.check_refused(reply, OP, "operation_in_progress", "status_only")
        self.check_rows(bench, issues=1, operations=1, state="in_progress")

    async def test_a_writer_lock_held_elsewhere(self):
        """Promise: a busy ledger is a clear error that wrote nothing; the ID works later."""
        bench = self.bench("--lock-wait-ms", "0")
        async with bench.serve() as session:
            state = await session.ask(issue(OP))
            with contextlib.closing(sqlite3.connect(bench.data / "ledger.db")) as other:
                other.isolation_level = None
                other.execute("BEGIN IMMEDIATE")
                busy = await session.answer(issue(OP), state)
                other.execute("ROLLBACK")
            made = await session.answer(issue(OP), state)
        self.check_refused(busy, OP, "store_unavailable", "same_operation")
        self.check_applied(made, OP)
        self.check_one_row(bench, OP)

    async def test_an_effect_that_fails_after_its_insert(self):
        """Promise: a failed effect is rolled back whole, and the same request applies once."""
        bench = self.bench()
        async with bench.serve("--fail-effect-once") as session:
            state = await session.ask(issue(OP))
            failed = await session.answer(issue(OP), state)
            seen = await session.status(OP)
            made = await session.answer(issue(OP), state)
        self.check_refused(failed, OP, "store_unavailable", "same_operation")
        self.check_status(seen, OP, "unknown", detail="no_record")
        self.check_applied(made, OP)
        self.check_one_row(bench, OP)
