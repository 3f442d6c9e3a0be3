/**
 * Errors, each with a stable `code`: those that a coordinator answers with, and a few of the client.
 *
 * Match on `code`, with `hasCode`; the texts are for people.
 */
import type { ErrorCode, Problem, TaskError } from "./api.js";

/** The codes of errors that the client raises by itself. */
export type ClientErrorCode =
  | "invalid_answer"
  | "run_cancelled"
  | "run_failed"
  | "task_cancelled"
  | "task_failed"
  | "wait_timeout";

/** Any code; a newer coordinator may answer with one that is not listed. */
export type AnyErrorCode = ErrorCode | ClientErrorCode | (string & Record<never, never>);

const NOT_FACTS = new Set(["code", "title", "status", "detail", "type", "instance"]);
const TEXT_SHOWN = 200;
const UNAVAILABLE_CODES = new Set(["unavailable", "not_leader", "outcome_unknown", "unknown_command"]);

/** What a status means that comes without a code, most likely from a proxy. */
const CODE_BY_STATUS: Record<number, ErrorCode> = {
  400: "invalid",
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  408: "request_timeout",
  409: "conflict",
  413: "too_large",
  414: "target_too_long",
  429: "too_many",
  431: "head_too_large",
  502: "unavailable",
  503: "unavailable",
  504: "unavailable",
};

/** Base of all errors of this package. */
export class RotaError extends Error {
  readonly code: AnyErrorCode;
  /** The HTTP status of the answer; undefined when no answer was involved. */
  readonly status: number | undefined;
  /** The facts of the case, such as `field` or `task_id`. */
  readonly facts: Readonly<Record<string, unknown>>;
  /** How long the coordinator asked the caller to stay away; 0 when it did not. */
  readonly retryAfterMs: number;

  constructor(
    code: AnyErrorCode,
    detail: string,
    more: {
      status?: number;
      facts?: Record<string, unknown>;
      retryAfterMs?: number;
      cause?: unknown;
    } = {},
  ) {
    super(detail, more.cause === undefined ? undefined : { cause: more.cause });
    this.name = new.target.name;
    this.code = code;
    this.status = more.status;
    this.facts = more.facts ?? {};
    this.retryAfterMs = more.retryAfterMs ?? 0;
  }
}

/** The coordinator cannot be reached, broke the request off, or cannot answer now. */
export class Unavailable extends RotaError {
  /** False: the request never reached a coordinator, so it was not carried out. */
  readonly isSent: boolean;

  constructor(
    detail: string,
    more: ConstructorParameters<typeof RotaError>[2] & { code?: AnyErrorCode; isSent?: boolean } = {},
  ) {
    super(more.code ?? "unavailable", detail, more);
    this.isSent = more.isSent ?? true;
  }
}

/** A wait is over before what it waited for has happened; the task or run goes on. */
export class WaitTimeout extends RotaError {
  constructor(subject: string, state: string, timeoutMs: number) {
    super("wait_timeout", `${subject} is still ${state} after ${timeoutMs} ms`);
  }
}

/** The task has failed for good; `error` is that of its last attempt. */
export class TaskFailed extends RotaError {
  constructor(
    readonly taskId: string,
    readonly error: TaskError,
  ) {
    super("task_failed", `${error.type ?? "Error"}: ${error.message ?? ""}`, {
      facts: { task_id: taskId },
    });
  }
}

/** The task was cancelled; it has no result. */
export class TaskCancelled extends RotaError {
  constructor(readonly taskId: string) {
    super("task_cancelled", `task '${taskId}' was cancelled`, { facts: { task_id: taskId } });
  }
}

/** The run has failed or timed out; `error` is what ended it. */
export class RunFailed extends RotaError {
  constructor(
    readonly runId: string,
    readonly state: "failed" | "timed_out",
    readonly error: Readonly<Record<string, unknown>>,
  ) {
    super("run_failed", `${error["type"] ?? state}: ${error["message"] ?? state}`, {
      facts: { run_id: runId },
    });
  }
}

/** The run was cancelled; it has no output. */
export class RunCancelled extends RotaError {
  constructor(readonly runId: string) {
    super("run_cancelled", `run '${runId}' was cancelled`, { facts: { run_id: runId } });
  }
}

/** Whether an error is one of this package with one of these codes. */
export function hasCode<C extends ErrorCode | ClientErrorCode>(
  error: unknown,
  ...codes: readonly C[]
): error is RotaError & { readonly code: C } {
  return error instanceof RotaError && (codes as readonly string[]).includes(error.code);
}

/** The error of a code, without an answer: a refusal over a stream. */
export function errorNamed(code: string | null | undefined, detail: string): RotaError {
  if (code != null && UNAVAILABLE_CODES.has(code)) {
    return new Unavailable(detail, { code });
  }
  return new RotaError(code ?? "error", detail);
}

/** The error of an HTTP answer that is not a success. */
export function errorOf(
  address: string,
  status: number,
  text: string,
  retryAfter: string | null,
): RotaError {
  const problem = readProblem(text);
  const code = problem.code ?? CODE_BY_STATUS[status] ?? "error";
  const detail =
    problem.detail ??
    `${address} answered ${status}: ${text.slice(0, TEXT_SHOWN).trim() || "nothing more"}`;
  const facts = Object.fromEntries(Object.entries(problem).filter(([name]) => !NOT_FACTS.has(name)));
  const retryAfterMs = retryAfter !== null && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) * 1000 : 0;
  if (UNAVAILABLE_CODES.has(code)) {
    return new Unavailable(detail, { code, status, facts, retryAfterMs });
  }
  return new RotaError(code, detail, { status, facts, retryAfterMs });
}

function readProblem(text: string): Partial<Problem> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      return {};
    }
    const problem = value as Record<string, unknown>;
    return {
      ...problem,
      code: typeof problem["code"] === "string" ? problem["code"] : undefined,
      detail: typeof problem["detail"] === "string" ? problem["detail"] : undefined,
    } as Partial<Problem>;
  } catch {
    return {};
  }
}
