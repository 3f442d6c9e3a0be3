/**
 * The client: submits tasks, starts runs, waits for their ends.
 *
 * Submissions, starts and signals without a key are given one, so a request whose answer was lost is
 * repeated safely. Any other request that may have arrived is not repeated: it rejects with
 * `Unavailable`, and the caller decides.
 */
import { randomBytes } from "node:crypto";

import type {
  NewTask,
  Operations,
  RunRequest,
  RunView,
  TaskCount,
  TaskSelection,
  TaskView,
  WorkflowView,
} from "./api.js";
import { RotaError } from "./errors.js";
import { type RunOf, RunHandle, type SignalOptions, TaskHandle, type TaskOf } from "./handles.js";
import type { TaskDefinition, TaskOptions } from "./tasks.js";
import { Transport, type TransportOptions } from "./transport.js";
import { type CallOptions, waitForEnd, type WaitOptions } from "./waiting.js";

export type ClientOptions = TransportOptions;

/** What identifies, narrows and fills a call of an endpoint. */
export type CallRequest<Name extends keyof Operations> = CallOptions &
  Part<"path", Operations[Name]["path"]> &
  Part<"query", Operations[Name]["query"]> &
  Part<"body", Operations[Name]["body"]> & {
    /** Sending it twice does no more than sending it once. Default: true for GET and PUT. */
    isRepeatable?: boolean;
    /** How long the coordinator may hold the answer back; must agree with the query or body. */
    waitMs?: number;
    /** How long the answer may take in all. */
    timeoutMs?: number;
    /** The caller repeats lost requests by itself. */
    isRepeatedByCaller?: boolean;
  };

/** A part of a request: optional if it may be empty. */
type Part<Field extends string, Type> = Record<never, never> extends Type
  ? { [field in Field]?: Type }
  : undefined extends Type
    ? { [field in Field]?: Type }
    : { [field in Field]: Type };

type TaskQuery = Operations["GET /api/tasks"]["query"];
type RunQuery = Operations["GET /api/runs"]["query"];

/** What the start of a run may say, besides its workflow and its input. */
export type RunOptions = Omit<RunRequest, "workflow" | "input">;

const TASK_ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);
const RUN_ENDED: ReadonlySet<string> = new Set(["completed", "failed", "cancelled", "timed_out"]);
const KEY_PREFIX = "once-";

