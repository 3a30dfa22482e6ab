// The official TypeScript SDK through `counterfoil wrap`.

import { wrapped } from "./cases/wrapped.mjs";

wrapped();
