/** Long polls until something has ended, across a coordinator's restart. Every wait has an end. */
import { RotaError, Unavailable, WaitTimeout } from "./errors.js";
import { nowMs, pause } from "./timing.js";

/** The end of a wait that names none. */
export const DEFAULT_WAIT_MS = 300_000;
export const MAX_WAIT_MS = 366 * 24 * 3600 * 1000;
/** How long the coordinator may hold one answer back. */
const CALL_WAIT_MS = 30_000;
const ASK_AGAIN_AFTER_MS = 500;
const MOST_RETRY_AFTER_MS = 30_000;

export interface CallOptions {
  /** Ends the call: it rejects with the reason of the signal. */
  signal?: AbortSignal | undefined;
}

export interface WaitOptions extends CallOptions {
  /** After this time the wait rejects with `WaitTimeout`. Default: 5 minutes. */
  timeoutMs?: number;
}

/**
 * Ask until the state of what is asked for is one of `ended`.
 *
 * `ask` is given how long the coordinator may hold its answer back. While no coordinator answers,
 * the wait goes on until its time is over, and then rejects with the reason.
 */
export async function waitForEnd<View extends { state: string }>(
  subject: string,
  ended: ReadonlySet<string>,
  ask: (waitMs: number) => Promise<View>,
  options: WaitOptions,
): Promise<View> {
  const timeoutMs = options.timeoutMs ?? DEFAULT_WAIT_MS;
  if (!(timeoutMs >= 0 && timeoutMs <= MAX_WAIT_MS)) {
    throw new RotaError("invalid", `timeoutMs is 0 to ${MAX_WAIT_MS}, not ${timeoutMs}`);
  }
  const deadline = nowMs() + timeoutMs;
  for (;;) {
    const leftMs = Math.max(0, deadline - nowMs());
    try {
      const view = await ask(Math.floor(Math.min(CALL_WAIT_MS, leftMs)));
      if (ended.has(view.state)) {
        return view;
      }
      if (nowMs() >= deadline) {
        throw new WaitTimeout(subject, view.state, timeoutMs);
      }
    } catch (error) {
      if (!isTemporary(error) || nowMs() + ASK_AGAIN_AFTER_MS > deadline) {
        throw error;
      }
      const askedMs = Math.min(error.retryAfterMs, MOST_RETRY_AFTER_MS);
      const waitMs = Math.max(ASK_AGAIN_AFTER_MS, askedMs);
      await pause(Math.min(waitMs, deadline - nowMs()), options.signal);
    }
  }
}

function isTemporary(error: unknown): error is RotaError {
  return (
    error instanceof Unavailable ||
    (error instanceof RotaError && (error.status === 429 || error.status === 503))
  );
}
