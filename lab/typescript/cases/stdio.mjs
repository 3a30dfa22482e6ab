// The stdio transport: the SDK's own, which starts the server, behind a relay that keeps its bytes.
//
// A transport is how a bench reaches a server. It has a name and
//   open({ folder, data, principal, clockMs, flags })  gives a link to a new server;
//   lost(error)  says whether an error of the SDK means that no reply came.
// A link has the SDK's `transport`, not yet started, and
//   ended()  for when the client has closed: `{ exits, log, transcripts, frames }` of all that it
//   started.

import { existsSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";

import { SdkError, SdkErrorCode } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { readTranscript } from "./replies.mjs";
import { BINARY, childArguments } from "./settings.mjs";
import { found } from "./watching.mjs";

// In `auto` mode the SDK starts a second server from the same command line, probes it, and ends it
// with SIGTERM; it tells the exit code of neither. So the command is a shell that gives each server
// a folder of its own, 1, 2, ..., and notes how it ended, even when the shell itself is killed.
const KEEPER = `
# A command in the background reads nothing unless it is told to.
exec 3<&0
n=1
until mkdir "$0/$n"; do n=$((n + 1)); [ "$n" -lt 9 ] || exit 1; done 2>/dev/null
{
  "$1" relay --transcript "$0/$n/transcript.jsonl" -- "$@" 2>"$0/$n/log"
  echo "$?" >"$0/$n/code"
  mv "$0/$n/code" "$0/$n/exit"
} <&3 &
wait
`;

export const stdio = {
  name: "stdio",

  open({ folder, ...server }) {
    const args = ["-c", KEEPER, folder, BINARY, ...childArguments(server)];
    const transport = new StdioClientTransport({ command: "/bin/sh", args });
    return { transport, ended: () => ended(folder) };
  },

  lost(error) {
    return error instanceof SdkError && error.code === SdkErrorCode.ConnectionClosed;
  },
};

/** What is left of one link: of the probe, if there was one, and of the server that served. */
async function ended(folder) {
  const numbers = readdirSync(folder).sort();
  const places = numbers.map((number) => path.join(folder, number));
  for (const place of places) {
    // A server says by it that it has left.
    await found(place, "exit", () => existsSync(path.join(place, "exit")));
  }
  const texts = (name) => places.map((place) => readFileSync(path.join(place, name), "utf8"));
  return {
    exits: texts("exit").map(Number),
    log: texts("log").join(""),
    transcripts: places.map((place) => path.join(place, "transcript.jsonl")),
    frames: places.flatMap((place) => readTranscript(path.join(place, "transcript.jsonl"))),
  };
}
