// Where the programs are, and what all cases have in common.

import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** The lab's program, whose servers the cases start. */
export const BINARY = process.env.COUNTERFOIL_LAB_BIN || `${ROOT}target/debug/counterfoil-lab`;
/** The product itself, which the same build puts beside the lab's program. */
export const PRODUCT = path.join(path.dirname(BINARY), "counterfoil");
export const PYTHON = process.env.COUNTERFOIL_TEST_PYTHON || "python3";
export const READBACK = `${ROOT}lab/python/readback.py`;

// One clear failure in place of one for each case.
for (const program of [BINARY, PRODUCT]) {
  if (!existsSync(program)) {
    throw new Error(`there is no ${program}; run cargo build --workspace --bins`);
  }
}

/** The clocks of all cases begin here: 2027-01-15T08:00:00Z. */
export const START_MS = 1_800_000_000_000;
/** A bound that keeps a hung server from hanging the tests; nothing is asserted of time. */
export const PATIENCE_MS = 60_000;

export const MODERN = "2026-07-28";
export const LEGACY = ["2025-11-25", "2025-06-18"];

/** An operation, where a test has but one. */
export const OP = "the-operation-id";
export const TITLE = "Export fails";
export const BODY = "It stops at row 65,536.";

/** A server that ends when it has committed and before it replies. */
export const DIES_AFTER_COMMIT = ["--cut", "store.after_commit=exit:70"];

/** The command line of the lab's server. */
export function childArguments({ data, principal, clockMs, flags }) {
  const args = ["child", "--data-dir", data, "--clock-ms", String(clockMs), ...flags];
  return principal ? [...args, "--principal", principal] : args;
}
