// Starts real servers with fixed clocks over some transport, and connects the official SDK to them.
//
//   const server = await bench.serve({ atMs: 60_000 });
//   const state = await server.ask(issue("op"));
//   const reply = await server.answer(issue("op"), state);
//   await server.end();
//
// A server is one process on the bench's ledger; the next one finds what the last one left. When it
// ends, its exit code and all that it said are checked.

import assert from "node:assert/strict";
import { appendFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, test } from "node:test";

import { Client, ProtocolError } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { OPERATION, askedFor, checkReplies, toolCalls } from "./replies.mjs";
import { readRows } from "./rows.mjs";
import {
  BINARY,
  BODY,
  LEGACY,
  MODERN,
  PATIENCE_MS,
  START_MS,
  TITLE,
  childArguments,
} from "./settings.mjs";

/** What every bearer token begins with. */
const TOKEN_PREFIX = "cf_";
const CLIENT = { name: "counterfoil-lab-typescript", version: "1" };

/** The arguments of create_issue. */
export function issue(operationId, more) {
  return { operation_id: operationId, title: TITLE, ...more };
}

/** What a user answers. */
export function accepted(body = BODY) {
  return { action: "accept", content: { body } };
}

/** Answers the forms that a client shows, in order, and keeps them; the last answer repeats. */
export class User {
  forms = [];

  constructor(...answers) {
    this.answers = answers.length === 0 ? [accepted()] : answers;
  }

  fill(form) {
    this.forms.push(form);
    return this.answers.length > 1 ? this.answers.shift() : this.answers[0];
  }
}

/**
 * Tests over one transport, by name. Each gets a function that makes a bench on a data directory of
 * its own; it takes flags for all servers of that bench.
 */
export function labSuite(transport, name, cases) {
  // Tests wait for processes more than they compute.
  describe(`${name} over ${transport.name}`, { concurrency: 4 }, () => {
    for (const [title, body] of Object.entries(cases)) {
      test(title, () => onBenches(transport, title, body));
    }
  });
}

/** Where COUNTERFOIL_LAB_KEEP keeps what a test leaves. */
export function keptFolder(transport, title) {
  const label = `typescript ${transport.name} ${title}`.replace(/[^A-Za-z0-9]+/g, "-");
  return path.join(process.env.COUNTERFOIL_LAB_KEEP, label);
}

