"""Two bearer identities on one server: what is one's is not there for the other, and who is not let
in reaches nothing.
"""

import asyncio
import contextlib
import sqlite3

import httpx2
import mcp

from cases import replies
from cases.checks import LabTest
from cases.lab import BODY, OP, TITLE, issue
from cases.over_http import Http, make_token, new_token, token_command
from cases.settings import MODERN, PATIENCE_S

META = "io.modelcontextprotocol/"
ALICES, BOBS, NOBODYS = "operation-of-alice", "operation-of-bob", "operation-of-nobody"
# Calls of each principal that are under way at one time.
AT_ONCE = 12
# A call that writes at once if it is let in.
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "create_issue",
        "arguments": issue(OP, body=BODY),
        "_meta": {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}},
    },
}
CALL_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": MODERN,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "create_issue",
}


class Identities(LabTest):
    """Alice and Bob, each with a token, on one server and one ledger."""

    transport = Http()

    async def test_neither_sees_replays_or_lists_what_is_the_others(self):
        """Promise: an operation of another principal looks like none, and its ID conflicts."""
        bench = self.bench()
        async with bench.share("alice", "bob") as (_, alice, bob):
            pairs = ((alice, ALICES, BOBS), (bob, BOBS, ALICES))
            for session, own, _ in pairs:
                state = await session.ask(issue(own))
                made = await session.answer(issue(own), state)
                self.assertEqual(made.body["state"], "applied", made)
            for session, own, others in pairs:
                seen = await session.status(others)
                self.check_status(seen, others, "unknown", detail="no_record")
                await session.status(NOBODYS)
                self.check_conflict(await session.create(issue(others)), others)
                self.check_conflict(await session.create(issue(others, body=BODY)), others)
                self.assertEqual(await self.names(session), [own])
                # What is one's own still replays.
                again = await session.create(issue(own))
                self.assertIs(again.body["replayed"], True, again)
        for session, _, others in pairs:
            hidden, none = [call.words() for call in session.calls()[2:4]]
            alike = none.replace(NOBODYS, others)
            self.assertEqual(hidden, alike, "it looks like no record at all")
        facts = self.check_rows(bench, issues=2, operations=2)
        owners = [(row["operation_id"], row["principal"]) for row in facts["operations"]]
        self.assertEqual(sorted(owners), [(ALICES, "alice"), (BOBS, "bob")])

    async def test_neither_can_use_the_others_state_or_cursor(self):
        """Promise: a state and a cursor are worth nothing in other hands, before the commit and
        after it, and the refusal tells nothing."""
        bench = self.bench()
        async with bench.share("alice", "bob") as (_, alice, bob):
            state = await alice.ask(issue(OP))
            stolen = [await bob.answer(issue(OP), state)]
            self.check_status(await alice.status(OP), OP, "unknown", detail="no_record")
            self.check_applied(await alice.answer(issue(OP), state), OP)
            stolen.append(await bob.answer(issue(OP), state))
            stolen.append(await bob.answer(issue(OP), "made up"))
            await alice.create(issue(NOBODYS, body=BODY))
            page = await alice.call("list_operations", {"limit": 1})
            cursor = page.body["nextCursor"]
            foreign = await bob.call("list_operations", {"limit": 1, "cursor": cursor})
            made_up = await bob.call("list_operations", {"limit": 1, "cursor": "cl1.AAAA"})
        for reply in stolen:
            self.check_state_refused(reply)
        refusals = {call.words() for call in bob.calls()[:3]}
        self.assertEqual(len(refusals), 1, "one answer, whatever is wrong with a state")
        self.assertIsNotNone(cursor)
        self.assertEqual(foreign.body["error"]["code"], "invalid_argument")
        self.assertEqual(foreign.body, made_up.body)
        facts = self.check_rows(bench, issues=2, operations=2)
        self.assertEqual({row["principal"] for row in facts["operations"]}, {"alice"})

    async def test_equal_json_rpc_ids_never_cross(self):
        """Promise: calls of two principals with the same JSON-RPC IDs, all under way at one time,
        each get their own answer."""
        bench = self.bench("--lock-wait-ms", str(PATIENCE_S * 1000))
        async with bench.share("alice", "bob") as (_, alice, bob):
            with contextlib.closing(sqlite3.connect(bench.data / "ledger.db")) as other:
                other.isolation_level = None
                # Nothing commits, and so nothing is answered, until this lock is given back.
                other.execute("BEGIN IMMEDIATE")
                calls = {
                    name: [session.create(request(name, number)) for number in range(AT_ONCE)]
                    for session, name in ((alice, "alice"), (bob, "bob"))
                }
                under_way = {name: asyncio.gather(*made) for name, made in calls.items()}
                for session in (alice, bob):
                    await self.until_sent(session, AT_ONCE)
                other.execute("ROLLBACK")
                came = {name: await answers for name, answers in under_way.items()}
        for name, answers in came.items():
            named = [reply.body["operationId"] for reply in answers]
            self.assertEqual(named, [request(name, n)["operation_id"] for n in range(AT_ONCE)])
        ids = [[call.request["id"] for call in session.calls()] for session in (alice, bob)]
        self.assertEqual(sorted(ids[0]), sorted(ids[1]), "both used the same IDs")
        self.assertEqual(len(set(ids[0])), AT_ONCE)
        for session in (alice, bob):
            crossed = [f.sender for f in session.frames if f.message.get("id") in ids[0]]
            at_once = ["client"] * AT_ONCE + ["server"] * AT_ONCE
            self.assertEqual(crossed, at_once, "all were under way at one time")
        facts = self.check_rows(bench, issues=2 * AT_ONCE, operations=2 * AT_ONCE)
        for row in facts["operations"]:
            self.assertIn(f"-{row['principal']}-", row["operation_id"])
        for row in facts["issues"]:
            self.assertEqual(row["body"], f"Text of {row['operation_id']}")

    async def test_who_is_not_let_in_reaches_no_tool(self):
        """Promise: missing, malformed, wrong and revoked tokens are refused before anything of the
        call is read: no row, no tool, not one message of the protocol."""
        bench = self.bench()
        good = make_token(bench.data, "alice")["token"]
        revoked = new_token(bench.data, "alice")
        async with bench.share() as (running,), httpx2.AsyncClient() as browser:

            async def post(*values, query=""):
                given = [*CALL_HEADERS.items(), *(("Authorization", value) for value in values)]
                return await browser.post(f"{running.url}/mcp{query}", json=CALL, headers=given)

            # It was good, and then it was taken away from a server that runs.
            token_command(bench.data, "revoke", revoked["id"])
            bad = bad_logins(good, revoked["token"])
            for name, (values, status, challenge, _) in bad.items():
                with self.subTest(name):
                    reply = await post(*values)
                    self.assertEqual(reply.status_code, status, reply.text)
                    self.assertEqual(_challenge(reply), challenge)
                    self.assertNotIn(good, reply.text)
            in_url = await post(query=f"?access_token={good}")
            self.assertEqual(in_url.status_code, 400, in_url.text)
            counts = await metrics(browser, running)
            reasons = [reason for *_, reason in bad.values()] + ["query"]
            for reason in set(reasons):
                sample = f'counterfoil_http_unauthorized_total{{reason="{reason}"}}'
                self.assertEqual(counts.pop(sample), reasons.count(reason), reason)
            # Whose method is `none` was refused before its body was read.
            of = [name for name in counts if name.startswith("counterfoil_http_requests_total")]
            self.assertEqual([name for name in of if 'method="none"' not in name], [])
            self.assertEqual(sum(counts[name] for name in of), len(reasons))
            self.assertEqual(tool_calls(counts), {}, "no tool was reached")
            self.check_nothing(bench)
            # The same call with a good token: what would have been seen.
            let_in = await post(f"Bearer {good}")
            self.assertEqual(let_in.status_code, 200, let_in.text)
            counts = await metrics(browser, running)
            self.assertEqual(sum(tool_calls(counts).values()), 1)
        # The first look at the metrics proved that a write would commit: the clock that stands
        # still here has moved by its millisecond.
        self.check_one_row(bench, OP, at_ms=1)
        self.check_kept_nowhere(good)

    async def test_the_sdk_is_not_let_in_either(self):
        """Promise: a client without a good token is told of no tool, and one whose token is revoked
        gets nothing more."""
        bench = self.bench()
        good = make_token(bench.data, "alice")["token"]
        revoked = new_token(bench.data, "alice")
        async with bench.share("bob") as (running, bob):
            self.check_status(await bob.status(OP), OP, "unknown", detail="no_record")
            token_command(bench.data, "revoke", revoked["id"])
            for name, (values, *_) in bad_logins(good, revoked["token"]).items():
                if len(values) > 1:
                    continue
                with self.subTest(name):
                    transcript = self.folder / f"{name.replace(' ', '-')}.jsonl"
                    joined = running.join("alice", transcript, authorization=(*values, None)[0])
                    async with joined as streams, mcp.Client(streams, mode=MODERN) as client:
                        with self.assertRaises(mcp.MCPError):
                            await client.list_tools()
                    frames = replies.read_transcript(transcript)
                    # The client's own may be missing: it was refused before its body was sent.
                    self.assertNotIn("server", {frame.sender for frame in frames})
            token_command(bench.data, "revoke", make_token(bench.data, "bob")["id"])
            refused = await bob.create(issue(OP, body=BODY))
            self.assertEqual(refused.kind, "error", refused)
        answered = [call for call in bob.calls() if call.reply is not None]
        self.assertEqual(len(answered), 1, "the refusal is none of the protocol's messages")
        self.check_nothing(bench)
        self.check_kept_nowhere(good)

    async def names(self, session):
        """The IDs that a principal finds by asking."""
        reply = await session.call("list_operations", {})
        return [operation["operationId"] for operation in reply.body["operations"]]

    async def until_sent(self, session, count):
        """Waits until the relay has kept that many tool calls of this client."""
        async with asyncio.timeout(PATIENCE_S):
            while len(replies.exchanges(replies.kept_so_far(session.transcript))) < count:
                # Lets the calls go on their way.
                await asyncio.sleep(0)

    def check_nothing(self, bench):
        """No row of anything."""
        facts = bench.facts()
        self.assertEqual({name: rows for name, rows in facts.items() if rows}, {})

    def check_kept_nowhere(self, token):
        """No transcript, no ledger, no file of tokens holds the text of one."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        self.assertIn("tokens.json", {path.name for path in files}, "the search covers the data")
        for path in files:
            self.assertNotIn(token.encode(), path.read_bytes(), path.name)


def request(name, number):
    """A call that is like no other."""
    operation = f"operation-of-{name}-{number}"
    return issue(operation, body=f"Text of {operation}")


def bad_logins(good, revoked):
    """By name: values of `Authorization`, status, challenge, and the word in the metrics."""
    malformed = (400, 'Bearer error="invalid_request"', "malformed")
    invalid = (401, 'Bearer error="invalid_token"', "invalid")
    missing = (401, "Bearer", "missing")
    return {
        "missing": ((), *missing),
        "another scheme": (("Basic YWxpY2U6eA==",), *missing),
        "no token": (("Bearer",), *malformed),
        "two words": ((f"Bearer {good} {good}",), *malformed),
        "not a token": ((f'Bearer "{good}"',), *malformed),
        "two headers": ((f"Bearer {good}", f"Bearer {good}"), *malformed),
        "wrong": (("Bearer cf_wrong",), *invalid),
        "wrong in the right form": (("Bearer cf_" + "A" * 43,), *invalid),
        "cut": ((f"Bearer {good[:-1]}",), *invalid),
        "longer": ((f"Bearer {good}A",), *invalid),
        "revoked": ((f"Bearer {revoked}",), *invalid),
    }


def _challenge(reply):
    """The challenge without its words for people."""
    return reply.headers["WWW-Authenticate"].split(", error_description")[0]


async def metrics(browser, running):
    """The counts of a server by sample."""
    text = (await browser.get(f"{running.url}/metrics")).text
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def tool_calls(counts):
    """The counts of calls that came to a tool."""
    return {k: v for k, v in counts.items() if k.startswith("counterfoil_operations_total")}
