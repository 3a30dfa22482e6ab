// The Streamable HTTP transport: the SDK's own, to a server that any number of clients may reach.
//
// Each client has its bearer token and a relay of its own, which keeps its messages and no header.
// The tokens are made by the product's own command, from whose stdout they come: no file and no
// command line holds one. For what a transport is, see stdio.mjs; this one can also
//   start({ data, clockMs, flags })  a server without a client, which has a `url`,
//   join({ folder, principal, authorization })  gives a link to it,
//   ended()  lets it go: `{ exits, log }`.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

import { StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

import { readTranscript } from "./replies.mjs";
import { BINARY, PATIENCE_MS, PRODUCT, childArguments } from "./settings.mjs";

const READY = "ready ";
const run = promisify(execFile);

export const http = {
  name: "http",
  /** A client of an older revision may take a broken stream up again. */
  resumes: true,

  start,

  async open(server) {
    const running = await start(server);
    const link = await running.join(server);
    const ended = async () => ({ ...(await link.ended()), ...(await running.ended()) });
    return { transport: link.transport, ended };
  },

  /** The SDK hands on what `fetch` says of a connection that broke. */
  lost(error) {
    return error instanceof TypeError && error.message === "fetch failed";
  },
};

async function start({ data, clockMs, flags }) {
  const args = [...childArguments({ data, clockMs, flags }), "--http", "127.0.0.1:0"];
  const child = await listening(args);
  return {
    url: `http://${child.address}`,
    join: (client) => join(child.address, { data, ...client }),
    async ended() {
      const { exit, log } = await child.end();
      return { exits: [exit], log };
    },
  };
}

async function join(address, { folder, data, principal, authorization }) {
  const transcript = path.join(folder, "transcript.jsonl");
  const relay = await listening(["http-relay", "--to", address, "--transcript", transcript]);
  const value = authorization ?? `Bearer ${(await tokenOf(data, principal)).token}`;
  const transport = new StreamableHTTPClientTransport(new URL(`http://${relay.address}/mcp`), {
    requestInit: { headers: value === NO_AUTHORIZATION ? {} : { Authorization: value } },
  });
  const ended = async () => {
    const { exit, log } = await relay.end();
    assert.equal(exit, 0, `the relay said: ${log}`);
    return { transcripts: [transcript], frames: readTranscript(transcript) };
  };
  return { transport, transcript, ended };
}

/** In place of a header: none is sent. */
export const NO_AUTHORIZATION = Symbol("no Authorization");

const tokens = new Map();

/** ID and text of a principal's token for this data directory, made once. */
export function tokenOf(data, principal) {
  const key = JSON.stringify([data, principal]);
  if (!tokens.has(key)) {
    tokens.set(key, newToken(data, principal));
  }
  return tokens.get(key);
}

/** ID and text of one more token. */
export async function newToken(data, principal) {
  return JSON.parse(await tokenCommand(data, "create", "--principal", principal, "--json"));
}

/** Runs `counterfoil token`, and gives what it printed. */
export async function tokenCommand(data, ...words) {
  const args = ["token", ...words, "--data-dir", data];
  return (await run(PRODUCT, args, { timeout: PATIENCE_MS })).stdout;
}

/** A program of the lab that listens, until its stdin is closed. */
async function listening(args) {
  const child = spawn(BINARY, args, { stdio: ["pipe", "ignore", "pipe"] });
  // It may be gone already when it is let go of.
  child.stdin.on("error", () => {});
  const left = once(child, "close");
  const lines = [];
  const ready = new Promise((resolve) => {
    createInterface({ input: child.stderr }).on("line", (line) => {
      if (line.startsWith(READY)) {
        resolve(line.slice(READY.length));
      } else {
        lines.push(line);
      }
    });
  });
  const early = left.then(([code]) => {
    throw new Error(`it ended with ${code} before it was ready: ${lines.join("\n")}`);
  });
  const address = await Promise.race([ready, early]);
  early.catch(() => {});
  return {
    address,
    async end() {
      child.stdin.end();
      const late = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
      const [exit, signal] = await left;
      clearTimeout(late);
      return { exit: exit ?? signal, log: lines.join("\n") };
    },
  };
}
