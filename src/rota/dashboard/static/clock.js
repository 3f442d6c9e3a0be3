// The coordinator's clock: one tick a second, for all relative times.
import { signal } from "./lib.js";

let skewMs = 0;
export const now = signal(Date.now());

export function learnTime(serverMs) {
  const skew = serverMs - Date.now();
  // A small difference is the way of the answer; following it would make times jitter.
  if (Math.abs(skew - skewMs) > 1500) skewMs = skew;
}

const tick = () => { if (!document.hidden) now.value = Date.now() + skewMs; };
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);
