// Judges what a server said, from the bytes that were kept, not from what the SDK made of it.
//
// Every reply to a tool call is held against the output schema that the tool declared, and against
// what the server promises of each reply; a case then only looks at what is special to it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { AjvJsonSchemaValidator } from "@modelcontextprotocol/client/validators/ajv";

export const OPERATION = "io.counterfoil/operation";
const OPERATION_ID = "io.counterfoil/operationId";
const SERVER_INFO = "io.modelcontextprotocol/serverInfo";
// One for all: it keeps the schemas that it has compiled.
const VALIDATOR = new AjvJsonSchemaValidator();
const FLAT_KINDS = ["string", "number", "integer", "boolean"];

/** The frames of a relay's transcript, in the order in which they crossed it. */
export function readTranscript(file) {
  return framesOf(readFileSync(file, "utf8"));
}

/** The same while the relay still writes: a line that has no end yet does not count. */
export function keptSoFar(file) {
  const kept = readFileSync(file, "utf8");
  return framesOf(kept.slice(0, kept.lastIndexOf("\n") + 1));
}

function framesOf(transcript) {
  return transcript.split("\n").filter(Boolean).map((line) => {
    const { from, utf8, whole = true } = JSON.parse(line);
    assert.ok(utf8 !== undefined && whole, `a frame is not UTF-8, or was cut short: ${line}`);
    return { from, text: utf8, message: JSON.parse(utf8) };
  });
}

/** The client's tool calls, each with the one frame that answered it, or none. */
export function toolCalls(frames) {
  const replies = new Map();
  for (const frame of frames) {
    if (frame.from === "server" && !("method" in frame.message)) {
      const id = JSON.stringify(frame.message.id);
      assert.ok(!replies.has(id), `two replies to request ${id}`);
      replies.set(id, frame);
    }
  }
  const requests = frames.filter((f) => f.from === "client").map((f) => f.message);
  return requests
    .filter((request) => request.method === "tools/call")
    .map((request) => ({ request, reply: replies.get(JSON.stringify(request.id)) }));
}

/** A reply's bytes without its JSON-RPC ID, to compare replies byte for byte. */
export function words({ request, reply }) {
  assert.ok(reply, `no reply came to ${JSON.stringify(request)}`);
  return reply.text.replace(/"id":[^,]+,/, "");
}

/** What the client sent that wants an answer: its methods, and its tools' names. */
export function askedFor(frames) {
  const sent = frames.filter((f) => f.from === "client").map((f) => f.message);
  return sent.filter((m) => "method" in m && "id" in m).map((m) => m.params.name ?? m.method);
}

/** Holds every reply to a tool call against what the server declares and promises. */
export function checkReplies(frames, schemas) {
  for (const { request, reply } of toolCalls(frames)) {
    if (reply?.message.error) {
      checkError(reply.message.error);
    } else if (reply) {
      checkResult(request.params, reply.message.result, schemas);
    }
  }
}

function checkError(error) {
  assert.ok(error.code >= -32768 && error.code <= -32000, `not a standard code: ${error.code}`);
  // These the specification leaves to implementations: no reply of ours may carry one.
  assert.ok(error.code < -32019, `a code without a meaning: ${error.code}`);
}

function checkResult(params, result, schemas) {
  const operation = result._meta?.[OPERATION];
  assert.equal(result._meta?.[SERVER_INFO]?.name, "counterfoil");
  const identity = identityOf(params);
  if (identity !== undefined) {
    const names = ["operationId", "replayed", "retry", "state"];
    assert.deepEqual(Object.keys(operation ?? {}).sort(), names, "the reply names no operation");
    assert.equal(operation.operationId, identity);
  }
  if (result.resultType === "input_required") {
    checkQuestion(result);
    return;
  }
  const body = result.structuredContent;
  const verdict = VALIDATOR.getValidator(schemas[params.name])(body);
  assert.ok(verdict.valid, `${verdict.errorMessage}: ${JSON.stringify(body)}`);
  const text = result.content.find((block) => block.type === "text")?.text;
  assert.deepEqual(JSON.parse(text), body, "the text repeats the JSON");
  assert.equal(result.isError ?? false, "error" in body, "isError and body agree");
  checkAgreement(operation, body);
}

/** A reply says the same of its operation in `_meta` and in its body. */
function checkAgreement(operation, body) {
  const said = body.error ?? body;
  for (const name of Object.keys(operation ?? {})) {
    if (name in said) {
      assert.equal(said[name], operation[name], `_meta and body differ in ${name}`);
    }
  }
}

/** The operation that a call is about; undefined if it names none, or two. */
function identityOf(params) {
  const given = [params.arguments?.operation_id, params._meta?.[OPERATION_ID]];
  const distinct = new Set(given.filter((id) => id !== undefined));
  return distinct.size === 1 ? [...distinct][0] : undefined;
}

function checkQuestion(result) {
  assert.equal(typeof result.requestState, "string", "there is a sealed state");
  for (const { method, params } of Object.values(result.inputRequests)) {
    assert.equal(method, "elicitation/create");
    for (const field of Object.values(params.requestedSchema.properties)) {
      assert.ok(FLAT_KINDS.includes(field.type), `not flat: ${JSON.stringify(field)}`);
    }
  }
}
