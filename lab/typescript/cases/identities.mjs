// Two bearer identities on one server: what is one's is not there for the other, and who is not let
// in reaches nothing.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { request as httpRequest } from "node:http";
import path from "node:path";

import { Client, SdkHttpError } from "@modelcontextprotocol/client";

import * as check from "./checks.mjs";
import { NO_AUTHORIZATION, http, newToken, tokenCommand, tokenOf } from "./http.mjs";
import { issue, labSuite } from "./lab.mjs";
import { keptSoFar, toolCalls, words } from "./replies.mjs";
import { BODY, MODERN, OP, PATIENCE_MS, PYTHON } from "./settings.mjs";
import { found } from "./watching.mjs";

const [ALICES, BOBS, NOBODYS] = ["operation-of-alice", "operation-of-bob", "operation-of-nobody"];
const META = "io.modelcontextprotocol/";
/** Calls of each principal that are under way at one time. */
const AT_ONCE = 12;
/** A call that writes at once if it is let in. */
const CALL = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "tools/call",
  params: {
    name: "create_issue",
    arguments: issue(OP, { body: BODY }),
    _meta: { [`${META}protocolVersion`]: MODERN, [`${META}clientCapabilities`]: {} },
  },
});
const CALL_HEADERS = {
  Accept: "application/json, text/event-stream",
  "Content-Type": "application/json",
  "MCP-Protocol-Version": MODERN,
  "Mcp-Method": "tools/call",
  "Mcp-Name": "create_issue",
};

/** Alice and Bob, each with a token, on one server and one ledger. */
export function identities() {
  labSuite(http, "two identities", CASES);
}