/** COUNTERFOIL_LAB_KEEP=DIR keeps transcripts, logs and ledgers there, a folder a test. */
export async function onBenches(transport, title, body) {
  const kept = process.env.COUNTERFOIL_LAB_KEEP;
  const folder = kept ? keptFolder(transport, title) : mkdtempSync(path.join(os.tmpdir(), "lab-"));
  if (kept) {
    mkdirSync(kept, { recursive: true });
    // Evidence is never overwritten: a folder that is there already is an error.
    mkdirSync(folder);
  }
  const benches = [];
  try {
    await body((flags = []) => {
      benches.push(new Bench(transport, path.join(folder, `bench-${benches.length + 1}`), flags));
      return benches.at(-1);
    });
    assert.equal(benches.flatMap((bench) => bench.open).length, 0, "the test ends its servers");
  } finally {
    const left = benches.flatMap((bench) => bench.open);
    await Promise.allSettled(left.map((session) => session.leave()));
    if (!kept) {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

/** One data directory, and the servers that run on it one after the other or together. */
export class Bench {
  /** Sessions that have not ended. */
  open = [];
  #served = 0;

  constructor(transport, folder, flags) {
    this.transport = transport;
    this.folder = folder;
    this.flags = flags;
    this.data = path.join(folder, "data");
    mkdirSync(folder);
  }

  /**
   * A server whose clock stands `atMs` after the start, and a client that is connected.
   *
   * `user` answers forms; with null the client declares no elicitation. `edit` sees each message
   * before it leaves and may change it, as something between client and server would.
   */
  async serve({ atMs = 0, principal = "alice", flags = [], ...options } = {}) {
    const server = this.#nextServer(atMs, flags);
    const link = await this.transport.open({ ...server, principal });
    const session = await this.#connect(link, options);
    const { clockMs, flags: all } = server;
    session.run = { number: this.#served, principal, clock_ms: clockMs, flags: all };
    return session;
  }

  /** Keeps what servers were told and how they ended, for those who judge by files alone. */
  note(run, processes) {
    const file = path.join(this.folder, "servers.jsonl");
    for (const { transcript, exit } of processes) {
      const kept = { ...run, transcript: path.relative(this.folder, transcript), exit };
      appendFileSync(file, `${JSON.stringify(kept)}\n`);
    }
  }

  /** One server, and a client for each principal. `end` lets all of them go. */
  async share(...principals) {
    const { folder, ...server } = this.#nextServer(0, []);
    const running = await this.transport.start(server);
    this.open.push({ leave: () => running.ended() });
    const sessions = [];
    for (const principal of principals) {
      const own = path.join(folder, principal);
      mkdirSync(own);
      sessions.push(await this.#connect(await running.join({ folder: own, principal }), {}));
    }
    const end = async () => {
      for (const session of sessions) {
        await session.end();
      }
      this.open.length = 0;
      checkEnd(await running.ended(), 0);
    };
    return { running, sessions, end };
  }

  #nextServer(atMs, flags) {
    this.#served += 1;
    const folder = path.join(this.folder, `server-${this.#served}`);
    mkdirSync(folder);
    const all = [...this.flags, ...flags];
    return { folder, data: this.data, clockMs: START_MS + atMs, flags: all };
  }

  async #connect(link, { revision = MODERN, user = new User(), edit }) {
    if (edit) {
      editOutgoing(link.transport, edit);
    }
    const client = makeClient(revision, user);
    const session = new Session(this, client, link);
    this.open.push(session);
    await session.connect();
    assert.equal(client.getNegotiatedProtocolVersion(), revision, "the revision agreed on");
    return session;
  }

  /** The physical rows. Every writer must have left. */
  async facts() {
    return readRows(path.join(this.data, "ledger.db"));
  }
}

/** The SDK's client on one server process. */
class Session {
  /** Everything that crossed; read when the session has ended. */
  frames = [];

  constructor(bench, client, link) {
    this.bench = bench;
    this.client = client;
    this.link = link;
  }

  async connect() {
    try {
      await this.client.connect(this.link.transport, { timeout: PATIENCE_MS });
    } catch (cause) {
      const { log } = await this.link.ended();
      const reason = `there is no connection: ${cause.message}; the server said:\n${log}`;
      throw new Error(reason, { cause });
    }
  }

  /** One call and nothing more: no round is driven, nothing is sent again. */
  async call(name, args, more) {
    const params = { name, arguments: args, ...more };
    const options = { allowInputRequired: true, timeout: PATIENCE_MS };
    try {
      return replyOfResult(await this.client.callTool(params, options));
    } catch (error) {
      if (this.bench.transport.lost(error)) {
        return { kind: "lost" };
      }
      if (error instanceof ProtocolError) {
        const { code, message, data } = error;
        return { kind: "error", body: { code, message, data } };
      }
      throw error;
    }
  }

  /** create_issue, one leg. */
  create(args, more) {
    return this.call("create_issue", args, more);
  }

  /** Round one: gives the sealed state. */
  async ask(args) {
    const reply = await this.create(args);
    assert.equal(reply.kind, "asked", JSON.stringify(reply));
    return reply.state;
  }

  /** The continuation. */
  answer(args, state, body = BODY) {
    return this.create(args, { requestState: state, inputResponses: { body: accepted(body) } });
  }

  /** The observation. */
  async status(operationId) {
    const reply = await this.call("get_operation_status", { operation_id: operationId });
    assert.equal(reply.kind, "result", JSON.stringify(reply));
    return reply.body;
  }

  /**
   * Disconnects, waits until the server has left if this client has it to itself, and checks how it
   * ended and what it said.
   */
  async end(exitCode = 0) {
    const { frames, ...left } = await this.leave();
    this.bench.open.splice(this.bench.open.indexOf(this), 1);
    this.frames = frames;
    if (this.run) {
      const exits = left.exits.map(String);
      const processes = left.transcripts.map((transcript, n) => ({ transcript, exit: exits[n] }));
      this.bench.note(this.run, processes);
    }
    if (left.exits) {
      checkEnd(left, exitCode);
    }
    if (!this.bench.flags.includes("--unguarded")) {
      checkReplies(frames, await declaredSchemas(this.bench.folder));
    }
  }

  /** Disconnects, and gives what the server left. */
  async leave() {
    await this.client.close();
    return this.link.ended();
  }

  /** What the client sent that wants an answer: methods, and names of tools. */
  sent() {
    return askedFor(this.frames);
  }

  /** The tool calls with their replies. */
  calls() {
    return toolCalls(this.frames);
  }
}

function checkEnd({ exits, log }, exitCode) {
  // Before the server that served there may have been one that was only probed.
  assert.deepEqual(exits, [...exits.slice(1).fill(0), exitCode], `it said:\n${log}`);
  assert.ok(!log.includes("panicked"), log);
  assert.ok(!log.includes(TOKEN_PREFIX), "a token is in the log");
}

/** A client as its user would make it: the SDK speaks the old handshake unless told otherwise. */
function makeClient(revision, user) {
  const options = { capabilities: user ? { elicitation: { form: {} } } : {} };
  if (revision === MODERN) {
    options.versionNegotiation = { mode: "auto" };
  } else if (revision !== LEGACY[0]) {
    options.supportedProtocolVersions = [revision];
  }
  const client = new Client(CLIENT, options);
  if (user) {
    client.setRequestHandler("elicitation/create", (request) => user.fill(request.params));
  }
  return client;
}

/** What came back; `kind` is lost | error | asked | result | refused. */
function replyOfResult(result) {
  const operation = result._meta?.[OPERATION];
  if (result.resultType === "input_required") {
    return { kind: "asked", operation, state: result.requestState };
  }
  return { kind: result.isError ? "refused" : "result", operation, body: result.structuredContent };
}

function editOutgoing(transport, edit) {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    const copy = structuredClone(message);
    edit(copy);
    return send(copy, options);
  };
}

let schemas;

/** The output schemas that the tools declare, asked for once. */
function declaredSchemas(folder) {
  schemas ??= askForSchemas(path.join(folder, "schemas"));
  return schemas;
}

async function askForSchemas(data) {
  const args = childArguments({ data, principal: "alice", clockMs: START_MS, flags: [] });
  const transport = new StdioClientTransport({ command: BINARY, args, stderr: "ignore" });
  const client = makeClient(LEGACY[0], null);
  await client.connect(transport, { timeout: PATIENCE_MS });
  const { tools } = await client.listTools();
  await client.close();
  return Object.fromEntries(tools.map((tool) => [tool.name, tool.outputSchema]));
}
