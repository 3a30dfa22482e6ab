// The twelve cases, over any transport. Each says in its first line what it promises.

import assert from "node:assert/strict";
import path from "node:path";

import * as check from "./checks.mjs";
import * as consumer from "./consumer.mjs";
import { issue, labSuite } from "./lab.mjs";
import { words } from "./replies.mjs";
import { BODY, DIES_AFTER_COMMIT, TITLE } from "./settings.mjs";

const PARTIAL = "created 1; watcher absent; compensation failed";

/** What a client may rely on when replies are lost, repeated or changed. */
export function twelveCases(transport) {
  labSuite(transport, "the twelve cases", TWELVE);
}

export const TWELVE = {
  async "01 an identical retry gets the same stored result"(makeBench) {
    // Promise: the same identity and fingerprint replays, and writes nothing more.
    const op = "case-01-operation";
    const bench = makeBench();
    const server = await bench.serve();
    const state = await server.ask(issue(op));
    check.checkApplied(await server.answer(issue(op), state), op);
    const again = await server.answer(issue(op), state);
    check.checkApplied(again, op, { replayed: true });
    // An honest retry begins at round one: it is not asked again.
    const anew = await server.create(issue(op));
    check.checkApplied(anew, op, { replayed: true });
    await server.end();
    const [, first, second, third] = server.calls().map(words);
    assert.equal(second, asReplay(first));
    assert.equal(third, second);
    await check.checkOneRow(bench, op);
  },

  async "02 a state whose continuation is never sent"(makeBench) {
    // Promise: round one writes nothing, and an absent record is unknown, never `not done`.
    const op = "case-02-operation";
    const bench = makeBench();
    const server = await bench.serve();
    await server.ask(issue(op));
    const seen = await server.status(op);
    await server.end();
    check.checkStatus(seen, op, "unknown", { detail: "no_record" });
    assert.deepEqual(consumer.accept(seen, op, "alice"), {
      submission: "unknown",
      effect: "unknown",
      action: "stop",
    });
    await check.checkRows(bench, { issues: 0, operations: 0 });
  },

  async "03 a commit whose reply is lost"(makeBench) {
    // Promise: a lost reply stays unknown until the record answers, and is found there.
    const op = "case-03-operation";
    const bench = makeBench();
    const state = await loseReply(bench, op);
    const server = await bench.serve();
    const seen = await server.status(op);
    const replay = await server.answer(issue(op), state);
    await server.end();
    check.checkStatus(seen, op, "applied", { ids: [1], result: "created 1" });
    checkRecovered(seen, op);
    check.checkApplied(replay, op, { replayed: true });
    assert.equal(replay.body.result, seen.storedResult);
    await check.checkOneRow(bench, op);
  },

  async "04 the same state with changed answers"(makeBench) {
    // Promise: changed answers conflict before a second effect and learn nothing.
    const op = "case-04-operation";
    const bench = makeBench();
    const server = await bench.serve();
    const state = await server.ask(issue(op));
    check.checkApplied(await server.answer(issue(op), state), op);
    const changed = [
      await server.answer(issue(op), state, "Another text."),
      // Changed arguments begin at round one, since a state fits its own arguments alone.
      await server.create(issue(op, { title: "Another title" })),
      await server.create(issue(op, { mode: "partial" })),
      await server.create(issue(op, { body: BODY })),
    ];
    const exact = await server.answer(issue(op), state);
    await server.end();
    changed.forEach((reply) => check.checkConflict(reply, op));
    check.checkApplied(exact, op, { replayed: true });
    const conflicts = new Set(server.calls().slice(2, 6).map(words));
    assert.equal(conflicts.size, 1, "conflicts are byte-identical, whatever was changed");
    for (const secret of [TITLE, BODY, "created 1", "effectId"]) {
      assert.ok(![...conflicts][0].includes(secret), `a conflict tells: ${secret}`);
    }
    await check.checkOneRow(bench, op);
  },

  async "05 a second state for the same ID"(makeBench) {
    // Promise: another issuance is another request, and a tampered state is none at all.
    const op = "case-05-operation";
    const bench = makeBench();
    const server = await bench.serve();
    const first = await server.ask(issue(op));
    const second = await server.ask(issue(op));
    assert.notEqual(first, second, "each state has a nonce of its own");
    const tampered = flip(first, Math.floor(first.length / 2));
    check.checkStateRefused(await server.answer(issue(op), tampered));
    check.checkApplied(await server.answer(issue(op), first), op);
    check.checkConflict(await server.answer(issue(op), second), op);
    check.checkStateRefused(await server.answer(issue(op), tampered));
    await server.end();
    const said = server.calls().map(words);
    assert.equal(said[5], said[2], "the refusal tells nothing of the record");
    await check.checkOneRow(bench, op);
  },

  async "06 another principal"(makeBench) {
    // Promise: principals of one ledger cannot use, replay or see each other's operations.
    const op = "case-06-operation";
    const bench = makeBench();
    const before = await bench.serve({ principal: "bob" });
    const bobs = await before.ask(issue(op));
    await before.end();
    const alice = await bench.serve();
    const state = await alice.ask(issue(op));
    check.checkApplied(await alice.answer(issue(op), state), op);
    check.checkConflict(await alice.answer(issue(op), state, "Another text."), op);
    await alice.end();
    const bob = await bench.serve({ principal: "bob" });
    check.checkStateRefused(await bob.answer(issue(op), state));
    check.checkConflict(await bob.answer(issue(op), bobs), op);
    check.checkConflict(await bob.create(issue(op)), op);
    check.checkConflict(await bob.create(issue(op, { body: BODY })), op);
    const seen = await bob.status(op);
    await bob.status("case-xx-operation");
    await bob.end();
    const conflicts = [alice.calls()[2], ...bob.calls().slice(1, 4)].map(words);
    assert.equal(new Set(conflicts).size, 1, "conflicts are byte-identical, whatever their cause");
    check.checkStatus(seen, op, "unknown", { detail: "no_record" });
    const [hidden, none] = bob.calls().slice(-2).map(words);
    const absent = none.replaceAll("case-xx-operation", op);
    assert.equal(hidden, absent, "it looks like no record at all");
    assert.equal(consumer.accept(seen, op, "bob").action, "stop");
    await check.checkOneRow(bench, op);
  },

  async "07 authority ends while state and retention are valid"(makeBench) {
    // Promise: after its authority ended a continuation writes and replays nothing.
    const op = "case-07-operation";
    const other = "case-07b-operation";
    const bench = makeBench(lifetimes({ state: 600, authority: 60, retention: 3600 }));
    const start = await bench.serve();
    const state = await start.ask(issue(op));
    const unused = await start.ask(issue(other));
    check.checkApplied(await start.answer(issue(op), state), op);
    await start.end();
    const last = await bench.serve({ atMs: 59_999 });
    const replay = await last.answer(issue(op), state);
    check.checkApplied(replay, op, { replayed: true });
    await last.end();
    const late = await bench.serve({ atMs: 60_000 });
    for (const [operation, sealed] of [[op, state], [other, unused]]) {
      const refused = await late.answer(issue(operation), sealed);
      check.checkRefused(refused, operation, "operation_authority_expired", "status_only");
    }
    const seen = await late.status(op);
    const never = await late.status(other);
    await late.end();
    check.checkStatus(seen, op, "applied", { ids: [1], result: "created 1" });
    check.checkStatus(never, other, "unknown", { detail: "no_record" });
    checkRecovered(seen, op);
    await check.checkOneRow(bench, op);
  },

  async "08 two processes with the same continuation"(makeBench) {
    // Promise: two processes on one ledger apply once; the other one replays.
    const op = "case-08-operation";
    const bench = makeBench();
    const start = await bench.serve();
    const state = await start.ask(issue(op));
    await start.end();
    const flags = ["--barrier", `${path.join(bench.folder, "barrier")}:2`];
    const servers = [await bench.serve({ flags }), await bench.serve({ flags })];
    const both = await Promise.all(servers.map((s) => s.answer(issue(op), state)));
    for (const server of servers) {
      await server.end();
    }
    const [applied, replayed] = both.sort((a, b) => a.body.replayed - b.body.replayed);
    check.checkApplied(applied, op);
    check.checkApplied(replayed, op, { replayed: true });
    await check.checkOneRow(bench, op);
  },

  async "09 a hard exit after the commit, and status alone"(makeBench) {
    // Promise: asking is enough to recover a result; nothing is sent again.
    const op = "case-09-operation";
    const bench = makeBench();
    await loseReply(bench, op);
    const server = await bench.serve();
    const seen = await server.status(op);
    await server.end();
    assert.deepEqual(server.sent(), ["server/discover", "get_operation_status"]);
    check.checkStatus(seen, op, "applied", { ids: [1], result: "created 1" });
    checkRecovered(seen, op);
    await check.checkOneRow(bench, op);
  },

  async "10 retention ends, and the ID never becomes new work"(makeBench) {
    // Promise: after retention an ID is refused for ever, by whatever way it comes.
    const op = "case-10-operation";
    const bench = makeBench(lifetimes({ state: 600, authority: 3600, retention: 60 }));
    const at = async (atMs, steps) => {
      const server = await bench.serve({ atMs });
      const last = await steps(server);
      await server.end();
      return last;
    };
    const first = await at(0, (server) => server.ask(issue(op)));
    // Round one writes nothing, so a later clock may mint before an earlier one applies.
    const second = await at(500_000, (server) => server.ask(issue(op)));
    const applied = await at(0, (server) => server.answer(issue(op), first));
    check.checkApplied(applied, op);
    const replay = await at(59_999, (server) => server.answer(issue(op), first));
    check.checkApplied(replay, op, { replayed: true });
    const seen = await at(60_000, async (server) => {
      checkRetentionEnded(await server.answer(issue(op), first));
      return server.status(op);
    });
    const late = await at(600_000, async (server) => {
      check.checkStateRefused(await server.answer(issue(op), first));
      checkRetentionEnded(await server.answer(issue(op), second));
      // A fresh state for the old ID is not even handed out.
      checkRetentionEnded(await server.create(issue(op)));
      checkRetentionEnded(await server.create(issue(op, { body: BODY })));
      return server.status(op);
    });
    for (const observation of [seen, late]) {
      assert.equal(observation.state, "applied");
      assert.deepEqual(observation.matchingIds, [1]);
      assert.equal(consumer.accept(observation, op, "alice").effect, "applied");
    }
    const facts = await check.checkRows(bench, { issues: 1, operations: 1 });
    assert.equal(facts.operations[0].operation_id, op, "the tombstone stays");
  },

  async "11 the state is stripped on its way"(makeBench) {
    // Promise: answers without their state write nothing, and a fresh round still works.
    const op = "case-11-operation";
    let stripped = 0;
    const edit = (message) => {
      if (stripped === 0 && message.params?.requestState !== undefined) {
        delete message.params.requestState;
        stripped += 1;
      }
    };
    const bench = makeBench();
    const server = await bench.serve({ edit });
    const state = await server.ask(issue(op));
    check.checkStateRefused(await server.answer(issue(op), state));
    const seen = await server.status(op);
    check.checkStatus(seen, op, "unknown", { detail: "no_record" });
    const fresh = await server.ask(issue(op));
    check.checkApplied(await server.answer(issue(op), fresh), op);
    await server.end();
    const { params } = server.calls()[1].request;
    assert.ok("inputResponses" in params && !("requestState" in params), "the state was stripped");
    await check.checkOneRow(bench, op);
  },

  async "12 a partial effect whose compensation fails"(makeBench) {
    // Promise: what happened in part stays visible as such, and a replay repeats no step.
    const op = "case-12-operation";
    const bench = makeBench();
    const request = issue(op, { mode: "partial" });
    const start = await bench.serve();
    const state = await start.ask(request);
    checkPartialReply(await start.answer(request, state), false);
    await start.end();
    const before = await checkPartialRows(bench);
    const server = await bench.serve();
    checkPartialReply(await server.answer(request, state), true);
    const seen = await server.status(op);
    await server.end();
    check.checkStatus(seen, op, "partial", { ids: [1], result: PARTIAL });
    assert.deepEqual(consumer.accept(seen, op, "alice"), {
      submission: "admitted",
      effect: "partial",
      action: "stop",
    });
    assert.deepEqual(await checkPartialRows(bench), before, "a replay repeats nothing");
  },
};

