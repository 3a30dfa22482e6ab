// A client as its user writes it: the SDK starts the server itself, and nothing stands between.

import assert from "node:assert/strict";

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import * as check from "./checks.mjs";
import { accepted, issue, labSuite } from "./lab.mjs";
import { BINARY, START_MS, childArguments } from "./settings.mjs";
import { stdio } from "./stdio.mjs";

export function plain() {
  labSuite(stdio, "the SDK alone", CASES);
}

const CASES = {
  async "the probe that the SDK starts first"(makeBench) {
    // Promise: a server that is probed, and ended by SIGTERM at once, leaves nothing that stands in
    // the way of the one that serves.
    const bench = makeBench();
    const server = { data: bench.data, principal: "alice", clockMs: START_MS, flags: [] };
    const command = { command: BINARY, args: childArguments(server), stderr: "ignore" };
    for (const replayed of [false, true]) {
      const client = new Client(
        { name: "plain", version: "1" },
        { versionNegotiation: { mode: "auto" }, capabilities: { elicitation: {} } },
      );
      client.setRequestHandler("elicitation/create", () => accepted());
      await client.connect(new StdioClientTransport(command));
      const call = { name: "create_issue", arguments: issue("op") };
      const { structuredContent } = await client.callTool(call);
      await client.close();
      assert.deepEqual([structuredContent.effectId, structuredContent.replayed], [1, replayed]);
    }
    await check.checkOneRow(bench, "op");
  },
};