export class Client {
  readonly transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.transport = new Transport(options);
  }

  // --- tasks -------------------------------------------------------------------------------------

  /** Submit one task. The coordinator answers when the task is on disk. */
  async submit<Payload, Result>(
    task: TaskDefinition<Payload, Result> | string,
    payload: Payload,
    options: TaskOptions & CallOptions = {},
  ): Promise<TaskHandle<Result>> {
    const { signal, ...given } = options;
    const [handle] = await this.submitAll<Result>([newTask(task, payload, given)], { signal });
    if (handle === undefined) {
      throw new RotaError("invalid_answer", "the coordinator answered without the task");
    }
    return handle;
  }

  /** Submit a task for each payload, up to 10,000; all are accepted or none. */
  submitMany<Payload, Result>(
    task: TaskDefinition<Payload, Result> | string,
    payloads: readonly Payload[],
    options: Omit<TaskOptions, "key"> & CallOptions = {},
  ): Promise<TaskHandle<Result>[]> {
    const { signal, ...given } = options;
    const tasks = payloads.map((payload) => newTask(task, payload, given));
    return this.submitAll<Result>(tasks, { signal });
  }

  /** Submit up to 10,000 tasks of any kind; all are accepted or none. */
  async submitAll<Result = unknown>(
    tasks: readonly NewTask[],
    options: CallOptions = {},
  ): Promise<TaskHandle<Result>[]> {
    if (tasks.length === 0) {
      return [];
    }
    const body = tasks.map((one) => (one.key == null ? { ...one, key: newKey() } : one));
    const answer = await this.call("POST /api/tasks", { body, isRepeatable: true, ...options });
    const views = Array.isArray(answer) ? answer : [answer];
    // A task with a key of ours was sent by one caller: a duplicate is a repetition of ours.
    return views.map((view, index) => {
      const isDuplicate = tasks[index]?.key != null && view.duplicate === true;
      return new TaskHandle<Result>(this, view.id, isDuplicate);
    });
  }

  /** A handle of a task by its id; asks nothing. */
  task<Result = unknown>(taskId: string): TaskHandle<Result> {
    return new TaskHandle<Result>(this, taskId);
  }

  async getTask<Result = unknown>(taskId: string, options: CallOptions = {}): Promise<TaskOf<Result>> {
    const path = { task_id: taskId };
    return (await this.call("GET /api/tasks/{task_id}", { path, ...options })) as TaskOf<Result>;
  }

  /** Wait until a task has ended, however it ends. */
  async waitForTask<Result = unknown>(taskId: string, options: WaitOptions = {}): Promise<TaskOf<Result>> {
    const path = { task_id: taskId };
    const ask = (waitMs: number): Promise<TaskView> =>
      this.call("GET /api/tasks/{task_id}", {
        path,
        query: { wait_ms: waitMs },
        waitMs,
        signal: options.signal,
      });
    return (await waitForEnd(`task '${taskId}'`, TASK_ENDED, ask, options)) as TaskOf<Result>;
  }

  /** Tasks by filter, newest first, page by page as they are consumed. */
  listTasks(query: Omit<TaskQuery, "cursor"> = {}, options: CallOptions = {}): AsyncIterable<TaskView> {
    return everyItem((cursor) =>
      this.call("GET /api/tasks", { query: withCursor<TaskQuery>(query, cursor), ...options }),
    );
  }

  async cancelTask<Result = unknown>(taskId: string, options: CallOptions = {}): Promise<TaskOf<Result>> {
    const path = { task_id: taskId };
    return (await this.call("POST /api/tasks/{task_id}/cancel", { path, ...options })) as TaskOf<Result>;
  }

  /** Run a task again that has failed or was cancelled. */
  async retryTask<Result = unknown>(taskId: string, options: CallOptions = {}): Promise<TaskOf<Result>> {
    const path = { task_id: taskId };
    return (await this.call("POST /api/tasks/{task_id}/retry", { path, ...options })) as TaskOf<Result>;
  }

  /** Cancel all tasks that a selection means; with `dry_run` only count them. */
  cancelTasks(selection: TaskSelection, options: CallOptions = {}): Promise<TaskCount> {
    const isRepeatable = selection.dry_run === true;
    return this.call("POST /api/tasks/cancel", { body: selection, isRepeatable, ...options });
  }

  /** Retry all tasks that a selection means; with `dry_run` only count them. */
  retryTasks(selection: TaskSelection, options: CallOptions = {}): Promise<TaskCount> {
    const isRepeatable = selection.dry_run === true;
    return this.call("POST /api/tasks/retry", { body: selection, isRepeatable, ...options });
  }

  // --- workflows and runs ------------------------------------------------------------------------

  /** Store the definition of a workflow; the same content again is the same version. */
  putWorkflow(
    definition: Operations["PUT /api/workflows/{workflow}"]["body"],
    options: CallOptions = {},
  ): Promise<WorkflowView> {
    const path = { workflow: definition.name };
    return this.call("PUT /api/workflows/{workflow}", { path, body: definition, ...options });
  }

  /** Start a run of a workflow, or of a durable function. */
  async startRun<Output = unknown, Input = unknown>(
    workflow: string,
    input: Input,
    options: RunOptions & CallOptions = {},
  ): Promise<RunHandle<Output>> {
    const { signal, ...given } = options;
    const body = { ...given, workflow, input, key: given.key ?? newKey() };
    const run = await this.call("POST /api/runs", { body, isRepeatable: true, signal });
    return new RunHandle<Output>(this, run.id, given.key != null && run.duplicate === true);
  }

  /** A handle of a run by its id; asks nothing. */
  run<Output = unknown>(runId: string): RunHandle<Output> {
    return new RunHandle<Output>(this, runId);
  }

  async getRun<Output = unknown>(runId: string, options: CallOptions = {}): Promise<RunOf<Output>> {
    const path = { run_id: runId };
    return (await this.call("GET /api/runs/{run_id}", { path, ...options })) as RunOf<Output>;
  }

  /** Wait until a run has ended, however it ends. */
  async waitForRun<Output = unknown>(runId: string, options: WaitOptions = {}): Promise<RunOf<Output>> {
    const path = { run_id: runId };
    const ask = (waitMs: number): Promise<RunView> =>
      this.call("GET /api/runs/{run_id}", {
        path,
        query: { wait_ms: waitMs },
        waitMs,
        signal: options.signal,
      });
    return (await waitForEnd(`run '${runId}'`, RUN_ENDED, ask, options)) as RunOf<Output>;
  }

  /** Runs by filter, newest first, page by page as they are consumed. */
  listRuns(query: Omit<RunQuery, "cursor"> = {}, options: CallOptions = {}): AsyncIterable<RunView> {
    return everyItem((cursor) =>
      this.call("GET /api/runs", { query: withCursor<RunQuery>(query, cursor), ...options }),
    );
  }

  /** Send a signal to a run; the same key is delivered once. */
  signalRun(
    runId: string,
    name: string,
    payload: unknown = null,
    options: SignalOptions & CallOptions = {},
  ): Promise<RunView> {
    const { signal, ...given } = options;
    const body = { ...given, name, payload, key: given.key ?? newKey() };
    const path = { run_id: runId };
    return this.call("POST /api/runs/{run_id}/signal", { path, body, isRepeatable: true, signal });
  }

  // --- any endpoint ------------------------------------------------------------------------------

  /** Call an endpoint of the HTTP API by its method and path, with the types of its parts. */
  async call<Name extends keyof Operations>(
    name: Name,
    ...[request]: Record<never, never> extends CallRequest<Name>
      ? [request?: CallRequest<Name>]
      : [request: CallRequest<Name>]
  ): Promise<Operations[Name]["answer"]> {
    const { path = {}, query = {}, body, ...rest } = (request ?? {}) as LooseRequest;
    const [method, template] = name.split(" ") as [string, string];
    return (await this.transport.send({
      ...rest,
      method,
      path: filledPath(template, path) + queryText(query),
      body,
      isRepeatable: rest.isRepeatable ?? (method === "GET" || method === "PUT"),
    })) as Operations[Name]["answer"];
  }
}

