// The physical rows, read back by a program that knows the schema and nothing of the server.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { PATIENCE_MS, PYTHON, READBACK } from "./settings.mjs";

const run = promisify(execFile);

/** The rows of a ledger by table. Its writers must have left. */
export async function readRows(ledger) {
  const { stdout } = await run(PYTHON, [READBACK, ledger], { timeout: PATIENCE_MS });
  const facts = JSON.parse(stdout);
  if (facts.integrity !== "ok" || facts.foreign_key_violations !== 0) {
    throw new Error(`the ledger is damaged: ${stdout}`);
  }
  return Object.fromEntries(Object.entries(facts.tables).map(([name, t]) => [name, t.rows]));
}

/** The detector: operations that made more than one issue, with the issues' IDs. */
export function duplicates(facts) {
  const made = {};
  for (const issue of facts.issues) {
    (made[issue.operation_id] ??= []).push(issue.id);
  }
  return Object.fromEntries(Object.entries(made).filter(([, issues]) => issues.length > 1));
}
