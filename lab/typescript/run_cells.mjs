// Runs the cases, or the controls, for `counterfoil-lab matrix`, and reports each as it ends.
//
//   node run_cells.mjs cases|controls stdio|http
//
// The environment is that of stdio.test.mjs; COUNTERFOIL_LAB_KEEP must be set. Stdout has one JSON
// object a line: first the versions, then of each cell its case, status (pass | fail | unsupported
// | machinery_error), words, folder, ledger and how long it took.

import { AssertionError } from "node:assert";
import { readFileSync } from "node:fs";
import path from "node:path";

import * as sdk from "@modelcontextprotocol/client";

import { CONTROLS } from "./cases/control.mjs";
import { http } from "./cases/http.mjs";
import { keptFolder, onBenches } from "./cases/lab.mjs";
import { stdio } from "./cases/stdio.mjs";
import { TWELVE } from "./cases/twelve.mjs";

const CONTROL_NAMES = {
  identical: "unguarded, an identical retry makes a duplicate",
  changed: "unguarded, a changed retry makes a duplicate",
  "after-crash": "unguarded, a retry after a crash makes a duplicate",
  "fresh-id": "guarded, a fresh ID makes a second issue",
};
/** Tests wait for servers more than they compute. */
const AT_ONCE = 4;
const NEEDED = ["Client", "ProtocolError", "SdkError", "SdkErrorCode"];

const [suite, transportName] = process.argv.slice(2);
const transport = transportName === "http" ? http : stdio;

say({ versions: { node: process.versions.node, "@modelcontextprotocol/client": version() } });
const needed = transport === http ? [...NEEDED, "StreamableHTTPClientTransport"] : NEEDED;
const missing = needed.filter((name) => !(name in sdk));
const cells = suite === "controls" ? Object.entries(CONTROL_NAMES) : twelve();
if (missing.length > 0) {
  const words = `this version of the SDK has no ${missing.join(", ")}`;
  cells.forEach(([name]) => say({ case: name, status: "unsupported", words, took_ms: 0 }));
} else {
  const tests = suite === "controls" ? CONTROLS : TWELVE;
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let cell = cells.shift(); cell !== undefined; cell = cells.shift()) {
      say(await run(...cell, tests));
    }
  }));
}

/** The title "01 an identical retry ..." is that of case 01. */
function twelve() {
  return Object.keys(TWELVE).map((title) => [title.split(" ")[0], title]);
}

async function run(name, title, tests) {
  const began = performance.now();
  const verdict = { status: "pass", words: "" };
  try {
    await onBenches(transport, title, tests[title]);
  } catch (error) {
    // A broken promise is a failure; all else is the lab's fault.
    verdict.status = error instanceof AssertionError ? "fail" : "machinery_error";
    verdict.words = String(error?.stack ?? error);
  }
  const folder = path.join(keptFolder(transport, title), "bench-1");
  const ledger = path.join(folder, "data", "ledger.db");
  const took = Math.round(performance.now() - began);
  return { case: name, ...verdict, folder, ledger, took_ms: took };
}

/** The SDK does not export its package.json. */
function version() {
  const place = new URL("node_modules/@modelcontextprotocol/client/package.json", import.meta.url);
  return JSON.parse(readFileSync(place, "utf8")).version;
}

function say(report) {
  process.stdout.write(`${JSON.stringify(report)}\n`);
}
