// Rates and fairness in words, and periods in seconds. Pure functions.
import { whole } from "../format.js";

export const FAIRNESS = { tasks: "tenants get starts by their weights", time: "tenants get time of workers by their weights" };

export const seconds = (ms) => ms / 1000;
export const toMs = (text) => Math.round(Number(text) * 1000);

/** `2 per 1 s, up to 5 at once`. */
export function pace({ limit, per_ms: perMs, burst, mode }) {
  const words = [`${whole(limit)} per ${perMs >= 1000 ? `${perMs / 1000} s` : `${perMs} ms`}`];
  if (mode === "window") words.push("in any window");
  else if (burst > 1) words.push(`up to ${whole(burst)} at once`);
  return words.join(", ");
}
