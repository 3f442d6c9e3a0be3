/** What a handler may ask for instead of a result, and how its end is reported. */
import type { LeaseView, ResultItem } from "../api.js";

/** Of a delay, a retry, a snooze. */
export const MAX_DELAY_MS = 10 * 366 * 24 * 3600 * 1000;
const MAX_ERROR_LENGTH = 20_000;
const MAX_TRACEBACK_LENGTH = 8_000;

/** Base of the answers that a handler throws or returns instead of a result. */
export abstract class HandlerAnswer extends Error {}

/** Run the task again after a time; this attempt does not count. */
export class Snooze extends HandlerAnswer {
  override name = "Snooze";

  constructor(readonly ms: number) {
    super(`snooze for ${ms} ms`);
    checkDelay(ms);
  }
}

/** As `Snooze`; until then no task starts that names a rate of this task. */
export class RateLimited extends HandlerAnswer {
  override name = "RateLimited";

  constructor(readonly retryAfterMs: number) {
    super(`rate limited for ${retryAfterMs} ms`);
    checkDelay(retryAfterMs);
  }
}

/** Fail the attempt; retry after `inMs`, or as the task's back-off says. */
export class Retry extends HandlerAnswer {
  override name = "Retry";
  readonly inMs: number | undefined;

  constructor(reason = "the handler asked for a retry", options: { inMs?: number } = {}) {
    super(reason);
    if (options.inMs !== undefined) {
      checkDelay(options.inMs);
    }
    this.inMs = options.inMs;
  }
}

/** Fail the task for good, whatever attempts it has left; with a `cause`, with that error. */
export class Discard extends HandlerAnswer {
  override name = "Discard";

  constructor(reason = "discarded by its handler", options: { cause?: unknown } = {}) {
    super(reason, options);
  }
}

function checkDelay(ms: number): void {
  if (!Number.isInteger(ms) || ms < 0 || ms > MAX_DELAY_MS) {
    throw new RangeError(`a delay is an integer of 0 to ${MAX_DELAY_MS} ms, not ${ms}`);
  }
}

/** The report on one task. Its result is JSON text already, so that it is written once. */
export type Report = Omit<ResultItem, "result" | "error" | "shard"> & {
  result?: string;
  error?: { type: string; message: string; retryable: boolean; details?: unknown };
};

/** The report of a value that a handler returned. */
export function reportOfValue(lease: LeaseView, value: unknown): Report {
  if (value instanceof HandlerAnswer) {
    return reportOfError(lease, value);
  }
  const base = { task_id: lease.task_id, fence: lease.fence, ok: true };
  if (value === undefined || value === null) {
    return base;
  }
  try {
    const result = JSON.stringify(value) as string | undefined;
    if (result !== undefined) {
      return { ...base, result };
    }
    return unreadable(lease, `a ${typeof value}`);
  } catch (error) {
    return unreadable(lease, messageOf(error));
  }
}

function unreadable(lease: LeaseView, reason: string): Report {
  const text = `the result of '${lease.name}' cannot be written as JSON: ${reason}`;
  return failure(lease, "unreadable_result", text, { isRetryable: false });
}

/** The report of an error that a handler threw. */
export function reportOfError(lease: LeaseView, error: unknown): Report {
  const base = { task_id: lease.task_id, fence: lease.fence };
  if (error instanceof Snooze) {
    return { ...base, snooze_ms: error.ms };
  }
  if (error instanceof RateLimited) {
    return { ...base, snooze_ms: error.retryAfterMs, rate_limited: true };
  }
  if (error instanceof Retry) {
    const report = failure(lease, "Retry", error.message, { details: detailsOf(error) });
    return error.inMs === undefined ? report : { ...report, retry_in_ms: error.inMs };
  }
  if (error instanceof Discard) {
    if (error.cause === undefined) {
      return failure(lease, "Discard", error.message, { isRetryable: false });
    }
    return failure(lease, typeOf(error.cause), messageOf(error.cause), {
      isRetryable: false,
      details: detailsOf(error.cause),
    });
  }
  return failure(lease, typeOf(error), messageOf(error), { details: detailsOf(error) });
}

export function failure(
  lease: LeaseView,
  type: string,
  message: string,
  more: { isRetryable?: boolean; details?: unknown } = {},
): Report {
  const error = {
    type: type.slice(0, MAX_ERROR_LENGTH),
    message: message.slice(0, MAX_ERROR_LENGTH),
    retryable: more.isRetryable ?? true,
    ...(more.details === undefined ? {} : { details: more.details }),
  };
  return { task_id: lease.task_id, fence: lease.fence, ok: false, error };
}

function typeOf(error: unknown): string {
  return error instanceof Error ? error.name || "Error" : typeof error;
}

/** The text of an error, also of a thrown value that has none. */
export function messageOf(error: unknown): string {
  try {
    return error instanceof Error ? error.message : String(error);
  } catch {
    return `(an error of type ${typeOf(error)} that cannot be shown)`;
  }
}

function detailsOf(error: unknown): { traceback: string } | undefined {
  if (!(error instanceof Error) || typeof error.stack !== "string") {
    return undefined;
  }
  return { traceback: error.stack.slice(0, MAX_TRACEBACK_LENGTH) };
}
