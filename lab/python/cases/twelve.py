"""The twelve cases. Each says in its first line what it shows."""

import asyncio

from cases import consumer
from cases.checks import LabTest
from cases.lab import BODY, TITLE, issue

STATE_S, AUTHORITY_S, RETENTION_S = "--state-s", "--authority-s", "--retention-s"
DIES_AFTER_COMMIT = ("--cut", "store.after_commit=exit:70")
PARTIAL = "created 1; watcher absent; compensation failed"


class TwelveCases(LabTest):
    """What a client may rely on when replies are lost, repeated or changed."""

    async def test_01_an_identical_retry_gets_the_same_stored_result(self):
        """Promise: the same identity and fingerprint replays, and writes nothing more."""
        op = "case-01-operation"
        bench = self.bench()
        async with bench.serve() as session:
            state = await session.ask(issue(op))
            self.check_applied(await session.answer(issue(op), state), op)
            again = await session.answer(issue(op), state)
            self.check_applied(again, op, replayed=True)
            # An honest retry begins at round one: it is not asked again.
            anew = await session.create(issue(op))
            self.check_applied(anew, op, replayed=True)
        first, second, third = [call.words() for call in session.calls()[1:]]
        self.assertEqual(_as_replay(first), second)
        self.assertEqual(second, third)
        self.check_one_row(bench, op)

    async def test_02_a_state_whose_continuation_is_never_sent(self):
        """Promise: round one writes nothing, and an absent record is unknown, never `not done`."""
        op = "case-02-operation"
        bench = self.bench()
        async with bench.serve() as session:
            await session.ask(issue(op))
            seen = await session.status(op)
        self.check_status(seen, op, "unknown", detail="no_record")
        belief = consumer.accept(seen, op, "alice")
        self.assertEqual(belief, ("unknown", "unknown", "stop"))
        self.check_rows(bench, issues=0, operations=0)

    async def test_03_a_commit_whose_reply_is_lost(self):
        """Promise: a lost reply stays unknown until the record answers, and is found there."""
        op = "case-03-operation"
        bench = self.bench()
        async with bench.serve(*DIES_AFTER_COMMIT, exit_code=70) as session:
            state = await session.ask(issue(op))
            lost = await session.answer(issue(op), state)
        self._check_lost(session, lost)
        belief = consumer.AFTER_A_LOST_REPLY
        self.assertEqual(belief, ("unknown", "unknown", "reconcile"))
        async with bench.serve() as session:
            seen = await session.status(op)
            replay = await session.answer(issue(op), state)
        self.check_status(seen, op, "applied", ids=[1], result="created 1")
        belief = consumer.accept(seen, op, "alice")
        self.assertEqual(belief, ("admitted", "applied", "return_stored_result"))
        self.check_applied(replay, op, replayed=True)
        self.assertEqual(replay.body["result"], seen["storedResult"])
        self.check_one_row(bench, op)

    async def test_04_the_same_state_with_changed_answers(self):
        """Promise: changed answers conflict before a second effect and learn nothing."""
        op = "case-04-operation"
        bench = self.bench()
        async with bench.serve() as session:
            state = await session.ask(issue(op))
            self.check_applied(await session.answer(issue(op), state), op)
            changed = [
                await session.answer(issue(op), state, "Another text."),
                # Changed arguments begin at round one, since a state fits its own arguments alone.
                await session.create({**issue(op), "title": "Another title"}),
                await session.create(issue(op, mode="partial")),
                await session.create(issue(op, body=BODY)),
            ]
            exact = await session.answer(issue(op), state)
        for reply in changed:
            self.check_conflict(reply, op)
        self.check_applied(exact, op, replayed=True)
        (conflict,) = {call.words() for call in session.calls()[2:6]}
        for secret in (TITLE, BODY, "created 1", "effectId"):
            self.assertNotIn(secret, conflict)
        self.check_one_row(bench, op)

    async def test_05_a_second_state_for_the_same_id(self):
        """Promise: another issuance is another request, and a tampered state is none at all."""
        op = "case-05-operation"
        bench = self.bench()
        async with bench.serve() as session:
            first = await session.ask(issue(op))
            second = await session.ask(issue(op))
            tampered = _flip(first, len(first) // 2)
            early = await session.answer(issue(op), tampered)
            self.check_applied(await session.answer(issue(op), first), op)
            other = await session.answer(issue(op), second)
            late = await session.answer(issue(op), tampered)
        self.assertNotEqual(first, second, "each state has a nonce of its own")
        self.check_conflict(other, op)
        self.check_state_refused(early)
        self.check_state_refused(late)
        words = [call.words() for call in session.calls()]
        self.assertEqual(words[2], words[5], "the refusal tells nothing of the record")
        self.check_one_row(bench, op)

    async def test_06_another_principal(self):
        """Promise: principals of one ledger cannot use, replay or see each other's operations."""
        op = "case-06-operation"
        bench = self.bench()
        async with bench.serve(principal="bob") as session:
            bobs = await session.ask(issue(op))
        async with bench.serve() as session:
            state = await session.ask(issue(op))
            self.check_applied(await session.answer(issue(op), state), op)
            changed = await session.answer(issue(op), state, "Another text.")
        alices = session.calls()
        async with bench.serve(principal="bob") as session:
            stolen = await session.answer(issue(op), state)
            own = await session.answer(issue(op), bobs)
            anew = await session.create(issue(op))
            at_once = await session.create(issue(op, body=BODY))
            seen = await session.status(op)
            absent = await session.status("case-xx-operation")
        self.check_state_refused(stolen)
        for reply in (changed, own, anew, at_once):
            self.check_conflict(reply, op)
        conflicts = {call.words() for call in [alices[2], *session.calls()[1:4]]}
        self.assertEqual(len(conflicts), 1, "conflicts are byte-identical, whatever their cause")
        self.check_status(seen, op, "unknown", detail="no_record")
        hidden, none = [call.words() for call in session.calls()[-2:]]
        absent_here = none.replace("case-xx-operation", op)
        self.assertEqual(hidden, absent_here, "it looks like no record at all")
        self.assertEqual(absent["state"], "unknown")
        self.assertEqual(consumer.accept(seen, op, "bob").action, "stop")
        self.check_one_row(bench, op)

    async def test_07_authority_ends_while_state_and_retention_are_valid(self):
        """Promise: after its authority ended a continuation writes and replays nothing."""
        op, other = "case-07-operation", "case-07b-operation"
        bench = self.bench(STATE_S, 600, AUTHORITY_S, 60, RETENTION_S, 3600)
        async with bench.serve() as session:
            state = await session.ask(issue(op))
            unused = await session.ask(issue(other))
            self.check_applied(await session.answer(issue(op), state), op)
        async with bench.serve(at_ms=59_999) as session:
            self.check_applied(await session.answer(issue(op), state), op, replayed=True)
            again = await session.create(issue(other), state=unused, answers={})
            self.assertEqual(again.state, unused, "asking again extends nothing")
        async with bench.serve(at_ms=60_000) as session:
            replies = [
                await session.answer(issue(op), state),
                await session.answer(issue(other), unused),
                await session.create(issue(other), state=unused, answers={}),
            ]
            seen = await session.status(op)
            never = await session.status(other)
        for reply, operation in zip(replies, (op, other, other), strict=True):
            self.check_refused(reply, operation, "operation_authority_expired", "status_only")
        self.check_status(seen, op, "applied", ids=[1], result="created 1")
        self.check_status(never, other, "unknown", detail="no_record")
        belief = consumer.accept(seen, op, "alice")
        self.assertEqual(belief.action, "return_stored_result")
        self.check_one_row(bench, op)

    async def test_08_two_processes_with_the_same_continuation(self):
        """Promise: two processes on one ledger apply once; the other one replays."""
        op = "case-08-operation"
        bench = self.bench()
        async with bench.serve() as session:
            state = await session.ask(issue(op))
        barrier = ("--barrier", f"{self.folder / 'barrier'}:2")
        async with bench.serve(*barrier) as one, bench.serve(*barrier) as two:
            both = await asyncio.gather(
                one.answer(issue(op), state), two.answer(issue(op), state)
            )
        applied, replayed = sorted(both, key=lambda reply: reply.body["replayed"])
        self.check_applied(applied, op)
        self.check_applied(replayed, op, replayed=True)
        self.check_one_row(bench, op)

    async def test_09_a_hard_exit_after_the_commit_and_status_alone(self):
        """Promise: asking is enough to recover a result; nothing is sent again."""
        op = "case-09-operation"
        bench = self.bench()
        async with bench.serve(*DIES_AFTER_COMMIT, exit_code=70) as session:
            state = await session.ask(issue(op))
            lost = await session.answer(issue(op), state)
        self._check_lost(session, lost)
        self.assertEqual(consumer.AFTER_A_LOST_REPLY.effect, "unknown")
        async with bench.serve() as session:
            seen = await session.status(op)
        self.assertEqual(session.sent(), ["server/discover", "get_operation_status"])
        belief = consumer.accept(seen, op, "alice")
        self.assertEqual(belief, ("admitted", "applied", "return_stored_result"))
        self.assertEqual(seen["storedResult"], "created 1")
        self.check_one_row(bench, op)

    async def test_10_retention_ends_and_the_id_never_becomes_new_work(self):
        """Promise: after retention an ID is refused for ever, by whatever way it comes."""
        op = "case-10-operation"
        bench = self.bench(STATE_S, 600, AUTHORITY_S, 3600, RETENTION_S, 60)
        async with bench.serve() as session:
            first = await session.ask(issue(op))
        async with bench.serve(at_ms=500_000) as session:
            second = await session.ask(issue(op))
        async with bench.serve() as session:
            self.check_applied(await session.answer(issue(op), first), op)
        async with bench.serve(at_ms=59_999) as session:
            self.check_applied(await session.answer(issue(op), first), op, replayed=True)
        async with bench.serve(at_ms=60_000) as session:
            self._check_retention_ended(await session.answer(issue(op), first))
            seen = await session.status(op)
        async with bench.serve(at_ms=600_000) as session:
            self.check_state_refused(await session.answer(issue(op), first))
            self._check_retention_ended(await session.answer(issue(op), second))
            # A fresh state for the old ID is not even handed out.
            self._check_retention_ended(await session.create(issue(op)))
            self._check_retention_ended(await session.create(issue(op, body=BODY)))
            late = await session.status(op)
        for observation in (seen, late):
            self.assertEqual(observation["state"], "applied")
            self.assertEqual(observation["matchingIds"], [1])
            belief = consumer.accept(observation, op, "alice")
            self.assertEqual(belief.effect, "applied")
        self.check_tombstone(bench)

    async def test_11_the_state_is_stripped_on_its_way(self):
        """Promise: answers without their state write nothing, and a fresh round still works."""
        op = "case-11-operation"
        stripped = []

        def strip(message):
            if len(stripped) == 0 and message.get("params", {}).pop("requestState", None):
                stripped.append(message)

        bench = self.bench()
        async with bench.serve(edit=strip) as session:
            state = await session.ask(issue(op))
            self.check_state_refused(await session.answer(issue(op), state))
            self.check_status(
                await session.status(op), op, "unknown", detail="no_record"
            )
            fresh = await session.ask(issue(op))
            self.check_applied(await session.answer(issue(op), fresh), op)
        self.assertEqual(len(stripped), 1, "one state was stripped")
        self.assertNotIn("requestState", session.calls()[1].request["params"])
        self.check_one_row(bench, op)

    async def test_12_a_partial_effect_whose_compensation_fails(self):
        """Promise: what happened in part stays visible as such, and a replay repeats no step."""
        op = "case-12-operation"
        bench = self.bench()
        request = issue(op, mode="partial")
        async with bench.serve() as session:
            state = await session.ask(request)
            first = await session.answer(request, state)
        before = self.check_partial(bench)
        async with bench.serve() as session:
            again = await session.answer(request, state)
            seen = await session.status(op)
        for reply, replayed in ((first, False), (again, True)):
            self.assertEqual(reply.kind, "result", reply)
            expected = {"operationId": op, "state": "partial", "replayed": replayed}
            self.assertEqual(reply.body, expected | {"result": PARTIAL, "effectId": 1})
        self.check_status(seen, op, "partial", ids=[1], result=PARTIAL)
        self.assertEqual(consumer.accept(seen, op, "alice"), ("admitted", "partial", "stop"))
        self.assertEqual(self.check_partial(bench), before, "a replay repeats nothing")

    def _check_lost(self, session, reply):
        """No reply was sent: what the client reports is its own, and the transcript shows it."""
        self.assertEqual(reply.kind, "lost", reply)
        asked, continued = session.calls()
        self.assertIsNotNone(asked.reply)
        self.assertIsNone(continued.reply)

    def _check_retention_ended(self, reply):
        self.check_refused(reply, "case-10-operation", "operation_retention_expired", "status_only")

    def check_tombstone(self, bench):
        """The record of an operation whose retention ended stays, and so does its one issue."""
        facts = self.check_rows(bench, issues=1, operations=1)
        self.assertEqual(facts["operations"][0]["operation_id"], "case-10-operation")

    def check_partial(self, bench):
        """The issue, the absent watcher, and the failed compensation under its own identity."""
        facts = self.check_rows(bench, issues=1, operations=1, state="partial")
        self.assertEqual(facts["watchers"], [])
        events = [row for row in facts["audit_events"] if row["kind"] == "compensation_failed"]
        identities = [row["identity"] for row in events]
        self.assertEqual(identities, ["case-12-operation/compensation/1"], facts)
        return facts


def _as_replay(words):
    """A reply as it must come again: marked replayed, and else the same."""
    return words.replace('"replayed":false', '"replayed":true').replace(
        r"\"replayed\":false", r"\"replayed\":true"
    )


def _flip(state, position):
    """The state with one character changed."""
    other = "A" if state[position] != "A" else "B"
    return state[:position] + other + state[position + 1 :]
