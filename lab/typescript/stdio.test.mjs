// The cases with the official TypeScript SDK over stdio, against the lab's real servers.
//
//   cargo build --workspace --bins && npm ci && npm test
//
// COUNTERFOIL_LAB_BIN names the lab's binary, and the product's is beside it; without it,
// target/debug/counterfoil-lab is taken.
// COUNTERFOIL_LAB_KEEP=DIR keeps transcripts, logs and ledgers there, a folder a test.

import { control } from "./cases/control.mjs";
import { plain } from "./cases/plain.mjs";
import { revisions } from "./cases/revisions.mjs";
import { stdio } from "./cases/stdio.mjs";
import { twelveCases } from "./cases/twelve.mjs";

twelveCases(stdio);
control(stdio);
revisions(stdio);
plain();
