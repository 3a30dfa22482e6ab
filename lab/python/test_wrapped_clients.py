"""The official Python SDK's client works through `counterfoil wrap` as it works without it."""

import asyncio

from mcp import types
from mcp.shared.exceptions import MCPError

from cases.checks import LabTest
from cases.settings import LEGACY, MODERN, PATIENCE_S
from cases.wrapped_notes import Notes, said, stands

REVISIONS = (MODERN, *LEGACY)


class WrappedClients(LabTest):
    """One small server, in each revision."""

    def notes(self, revision, name=""):
        """New notes and a new ledger."""
        folder = self.folder / f"{revision}{name}"
        folder.mkdir()
        return Notes(folder, revision)

    async def test_everything_that_is_not_guarded(self):
        """Promise: lists, reads, resources, prompts, pings and errors work as without a wrap."""
        for revision in REVISIONS:
            with self.subTest(revision):
                notes = self.notes(revision)
                async with notes.client() as client:
                    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                    self.assertEqual(
                        list(tools),
                        ["add_note", "list_notes", "count", "ask_user", "ask_model"]
                        + ["get_operation_status"],
                    )
                    declared = tools["add_note"].input_schema["properties"]
                    self.assertEqual(list(declared), ["text", "operation_id", "repeat_of"])
                    self.assertEqual(tools["list_notes"].input_schema["properties"], {})
                    self.assertEqual(said(await client.call_tool("list_notes")), [""])
                    await client.call_tool("add_note", {"text": "eins é"})
                    self.assertEqual(said(await client.call_tool("list_notes")), ["eins é\n"])
                    found = (await client.list_resources()).resources
                    self.assertEqual([str(it.uri) for it in found], ["notes://all"])
                    read = await client.read_resource("notes://all")
                    self.assertEqual([it.text for it in read.contents], ["eins é\n"])
                    prompts = (await client.list_prompts()).prompts
                    self.assertEqual([it.name for it in prompts], ["summary"])
                    prompt = await client.get_prompt("summary", {"style": "kurz"})
                    self.assertIn("kurz", prompt.messages[0].content.text)
                    with self.assertRaises(MCPError) as refused:
                        await client.read_resource("notes://none")
                    message = refused.exception.error.message
                    self.assertEqual(message, "there is no resources/read é")

    async def test_questions_and_progress(self):
        """Promise: what the server asks user and model reaches them once, and their answers it; its
        progress reaches the caller."""
        for revision in REVISIONS:
            with self.subTest(revision):
                notes = self.notes(revision)
                async with notes.client() as client:
                    for name, argument, answer in (
                        ("ask_user", {"question": "Wirklich?"}, "the user said ja é 🦀"),
                        ("ask_model", {"prompt": "Sag an é"}, "the model said tokens é"),
                    ):
                        call = {**argument, "operation_id": name}
                        for replayed in (False, True):
                            result = await client.call_tool(name, call)
                            self.assertEqual(said(result), [answer])
                            self.assertEqual(stands(result)["replayed"], replayed)
                            self.assertEqual(stands(result)["state"], "applied")
                    self.assertEqual(notes.asked, ["Wirklich?", "Sag an é"])
                    steps = []

                    async def progress(step, total, _message):
                        steps.append((step, total))

                    result = await client.call_tool("count", {"to": 3}, progress_callback=progress)
                    self.assertEqual(said(result), ["3"])
                    self.assertEqual(steps, [(1, 3), (2, 3), (3, 3)])

    async def test_a_server_that_dies_in_mid_call(self):
        """Promise: the call that lost its reply is answered by what is found, and nothing is done
        twice."""
        for revision in REVISIONS:
            with self.subTest(revision):
                notes = self.notes(revision)
                notes.tell("die")
                call = {"text": "a", "operation_id": "op"}
                async with notes.client() as client:
                    doubt = await client.call_tool("add_note", call)
                    self.check_found(await recovered(client, call, doubt), "a", "op")
                    self.assertEqual(said(await client.call_tool("list_notes")), ["a\n"])
                self.assertEqual(notes.kept(), ["a"])

    async def test_a_reply_that_is_lost_with_the_wrap(self):
        """Promise: a client that lost a reply asks once more, by the operation's ID or with the
        same arguments alone, and nothing is done twice."""
        calls = [{"text": "a", "operation_id": "op"}, {"text": "b"}]
        # Each waits until the lease of the wrap that was killed has run out.
        cases = [(revision, call) for revision in REVISIONS for call in calls]
        outcomes = [self.lose_and_recover(revision, call) for revision, call in cases]
        for case, failure in zip(cases, await asyncio.gather(*outcomes, return_exceptions=True)):
            with self.subTest(case):
                if failure is not None:
                    raise failure

    async def lose_and_recover(self, revision, call):
        """One lost reply, and the client that comes after it."""
        notes = self.notes(revision, call["text"])
        await self.lose_a_reply(notes, call)
        async with notes.client() as client:
            first = await client.call_tool("add_note", call)
            operation = stands(first)["operationId"]
            result = await recovered(client, call, first)
            self.check_found(result, call["text"], operation)
            if "operation_id" not in call:
                # It is answered now: the same call again is another note.
                again = await client.call_tool("add_note", call)
                self.assertNotEqual(stands(again)["operationId"], operation)
        times = 1 if "operation_id" in call else 2
        self.assertEqual(notes.kept(), [call["text"]] * times)

    def check_found(self, result, text, operation):
        """What is answered for an operation that was found."""
        self.assertEqual(said(result)[0], f"found {text}")
        self.assertFalse(result.is_error)
        self.assertEqual(stands(result)["operationId"], operation)
        self.assertEqual(stands(result)["state"], "applied")

    async def lose_a_reply(self, notes, call):
        """The wrap is killed when the note is written and its reply is not."""
        notes.tell("silent")
        async with notes.client() as client:
            asking = asyncio.create_task(client.call_tool("add_note", call))
            await found(lambda: notes.kept() == [call["text"]])
            notes.kill()
            with self.assertRaises(MCPError) as lost:
                await asking
            self.assertEqual(lost.exception.error.code, types.CONNECTION_CLOSED)
        notes.untell("silent")


async def recovered(client, call, first):
    """What a call is answered with in the end: while it is in doubt, its status is asked for."""
    if stands(first)["state"] != "unknown":
        return first
    if stands(first)["retry"] != "status_only":
        raise AssertionError(f"in doubt, and yet it may be sent: {first}")
    status = {"operation_id": stands(first)["operationId"]}

    async def state():
        seen = await client.call_tool("get_operation_status", status)
        return seen.structured_content["state"]

    async with asyncio.timeout(PATIENCE_S):
        while await state() == "unknown":
            await asyncio.sleep(0.05)
    return await client.call_tool("add_note", call)


async def found(look):
    """Waits until `look` finds something."""
    async with asyncio.timeout(PATIENCE_S):
        while not look():
            await asyncio.sleep(0.02)
