// Waiting for what other processes write, without a clock.

import { watch } from "node:fs";

import { PATIENCE_MS } from "./settings.mjs";

/** Resolves when `look` finds something, which is looked for at each change in the folder. */
export function found(folder, what, look) {
  return new Promise((resolve, reject) => {
    const check = () => {
      try {
        if (look()) {
          finish(resolve);
        }
      } catch (error) {
        finish(() => reject(error));
      }
    };
    const watcher = watch(folder, check);
    const late = () => finish(() => reject(new Error(`${folder}: there never came ${what}`)));
    const timer = setTimeout(late, PATIENCE_MS);
    const finish = (settle) => {
      watcher.close();
      clearTimeout(timer);
      settle();
    };
    check();
  });
}
