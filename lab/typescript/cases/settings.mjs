// Where the programs are, and what all cases have in common.

import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

/** The lab's program, whose servers the cases start. */
export const BINARY = process.env.COUNTERFOIL_LAB_BIN || `${ROOT}target/debug/counterfoil-lab`;
export const PYTHON = process.env.COUNTERFOIL_TEST_PYTHON || "python3";
export const READBACK = `${ROOT}lab/python/readback.py`;

/** The clocks of all cases begin here: 2027-01-15T08:00:00Z. */
export const START_MS = 1_800_000_000_000;
/** A bound that keeps a hung server from hanging the tests; nothing is asserted of time. */
export const PATIENCE_MS = 60_000;

export const MODERN = "2026-07-28";
export const LEGACY = ["2025-11-25", "2025-06-18"];

export const TITLE = "Export fails";
export const BODY = "It stops at row 65,536.";

/** A server that ends when it has committed and before it replies. */
export const DIES_AFTER_COMMIT = ["--cut", "store.after_commit=exit:70"];

/** The command line of the lab's server. */
export function childArguments({ data, principal, clockMs, flags }) {
  const args = ["child", "--data-dir", data, "--principal", principal];
  return [...args, "--clock-ms", String(clockMs), ...flags];
}
