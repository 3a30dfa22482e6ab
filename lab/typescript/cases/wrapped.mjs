// The official SDK's client on a small server behind `counterfoil wrap`, started by the SDK itself.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { Client, ProtocolError } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { LEGACY, MODERN, PATIENCE_MS, PRODUCT, PYTHON } from "./settings.mjs";
import { stdio } from "./stdio.mjs";
import { found } from "./watching.mjs";

const SERVER = fileURLToPath(new URL("../../wrapped/notes_server.py", import.meta.url));
const PRESET = path.join(path.dirname(SERVER), "notes.toml");

/** The notes of one folder, a ledger, and the wraps that run on both, one after the other. */
class Notes {
  /** What the user and the model were asked, in order. */
  asked = [];
  /** Clients that were connected. */
  clients = [];
  /** Progress as it came: the SDK drops what its callback has not yet seen when the result comes. */
  progress = [];

  constructor(folder, revision) {
    this.folder = folder;
    this.revision = revision;
  }

  /** Leaves a file that tells the server what to do. */
  tell(name) {
    writeFileSync(path.join(this.folder, name), "");
  }

  untell(name) {
    rmSync(path.join(this.folder, name));
  }

  /** The notes, a line each. */
  kept() {
    const file = path.join(this.folder, "notes.txt");
    return existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1) : [];
  }

  /** Kills the wrap that serves: in `auto` mode the SDK starts one before it that it only probes. */
  kill() {
    process.kill(Number(readFileSync(path.join(this.folder, "wrap.pid"), "utf8")), "SIGKILL");
  }

  /** A client that is connected. */
  async client() {
    const { folder } = this;
    const wrap = [PRODUCT, "wrap", "--data-dir", path.join(folder, "data"), "--name", "notes"];
    const line = [...wrap, "--preset", PRESET, "--", PYTHON, SERVER, folder];
    const pid = path.join(folder, "wrap.pid");
    const args = ["-c", 'echo $$ >"$0"; exec "$@"', pid, ...line];
    const options = { capabilities: { elicitation: { form: {} }, sampling: {} } };
    if (this.revision === MODERN) {
      options.versionNegotiation = { mode: "auto" };
    } else if (this.revision !== LEGACY[0]) {
      options.supportedProtocolVersions = [this.revision];
    }
    const client = new Client({ name: "counterfoil-lab-typescript", version: "1" }, options);
    client.setRequestHandler("elicitation/create", ({ params }) => {
      this.asked.push(params.message);
      return { action: "accept", content: { answer: "ja é 🦀" } };
    });
    client.setRequestHandler("sampling/createMessage", ({ params }) => {
      this.asked.push([params.messages[0].content].flat()[0].text);
      return { role: "assistant", model: "m", content: { type: "text", text: "tokens é" } };
    });
    const transport = new StdioClientTransport({ command: "/bin/sh", args, stderr: "ignore" });
    this.clients.push(client);
    await client.connect(transport, { timeout: PATIENCE_MS });
    assert.equal(client.getNegotiatedProtocolVersion(), this.revision);
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
      if (message.method === "notifications/progress") {
        this.progress.push(message.params);
      }
      deliver(message, extra);
    };
    return client;
  }
}

function said(result) {
  return result.content.map((block) => block.text);
}

function stands(result) {
  return result._meta["io.counterfoil/operation"];
}

/** Calls a tool by the SDK's own way. */
function call(client, name, args = {}, options = {}) {
  return client.callTool({ name, arguments: args }, { timeout: PATIENCE_MS, ...options });
}

/** The cases, in each revision. */
export function wrapped() {
  // Most of them wait for a lease of a wrap that was killed.
  describe("a wrapped server", { concurrency: 8 }, () => {
    for (const [title, body] of Object.entries(CASES)) {
      for (const revision of [MODERN, ...LEGACY]) {
        test(`${title}, ${revision}`, async () => {
          const folder = mkdtempSync(path.join(os.tmpdir(), "lab-"));
          const notes = new Notes(folder, revision);
          try {
            await body(notes);
          } finally {
            await Promise.allSettled(notes.clients.map((client) => client.close()));
            rmSync(folder, { recursive: true, force: true });
          }
        });
      }
    }
  });
}