interface LooseRequest extends CallOptions {
  path?: Record<string, string>;
  query?: Record<string, unknown>;
  body?: unknown;
  isRepeatable?: boolean;
  waitMs?: number;
  timeoutMs?: number;
  isRepeatedByCaller?: boolean;
}

function newTask<Payload, Result>(
  task: TaskDefinition<Payload, Result> | string,
  payload: Payload,
  options: TaskOptions,
): NewTask {
  if (typeof task === "string") {
    return { ...options, name: task, payload: payload ?? null };
  }
  return { ...task.options, ...options, name: task.name, payload: payload ?? null };
}

/** An idempotency key for a request that has none. */
function newKey(): string {
  return KEY_PREFIX + randomBytes(16).toString("hex");
}

function withCursor<Query extends { cursor?: string }>(
  query: Omit<Query, "cursor">,
  cursor: string | undefined,
): Query {
  return { ...query, ...(cursor === undefined ? {} : { cursor }) } as Query;
}

async function* everyItem<Item>(
  page: (cursor: string | undefined) => Promise<{ items: Item[]; next_cursor?: string | null }>,
): AsyncGenerator<Item, void, undefined> {
  let cursor: string | undefined;
  do {
    const { items, next_cursor: next } = await page(cursor);
    yield* items;
    cursor = next ?? undefined;
  } while (cursor !== undefined);
}

function filledPath(template: string, values: Record<string, string>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined || value === "" || value === "." || value === "..") {
      throw new RotaError("invalid", `${name} is missing, or no id: ${JSON.stringify(value)}`);
    }
    return encodeURIComponent(value);
  });
}

function queryText(query: Record<string, unknown>): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) {
        pairs.append(name, String(one));
      }
    }
  }
  const text = pairs.toString();
  return text === "" ? "" : `?${text}`;
}
