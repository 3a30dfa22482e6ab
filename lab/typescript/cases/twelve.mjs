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
  labSuite(transport, "the twelve cases", CASES);
}

const CASES = {
  async "01 an identical retry gets the same stored result"(makeBench) {
    // Promise: the same identity and fingerprint replays, and writes nothing more.
    const bench = makeBench();
    const server = await bench.serve();
    const state = await server.ask(issue("op-01"));
    check.checkApplied(await server.answer(issue("op-01"), state), "op-01");
    const again = await server.answer(issue("op-01"), state);
    check.checkApplied(again, "op-01", { replayed: true });
    // An honest retry begins at round one: it is not asked again.
    const anew = await server.create(issue("op-01"));
    check.checkApplied(anew, "op-01", { replayed: true });
    await server.end();
    const [, first, second, third] = server.calls().map(words);
    assert.equal(second, asReplay(first));
    assert.equal(third, second);
    await check.checkOneRow(bench, "op-01");
  },

  async "02 a state whose continuation is never sent"(makeBench) {
    // Promise: round one writes nothing, and an absent record is unknown, never `not done`.
    const bench = makeBench();
    const server = await bench.serve();
    await server.ask(issue("op-02"));
    const seen = await server.status("op-02");
    await server.end();
    check.checkStatus(seen, "op-02", "unknown", { detail: "no_record" });
    assert.deepEqual(consumer.accept(seen, "op-02", "alice"), {
      submission: "unknown",
      effect: "unknown",
      action: "stop",
    });
    await check.checkRows(bench, { issues: 0, operations: 0 });
  },

  async "03 a commit whose reply is lost"(makeBench) {
    // Promise: a lost reply stays unknown until the record answers, and is found there.
    const bench = makeBench();
    const state = await loseReply(bench, "op-03");
    const server = await bench.serve();
    const seen = await server.status("op-03");
    const replay = await server.answer(issue("op-03"), state);
    await server.end();
    check.checkStatus(seen, "op-03", "applied", { ids: [1], result: "created 1" });
    checkRecovered(seen, "op-03");
    check.checkApplied(replay, "op-03", { replayed: true });
    assert.equal(replay.body.result, seen.storedResult);
    await check.checkOneRow(bench, "op-03");
  },

  async "04 the same state with changed answers"(makeBench) {
    // Promise: changed answers conflict before a second effect and learn nothing.
    const bench = makeBench();
    const server = await bench.serve();
    const state = await server.ask(issue("op-04"));
    check.checkApplied(await server.answer(issue("op-04"), state), "op-04");
    const changed = [
      await server.answer(issue("op-04"), state, "Another text."),
      // Changed arguments begin at round one, since a state fits its own arguments alone.
      await server.create(issue("op-04", { title: "Another title" })),
      await server.create(issue("op-04", { mode: "partial" })),
      await server.create(issue("op-04", { body: BODY })),
    ];
    const exact = await server.answer(issue("op-04"), state);
    await server.end();
    changed.forEach((reply) => check.checkConflict(reply, "op-04"));
    check.checkApplied(exact, "op-04", { replayed: true });
    const conflicts = new Set(server.calls().slice(2, 6).map(words));
    assert.equal(conflicts.size, 1, "conflicts are byte-identical, whatever was changed");
    for (const secret of [TITLE, BODY, "created 1", "effectId"]) {
      assert.ok(![...conflicts][0].includes(secret), `a conflict tells: ${secret}`);
    }
    await check.checkOneRow(bench, "op-04");
  },

  async "05 a second state for the same ID"(makeBench) {
    // Promise: another issuance is another request, and a tampered state is none at all.
    const bench = makeBench();
    const server = await bench.serve();
    const first = await server.ask(issue("op-05"));
    const second = await server.ask(issue("op-05"));
    assert.notEqual(first, second, "each state has a nonce of its own");
    const tampered = flip(first, Math.floor(first.length / 2));
    check.checkStateRefused(await server.answer(issue("op-05"), tampered));
    check.checkApplied(await server.answer(issue("op-05"), first), "op-05");
    check.checkConflict(await server.answer(issue("op-05"), second), "op-05");
    check.checkStateRefused(await server.answer(issue("op-05"), tampered));
    await server.end();
    const said = server.calls().map(words);
    assert.equal(said[5], said[2], "the refusal tells nothing of the record");
    await check.checkOneRow(bench, "op-05");
  },

  async "06 another principal"(makeBench) {
    // Promise: principals of one ledger cannot use, replay or see each other's operations.
    const bench = makeBench();
    const before = await bench.serve({ principal: "bob" });
    const bobs = await before.ask(issue("op-06"));
    await before.end();
    const alice = await bench.serve();
    const state = await alice.ask(issue("op-06"));
    check.checkApplied(await alice.answer(issue("op-06"), state), "op-06");
    check.checkConflict(await alice.answer(issue("op-06"), state, "Another text."), "op-06");
    await alice.end();
    const bob = await bench.serve({ principal: "bob" });
    check.checkStateRefused(await bob.answer(issue("op-06"), state));
    check.checkConflict(await bob.answer(issue("op-06"), bobs), "op-06");
    check.checkConflict(await bob.create(issue("op-06")), "op-06");
    check.checkConflict(await bob.create(issue("op-06", { body: BODY })), "op-06");
    const seen = await bob.status("op-06");
    await bob.status("op-xx");
    await bob.end();
    const conflicts = [alice.calls()[2], ...bob.calls().slice(1, 4)].map(words);
    assert.equal(new Set(conflicts).size, 1, "conflicts are byte-identical, whatever their cause");
    check.checkStatus(seen, "op-06", "unknown", { detail: "no_record" });
    const [hidden, none] = bob.calls().slice(-2).map(words);
    assert.equal(hidden, none.replaceAll("op-xx", "op-06"), "it looks like no record at all");
    assert.equal(consumer.accept(seen, "op-06", "bob").action, "stop");
    await check.checkOneRow(bench, "op-06");
  },

  async "07 authority ends while state and retention are valid"(makeBench) {
    // Promise: after its authority ended a continuation writes and replays nothing.
    const bench = makeBench(lifetimes({ state: 600, authority: 60, retention: 3600 }));
    const start = await bench.serve();
    const state = await start.ask(issue("op-07"));
    const unused = await start.ask(issue("op-07b"));
    check.checkApplied(await start.answer(issue("op-07"), state), "op-07");
    await start.end();
    const last = await bench.serve({ atMs: 59_999 });
    const replay = await last.answer(issue("op-07"), state);
    check.checkApplied(replay, "op-07", { replayed: true });
    await last.end();
    const late = await bench.serve({ atMs: 60_000 });
    for (const [operation, sealed] of [["op-07", state], ["op-07b", unused]]) {
      const refused = await late.answer(issue(operation), sealed);
      check.checkRefused(refused, operation, "operation_authority_expired", "status_only");
    }
    const seen = await late.status("op-07");
    const never = await late.status("op-07b");
    await late.end();
    check.checkStatus(seen, "op-07", "applied", { ids: [1], result: "created 1" });
    check.checkStatus(never, "op-07b", "unknown", { detail: "no_record" });
    checkRecovered(seen, "op-07");
    await check.checkOneRow(bench, "op-07");
  },

  async "08 two processes with the same continuation"(makeBench) {
    // Promise: two processes on one ledger apply once; the other one replays.
    const bench = makeBench();
    const start = await bench.serve();
    const state = await start.ask(issue("op-08"));
    await start.end();
    const flags = ["--barrier", `${path.join(bench.folder, "barrier")}:2`];
    const servers = [await bench.serve({ flags }), await bench.serve({ flags })];
    const both = await Promise.all(servers.map((s) => s.answer(issue("op-08"), state)));
    for (const server of servers) {
      await server.end();
    }
    const [applied, replayed] = both.sort((a, b) => a.body.replayed - b.body.replayed);
    check.checkApplied(applied, "op-08");
    check.checkApplied(replayed, "op-08", { replayed: true });
    await check.checkOneRow(bench, "op-08");
  },

  async "09 a hard exit after the commit, and status alone"(makeBench) {
    // Promise: asking is enough to recover a result; nothing is sent again.
    const bench = makeBench();
    await loseReply(bench, "op-09");
    const server = await bench.serve();
    const seen = await server.status("op-09");
    await server.end();
    assert.deepEqual(server.sent(), ["server/discover", "get_operation_status"]);
    check.checkStatus(seen, "op-09", "applied", { ids: [1], result: "created 1" });
    checkRecovered(seen, "op-09");
    await check.checkOneRow(bench, "op-09");
  },

  async "10 retention ends, and the ID never becomes new work"(makeBench) {
    // Promise: after retention an ID is refused for ever, by whatever way it comes.
    const bench = makeBench(lifetimes({ state: 600, authority: 3600, retention: 60 }));
    const at = async (atMs, steps) => {
      const server = await bench.serve({ atMs });
      const last = await steps(server);
      await server.end();
      return last;
    };
    const first = await at(0, (server) => server.ask(issue("op-10")));
    // Round one writes nothing, so a later clock may mint before an earlier one applies.
    const second = await at(500_000, (server) => server.ask(issue("op-10")));
    const applied = await at(0, (server) => server.answer(issue("op-10"), first));
    check.checkApplied(applied, "op-10");
    const replay = await at(59_999, (server) => server.answer(issue("op-10"), first));
    check.checkApplied(replay, "op-10", { replayed: true });
    const seen = await at(60_000, async (server) => {
      checkRetentionEnded(await server.answer(issue("op-10"), first));
      return server.status("op-10");
    });
    const late = await at(600_000, async (server) => {
      check.checkStateRefused(await server.answer(issue("op-10"), first));
      checkRetentionEnded(await server.answer(issue("op-10"), second));
      // A fresh state for the old ID is not even handed out.
      checkRetentionEnded(await server.create(issue("op-10")));
      checkRetentionEnded(await server.create(issue("op-10", { body: BODY })));
      return server.status("op-10");
    });
    for (const observation of [seen, late]) {
      assert.equal(observation.state, "applied");
      assert.deepEqual(observation.matchingIds, [1]);
      assert.equal(consumer.accept(observation, "op-10", "alice").effect, "applied");
    }
    const facts = await check.checkRows(bench, { issues: 1, operations: 1 });
    assert.equal(facts.operations[0].operation_id, "op-10", "the tombstone stays");
  },

  async "11 the state is stripped on its way"(makeBench) {
    // Promise: answers without their state write nothing, and a fresh round still works.
    let stripped = 0;
    const edit = (message) => {
      if (stripped === 0 && message.params?.requestState !== undefined) {
        delete message.params.requestState;
        stripped += 1;
      }
    };
    const bench = makeBench();
    const server = await bench.serve({ edit });
    const state = await server.ask(issue("op-11"));
    check.checkStateRefused(await server.answer(issue("op-11"), state));
    const seen = await server.status("op-11");
    check.checkStatus(seen, "op-11", "unknown", { detail: "no_record" });
    const fresh = await server.ask(issue("op-11"));
    check.checkApplied(await server.answer(issue("op-11"), fresh), "op-11");
    await server.end();
    const { params } = server.calls()[1].request;
    assert.ok("inputResponses" in params && !("requestState" in params), "the state was stripped");
    await check.checkOneRow(bench, "op-11");
  },

  async "12 a partial effect whose compensation fails"(makeBench) {
    // Promise: what happened in part stays visible as such, and a replay repeats no step.
    const bench = makeBench();
    const request = issue("op-12", { mode: "partial" });
    const start = await bench.serve();
    const state = await start.ask(request);
    checkPartialReply(await start.answer(request, state), false);
    await start.end();
    const before = await checkPartialRows(bench);
    const server = await bench.serve();
    checkPartialReply(await server.answer(request, state), true);
    const seen = await server.status("op-12");
    await server.end();
    check.checkStatus(seen, "op-12", "partial", { ids: [1], result: PARTIAL });
    assert.deepEqual(consumer.accept(seen, "op-12", "alice"), {
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
  check.checkRefused(reply, "op-10", "operation_retention_expired", "status_only");
}

function checkPartialReply(reply, replayed) {
  const body = { operationId: "op-12", state: "partial", replayed, result: PARTIAL, effectId: 1 };
  assert.deepEqual([reply.kind, reply.body], ["result", body]);
}

/** The issue, the absent watcher, and the failed compensation under its own identity. */
async function checkPartialRows(bench) {
  const facts = await check.checkRows(bench, { issues: 1, operations: 1, state: "partial" });
  assert.deepEqual(facts.watchers, []);
  const events = facts.audit_events.filter((row) => row.kind === "compensation_failed");
  assert.deepEqual(events.map((row) => row.identity), ["op-12/compensation/1"]);
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