const CASES = {
  async "neither sees, replays or lists what is the other's"(makeBench) {
    // Promise: an operation of another principal looks like none, and its ID conflicts.
    const bench = makeBench();
    const { sessions, end } = await bench.share("alice", "bob");
    const pairs = [[sessions[0], ALICES, BOBS], [sessions[1], BOBS, ALICES]];
    for (const [session, own] of pairs) {
      const made = await session.answer(issue(own), await session.ask(issue(own)));
      assert.equal(made.body.state, "applied", JSON.stringify(made));
    }
    for (const [session, own, others] of pairs) {
      const seen = await session.status(others);
      check.checkStatus(seen, others, "unknown", { detail: "no_record" });
      await session.status(NOBODYS);
      check.checkConflict(await session.create(issue(others)), others);
      check.checkConflict(await session.create(issue(others, { body: BODY })), others);
      const listed = await session.call("list_operations", {});
      assert.deepEqual(listed.body.operations.map((one) => one.operationId), [own]);
      assert.equal((await session.create(issue(own))).body.replayed, true, "one's own replays");
    }
    await end();
    for (const [session, , others] of pairs) {
      const [hidden, none] = session.calls().slice(2, 4).map(words);
      assert.equal(hidden, none.replaceAll(NOBODYS, others), "it looks like no record at all");
    }
    const { operations } = await check.checkRows(bench, { issues: 2, operations: 2 });
    const owners = operations.map((row) => [row.operation_id, row.principal]);
    assert.deepEqual(owners.sort(), [[ALICES, "alice"], [BOBS, "bob"]]);
  },

  async "neither can use the other's state or cursor"(makeBench) {
    // Promise: a state and a cursor are worth nothing in other hands, before the commit and after
    // it, and the refusal tells nothing.
    const bench = makeBench();
    const { sessions, end } = await bench.share("alice", "bob");
    const [alice, bob] = sessions;
    const state = await alice.ask(issue(OP));
    const stolen = [await bob.answer(issue(OP), state)];
    check.checkStatus(await alice.status(OP), OP, "unknown", { detail: "no_record" });
    check.checkApplied(await alice.answer(issue(OP), state), OP);
    stolen.push(await bob.answer(issue(OP), state), await bob.answer(issue(OP), "made up"));
    await alice.create(issue(NOBODYS, { body: BODY }));
    const page = await alice.call("list_operations", { limit: 1 });
    const cursor = page.body.nextCursor;
    const foreign = await bob.call("list_operations", { limit: 1, cursor });
    const madeUp = await bob.call("list_operations", { limit: 1, cursor: "cl1.AAAA" });
    await end();
    stolen.forEach((reply) => check.checkStateRefused(reply));
    const refusals = new Set(bob.calls().slice(0, 3).map(words));
    assert.equal(refusals.size, 1, "one answer, whatever is wrong with a state");
    assert.equal(typeof cursor, "string");
    assert.equal(foreign.body.error.code, "invalid_argument");
    assert.deepEqual(foreign.body, madeUp.body);
    const { operations } = await check.checkRows(bench, { issues: 2, operations: 2 });
    assert.deepEqual(operations.map((row) => row.principal), ["alice", "alice"]);
  },

  async "equal JSON-RPC IDs never cross"(makeBench) {
    // Promise: calls of two principals with the same JSON-RPC IDs, all under way at one time, each
    // get their own answer.
    const bench = makeBench(["--lock-wait-ms", String(PATIENCE_MS)]);
    const { sessions, end } = await bench.share("alice", "bob");
    // Nothing commits, and so nothing is answered, until this lock is given back.
    const unlock = await lock(path.join(bench.data, "ledger.db"));
    const calls = ["alice", "bob"].map((name, at) =>
      Promise.all(numbers().map((number) => sessions[at].create(request(name, number)))),
    );
    for (const { link } of sessions) {
      const all = () => toolCalls(keptSoFar(link.transcript)).length === AT_ONCE;
      await found(path.dirname(link.transcript), "every call", all);
    }
    await unlock();
    const came = await Promise.all(calls);
    await end();
    for (const [at, name] of ["alice", "bob"].entries()) {
      const named = came[at].map((reply) => reply.body.operationId);
      assert.deepEqual(named, numbers().map((number) => request(name, number).operation_id));
    }
    const ids = sessions.map((session) => session.calls().map((call) => call.request.id).sort());
    assert.deepEqual(ids[0], ids[1], "both used the same IDs");
    assert.equal(new Set(ids[0]).size, AT_ONCE);
    for (const session of sessions) {
      const crossed = session.frames.filter((frame) => ids[0].includes(frame.message.id));
      const atOnce = [...Array(AT_ONCE).fill("client"), ...Array(AT_ONCE).fill("server")];
      assert.deepEqual(crossed.map((f) => f.from), atOnce, "all were under way at one time");
    }
    const count = 2 * AT_ONCE;
    const facts = await check.checkRows(bench, { issues: count, operations: count });
    for (const row of facts.operations) {
      assert.ok(row.operation_id.includes(`-${row.principal}-`), JSON.stringify(row));
    }
    for (const row of facts.issues) {
      assert.equal(row.body, `Text of ${row.operation_id}`);
    }
  },

  async "who is not let in reaches no tool"(makeBench) {
    // Promise: missing, malformed, wrong and revoked tokens are refused before anything of the call
    // is read: no row, no tool, not one message of the protocol.
    const bench = makeBench();
    const good = (await tokenOf(bench.data, "alice")).token;
    const revoked = await newToken(bench.data, "alice");
    const { running, end } = await bench.share();
    // It was good, and then it was taken away from a server that runs.
    await tokenCommand(bench.data, "revoke", revoked.id);
    const bad = badLogins(good, revoked.token);
    for (const [name, { values, status, challenge }] of Object.entries(bad)) {
      const reply = await post(`${running.url}/mcp`, values);
      assert.equal(reply.status, status, `${name}: ${reply.text}`);
      assert.equal(reply.challenge, challenge, name);
      assert.ok(!reply.text.includes(good), name);
    }
    const inUrl = await post(`${running.url}/mcp?access_token=${good}`, []);
    assert.equal(inUrl.status, 400, inUrl.text);
    const counts = await metrics(running);
    const reasons = [...Object.values(bad).map((one) => one.reason), "query"];
    for (const reason of new Set(reasons)) {
      const seen = counts[`counterfoil_http_unauthorized_total{reason="${reason}"}`];
      assert.equal(seen, reasons.filter((one) => one === reason).length, reason);
    }
    const requests = samples(counts, "counterfoil_http_requests_total");
    // Whose method is `none` was refused before its body was read.
    assert.deepEqual(requests.filter(([name]) => !name.includes('method="none"')), []);
    assert.equal(sum(requests), reasons.length);
    assert.deepEqual(samples(counts, "counterfoil_operations_total"), [], "no tool was reached");
    await checkNothing(bench);
    // The same call with a good token: what would have been seen.
    const letIn = await post(`${running.url}/mcp`, [`Bearer ${good}`]);
    assert.equal(letIn.status, 200, letIn.text);
    assert.equal(sum(samples(await metrics(running), "counterfoil_operations_total")), 1);
    await end();
    // The first look at the metrics proved that a write would commit: the clock that stands still
    // here has moved by its millisecond.
    await check.checkOneRow(bench, OP, { atMs: 1 });
    checkKeptNowhere(bench.folder, good);
  },

  async "the SDK is not let in either"(makeBench) {
    // Promise: a client without a good token cannot connect, and one whose token is revoked gets
    // nothing more.
    const bench = makeBench();
    const good = (await tokenOf(bench.data, "alice")).token;
    const revoked = await newToken(bench.data, "alice");
    const { running, sessions: [bob], end } = await bench.share("bob");
    check.checkStatus(await bob.status(OP), OP, "unknown", { detail: "no_record" });
    await tokenCommand(bench.data, "revoke", revoked.id);
    const bad = Object.values(badLogins(good, revoked.token));
    for (const [at, { values, status }] of bad.entries()) {
      if (values.length < 2) {
        await checkNotConnected(bench, running, at, values[0] ?? NO_AUTHORIZATION, status);
      }
    }
    await tokenCommand(bench.data, "revoke", (await tokenOf(bench.data, "bob")).id);
    await assert.rejects(bob.create(issue(OP, { body: BODY })), refusedWith(401));
    await end();
    const { length } = bob.calls().filter((call) => call.reply);
    assert.equal(length, 1, "the refusal is none of the protocol's messages");
    await checkNothing(bench);
    checkKeptNowhere(bench.folder, good);
  },
};

