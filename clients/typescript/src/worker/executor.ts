/**
 * Runs the handlers of leased tasks.
 *
 * An attempt is settled once: by the end of its handler, or earlier by a stop. A stopped handler sees
 * its signal aborted, and keeps its slot until it returns; what it returns then is dropped.
 */
import type { LeaseView } from "../api.js";
import { MAX_TIMER_MS, nowMs } from "../timing.js";
import { failure, type Report, reportOfError, reportOfValue } from "./outcomes.js";

/** Why a handler has to stop: the reason of its signal. */
export type StopCause = "cancelled" | "lost" | "timed_out" | "stopping";

/** The reason with which the signal of a handler is aborted. */
export class AttemptStopped extends Error {
  override name = "AttemptStopped";

  constructor(readonly why: StopCause) {
    super(`the attempt was stopped: ${why}`);
  }
}

/** The current attempt, for its handler. */
export interface TaskContext {
  readonly taskId: string;
  readonly name: string;
  readonly queue: string;
  /** Of this lease: it rises each time the task is leased. */
  readonly fence: number;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly key: string | null;
  readonly labels: LeaseView["labels"];
  readonly runId: string | null;
  /** Aborted when the handler has to stop; its reason is an `AttemptStopped`. */
  readonly signal: AbortSignal;
  /** Report progress: a share from 0 to 1, or any JSON. Only the newest is sent. */
  progress(value: unknown): void;
  /** Report a result so far, any JSON. */
  partial(value: unknown): void;
}

export type Handler<Payload = unknown, Result = unknown> = (
  payload: Payload,
  context: TaskContext,
) => Result | Promise<Result>;

export interface Attempt {
  readonly lease: LeaseView;
  readonly leasedAt: number;
  readonly controller: AbortController;
  isSettled: boolean;
  timer: NodeJS.Timeout | undefined;
}

export interface ExecutorEvents {
  onReport: (lease: LeaseView, report: Report) => void;
  onProgress: (lease: LeaseView, progress: unknown, partial: unknown) => void;
  onFreeSlot: () => void;
}

export class Executor {
  /** Begun and not settled, by task id. */
  readonly running = new Map<string, Attempt>();
  private readonly lingering = new Set<Attempt>(); // settled and not ended

  constructor(
    private readonly handlers: ReadonlyMap<string, Handler>,
    private readonly concurrency: number,
    private readonly events: ExecutorEvents,
  ) {}

  get freeSlots(): number {
    return this.concurrency - this.running.size - this.lingering.size;
  }

  get isIdle(): boolean {
    return this.running.size === 0 && this.lingering.size === 0;
  }

  begin(leases: readonly LeaseView[]): void {
    for (const lease of leases) {
      const before = this.running.get(lease.task_id);
      if (before !== undefined) {
        if (before.lease.fence >= lease.fence) {
          continue; // the same lease, sent a second time
        }
        this.stop(before, "lost");
      }
      const handler = this.handlers.get(lease.name);
      if (handler === undefined) {
        const text = `this worker has no task named '${lease.name}'`;
        this.events.onReport(lease, failure(lease, "unknown_task", text));
        continue;
      }
      void this.run(handler, lease);
    }
  }

  stop(attempt: Attempt, why: StopCause): void {
    if (attempt.isSettled) {
      return;
    }
    this.settle(attempt);
    this.lingering.add(attempt);
    if (why === "timed_out") {
      const limit = attempt.lease.timeout_ms == null ? "time" : `${attempt.lease.timeout_ms} ms`;
      this.events.onReport(
        attempt.lease,
        failure(attempt.lease, "timeout", `ran past its ${limit}`),
      );
    }
    attempt.controller.abort(new AttemptStopped(why));
  }

  stopAll(why: StopCause): void {
    for (const attempt of [...this.running.values()]) {
      this.stop(attempt, why);
    }
  }

  private async run(handler: Handler, lease: LeaseView): Promise<void> {
    const controller = new AbortController();
    const attempt: Attempt = {
      lease,
      leasedAt: nowMs(),
      controller,
      isSettled: false,
      timer: undefined,
    };
    this.running.set(lease.task_id, attempt);
    this.setTimer(attempt);
    let report: Report;
    try {
      report = reportOfValue(lease, await handler(lease.payload, this.contextOf(attempt)));
    } catch (error) {
      report = reportOfError(lease, error);
    }
    if (attempt.isSettled) {
      this.lingering.delete(attempt);
    } else {
      this.settle(attempt);
      this.events.onReport(lease, report);
    }
    this.events.onFreeSlot();
  }

  private contextOf(attempt: Attempt): TaskContext {
    const { lease, controller } = attempt;
    const note = (progress: unknown, partial: unknown): void => {
      if (!attempt.isSettled) {
        this.events.onProgress(lease, progress, partial);
      }
    };
    return {
      taskId: lease.task_id,
      name: lease.name,
      queue: lease.queue ?? "default",
      fence: lease.fence,
      attempt: lease.attempt,
      maxAttempts: lease.max_attempts,
      key: lease.key ?? null,
      labels: lease.labels ?? null,
      runId: lease.run_id ?? null,
      signal: controller.signal,
      progress: (value) => note(value, undefined),
      partial: (value) => note(undefined, value),
    };
  }

  private setTimer(attempt: Attempt): void {
    const { timeout_ms: timeoutMs, deadline_ms: deadlineMs } = attempt.lease;
    if (timeoutMs == null && deadlineMs == null) {
      return;
    }
    // The coordinator's clock may differ from this one; better than no limit.
    const leftMs = timeoutMs ?? Math.max(0, (deadlineMs as number) - Date.now());
    if (leftMs <= MAX_TIMER_MS) {
      attempt.timer = setTimeout(() => this.stop(attempt, "timed_out"), leftMs);
    }
  }

  private settle(attempt: Attempt): void {
    attempt.isSettled = true;
    clearTimeout(attempt.timer);
    // The same task may be here again, under a newer fence.
    if (this.running.get(attempt.lease.task_id) === attempt) {
      this.running.delete(attempt.lease.task_id);
    }
  }
}
