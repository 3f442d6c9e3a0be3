// The coordinator's clock: one tick a second, for all relative times; and how times are shown.
import { signal } from "./lib.js";

const CHOICE = "rota.times";
const read = () => { try { return localStorage.getItem(CHOICE); } catch { return null; } };

/** Whether times are shown by the clock instead of relative to now. */
export const isAbsolute = signal(read() === "absolute");

export function switchTimes() {
  isAbsolute.value = !isAbsolute.value;
  try { localStorage.setItem(CHOICE, isAbsolute.value ? "absolute" : "relative"); } catch { /* it lasts for this page, then */ }
}

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
