/** Submitted tasks and started runs. A handle holds no resources; another one can be made by id. */
import type { RunView, SignalRequest, TaskView } from "./api.js";
import type { Client } from "./client.js";
import { RunCancelled, RunFailed, TaskCancelled, TaskFailed } from "./errors.js";
import type { CallOptions, WaitOptions } from "./waiting.js";

/** A task as the coordinator shows it, with the type of its result. */
export type TaskOf<Result> = Omit<TaskView, "result"> & { result?: Result | null };
/** A run as the coordinator shows it, with the type of its output. */
export type RunOf<Output> = Omit<RunView, "output"> & { output?: Output | null };

export class TaskHandle<Result = unknown> {
  constructor(
    private readonly client: Client,
    readonly id: string,
    /** The submission had the key of a task that existed already: this one. */
    readonly isDuplicate = false,
  ) {}

  get(options: CallOptions = {}): Promise<TaskOf<Result>> {
    return this.client.getTask<Result>(this.id, options);
  }

  /** Wait until the task has ended, however it ends. */
  wait(options: WaitOptions = {}): Promise<TaskOf<Result>> {
    return this.client.waitForTask<Result>(this.id, options);
  }

  /** Wait for the result; rejects with `TaskFailed` or `TaskCancelled` if there is none. */
  async result(options: WaitOptions = {}): Promise<Result> {
    const task = await this.wait(options);
    if (task.state === "succeeded") {
      return (task.result ?? null) as Result;
    }
    if (task.state === "cancelled") {
      throw new TaskCancelled(task.id);
    }
    throw new TaskFailed(task.id, task.error ?? {});
  }

  cancel(options: CallOptions = {}): Promise<TaskOf<Result>> {
    return this.client.cancelTask<Result>(this.id, options);
  }

  /** Run a task again that has failed or was cancelled. */
  retry(options: CallOptions = {}): Promise<TaskOf<Result>> {
    return this.client.retryTask<Result>(this.id, options);
  }
}

/** What a signal carries besides its name. */
export type SignalOptions = Omit<SignalRequest, "name" | "payload">;

export class RunHandle<Output = unknown> {
  constructor(
    private readonly client: Client,
    readonly id: string,
    /** The start had the key of a run that existed already: this one. */
    readonly isDuplicate = false,
  ) {}

  get(options: CallOptions = {}): Promise<RunOf<Output>> {
    return this.client.getRun<Output>(this.id, options);
  }

  /** Wait until the run has ended, however it ends. */
  wait(options: WaitOptions = {}): Promise<RunOf<Output>> {
    return this.client.waitForRun<Output>(this.id, options);
  }

  /** Wait for the output; rejects with `RunFailed` or `RunCancelled` if there is none. */
  async output(options: WaitOptions = {}): Promise<Output> {
    const run = await this.wait(options);
    if (run.state === "completed") {
      return (run.output ?? null) as Output;
    }
    if (run.state === "cancelled") {
      throw new RunCancelled(run.id);
    }
    throw new RunFailed(run.id, run.state === "timed_out" ? "timed_out" : "failed", run.error ?? {});
  }

  signal(name: string, payload?: unknown, options: SignalOptions & CallOptions = {}): Promise<RunView> {
    return this.client.signalRun(this.id, name, payload, options);
  }

  cancel(options: { reason?: string; force?: boolean } & CallOptions = {}): Promise<RunView> {
    const { signal, ...body } = options;
    const path = { run_id: this.id };
    return this.client.call("POST /api/runs/{run_id}/cancel", { path, body, signal });
  }

  pause(options: CallOptions = {}): Promise<RunView> {
    return this.client.call("POST /api/runs/{run_id}/pause", { path: { run_id: this.id }, ...options });
  }

  resume(options: CallOptions = {}): Promise<RunView> {
    return this.client.call("POST /api/runs/{run_id}/resume", { path: { run_id: this.id }, ...options });
  }

  /** Run a failed run again from where it failed. */
  retry(options: CallOptions = {}): Promise<RunView> {
    return this.client.call("POST /api/runs/{run_id}/retry", { path: { run_id: this.id }, ...options });
  }
}
