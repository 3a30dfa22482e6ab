// How an issue is asked for in each protocol revision, as the SDK drives it by itself: by rounds in
// the newest one, by classic elicitation in the older ones.

import assert from "node:assert/strict";

import * as check from "./checks.mjs";
import { User, accepted, issue, labSuite } from "./lab.mjs";
import { BODY, DIES_AFTER_COMMIT, LEGACY, MODERN, OP } from "./settings.mjs";

/** The flow of create_issue over the three revisions that are served. */
export function revisions(transport) {
  labSuite(transport, "the revisions", {
    ...inEach([MODERN, ...LEGACY], IN_EACH_REVISION),
    ...inEach(LEGACY, IN_EACH_LEGACY_REVISION),
    // Where an older client may resume its stream, what was lost would not stay lost.
    ...(transport.resumes ? {} : inEach(LEGACY, WHERE_A_LOSS_STAYS)),
    ...IN_THE_NEWEST,
  });
}

function inEach(revisions, cases) {
  const inOne = (revision) =>
    Object.entries(cases).map(([title, body]) => [
      `${revision}: ${title}`,
      (makeBench) => body(makeBench, revision),
    ]);
  return Object.fromEntries(revisions.flatMap(inOne));
}

const IN_EACH_REVISION = {
  async "the flow as the SDK drives it"(makeBench, revision) {
    // Promise: a client that knows only `callTool` creates one issue, and the SDK finds each result
    // to be what the tool's output schema declares.
    const bench = makeBench();
    const user = new User();
    const server = await bench.serve({ revision, user });
    const { extensions } = server.client.getServerCapabilities();
    assert.deepEqual(extensions, { "io.counterfoil/operations": {} });
    // From here on the SDK holds results against the schemas that were listed.
    const { tools } = await server.client.listTools();
    const listed = tools.map((tool) => [tool.name, typeof tool.outputSchema]);
    assert.deepEqual(Object.fromEntries(listed).create_issue, "object");
    for (const replayed of [false, true]) {
      const result = await callTool(server, issue(OP));
      assert.deepEqual(result.structuredContent, {
        operationId: OP,
        state: "applied",
        replayed,
        result: "created 1",
        effectId: 1,
      });
    }
    const seen = await server.status(OP);
    await server.end();
    check.checkStatus(seen, OP, "applied", { ids: [1], result: "created 1" });
    assert.equal(user.forms.length, 1, "the retry is answered without asking again");
    assert.deepEqual(Object.keys(user.forms[0].requestedSchema.properties), ["body"]);
    await check.checkOneRow(bench, OP);
  },

  async "a form that is declined or cancelled"(makeBench, revision) {
    // Promise: who does not want the issue gets none, and the ID stays free for it.
    const bench = makeBench();
    const user = new User({ action: "decline" }, { action: "cancel" }, accepted());
    const server = await bench.serve({ revision, user });
    for (const action of ["decline", "cancel"]) {
      const result = await callTool(server, issue(OP));
      assert.equal(result.isError ?? false, false, JSON.stringify(result));
      assert.deepEqual(result.structuredContent, { operationId: OP, state: "unknown", action });
      check.checkStatus(await server.status(OP), OP, "unknown", { detail: "no_record" });
    }
    const made = await callTool(server, issue(OP));
    await server.end();
    assert.deepEqual([made.structuredContent.replayed, user.forms.length], [false, 3]);
    await check.checkOneRow(bench, OP);
  },

  async "a client without forms"(makeBench, revision) {
    // Promise: a client that cannot be asked is told of `body` and not left waiting.
    const bench = makeBench();
    const server = await bench.serve({ revision, user: null });
    const refused = await server.create(issue(OP));
    const made = await server.create(issue(OP, { body: BODY }));
    const again = await server.create(issue(OP, { body: BODY }));
    await server.end();
    if (revision === MODERN) {
      assert.deepEqual([refused.kind, refused.body.code], ["error", -32021]);
      const requiredCapabilities = { elicitation: { form: {} } };
      assert.deepEqual(refused.body.data, { requiredCapabilities });
      assert.match(refused.body.message, /body/);
    } else {
      check.checkRefused(refused, OP, "invalid_argument", "none");
      assert.match(refused.body.error.message, /`body`/);
    }
    check.checkApplied(made, OP);
    check.checkApplied(again, OP, { replayed: true });
    await check.checkOneRow(bench, OP);
  },
};

const WHERE_A_LOSS_STAYS = {
  async "a lost reply is recovered"(makeBench, revision) {
    // Promise: an older client recovers by asking too, or by the same call again.
    const bench = makeBench();
    const user = new User();
    const dying = await bench.serve({ revision, user, flags: DIES_AFTER_COMMIT });
    const lost = await dying.create(issue(OP));
    await dying.end(70);
    assert.deepEqual(lost, { kind: "lost" });
    assert.deepEqual(dying.calls().map((call) => call.reply), [undefined], "no reply was sent");
    const server = await bench.serve({ revision, user });
    const seen = await server.status(OP);
    const again = await server.create(issue(OP));
    const changed = await server.create(issue(OP, { body: "Another text." }));
    await server.end();
    check.checkStatus(seen, OP, "applied", { ids: [1], result: "created 1" });
    check.checkApplied(again, OP, { replayed: true });
    check.checkConflict(changed, OP);
    assert.equal(user.forms.length, 1, "who was asked once is not asked again");
    await check.checkOneRow(bench, OP);
  },
};

const IN_EACH_LEGACY_REVISION = {
  async "it shares its ledger with the newest revision"(makeBench, revision) {
    // Promise: an ID means one effect whichever revision its caller speaks.
    const bench = makeBench();
    const modern = await bench.serve();
    const state = await modern.ask(issue(OP));
    check.checkApplied(await modern.answer(issue(OP), state), OP);
    await modern.end();
    const legacy = await bench.serve({ revision });
    check.checkApplied(await legacy.create(issue(OP)), OP, { replayed: true });
    await legacy.end();
    await check.checkOneRow(bench, OP);
  },
};

const IN_THE_NEWEST = {
  async "the SDK's rounds carry the state by themselves"(makeBench) {
    // Promise: the SDK answers a round with the state that it was given, and with nothing else new.
    const bench = makeBench();
    const server = await bench.serve();
    await callTool(server, issue(OP));
    await server.end();
    const [asked, continued] = server.calls();
    const { requestState, inputResponses, ...params } = continued.request.params;
    assert.deepEqual(params, asked.request.params);
    assert.equal(requestState, asked.reply.message.result.requestState);
    assert.deepEqual(inputResponses, { body: { action: "accept", content: { body: BODY } } });
    await check.checkOneRow(bench, OP);
  },
};

/** create_issue as the SDK drives it, with all its rounds. */
function callTool(server, args) {
  return server.client.callTool({ name: "create_issue", arguments: args });
}