const CASES = {
  async "a reply that is lost with the wrap, asked for by its ID"(notes) {
    // Promise: the same call again is answered by what is found.
    await recovers(notes, { text: "a", operation_id: "op" });
    assert.deepEqual(notes.kept(), ["a"]);
  },

  async "a reply that is lost with the wrap, asked for without an ID"(notes) {
    // Promise: the same arguments alone find the operation that nobody was answered for.
    await recovers(notes, { text: "a" });
    assert.deepEqual(notes.kept(), ["a"]);
  },

  async "everything that is not guarded"(notes) {
    // Promise: lists, reads, resources, prompts, pings and errors work as without a wrap.
    const client = await notes.client();
    const { tools } = await client.listTools();
    const own = ["add_note", "list_notes", "count", "ask_user", "ask_model"];
    assert.deepEqual(
      tools.map((tool) => tool.name),
      [...own, "get_operation_status"],
    );
    const declared = Object.keys(tools[0].inputSchema.properties);
    assert.deepEqual(declared, ["text", "operation_id", "repeat_of"]);
    assert.deepEqual(tools[1].inputSchema.properties, {});
    await call(client, "add_note", { text: "eins é" });
    assert.deepEqual(said(await call(client, "list_notes")), ["eins é\n"]);
    const { resources } = await client.listResources();
    assert.deepEqual(
      resources.map(({ uri }) => uri),
      ["notes://all"],
    );
    const read = await client.readResource({ uri: "notes://all" });
    assert.equal(read.contents[0].text, "eins é\n");
    const { prompts } = await client.listPrompts();
    assert.equal(prompts[0].name, "summary");
    const prompt = await client.getPrompt({ name: "summary", arguments: { style: "kurz" } });
    assert.match(prompt.messages[0].content.text, /kurz/);
    if (notes.revision !== MODERN) {
      await client.ping();
    }
    await assert.rejects(client.readResource({ uri: "notes://none" }), (error) => {
      return error instanceof ProtocolError && /there is no resources.read é/.test(error.message);
    });
    await client.close();
  },

  async "questions and progress"(notes) {
    // Promise: what the server asks user and model reaches them once, and their answers it; its
    // progress reaches the caller.
    const client = await notes.client();
    for (const [name, args, answer] of [
      ["ask_user", { question: "Wirklich?" }, "the user said ja é 🦀"],
      ["ask_model", { prompt: "Sag an é" }, "the model said tokens é"],
    ]) {
      for (const replayed of [false, true]) {
        const result = await call(client, name, { ...args, operation_id: name });
        assert.deepEqual(said(result), [answer]);
        assert.deepEqual([stands(result).state, stands(result).replayed], ["applied", replayed]);
      }
    }
    assert.deepEqual(notes.asked, ["Wirklich?", "Sag an é"]);
    const onprogress = () => {};
    assert.deepEqual(said(await call(client, "count", { to: 3 }, { onprogress })), ["3"]);
    const [{ progressToken }] = notes.progress;
    const steps = [1, 2, 3].map((progress) => ({ progressToken, progress, total: 3 }));
    assert.deepEqual(notes.progress, steps);
    await client.close();
  },

  async "a server that dies in mid-call"(notes) {
    // Promise: the call that lost its reply is answered by what is found, and nothing is done twice.
    const client = await notes.client();
    notes.tell("die");
    await checkFound(client, { text: "a", operation_id: "op" });
    assert.deepEqual(said(await call(client, "list_notes")), ["a\n"]);
    await client.close();
    assert.deepEqual(notes.kept(), ["a"]);
  },
};

/** The wrap is killed when the note is written and its reply is not; the next one answers. */
async function recovers(notes, args) {
  notes.tell("silent");
  const first = await notes.client();
  const asking = assert.rejects(call(first, "add_note", args), stdio.lost);
  await found(notes.folder, "the note", () => notes.kept().length === 1);
  notes.kill();
  await asking;
  await first.close();
  notes.untell("silent");
  const second = await notes.client();
  await checkFound(second, args);
  await second.close();
}

/** A call is answered by what is found; while it is in doubt, its status is asked for. */
async function checkFound(client, args) {
  let result = await call(client, "add_note", args);
  const { operationId, state, retry } = stands(result);
  if (state === "unknown") {
    assert.equal(retry, "status_only");
    const late = Date.now() + PATIENCE_MS;
    const status = () => call(client, "get_operation_status", { operation_id: operationId });
    while ((await status()).structuredContent.state === "unknown") {
      assert.ok(Date.now() < late, "nothing is found");
      await setTimeout(50);
    }
    result = await call(client, "add_note", args);
  }
  assert.equal(said(result)[0], "found a");
  assert.deepEqual([stands(result).operationId, stands(result).state], [operationId, "applied"]);
}
