"""How an issue's body is asked for, in each protocol revision and whatever the client can do."""

from mcp import types

from cases.checks import LabTest
from cases.lab import BODY, OP, User, accepted, issue
from cases.settings import LEGACY, MODERN, START_MS

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
DECLINE = types.ElicitResult(action="decline")
CANCEL = types.ElicitResult(action="cancel")
UNUSABLE = (
    types.ElicitResult(action="accept"),
    types.ElicitResult(action="accept", content={}),
    types.ElicitResult(action="accept", content={"body": " \t\n"}),
    types.ElicitResult(action="accept", content={"body": 7}),
    types.ElicitResult(action="accept", content={"text": BODY}),
)


def declares(elicitation):
    """An edit: the client declares this elicitation capability in place of the SDK's."""

    def declare(message):
        params = message.get("params", {})
        for capabilities in (params.get("capabilities"), params.get("_meta", {}).get(CAPABILITIES)):
            if capabilities is not None:
                capabilities.pop("elicitation", None)
                if elicitation is not None:
                    capabilities["elicitation"] = elicitation

    return declare


class Rounds(LabTest):
    """The flow of create_issue over the three revisions that are served."""

    def subbench(self, name, *flags):
        """A data directory for one subtest."""
        return self.bench(*flags, name="".join(c if c.isalnum() else "-" for c in name))

    async def test_the_flow_as_the_sdk_drives_it(self):
        """Promise: a client that knows only `call_tool` creates one issue in every revision."""
        for revision in (MODERN, *LEGACY):
            with self.subTest(revision):
                bench, user = self.subbench(revision), User(accepted())
                async with bench.serve(revision=revision, user=user) as session:
                    announced = session.client.server_capabilities.extensions
                    self.assertEqual(announced, {"io.counterfoil/operations": {}})
                    for replayed in (False, True):
                        result = await session.client.call_tool("create_issue", issue(OP))
                        expected = {"operationId": OP, "state": "applied", "replayed": replayed}
                        expected |= {"result": "created 1", "effectId": 1}
                        self.assertEqual(result.structured_content, expected)
                    seen = await session.status(OP)
                self.check_status(seen, OP, "applied", ids=[1], result="created 1")
                self.assertEqual(len(user.forms), 1, "the retry is answered without asking again")
                self.assertEqual(list(user.forms[0].requested_schema["properties"]), ["body"])
                self.check_one_row(bench, OP)

    async def test_a_lost_reply_is_recovered_in_every_legacy_revision(self):
        """Promise: older clients recover by asking too, or by the same call again."""
        dies = ("--cut", "store.after_commit=exit:70")
        for revision in LEGACY:
            with self.subTest(revision):
                bench, user = self.subbench(revision), User(accepted())
                lossy = bench.serve(*dies, revision=revision, user=user, exit_code=70)
                async with lossy as session:
                    lost = await session.create(issue(OP))
                self.assertEqual(lost.kind, "lost", lost)
                async with bench.serve(revision=revision, user=user) as session:
                    seen = await session.status(OP)
                    again = await session.create(issue(OP))
                    changed = await session.create(issue(OP, body="Another text."))
                self.check_status(seen, OP, "applied", ids=[1], result="created 1")
                self.check_applied(again, OP, replayed=True)
                self.check_conflict(changed, OP)
                self.assertEqual(len(user.forms), 1)
                self.check_one_row(bench, OP)

    async def test_both_revisions_share_one_ledger(self):
        """Promise: an ID means one effect whichever revision its caller speaks."""
        bench = self.bench()
        async with bench.serve() as session:
            state = await session.ask(issue(OP))
            self.check_applied(await session.answer(issue(OP), state), OP)
        async with bench.serve(revision=LEGACY[0]) as session:
            again = await session.create(issue(OP))
        self.check_applied(again, OP, replayed=True)
        self.check_one_row(bench, OP)

    async def test_an_empty_elicitation_capability_means_forms(self):
        """Promise: `elicitation: {}` is a client that fills forms, in every revision."""
        for revision in (MODERN, *LEGACY):
            with self.subTest(revision):
                bench = self.subbench(revision)
                async with bench.serve(revision=revision, edit=declares({})) as session:
                    result = await session.client.call_tool("create_issue", issue(OP))
                self.assertEqual(result.structured_content["state"], "applied")
                self.check_one_row(bench, OP)

    async def test_a_modern_client_without_forms(self):
        """Promise: the missing capability is named by its code, and `body` needs none."""
        cases = {"none": (None, None), "urls": (User(accepted()), declares({"url": {}}))}
        for name, (user, edit) in cases.items():
            with self.subTest(name):
                bench = self.subbench(name)
                async with bench.serve(user=user, edit=edit) as session:
                    refused = await session.create(issue(OP))
                    made = await session.create(issue(OP, body=BODY))
                    again = await session.create(issue(OP, body=BODY))
                self.assertEqual((refused.kind, refused.body["code"]), ("error", -32021))
                needed = {"requiredCapabilities": {"elicitation": {"form": {}}}}
                self.assertEqual(refused.body["data"], needed)
                self.assertIn("body", refused.body["message"])
                self.check_applied(made, OP)
                self.check_applied(again, OP, replayed=True)
                self.check_one_row(bench, OP)

    async def test_a_legacy_client_without_forms(self):
        """Promise: an older client that cannot be asked is told of `body`, and nothing hangs."""
        for revision in LEGACY:
            with self.subTest(revision):
                bench = self.subbench(revision)
                async with bench.serve(revision=revision, user=None) as session:
                    refused = await session.create(issue(OP))
                    made = await session.create(issue(OP, body=BODY))
                self.check_refused(refused, OP, "invalid_argument", "none")
                self.assertIn("`body`", refused.body["error"]["message"])
                self.check_applied(made, OP)
                self.check_one_row(bench, OP)

    async def test_a_user_who_says_no(self):
        """Promise: decline and cancel write nothing, and the same ID may still be used."""
        for revision in (MODERN, *LEGACY):
            for answer in (DECLINE, CANCEL):
                with self.subTest(revision, answer=answer.action):
                    bench = self.subbench(f"{revision}-{answer.action}")
                    user = User(answer, accepted())
                    async with bench.serve(revision=revision, user=user) as session:
                        result = await session.client.call_tool("create_issue", issue(OP))
                        seen = await session.status(OP)
                    expected = {"operationId": OP, "state": "unknown", "action": answer.action}
                    self.assertEqual(result.structured_content, expected)
                    self.assertFalse(result.is_error)
                    self.check_status(seen, OP, "unknown", detail="no_record")
                    self.check_rows(bench, issues=0, operations=0)
                    async with bench.serve(revision=revision, user=user) as session:
                        result = await session.client.call_tool("create_issue", issue(OP))
                    self.assertEqual(result.structured_content["state"], "applied")
                    self.check_one_row(bench, OP)

    async def test_a_missing_or_unusable_answer_is_asked_for_again(self):
        """Promise: the same question with the same state: asking again extends nothing."""
        bench = self.bench()
        missing = [None, {}, {"other": accepted()}, {"body": types.ListRootsResult(roots=[])}]
        unusable = [{"body": answer} for answer in UNUSABLE]
        async with bench.serve() as session:
            state = await session.ask(issue(OP))
            for answers in missing + unusable:
                again = await session.create(issue(OP), state=state, answers=answers)
                self.assertEqual((again.kind, again.state), ("asked", state), answers)
                self.assertEqual(list(again.questions), ["body"])
            more = types.ElicitResult(action="accept", content={"body": BODY, "more": True})
            answers = {"other": DECLINE, "body": more}
            made = await session.create(issue(OP), state=state, answers=answers)
            self.check_applied(made, OP)
            # What was not asked for is no part of the request.
            self.check_applied(await session.answer(issue(OP), state), OP, replayed=True)
        self.check_one_row(bench, OP)

    async def test_an_older_client_is_asked_again_a_few_times(self):
        """Promise: an unusable answer over the older protocol ends in words on `body`."""
        for revision in LEGACY:
            with self.subTest(revision):
                bench, user = self.subbench(revision), User(*UNUSABLE)
                async with bench.serve(revision=revision, user=user) as session:
                    refused = await session.create(issue(OP))
                self.check_refused(refused, OP, "invalid_argument", "none")
                self.assertIn("`body`", refused.body["error"]["message"])
                self.assertGreater(len(user.forms), 1)
                self.check_rows(bench, issues=0, operations=0)

    async def test_every_bad_state_gets_one_answer(self):
        """Promise: nothing can be learned from a refused state, before or after the commit."""
        bench = self.bench("--state-s", "600")
        async with bench.serve(principal="bob") as session:
            foreign = await session.ask(issue(OP))
        async with bench.serve() as session:
            expired = await session.ask(issue(OP))
        async with bench.serve(at_ms=600_000) as session:
            good = await session.ask(issue(OP))
            bad = await self.bad_states(session, good, foreign, expired)
            for reply in [await self.send_bad(session, state) for state in bad]:
                self.check_state_refused(reply)
            moved = await session.answer(issue(OP, mode="partial"), good)
            self.check_state_refused(moved)
            self.check_state_refused(await session.answer({**issue(OP), "title": "T"}, good))
            self.check_applied(await session.answer(issue(OP), good), OP)
            for reply in [await self.send_bad(session, state) for state in bad]:
                self.check_state_refused(reply)
        replies = [call.words() for call in session.calls()]
        refusals = {words for words in replies if '"error":{"code"' in words}
        self.assertEqual(len(refusals), 1, "one answer, whatever the cause")
        self.assertEqual(sum(words in refusals for words in replies), 2 * len(bad) + 2)
        self.check_one_row(bench, OP, at_ms=600_000)

    async def bad_states(self, session, good, foreign, expired):
        """States that are not usable for `op`, each for a reason of its own; None is stripped."""
        other = await session.ask(issue("another-operation"))
        flipped = [good[:i] + ("A" if good[i] != "A" else "B") + good[i + 1 :] for i in (0, 40, -9)]
        shapes = ["", " ", "x", good[:-1], good + "A", good + "=", good + "==", good.upper()]
        shapes += [good + " ", "é" * 50, good.swapcase(), ".".join([good, good])]
        return [foreign, expired, other, *flipped, *shapes, None]

    async def send_bad(self, session, state):
        """The continuation with a bad state."""
        return await session.create(issue(OP), state=state, answers={"body": accepted()})

    async def test_a_refusal_names_its_operation(self):
        """Promise: whatever is wrong with a call, an ID that can be read is in the refusal."""
        bare = {"operation_id": OP}
        bad = {
            "an argument that is not known": issue(OP, titel="T"),
            "no title": bare,
            "a blank title": {**bare, "title": " "},
            "a title that is not text": {**bare, "title": 7},
            "an unknown mode": issue(OP, mode="both"),
            "a mode that is not text": issue(OP, mode=1),
            "a blank body": issue(OP, body=""),
        }
        bench = self.bench()
        async with bench.serve() as session:
            for name, arguments in bad.items():
                with self.subTest(name):
                    reply = await session.create(arguments)
                    self.check_refused(reply, OP, "invalid_argument", "none")
            reply = await session.create({**bare, "title": "T" * 513})
            self.check_refused(reply, OP, "too_large", "none")
            reply = await session.call("get_operation_status", {**bare, "principal": "bob"})
            self.check_refused(reply, OP, "invalid_argument", "none")
            unknown = await session.call("create_isue", issue(OP))
        self.assertEqual((unknown.kind, unknown.body["code"]), ("error", -32602))
        self.check_rows(bench, issues=0, operations=0)

    async def test_an_older_client_that_gives_no_answer(self):
        """Promise: a client whose form fails is told of `body`, and nothing was written."""
        failing = User(types.ErrorData(code=types.INTERNAL_ERROR, message="no screen"))
        for revision in LEGACY:
            with self.subTest(revision):
                bench = self.subbench(revision)
                async with bench.serve(revision=revision, user=failing) as session:
                    refused = await session.create(issue(OP))
                self.check_refused(refused, OP, "invalid_argument", "none")
                self.assertIn("`body`", refused.body["error"]["message"])
                self.check_rows(bench, issues=0, operations=0)

    async def test_state_and_answers_of_another_json_type(self):
        """Promise: what is no state and no map of answers is malformed: refused, never guessed."""
        odd = [("requestState", value) for value in (7, True, ["x"], {"a": 1})]
        odd += [("inputResponses", value) for value in (7, "x", ["x"])]

        def replace(message):
            if "requestState" in message.get("params", {}):
                name, value = odd.pop()
                message["params"][name] = value

        bench = self.bench()
        async with bench.serve(edit=replace) as session:
            state = await session.ask(issue(OP))
            while odd:
                reply = await session.answer(issue(OP), state)
                self.assertEqual((reply.kind, reply.body["code"]), ("error", -32602))
                self.assertEqual(reply.body["data"], {"retry": "status_only"})
        self.assertEqual(len({call.words() for call in session.calls()[1:]}), 1)
        self.check_rows(bench, issues=0, operations=0)

    async def test_answers_of_another_shape_are_asked_for_again(self):
        """Promise: an answer that is not in the form that was asked for is no answer."""
        accept = {"action": "accept"}
        odd = ["x", None, [], 7, {}, {"action": "yes"}, accept, {**accept, "content": "x"}]
        odd += [{**accept, "content": {"body": body}} for body in (None, ["x"], {"a": "x"}, "")]
        given = []

        def replace(message):
            if "requestState" in message.get("params", {}) and len(given) < len(odd):
                given.append(odd[len(given)])
                message["params"]["inputResponses"]["body"] = given[-1]

        bench = self.bench()
        async with bench.serve(edit=replace) as session:
            state = await session.ask(issue(OP))
            for answer in odd:
                again = await session.answer(issue(OP), state)
                self.assertEqual((again.kind, again.state), ("asked", state), answer)
            self.check_applied(await session.answer(issue(OP), state), OP)
        self.assertEqual(given, odd)
        self.check_one_row(bench, OP)

    async def test_the_operation_id_may_come_in_meta(self):
        """Promise: one identity, whichever way it arrives; two that differ are refused."""
        bench, key = self.bench(), "io.counterfoil/operationId"
        bare = {"title": "Export fails"}
        async with bench.serve() as session:
            asked = await session.create(bare, meta={key: OP})
            answers = {"body": accepted()}
            made = await session.create(bare, meta={key: OP}, state=asked.state, answers=answers)
            self.check_applied(made, OP)
            again = await session.answer(issue(OP), asked.state)
            self.check_applied(again, OP, replayed=True)
            differ = await session.create(issue(OP), meta={key: "another-operation"})
            missing = await session.create(bare)
        self.assertEqual(differ.body["error"]["code"], "invalid_argument")
        self.assertEqual(missing.body["error"]["code"], "operation_id_required")
        facts = self.check_one_row(bench, OP)
        self.assertEqual(facts["issues"][0]["created_at_ms"], START_MS)
