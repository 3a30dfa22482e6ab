// The control: a server without a ledger makes duplicates, and the detector sees each of them.
//
// A test that never saw a duplicate proves nothing about the server that makes none.

import assert from "node:assert/strict";

import * as check from "./checks.mjs";
import { issue, labSuite } from "./lab.mjs";
import { duplicates } from "./rows.mjs";
import { BODY, DIES_AFTER_COMMIT, OP } from "./settings.mjs";

/** The same tools and tables, unguarded; and the guarded server under a fresh ID. */
export function control(transport) {
  labSuite(transport, "the control", CONTROLS);
}

export const CONTROLS = {
  async "unguarded, an identical retry makes a duplicate"(makeBench) {
    // Promise: the detector sees the duplicate that an identical retry makes.
    const bench = makeBench(["--unguarded"]);
    await answerTwice(bench, BODY, BODY);
    await checkDuplicate(bench, [BODY, BODY]);
  },

  async "unguarded, a changed retry makes a duplicate"(makeBench) {
    // Promise: the detector sees the duplicate that a changed retry makes.
    const bench = makeBench(["--unguarded"]);
    await answerTwice(bench, "One text.", "Another text.");
    await checkDuplicate(bench, ["One text.", "Another text."]);
  },

  async "unguarded, a retry after a crash makes a duplicate"(makeBench) {
    // Promise: the detector sees the duplicate that a retry after a lost reply makes.
    const bench = makeBench(["--unguarded"]);
    const dying = await bench.serve({ flags: DIES_AFTER_COMMIT });
    const state = await dying.ask(issue(OP));
    const lost = await dying.answer(issue(OP), state);
    await dying.end(70);
    check.checkLost(dying, lost);
    const server = await bench.serve();
    await server.answer(issue(OP), state);
    await server.end();
    await checkDuplicate(bench, [BODY, BODY]);
  },

  async "guarded, a fresh ID makes a second issue"(makeBench) {
    // Promise: the guard refuses repeats and not work: a new ID is a new operation.
    const bench = makeBench();
    const server = await bench.serve();
    for (const [operation, effect] of [["first-operation-id", 1], ["second-operation-id", 2]]) {
      const state = await server.ask(issue(operation));
      check.checkApplied(await server.answer(issue(operation), state), operation, { effect });
    }
    await server.end();
    const { issues } = await check.checkRows(bench, { issues: 2, operations: 2 });
    const made = issues.map((row) => [row.id, row.operation_id]);
    assert.deepEqual(made, [[1, "first-operation-id"], [2, "second-operation-id"]]);
  },
};

async function answerTwice(bench, ...bodies) {
  const server = await bench.serve();
  const state = await server.ask(issue(OP));
  for (const body of bodies) {
    await server.answer(issue(OP), state, body);
  }
  await server.end();
}

/** The issues that were made, and that the detector names them. */
async function checkDuplicate(bench, bodies) {
  const facts = await bench.facts();
  const made = facts.issues.map((row) => [row.operation_id, row.body]);
  assert.deepEqual(made, bodies.map((body) => [OP, body]));
  assert.deepEqual(duplicates(facts), { [OP]: [1, 2] });
}