/** The server commits and dies before it replies; gives the state that was used. */
async function loseReply(bench, operationId) {
  const server = await bench.serve({ flags: DIES_AFTER_COMMIT });
  const state = await server.ask(issue(operationId));
  const lost = await server.answer(issue(operationId), state);
  await server.end(70);
  check.checkLost(server, lost);
  assert.deepEqual(consumer.AFTER_A_LOST_REPLY, {
    submission: "unknown",
    effect: "unknown",
    action: "reconcile",
  });
  return state;
}

function checkRecovered(seen, operationId) {
  assert.deepEqual(consumer.accept(seen, operationId, "alice"), {
    submission: "admitted",
    effect: "applied",
    action: "return_stored_result",
  });
}

function checkRetentionEnded(reply) {
  check.checkRefused(reply, "case-10-operation", "operation_retention_expired", "status_only");
}

function checkPartialReply(reply, replayed) {
  const settled = { operationId: "case-12-operation", state: "partial", effectId: 1 };
  const body = { ...settled, replayed, result: PARTIAL };
  assert.deepEqual([reply.kind, reply.body], ["result", body]);
}

/** The issue, the absent watcher, and the failed compensation under its own identity. */
async function checkPartialRows(bench) {
  const facts = await check.checkRows(bench, { issues: 1, operations: 1, state: "partial" });
  assert.deepEqual(facts.watchers, []);
  const events = facts.audit_events.filter((row) => row.kind === "compensation_failed");
  assert.deepEqual(events.map((row) => row.identity), ["case-12-operation/compensation/1"]);
  return facts;
}

function lifetimes({ state, authority, retention }) {
  const seconds = { "--state-s": state, "--authority-s": authority, "--retention-s": retention };
  return Object.entries(seconds).flatMap(([flag, value]) => [flag, String(value)]);
}

/** A reply as it must come again: marked replayed, and else the same. */
function asReplay(said) {
  return said
    .replaceAll('"replayed":false', '"replayed":true')
    .replaceAll('\\"replayed\\":false', '\\"replayed\\":true');
}

/** The state with one character changed. */
function flip(state, at) {
  return state.slice(0, at) + (state[at] === "A" ? "B" : "A") + state.slice(at + 1);
}