/** A client with this header connects to nothing, and gets no message. */
async function checkNotConnected(bench, running, number, authorization, status) {
  const folder = path.join(bench.folder, `refused-${number}`);
  mkdirSync(folder);
  const link = await running.join({ folder, authorization });
  const versionNegotiation = { mode: "auto" };
  const client = new Client({ name: "not let in", version: "1" }, { versionNegotiation });
  await assert.rejects(client.connect(link.transport), refusedWith(status));
  await client.close();
  const { frames } = await link.ended();
  assert.deepEqual(frames.filter((frame) => frame.from === "server"), []);
}

function refusedWith(status) {
  return (error) => error instanceof SdkHttpError && error.status === status;
}

function numbers() {
  return [...Array(AT_ONCE).keys()];
}

/** A call that is like no other. */
function request(name, number) {
  const operation = `operation-of-${name}-${number}`;
  return issue(operation, { body: `Text of ${operation}` });
}

/** By name: values of `Authorization`, status, challenge, and the word in the metrics. */
function badLogins(good, revoked) {
  const missing = { status: 401, challenge: "Bearer", reason: "missing" };
  const invalid = { status: 401, challenge: 'Bearer error="invalid_token"', reason: "invalid" };
  const challenge = 'Bearer error="invalid_request"';
  const malformed = { status: 400, challenge, reason: "malformed" };
  return {
    missing: { values: [], ...missing },
    "another scheme": { values: ["Basic YWxpY2U6eA=="], ...missing },
    "no token": { values: ["Bearer"], ...malformed },
    "two words": { values: [`Bearer ${good} ${good}`], ...malformed },
    "not a token": { values: [`Bearer "${good}"`], ...malformed },
    "two headers": { values: [`Bearer ${good}`, `Bearer ${good}`], ...malformed },
    wrong: { values: ["Bearer cf_wrong"], ...invalid },
    "wrong in the right form": { values: [`Bearer cf_${"A".repeat(43)}`], ...invalid },
    cut: { values: [`Bearer ${good.slice(0, -1)}`], ...invalid },
    longer: { values: [`Bearer ${good}A`], ...invalid },
    revoked: { values: [`Bearer ${revoked}`], ...invalid },
  };
}

/** The call with these values of `Authorization`, each in a header of its own. */
async function post(url, values) {
  // `fetch` would join them into one.
  const headers = [...Object.entries(CALL_HEADERS), ...values.map((v) => ["Authorization", v])];
  const { hostname, port } = new URL(url);
  const length = ["Content-Length", String(Buffer.byteLength(CALL))];
  const all = [["Host", `${hostname}:${port}`], length, ...headers].flat();
  const sent = httpRequest(url, { method: "POST", headers: all, timeout: PATIENCE_MS });
  sent.end(CALL);
  const [reply] = await once(sent, "response");
  const text = (await reply.setEncoding("utf8").toArray()).join("");
  // Without its words for people.
  const challenge = reply.headers["www-authenticate"]?.split(", error_description")[0];
  return { status: reply.statusCode, challenge, text };
}

/** The counts of a server by sample. */
async function metrics(running) {
  const text = await (await fetch(`${running.url}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line && !line.startsWith("#"));
  const cut = (line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.split(" ").at(-1))];
  return Object.fromEntries(lines.map(cut));
}

function samples(counts, family) {
  return Object.entries(counts).filter(([name]) => name.startsWith(family));
}

function sum(entries) {
  return entries.reduce((total, [, value]) => total + value, 0);
}

/** No row of anything. */
async function checkNothing(bench) {
  const facts = await bench.facts();
  assert.deepEqual(Object.entries(facts).filter(([, rows]) => rows.length > 0), []);
}

/** No transcript, no ledger, no file of tokens holds the text of one. */
function checkKeptNowhere(folder, token) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  const kept = files.filter((file) => file.isFile());
  assert.ok(kept.some((file) => file.name === "tokens.json"), "the search covers the data");
  for (const file of kept) {
    const bytes = readFileSync(path.join(file.parentPath ?? file.path, file.name));
    assert.ok(!bytes.includes(token), `${file.name} holds a token`);
  }
}

// Node 20 has no SQLite of its own.
const LOCK = `
import sqlite3, sys
ledger = sqlite3.connect(sys.argv[1], isolation_level=None)
ledger.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
ledger.execute("ROLLBACK")
`;

/** Takes the ledger's lock of writers, and gives what gives it back. */
async function lock(ledger) {
  const holder = spawn(PYTHON, ["-c", LOCK, ledger], { stdio: ["pipe", "pipe", "inherit"] });
  const left = once(holder, "close");
  await Promise.race([once(holder.stdout, "data"), left]);
  return async () => {
    holder.stdin.end();
    assert.deepEqual(await left, [0, null], "the lock was held to the end");
  };
}
