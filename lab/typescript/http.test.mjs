// The cases with the official TypeScript SDK over Streamable HTTP, against the lab's real servers.
//
// Where a reply is lost the revision is 2026-07-28: older clients may resume a stream, which hides
// the loss. For the environment see stdio.test.mjs.

import { control } from "./cases/control.mjs";
import { http } from "./cases/http.mjs";
import { identities } from "./cases/identities.mjs";
import { revisions } from "./cases/revisions.mjs";
import { twelveCases } from "./cases/twelve.mjs";

twelveCases(http);
control(http);
revisions(http);
identities();
