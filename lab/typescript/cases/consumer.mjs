// What a client may conclude. It has no action that sends: a missing reply never grants a write.

import { isDeepStrictEqual } from "node:util";

const FIELDS = [
  "operationId",
  "principal",
  "backend",
  "state",
  "authoritative",
  "freshWriteAuthorized",
  "observedAt",
  "scope",
  "scopeBinding",
  "matchingIds",
  "detail",
  "storedResult",
];

// Submission: not_admitted | admitted | unknown. Effect: not_applied | applied | partial | unknown.
// Action: reconcile | return_stored_result | stop.
const BELIEFS = {
  applied: belief("admitted", "applied", "return_stored_result"),
  partial: belief("admitted", "partial", "stop"),
  not_applied: belief("admitted", "not_applied", "stop"),
  unknown: belief("unknown", "unknown", "stop"),
};

/** After a transport failure. */
export const AFTER_A_LOST_REPLY = belief("unknown", "unknown", "reconcile");

/** The belief that an observation leads to; throws if its parts do not agree. */
export function accept(seen, operationId, principal) {
  ensure(isDeepStrictEqual(Object.keys(seen).sort(), [...FIELDS].sort()), "other fields");
  ensure(seen.operationId === operationId, "operationId is another operation");
  ensure(seen.principal === principal, "principal is not the one that asked");
  const binding = { operationId, principal, backend: seen.backend };
  ensure(isDeepStrictEqual(seen.scopeBinding, binding), "scopeBinding differs from the account");
  ensure(seen.freshWriteAuthorized === false, "an observation never grants a write");
  ensure(Object.hasOwn(BELIEFS, seen.state), `there is no state ${seen.state}`);
  ensure(seen.authoritative === (seen.state !== "unknown"), "authoritative and state differ");
  ensure(/T.*(Z|[+-]\d\d:\d\d)$/.test(seen.observedAt), "observedAt has no zone");
  ensure(!Number.isNaN(Date.parse(seen.observedAt)), "observedAt is no time");
  checkEffect(seen);
  if (seen.state === "applied" && seen.storedResult === null) {
    return belief("admitted", "applied", "stop");
  }
  return BELIEFS[seen.state];
}

function checkEffect({ state, matchingIds, storedResult, detail }) {
  if (state === "unknown") {
    ensure(matchingIds.length === 0 && storedResult === null, "unknown, yet an effect is claimed");
  } else if (state === "not_applied") {
    ensure(matchingIds.length === 0, "not applied, yet a row is claimed");
  } else if (storedResult === null) {
    ensure(detail === "purged", "there is no stored result, and it was not purged");
  } else {
    const created = /^created (\d+)/.exec(storedResult)?.[1];
    ensure(isDeepStrictEqual(matchingIds, [Number(created)]), "the result names another row");
  }
}

function belief(submission, effect, action) {
  return { submission, effect, action };
}

function ensure(holds, reason) {
  if (!holds) {
    throw new Error(`the observation is not believed: ${reason}`);
  }
}
