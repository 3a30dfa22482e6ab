// What every case checks in the same way.

import assert from "node:assert/strict";

import { duplicates } from "./rows.mjs";
import { BODY, START_MS, TITLE } from "./settings.mjs";

/** The whole of a result that says `applied`. */
export function checkApplied(reply, operationId, { replayed = false, effect = 1 } = {}) {
  const operation = { operationId, state: "applied", replayed, retry: "none" };
  const body = { operationId, state: "applied", replayed };
  const expected = { ...body, result: `created ${effect}`, effectId: effect };
  assert.deepEqual(reply, { kind: "result", operation, body: expected });
}

/** A refusal of ours: a tool error that says what may be done next. */
export function checkRefused(reply, operationId, code, retry) {
  assert.equal(reply.kind, "refused", JSON.stringify(reply));
  const { message, ...error } = reply.body.error;
  assert.deepEqual(error, { code, operationId, retry });
  assert.ok(message.length > 20, "words for an agent, which sees no headers");
  const operation = { operationId, state: "unknown", replayed: false, retry };
  assert.deepEqual(reply.operation, operation);
}

/** The ID is bound to another request. */
export function checkConflict(reply, operationId) {
  checkRefused(reply, operationId, "operation_conflict", "none");
}

/** A state that is not usable: one protocol error, whatever the cause. */
export function checkStateRefused(reply) {
  assert.equal(reply.kind, "error", JSON.stringify(reply));
  assert.equal(reply.body.code, -32602);
  assert.deepEqual(reply.body.data, { retry: "status_only" });
}

/** The parts of an observation that a case is about. */
export function checkStatus(seen, operationId, state, more = {}) {
  const { ids = [], result = null, detail = "settled" } = more;
  const { matchingIds, storedResult, authoritative, freshWriteAuthorized } = seen;
  assert.deepEqual(
    { operationId: seen.operationId, state: seen.state, detail: seen.detail },
    { operationId, state, detail },
  );
  assert.deepEqual({ matchingIds, storedResult }, { matchingIds: ids, storedResult: result });
  assert.equal(authoritative, state !== "unknown");
  assert.equal(freshWriteAuthorized, false);
}

/** No reply was sent: what the client reports is its own, and the transcript shows it. */
export function checkLost(session, reply) {
  assert.deepEqual(reply, { kind: "lost" });
  const answered = session.calls().map((call) => call.reply !== undefined);
  assert.deepEqual(answered, [true, false], "the question was answered, the continuation not");
}

/** Physical rows: how many, all operations in one state, and no issue made twice. */
export async function checkRows(bench, { issues, operations, state = "applied" }) {
  const facts = await bench.facts();
  const shown = JSON.stringify(facts);
  assert.equal(facts.issues.length, issues, shown);
  assert.deepEqual(facts.operations.map((row) => row.state), Array(operations).fill(state), shown);
  assert.deepEqual(duplicates(facts), {});
  return facts;
}

/** One operation, one issue, in every column as they were asked for. */
export async function checkOneRow(bench, operationId, { atMs = 0 } = {}) {
  const facts = await checkRows(bench, { issues: 1, operations: 1 });
  const { operation_key: key, ...operation } = facts.operations[0];
  assert.deepEqual(operation, {
    operation_id: operationId,
    principal: "alice",
    tool_id: "create_issue",
    state: "applied",
    result: "created 1",
  });
  const made = { id: 1, title: TITLE, body: BODY, operation_id: operationId };
  // By this key the issue belongs to its record.
  const row = { ...made, operation_key: key, created_at_ms: START_MS + atMs };
  assert.deepEqual(facts.issues, [row]);
}
